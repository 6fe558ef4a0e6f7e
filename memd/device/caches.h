/* The expert caches of a deployment's devices, one each, as one: what is asked of them together.
 * They copy from one host pool, which is pinned once for all. */
#ifndef MOED_MEMD_DEVICE_CACHES_H
#define MOED_MEMD_DEVICE_CACHES_H

#include "memd/device/cache.h"

#include <pthread.h>

struct caches {
    struct cache *each[DEVICES_MAX];
    unsigned n; /* 0: the deployment has no device with memory of its own */
    pthread_t pin_thread;
    bool has_pin_thread;
    _Atomic bool stop_pinning;
};

/* Pins the host memory, in a thread of its own, because that takes about a second for each 10 GB.
 */
void caches_start_pinning(struct caches *c);
void caches_free(struct caches *c); /* takes a zeroed one */

/* The sums; kv_bytes UINT64_MAX: not limited. Time is that of all links, so shares of it are means.
 */
void caches_state(const struct caches *c, struct cache_state *out);
void caches_set_prefetcher(const struct caches *c, enum sched_prefetcher prefetcher);
enum error_code caches_set_policy(const struct caches *c, enum sched_cache_kind kind,
                                  enum sched_budget budget, struct error *e);
/* The resizes of all, which were asked for together, as one. */
void caches_resize_state(const struct caches *c, struct cache_resize_state *out);

#endif
