/* DALI's greedy assigner (its section 4.1, equations 3 to 9). For each activated expert cpu =
 * t_cpu(w) and gpu = max(T, t_gpu(w)), T its load time, 0 if it is cached. In the order of falling
 * |gpu - cpu| each expert goes to the side whose accumulated time would be smaller, to the device
 * if they are equal. Loads must fit the spare slots. Costs are those of each side without
 * contention. So the CPU may compute a cached expert when the device is the busier side.
 *
 * By this accounting the result is never later than all on the device, nor than all on the CPU.
 *
 * Departure: where an expert may be split, the rule decides on the missing segments of a partly
 * resident expert. */
#include "sched/assign/assign_internal.h"

#include <math.h>

struct sched_sides sched_sides(const struct sched_costs *costs, const struct sched_layer *layer,
                               const struct sched_expert *e)
{
    uint32_t missing = assign_missing(layer, e);
    uint32_t part = missing ? assign_open(layer, e) : layer->n_segments;
    return (struct sched_sides){
        part * sched_cpu_s(costs, e->workload),
        fmax(missing * costs->load_s, part * sched_device_s(costs, e->workload))};
}

void assign_greedy(const struct assignment *a)
{
    const struct sched_layer *layer = a->layer;
    struct assign_rank ranks[SCHED_MAX_EXPERTS];
    struct sched_sides total = {layer->cpu_busy_s, layer->link_busy_s};
    for (uint32_t i = 0; i < a->n; i++) {
        const struct sched_expert *e = &a->experts[i];
        struct sched_sides s = sched_sides(a->costs, layer, e);
        ranks[i] = (struct assign_rank){fabs(s.device_s - s.cpu_s), e->expert, i};
        uint32_t missing = assign_missing(layer, e);
        if (missing && !layer->whole)
            total.device_s += (layer->n_segments - missing) * sched_device_s(a->costs, e->workload);
    }
    assign_sort(ranks, a->n);
    uint32_t left = layer->spare_slots;
    for (uint32_t i = 0; i < a->n; i++) {
        struct sched_expert *e = &a->experts[ranks[i].index];
        struct sched_sides s = sched_sides(a->costs, layer, e);
        uint32_t missing = assign_missing(layer, e);
        if (missing <= left && total.device_s + s.device_s <= total.cpu_s + s.cpu_s) {
            total.device_s += s.device_s;
            left -= missing;
            assign_to_device(layer, e);
            continue;
        }
        total.cpu_s += s.cpu_s;
        if (missing)
            assign_to_cpu(layer, e);
        else
            assign_all_to_cpu(e);
    }
}
