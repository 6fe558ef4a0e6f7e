/* A worker's default limits and the tokens that it computes at once. The worker uses them, and memd
 * reserves device memory for a worker by them. */
#ifndef MOED_MODEL_SERVING_LIMITS_H
#define MOED_MODEL_SERVING_LIMITS_H

#include "model/params.h"

#include <stdint.h>

#define PREFILL_TOKENS      256        /* tokens of a prefill chunk */
#define CHAT_TEMPLATE_BYTES (1u << 20) /* a longer one of a model file is not used */
#define DEFAULT_PARALLEL    4          /* concurrent requests */
#define DEFAULT_CONTEXT     4096       /* on a device, whose memory the experts want */

/* Rows of the largest batch: a prefill chunk, and a token of each request. */
static inline uint32_t serving_batch_tokens(uint32_t parallel)
{
    return PREFILL_TOKENS + parallel;
}

/* Tokens that a request may have. asked 0: the model's own, at most kv_tokens, which is what the KV
 * cache holds, and at most what moed computes; on a device at most DEFAULT_CONTEXT. */
static inline uint32_t serving_context(const struct model_params *p, uint32_t asked,
                                       uint32_t kv_tokens, bool on_device)
{
    uint32_t most = on_device && kv_tokens > DEFAULT_CONTEXT ? DEFAULT_CONTEXT : kv_tokens;
    if (asked)
        return asked;
    if (p->context_most && p->context_most < most)
        most = p->context_most;
    return p->context_trained < most ? p->context_trained : most;
}

#endif
