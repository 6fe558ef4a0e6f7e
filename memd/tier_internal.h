/* What the parts of the host tier share; see tier.h. Everything here is guarded by the tier's lock, which its thread
 * gives up only while it sleeps.
 *
 *     tier.c           the thread, the interface
 *     tier_workers.c   attaching, records, `fetched`, leaving
 *     tier_jobs.c      what is read next, and into which slot
 */
#ifndef MOED_MEMD_TIER_INTERNAL_H
#define MOED_MEMD_TIER_INTERNAL_H

#include "cache_slots.h"
#include "cache_wait.h"
#include "cache_worker.h"
#include "disk_reader.h"
#include "ipc/host_tier.h"
#include "sched/cache.h"
#include "tier.h"

#include <pthread.h>

enum { TIER_WISHES = 16 };
#define TIER_NO_SLOT  UINT32_MAX
#define TIER_NO_LAYER UINT32_MAX

/* Where an expert is follows from its slot: resident, filling or retired as that is, if the slot is still its own. */
struct tier_expert {
    uint32_t slot;     /* TIER_NO_SLOT: none */
    uint32_t pins;     /* fetches begun and not counted; copies */
    uint32_t queued;   /* fetches not begun */
    uint32_t failures; /* as in its word */
    bool prefetched;   /* and not used since */
};

struct tier_wish {
    uint32_t layer, expert;
    double probability;
    bool urgent;
    uint64_t step; /* when it was last expressed: tier.step */
};

struct tier_job {
    uint32_t layer, expert, slot;
};

struct tier {
    pthread_mutex_t lock;
    const struct pool_plan *pool;
    const struct tier_plan *plan;
    struct tier_options options;
    struct tier_counters counters;
    struct shm region;
    struct host_tier table;
    struct cache_slots slots;
    uint32_t *owner;             /* [n_slots] layer * n_experts + expert */
    uint32_t reserve;            /* slots kept free, so that a fetch begins at once */
    struct tier_expert *experts; /* [n_layers][n_experts] */
    uint32_t n_layers, n_experts;
    uint64_t total; /* experts that there are */
    struct sched_cache *policy;
    struct disk_reader *reader;
    uint64_t step; /* forward passes of all workers */

    struct cache_worker workers[CACHE_MAX_WORKERS];
    struct tier_wish wishes[TIER_WISHES]; /* in any order, of what is not in memory */
    uint32_t n_wishes;
    struct tier_device device;

    /* the first filling */
    uint64_t fill_next, fill_asked, fill_done, fill_total;
    bool fill_failed;
    pthread_cond_t filled;

    uint32_t reading; /* reads under way */
    uint64_t started_ns, busy_ns, busy_since_ns;

    pthread_t thread;
    bool has_thread, stop;
    /* rung by the lanes, and when one of the interface's callers changed something */
    struct doorbell bell;
    struct cache_wait wait;
};

static inline struct tier_expert *tier_expert_at(struct tier *t, uint32_t layer, uint32_t expert)
{
    return &t->experts[(size_t)layer * t->n_experts + expert];
}

static inline const struct pool_slabs *tier_slabs(const struct tier *t, uint32_t layer)
{
    return &t->pool->slabs[layer];
}

static inline void tier_count(struct counter *counter, uint64_t n)
{
    if (counter)
        counter_add(counter, n);
}

/* tier_jobs.c */

/* SLOT_FREE: it is not in memory. */
enum slot_state tier_where(struct tier *t, uint32_t layer, uint32_t expert);
/* Back into the table, where it has only been retired. True: it is resident. */
bool tier_restore(struct tier *t, uint32_t layer, uint32_t expert);
/* A record named it as activated. */
void tier_mark_used(struct tier *t, uint32_t layer, uint32_t expert);
/* A worker entered the layer: what was wished for it on a prediction comes too late. */
void tier_forget_predicted_wishes(struct tier *t, uint32_t layer);
/* Tell who wishes (tier_device.wake). */
void tier_wake_wisher(struct tier *t);
/* True: job is to be read, its slot is taken. There is an idle lane. False: nothing now; look again after *timeout_ns at
 * the latest. */
bool tier_next_job(struct tier *t, struct tier_job *job, uint64_t *timeout_ns);
void tier_finish_job(struct tier *t, const struct disk_result *result);

/* tier_workers.c; the tier's thread's */

void tier_take_records(struct tier *t);
void tier_release_fetched(struct tier *t);
void tier_forget_leaving(struct tier *t);

#endif
