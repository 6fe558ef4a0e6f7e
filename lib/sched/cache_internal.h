/* What the cache policies share: the state of every expert, and the table of functions that a
 * policy is.
 *
 * Invariants, whatever the policy:
 * 1. layer_resident[l] is the sum of resident[] over the layer's experts.
 * 2. last_use[] is 0 or unlike any other's: each activation and each arrival (and where a policy
 *    counts it as a use, each prediction) takes the next number of the clock.
 * 3. step_over() follows the last activated() of a layer in a step, and comes before anything of
 *    the next layer.
 */
#ifndef MOED_SCHED_CACHE_INTERNAL_H
#define MOED_SCHED_CACHE_INTERNAL_H

#include "sched/cache.h"
#include "sched/heap.h"

#include <stddef.h>

struct cache_policy;

struct sched_cache {
    const struct cache_policy *policy;
    enum sched_cache_kind kind; /* a policy may be of several */
    struct sched_cache_shape shape;
    enum sched_budget budget;
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
    /* s: who is blocked; its other members are 0 */
    bool (*wanted)(struct sched_cache *c, uint64_t free_segments, const struct cache_search *s,
                   uint32_t *slab);
    /* What sched_cache_reads says: the functions of the same names. */
    void (*scored)(struct sched_cache *c, uint32_t slab, float score);
    void (*predicted)(struct sched_cache *c, uint64_t step, uint32_t slab, uint32_t rank,
                      float probability);
    void (*costs)(struct sched_cache *c, const struct sched_cache_costs *costs);
    void (*configure)(struct sched_cache *c, uint32_t layer, uint64_t segments, uint32_t n_experts);
    void (*configuration)(const struct sched_cache *c, uint32_t layer, uint64_t *segments,
                          uint32_t *n_experts);
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

/* May a segment of this expert be copied now? */
static inline bool cache_obtainable(const struct sched_cache *c, const struct cache_search *s,
                                    uint32_t slab)
{
    return !s->blocked || !s->blocked(s->arg, cache_layer_of(c, slab), slab % c->shape.n_experts);
}

/* The layer that an evenly shared device takes from: the search's own if it has its share, else the
 * one with the most above it (what an earlier policy left, or the remainder of the division). */
uint32_t cache_layer_to_shrink(const struct sched_cache *c, const struct cache_search *s);
/* The evictable expert of a layer with the least of these values, [layer][expert]; of equal ones the
 * one that was used the longest ago. */
bool cache_least_of_layer(const struct sched_cache *c, const struct cache_search *s, uint32_t layer,
                          const double *values, uint32_t *slab);
/* The victim of a cache that shares the device evenly and orders a layer by values. */
bool cache_least_of_share(const struct sched_cache *c, const struct cache_search *s,
                          const double *values, uint32_t *slab);
/* The evictable expert of a layer that was used the longest ago. */
bool cache_oldest_of_layer(const struct sched_cache *c, const struct cache_search *s,
                           uint32_t layer, uint32_t *slab);
/* Any evictable expert, for a load that must get room: the oldest of the search's own layer, else
 * of the layer whose turn is the farthest away, which is the one just before, and so on
 * backwards. */
bool cache_oldest_anywhere(const struct sched_cache *c, const struct cache_search *s,
                           uint32_t *slab);

/* The evictable expert with the least of these values in the layers before the one that was routed last. */
bool cache_least_of_passed(const struct sched_cache *c, const struct cache_search *s,
                           const double *values, uint32_t *slab);
/* The obtainable expert of a layer with the most of these values that is not there whole. */
bool cache_most_lacking(const struct sched_cache *c, const struct cache_search *s, uint32_t layer,
                        const double *values, uint32_t *slab);

/* The first of a heap of resident experts that may go. */
bool cache_first_of_heap(const struct sched_cache *c, const struct cache_search *s,
                         const struct heap *h, uint32_t *slab);

/* splitmix64: the next number of a row that can be repeated. */
static inline uint64_t cache_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

extern const struct cache_policy cache_policy_none, cache_policy_lru, cache_policy_lru_layer,
    cache_policy_lfu, cache_policy_static, cache_policy_layerwise, cache_policy_dali,
    cache_policy_value, cache_policy_lru_ahead, cache_policy_lcp, cache_policy_score,
    cache_policy_map_frequency, cache_policy_belady, cache_policy_random;

#endif
