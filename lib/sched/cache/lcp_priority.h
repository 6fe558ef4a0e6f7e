/* MoEpic's priority of an expert (its section 3.3): P = mu rho^(nu / omega). mu: tokens that
 * activated it; nu: tokens since the last that did; rho 0.25; omega 128.
 *
 * Priorities of a layer are compared as log2 P + nu_of_layer log2(1 / rho) / omega, which changes
 * only for activated experts. Several tokens at once count as if the last of them had activated
 * what any of them did. One layer at a time is in a step, until step_over; other layers may be
 * asked about in between. */
#ifndef MOED_SCHED_CACHE_LCP_PRIORITY_H
#define MOED_SCHED_CACHE_LCP_PRIORITY_H

#include <stdbool.h>
#include <stdint.h>

struct lcp_priority {
    double *values; /* [layer][expert]; -infinity: never activated */
    /* the rest is lcp_priority.c's */
    double *counts; /* [layer][expert] mu */
    double *tokens; /* [layer] so far, without the step under way */
    uint32_t n_experts, n_used;
    /* the step under way: its experts, their priorities before it, its tokens */
    struct lcp_touched {
        uint32_t slab; /* layer * n_experts + expert */
        double before;
    } * touched;
    uint32_t n_touched;
    uint64_t workload;
};

/* False: no memory; fini all the same. */
bool lcp_priority_init(struct lcp_priority *p, uint32_t n_layers, uint32_t n_experts,
                       uint32_t n_used);
void lcp_priority_fini(struct lcp_priority *p);

/* Reports an activation of a layer's step, workload >= 1 tokens. False: the expert was reported
 * before in this step; its tokens are added. */
bool lcp_priority_activated(struct lcp_priority *p, uint32_t slab, uint32_t workload);
/* Returns the step's tokens. */
uint64_t lcp_priority_step_over(struct lcp_priority *p, uint32_t layer);

/* An expert's rank in its layer, by its value now among the others' values before the step under
 * way; of equal ones the lower number first. */
uint32_t lcp_priority_rank(const struct lcp_priority *p, uint32_t slab);

#endif
