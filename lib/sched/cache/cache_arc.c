/* ARC over all layers; arc.h has the rule. The capacity counts whole experts. If the oldest of the
 * chosen list is blocked, the next one goes. */
#include "sched/cache/arc.h"
#include "sched/cache/cache_internal.h"

#include <stdlib.h>

static bool arc_cache_init(struct sched_cache *c, const struct sched_cache_options *o)
{
    struct arc *a = c->state = calloc(1, sizeof *a);
    return a && arc_init(a, c->n_slabs, cache_capacity_experts(c));
}

static void arc_cache_fini(struct sched_cache *c)
{
    arc_fini(c->state);
}

static void arc_activated(struct sched_cache *c, uint32_t slab, uint32_t workload)
{
    arc_used(c->state, slab, c->step);
}

static void arc_changed(struct sched_cache *c, uint32_t slab, uint32_t before)
{
    if (before == 0)
        arc_arrived(c->state, slab, c->step);
    else if (c->resident[slab] == 0)
        arc_left(c->state, slab);
}

static bool arc_victim(const struct sched_cache *c, const struct cache_search *s, uint32_t *slab)
{
    const struct arc *a = c->state;
    uint8_t list = arc_victims(a, cache_slab(c, s->layer, s->expert));
    return cache_oldest_of_list(c, s, &a->lists, list, 0, slab) ||
           cache_oldest_of_list(c, s, &a->lists, list == ARC_T1 ? ARC_T2 : ARC_T1, 0, slab);
}

const struct cache_policy cache_policy_arc = {
    .keeps_loads = true,
    .init = arc_cache_init,
    .fini = arc_cache_fini,
    .activated = arc_activated,
    .changed = arc_changed,
    .victim = arc_victim,
};
