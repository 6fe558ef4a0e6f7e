/* What the parts of the expert cache share; see cache.h. Everything here is guarded by the cache's lock, which the engine
 * thread gives up only while it copies or sleeps. While it copies, the lock's other users find the segment under way
 * as SLOT_FILLING and its expert as filling.
 *
 *     cache.c           the engine thread, the interface
 *     cache_workers.c   attaching, records, `consumed`, leaving
 *     cache_resize.c    more slots or fewer while serving
 *     cache_copies.c    making the copies that lib/sched/copies.h decides on: every write of the residency table
 *     cache_slots.c, cache_wait.c: parts that know nothing of the others
 */
#ifndef MOED_MEMD_CACHE_INTERNAL_H
#define MOED_MEMD_CACHE_INTERNAL_H

#include "cache.h"
#include "cache_slots.h"
#include "cache_wait.h"
#include "cache_worker.h"
#include "ipc/cache_channel.h"
#include "sched/copies.h"

#include <pthread.h>

/* A copy that is made. */
struct cache_job {
    struct copy_job what;
    uint32_t slot;
    uint32_t flag; /* what the slot's becomes */
    const uint8_t *from;
};

/* What the arena is to become; see cache_resize.c. */
struct cache_aim {
    bool busy; /* it is not that yet */
    uint64_t number; /* of resizes, from 1; 0: none */
    uint32_t slots;
    uint32_t before; /* that were used when it was set */
    enum cache_resize_wait waits;
    uint64_t short_ns;   /* since when the device has no memory for the next piece; 0: it has */
    uint64_t retry_ns;   /* not to be tried before */
    struct error failed; /* why the last one ended short of it; code 0: it did not */
};

struct cache {
    pthread_mutex_t lock;
    struct pool_map map;
    struct cache_options options;
    struct cache_counters counters;
    struct copies_counts counted; /* of sched_copies_counts, what the counters have */
    /* Workers measure, and none computes: what is copied for them is no traffic, and not counted with that. */
    bool measuring;
    bool *measured; /* [n_layers][n_experts]: came so, and goes when that is over */
    uint64_t link_bytes, link_busy_ns; /* of the others */
    struct device_link *link;
    const struct device_arena *arena;
    struct device_plan plan;
    struct shm residency;
    struct residency_table table;
    struct cache_slots slots;
    uint32_t reserve; /* slots kept free for loads on demand */
    struct cache_aim aim;
    uint32_t n_shown; /* pieces that workers are shown; the arena's others are on their way in or out */
    uint32_t last_serial; /* of a piece */
    uint32_t *fills; /* [arena->n_flags]: how often each slot was filled, as its flag says; NULL: slots have no flags */
    struct sched_copies *copies;
    struct sched_cache *policy;
    enum sched_cache_kind kind; /* of it */
    enum sched_budget budget;   /* likewise */
    struct sched_cache_costs costs; /* as told last; load_s 0: not yet */
    uint64_t started_ns;
    uint64_t step; /* forward passes of all workers */

    struct cache_worker workers[CACHE_MAX_WORKERS];

    pthread_t thread;
    bool has_thread, stop;
    bool lost; /* the device: the thread has ended */
    pthread_t pin_thread;
    bool has_pin_thread;
    _Atomic bool stop_pinning;
    struct doorbell bell; /* rung when one of the interface's callers changed something */
    struct cache_wait wait;
};

static inline const struct pool_slabs *cache_slabs(const struct cache *c, uint32_t layer)
{
    return &c->map.slabs[layer];
}

_Static_assert(POOL_MAX_SEGMENTS <= COPIES_MAX_SEGMENTS, "an expert's segments");
_Static_assert((int)CACHE_MAX_WORKERS <= (int)COPIES_MAX_ASKERS, "a worker is an asker");

/* cache.c: as many slots are used from now on. No memory: nothing has changed. */
enum error_code cache_use_slots(struct cache *c, uint32_t n, struct error *e);

/* cache_resize.c; the engine thread's */

/* Pieces of the arena that workers are not shown yet. Before there are any, and in cache_resize_step. */
void cache_show_pieces(struct cache *c);
/* A step towards the aim. Gives up the lock while memory is allocated. */
void cache_resize_step(struct cache *c);

/* cache_copies.c; the engine thread's, but for the first */

/* c->copies, for the arena and the table that there are. */
enum error_code cache_make_copies(struct cache *c, struct error *e);
/* True: job is to be copied, its slot is taken, and its slab pinned where it lies in the host tier. False: nothing now; look
 * again after *timeout_ns at the latest. */
bool cache_next_job(struct cache *c, struct cache_job *job, uint64_t *timeout_ns);
/* Before and after the copy of job. Before: workers learn where it goes; job->flag is set. */
void cache_begin_copy(struct cache *c, struct cache_job *job);
void cache_end_copy(struct cache *c, const struct cache_job *job);
/* What was counted since the last time, to the metrics; before c->measuring changes, too. */
void cache_publish_counts(struct cache *c);
/* What was copied for a worker's measuring goes, but for what is in use. */
void cache_drop_measured(struct cache *c);

/* cache_workers.c; the engine thread's */

void cache_take_records(struct cache *c);
void cache_release_consumed(struct cache *c);
void cache_forget_leaving(struct cache *c);

#endif
