/* What a kind of link is to link.c. */
#ifndef MOED_DEVICE_LINK_INTERNAL_H
#define MOED_DEVICE_LINK_INTERNAL_H

#include "device/link.h"

#include <stdatomic.h>

struct device_link_kind {
    void (*free)(struct device_link *l);
    const struct device_module *(*module)(const struct device_link *l);
    void (*facts)(struct device_link *l, struct device_facts *out);
    void (*await)(struct device_link *l, uint64_t bytes, struct device_facts *out);
    /* Sets p->slots to the allocation, p->shared and p->handle. What was set stays p's on failure. */
    enum error_code (*allocate)(struct device_link *l, uint64_t bytes, struct device_piece *p,
                                struct error *e);
    void (*release)(struct device_link *l, struct device_piece *p); /* takes one that has nothing */
    /* flag: becomes value afterwards; NULL: none. *busy_ns: how much longer the link was busy */
    enum error_code (*copy)(struct device_link *l, void *to, const void *from, size_t bytes,
                            uint32_t *flag, uint32_t value, uint64_t *busy_ns, struct error *e);
    void (*rest)(struct device_link *l); /* NULL: it makes no difference */
    /* Numbers of 0, before anything else reads them; where the facts say that there are signals. */
    enum error_code (*clear)(struct device_link *l, void *memory, size_t bytes, struct error *e);
    void (*poison)(struct device_link *l, void *memory, size_t bytes);
    enum error_code (*pin)(struct device_link *l, const void *memory, size_t bytes,
                           const _Atomic bool *stop, struct error *e);
};

/* The first member of each kind's. */
struct device_link {
    const struct device_link_kind *kind;
    struct device_spec spec;
    struct device_arena arena;
    _Atomic uint64_t busy_ns, bytes;
};

enum error_code device_link_emu_new(struct device_link **out, struct error *e);
enum error_code device_link_cuda_new(const struct device_spec *s, struct device_link **out,
                                     struct error *e);

#endif
