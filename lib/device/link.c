/* The owner's side of the memory of a device of any kind; see link.h. */
#include "link_internal.h"

#include "base/checked.h"
#include "ipc/residency.h"

_Static_assert((int)RESIDENCY_HANDLE_BYTES == (int)DEVICE_HANDLE_BYTES,
               "the residency table holds the handles of extents");

#include <assert.h>

#define FLAGS_ALIGN 256u

enum error_code device_link_new(const struct device_spec *s, struct device_link **out,
                                struct error *e)
{
    struct device_link *l = NULL;
    enum error_code code = ERROR_OK;
    if (s->kind == DEVICE_HOST)
        return error_set(e, ERROR_USAGE, "this device has no link");
    code = s->kind == DEVICE_EMU ? device_link_emu_new(&l, e) : device_link_cuda_new(s, &l, e);
    if (code)
        return code;
    l->spec = *s;
    *out = l;
    return ERROR_OK;
}

void device_link_free(struct device_link *l)
{
    if (!l)
        return;
    struct device_arena *a = &l->arena;
    if (a->n_extents)
        a->extents[0].slots -= a->slots_offset;
    for (uint32_t i = 0; i < a->n_extents; i++)
        l->kind->release(l, &a->extents[i]);
    l->kind->free(l);
}

const struct device_module *device_link_module(const struct device_link *l)
{
    return l->kind->module(l);
}

void device_link_facts(struct device_link *l, struct device_facts *out)
{
    l->kind->facts(l, out);
}

void device_link_await(struct device_link *l, uint64_t bytes, struct device_facts *out)
{
    l->kind->await(l, bytes, out);
}

static uint64_t flags_offset(uint64_t dense_bytes)
{
    return round_up(dense_bytes, FLAGS_ALIGN);
}

uint64_t device_slots_offset(uint64_t dense_bytes, uint64_t n_flags)
{
    if (!n_flags)
        return round_up(dense_bytes, DEVICE_ALLOCATION_BYTES);
    return round_up(flags_offset(dense_bytes) + n_flags * sizeof(uint32_t),
                    DEVICE_ALLOCATION_BYTES);
}

bool device_link_signals(struct device_link *l)
{
    struct device_facts facts;
    device_link_facts(l, &facts);
    return facts.signals;
}

/* The beginning of the first extent: dense weights, then flags. */
static uint8_t *base_of(const struct device_link *l)
{
    return l->arena.extents[0].slots - l->arena.slots_offset;
}

static uint32_t *flag_of(const struct device_link *l, uint32_t slot)
{
    return (uint32_t *)(base_of(l) + l->arena.flags_offset) + slot;
}

/* Adds an extent with `before` bytes before its slots. */
static enum error_code add_extent(struct device_link *l, uint64_t before, uint32_t n_slots,
                                  struct error *e)
{
    struct device_arena *a = &l->arena;
    struct device_extent p = {.n_slots = n_slots, .shared.fd = -1};
    uint64_t slots, all;
    if (!checked_mul(n_slots, a->slot_bytes, &slots) || !checked_add(before, slots, &all) ||
        all > SIZE_MAX / 2)
        return error_set(e, ERROR_LIMIT, "the device's memory is larger than can be mapped");
    enum error_code code = l->kind->allocate(l, all, &p, e);
    if (code) {
        l->kind->release(l, &p);
        return code;
    }
    p.slots += before;
    for (uint32_t i = 0; i < n_slots; i++)
        device_link_poison(l, p.slots + i * a->slot_bytes, a->slot_bytes);
    a->extents[a->n_extents++] = p;
    return ERROR_OK;
}

enum error_code device_link_add_extent(struct device_link *l, uint32_t n_slots, struct error *e)
{
    return add_extent(l, 0, n_slots, e);
}

void device_link_drop_extent(struct device_link *l)
{
    struct device_arena *a = &l->arena;
    l->kind->release(l, &a->extents[--a->n_extents]);
}

enum error_code device_link_allocate(struct device_link *l, uint64_t dense_bytes, uint64_t n_flags,
                                     uint64_t slot_bytes, struct arena_layout layout,
                                     uint32_t n_slots, const struct device_arena **out,
                                     struct error *e)
{
    struct device_arena *a = &l->arena;
    uint64_t offset = device_slots_offset(dense_bytes, n_flags);
    if (offset < dense_bytes)
        return error_set(e, ERROR_LIMIT, "the device's memory is larger than can be mapped");
    a->dense_bytes = dense_bytes;
    a->slots_offset = offset;
    a->flags_offset = n_flags ? flags_offset(dense_bytes) : DEVICE_NO_FLAGS;
    a->n_flags = n_flags;
    a->slot_bytes = slot_bytes;
    a->layout = layout;
    enum error_code code = ERROR_OK;
    for (uint32_t i = 0; !code && i < arena_extents(layout, n_slots); i++)
        code = add_extent(l, i ? 0 : offset, arena_extent_slots(layout, i, n_slots), e);
    if (!code && n_flags)
        code = l->kind->clear(l, flag_of(l, 0), n_flags * sizeof(uint32_t), e);
    if (!code)
        *out = a;
    return code;
}

enum error_code device_link_place_dense(struct device_link *l, const void *from, struct error *e)
{
    uint64_t busy_ns;
    return l->kind->copy(l, base_of(l), from, l->arena.dense_bytes, NULL, 0, &busy_ns, e);
}

static enum error_code copy(struct device_link *l, void *to, const void *from, size_t bytes,
                            uint32_t *flag, uint32_t value, struct error *e)
{
    uint64_t busy_ns = 0;
    enum error_code code = l->kind->copy(l, to, from, bytes, flag, value, &busy_ns, e);
    if (code)
        return code;
    atomic_fetch_add_explicit(&l->busy_ns, busy_ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&l->bytes, bytes, memory_order_relaxed);
    return ERROR_OK;
}

enum error_code device_link_copy(struct device_link *l, void *to, const void *from, size_t bytes,
                                 struct error *e)
{
    return copy(l, to, from, bytes, NULL, 0, e);
}

enum error_code device_link_copy_signalled(struct device_link *l, void *to, const void *from,
                                           size_t bytes, uint32_t slot, uint32_t value,
                                           struct error *e)
{
    assert(slot < l->arena.n_flags);
    return copy(l, to, from, bytes, flag_of(l, slot), value, e);
}

void device_link_rest(struct device_link *l)
{
    if (l->kind->rest)
        l->kind->rest(l);
}

void device_link_poison(struct device_link *l, void *memory, size_t bytes)
{
    l->kind->poison(l, memory, bytes);
}

enum error_code device_link_pin(struct device_link *l, const void *memory, size_t bytes,
                                const _Atomic bool *stop, struct error *e)
{
    return l->kind->pin(l, memory, bytes, stop, e);
}

uint64_t device_link_busy_ns(const struct device_link *l)
{
    return atomic_load_explicit(&l->busy_ns, memory_order_relaxed);
}

uint64_t device_link_bytes(const struct device_link *l)
{
    return atomic_load_explicit(&l->bytes, memory_order_relaxed);
}
