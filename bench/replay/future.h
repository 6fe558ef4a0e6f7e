/* The future activations of a replay, for the oracles and the bound. Times are step * n_layers +
 * layer. */
#ifndef MOED_REPLAY_FUTURE_H
#define MOED_REPLAY_FUTURE_H

#include "bench/replay/steps.h"

struct future {
    uint32_t n_layers, n_experts;
    uint64_t now;    /* uses before this time are past */
    uint64_t *first; /* [n_layers * n_experts + 1]: index of an expert's first entry in `times` */
    uint64_t *at;    /* [n_layers * n_experts]: index of its next entry */
    uint64_t *times;
};

/* The options are those of steps_init. f must be zeroed. False: no memory. */
bool future_init(struct future *f, const struct trace *trace, const struct steps_options *options);
void future_fini(struct future *f); /* takes a zeroed one */
void future_rewind(struct future *f);
static inline void future_advance(struct future *f, uint64_t step, uint32_t layer)
{
    f->now = step * f->n_layers + layer;
}
/* The time of the first use at f->now or later (after: only later); UINT64_MAX: never. Only
 * future_rewind may decrease f->now. */
uint64_t future_next_use(struct future *f, uint32_t layer, uint32_t expert, bool after);

/* The fewest misses of any cache of `capacity` whole experts in decode steps: Belady's rule with
 * bypass over all layers (a cache need not keep an expert that missed). Copies during prompts are
 * free: after a prompt the cache holds the experts with the soonest next use. False: no memory. */
bool future_least_misses(struct future *f, const struct trace *trace,
                         const struct steps_options *options, uint64_t capacity, uint64_t *misses,
                         uint64_t *uses);

#endif
