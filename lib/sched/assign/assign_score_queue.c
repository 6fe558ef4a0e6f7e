/* HybriMoE's assigner. Missing experts stand in one row by their tokens. The CPU takes them from
 * the fewest up. The device computes what it has first, then loads from the most down. Each expert
 * goes to the side that would finish its next one sooner, to the device if both would, so both
 * finish together as nearly as whole experts allow. Costs are those of each side without
 * contention.
 *
 * Departures: the rule has no bound on loads; an expert that does not fit the spare slots goes to
 * the CPU. HybriMoE's CPU may go on with cached experts when no missing one is left; the rule that
 * we have does not say how, so it is not done. */
#include "sched/assign/assign_internal.h"

#include <math.h>

/* The row, the most tokens first, and when each side is done with its experts so far. */
struct row {
    struct assign_rank ranks[SCHED_MAX_EXPERTS];
    uint32_t first, end; /* what is left: ranks[first..end) */
    double cpu_s, link_s, device_s;
};

static void line_up(const struct assignment *a, struct row *r)
{
    for (uint32_t i = 0; i < a->n; i++) {
        struct sched_expert *e = &a->experts[i];
        uint32_t missing = assign_missing(a->layer, e);
        if (missing == 0)
            assign_to_device(a->layer, e);
        else
            r->ranks[r->end++] = (struct assign_rank){e->workload, e->expert, i};
        uint32_t at_once = missing == 0      ? a->layer->n_segments
                           : a->layer->whole ? 0
                                             : a->layer->n_segments - missing;
        r->device_s += at_once * sched_device_s(a->costs, e->workload);
    }
    assign_sort(r->ranks, r->end);
}

void assign_score_queue(const struct assignment *a)
{
    const struct sched_layer *layer = a->layer;
    struct row r;
    r.first = r.end = 0;
    r.cpu_s = layer->cpu_busy_s;
    r.link_s = layer->link_busy_s;
    r.device_s = 0;
    line_up(a, &r);
    uint32_t left = layer->spare_slots;
    while (r.first < r.end) {
        struct sched_expert *most = &a->experts[r.ranks[r.first].index];
        struct sched_expert *fewest = &a->experts[r.ranks[r.end - 1].index];
        uint32_t missing = assign_missing(layer, most);
        double loaded_s = r.link_s + missing * a->costs->load_s;
        double device_s = fmax(r.device_s, loaded_s) +
                          assign_open(layer, most) * sched_device_s(a->costs, most->workload);
        double cpu_s =
            r.cpu_s + assign_open(layer, fewest) * sched_cpu_s(a->costs, fewest->workload);
        if (missing > left) { /* it cannot be loaded, whichever side is sooner */
            r.cpu_s += assign_open(layer, most) * sched_cpu_s(a->costs, most->workload);
            assign_to_cpu(layer, most);
            r.first++;
        } else if (device_s <= cpu_s) {
            r.link_s = loaded_s;
            r.device_s = device_s;
            left -= missing;
            assign_to_device(layer, most);
            r.first++;
        } else {
            r.cpu_s = cpu_s;
            assign_to_cpu(layer, fewest);
            r.end--;
        }
    }
}
