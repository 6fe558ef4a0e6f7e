/* What of the expert cache is shown by `moed metrics`. */
#ifndef MOED_MEMD_CACHE_METRICS_H
#define MOED_MEMD_CACHE_METRICS_H

#include "cache.h"

/* What the cache counts; before cache_new. */
struct cache_counters cache_metrics_counters(struct metrics *r);
/* What the device's memory is used for. experts_alone: as an emulated one's is, of which the rest is not told. */
void cache_metrics_device(struct metrics *r, const struct device_plan *p, bool experts_alone, struct cache *c);
/* What is read of it when asked for: slots, link. */
void cache_metrics_state(struct metrics *r, struct cache *c);

#endif
