/* Attaching to memd: the lease (which reports memd's death and carries file descriptors), the
 * mapped pool and residency table, and the registration on the control plane. For the worker and
 * the CPU executor. */
#ifndef MOED_MEMORY_MEMORY_CLIENT_H
#define MOED_MEMORY_MEMORY_CLIENT_H

#include "base/error.h"
#include "device/module.h"
#include "ipc/host_tier.h"
#include "ipc/residency.h"
#include "ipc/shm.h"
#include "model/pool_map.h"

/* lease_message.kind on a new lease. The client says who it is (MEMORY_ASK), memd answers.
 *
 *     ASK            value[0]  layouts_number()              value[1]  enum memory_role
 *                    value[2]  the device's number among the deployment's (0: the first)
 *     GRANT          value[0]  the lease's number            value[5]  bytes of the host tier
 *                    value[1]  generation of the pool        value[6]  bytes of trained predictors
 *                    value[2]  bytes of the pool             value[7]  bytes of the dense weights'
 *                    value[3]  bytes of the residency table            copy in the device's memory
 *                    value[4]  bytes of the slots in the     value[8]  where the slots begin there
 *                              arena's first extent          value[9]  where their flags begin;
 *                                                                      DEVICE_NO_FLAGS: no flags
 *                                                             value[10] bytes of the KV pool
 *                                                             value[11] bytes of the index of
 *                                                                       conversations in a file
 *                                                             value[12] the worker's number in the
 *                                                                       KV pool
 *                    read-only descriptors, those that exist, in this order: pool, residency table,
 *                    the arena's first extent, host tier, trained predictors; for a worker also
 *                    the KV pool's, which may be mapped writable; the index of conversations, and
 *                    their file
 *     GRANT_DEVICE   the same, but the arena is a device's memory, without a descriptor; bytes is
 *                    the first extent's struct device_handle. Only here is a copy of the dense
 *                    weights.
 *     REFUSED        value[0]  enum error_code               value[1]  memd's layouts_number()
 *
 * The residency table names the arena's other extents. */
enum { MEMORY_GRANT = 1, MEMORY_REFUSED, MEMORY_GRANT_DEVICE, MEMORY_ASK = 0x100 };
enum memory_role { MEMORY_WORKER = 1, MEMORY_CPUEXEC, MEMORY_TOOL };

struct memory_client {
    int lease_fd; /* becomes readable when memd has gone */
    uint64_t lease;
    uint64_t generation;
    struct shm pool, residency_shm;
    /* The arena's first extent; worker/links/device_cache.h follows the others. */
    uint64_t arena_bytes; /* of its slots; 0: the device has no memory of its own */
    struct shm arena;     /* base NULL: none, or the device's, by this handle: */
    struct device_handle arena_handle;
    uint64_t dense_bytes;  /* at its beginning, a copy of pool_map_dense(&map); 0: no copy */
    uint64_t slots_offset; /* in it; 0 where there is neither a dense part nor flags */
    uint64_t
        flags_offset;    /* in it, uint32_t [slots], after the dense part; DEVICE_NO_FLAGS: none */
    struct shm tier_shm; /* base NULL: all experts are in the pool */
    struct shm predictors_shm; /* a file of `moed train` that memd has checked; base NULL: none */
    struct shm kv_shm;         /* of the KV pool; base NULL: not the worker's client */
    uint32_t kv_worker;        /* this worker's number in it */
    struct shm kv_index_shm;   /* ipc/kv_store.h; base NULL: none, or not the worker's client */
    int kv_file_fd;            /* read-only; -1: none */
    struct pool_map map;
    struct residency_table residency;
    struct host_tier tier; /* slots NULL: all experts are in the pool */
};

/* device: its index among the deployment's. process: the name that memd's log has. Waits up to
 * timeout_ms for memd. ERROR_VERSION: memd is of another build, whose layouts differ. */
enum error_code memory_client_attach(const char *run, const char *process, enum memory_role role,
                                     unsigned device, int timeout_ms, struct memory_client *out,
                                     struct error *e);
void memory_client_detach(struct memory_client *c);

#endif
