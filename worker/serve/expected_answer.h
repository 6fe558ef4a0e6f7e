/* A text that the requester expects the answer to be (OpenAI's predicted outputs), and where the
 * answer stands in it: a second source of drafts (draft.h).
 *
 * The answer begins at the prediction's first token. As long as the answer's next token is the
 * prediction's, both go on. At a difference the place is lost. One other token in the prediction's
 * place is assumed at first; then the place is where the prediction has the longest match with the
 * answer's last tokens, of at least EXPECTED_LEAST_MATCH, of equal ones the nearest behind the
 * difference, then the nearest before it.
 *
 * Its rates begin high, because the requester knows more than the conversation tells, and follow
 * what this answer does.
 *
 * Threads: one at a time. Nothing here allocates after expected_answer_new. A token costs one
 * comparison, and while the place is lost a look at 2 * EXPECTED_SPAN places at most. */
#ifndef MOED_WORKER_SERVE_EXPECTED_ANSWER_H
#define MOED_WORKER_SERVE_EXPECTED_ANSWER_H

#include <stdint.h>

enum {
    EXPECTED_LEAST_MATCH = 2,   /* tokens */
    EXPECTED_LONGEST_MATCH = 8, /* the place is certain */
    EXPECTED_SPAN = 8192,       /* places that are looked at, on each side */
    EXPECTED_CLASSES = 5        /* of the match's length: 0, 1, 2 to 3, 4 to 7, more */
};

struct expected_answer;

/* tokens [n], at least one; copied. NULL: out of memory. */
struct expected_answer *expected_answer_new(const uint32_t *tokens, uint32_t n);
void expected_answer_free(struct expected_answer *p);            /* takes NULL */
uint64_t expected_answer_bytes(const struct expected_answer *p); /* takes NULL: 0 */

/* answer [n]: the answer so far, one token longer than at the last call; at first n is 1. Takes
 * NULL. */
void expected_answer_follow(struct expected_answer *p, const uint32_t *answer, uint32_t n);

/* The tokens that come next by the prediction: *tokens [returned], valid as long as p. 0: the place
 * is lost, or the prediction is at its end. */
uint32_t expected_answer_rest(const struct expected_answer *p, const uint32_t **tokens);
/* The probability that token i of these is right if those before it are. */
float expected_answer_rate(const struct expected_answer *p, uint32_t i);

/* Tokens of the prediction, and of these the ones that the answer has too. They take NULL: 0. */
uint32_t expected_answer_length(const struct expected_answer *p);
uint32_t expected_answer_found(const struct expected_answer *p);

#endif
