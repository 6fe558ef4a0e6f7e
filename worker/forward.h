/* The forward pass of a batch of tokens: embedding, then for each layer attention and experts, then the output head. One graph
 * for all architectures; what differs is in model/architecture.h. Where the dense part is computed: dense.h.
 *
 * Each token's result depends on its own request alone, to the bit, as long as a request's tokens are batched
 * in the same pieces (see exec/exec.h for the one reason that pieces matter).
 */
#ifndef MOED_WORKER_FORWARD_H
#define MOED_WORKER_FORWARD_H

#include "base/error.h"
#include "batch.h"
#include "dense.h"
#include "experts.h"
#include "weights.h"

struct forward;

/* Borrows all. weights: bound to where dense computes. context: of a request. */
enum error_code forward_new(const struct model_params *params, const struct model_weights *weights,
                            struct dense *dense, struct experts *experts, uint32_t context,
                            struct forward **out, struct error *e);
void forward_free(struct forward *f); /* takes NULL; before dense */

/* Run n rows; fills the KV cache. one_request: all rows are one request's, so that products through BLAS, whose
 * rounding depends on the number of rows, depend on nobody else. Returns the last layer's output after the final norm,
 * [n][d_model], valid until the next run: what forward_logits takes; with one_request also to be read. NULL: experts cannot be had (experts_finish), or the device
 * has failed; the batch's rows of the KV cache hold anything. */
const float *forward_run(struct forward *f, const struct batch_token *batch, uint32_t n,
                         bool one_request, struct error *e);

/* logits[i * vocab ...] = output head of row i of hidden [n][d_model]; n up to the rows of a batch, one_request as for
 * forward_run. False: the device has failed, as forward_run. */
bool forward_logits(struct forward *f, const float *hidden, uint32_t n, bool one_request,
                    float *logits, struct error *e);
/* The k largest of those rows alone, as dense_ops.largest says. False, likewise. Only where forward_gives_largest. */
bool forward_largest(struct forward *f, const float *hidden, uint32_t n, uint32_t k, float *values,
                     uint32_t *places, struct error *e);
bool forward_gives_largest(const struct forward *f);

#endif
