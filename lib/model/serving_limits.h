/* A worker's default limits and the tokens that it computes at once. The worker uses them, and memd
 * reserves device memory for a worker by them. */
#ifndef MOED_MODEL_SERVING_LIMITS_H
#define MOED_MODEL_SERVING_LIMITS_H

#include "model/params.h"

#include <stdint.h>

/* Tokens of prompts in a batch. The least is a whole group of a prompt (KV_LARGE_TOKENS). With all
 * weights in host memory more tokens share no reads that matter. Where experts come over a link, or
 * from a file, a batch reads each of them once; a CUDA device has the most that it has memory for
 * (device/device_plan.h). */
enum { BATCH_LEAST = 256, BATCH_MOST = 8192 };
enum { BATCH_IN_MEMORY = 256, BATCH_READ_ONCE = 2048, BATCH_ON_DEVICE = 4096 };

#define CHAT_TEMPLATE_BYTES (1u << 20) /* a longer one of a model file is not used */
#define DEFAULT_PARALLEL    32         /* concurrent requests (memory_parallel) */
#define DEFAULT_KV_REQUESTS 4          /* at most, that a device's KV cache holds to their end */
#define DEFAULT_CONTEXT     4096       /* on a device, whose memory the experts want */

/* The default of `most` tokens in a batch: not more than the groups of a request of `context` have.
 */
static inline uint32_t serving_batch(uint32_t most, uint32_t context)
{
    uint32_t whole =
        context < BATCH_MOST ? (context + BATCH_LEAST - 1) / BATCH_LEAST * BATCH_LEAST : BATCH_MOST;
    return whole < BATCH_LEAST ? BATCH_LEAST : whole < most ? whole : most;
}

/* Rows of the largest batch: of prompts, and a token of each request. */
static inline uint32_t serving_batch_tokens(uint32_t batch, uint32_t parallel)
{
    return batch + parallel;
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
