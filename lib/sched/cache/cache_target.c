/* A target set of experts; see cache_target.h. */
#include "base/arrays.h"
#include "sched/cache/cache_target.h"

#include <stdlib.h>

bool cache_target_init(const struct sched_cache *c, struct cache_target *t)
{
    return ARRAYS_NEW(ARRAY(t->segments, c->n_slabs), ARRAY(t->missing, c->shape.n_layers),
                      ARRAY(t->surplus, c->shape.n_layers)) != NULL;
}

void cache_target_fini(struct cache_target *t)
{
    free(t->segments); /* the first array: all of them */
}

static uint32_t beyond(uint32_t x, uint32_t y)
{
    return x > y ? x - y : 0;
}

/* Moves an expert's part in the sums from the given (resident, target) to the present ones. */
static void account(const struct sched_cache *c, struct cache_target *t, uint32_t slab,
                    uint32_t resident, uint32_t target)
{
    uint32_t layer = cache_layer_of(c, slab);
    uint32_t resident_now = c->resident[slab], target_now = t->segments[slab];
    t->missing[layer] += beyond(target_now, resident_now) - beyond(target, resident);
    t->surplus[layer] += beyond(resident_now, target_now) - beyond(resident, target);
    t->total_surplus += (uint64_t)beyond(resident_now, target_now) - beyond(resident, target);
}

void cache_target_set(const struct sched_cache *c, struct cache_target *t, uint32_t slab,
                      uint32_t segments)
{
    uint32_t before = t->segments[slab];
    t->segments[slab] = (uint8_t)segments;
    account(c, t, slab, c->resident[slab], before);
}

void cache_target_changed(const struct sched_cache *c, struct cache_target *t, uint32_t slab,
                          uint32_t before)
{
    account(c, t, slab, before, t->segments[slab]);
}

bool cache_surplus_of_layer(const struct sched_cache *c, const struct cache_target *t,
                            const struct cache_search *s, uint32_t layer, uint32_t *slab)
{
    if (t->surplus[layer] == 0)
        return false;
    uint32_t first = cache_slab(c, layer, 0);
    bool found = false;
    for (uint32_t i = first; i < first + c->shape.n_experts; i++)
        if (c->resident[i] > t->segments[i] && (!found || c->last_use[i] < c->last_use[*slab]) &&
            cache_evictable(c, s, i)) {
            *slab = i;
            found = true;
        }
    return found;
}

bool cache_target_victim(const struct sched_cache *c, const struct cache_target *t,
                         const struct cache_search *s, uint32_t *slab)
{
    for (uint32_t i = 0; i < c->shape.n_layers && t->total_surplus; i++) {
        uint32_t layer = (s->layer + c->shape.n_layers - i) % c->shape.n_layers;
        if (cache_surplus_of_layer(c, t, s, layer, slab))
            return true;
    }
    return s->demanded && cache_oldest_anywhere(c, s, slab);
}

bool cache_target_wanted(const struct sched_cache *c, const struct cache_target *t,
                         uint64_t free_segments, const struct cache_search *s, uint32_t *slab)
{
    if (!free_segments && !t->total_surplus)
        return false;
    for (uint32_t i = 1; i <= c->shape.n_layers; i++) {
        uint32_t layer = (c->layer + i) % c->shape.n_layers;
        if (t->missing[layer] == 0)
            continue;
        uint32_t first = cache_slab(c, layer, 0);
        for (*slab = first; *slab < first + c->shape.n_experts; ++*slab)
            if (c->resident[*slab] < t->segments[*slab] && cache_obtainable(c, s, *slab))
                return true;
    }
    return false;
}
