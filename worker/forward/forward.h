/* The forward pass of a batch of tokens: embedding, then attention and experts of each layer, then
 * the output head. One sequence of operations serves all architectures; model/architecture.h holds
 * what differs. dense.h describes where the dense part is computed.
 *
 * Each token's result depends only on its own request, to the bit, but for float experts in row
 * groups that a device and the CPU share. worker/kv/prefix_cache.h has the
 * one reason why the division of a prompt into chunks matters. */
#ifndef MOED_WORKER_FORWARD_FORWARD_H
#define MOED_WORKER_FORWARD_FORWARD_H

#include "base/error.h"
#include "base/heartbeat.h"
#include "batch.h"
#include "dense.h"
#include "worker/experts/experts.h"
#include "weights.h"

struct forward;

/* Borrows all. weights: bound to where dense computes. context: the most tokens of a request. */
enum error_code forward_new(const struct model_params *params, const struct model_weights *weights,
                            struct dense *dense, struct experts *experts, uint32_t context,
                            struct forward **out, struct error *e);
/* The heartbeat of the thread that computes: a beat at each layer, and while experts are read.
 * Borrows h. */
void forward_set_heartbeat(struct forward *f, struct heartbeat *h);
void forward_free(struct forward *f); /* takes NULL; before dense */

/* Runs n rows and fills the KV cache. Only in kind.groups may products round otherwise than the
 * definition: that may depend on the number of rows, and a request's result must not depend on
 * other requests.
 *
 * Returns the last layer's output after the final norm, [n][d_model], valid until the next run: an
 * argument of forward_logits. The host may read it only with fetch. NULL: experts are not available
 * (experts_finish), or the device has failed; the batch's rows of the KV cache are then undefined.
 */
const float *forward_run(struct forward *f, const struct batch_token *batch, uint32_t n,
                         struct batch_kind kind, bool fetch, struct error *e);

/* logits[i * vocab ...] = the output head of row i of hidden [n][d_model]; n is at most the rows of
 * a batch. bulk: they are a group. False: the device has failed, as in forward_run, or a logit is
 * infinite or not a number. */
bool forward_logits(struct forward *f, const float *hidden, uint32_t n, bool bulk, float *logits,
                    struct error *e);
/* Only the k largest logits of each row, as dense_ops.largest. False: as forward_logits. Call
 * it only if forward_gives_largest. */
bool forward_largest(struct forward *f, const float *hidden, uint32_t n, uint32_t k, float *values,
                     uint32_t *places, struct error *e);
bool forward_gives_largest(const struct forward *f);

#endif
