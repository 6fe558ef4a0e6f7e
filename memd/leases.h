/* memd's leases: who holds the pool, known by a socket whose closing the kernel reports. */
#ifndef MOED_MEMD_LEASES_H
#define MOED_MEMD_LEASES_H

#include "base/error.h"
#include "ipc/shm.h"

#include <stdint.h>
#include <sys/types.h>

struct leases;

/* Listens on RUN/memd.lease; grants pool and residency (borrowed) to every process of this user. */
enum error_code leases_open(const char *run, const struct shm *pool, const struct shm *residency,
                            uint64_t generation, struct leases **out, struct error *e);
void leases_close(struct leases *l); /* takes NULL */

/* Name the holder of a lease (ERROR_NOT_FOUND for a number that is not granted). Any thread. */
enum error_code leases_attach(struct leases *l, uint64_t lease, const char *role, struct error *e);
/* The holder no longer uses the pool; the lease itself ends with its socket. */
enum error_code leases_detach(struct leases *l, uint64_t lease, struct error *e);
uint32_t leases_count(struct leases *l);
uint64_t leases_freed(struct leases *l); /* of processes that died or left, since start */

#endif
