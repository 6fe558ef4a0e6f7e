/* MoEpic's priority of an expert (its section 3.3): P = mu rho^(nu / omega), mu how many tokens activated it, nu how many
 * have come since the last that did, rho 0.25, omega 128.
 *
 * Priorities of a layer are compared as log2 P + nu_of_layer log2(1 / rho) / omega, which changes for what is activated
 * alone. Several tokens at once count as if the last of them had activated what any of them did. One layer at a time is in
 * a step, which goes on until step_over: other layers may be asked about meanwhile. */
#ifndef MOED_SCHED_LCP_PRIORITY_H
#define MOED_SCHED_LCP_PRIORITY_H

#include <stdbool.h>
#include <stdint.h>

struct lcp_priority {
    double *values; /* [layer][expert]; -infinity: never activated */
    /* the rest is lcp_priority.c's */
    double *counts; /* [layer][expert] mu */
    double *tokens; /* [layer] so far, those of the step under way not counted */
    uint32_t n_experts, n_used;
    /* the step under way: its experts, their priorities before it, their tokens */
    struct lcp_touched {
        uint32_t slab; /* layer * n_experts + expert */
        double before;
    } *touched;
    uint32_t n_touched;
    uint64_t workload;
};

/* False: no memory; fini all the same. */
bool lcp_priority_init(struct lcp_priority *p, uint32_t n_layers, uint32_t n_experts, uint32_t n_used);
void lcp_priority_fini(struct lcp_priority *p);

/* A layer's step: what it activates, workload tokens of it, at least 1. False: it was told before in this step, and its
 * tokens are added. */
bool lcp_priority_activated(struct lcp_priority *p, uint32_t slab, uint32_t workload);
/* Returns the step's tokens. */
uint64_t lcp_priority_step_over(struct lcp_priority *p, uint32_t layer);

/* An expert's place in its layer, by its value now among the others as they were before the step under way; of equal ones
 * the first by number. */
uint32_t lcp_priority_rank(const struct lcp_priority *p, uint32_t slab);

#endif
