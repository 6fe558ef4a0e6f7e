/* The host tier (ipc/host_tier.h): which experts lie in host memory when it is smaller than the
 * model. It reads the others from the model file.
 *
 * One thread, `memd/disk`, makes every decision and every write of the tier's table. It takes the
 * workers' fetches, activations (which give experts their value) and predictions, evicts, and hands
 * reads to the lanes of disk_reader.h: fetches first, in the order of their requests; then the most
 * probable prediction, which evicts only experts of less value. Each slot holds one expert; all
 * slots have one size, for any layer.
 *
 * The tier never evicts an expert that a worker waits for: it is pinned from the start of its read
 * until the worker has counted it. The device's copy engine pins what it copies. The tier may evict
 * any other expert at any time. A worker that computes from a slot protects it by its epoch; until
 * that has passed, the tier puts an expert that is needed again back into the table.
 */
#ifndef MOED_MEMD_HOST_TIER_H
#define MOED_MEMD_HOST_TIER_H

#include "disk_reader.h"
#include "memd/slots/cache_slots.h"
#include "device/device.h"
#include "ipc/residency.h"
#include "ipc/shm.h"
#include "metrics/metrics.h"
#include "model/tier_plan.h"

struct tier;

struct tier_counters {                       /* NULL members are not counted */
    struct counter *read_bytes;              /* from the file */
    struct counter *reads;                   /* of experts */
    struct counter *failed_reads;            /* of those */
    struct counter *prefetched_bytes;        /* read before a worker waited for them */
    struct counter *prefetched_used_bytes;   /* of those, used since */
    struct counter *prefetched_wasted_bytes; /* of those, evicted unused */
    struct counter *evictions;
    struct counter *dropped; /* predictions and hints that came too late */
    struct histogram *read_seconds;
};

struct tier_options {
    const struct tier_plan *plan;
    uint64_t generation; /* of the pool */
    /* NULL, or called once by the tier's thread for a worker that wrote an invalid record. */
    void (*worker_broken)(void *arg, uint64_t key);
    void *worker_broken_arg;
    disk_file_changed *file_changed; /* NULL, or see disk_reader.h */
    void *file_changed_arg;
};

/* pool: a tiered plan. Borrows g, pool and options->plan. Makes the region and starts the thread,
 * which begins to fill the slots. */
enum error_code tier_new(const struct gguf *g, const struct pool_plan *pool,
                         const struct tier_options *options, const struct tier_counters *counters,
                         struct tier **out, struct error *e);
void tier_free(struct tier *t); /* takes NULL; stops the thread */

/* Waits until the slots are filled for the first time, evenly over the layers. Calls progress for
 * each per cent. ERROR_IO: the file cannot be read. ERROR_FORMAT: an expert cannot be used. */
enum error_code tier_fill(struct tier *t,
                          void (*progress)(void *arg, uint64_t done, uint64_t total), void *arg,
                          struct error *e);

const struct shm *tier_region(const struct tier *t); /* lent to workers, read-only */

/* As slot_server_add_worker and slot_server_remove_worker. region: a mapping of its own. */
enum error_code tier_add_worker(struct tier *t, uint64_t key, const struct shm *region,
                                struct error *e);
void tier_remove_worker(struct tier *t, uint64_t key);

/* For the device's copy engine. Returns where the expert's slab lies; it stays there until it is
 * unpinned. NULL: not in memory. */
const uint8_t *tier_pin(struct tier *t, uint32_t layer, uint32_t expert);
/* True: tier_pin would find the expert now. */
bool tier_holds(struct tier *t, uint32_t layer, uint32_t expert);
void tier_unpin(struct tier *t, uint32_t layer, uint32_t expert, bool copied);
/* A hint: the copy engine would copy this expert if it were in memory. probability: of a
 * prediction; 0: a policy wants the expert. urgent: a worker waits for the copy. The tier forgets a
 * hint when the expert has come or cannot be read, when it was not repeated for two steps, and, if
 * it comes from a prediction, when its layer is entered. */
void tier_hint(struct tier *t, uint32_t layer, uint32_t expert, double probability, bool urgent);
/* An expert cache that copies from the tier. */
struct tier_device {
    /* What the device holds. The tier evicts experts that are whole on all devices first: the
     * devices compute them. */
    const struct residency_table *residency;
    /* Called when a hint's expert is in memory, and when a hint has become too old: the engine
     * repeats it if it still wants the expert. Any thread calls it, with the tier's lock held: it
     * may ring a bell, no more. */
    void (*wake)(void *arg);
    void *wake_arg;
};
/* DEVICES_MAX at most. */
void tier_add_device(struct tier *t, const struct tier_device *device);
/* By its wake_arg; none is fine. After the return the tier uses it no more. */
void tier_remove_device(struct tier *t, const void *wake_arg);

struct tier_state {
    struct slots_state slots;
    uint64_t experts; /* of the model */
    uint64_t since_ns;
    uint64_t busy_ns; /* of since_ns, with a read under way */
};
void tier_state(struct tier *t, struct tier_state *out);

#endif
