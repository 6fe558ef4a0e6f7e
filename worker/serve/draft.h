/* Drafts of an answer's next tokens, from three sources:
 *
 * - The conversation itself (prompt lookup): where the last tokens stood before, what followed them
 *   then is likely to follow now. An answer that copies, edits or repeats is drafted well; free
 *   text is not.
 * - The requester's prediction of the answer (expected_answer.h), where its next token is more
 * probable than the conversation's.
 * - What a grammar leaves as the only continuation (draft_force).
 *
 * The search in the conversation: of the last DRAFT_LOOKS earlier places where the conversation's
 * last two tokens stand, the one before which most tokens equal the conversation's end, of equal
 * ones the last. The draft is what follows there; where that reaches the conversation's end, it
 * goes on repeating.
 *
 * Also how often drafts were right, by the length of their match. A draft that no step computes is
 * compared too, so this costs nothing to learn.
 *
 * Threads: the engine's alone. Nothing here allocates after draft_new. */
#ifndef MOED_WORKER_SERVE_DRAFT_H
#define MOED_WORKER_SERVE_DRAFT_H

#include "expected_answer.h"
#include "worker/sample/forced_tokens.h"

#include <stdint.h>

enum {
    DRAFT_LEAST_MATCH = 2, /* tokens */
    DRAFT_LONGEST_MATCH = 16,
    DRAFT_LOOKS = 64,
    DRAFT_CLASSES = 5 /* of matches, by their length */
};

/* The share of drafted tokens that were right; of each class. */
struct draft_rates {
    float right[DRAFT_CLASSES];
};

struct draft; /* of one conversation */

/* capacity: the most tokens that it has. rates: what is expected at first. NULL: out of memory. */
struct draft *draft_new(uint32_t capacity, const struct draft_rates *rates);
void draft_free(struct draft *d); /* takes NULL */
/* Another source, borrowed until draft_free; it follows the answer. */
void draft_expect(struct draft *d, const struct expected_answer *p);

/* Drafts what follows tokens[0, n), which continue the tokens of the last call. Returns the
 * length of the conversation's match; 0: there is none. */
uint32_t draft_find(struct draft *d, const uint32_t *tokens, uint32_t n);
/* How many tokens the draft has, UINT32_MAX for any number; 0: there is none. */
uint32_t draft_length(const struct draft *d);
/* The draft ends before token n, which cannot come. 0: there is no draft. */
void draft_cut(struct draft *d, uint32_t n);
/* After draft_find and draft_cut: what must come, *forced, takes the draft's place if more of its
 * tokens are likely to be right, of `most`. */
void draft_force(struct draft *d, const struct forced_tokens *forced, uint32_t most);
/* Token i of the draft, below its length. */
uint32_t draft_token(const struct draft *d, const uint32_t *tokens, uint32_t i);

/* The probability that token i of the draft is right if those before it are. */
float draft_rate(const struct draft *d, uint32_t i);
/* The tokens before i of the draft were right, and this one has been chosen: compares it. all: the
 * rates of all conversations, which learn more slowly. Does nothing behind the draft's end. A
 * prediction learns by itself. */
void draft_learn(struct draft *d, const uint32_t *tokens, uint32_t i, uint32_t chosen,
                 struct draft_rates *all);

#endif
