/* MoEpic's cache configuration (its section 3.4): how many segments of the device each layer
 * holds, and of how many experts the first ones, so that the time that loads cannot hide behind
 * computing is short. Pure; only budget_moepic_new allocates.
 *
 * From the records of each layer (moepic_record.h), for a share V and a prefetching window W, of
 * all cache sizes C the one is chosen with the most experts m that are there when they are needed;
 * an expert is cut at theta = V / C. Exposed is T = max(0, (K - m) T_load - m t_expert). The next
 * layer's window is t_moe - min(m t_expert, (K - m) T_load) + t_attention, the first one's t_head
 * + t_attention. From there single steps of 1 % of the whole go from the layer that loses least to
 * the one that gains most, while the sum of T falls.
 *
 * The search runs in work items of one layer each (budget_moepic_work), for an owner that has
 * other work. */
#ifndef MOED_SCHED_CACHE_BUDGET_MOEPIC_H
#define MOED_SCHED_CACHE_BUDGET_MOEPIC_H

#include "sched/cache/cache.h"

/* Between two configurations, and before the first: the paper names no other time for that, and
 * a conversation of 5,000 tokens is long. */
enum { MOEPIC_TOKENS = 5000, MOEPIC_FIRST_TOKENS = 500 };

struct budget_moepic_shape {
    uint32_t n_layers, first_layer, n_experts;
    const uint8_t *layer_segments; /* [n_layers] of an expert; borrowed in _new */
    uint64_t segments;             /* to be shared */
};

struct budget_moepic;

/* Begins with equal shares, and half of each expert. NULL: no memory. */
struct budget_moepic *budget_moepic_new(const struct budget_moepic_shape *shape);
void budget_moepic_free(struct budget_moepic *b); /* takes NULL */
void budget_moepic_costs(struct budget_moepic *b, const struct sched_cache_costs *costs);

/* A layer's step, in this order: its predictions, the first choice first; its activations; its end.
 * rank: the expert's, by priority before the step, 0 the highest. */
void budget_moepic_predicted(struct budget_moepic *b, uint32_t layer, uint32_t expert,
                             uint32_t rank);
/* True if the layer's further predictions are ignored, so that their ranks need not be found. */
bool budget_moepic_is_predicted(const struct budget_moepic *b, uint32_t layer);
void budget_moepic_activated(struct budget_moepic *b, uint32_t layer, uint32_t expert,
                             uint32_t rank);
void budget_moepic_step_over(struct budget_moepic *b, uint32_t layer, uint32_t n_tokens);

/* Does one work item; true when a new configuration is found. A search begins MOEPIC_TOKENS tokens
 * of a layer after the last one. */
bool budget_moepic_work(struct budget_moepic *b);
/* Begins a search at once. */
void budget_moepic_begin(struct budget_moepic *b);
bool budget_moepic_working(const struct budget_moepic *b);
/* The latest configuration. */
uint64_t budget_moepic_segments(const struct budget_moepic *b, uint32_t layer);
uint32_t budget_moepic_experts(const struct budget_moepic *b, uint32_t layer);
/* Its exposed time of a step, in the unit of the costs. NaN before the first configuration. */
double budget_moepic_exposed(const struct budget_moepic *b);

#endif
