/* Fiddler's assigner. Each missing expert separately: the CPU computes it when t_cpu(w) < T_load +
 * t_device(w), else it is loaded. Costs are those of each side without contention. The device
 * computes what is resident.
 *
 * Departure: the rule has no bound on loads; where they do not fit the spare slots, the experts
 * with the most tokens are loaded. */
#include "sched/assign/assign_internal.h"

void assign_threshold(const struct assignment *a)
{
    struct assign_rank ranks[SCHED_MAX_EXPERTS];
    uint32_t n_loaded = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        struct sched_expert *e = &a->experts[i];
        uint32_t missing = assign_missing(a->layer, e), open = assign_open(a->layer, e);
        double cpu_s = open * sched_cpu_s(a->costs, e->workload);
        double device_s = missing * a->costs->load_s + open * sched_device_s(a->costs, e->workload);
        if (missing == 0)
            assign_to_device(a->layer, e);
        else if (cpu_s < device_s)
            assign_to_cpu(a->layer, e);
        else
            ranks[n_loaded++] = (struct assign_rank){e->workload, e->expert, i};
    }
    assign_sort(ranks, n_loaded);
    assign_load_in_order(a, ranks, n_loaded);
}
