/* How a device's memory is divided, in this order:
 *
 *     other programs | the driver | dense weights, flags | the workers' scratch | their KV caches
 *     | slots
 *
 * The slots get the size that the user sets, otherwise the rest, but never more than all segments
 * take. An emulated device has only slots. Pure. device_plan.h fills in what its users want. */
#ifndef MOED_DEVICE_DEVICE_SHARE_H
#define MOED_DEVICE_DEVICE_SHARE_H

#include "base/error.h"
#include "device/link.h"

#include <stdint.h>

struct device_plan {
    /* what the device has, and what its users want */
    uint64_t free_bytes;
    uint64_t unit_bytes;    /* the device allocates multiples of it */
    uint64_t reserve_bytes; /* stays free for other programs */
    uint64_t driver_bytes, dense_bytes, scratch_bytes;
    uint32_t batch;          /* tokens of prompts, for which the scratch is */
    uint64_t state_bytes;    /* of the scratch, the states of recurrent layers, of all workers */
    uint64_t kv_bytes;       /* the KV cache at the start, of all workers; 0: none */
    uint64_t kv_most_bytes;  /* and with all the memory that a resize may leave it */
    uint64_t kv_least_bytes; /* one request's of each worker */
    uint32_t kv_requests;    /* of a whole context, of each worker, that kv_bytes hold */
    uint32_t kv_most;        /* and that kv_most_bytes hold */
    uint32_t workers;        /* that share the device; 0: one */
    uint64_t asked_bytes;    /* for slots; 0: what is left */
    uint64_t slot_bytes, total_segments; /* of the model */
    uint32_t n_segments;                 /* of an expert at most */
    uint64_t n_flags; /* one for each slot that there could ever be; 0: no flags */
    /* the result */
    struct arena_layout layout; /* of the slots, for any number of them */
    uint64_t capacity_bytes;    /* for slots and KV cache together */
    uint32_t n_slots;
};

/* The first part that does not fit, in the order above. */
enum device_part {
    DEVICE_PART_NONE,
    DEVICE_PART_RESERVE,
    DEVICE_PART_DRIVER,
    DEVICE_PART_DENSE,
    DEVICE_PART_SCRATCH,
    DEVICE_PART_KV,
    DEVICE_PART_SLOTS
};

/* Where everything fits: sets p->n_slots (at least 1), layout and capacity_bytes, and returns
 * DEVICE_PART_NONE. */
enum device_part device_share(struct device_plan *p);

/* The number of slots in `bytes`, while serving. The KV cache gets the rest (device_share_kv).
 * ERROR_USAGE: no slot fits, or the rest is less than one request's KV cache. */
enum error_code device_share_resize(const struct device_plan *p, uint64_t bytes, uint32_t *n_slots,
                                    struct error *e);
/* The bytes that n_slots leave for the KV cache after a resize, at most kv_most_bytes; UINT64_MAX:
 * it shares nothing with the slots. */
uint64_t device_share_kv(const struct device_plan *p, uint32_t n_slots);
/* Each worker's part of that, and of kv_bytes, at the start. */
uint64_t device_share_worker_kv(const struct device_plan *p, uint32_t n_slots);
uint64_t device_share_start_kv(const struct device_plan *p);
/* What a worker allocates: its scratch, and a KV cache of so many bytes (UINT64_MAX: none). */
uint64_t device_share_worker_bytes(const struct device_plan *p, uint64_t kv_bytes);
/* The bytes that must be free for the plan; UINT64_MAX: overflow. */
uint64_t device_share_least_bytes(const struct device_plan *p);

/* As many as the model has segments. */
static inline uint32_t device_share_most_slots(const struct device_plan *p)
{
    return p->total_segments < UINT32_MAX ? (uint32_t)p->total_segments : UINT32_MAX;
}

static inline uint64_t device_share_slots_bytes(const struct device_plan *p)
{
    return p->n_slots * p->slot_bytes;
}

#endif
