/* The exact 0-1 assignment of a layer's experts, for replay and tests: DALI's program (its
 * equations 3 to 9), solved by a MIP solver (GLPK). Each expert goes whole to the device or to the
 * CPU. The program minimises the time of the slower side. The time of a side is the sum over its
 * experts (sched_sides: loading and computing an expert overlap; contention is ignored). Loads must
 * fit the spare slots. Where experts may be split, the missing part of each goes to one side, as in
 * `greedy`. */
#ifndef MOED_REPLAY_OPTIMAL_H
#define MOED_REPLAY_OPTIMAL_H

#include "sched/assign/assign.h"

/* The finish time of any plan by the same cost model: the value that optimal_assign minimises. */
double optimal_finish(const struct sched_costs *costs, const struct sched_layer *layer,
                      const struct sched_expert *experts, uint32_t n);

/* False: optimal_none.c is linked, and nothing else here may be called. */
bool optimal_is_built(void);

struct optimal_options {
    double gap; /* relative distance from the optimum at which to stop; 0: exact, up to rounding */
    /* limit of the search tree, 0: none. At the limit the best plan so far, or greedy's, is used */
    uint32_t max_nodes;
};

/* Fills device and load. Returns the plan's finish time. *proven: no plan is better by more than
 * the gap. options NULL: exact. Without a CPU everything is loaded, as in sched_assign. As
 * thread-safe as GLPK. */
double optimal_assign(const struct sched_costs *costs, const struct sched_layer *layer,
                      struct sched_expert *experts, uint32_t n,
                      const struct optimal_options *options, bool *proven);

#endif
