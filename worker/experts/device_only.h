/* Device-only layers: the device itself determines which experts a layer activates and whether all
 * of them are resident, from a table of their places. The host queues several layers in a row
 * without a plan. If a layer misses an expert, that layer and the layers queued after it change
 * nothing, and the host plans and computes them again. For a CUDA device that computes the dense
 * part too. The engine's thread. */
#ifndef MOED_WORKER_EXPERTS_DEVICE_ONLY_H
#define MOED_WORKER_EXPERTS_DEVICE_ONLY_H

#include "base/error.h"
#include "device/worker_memory.h"
#include "experts.h"

#include <stdbool.h>
#include <stdint.h>

/* The number of layers to queue from this one on, for at most WORKER_DEVICE_ONLY_TOKENS rows; 0:
 * the host plans this layer. */
uint32_t device_only_layers(struct experts *x, uint32_t layer, uint32_t n_tokens);
/* The order of the calls: begin; look for each layer, before any of its operations is queued;
 * choice, for its gate, and queue, in the place of its experts; fetch; wait for the stream; end.
 * Operations that add to rows
 * do so only while no expert is missing (device_module's guard). */
void device_only_begin(struct experts *x, uint32_t layer, uint32_t n_layers, uint32_t n_tokens,
                       struct batch_kind kind);
void device_only_look(struct experts *x, uint32_t layer);
/* Valid until the next call. */
struct device_choice device_only_choice(struct experts *x, uint32_t layer);
/* in: dense_ops.prepare's result, quantised where experts_quantize_own. The rows appear in
 * experts_device_rows, as experts_own_row_of maps them. shared NULL: none, or computed apart. */
void device_only_queue(struct experts *x, const struct device_choice *choice, const void *in,
                       struct device_shared *shared);
void device_only_fetch(struct experts *x);
/* Returns how many of the layers were done. selected: of the first layer, in host memory; that of
 * each later layer begins `stride` numbers further. */
uint32_t device_only_end(struct experts *x, const uint32_t *selected, uint32_t stride);
/* Instead of end, where the wait for the stream failed. */
void device_only_give_up(struct experts *x);

#endif
