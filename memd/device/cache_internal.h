/* What the parts of the expert cache share; see cache.h. The server's lock guards everything here.
 * The engine thread gives it up only while it queues copies, waits for one, sleeps, or allocates
 * device memory. The lock's other users find a segment that is queued as SLOT_FILLING and its
 * expert as filling.
 *
 *     cache.c           the engine thread, the interface
 *     cache_workers.c   workers: their records, `consumed`, leaving
 *     cache_resize.c    more slots or fewer while serving
 *     cache_hold.c      device memory for workers that are not there
 *     cache_policy.c    the policy, and the number of slots that it has
 *     cache_link.c      queues copies on the link, and collects them
 *     cache_copies.c    makes the copies that lib/sched/prefetch/transfer_scheduler.h decides on;
 *                       every write of the residency table
 */
#ifndef MOED_MEMD_DEVICE_CACHE_INTERNAL_H
#define MOED_MEMD_DEVICE_CACHE_INTERNAL_H

#include "cache.h"
#include "memd/slots/slot_server.h"
#include "sched/prefetch/transfer_scheduler.h"

/* A copy that is to be made. */
struct cache_job {
    struct copy_job what;
    uint32_t slot;
    uint32_t flag; /* the value that the slot's flag gets */
    const uint8_t *from;
};

/* Neighbouring segments that are copied at once: n jobs, of which each continues the last one's
 * bytes in host memory and on the device. */
struct cache_batch {
    struct cache_job jobs[DEVICE_COPY_SIGNALS];
    uint32_t n;
    uint64_t bytes;
    uint64_t queued_ns;
    uint64_t measured_bytes; /* of jobs for a calibration */
};

/* What the arena is to become; see cache_resize.c. */
struct cache_aim {
    bool busy;       /* it is not that yet */
    uint64_t number; /* of resizes, from 1; 0: none */
    uint32_t slots;
    uint32_t before; /* slots in use when the aim was set */
    enum cache_resize_wait waits;
    uint64_t short_ns;   /* since when the device has no memory for the next extent; 0: it has */
    uint64_t retry_ns;   /* not to be tried before */
    struct error failed; /* why the last resize fell short; code 0: it did not */
};

/* Device memory that is held for workers; see cache_hold.c. */
struct cache_hold {
    uint32_t n;        /* shares, */
    uint64_t bytes;    /* and bytes of each, that are to be held */
    uint64_t retry_ns; /* not to be tried before */
    uint64_t pause_ns; /* until then; 0: the device had memory for all */
};

struct cache {
    struct slot_server server;
    struct pool_map map;
    struct cache_options options;
    struct cache_counters counters;
    struct transfer_counts counted; /* of transfer_scheduler_counts: what the counters have */
    /* Some worker measures, and none computes: copies for a calibration are no traffic, and the
     * counters of traffic leave them out. */
    bool measuring;
    bool *measured; /* [n_layers][n_experts]: copied for a calibration, and dropped at its end */
    uint64_t link_bytes, link_busy_ns; /* without calibrations */
    /* The copies that the link has in its queue, in order; the engine thread's alone. */
    struct cache_batch queue[DEVICE_LINK_QUEUE];
    uint32_t n_queued;
    uint64_t collected_ns; /* when the last copy was collected */
    struct device_link *link;
    const struct device_arena *arena;
    struct device_plan plan;
    struct shm residency;
    struct residency_table table;
    uint32_t reserve; /* slots kept free for loads on demand */
    struct cache_aim aim;
    struct cache_hold hold;
    uint32_t n_shown;     /* extents that workers see; the arena's others are coming or going */
    uint32_t last_serial; /* of an extent */
    uint32_t *fills;      /* [arena->n_flags]: how often each slot was filled, which is its flag's
                             value; NULL: slots have no flags */
    struct transfer_scheduler *transfers;
    struct sched_cache *policy;
    enum sched_cache_kind kind;     /* of the policy */
    enum sched_budget budget;       /* of the policy */
    struct sched_cache_costs costs; /* a worker's last; load_s 0: none yet */
    uint64_t started_ns;
    uint64_t step; /* forward passes of all workers */

