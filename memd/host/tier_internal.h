/* What the parts of the host tier share; see tier.h. The server's lock guards everything here; its
 * thread gives it up only while it sleeps.
 *
 *     tier.c           the thread, the interface
 *     tier_workers.c   workers: their records, `fetched`
 *     tier_jobs.c      which expert is read next, and into which slot
 */
#ifndef MOED_MEMD_HOST_TIER_INTERNAL_H
#define MOED_MEMD_HOST_TIER_INTERNAL_H

#include "memd/slots/slot_server.h"
#include "disk_reader.h"
#include "ipc/host_tier.h"
#include "sched/cache/cache.h"
#include "tier.h"

enum { TIER_HINTS = 16 };
#define TIER_NO_SLOT  UINT32_MAX
#define TIER_NO_LAYER UINT32_MAX

/* The state of the slot says where the expert is (resident, filling or retired), if the expert
 * still owns the slot. */
struct tier_expert {
    uint32_t slot;     /* TIER_NO_SLOT: none */
    uint32_t pins;     /* fetches begun and not counted; copies */
    uint32_t queued;   /* fetches not begun */
    uint32_t failures; /* as in its word */
    bool prefetched;   /* and not used since */
};

struct tier_hint {
    uint32_t layer, expert;
    double probability;
    bool urgent;
    uint64_t step; /* tier.step when it was last given */
};

struct tier_job {
    uint32_t layer, expert, slot;
};

struct tier {
    struct slot_server server; /* the lanes ring its bell too */
    const struct pool_plan *pool;
    const struct tier_plan *plan;
    struct tier_options options;
    struct tier_counters counters;
    struct shm region;
    enum shm_pages pages; /* of the region */
    struct host_tier table;
    uint32_t reserve;            /* slots kept free, so that a fetch begins at once */
    uint32_t *owner;             /* [n_slots] layer * n_experts + expert */
    struct tier_expert *experts; /* [n_layers][n_experts] */
    bool *paged;                 /* [n_slots] a lane has made its pages, or makes them */
    void *memory;                /* of these arrays */
    uint32_t n_layers, n_experts;
    uint64_t total; /* experts of the model */
    struct sched_cache *policy;
    struct disk_reader *reader;
    uint64_t step; /* forward passes of all workers */

    struct tier_hint hints[TIER_HINTS]; /* in any order, of experts that are not in memory */
    uint32_t n_hints;
    struct tier_device devices[DEVICES_MAX];
    unsigned n_devices;

    /* the first filling */
    uint64_t fill_next, fill_asked, fill_done, fill_total;
    enum error_code fill_code; /* of the first expert that could not be read */
    struct error fill_error;
    pthread_cond_t filled;

    uint32_t reading; /* reads under way */
    uint64_t started_ns, busy_ns, busy_since_ns;
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

/* SLOT_FREE: the expert is not in memory. */
enum slot_state tier_where(struct tier *t, uint32_t layer, uint32_t expert);
/* Puts a retired expert back into the table. True: the expert is resident. */
bool tier_restore(struct tier *t, uint32_t layer, uint32_t expert);
/* A routing record named the expert as activated. */
void tier_mark_used(struct tier *t, uint32_t layer, uint32_t expert);
/* A worker entered the layer: hints from predictions of it come too late. */
void tier_forget_predicted_hints(struct tier *t, uint32_t layer);
/* Calls tier_device.wake. */
void tier_wake_hinter(struct tier *t);
/* True: job is to be read, its slot is taken. There must be an idle lane. False: nothing now; look
 * again after *timeout_ns at the latest. */
bool tier_next_job(struct tier *t, struct tier_job *job, uint64_t *timeout_ns);
void tier_finish_job(struct tier *t, const struct disk_result *result);

/* tier_workers.c; the tier's thread's. The first two: see struct slot_owner. */

void tier_take_record(void *tier, uint32_t worker, const struct cache_record *r);
void tier_forget_requests(void *tier, uint32_t worker);
void tier_release_fetched(struct tier *t);

#endif
