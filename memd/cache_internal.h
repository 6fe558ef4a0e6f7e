/* What the parts of the expert cache share; see cache.h. Everything here is guarded by the cache's lock, which the engine
 * thread gives up only while it copies or sleeps. While it copies, the lock's other users find the segment under way
 * as SLOT_FILLING and its expert as `filling`.
 *
 *     cache.c           the engine thread, the interface
 *     cache_workers.c   attaching, records, `consumed`, leaving
 *     cache_jobs.c      which segment is copied next
 *     cache_contents.c  room, eviction, publishing: every write of the residency table
 *     cache_queue.c, cache_slots.c, cache_wait.c: parts that know nothing of the others
 */
#ifndef MOED_MEMD_CACHE_INTERNAL_H
#define MOED_MEMD_CACHE_INTERNAL_H

#include "cache.h"
#include "cache_queue.h"
#include "cache_slots.h"
#include "cache_wait.h"
#include "cache_worker.h"
#include "ipc/cache_channel.h"

#include <pthread.h>

struct cache_expert {
    uint8_t resident;   /* leading segments; as in the residency table */
    uint8_t used;       /* leading segments that have served since they were copied */
    uint8_t transient;  /* last resident segments, which are given up after their use */
    uint16_t predicted; /* a bit a segment: copied on a prediction and not used since */
    bool filling;       /* the segment after the resident ones is being copied */
    uint32_t pins;      /* loads served and not consumed, and the one being served */
    uint32_t queued;    /* loads not served */
};

enum cache_reason { COPY_DEMANDED, COPY_WANTED, COPY_PREDICTED };

struct cache_job {
    uint32_t layer, expert, segment, slot;
    enum cache_reason reason;
    const uint8_t *from;
};

struct cache {
    pthread_mutex_t lock;
    struct pool_map map;
    struct cache_options options;
    struct cache_counters counters;
    struct shm arena, residency;
    struct residency_table table;
    struct cache_slots slots;
    uint32_t reserve;             /* slots kept free for loads on demand */
    struct cache_expert *experts; /* [n_layers][n_experts] */
    struct sched_cache *policy;
    bool keeps_loads;
    struct device_link *link;
    uint64_t started_ns;
    uint64_t step; /* forward passes of all workers */

    struct cache_worker workers[CACHE_MAX_WORKERS];
    struct cache_worker *serving; /* whose next load is being served, and is pinned; NULL: none */
    uint64_t
        sparing_since_ns; /* the load being served has waited for others' room; 0: it has not */
    bool wishing;         /* the policy wants the next segment of this expert */
    uint32_t wish_layer, wish_expert;

    pthread_t thread;
    bool has_thread, stop;
    struct doorbell bell; /* rung when one of the interface's callers changed something */
    struct cache_wait wait;
};

static inline struct cache_expert *cache_expert_at(struct cache *c, uint32_t layer, uint32_t expert)
{
    return &c->experts[(size_t)layer * c->table.n_experts + expert];
}

static inline const struct pool_slabs *cache_slabs(const struct cache *c, uint32_t layer)
{
    return &c->map.slabs[layer];
}

static inline void cache_count(struct counter *counter, uint64_t n)
{
    if (counter)
        counter_add(counter, n);
}

_Static_assert(POOL_MAX_SEGMENTS <= 16, "bits of cache_expert.predicted");

/* cache_contents.c */

/* The leading segments have served. */
void cache_mark_used(struct cache *c, uint32_t layer, uint32_t expert, uint32_t segments);

/* Tell the policy how much is resident. */
void cache_tell_policy(struct cache *c, uint32_t layer, uint32_t expert);
void cache_evict(struct cache *c, uint32_t layer, uint32_t expert); /* the last resident segment */
/* Give up what was loaded for a use that is over, unless somebody still wants it. */
void cache_settle(struct cache *c, uint32_t layer, uint32_t expert);
/* A slot for the next segment of this expert, evicting where that is right. False: not now. */
bool cache_room_for_demand(struct cache *c, uint32_t layer, uint32_t expert, uint32_t *slot);
bool cache_room_for_prefetch(struct cache *c, uint32_t layer, uint32_t expert, double probability,
                             uint32_t *slot);
/* Before and after the copy of job. */
void cache_begin_copy(struct cache *c, const struct cache_job *job);
void cache_end_copy(struct cache *c, const struct cache_job *job);

/* cache_jobs.c */

/* True: job is to be copied, its slot is taken, and its slab pinned where it lies in the host tier (cache_release_source).
 * False: nothing now; look again after *timeout_ns at the latest. */
bool cache_next_job(struct cache *c, struct cache_job *job, uint64_t *timeout_ns);
void cache_release_source(struct cache *c, const struct cache_job *job, bool copied);

/* cache_workers.c; the engine thread's */

void cache_take_records(struct cache *c);
void cache_release_consumed(struct cache *c);
void cache_forget_leaving(struct cache *c);

#endif
