/* A worker as the expert cache or the host tier knows it: its cache channel (the cache and the tier
 * each map it) and its requests to that one. Used by the thread that serves it, under its lock
 * (slot_server.h). */
#ifndef MOED_MEMD_SLOTS_CACHE_WORKER_H
#define MOED_MEMD_SLOTS_CACHE_WORKER_H

#include "sched/cache/cache_queue.h"
#include "ipc/cache_channel.h"
#include "ipc/shm.h"
#include "model/pool_map.h"

/* What the worker has requested so far. Loads that belong to step 0 are its calibration: they
 * measure what a load costs, until a record of kind MEASURED ends it. */
enum cache_worker_use { WORKER_SILENT, WORKER_MEASURES, WORKER_COMPUTES };

struct cache_worker {
    bool present;
    bool leaving;  /* removed; the server's thread forgets it when it comes by */
    bool broken;   /* it wrote an invalid record: its ring is not read any more */
    bool reported; /* that it is broken */
    uint64_t key;  /* of its lease */
    struct shm region;
    struct cache_channel channel;
    int reader;
    uint64_t step; /* of its last routing record */
    enum cache_worker_use use;
    struct cache_queue *queue;
};

/* region: taken over, closed on failure. ERROR_PROTOCOL: not a channel of this pool. */
enum error_code cache_worker_open(struct cache_worker *w, uint64_t key, const struct shm *region,
                                  uint64_t pool_generation, struct error *e);
void cache_worker_close(struct cache_worker *w); /* leaves it not present */

/* Logs that the worker wrote `what`, and marks it broken. */
void cache_worker_break(struct cache_worker *w, const char *what);

/* Pops the next record of `ring` and checks it. asking: as for cache_record_check. False: there is
 * none now (*what NULL), or it is invalid (*what says why). Records stay in the ring while the
 * queue may have too little capacity for one. */
bool cache_worker_take(struct cache_worker *w, struct ring *ring, enum cache_record_kind asking,
                       const struct pool_slabs *slabs, uint32_t n_layers, struct cache_record *r,
                       const char **what);
/* A record of kind ROUTED. Each worker counts its own steps; a policy sees *step, which counts the
 * steps of all workers. False: the record is empty. */
bool cache_worker_routed(struct cache_worker *w, const struct cache_record *r, uint64_t *step);
/* A record of kind PREDICTED, into the queue. Returns how many predictions that dropped. */
uint32_t cache_worker_predicted(struct cache_worker *w, const struct cache_record *r);

#endif
