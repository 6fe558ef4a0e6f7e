/* What a worker serves where nobody says otherwise, and how many tokens it computes at once: for the worker itself, and
 * for memd, which leaves it room on a device before it is there. */
#ifndef MOED_MODEL_SERVING_LIMITS_H
#define MOED_MODEL_SERVING_LIMITS_H

#include "model/params.h"

#include <stdint.h>

#define PREFILL_TOKENS   256 /* of a request's prompt at once */
#define DEFAULT_PARALLEL 4   /* requests at once */
#define DEFAULT_CONTEXT  4096

/* Rows of the largest batch: a piece of a prompt, or a token of each request. */
static inline uint32_t serving_batch_tokens(uint32_t parallel)
{
    return parallel > PREFILL_TOKENS ? parallel : PREFILL_TOKENS;
}

/* Tokens that a request may have; asked 0: nobody said. */
static inline uint32_t serving_context(const struct model_params *p, uint32_t asked)
{
    if (asked)
        return asked;
    return p->context_trained < DEFAULT_CONTEXT ? p->context_trained : DEFAULT_CONTEXT;
}

#endif
