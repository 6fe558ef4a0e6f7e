/* The expert cache: the device's arena, which segment lies in which slot, and the copy engine that
 * copies segments there from the host pool.
 *
 * One thread, `memd/copy`, makes every decision and every write of the residency table. It takes
 * the workers' records (ipc/cache_channel.h), passes them to the cache policy (sched/cache/cache.h)
 * and copies segments over the link, in this order: the oldest on-demand load, then what the policy
 * wants, then the most probable prediction. A few copies are in the link's queue, so that it is
 * never idle between two (cache_link.c has the rules); only loads are queued behind a copy that
 * still takes long. So an on-demand load waits for one segment, and for a moment more, at most.
 * Loads of the same segment share one copy. A prediction is dropped when its worker has passed the
 * layer.
 *
 * Where host memory holds a part of the experts only (tier.h), the engine gives the tier a hint for
 * an expert that is not there, and tries again later. Workers request loads of experts that they
 * have seen in memory.
 *
 * A slot is free, being filled, resident or retired (cache_slots.h): a retired slot has left the
 * table and waits until no worker can still read it. These four always add up to all slots.
 *
 * The number of slots can change while serving (cache_resize.c): memd removes the arena's last
 * extents, or adds more.
 */
#ifndef MOED_MEMD_DEVICE_CACHE_H
#define MOED_MEMD_DEVICE_CACHE_H

#include "device/link.h"
#include "device/device_plan.h"
#include "ipc/residency.h"
#include "ipc/shm.h"
#include "metrics/metrics.h"
#include "model/pool_map.h"
#include "sched/policy.h"
#include "memd/host/tier.h"
#include "memd/slots/cache_slots.h"

struct cache;

/* What a resize waits for. */
enum cache_resize_wait {
    CACHE_RESIZE_NOTHING,
    CACHE_RESIZE_USE,    /* loads that are not consumed, workers that still read: moments */
    CACHE_RESIZE_CLOSE,  /* workers must close the extents that go */
    CACHE_RESIZE_KV,     /* workers must give up a part of their KV cache, as requests end */
    CACHE_RESIZE_MAP,    /* workers must map the new extents */
    CACHE_RESIZE_MEMORY, /* the device has no memory for it at present: seconds */
};

struct cache_counters {                   /* NULL members are not counted */
    struct counter *asked_bytes;          /* of loads: not on the device when they were requested */
    struct counter *demanded_bytes;       /* copied because a worker waits for them */
    struct counter *prefetched_bytes;     /* copied on a prediction or by the policy */
    struct counter *measured_bytes;       /* copied for a calibration; in no other counter */
    struct counter *used_bytes;           /* copied and used since */
    struct counter *predicted_bytes;      /* copied on a prediction */
    struct counter *predicted_used_bytes; /* of those, used since */
    struct counter *wasted_bytes;         /* copied and evicted unused */
    struct counter *merged;               /* loads of a segment whose copy was under way */
    struct counter *dropped;              /* predictions that came too late, or were too many */
    struct counter *evictions;
    struct histogram *queue_seconds, *copy_seconds;
};

struct cache_options {
    struct device_link *link;         /* opened, its memory allocated; taken over, on failure too */
    const struct device_arena *arena; /* of the link */
    const struct device_plan *plan;   /* of the arena; cache_new copies it */
    enum sched_cache_kind cache;
    enum sched_budget budget; /* one that `cache` takes */
    enum sched_prefetcher prefetcher;
    const uint32_t *profile; /* as sched_cache_options.profile; NULL: none. Borrowed */
    struct tier *tier;       /* where slabs come from; NULL: from the pool. Borrowed */
    /* NULL, or called once by the engine thread for a worker that wrote an invalid record. The
     * cache does not serve that worker any more: its lease must end. */
    void (*worker_broken)(void *arg, uint64_t key);
    void *worker_broken_arg;
    /* NULL, or called once by the engine thread: the device has failed, and nothing is copied any
     * more. */
    void (*device_lost)(void *arg, const struct error *e);
    void *device_lost_arg;
};

/* map: the sealed pool. Makes the residency table and starts the thread. ERROR_MEMORY. */
enum error_code cache_new(const struct pool_map *map, const struct cache_options *options,
                          const struct cache_counters *counters, struct cache **out,
                          struct error *e);
void cache_free(struct cache *c); /* takes NULL; stops the thread */

/* While host memory is being pinned, copies are slower: workers look at it. Any thread. */
void cache_show_pinning(struct cache *c, bool pinning);
/* Pins the host memory that the cache copies from, for all devices; see device_link_pin. Returns at
 * once where the device needs none pinned. */
enum error_code cache_pin(struct cache *c, const _Atomic bool *stop, uint64_t *bytes,
                          struct error *e);

/* Lent to workers, which map shared memory read-only. */
const struct device_arena *cache_arena(const struct cache *c);
const struct shm *cache_residency(const struct cache *c);

/* region: the worker's cache channel, mapped writable; taken over: closed when the worker is
 * removed, and on failure. key: the lease's number. The worker may read the arena from now on.
 * ERROR_LIMIT: there are too many workers. */
enum error_code cache_add_worker(struct cache *c, uint64_t key, const struct shm *region,
                                 struct error *e);
/* The kernel reports that the worker is gone. The engine thread forgets its epoch, pins and
 * requests when the segment under way is copied. */
void cache_remove_worker(struct cache *c, uint64_t key);

void cache_set_prefetcher(struct cache *c, enum sched_prefetcher prefetcher);

/* Changes the cache policy while serving. The new policy takes over what is resident; it evicts a
 * segment in due course if it keeps no loads and does not want that segment. Call after
 * cache_set_prefetcher: a prefetcher may take slots as buffers. */
enum error_code cache_set_policy(struct cache *c, enum sched_cache_kind kind,
                                 enum sched_budget budget, struct error *e);

/* Begins to change the number of slots (as device_share_resize says); the workers' KV cache gets
 * the rest. The engine thread goes on with it; another call replaces the aim. Returns the resize's
 * number, from 1. */
uint64_t cache_resize(struct cache *c, uint32_t n_slots);

struct cache_resize_state {
    uint64_t number; /* of the last one; 0: there was none */
    bool busy;
    enum cache_resize_wait waits; /* while busy */
    struct error failed;          /* not busy: why the last resize fell short; code 0: it did not */
};
void cache_resize_state(struct cache *c, struct cache_resize_state *out);

struct cache_state {
    uint64_t usable;   /* slots; the others are about to go */
    uint64_t kv_bytes; /* for the workers' KV caches; UINT64_MAX: not limited */
    struct slots_state slots;
    /* Over the cache's life, since_ns, without calibrations. */
    uint64_t link_bytes, link_busy_ns, since_ns;
};
void cache_state(struct cache *c, struct cache_state *out);

#endif
