/* What experts are activated in the long run, whatever is served at the moment: counts, beginning with a profile where there is
 * one, all halved now and then. No I/O, no clock; memory is allocated by long_run_init alone. */
#ifndef MOED_SCHED_LONG_RUN_H
#define MOED_SCHED_LONG_RUN_H

#include <stdbool.h>
#include <stdint.h>

struct long_run {
    double *counts; /* [slabs] */
    double sum;
    uint32_t n_slabs, n_experts;
    uint32_t steps; /* since they were halved */
};

/* Of n_slabs numbers n_experts are experts. profile: [n_slabs] tokens; NULL: none. It stands for no more than the steps after
 * which counts are halved, of so many activations each. */
bool long_run_init(struct long_run *l, uint32_t n_slabs, uint32_t n_experts,
                   const uint32_t *profile, uint32_t activations);
void long_run_fini(struct long_run *l);

void long_run_count(struct long_run *l, uint32_t slab, double weight);
void long_run_step_over(struct long_run *l);
/* By how much it exceeds the mean expert: 1, as much; at first, when little is counted, less. */
double long_run_share(const struct long_run *l, uint32_t slab);

#endif
