/* A target set of experts that should be on the device: missing segments are wanted, surplus ones
 * are evicted. The policies that decide on a set instead of reacting to each load (static,
 * layerwise, dali) differ in how they choose it. */
#ifndef MOED_SCHED_CACHE_CACHE_TARGET_H
#define MOED_SCHED_CACHE_CACHE_TARGET_H

#include "sched/cache/cache_internal.h"

/* Invariant: missing[l] is the sum of the segments that the layer's experts lack of their targets,
 * surplus[l] of those that they have beyond them. */
struct cache_target {
    uint8_t *segments;           /* [layer][expert] */
    uint32_t *missing, *surplus; /* [layer] segments */
    uint64_t total_surplus;
};

bool cache_target_init(const struct sched_cache *c, struct cache_target *t);
void cache_target_fini(struct cache_target *t);
void cache_target_set(const struct sched_cache *c, struct cache_target *t, uint32_t slab,
                      uint32_t segments);

/* Of a layer's evictable experts above their target, the one used the longest ago. */
bool cache_surplus_of_layer(const struct sched_cache *c, const struct cache_target *t,
                            const struct cache_search *s, uint32_t layer, uint32_t *slab);

/* For the policies' functions of the same names. */
void cache_target_changed(const struct sched_cache *c, struct cache_target *t, uint32_t slab,
                          uint32_t before);
/* The surplus, the search's own layer first; a demanded load may evict from the set too. */
bool cache_target_victim(const struct sched_cache *c, const struct cache_target *t,
                         const struct cache_search *s, uint32_t *slab);
/* The next layers first. Nothing without a free slot or a surplus. */
bool cache_target_wanted(const struct sched_cache *c, const struct cache_target *t,
                         uint64_t free_segments, const struct cache_search *s, uint32_t *slab);

#endif
