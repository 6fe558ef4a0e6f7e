/* Counts of activations in the long run; see long_run.h. */
#include "sched/cache/long_run.h"

#include <stdlib.h>

/* A few thousand tokens: many times the length of one answer. */
#define HALVED_AFTER 2048

bool long_run_init(struct long_run *l, uint32_t n_slabs, uint32_t n_experts,
                   const uint32_t *profile, uint32_t activations)
{
    *l = (struct long_run){.n_slabs = n_slabs, .n_experts = n_experts ? n_experts : 1};
    l->counts = calloc((size_t)n_slabs + 1, sizeof *l->counts);
    if (!l->counts || !profile)
        return l->counts;
    double sum = 0, most = (double)HALVED_AFTER * activations;
    for (uint32_t i = 0; i < n_slabs; i++)
        sum += profile[i];
    double scale = sum > most ? most / sum : 1;
    for (uint32_t i = 0; i < n_slabs; i++)
        long_run_count(l, i, scale * profile[i]);
    return true;
}

void long_run_fini(struct long_run *l)
{
    free(l->counts);
}

void long_run_count(struct long_run *l, uint32_t slab, double weight)
{
    l->counts[slab] += weight;
    l->sum += weight;
}

void long_run_step_over(struct long_run *l)
{
    if (++l->steps < HALVED_AFTER)
        return;
    for (uint32_t i = 0; i < l->n_slabs; i++)
        l->counts[i] /= 2;
    l->sum /= 2;
    l->steps = 0;
}

double long_run_share(const struct long_run *l, uint32_t slab)
{
    return l->counts[slab] / (l->sum / l->n_experts + 1);
}
