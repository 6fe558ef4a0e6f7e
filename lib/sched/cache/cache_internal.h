/* What the cache policies share: the state of every expert, and the table of functions that makes
 * a policy.
 *
 * Invariants, whatever the policy:
 *
 * 1. layer_resident[l] is the sum of resident[] over the layer's experts.
 * 2. last_use[] is 0 or unique: each activation and each arrival (and each prediction, where a
 *    policy counts it as a use) takes the next number of the clock.
 * 3. step_over() follows the last activated() of a layer in a step, and comes before anything of
 *    the next layer. */
#ifndef MOED_SCHED_CACHE_CACHE_INTERNAL_H
#define MOED_SCHED_CACHE_CACHE_INTERNAL_H

#include "sched/cache/cache.h"
#include "sched/cache/heap.h"
#include "sched/cache/slab_lists.h"

#include <stddef.h>

struct cache_policy;

struct sched_cache {
    const struct cache_policy *policy;
    enum sched_cache_kind kind; /* several kinds may share a policy */
    struct sched_cache_shape shape;
    enum sched_budget budget;
    uint32_t n_slabs;         /* experts of all layers */
    uint32_t expert_layers;   /* layers that have experts */
    uint64_t layer_share;     /* capacity / expert_layers */
    uint8_t *resident;        /* [layer][expert] segments */
    uint8_t *limit;           /* [layer] segments of an expert */
    uint64_t *last_use;       /* [layer][expert]; 0: never */
    uint32_t *layer_resident; /* [layer] segments */
    uint64_t clock;
    uint64_t step; /* of the activations reported last */
    uint32_t layer;
    bool prompt;   /* most of that step's tokens are of prompts */
    bool reported; /* activations were reported */
    void *state;   /* the policy's own; freed with free() */
};

/* For what a victim is searched; as in sched_cache_victim. */
struct cache_search {
    uint32_t layer, expert;
    bool demanded;
    double probability;
    sched_blocked *blocked,
        *unobtainable; /* the latter for `passed` and `exchange`; NULL: none is */
    void *arg;
};

