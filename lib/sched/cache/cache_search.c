/* The searches for a victim that policies share, and the cache's capacity; see cache_internal.h. */
#include "sched/cache/cache_internal.h"

bool cache_oldest_of_layer(const struct sched_cache *c, const struct cache_search *s,
                           uint32_t layer, uint32_t *slab)
{
    if (c->layer_resident[layer] == 0)
        return false;
    uint32_t first = cache_slab(c, layer, 0);
    bool found = false;
    for (uint32_t i = first; i < first + c->shape.n_experts; i++)
        if (c->resident[i] && (!found || c->last_use[i] < c->last_use[*slab]) &&
            cache_evictable(c, s, i)) {
            *slab = i;
            found = true;
        }
    return found;
}

bool cache_oldest_anywhere(const struct sched_cache *c, const struct cache_search *s,
                           uint32_t *slab)
{
    for (uint32_t i = 0; i < c->shape.n_layers; i++) {
        uint32_t layer = (s->layer + c->shape.n_layers - i) % c->shape.n_layers;
        if (cache_oldest_of_layer(c, s, layer, slab))
            return true;
    }
    return false;
}

uint32_t cache_layer_over_share(const struct sched_cache *c, const struct cache_search *s,
                                const uint64_t *shares)
{
    uint64_t most = 0, own = shares ? shares[s->layer] : c->layer_share;
    uint32_t found = s->layer;
    if (c->layer_resident[s->layer] >= own && c->layer_resident[s->layer])
        return s->layer;
    for (uint32_t i = 0; i < c->shape.n_layers; i++) {
        uint64_t share = shares ? shares[i] : c->layer_share;
        if (c->layer_resident[i] > share + most) {
            most = c->layer_resident[i] - share;
            found = i;
        }
    }
    return found;
}

uint32_t cache_layer_to_shrink(const struct sched_cache *c, const struct cache_search *s)
{
    return cache_layer_over_share(c, s, NULL);
}

bool cache_least_of_layer(const struct sched_cache *c, const struct cache_search *s, uint32_t layer,
                          const double *values, uint32_t *slab)
{
    uint32_t first = cache_slab(c, layer, 0);
    bool found = false;
    for (uint32_t i = first; i < first + c->shape.n_experts; i++) {
        if (!c->resident[i])
            continue;
        bool less = !found || values[i] < values[*slab] ||
                    (values[i] == values[*slab] && c->last_use[i] < c->last_use[*slab]);
        if (less && cache_evictable(c, s, i)) {
            *slab = i;
            found = true;
        }
    }
    return found;
}

bool cache_least_of_share(const struct sched_cache *c, const struct cache_search *s,
                          const double *values, uint32_t *slab)
{
    return cache_least_of_layer(c, s, cache_layer_to_shrink(c, s), values, slab) ||
           (s->demanded && cache_oldest_anywhere(c, s, slab));
}

struct search_in {
    const struct sched_cache *cache;
    const struct cache_search *search;
};

static bool may_go(const void *arg, uint32_t slab)
{
    const struct search_in *s = arg;
    return cache_evictable(s->cache, s->search, slab);
}

bool cache_first_of_heap(const struct sched_cache *c, const struct cache_search *s,
                         const struct heap *h, uint32_t *slab)
{
    struct search_in in = {c, s};
    return heap_first(h, may_go, &in, slab);
}

bool cache_oldest_of_list(const struct sched_cache *c, const struct cache_search *s,
                          const struct slab_lists *l, uint8_t list, uint32_t first, uint32_t *slab)
{
    for (uint32_t i = slab_lists_oldest(l, list); i < l->n_slabs; i = slab_lists_newer(l, i))
        if (cache_evictable(c, s, first + i)) {
            *slab = first + i;
            return true;
        }
    return false;
}

uint64_t cache_capacity_experts(const struct sched_cache *c)
{
    uint64_t segments = 0;
    for (uint32_t layer = c->shape.first_layer; layer < c->shape.n_layers; layer++)
        segments += (uint64_t)c->limit[layer] * c->shape.n_experts;
    uint64_t experts = (uint64_t)c->expert_layers * c->shape.n_experts;
    return c->shape.capacity < segments ? c->shape.capacity * experts / segments : experts;
}
