/* Attaching to memd: the lease (death notice and file descriptors), the mapped pool and residency table, and
 * the registration on the control plane. Used by the worker and the CPU executor. */
#ifndef MOED_MEMORY_MEMORY_CLIENT_H
#define MOED_MEMORY_MEMORY_CLIENT_H

#include "base/error.h"
#include "device/module.h"
#include "ipc/host_tier.h"
#include "ipc/residency.h"
#include "ipc/shm.h"
#include "model/pool_map.h"

/* lease_message.kind from memd on a new lease: value[0] the lease's number, value[1] the pool generation,
 * value[2] pool bytes, value[3] residency bytes, value[4] bytes of the slots in the arena's first piece, value[5] of
 * the host tier, value[6] of what predictors know, value[7] of the dense weights' copy in the device's memory, value[8] where the slots
 * begin there, value[9] where their flags do (DEVICE_NO_FLAGS: there are none); descriptors: pool, residency and, where there is one,
 * the arena's first piece, and likewise the tier and
 * what predictors know (all read-only). GRANT_DEVICE: as GRANT, but the arena is memory of a device, without a descriptor; bytes
 * is the first piece's struct device_handle. The other pieces are named in the residency table. Only there is a copy
 * of the dense weights. REFUSED: value[0] an enum error_code. */
enum { MEMORY_GRANT = 1, MEMORY_REFUSED, MEMORY_GRANT_DEVICE };

struct memory_client {
    int lease_fd; /* readable or closed: memd has gone */
    uint64_t lease;
    uint64_t generation;
    struct shm pool, residency_shm;
    /* The arena's first piece; worker/device_cache.h follows the others. */
    uint64_t arena_bytes; /* of its slots; 0: the device has no memory of its own */
    struct shm arena;     /* base NULL: there is none, or it is the device's, of this name: */
    struct device_handle arena_handle;
    uint64_t dense_bytes;  /* at its beginning, a copy of pool_map_dense(&map); 0: not there */
    uint64_t slots_offset; /* in it, of the slots; 0 where there is neither a dense part nor flags */
    uint64_t flags_offset; /* in it, uint32_t [slots], behind the dense part; DEVICE_NO_FLAGS: there are none */
    struct shm tier_shm;    /* base NULL: all experts are in the pool */
    struct shm learned_shm; /* a file of `moed train`, checked by memd; base NULL: there is none */
    struct pool_map map;
    struct residency_table residency;
    struct host_tier tier; /* slots NULL: likewise */
};

/* role: "worker", "cpuexec", "tool". Waits for memd up to timeout_ms. */
enum error_code memory_client_attach(const char *run, const char *role, int timeout_ms,
                                     struct memory_client *out, struct error *e);
void memory_client_detach(struct memory_client *c);

#endif
