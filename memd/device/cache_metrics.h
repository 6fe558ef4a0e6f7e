/* The expert cache's metrics. */
#ifndef MOED_MEMD_DEVICE_CACHE_METRICS_H
#define MOED_MEMD_DEVICE_CACHE_METRICS_H

#include "caches.h"

/* Registers the cache's counters; call before cache_new. */
struct cache_counters cache_metrics_counters(struct metrics *r);
/* Registers what is read of the caches at each rendering, the sums of all devices: slots, links,
 * uses of the devices' memory. experts_only: the devices are emulated, and nothing but their slots
 * is known. */
void cache_metrics_state(struct metrics *r, struct caches *c, bool experts_only);

#endif
