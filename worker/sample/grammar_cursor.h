/* The place of a request's answer in its grammar, as the sampler's guard and for the engine. Made
 * on the frontend's thread; then the engine thread's alone. It gets its matcher, some 2 MB, only
 * when the request starts: many requests may wait. After that nothing here allocates. */
#ifndef MOED_WORKER_SAMPLE_GRAMMAR_CURSOR_H
#define MOED_WORKER_SAMPLE_GRAMMAR_CURSOR_H

#include "forced_tokens.h"
#include "grammar/matcher.h"
#include "grammars.h"
#include "sampler.h"
#include "tokenizer/tokenizer.h"

struct grammar_cursor;

/* Takes g, also where it fails. start: copied. stop_tokens, borrowed: tokens that end the answer as
 * end tokens do, so they may come only where it may end. vocab: the model's, of the sampler's rows.
 * ERROR_USAGE: the trigger is too long. ERROR_MEMORY. */
enum error_code grammar_cursor_new(struct shared_grammar *g, const struct grammar_start *start,
                                   const struct token_list *stop_tokens, uint32_t vocab,
                                   struct grammar_cursor **out, struct error *e);
void grammar_cursor_free(struct grammar_cursor *c); /* takes NULL */

/* Before the first token is chosen, and before the functions below: makes the matcher, some 0.3 ms,
 * or takes the one of an earlier answer. answer [n]: tokens that another worker generated.
 * ERROR_USAGE: they do not follow the grammar. ERROR_MEMORY. */
enum error_code grammar_cursor_begin(struct grammar_cursor *c, const uint32_t *answer, size_t n,
                                     struct error *e);

const struct sampler_guard *grammar_cursor_guard(const struct grammar_cursor *c);

/* The token becomes part of the answer. False: it may not; grammar_cursor_error says why. */
bool grammar_cursor_advance(struct grammar_cursor *c, uint32_t token);
/* Looks ahead, for drafts; they change nothing of the answer. How many of tokens [n] may come next,
 * one after the other; and what must come, spelt with t's tokens. */
uint32_t grammar_cursor_try(struct grammar_cursor *c, const uint32_t *tokens, uint32_t n);
void grammar_cursor_forced(struct grammar_cursor *c, const struct tokenizer *t,
                           struct forced_tokens *out);
/* The answer may end here; nothing can follow any more. */
bool grammar_cursor_may_end(const struct grammar_cursor *c);
bool grammar_cursor_must_end(const struct grammar_cursor *c);

/* What the guard and the advances cost since the last call. */
struct grammar_cursor_cost {
    uint64_t ns;
    uint64_t steps; /* grammar_matcher_steps */
    uint32_t masks;
};
struct grammar_cursor_cost grammar_cursor_take_cost(struct grammar_cursor *c);

/* For the first token of the answer: what the first tokens of other answers needed
 * (shared_grammar_first_steps), and what it did need. */
uint64_t grammar_cursor_first_steps(const struct grammar_cursor *c, uint64_t unknown);
void grammar_cursor_note_first_steps(const struct grammar_cursor *c, uint64_t steps);

/* Why no token was found that may come: ERROR_LIMIT, ERROR_UNSUPPORTED, ERROR_USAGE. */
enum error_code grammar_cursor_error(const struct grammar_cursor *c, struct error *e);

#endif
