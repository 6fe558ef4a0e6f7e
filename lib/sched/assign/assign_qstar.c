/* FreeToken's q*: of m missing experts F are loaded and the CPU computes m - F. F is the floor or
 * the ceiling of m f that minimises max(F (1 - f), (m - F) f), f = link / (link + cpu), both
 * bandwidths measured while both run. The most recently active experts are loaded.
 *
 * The rule knows bandwidths and no workloads: the CPU's bandwidth is taken at one token. */
#include "sched/assign/assign_internal.h"

#include <math.h>

static uint32_t experts_to_load(const struct sched_costs *c, uint32_t m)
{
    double link = 1 / c->load_contended_s, cpu = 1 / sched_cpu_contended_s(c, 1);
    double f = link / (link + cpu);
    uint32_t low = (uint32_t)(m * f), high = low < m ? low + 1 : m;
    double low_cost = fmax(low * (1 - f), (m - low) * f);
    double high_cost = fmax(high * (1 - f), (m - high) * f);
    return high_cost < low_cost ? high : low;
}

void assign_qstar(const struct assignment *a)
{
    struct assign_rank ranks[SCHED_MAX_EXPERTS];
    uint32_t m = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        struct sched_expert *e = &a->experts[i];
        if (assign_missing(a->layer, e) == 0)
            assign_to_device(a->layer, e);
        else
            ranks[m++] = (struct assign_rank){(double)e->last_use, e->expert, i};
    }
    if (m == 0)
        return;
    assign_sort(ranks, m);
    uint32_t loaded = experts_to_load(a->costs, m);
    assign_load_in_order(a, ranks, loaded);
    for (uint32_t i = loaded; i < m; i++)
        assign_to_cpu(a->layer, &a->experts[ranks[i].index]);
}

/* FreeToken streams whole layers to the device in prompts; q* is its rule for decoding. */
void assign_qstar_stream(const struct assignment *a)
{
    if (a->layer->prompt)
        assign_load_all(a);
    else
        assign_qstar(a);
}
