/* The frame of the expert cache and of the host tier: one thread that owns slots and serves
 * workers. The owner (cache or tier) makes the decisions; the frame attaches workers, takes their
 * records from the rings, waits for all doorbells at one place, and forgets workers that are gone.
 *
 * A thread for each ring would hand every record over to the owner's thread, and so put a second
 * wake-up between a worker's request and the copy or read that it needs.
 *
 * What a worker writes is input. The frame copies each record out of the ring and checks every
 * number. A worker that writes an invalid record is broken: its ring is read no more, the owner
 * forgets its requests. Its epoch counts until the kernel reports that the process is gone, for it
 * may still be reading slots.
 *
 * The lock guards the frame and the owner's state. The thread gives it up only while it sleeps, or
 * where the owner allows it. */
#ifndef MOED_MEMD_SLOTS_SLOT_SERVER_H
#define MOED_MEMD_SLOTS_SLOT_SERVER_H

#include "cache_slots.h"
#include "cache_wait.h"
#include "cache_worker.h"

#include "ipc/doorbell.h"

#include <pthread.h>

/* A worker is a reader of the slots until the kernel reports that it is gone. */
enum { CACHE_MAX_WORKERS = CACHE_MAX_READERS };

/* The owner and its functions, which are called with the lock held (or, in slot_server_stop, after
 * the thread has ended). `worker` is the place in workers[], which is the reader's number too. */
struct slot_owner {
    const char *name; /* for messages: "cache" */
    void *arg;
    /* CACHE_LOAD: the ring of requests and the epoch; CACHE_FETCH: the ring of fetches and the
     * host epoch. */
    enum cache_record_kind asks;
    uint64_t pool_generation;
    const struct pool_slabs *slabs; /* [n_layers] */
    uint32_t n_layers;
    void (*joined)(void *arg, uint32_t worker); /* NULL: nothing to do */
    void (*take)(void *arg, uint32_t worker, const struct cache_record *r); /* a checked record */
    void (*forget)(void *arg, uint32_t worker); /* the worker is broken: forget its requests */
    void (*leaving)(void *arg,
                    uint32_t worker); /* the worker is gone; its channel is still mapped */
    void (*left)(void *arg);          /* after that; NULL: nothing to do */
    /* Called once for each broken worker, without the lock, by the server's thread. NULL: nobody
     * wants to know. */
    void (*broken)(void *arg, uint64_t key);
    void *broken_arg;
};

struct slot_server {
    pthread_mutex_t lock;
    struct slot_owner owner;
    struct cache_slots slots; /* of the owner: it calls cache_slots_init */
    struct cache_worker workers[CACHE_MAX_WORKERS];
    struct doorbell bell; /* rung when a caller of the owner's interface changed something */
    struct cache_wait wait;
    bool records_left; /* slot_server_take_records may have left some in a ring */
    pthread_t thread;
    bool has_thread, stop;
};

void slot_server_init(struct slot_server *s, const struct slot_owner *owner);
/* main: gets owner.arg; runs until `stop`. thread: its name. */
enum error_code slot_server_start(struct slot_server *s, const char *thread, void *(*main)(void *),
                                  struct error *e);
/* Ends the thread, if there is one, and forgets all workers. */
void slot_server_stop(struct slot_server *s);
void slot_server_fini(struct slot_server *s); /* after slot_server_stop */

/* ---- For the owner's interface: any thread, without the lock ---- */

/* Maps the worker's cache channel. key: the lease's number. region: taken over, closed on failure.
 * The worker may read the slots from now on. ERROR_LIMIT: CACHE_MAX_WORKERS are served already. */
enum error_code slot_server_add_worker(struct slot_server *s, uint64_t key,
                                       const struct shm *region, struct error *e);
/* The kernel reports that the worker is gone. The server's thread forgets it when it comes by. */
void slot_server_remove_worker(struct slot_server *s, uint64_t key);

/* ---- For the server's thread, with the lock ---- */

void slot_server_forget_leaving(struct slot_server *s);
/* Before looking for work: whatever comes later wakes the sleeper. */
void slot_server_watch(struct slot_server *s);
/* Takes the records of all rings, at most 128 of one worker. */
void slot_server_take_records(struct slot_server *s);
void slot_server_report_broken(struct slot_server *s);
/* Gives up the lock until a watched doorbell has rung, or for timeout_ns; for a moment only where
 * slot_server_take_records may have left records. */
void slot_server_sleep(struct slot_server *s, uint64_t timeout_ns);
/* Rings every worker: something has arrived that it may wait for. */
void slot_server_ring_workers(struct slot_server *s);
/* The next worker from *i on that is present and not broken; sets *i to its place. NULL: none.
 *     for (uint32_t i = 0; (w = slot_server_next(s, &i)); i++) */
struct cache_worker *slot_server_next(struct slot_server *s, uint32_t *i);

#endif
