/* How a worker hands a region of shared memory to a daemon over a lease connection:
 *
 *     worker                                                daemon
 *     kind           value[0] bytes of the region,   --->   checks, maps
 *                    value[1] generation of the pool,
 *                    one descriptor, the region's
 *                                                    <---   kind + LEASE_OFFER_ACCEPTED, or
 *                                                           kind + LEASE_OFFER_REFUSED with
 *                                                           value[0] an enum error_code
 *
 * EXPERT_OFFER (expert_channel.h) and CACHE_OFFER (cache_channel.h) are such kinds. */
#ifndef MOED_IPC_LEASE_OFFER_H
#define MOED_IPC_LEASE_OFFER_H

#include "ipc/lease.h"
#include "ipc/shm.h"

enum { LEASE_OFFER_ACCEPTED = 1, LEASE_OFFER_REFUSED = 2 };

/* Worker. */
enum error_code lease_offer_send(int fd, uint32_t kind, const struct shm *region,
                                 uint64_t generation, struct error *e);
/* Worker: the answer. ERROR_PROTOCOL where it is not "accepted". */
enum error_code lease_offer_answered(int fd, uint32_t kind, int timeout_ms, struct error *e);

/* Daemon: receive an offer of this kind, of the pool's generation (ERROR_VERSION for another).
 * *region is owned by the caller; shm_map takes it with *bytes. An offer that is no good is refused
 * here. Any error: the connection is of no more use; ERROR_UNAVAILABLE: the worker has gone. */
enum error_code lease_offer_receive(int fd, uint32_t kind, uint64_t generation, int timeout_ms,
                                    int *region, uint64_t *bytes, struct error *e);
/* Daemon: accept (ERROR_OK) or refuse. */
enum error_code lease_offer_answer(int fd, uint32_t kind, enum error_code answer, struct error *e);

#endif
