/* The forward pass of a batch of tokens on the host: embedding, then for each layer attention and experts, then
 * the output head. One graph for all architectures; what differs is in model/architecture.h.
 *
 * Each token's result depends on its own request alone, to the bit, as long as a request's tokens are batched
 * in the same pieces (see exec/exec.h for the one reason that pieces matter).
 */
#ifndef MOED_WORKER_FORWARD_H
#define MOED_WORKER_FORWARD_H

#include "base/error.h"
#include "exec/exec.h"
#include "experts.h"
#include "kv_cache.h"
#include "recording.h"
#include "weights.h"

/* One row of a batch. */
struct batch_token {
    uint32_t token;
    uint32_t slot;    /* of the KV cache */
    uint64_t request; /* numbered since the engine's start: for who predicts */
    /* 0-based; all earlier positions of the slot are filled, or in this batch before */
    uint32_t position;
    struct recording *recording; /* of the request, begun; NULL: nobody asked for it */
};

struct forward;

/* Borrows all. max_tokens: rows of a batch. */
enum error_code forward_new(const struct pool_map *map, const struct model_weights *weights,
                            struct kv_cache *kv, struct exec *exec, struct experts *experts,
                            uint32_t max_tokens, struct forward **out, struct error *e);
void forward_free(struct forward *f); /* takes NULL */

/* Run n rows; fills the KV cache. one_request: all rows are one request's, so that products through BLAS, whose
 * rounding depends on the number of rows, depend on nobody else. Returns the last layer's output after the final norm,
 * [n][d_model], valid until the next run: what forward_logits takes. NULL: experts cannot be had (experts_finish); the
 * batch's rows of the KV cache hold anything. */
const float *forward_run(struct forward *f, const struct batch_token *batch, uint32_t n,
                         bool one_request, struct error *e);

/* logits[i * vocab ...] = output head of row i of hidden [n][d_model]; n up to max_tokens. */
void forward_logits(struct forward *f, const float *hidden, uint32_t n, float *logits);

#endif
