/* Layers that the device runs without being asked: which experts they activate, and that all of these are there, is found
 * out on the device, from a table of where the segments lie. One layer's operations follow the other's; where one misses
 * an expert, it and those behind it change nothing, and the host does it again, by its plan. Of a CUDA device that
 * computes the dense part too. */
#ifndef MOED_WORKER_EXPERTS_ALONE_H
#define MOED_WORKER_EXPERTS_ALONE_H

#include "base/error.h"
#include "device/worker_room.h"

#include <stdbool.h>
#include <stdint.h>

struct experts;

/* How many layers from this one on, for at most WORKER_ALONE_TOKENS rows, to queue without asking; 0: none. */
uint32_t experts_alone_layers(struct experts *x, uint32_t layer, uint32_t n_tokens);
/* Then, in this order: begin; look at each layer, before anything of it is queued; queue, in the place of its experts;
 * fetch; the stream's end; end. What adds to rows there does so only while nothing is missing (device_module's guard). */
void experts_alone_begin(struct experts *x, uint32_t layer, uint32_t n_layers, uint32_t n_tokens);
void experts_alone_look(struct experts *x, uint32_t layer);
/* in: dense_ops.prepare's, quantised where the experts' weights want it (experts_alone_quantize); selected
 * [n_tokens][n_used], on the device. The rows are those of experts_device_rows, experts_own_row_of says which. */
void experts_alone_queue(struct experts *x, uint32_t layer, const void *in, const uint32_t *selected);
bool experts_alone_quantize(const struct experts *x, uint32_t layer);
void experts_alone_fetch(struct experts *x);
/* How many of the layers were done. selected: of the first layer, in host memory; each later one's begins `stride` numbers
 * after it. n_replayed: layers that dense_ops.again queued. */
uint32_t experts_alone_end(struct experts *x, const uint32_t *selected, uint32_t stride,
                           uint32_t n_replayed);
/* In the place of end, where the stream's end failed. */
void experts_alone_give_up(struct experts *x);

#endif
