/* Three caches with an equal share for each layer: least recently used (Mixtral-offloading), least
 * frequently used (MoE-Infinity), and ProMoE's.
 *
 * A layer that has its share evicts its own experts; one that has less takes from the layer
 * farthest above its share (an earlier policy's rest, or the remainder of the division). Frequency
 * counts tokens since the start; of equal ones the least recently used goes. A layer is scanned:
 * it has at most a few hundred experts.
 *
 * ProMoE: "Both prefetching and inference trigger a cache access. When adding prefetch tasks,
 * ProMoE leverages LRU by accessing experts that are already cached, thereby delaying their
 * eviction." So a predicted resident expert counts as used, in the order of the prediction; an
 * absent one is used when it arrives, as in every cache. */
#include "sched/cache/cache_internal.h"

#include <stdlib.h>

static bool lru_layer_victim(const struct sched_cache *c, const struct cache_search *s,
                             uint32_t *slab)
{
    return cache_oldest_of_layer(c, s, cache_layer_to_shrink(c, s), slab) ||
           (s->demanded && cache_oldest_anywhere(c, s, slab));
}

static void predicted_is_used(struct sched_cache *c, uint64_t step, uint32_t slab, uint32_t rank,
                              float probability)
{
    if (c->resident[slab])
        c->last_use[slab] = ++c->clock;
}

static bool lfu_init(struct sched_cache *c, const struct sched_cache_options *o)
{
    c->state = calloc((size_t)c->n_slabs + 1, sizeof(double)); /* tokens [layer][expert] */
    return c->state != NULL;
}

static void lfu_activated(struct sched_cache *c, uint32_t slab, uint32_t workload)
{
    double *tokens = c->state;
    tokens[slab] += workload;
}

static bool lfu_victim(const struct sched_cache *c, const struct cache_search *s, uint32_t *slab)
{
    return cache_least_of_share(c, s, c->state, slab);
}

const struct cache_policy cache_policy_lru_layer = {
    .keeps_loads = true,
    .resizes = true,
    .victim = lru_layer_victim,
};

const struct cache_policy cache_policy_lru_prefetch = {
    .keeps_loads = true,
    .resizes = true,
    .victim = lru_layer_victim,
    .predicted = predicted_is_used,
};

const struct cache_policy cache_policy_lfu = {
    .keeps_loads = true,
    .resizes = true,
    .init = lfu_init,
    .activated = lfu_activated,
    .victim = lfu_victim,
};
