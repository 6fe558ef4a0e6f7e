/* The owner's side of a device's memory, whatever the device; see link.h. */
#include "link_internal.h"

#include "base/checked.h"

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
    l->arena.shared.fd = -1;
    *out = l;
    return ERROR_OK;
}

void device_link_free(struct device_link *l)
{
    if (!l)
        return;
    shm_close(&l->arena.shared);
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
    return round_up(flags_offset(dense_bytes) + n_flags * sizeof(uint32_t), DEVICE_ALLOCATION_BYTES);
}

bool device_link_signals(struct device_link *l)
{
    struct device_facts facts;
    device_link_facts(l, &facts);
    return facts.signals;
}

static uint32_t *flag_of(const struct device_link *l, uint32_t slot)
{
    return (uint32_t *)(l->arena.base + l->arena.flags_offset) + slot;
}

enum error_code device_link_allocate(struct device_link *l, uint64_t dense_bytes, uint64_t n_flags,
                                     uint64_t bytes, const struct device_arena **out, struct error *e)
{
    uint64_t slots = device_slots_offset(dense_bytes, n_flags), all;
    if (slots < dense_bytes || !checked_add(slots, bytes, &all) || all > SIZE_MAX / 2)
        return error_set(e, ERROR_LIMIT, "the device's memory is larger than can be mapped");
    enum error_code code = l->kind->allocate(l, all, e);
    l->arena.flags_offset = n_flags ? flags_offset(dense_bytes) : DEVICE_NO_FLAGS;
    l->arena.n_flags = n_flags;
    if (!code && n_flags)
        code = l->kind->clear(l, flag_of(l, 0), n_flags * sizeof(uint32_t), e);
    if (code)
        return code;
    l->arena.dense_bytes = dense_bytes;
    l->arena.slots_offset = slots;
    l->arena.bytes = bytes;
    device_link_poison(l, l->arena.base + slots, bytes);
    *out = &l->arena;
    return ERROR_OK;
}

enum error_code device_link_place_dense(struct device_link *l, const void *from, struct error *e)
{
    uint64_t busy_ns;
    return l->kind->copy(l, l->arena.base, from, l->arena.dense_bytes, NULL, 0, &busy_ns, e);
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

enum error_code device_link_copy_signalled(struct device_link *l, void *to, const void *from, size_t bytes,
                                           uint32_t slot, uint32_t value, struct error *e)
{
    assert(slot < l->arena.n_flags);
    return copy(l, to, from, bytes, flag_of(l, slot), value, e);
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
