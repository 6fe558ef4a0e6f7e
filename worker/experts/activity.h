/* How often each routed expert was activated lately, and which the latest step activated, for
 * people who watch (docs/http.md).
 *
 * Counting begins with a request and ends ACTIVITY_WATCH_NS after the last one; the counts then
 * start anew. Otherwise activity_count costs one load. The engine's thread counts; any thread
 * reads. */
#ifndef MOED_WORKER_EXPERTS_ACTIVITY_H
#define MOED_WORKER_EXPERTS_ACTIVITY_H

#include <stdbool.h>
#include <stdint.h>

#define ACTIVITY_WATCH_NS   5000000000ull
#define ACTIVITY_HALF_STEPS 64 /* the weight of a step halves in so many steps */
#define ACTIVITY_LEVELS     32
#define ACTIVITY_CHOSEN     0x80 /* beside the level */

struct activity;

/* NULL: no memory. The layers before n_dense have no routed experts. */
struct activity *activity_new(uint32_t n_layers, uint32_t n_dense, uint32_t n_experts);
void activity_free(struct activity *a); /* takes NULL */

/* True: the activations of a layer that began at now_ns are to be counted. */
bool activity_watched(const struct activity *a, uint64_t now_ns);
/* A step activated these experts of the layer, each named once. Only where activity_watched. */
void activity_begin_layer(struct activity *a, uint64_t step, uint32_t layer);
void activity_add(struct activity *a, uint32_t layer, uint32_t expert);
void activity_end_layer(struct activity *a);

uint32_t activity_cells(const struct activity *a); /* (n_layers - n_dense) * n_experts */
/* Fills out[activity_cells], layer by layer: a level below ACTIVITY_LEVELS, the square root of the
 * share of steps that activated the expert, perhaps with ACTIVITY_CHOSEN. Sets *step to the last
 * step that was counted. False: none has been counted. Counting goes on for ACTIVITY_WATCH_NS after
 * now_ns. */
bool activity_read(struct activity *a, uint64_t now_ns, uint8_t *out, uint64_t *step);

#endif
