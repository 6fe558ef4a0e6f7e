/* The expert cache: the device's arena, who lies where in it, and the copy engine that moves segments from the host pool.
 *
 * One thread, `memd/copy`, owns every decision and every write of the residency table. It takes the workers' records
 * (ipc/cache_channel.h), tells them to the cache policy (sched/cache.h), and copies one segment at a time over the
 * link: the oldest on-demand load first, else what the policy wants, else the most probable prediction. So a load that
 * is asked for waits for one segment at most. Loads of the same segment are one copy. A prediction of a layer that its
 * worker has passed is dropped. Where not all experts are in host memory (tier.h), one that is not is wished for there and
 * tried again later; a worker asks for loads of what it has seen in memory.
 *
 * A slot is free, or holds a resident segment, or is being filled, or is retired: taken out of the table and waiting until
 * no worker can still read it (cache_slots.h). Free, resident, filling and retired slots are all slots, always.
 *
 * How many slots there are can be changed while serving (cache_resize.c): the arena's last pieces go, or more are
 * added.
 */
#ifndef MOED_MEMD_CACHE_H
#define MOED_MEMD_CACHE_H

#include "device/link.h"
#include "device_plan.h"
#include "ipc/residency.h"
#include "ipc/shm.h"
#include "metrics/metrics.h"
#include "model/pool_map.h"
#include "sched/policy.h"
#include "tier.h"

struct cache;

/* What a resize waits for. */
enum cache_resize_wait {
    CACHE_RESIZE_NOTHING,
    CACHE_RESIZE_USE,   /* loads that are not consumed, workers that still read: moments */
    CACHE_RESIZE_CLOSE, /* workers are to close what goes */
    CACHE_RESIZE_KV,    /* workers are to give up a part of their KV cache, which they do as requests end */
    CACHE_RESIZE_MAP,   /* workers are to map what has come */
    CACHE_RESIZE_MEMORY, /* the device has no memory for it at present: seconds */
};

struct cache_counters {               /* NULL members are not counted */
    struct counter *asked_bytes;      /* of loads, that were not there when they were asked for */
    struct counter *demanded_bytes;   /* copied because a worker waits for them */
    struct counter *prefetched_bytes; /* copied on a prediction or by the policy */
    struct counter *measured_bytes;   /* copied for a worker's calibration; nothing else counts those */
    struct counter *used_bytes;       /* copied and of use since */
    struct counter *predicted_bytes,
        *predicted_used_bytes;    /* on a prediction; of those, used since */
    struct counter *wasted_bytes; /* copied and given up without having been used */
    struct counter *merged,
        *dropped; /* loads that were under way already; predictions that came too late, or were too many */
    struct counter *evictions;
    struct histogram *queue_seconds, *copy_seconds;
};

struct cache_options {
    struct device_link *link; /* the device, opened, its memory allocated; taken over, on failure too */
    const struct device_arena *arena; /* of it */
    const struct device_plan *plan;   /* what it is cut into; read by cache_new alone */
    enum sched_cache_kind cache;
    enum sched_budget budget; /* one that the cache takes */
    enum sched_prefetcher prefetcher;
    const uint32_t *profile; /* as sched_cache_options.profile; NULL: none. Borrowed */
    struct tier *tier; /* where slabs come from; NULL: from the pool. Borrowed */
    /* NULL, or called once (by the engine's thread) for a worker that wrote nonsense: it is served no more, and waits in
     * vain for its loads until its lease ends. */
    void (*worker_broken)(void *arg, uint64_t key);
    void *worker_broken_arg;
    /* NULL, or called once (by the engine's thread): the device has failed, nothing is copied any more. */
    void (*device_lost)(void *arg, const struct error *e);
    void *device_lost_arg;
};

/* map: the sealed pool. Makes the residency table, and starts the thread. ERROR_MEMORY. */
enum error_code cache_new(const struct pool_map *map, const struct cache_options *options,
                          const struct cache_counters *counters, struct cache **out,
                          struct error *e);
void cache_free(struct cache *c); /* takes NULL; stops the thread */

/* To be lent to workers. Shared memory is mapped read-only by others. */
const struct device_arena *cache_arena(const struct cache *c);
const struct shm *cache_residency(const struct cache *c);

/* A worker offered its region, mapped writable (taken over: closed when the worker is removed, and on failure). key: the
 * lease's number. The worker may read the arena from now on. ERROR_LIMIT where there are too many. */
enum error_code cache_add_worker(struct cache *c, uint64_t key, const struct shm *region,
                                 struct error *e);
/* The kernel says that it has gone: its epoch, its pins and its requests are forgotten, by the engine's thread, when the
 * segment under way is copied. */
void cache_remove_worker(struct cache *c, uint64_t key);

void cache_set_prefetcher(struct cache *c, enum sched_prefetcher prefetcher);

/* Another cache policy while serving: what is resident is judged by the new one, and given up in due course where that keeps no
 * loads and does not want it. After the prefetcher, which may have buffers beside it. */
enum error_code cache_set_policy(struct cache *c, enum sched_cache_kind kind,
                                 enum sched_budget budget, struct error *e);

/* So many slots from now on (as device_plan_resize says), and what that leaves for the workers' KV cache. Goes on by
 * itself; another call replaces the aim. Returns the resize's number, from 1. */
uint64_t cache_resize(struct cache *c, uint32_t n_slots);

struct cache_resize_state {
    uint64_t number; /* of the last one; 0: there was none */
    bool busy;
    enum cache_resize_wait waits; /* while busy */
    struct error failed; /* not busy: why it did not become what was asked for; code 0: it did */
};
void cache_resize_state(struct cache *c, struct cache_resize_state *out);

struct cache_state {
    uint64_t usable;   /* of these; others are about to go */
    uint64_t kv_bytes; /* what a worker may have; UINT64_MAX: not limited */
    uint64_t slots, free, resident, filling, retired; /* slots = the sum of the others */
    uint64_t slot_bytes;
    /* Of the cache's life, which since_ns is, but for what workers' calibrations copied. */
    uint64_t link_bytes, link_busy_ns, since_ns;
};
void cache_state(struct cache *c, struct cache_state *out);

#endif
