/* How a device's memory is shared out, decided before anything is allocated, in this order:
 *
 *     the driver's | dense weights, flags | the worker's scratch | its KV cache | slots for experts
 *
 * The slots have what is asked for, or else what is left; never more than all segments take. The emulated device has
 * slots alone. Later the slots and the KV cache may share anew what there is for both (device_plan_resize). */
#ifndef MOED_MEMD_DEVICE_PLAN_H
#define MOED_MEMD_DEVICE_PLAN_H

#include "base/error.h"
#include "device/link.h"
#include "model/pool_map.h"

#include <stdint.h>

struct device_plan {
    /* what there is, and what is wanted of it */
    uint64_t free_bytes;
    uint64_t unit_bytes; /* memory is had in multiples of it */
    uint64_t driver_bytes, dense_bytes, scratch_bytes;
    uint64_t kv_bytes;       /* the whole KV cache; 0: none */
    uint64_t kv_least_bytes; /* of one request */
    uint64_t asked_bytes; /* for slots; 0: what is left */
    uint64_t slot_bytes, total_segments; /* that there are */
    uint32_t n_segments;                 /* of an expert at most */
    uint64_t n_flags; /* one for each slot that there could ever be; 0: the device has none */
    /* what comes of it */
    struct arena_layout layout; /* of the slots, however many */
    uint64_t room_bytes;        /* for slots and KV cache together */
    uint32_t n_slots;
};

/* Who has no room any more; in the order above. */
enum device_part {
    DEVICE_PART_NONE,
    DEVICE_PART_DRIVER,
    DEVICE_PART_DENSE,
    DEVICE_PART_SCRATCH,
    DEVICE_PART_KV,
    DEVICE_PART_SLOTS
};

/* Sets p->n_slots, at least 1, layout and room_bytes, where all have room. Pure. */
enum device_part device_plan_share(struct device_plan *p);

/* The slots in so many bytes, while serving; the KV cache gets what is left, at most the whole one (device_plan_kv).
 * ERROR_USAGE: not one slot, or what is left is less than one request's KV cache. Pure. */
enum error_code device_plan_resize(const struct device_plan *p, uint64_t bytes, uint32_t *n_slots,
                                   struct error *e);
/* For the KV cache beside so many slots; UINT64_MAX: nothing is shared with it. Pure. */
uint64_t device_plan_kv(const struct device_plan *p, uint32_t n_slots);

struct device_plan_options {
    const struct device_spec *device;
    uint32_t parallel, context; /* the worker's; context 0: its default */
    enum tensor_type kv_type;
    bool reproducible; /* so without BLAS */
};

/* Waits for memory that others are about to leave (device_link_await), where that would make a difference, and logs
 * the plan of a device that is not emulated. map: weights need not be there. ERROR_USAGE: the device is too small, or
 * the arena for a segment; ERROR_MEMORY: others use it at present. Either says what does not fit and what to lower. */
enum error_code device_plan_new(struct device_link *link, const struct pool_map *map,
                                const struct device_plan_options *options, struct device_plan *out,
                                struct error *e);

/* All that can ever be. */
static inline uint32_t device_plan_most_slots(const struct device_plan *p)
{
    return p->total_segments < UINT32_MAX ? (uint32_t)p->total_segments : UINT32_MAX;
}

static inline uint64_t device_plan_slots_bytes(const struct device_plan *p)
{
    return p->n_slots * p->slot_bytes;
}

#endif
