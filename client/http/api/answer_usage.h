/* What an answer counts: tokens of its prompts and its choices, as far as they are known. */
#ifndef MOED_HTTP_ANSWER_USAGE_H
#define MOED_HTTP_ANSWER_USAGE_H

#include "client/http/api/answer_state.h"

/* Sums over the prompts (in, cached) and over the choices. */
struct answer_usage {
    uint64_t in, out;
    uint64_t cached;                /* of `in`: what no choice had to compute */
    bool in_known, cached_known;    /* else they are too small: choices are not done */
    uint64_t reasoning;             /* of `out` */
    uint64_t drafted, accepted;     /* drafts of tokens that were computed; of these, right */
    uint64_t prediction, predicted; /* tokens of the request's prediction; of these, the ones that
                                       the answers have */
};
struct answer_usage answer_usage(const struct answer *a);

/* Of the choice's prompt. 0: the worker has to find them in the text, and is not done. */
uint64_t choice_prompt_tokens(const struct choice *c);
/* Of its prompt, as the worker counted them, but never more than the prompt has. */
uint32_t choice_cached_tokens(const struct choice *c);
/* Of its n tokens, those whose text has come. */
size_t choice_shown(const struct choice *c, size_t n);
/* So many of its scores belong to the answer for certain. A stream writes no others: a token whose
 * text has not come yet may be behind the one call. */
size_t choice_settled_scores(const struct choice *c);

#endif
