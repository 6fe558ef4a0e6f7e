/* The interface of a kind of link (emulated, CUDA) to link.c. */
#ifndef MOED_DEVICE_LINK_INTERNAL_H
#define MOED_DEVICE_LINK_INTERNAL_H

#include "device/link.h"

#include <stdatomic.h>

struct device_link_kind {
    void (*free)(struct device_link *l);
    const struct device_module *(*module)(const struct device_link *l);
    void (*facts)(struct device_link *l, struct device_facts *out);
    void (*await)(struct device_link *l, uint64_t bytes, struct device_facts *out);
    /* Sets p->slots to the allocation, p->shared and p->handle. On failure the caller releases what
     * was set. */
    enum error_code (*allocate)(struct device_link *l, uint64_t bytes, struct device_extent *p,
                                struct error *e);
    void (*release)(struct device_link *l, struct device_extent *p); /* takes an empty one */
    /* Memory that nobody uses, whole units. NULL: the device has none to hold. */
    enum error_code (*hold)(struct device_link *l, uint64_t bytes, void **out, struct error *e);
    void (*let_go)(struct device_link *l, void *held);
    /* Begins the copy at this place of the queue's ring, with the writes of its flags behind it. */
    enum error_code (*queue)(struct device_link *l, uint32_t at, struct error *e);
    uint64_t (*copying_ns)(const struct device_link *l, size_t bytes);
    /* Waits for the copy at this place of the ring, the oldest. */
    enum error_code (*collect)(struct device_link *l, uint32_t at, struct error *e);
    /* Sets flags to 0 before anything reads them; called where the facts say `signals`. */
    enum error_code (*clear)(struct device_link *l, void *memory, size_t bytes, struct error *e);
    void (*poison)(struct device_link *l, void *memory, size_t bytes);
    enum error_code (*pin)(struct device_link *l, const void *memory, size_t bytes,
                           const _Atomic bool *stop, struct error *e);
};

/* A copy that was queued and not collected. */
struct link_copy {
    struct device_copy copy;
    uint64_t queued_ns;
    /* Set by `queue` of the kind: when the copy will have been made, and how much earlier the owner
     * should collect it. */
    uint64_t due_ns, early_ns;
};

/* The first member of each kind's own struct. */
struct device_link {
    const struct device_link_kind *kind;
    struct device_spec spec;
    void (*report)(void *arg, const char *text); /* NULL: nobody is notified of waits */
    void *report_arg;
    struct device_arena arena;
    void *held[DEVICE_LINK_HELD];
    uint32_t n_held;
    uint64_t held_bytes; /* of each */
    _Atomic uint64_t busy_ns, bytes;
    /* The queue: n_queued copies from `oldest` on. The owner's thread's alone. */
    struct link_copy queue[DEVICE_LINK_QUEUE];
    uint32_t oldest, n_queued;
    uint64_t done_ns; /* when the last copy was collected; 0: none was, or the link has rested */
};

/* The copy queued last; not collected yet. NULL: none. */
static inline const struct link_copy *device_link_newest(const struct device_link *l)
{
    return l->n_queued ? &l->queue[(l->oldest + l->n_queued - 1) % DEVICE_LINK_QUEUE] : NULL;
}

/* The beginning of the first extent: dense weights, then flags. */
static inline uint8_t *device_link_base(const struct device_link *l)
{
    return l->arena.extents[0].slots - l->arena.slots_offset;
}

/* The device address of a slot's flag. */
static inline uint32_t *device_link_flag(const struct device_link *l, uint32_t slot)
{
    return (uint32_t *)(device_link_base(l) + l->arena.flags_offset) + slot;
}

enum error_code device_link_emu_new(struct device_link **out, struct error *e);
enum error_code device_link_cuda_new(const struct device_spec *s, struct device_link **out,
                                     struct error *e);

#endif