    bool lost; /* the device has failed: the thread has ended */
};

static inline const struct pool_slabs *cache_slabs(const struct cache *c, uint32_t layer)
{
    return &c->map.slabs[layer];
}

_Static_assert(POOL_MAX_SEGMENTS <= TRANSFER_MAX_SEGMENTS, "an expert's segments");
_Static_assert((int)CACHE_MAX_WORKERS <= (int)TRANSFER_MAX_REQUESTERS, "a worker is a requester");

/* cache_policy.c */

/* Makes the policy of c->options, for the present number of slots. */
enum error_code cache_start_policy(struct cache *c, struct error *e);
/* The slots of n that are kept free for loads. */
uint32_t cache_reserve_of(const struct cache *c, uint32_t n_slots);
/* Uses n slots from now on. ERROR_MEMORY: nothing has changed. */
enum error_code cache_use_slots(struct cache *c, uint32_t n, struct error *e);

/* cache_hold.c; the engine thread's */

/* Holds the memory of the workers that are not there, or tries again later. Gives up the lock while
 * the device allocates or releases memory. */
void cache_hold_shares(struct cache *c);
/* Nanoseconds until it tries again; UINT64_MAX: it need not. */
uint64_t cache_hold_left_ns(const struct cache *c);

/* cache_resize.c; the engine thread's */

/* Shows the workers the arena's new extents: before there are any workers, and in
 * cache_resize_step. */
void cache_show_extents(struct cache *c);
/* A step towards the aim. Gives up the lock while the device allocates memory. */
void cache_resize_step(struct cache *c);

/* cache_copies.c; the engine thread's, but for the first */

/* Makes c->transfers, for the present arena and table. */
enum error_code cache_make_transfers(struct cache *c, struct error *e);
/* True: job is to be copied; its slot is taken, and its slab pinned where it lies in the host tier.
 * False: nothing now; look again after *timeout_ns at the latest. loads_only: only what a worker
 * waits for. last: the job before it, whose neighbour the slot should be; NULL: none. */
bool cache_next_job(struct cache *c, bool loads_only, const struct cache_job *last,
                    struct cache_job *job, uint64_t *timeout_ns);
/* Before and after the copy of a job. Before: announces it to workers and sets job->flag. */
void cache_begin_copy(struct cache *c, struct cache_job *job);
void cache_end_copy(struct cache *c, const struct cache_job *job);
/* Whether the expert has another segment, and could have it in the place behind the job's. */
bool cache_has_neighbour(const struct cache *c, const struct cache_job *job);
/* Whether job's bytes follow last's, in host memory and on the device. */
bool cache_continues(const struct cache *c, const struct cache_job *last,
                     const struct cache_job *job);
/* Forgets a copy that the link will not make any more. */
void cache_drop_copy(struct cache *c, const struct cache_job *job);
/* Adds what was counted since the last call to the metrics. Call before c->measuring changes. */
void cache_publish_counts(struct cache *c);
/* Drops the segments that were copied for a calibration, but for those in use. */
void cache_drop_measured(struct cache *c);

/* cache_link.c; the engine thread's, with the lock, which they give up for a while. An error: the
 * device is lost. */

/* Queues copies as the rules of cache_link.c allow. Returns after which time to look again. */
enum error_code cache_fill_link(struct cache *c, uint64_t *timeout_ns, struct error *e);
/* Waits for the oldest copy, or for a doorbell that was watched, or for timeout_ns. */
enum error_code cache_wait_link(struct cache *c, uint64_t timeout_ns, struct error *e);
/* After the engine's last turn: gives up what is still queued. */
void cache_drop_queued(struct cache *c);

/* cache_workers.c; the engine thread's. The first five: see struct slot_owner. */

void cache_worker_joined(void *cache, uint32_t worker);
void cache_take_record(void *cache, uint32_t worker, const struct cache_record *r);
void cache_worker_forget(void *cache, uint32_t worker);
void cache_worker_leaving(void *cache, uint32_t worker);
void cache_worker_left(void *cache);
void cache_release_consumed(struct cache *c);

#endif
