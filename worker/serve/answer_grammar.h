/* The place of a request's answer in its grammar, as the sampler's guard and for the engine. Made
 * on the frontend's thread; then the engine thread's alone. It gets its matcher, some 2 MB, only
 * when the request starts: many requests may wait. After that nothing here allocates. */
#ifndef MOED_WORKER_SERVE_ANSWER_GRAMMAR_H
#define MOED_WORKER_SERVE_ANSWER_GRAMMAR_H

#include "grammar/matcher.h"
#include "grammars.h"
#include "sampler.h"
#include "tokenizer/tokenizer.h"

struct answer_grammar;

/* Takes g, also where it fails. start: copied. stop_tokens, borrowed: tokens that end the answer as
 * end tokens do, so they may come only where it may end. vocab: the model's, of the sampler's rows.
 * ERROR_USAGE: the trigger is too long. ERROR_MEMORY. */
enum error_code answer_grammar_new(struct shared_grammar *g, const struct grammar_start *start,
                                   const struct token_list *stop_tokens, uint32_t vocab,
                                   struct answer_grammar **out, struct error *e);
void answer_grammar_free(struct answer_grammar *a); /* takes NULL */

/* Before the first token is chosen, and before the functions below: makes the matcher, some 0.3 ms,
 * or takes the one of an earlier answer. answer [n]: tokens that another worker generated.
 * ERROR_USAGE: they do not follow the grammar. ERROR_MEMORY. */
enum error_code answer_grammar_begin(struct answer_grammar *a, const uint32_t *answer, size_t n,
                                     struct error *e);

const struct sampler_guard *answer_grammar_guard(const struct answer_grammar *a);

/* The token becomes part of the answer. False: it may not; answer_grammar_error says why. */
bool answer_grammar_advance(struct answer_grammar *a, uint32_t token);
/* The answer may end here; nothing can follow any more. */
bool answer_grammar_may_end(const struct answer_grammar *a);
bool answer_grammar_must_end(const struct answer_grammar *a);

/* What the guard and the advances cost since the last call. */
struct answer_grammar_cost {
    uint64_t ns;
    uint64_t steps; /* grammar_matcher_steps */
    uint32_t masks;
};
struct answer_grammar_cost answer_grammar_take_cost(struct answer_grammar *a);

/* For the first token of the answer: what the first tokens of other answers needed
 * (shared_grammar_first_steps), and what it did need. */
uint64_t answer_grammar_first_steps(const struct answer_grammar *a, uint64_t unknown);
void answer_grammar_note_first_steps(const struct answer_grammar *a, uint64_t steps);

/* Why no token was found that may come: ERROR_LIMIT, ERROR_UNSUPPORTED, ERROR_USAGE. */
enum error_code answer_grammar_error(const struct answer_grammar *a, struct error *e);

#endif
