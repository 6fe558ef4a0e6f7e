/* A set of experts that should be on the device, pursued: what lacks is wanted, what is there
 * beyond it goes. The policies that decide on a set instead of reacting to each load (static,
 * layerwise, dali) differ in who chooses the set. */
#ifndef MOED_SCHED_CACHE_TARGET_H
#define MOED_SCHED_CACHE_TARGET_H

#include "sched/cache_internal.h"

/* Invariant: missing[l] is the sum over the layer of what its experts have less than their target,
 * surplus[l] of what they have more. */
struct cache_target {
    uint8_t *segments;           /* [layer][expert] */
    uint32_t *missing, *surplus; /* [layer] segments */
    uint64_t total_surplus;
};

bool cache_target_init(const struct sched_cache *c, struct cache_target *t);
void cache_target_fini(struct cache_target *t);
void cache_target_set(const struct sched_cache *c, struct cache_target *t, uint32_t slab,
                      uint32_t segments);

/* For the policies' functions of the same names. */
void cache_target_changed(const struct sched_cache *c, struct cache_target *t, uint32_t slab,
                          uint32_t before);
/* The surplus, the search's own layer first; a load that is demanded gets room from the set too. */
bool cache_target_victim(const struct sched_cache *c, const struct cache_target *t,
                         const struct cache_search *s, uint32_t *slab);
/* The next layers first. Nothing where there is neither free room nor surplus. */
bool cache_target_wanted(const struct sched_cache *c, const struct cache_target *t,
                         uint64_t free_segments, const struct cache_search *s, uint32_t *slab);

#endif
