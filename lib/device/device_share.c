/* The arithmetic of a device's memory: parts, slots and the KV cache; see device_share.h. */
#include "device/device_share.h"

#include "base/checked.h"
#include "base/quantity.h"

/* The number of slots in `bytes`, at most the model's segments. */
static uint32_t slots_of(const struct device_plan *p, uint64_t bytes)
{
    uint64_t n = bytes / p->slot_bytes, most = device_share_most_slots(p);
    return (uint32_t)(n < most ? n : most);
}

/* The bytes of n slots, n at least 1; UINT64_MAX: overflow. */
static uint64_t bytes_of(const struct device_plan *p, uint32_t n)
{
    uint64_t bytes;
    if (!checked_mul((uint64_t)n + p->layout.first + p->layout.each, p->slot_bytes, &bytes) ||
        bytes > UINT64_MAX / 2)
        return UINT64_MAX;
    return arena_bytes(p->layout, p->slot_bytes, p->unit_bytes, n);
}

enum device_part device_share(struct device_plan *p)
{
    const struct {
        enum device_part part;
        uint64_t bytes;
    } parts[] = {{DEVICE_PART_RESERVE, p->reserve_bytes},
                 {DEVICE_PART_DRIVER, p->driver_bytes},
                 {DEVICE_PART_DENSE, device_slots_offset(p->dense_bytes, p->n_flags)},
                 {DEVICE_PART_SCRATCH, p->scratch_bytes},
                 {DEVICE_PART_KV, p->kv_bytes}};
    uint64_t left = p->free_bytes;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (parts[i].bytes > left)
            return parts[i].part;
        left -= parts[i].bytes;
    }
    p->layout = arena_layout_for(p->slot_bytes, device_share_most_slots(p), p->unit_bytes);
    uint32_t n = p->asked_bytes ? slots_of(p, p->asked_bytes)
                                : arena_slots_in(p->layout, p->slot_bytes, p->unit_bytes, left,
                                                 device_share_most_slots(p));
    if (n == 0 || bytes_of(p, n) > left)
        return DEVICE_PART_SLOTS;
    p->capacity_bytes = left + p->kv_bytes;
    p->n_slots = n;
    return DEVICE_PART_NONE;
}

uint64_t device_share_kv(const struct device_plan *p, uint32_t n_slots)
{
    uint64_t left = p->capacity_bytes - bytes_of(p, n_slots);
    if (!p->kv_bytes)
        return UINT64_MAX;
    return left < p->kv_most_bytes ? left : p->kv_most_bytes;
}

uint64_t device_share_worker_bytes(const struct device_plan *p, uint64_t kv_bytes)
{
    uint64_t scratch = p->scratch_bytes / (p->workers ? p->workers : 1);
    return kv_bytes == UINT64_MAX ? scratch : scratch + kv_bytes;
}

static uint64_t of_worker(const struct device_plan *p, uint64_t kv)
{
    return kv == UINT64_MAX || p->workers <= 1 ? kv : kv / p->workers;
}

uint64_t device_share_worker_kv(const struct device_plan *p, uint32_t n_slots)
{
    return of_worker(p, device_share_kv(p, n_slots));
}

uint64_t device_share_start_kv(const struct device_plan *p)
{
    return of_worker(p, p->kv_bytes ? p->kv_bytes : UINT64_MAX);
}

enum error_code device_share_resize(const struct device_plan *p, uint64_t bytes, uint32_t *n_slots,
                                    struct error *e)
{
    char asked[24], least[24], most[24];
    uint32_t n = slots_of(p, bytes);
    quantity_format_bytes(bytes, asked);
    quantity_format_bytes(p->slot_bytes, least);
    if (n == 0)
        return error_set(e, ERROR_USAGE, "%s hold no segment of an expert, which has %s", asked,
                         least);
    if (bytes_of(p, n) <= p->capacity_bytes - p->kv_least_bytes) {
        *n_slots = n;
        return ERROR_OK;
    }
    n = arena_slots_in(p->layout, p->slot_bytes, p->unit_bytes,
                       p->capacity_bytes - p->kv_least_bytes, device_share_most_slots(p));
    quantity_format_bytes(n * p->slot_bytes, most);
    return error_set(e, ERROR_USAGE, "%s are more than the device has for experts%s: at most %s",
                     asked, p->kv_bytes ? " next to the KV cache of one request" : "", most);
}

uint64_t device_share_least_bytes(const struct device_plan *p)
{
    uint32_t n = p->asked_bytes ? slots_of(p, p->asked_bytes) : 1;
    const uint64_t parts[] = {device_slots_offset(p->dense_bytes, p->n_flags), p->scratch_bytes,
                              p->kv_bytes, bytes_of(p, n), p->reserve_bytes};
    uint64_t sum = p->driver_bytes;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!checked_add(sum, parts[i], &sum))
            return UINT64_MAX;
    return sum;
}
