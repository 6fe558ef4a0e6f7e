/* How often experts are activated in the long run: counts, which begin with a profile if there is
 * one and are halved from time to time. Pure; only long_run_init allocates. */
#ifndef MOED_SCHED_CACHE_LONG_RUN_H
#define MOED_SCHED_CACHE_LONG_RUN_H

#include <stdbool.h>
#include <stdint.h>

struct long_run {
    double *counts; /* [slabs] */
    double sum;
    uint32_t n_slabs, n_experts;
    uint32_t steps; /* since the counts were halved */
};

/* Of n_slabs numbers n_experts are experts. profile: [n_slabs] tokens; NULL: none. It counts for at
 * most the steps between two halvings, of `activations` each. */
bool long_run_init(struct long_run *l, uint32_t n_slabs, uint32_t n_experts,
                   const uint32_t *profile, uint32_t activations);
void long_run_fini(struct long_run *l);

void long_run_count(struct long_run *l, uint32_t slab, double weight);
void long_run_step_over(struct long_run *l);
/* Its count divided by the mean expert's; smaller at first, while little is counted. */
double long_run_share(const struct long_run *l, uint32_t slab);

#endif
