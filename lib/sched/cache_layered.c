/* Least recently and least frequently used of a layer, each layer with an equal share of the device
 * (the caches of Mixtral-offloading and MoE-Infinity).
 *
 * A layer that has its share evicts its own; one that has less takes from the layer that is the
 * farthest above its share (what an earlier policy left, or the remainder of the division).
 * Frequency counts tokens since the start; of equal ones the least recently used goes. A layer is
 * scanned: it has at most a few hundred experts. */
#include "sched/cache_internal.h"

#include <stdlib.h>

static bool lfu_init(struct sched_cache *c, const struct sched_cache_options *o)
{
    c->state = calloc((size_t)c->n_slabs + 1, sizeof(uint64_t)); /* tokens [layer][expert] */
    return c->state != NULL;
}

static void lfu_activated(struct sched_cache *c, uint32_t slab, uint32_t workload)
{
    uint64_t *tokens = c->state;
    tokens[slab] += workload;
}

/* The layer to take from: the search's own, or the one with the most above its share. */
static uint32_t layer_to_shrink(const struct sched_cache *c, const struct cache_search *s)
{
    if (c->layer_resident[s->layer] >= c->layer_share && c->layer_resident[s->layer])
        return s->layer;
    uint32_t most = s->layer;
    for (uint32_t i = 0; i < c->shape.n_layers; i++)
        if (c->layer_resident[i] > c->layer_share && c->layer_resident[i] > c->layer_resident[most])
            most = i;
    return most;
}

static bool lru_layer_victim(const struct sched_cache *c, const struct cache_search *s,
                             uint32_t *slab)
{
    return cache_oldest_of_layer(c, s, layer_to_shrink(c, s), slab) ||
           (s->demanded && cache_oldest_anywhere(c, s, slab));
}

static bool least_frequent_of_layer(const struct sched_cache *c, const struct cache_search *s,
                                    uint32_t layer, uint32_t *slab)
{
    const uint64_t *tokens = c->state;
    uint32_t first = cache_slab(c, layer, 0);
    bool found = false;
    for (uint32_t i = first; i < first + c->shape.n_experts; i++) {
        if (!c->resident[i])
            continue;
        bool less = !found || tokens[i] < tokens[*slab] ||
                    (tokens[i] == tokens[*slab] && c->last_use[i] < c->last_use[*slab]);
        if (less && cache_evictable(c, s, i)) {
            *slab = i;
            found = true;
        }
    }
    return found;
}

static bool lfu_victim(const struct sched_cache *c, const struct cache_search *s, uint32_t *slab)
{
    return least_frequent_of_layer(c, s, layer_to_shrink(c, s), slab) ||
           (s->demanded && cache_oldest_anywhere(c, s, slab));
}

const struct cache_policy cache_policy_lru_layer = {
    .keeps_loads = true,
    .victim = lru_layer_victim,
};

const struct cache_policy cache_policy_lfu = {
    .keeps_loads = true,
    .init = lfu_init,
    .activated = lfu_activated,
    .victim = lfu_victim,
};