/* Members are NULL where a policy has nothing to do. */
struct cache_policy {
    bool keeps_loads;
    bool resizes; /* the capacity may change: init has derived nothing from it that `resized` does
                     not derive anew */
    void (*resized)(struct sched_cache *c);
    bool (*init)(struct sched_cache *c, const struct sched_cache_options *o); /* false: no memory */
    void (*fini)(struct sched_cache *c);
    /* One expert of a layer that is being routed. */
    void (*activated)(struct sched_cache *c, uint32_t slab, uint32_t workload);
    /* All activations of a layer in a step have been reported. */
    void (*step_over)(struct sched_cache *c, uint32_t layer);
    /* resident[slab] was `before` until now. */
    void (*changed)(struct sched_cache *c, uint32_t slab, uint32_t before);
    bool (*victim)(const struct sched_cache *c, const struct cache_search *s, uint32_t *slab);
    /* s: only the functions and `arg` are set */
    bool (*least)(const struct sched_cache *c, const struct cache_search *s, uint32_t *slab);
    /* s: only the functions and `arg` are set */
    bool (*passed)(const struct sched_cache *c, const struct cache_search *s, uint32_t *slab);
    /* s: only `blocked` and `arg` are set */
    bool (*wanted)(struct sched_cache *c, uint64_t free_segments, const struct cache_search *s,
                   uint32_t *slab);
    /* s: as for `passed` */
    bool (*exchange)(const struct sched_cache *c, double copy_s, const struct cache_search *s,
                     uint32_t *slab);
    /* As the sched_cache_ functions of the same names; the first two decide sched_cache_reads. */
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

/* True if the last segment of this expert may go: there is one, it is not blocked, and the slot is
 * for another expert. */
static inline bool cache_evictable(const struct sched_cache *c, const struct cache_search *s,
                                   uint32_t slab)
{
    uint32_t layer = cache_layer_of(c, slab), expert = slab % c->shape.n_experts;
    return c->resident[slab] && (layer != s->layer || expert != s->expert) &&
           !(s->blocked && s->blocked(s->arg, layer, expert));
}

/* True if a segment of this expert can be copied now. */
static inline bool cache_obtainable(const struct sched_cache *c, const struct cache_search *s,
                                    uint32_t slab)
{
    return !s->blocked || !s->blocked(s->arg, cache_layer_of(c, slab), slab % c->shape.n_experts);
}

/* ---- cache_search.c ---- */

/* The layer that loses a segment when layers have equal shares: the search's own if it has its
 * share, else the one farthest above its share (an earlier policy's rest, or the remainder of the
 * division). */
uint32_t cache_layer_to_shrink(const struct sched_cache *c, const struct cache_search *s);
/* The same with each layer's own share, [n_layers] segments; NULL: equal ones. */
uint32_t cache_layer_over_share(const struct sched_cache *c, const struct cache_search *s,
                                const uint64_t *shares);
/* The evictable expert of a layer with the least value, [layer][expert]; of equal ones the one used
 * the longest ago. */
bool cache_least_of_layer(const struct sched_cache *c, const struct cache_search *s, uint32_t layer,
                          const double *values, uint32_t *slab);
/* The victim of a cache with equal shares that orders a layer by values. */
bool cache_least_of_share(const struct sched_cache *c, const struct cache_search *s,
                          const double *values, uint32_t *slab);
/* The evictable expert of a layer used the longest ago. */
bool cache_oldest_of_layer(const struct sched_cache *c, const struct cache_search *s,
                           uint32_t layer, uint32_t *slab);
/* Any evictable expert, for a demanded load: the oldest of the search's own layer, else of the
 * layer whose turn is the farthest away, which is the one just before, and so on backwards. */
bool cache_oldest_anywhere(const struct sched_cache *c, const struct cache_search *s,
                           uint32_t *slab);

/* The first evictable expert of a heap of resident experts. */
bool cache_first_of_heap(const struct sched_cache *c, const struct cache_search *s,
                         const struct heap *h, uint32_t *slab);

/* The oldest evictable expert of a list, whose item 0 is the slab `first`. */
bool cache_oldest_of_list(const struct sched_cache *c, const struct cache_search *s,
                          const struct slab_lists *l, uint8_t list, uint32_t first, uint32_t *slab);
/* The whole experts in an equal share of a layer. */
static inline uint32_t cache_share_experts(const struct sched_cache *c, uint32_t layer)
{
    uint64_t n = c->limit[layer] ? c->layer_share / c->limit[layer] : 0;
    return n < c->shape.n_experts ? (uint32_t)n : c->shape.n_experts;
}
/* As many whole experts as have the capacity's segments. */
uint64_t cache_capacity_experts(const struct sched_cache *c);

/* splitmix64: the next number of a repeatable sequence. */
static inline uint64_t cache_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Each kind and its policy: struct cache_policy cache_policy_NAME in cache_*.c. */
#define CACHE_POLICIES(X)                                                                          \
    X(CACHE_NONE, none)                                                                            \
    X(CACHE_STATIC, static)                                                                        \
    X(CACHE_LRU, lru)                                                                              \
    X(CACHE_LFU, lfu)                                                                              \
    X(CACHE_DALI, dali)                                                                            \
    X(CACHE_LAYERWISE, layerwise)                                                                  \
    X(CACHE_VALUE, value)                                                                          \
    X(CACHE_LRU_PREFETCH, lru_prefetch)                                                            \
    X(CACHE_LCP, lcp)                                                                              \
    X(CACHE_SCORE, score)                                                                          \
    X(CACHE_MAP_FREQUENCY, map_frequency)                                                          \
    X(CACHE_DALI_GUARDED, dali)                                                                    \
    X(CACHE_ARC, arc)                                                                              \
    X(CACHE_LRFU, lrfu)                                                                            \
    X(CACHE_TINYLFU, tinylfu)                                                                      \
    X(CACHE_LEAST_STALE, least_stale)                                                              \
    X(CACHE_PROMPT, prompt)                                                                        \
    X(CACHE_STREAMED, streamed)                                                                    \
    X(CACHE_LEARNED, learned)                                                                      \
    X(CACHE_ALLOCATED, allocated)                                                                  \
    X(CACHE_SHALLOW, shallow)                                                                      \
    X(CACHE_BELADY, belady)                                                                        \
    X(CACHE_RANDOM, random)

#define CACHE_POLICY_EXTERN(kind, name) extern const struct cache_policy cache_policy_##name;
CACHE_POLICIES(CACHE_POLICY_EXTERN)
#undef CACHE_POLICY_EXTERN

/* Used by other policies. */
extern const struct cache_policy cache_policy_lru_layer;

#endif
