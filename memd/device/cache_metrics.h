/* The expert cache's metrics. */
#ifndef MOED_MEMD_DEVICE_CACHE_METRICS_H
#define MOED_MEMD_DEVICE_CACHE_METRICS_H

#include "cache.h"

/* Registers the cache's counters; call before cache_new. */
struct cache_counters cache_metrics_counters(struct metrics *r);
/* Registers what is read of the cache at each rendering: slots, link, uses of the device's memory.
 * experts_only: the device is emulated, and nothing but its slots is known. */
void cache_metrics_state(struct metrics *r, struct cache *c, bool experts_only);

#endif
