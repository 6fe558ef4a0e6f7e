/* A worker as the expert cache and the host tier each know it: its cache channel, mapped by each for itself, and what it has
 * asked of that one. Under the owner's lock. */
#ifndef MOED_MEMD_CACHE_WORKER_H
#define MOED_MEMD_CACHE_WORKER_H

#include "sched/cache_queue.h"
#include "cache_slots.h"
#include "ipc/cache_channel.h"
#include "ipc/shm.h"
#include "model/pool_map.h"
#include "sched/cache.h"

#include <pthread.h>

/* What a worker has asked for so far. Loads that belong to no step (0) measure what a load costs: its
 * calibration, which is over when it says so. */
enum cache_worker_use { WORKER_SILENT, WORKER_MEASURES, WORKER_COMPUTES };

/* A worker is a reader of the slots as long as the kernel does not say that it has gone. */
enum { CACHE_MAX_WORKERS = CACHE_MAX_READERS };

struct cache_worker {
    bool present;
    bool leaving;  /* removed; the owner's thread forgets it when it comes by */
    bool broken;   /* it wrote nonsense: its ring is not read any more */
    bool reported; /* that it is broken */
    uint64_t key;
    struct shm region;
    struct cache_channel channel;
    int reader;
    uint64_t step; /* of its last routing record */
    enum cache_worker_use use;
    struct cache_queue *queue;
};

/* region: taken over, closed on failure. */
enum error_code cache_worker_open(struct cache_worker *w, uint64_t key, const struct shm *region,
                                  uint64_t pool_generation, struct error *e);
void cache_worker_close(struct cache_worker *w); /* and make it one that is not present */

/* The one with this key has gone, by the kernel's word. */
void cache_workers_remove(struct cache_worker workers[CACHE_MAX_WORKERS], uint64_t key);
/* Each broken one is made known once, by its key, without the lock: whoever hears it may call back in. report NULL: nobody
 * wants to hear. */
void cache_workers_report_broken(struct cache_worker workers[CACHE_MAX_WORKERS],
                                 pthread_mutex_t *lock, void (*report)(void *arg, uint64_t key),
                                 void *arg);
/* Something has arrived that one of them may wait for. */
void cache_workers_ring(struct cache_worker workers[CACHE_MAX_WORKERS]);
/* It writes `what`, and is served no more. */
void cache_worker_break(struct cache_worker *w, const char *what);

/* The next record of one of its rings, of which `asking` is the kind that asks for something. False: there is none now; or it
 * is nonsense, then *what says in what way, NULL otherwise. */
bool cache_worker_take(struct cache_worker *w, struct ring *ring, enum cache_record_kind asking,
                       const struct pool_slabs *slabs, uint32_t n_layers, struct cache_record *r,
                       const char **what);
/* A record of kind ROUTED. Workers count their own steps; policies see one count, *step, of all. False: it is empty. */
bool cache_worker_routed(struct cache_worker *w, const struct cache_record *r, uint64_t *step);
/* A record of kind PREDICTED, into the queue. Returns how many predictions were dropped for that. */
uint32_t cache_worker_predicted(struct cache_worker *w, const struct cache_record *r);

#endif
