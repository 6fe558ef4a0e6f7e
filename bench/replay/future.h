/* What a replay will activate, known beforehand: for the oracles and the bound. Times are step * n_layers + layer. */
#ifndef MOED_REPLAY_FUTURE_H
#define MOED_REPLAY_FUTURE_H

#include "bench/replay/steps.h"

struct future {
    uint32_t n_layers, n_experts;
    uint64_t now;    /* uses before this time are past */
    uint64_t *first; /* [n_layers * n_experts + 1]: where an expert's times begin in `times` */
    uint64_t *at;    /* [n_layers * n_experts]: its next one */
    uint64_t *times;
};

/* Of the steps that these options make. Zeroed f. False: no memory. */
bool future_init(struct future *f, const struct trace *trace, uint32_t batch, uint32_t prompt,
                 uint64_t max_tokens);
void future_fini(struct future *f); /* takes a zeroed one */
void future_rewind(struct future *f);
static inline void future_advance(struct future *f, uint64_t step, uint32_t layer)
{
    f->now = step * f->n_layers + layer;
}
/* The first use at f->now or later (after: later); UINT64_MAX: never. now does not go back but by future_rewind. */
uint64_t future_next_use(struct future *f, uint32_t layer, uint32_t expert, bool after);

/* The fewest misses that any cache of so many whole experts could have in steps of decoding, if it may also leave an expert that
 * it missed outside (Belady's rule with bypass, over all layers). Copies during prompts are free: after one the cache holds
 * what is used the soonest. False: no memory. */
bool future_least_misses(struct future *f, const struct trace *trace, uint32_t batch,
                         uint32_t prompt, uint64_t max_tokens, uint64_t capacity, uint64_t *misses,
                         uint64_t *uses);

#endif
