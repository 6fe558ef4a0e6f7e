/* memd's leases: who holds the pool, known by a socket whose closing the kernel reports. */
#ifndef MOED_MEMD_LEASES_H
#define MOED_MEMD_LEASES_H

#include "base/error.h"
#include "cache.h"
#include "ipc/shm.h"
#include "tier.h"

#include <stdint.h>
#include <sys/types.h>

struct leases;

/* What is lent, all borrowed. cache: the device's memory; NULL: it has none. tier: NULL: all experts are in the pool. */
struct lent {
    const struct shm *pool, *residency;
    struct cache *cache;
    struct tier *tier;
    const struct shm *learned; /* NULL: nothing was trained */
    uint64_t generation;
};

/* Listens on RUN/memd.lease; grants what is lent to every process of this user. A holder that offers a cache channel
 * is made known to the cache and the tier, and forgotten there when it goes. */
enum error_code leases_open(const char *run, const struct lent *lent, struct leases **out,
                            struct error *e);
void leases_close(struct leases *l); /* takes NULL */

/* Name the holder of a lease (ERROR_NOT_FOUND for a number that is not granted). Any thread. */
enum error_code leases_attach(struct leases *l, uint64_t lease, const char *role, struct error *e);
/* The holder no longer uses the pool; the lease itself ends with its socket. */
enum error_code leases_detach(struct leases *l, uint64_t lease, struct error *e);
/* Its holder misbehaves: the connection is shut, and the lease ends as if the holder had gone. Any thread. */
void leases_end(struct leases *l, uint64_t lease);
uint32_t leases_count(struct leases *l);
uint64_t leases_freed(struct leases *l); /* of processes that died or left, since start */

#endif
