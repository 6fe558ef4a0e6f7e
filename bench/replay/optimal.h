/* The exact 0-1 assignment of a layer's experts, for replay and tests: DALI's program (its equations 3 to 9), solved by a MIP
 * solver (GLPK). Each expert goes whole to the device or to the CPU; minimised is the later of the two sides, each the sum
 * of its experts' seconds (sched_sides: loading and computing an expert overlap, contention is left out); what is loaded fits
 * the spare slots. Where experts may be split, it is the missing part of each that goes to one side, as in `greedy`. */
#ifndef MOED_REPLAY_OPTIMAL_H
#define MOED_REPLAY_OPTIMAL_H

#include "sched/assign.h"

/* The finish of a plan, whoever made it, by that reckoning: what optimal_assign minimises. */
double optimal_finish(const struct sched_costs *costs, const struct sched_layer *layer,
                      const struct sched_expert *experts, uint32_t n);

struct optimal_options {
    double gap; /* how much worse than the best a plan may be, of it; 0: none (but for rounding) */
    /* of the search tree; 0: any number. After them the best plan so far, or greedy's, is taken */
    uint32_t max_nodes;
};

/* Fills device and load. Returns the plan's finish; *proven: no plan is better by more than the gap. options NULL: exact. Without a
 * CPU everything is loaded, as by sched_assign. Not thread-safe where GLPK is not. */
double optimal_assign(const struct sched_costs *costs, const struct sched_layer *layer,
                      struct sched_expert *experts, uint32_t n,
                      const struct optimal_options *options, bool *proven);

#endif
