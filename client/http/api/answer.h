/* The answer to a request: one or several choices, generated at once, and the dialect that writes
 * them as its API does.
 *
 *     resolving  which deployment has the model
 *     starting   on the deployment's thread: render, tokenize, submit
 *     running    events of the choices come
 *     over
 *
 * An answer outlives its exchange while a job has it. `x` is NULL once the exchange is gone. */
#ifndef MOED_HTTP_ANSWER_H
#define MOED_HTTP_ANSWER_H

#include "client/http/api/answer_state.h"

/* Starts the answer; takes *ask. The exchange is replied to later. id_prefix: "chatcmpl-". */
void answer_start(struct exchange *x, struct ask *ask, const struct dialect *dialect,
                  const char *id_prefix);

/* Sums over the prompts (in, cached) and over the choices. */
struct answer_usage {
    uint64_t in, out;
    uint64_t cached;             /* of `in`: what no choice had to compute */
    bool in_known, cached_known; /* else they are too small: choices are not done */
    uint64_t reasoning;          /* of `out` */
    uint64_t drafted, accepted;  /* drafts of tokens that were computed; of these, right */
};
struct answer_usage answer_usage(const struct answer *a);

/* Of its prompt, as the worker counted them, but never more than the prompt has. */
uint32_t choice_cached_tokens(const struct choice *c);
/* So many of its scores belong to the answer for certain. A stream writes no others: a token whose
 * text has not come yet may be behind the one call. */
size_t choice_settled_scores(const struct choice *c);
/* It ended by itself, with calls of tools that are all complete. */
bool choice_has_calls(const struct choice *c);
/* The answer ended because no more tokens were allowed, or fit. */
bool choice_is_cut(const struct choice *c);

#endif
