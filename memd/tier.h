/* The host tier (ipc/host_tier.h): which experts lie in host memory when it is smaller than the model, and reading the
 * others from the model file.
 *
 * One thread, `memd/disk`, owns every decision and every write of the tier's table. It takes what workers ask for
 * (fetches), what they activated (by which it values experts) and what they predict, evicts, and hands reads to the lanes of
 * disk_reader.h: fetches first, in the order in which they were asked for; then the most probable prediction, which
 * evicts only what is worth less. Each expert has one slot of one size, whatever its layer.
 *
 * What a worker waits for is never evicted: it is pinned from the start of its read until the worker has counted it. The device's
 * copy engine pins what it copies. All else may go at any time; a worker that computes from it protects it by its
 * epoch, and until that has passed an expert that is wanted again is simply put back into the table.
 */
#ifndef MOED_MEMD_TIER_H
#define MOED_MEMD_TIER_H

#include "ipc/residency.h"
#include "ipc/shm.h"
#include "metrics/metrics.h"
#include "model/tier_plan.h"

struct tier;

struct tier_counters {            /* NULL members are not counted */
    struct counter *read_bytes;   /* from the file */
    struct counter *reads;        /* experts */
    struct counter *failed_reads; /* likewise */
    struct counter *prefetched_bytes, *prefetched_used_bytes,
        *prefetched_wasted_bytes; /* read before anybody waited; of those used, evicted unused */
    struct counter *evictions;
    struct counter *dropped; /* predictions that came too late */
    struct histogram *read_seconds;
};

struct tier_options {
    const struct tier_plan *plan;
    uint64_t generation; /* of the pool */
    /* NULL, or called once (by the tier's thread) for a worker that wrote nonsense. */
    void (*worker_broken)(void *arg, uint64_t key);
    void *worker_broken_arg;
};

/* pool: a tiered plan. Borrows gguf, pool and options->plan. Makes the region and starts the thread, which begins to fill the
 * slots. */
enum error_code tier_new(const struct gguf *g, const struct pool_plan *pool,
                         const struct tier_options *options, const struct tier_counters *counters,
                         struct tier **out, struct error *e);
void tier_free(struct tier *t); /* takes NULL; stops the thread */

/* Wait until the slots are filled for the first time, evenly over the layers; progress is called now and then. ERROR_IO where the
 * file cannot be read. */
enum error_code tier_fill(struct tier *t,
                          void (*progress)(void *arg, uint64_t done, uint64_t total), void *arg,
                          struct error *e);

const struct shm *tier_region(const struct tier *t); /* to be lent, read-only */

/* As cache_add_worker and cache_remove_worker (cache.h), with a mapping of the region of its own. */
enum error_code tier_add_worker(struct tier *t, uint64_t key, const struct shm *region,
                                struct error *e);
void tier_remove_worker(struct tier *t, uint64_t key);

/* For the device's copy engine. Where the expert's slab lies, which stays there until it is unpinned; NULL: not in
 * memory. */
const uint8_t *tier_pin(struct tier *t, uint32_t layer, uint32_t expert);
/* Whether tier_pin would find it now. */
bool tier_holds(struct tier *t, uint32_t layer, uint32_t expert);
void tier_unpin(struct tier *t, uint32_t layer, uint32_t expert, bool copied);
/* It would like to copy this expert: a prediction of nobody. probability: as for predictions, 0 where a policy wants it;
 * urgent: a worker waits for the copy. A wish is forgotten when the expert has come or cannot be read; a predicted one when
 * its layer was entered; and any that was not repeated for two steps. */
void tier_wish(struct tier *t, uint32_t layer, uint32_t expert, double probability, bool urgent);
/* The device's cache beside the tier, of which there may be none. */
struct tier_device {
    /* What it holds. Experts that are whole there are the first to give up their slot here: they are computed there. */
    const struct residency_table *residency;
    /* Called when what was wished for is in memory, or the wish has become too old and is to be repeated if it still stands.
     * With the tier's lock held, by any thread: it may ring a bell, no more. */
    void (*wake)(void *arg);
    void *wake_arg;
};
/* NULL: none; the one before is used no more when this returns. */
void tier_set_device(struct tier *t, const struct tier_device *device);

struct tier_state {
    uint64_t slots, free, resident, filling, retired; /* slots = the sum of the others */
    uint64_t slot_bytes;
    uint64_t experts; /* that there are */
    uint64_t since_ns;
    uint64_t busy_ns; /* of it, during which something was being read */
};
void tier_state(struct tier *t, struct tier_state *out);

#endif
