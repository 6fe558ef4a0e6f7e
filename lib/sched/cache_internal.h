/* What the cache policies share: the state of every expert, and the table of functions that a
 * policy is.
 *
 * Invariants, whatever the policy:
 * 1. layer_resident[l] is the sum of resident[] over the layer's experts.
 * 2. last_use[] is 0 or unlike any other's: each activation and each arrival takes the next number
 *    of the clock.
 * 3. step_over() follows the last activated() of a layer in a step, and comes before anything of
 *    the next layer.
 */
#ifndef MOED_SCHED_CACHE_INTERNAL_H
#define MOED_SCHED_CACHE_INTERNAL_H

#include "sched/cache.h"

#include <stddef.h>

struct cache_policy;

struct sched_cache {
    const struct cache_policy *policy;
    struct sched_cache_shape shape;
    uint32_t n_slabs;         /* experts of all layers */
    uint32_t expert_layers;   /* layers that have experts */
    uint64_t layer_share;     /* capacity, divided evenly among them */
    uint8_t *resident;        /* [layer][expert] segments */
    uint8_t *limit;           /* [layer] segments of an expert */
    uint64_t *last_use;       /* [layer][expert]; 0: never */
    uint32_t *layer_resident; /* [layer] segments */
    uint64_t clock;
    uint64_t step; /* of the activations that were told last */
    uint32_t layer;
    bool told;   /* some were */
    void *state; /* the policy's own */
};

/* Whom a victim is sought for. */
struct cache_search {
    uint32_t layer, expert;
    bool demanded;
    double probability;
    sched_blocked *blocked;
    void *arg;
};

/* Members may be NULL where a policy has nothing to do. */
struct cache_policy {
    bool keeps_loads;
    bool (*init)(struct sched_cache *c, const struct sched_cache_options *o); /* false: no memory */
    void (*fini)(struct sched_cache *c);
    /* One expert of a layer that is being routed. */
    void (*activated)(struct sched_cache *c, uint32_t slab, uint32_t workload);
    /* All activations of a layer in a step have been told. */
    void (*step_over)(struct sched_cache *c, uint32_t layer);
    /* resident[slab] has changed, from `before`. */
    void (*changed)(struct sched_cache *c, uint32_t slab, uint32_t before);
    bool (*victim)(const struct sched_cache *c, const struct cache_search *s, uint32_t *slab);
    bool (*wanted)(struct sched_cache *c, uint64_t free_segments, uint32_t *slab);
};

/* An expert's number among all. */
static inline uint32_t cache_slab(const struct sched_cache *c, uint32_t layer, uint32_t expert)
{
    return layer * c->shape.n_experts + expert;
}

static inline uint32_t cache_layer_of(const struct sched_cache *c, uint32_t slab)
{
    return slab / c->shape.n_experts;
}

/* May the last segment of this expert go? Not where nothing is there, nor for the sake of the same
 * expert. */
static inline bool cache_evictable(const struct sched_cache *c, const struct cache_search *s,
                                   uint32_t slab)
{
    uint32_t layer = cache_layer_of(c, slab), expert = slab % c->shape.n_experts;
    return c->resident[slab] && (layer != s->layer || expert != s->expert) &&
           !(s->blocked && s->blocked(s->arg, layer, expert));
}

/* The evictable expert of a layer that was used the longest ago. */
bool cache_oldest_of_layer(const struct sched_cache *c, const struct cache_search *s,
                           uint32_t layer, uint32_t *slab);
/* Any evictable expert, for a load that must get room: the oldest of the search's own layer, else
 * of the layer whose turn is the farthest away, which is the one just before, and so on
 * backwards. */
bool cache_oldest_anywhere(const struct sched_cache *c, const struct cache_search *s,
                           uint32_t *slab);

extern const struct cache_policy cache_policy_none, cache_policy_lru, cache_policy_lru_layer,
    cache_policy_lfu, cache_policy_static, cache_policy_layerwise, cache_policy_dali,
    cache_policy_value;

#endif
