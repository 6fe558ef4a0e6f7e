/* memd's leases: which processes hold the pool. Each holder keeps a connection open, and the kernel
 * reports its end. */
#ifndef MOED_MEMD_LEASES_H
#define MOED_MEMD_LEASES_H

#include "base/error.h"
#include "memd/device/caches.h"
#include "ipc/kv_pool.h"
#include "ipc/shm.h"
#include "memd/host/tier.h"

#include <stdint.h>
#include <sys/types.h>

struct leases;

/* What memd lends; all borrowed. */
struct lent {
    const struct shm *pool;
    const struct shm *residency;  /* where there are no caches, which have their own */
    const struct caches *caches;  /* of the devices' memory; n 0: they have none */
    struct tier *tier;            /* NULL: all experts are in the pool */
    const struct shm *predictors; /* trained predictors; NULL: none */
    const struct shm *kv;         /* the KV pool; NULL: none */
    struct kv_pool *kv_pool;      /* of it */
    const struct shm *kv_index;   /* of conversations in a file; NULL: none */
    int kv_file;                  /* that file, read-only */
    uint64_t generation;
};

/* Listens on RUN/memd.lease and grants a lease to every process of this user that asks and has the
 * same layouts, 256 at a time. A worker gets a number in the KV pool; when its process has ended,
 * what it used there is freed. When a holder offers a cache channel, leases adds it to the cache
 * and the tier as a worker; when the lease ends, it removes the worker there. */
enum error_code leases_open(const char *run, const struct lent *lent, struct leases **out,
                            struct error *e);
void leases_close(struct leases *l); /* takes NULL */

/* The functions below: any thread. ERROR_NOT_FOUND: no such lease is granted. */

/* Record which role the holder has. */
enum error_code leases_attach(struct leases *l, uint64_t lease, const char *role, struct error *e);
/* The holder no longer uses the pool; the lease itself ends with its socket. */
enum error_code leases_detach(struct leases *l, uint64_t lease, struct error *e);
/* For a holder that misbehaves: shut the connection, so that the lease ends as if the holder had
 * gone. */
void leases_end(struct leases *l, uint64_t lease);
/* Calls visit for each worker that has attached under its name. visit must not call in here. */
void leases_visit_workers(struct leases *l,
                          void (*visit)(void *arg, const char *process, pid_t pid,
                                        const struct kv_pool_worker *worker),
                          void *arg);
uint32_t leases_count(struct leases *l);
uint64_t leases_freed(struct leases *l); /* ended since start */

#endif
