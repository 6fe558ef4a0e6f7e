/* The owner's side of the memory of a device of any kind; see link.h. */
#include "link_internal.h"

#include "base/checked.h"
#include "base/clock.h"
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

/* All but the first n held allocations. */
static void let_go(struct device_link *l, uint32_t n)
{
    while (l->n_held > n)
        l->kind->let_go(l, l->held[--l->n_held]);
}

/* Whole units. The last one is left where it is not free: what a worker leaves need not have it. */
static enum error_code hold_one(struct device_link *l, uint64_t bytes, void **out, struct error *e)
{
    uint64_t rest = bytes % DEVICE_ALLOCATION_BYTES;
    enum error_code code = l->kind->hold(l, round_up(bytes, DEVICE_ALLOCATION_BYTES), out, e);
    if (code == ERROR_MEMORY && rest && rest < bytes)
        code = l->kind->hold(l, bytes - rest, out, e);
    return code;
}

enum error_code device_link_hold(struct device_link *l, uint32_t n, uint64_t bytes, struct error *e)
{
    enum error_code code = ERROR_OK;
    n = n < DEVICE_LINK_HELD ? n : DEVICE_LINK_HELD;
    if (!l->kind->hold)
        return ERROR_OK;
    let_go(l, l->held_bytes == bytes ? n : 0);
    l->held_bytes = bytes;
    while (l->n_held < n && !code) {
        code = hold_one(l, bytes, &l->held[l->n_held], e);
        l->n_held += !code;
    }
    return code;
}

void device_link_free(struct device_link *l)
{
    if (!l)
        return;
    struct device_arena *a = &l->arena;
    let_go(l, 0);
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

void device_link_report(struct device_link *l, void (*report)(void *arg, const char *text),
                        void *arg)
{
    l->report = report;
    l->report_arg = arg;
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
        code = l->kind->clear(l, device_link_flag(l, 0), n_flags * sizeof(uint32_t), e);
    if (!code)
        *out = a;
    return code;
}

enum error_code device_link_place_dense(struct device_link *l, const void *from, struct error *e)
{
    uint64_t busy_ns = atomic_load(&l->busy_ns), bytes = atomic_load(&l->bytes);
    enum error_code code = device_link_copy(l, device_link_base(l), from, l->arena.dense_bytes, e);
    atomic_store(&l->busy_ns, busy_ns); /* no traffic of experts */
    atomic_store(&l->bytes, bytes);
    return code;
}

/* ---- The queue ---- */

enum error_code device_link_queue(struct device_link *l, const struct device_copy *copy,
                                  struct error *e)
{
    uint32_t at = (l->oldest + l->n_queued) % DEVICE_LINK_QUEUE;
    assert(l->n_queued < DEVICE_LINK_QUEUE && copy->n_signals <= DEVICE_COPY_SIGNALS);
    for (uint32_t i = 0; i < copy->n_signals; i++)
        assert(copy->signals[i].slot < l->arena.n_flags);
    l->queue[at] = (struct link_copy){.copy = *copy, .queued_ns = clock_ns()};
    enum error_code code = l->kind->queue(l, at, e);
    if (!code)
        l->n_queued++;
    return code;
}

uint32_t device_link_queued(const struct device_link *l)
{
    return l->n_queued;
}

static uint64_t until(uint64_t ns)
{
    uint64_t now = clock_ns();
    return ns > now ? ns - now : 0;
}

uint64_t device_link_left_ns(const struct device_link *l)
{
    const struct link_copy *oldest = &l->queue[l->oldest];
    return l->n_queued ? until(oldest->due_ns - oldest->early_ns) : 0;
}

uint64_t device_link_all_left_ns(const struct device_link *l)
{
    const struct link_copy *newest = device_link_newest(l);
    return newest ? until(newest->due_ns) : 0;
}

uint64_t device_link_copying_ns(const struct device_link *l, size_t bytes)
{
    return l->kind->copying_ns(l, bytes);
}

enum error_code device_link_collect(struct device_link *l, struct error *e)
{
    const struct link_copy *oldest = &l->queue[l->oldest];
    assert(l->n_queued);
    enum error_code code = l->kind->collect(l, l->oldest, e);
    if (code)
        return code;
    /* Consecutive copies make the link busy without a gap. */
    uint64_t now = clock_ns(), since = l->done_ns ? l->done_ns : oldest->queued_ns;
    atomic_fetch_add_explicit(&l->busy_ns, now - since, memory_order_relaxed);
    atomic_fetch_add_explicit(&l->bytes, oldest->copy.bytes, memory_order_relaxed);
    l->done_ns = now;
    l->oldest = (l->oldest + 1) % DEVICE_LINK_QUEUE;
    l->n_queued--;
    return ERROR_OK;
}

enum error_code device_link_copy(struct device_link *l, void *to, const void *from, size_t bytes,
                                 struct error *e)
{
    struct device_copy copy = {.to = to, .from = from, .bytes = bytes};
    enum error_code code = device_link_queue(l, &copy, e);
    return code ? code : device_link_collect(l, e);
}

void device_link_rest(struct device_link *l)
{
    l->done_ns = 0;
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
