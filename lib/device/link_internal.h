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
    /* Sets *flag to value after the copy; NULL: no flag. *busy_ns: added time that the link was
     * busy */
    enum error_code (*copy)(struct device_link *l, void *to, const void *from, size_t bytes,
                            uint32_t *flag, uint32_t value, uint64_t *busy_ns, struct error *e);
    void (*rest)(struct device_link *l); /* NULL: nothing to do */
    /* Sets flags to 0 before anything reads them; called where the facts say `signals`. */
    enum error_code (*clear)(struct device_link *l, void *memory, size_t bytes, struct error *e);
    void (*poison)(struct device_link *l, void *memory, size_t bytes);
    enum error_code (*pin)(struct device_link *l, const void *memory, size_t bytes,
                           const _Atomic bool *stop, struct error *e);
};

/* The first member of each kind's own struct. */
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
