/* The experts of the first layers, as many whole layers as the device holds; nothing else is
 * copied (llama.cpp, KTransformers). */
#include "sched/cache/cache_target.h"

#include <stdlib.h>

static bool layerwise_init(struct sched_cache *c, const struct sched_cache_options *o)
{
    struct cache_target *t = c->state = calloc(1, sizeof *t);
    if (!t || !cache_target_init(c, t))
        return false;
    uint64_t left = c->shape.capacity;
    for (uint32_t layer = c->shape.first_layer; layer < c->shape.n_layers; layer++) {
        uint64_t needed = (uint64_t)c->shape.n_experts * c->limit[layer];
        if (needed > left)
            break;
        left -= needed;
        for (uint32_t expert = 0; expert < c->shape.n_experts; expert++)
            cache_target_set(c, t, cache_slab(c, layer, expert), c->limit[layer]);
    }
    return true;
}

static void layerwise_fini(struct sched_cache *c)
{
    cache_target_fini(c->state);
}

static void layerwise_changed(struct sched_cache *c, uint32_t slab, uint32_t before)
{
    cache_target_changed(c, c->state, slab, before);
}

static bool layerwise_victim(const struct sched_cache *c, const struct cache_search *s,
                             uint32_t *slab)
{
    return cache_target_victim(c, c->state, s, slab);
}

static bool layerwise_wanted(struct sched_cache *c, uint64_t free_segments,
                             const struct cache_search *s, uint32_t *slab)
{
    return cache_target_wanted(c, c->state, free_segments, s, slab);
}

const struct cache_policy cache_policy_layerwise = {
    .keeps_loads = false,
    .init = layerwise_init,
    .fini = layerwise_fini,
    .changed = layerwise_changed,
    .victim = layerwise_victim,
    .wanted = layerwise_wanted,
};
