/* MoEpic's cache configuration (its section 3.4): how many segments each layer of the device's holds, and of how many
 * experts the first ones, so that the time that loads cannot hide behind computing is short. Pure; memory is allocated by _new
 * alone.
 *
 * From what is recorded of each layer (moepic_record.h), for a share V and a prefetching window W, of all cache sizes C the one is
 * taken that makes the experts that are there when they are needed, m, the most; an expert is cut at theta = V / C.
 * Exposed is T = max(0, (K - m) T_load - m t_expert); the next layer's window is t_moe - min(m t_expert, (K - m) T_load) +
 * t_attention, the first one's t_head + t_attention. From there single steps of 1 % of the whole go from the layer that loses
 * least to the one that gains most, while the sum of T falls.
 *
 * That is done in pieces (budget_moepic_work), each of one layer, for an owner that has something else to do. */
#ifndef MOED_SCHED_BUDGET_MOEPIC_H
#define MOED_SCHED_BUDGET_MOEPIC_H

#include "sched/cache.h"

enum { MOEPIC_TOKENS = 5000 }; /* between two configurations */

struct budget_moepic_shape {
    uint32_t n_layers, first_layer, n_experts;
    const uint8_t *layer_segments; /* [n_layers] of an expert; borrowed in _new */
    uint64_t segments;             /* that there are to share */
};

struct budget_moepic;

/* At first equal shares, and half of each expert. NULL: no memory. */
struct budget_moepic *budget_moepic_new(const struct budget_moepic_shape *shape);
void budget_moepic_free(struct budget_moepic *b); /* takes NULL */
void budget_moepic_costs(struct budget_moepic *b, const struct sched_cache_costs *costs);

/* A layer's step, in this order: what is predicted for it, the first choice first, what is activated, its end. rank: of the
 * expert, by priority before the step, 0 the highest. */
void budget_moepic_predicted(struct budget_moepic *b, uint32_t layer, uint32_t expert,
                             uint32_t rank);
void budget_moepic_activated(struct budget_moepic *b, uint32_t layer, uint32_t expert,
                             uint32_t rank);
void budget_moepic_step_over(struct budget_moepic *b, uint32_t layer, uint32_t n_tokens);

/* A piece of what there is to do; true when a new configuration is there. Nothing is done until the tokens of a layer are
 * MOEPIC_TOKENS more than the last time. */
bool budget_moepic_work(struct budget_moepic *b);
/* Begins at once, whatever the tokens. */
void budget_moepic_begin(struct budget_moepic *b);
bool budget_moepic_working(const struct budget_moepic *b);
/* Of the configuration that was finished last. */
uint64_t budget_moepic_segments(const struct budget_moepic *b, uint32_t layer);
uint32_t budget_moepic_experts(const struct budget_moepic *b, uint32_t layer);
/* Exposed in a step, as reckoned; in the unit of the costs. NaN before the first. */
double budget_moepic_exposed(const struct budget_moepic *b);

#endif
