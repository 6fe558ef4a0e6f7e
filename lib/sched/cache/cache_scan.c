/* Scans for a step that goes through the layers in turn and looks for experts of some of them: a
 * heap of all layers has no order for that. */
#include "sched/cache/cache_internal.h"

bool cache_least_of_passed(const struct sched_cache *c, const struct cache_search *s,
                           const double *values, uint32_t *slab)
{
    bool found = false;
    for (uint32_t i = 0; i < cache_slab(c, c->layer, 0); i++)
        if (c->resident[i] && (!found || values[i] < values[*slab]) && cache_evictable(c, s, i)) {
            *slab = i;
            found = true;
        }
    return found;
}

bool cache_most_lacking(const struct sched_cache *c, const struct cache_search *s, uint32_t layer,
                        const double *values, uint32_t *slab)
{
    uint32_t first = cache_slab(c, layer, 0);
    bool found = false;
    for (uint32_t i = first; i < first + c->shape.n_experts; i++)
        if (c->resident[i] < c->limit[layer] && (!found || values[i] > values[*slab]) &&
            cache_obtainable(c, s, i)) {
            *slab = i;
            found = true;
        }
    return found;
}
