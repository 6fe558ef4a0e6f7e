/* The pool of pages of a device's KV cache (struct device_kv of device/module.h). Running requests
 * reserve pages from it.
 *
 * Pages lie in chunks, each an allocation of the device's memory, so the pool can shrink and grow
 * while requests run. To shrink, the pool releases chunks without reserved pages at once. Then it
 * chooses the chunks with the fewest reserved pages, reserves nothing more in them, and releases
 * each when its last page is released.
 *
 * Threads: only the engine's. */
#ifndef MOED_WORKER_FORWARD_KV_PAGES_H
#define MOED_WORKER_FORWARD_KV_PAGES_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct cuda_device;
struct kv_pages;

struct kv_pages_use {
    uint32_t reserved, free; /* pages; free: without chunks that are to be released */
    uint32_t most;           /* pages that the pool may have */
    uint64_t bytes;          /* of the pages that it has, or may have if that is more */
    bool lacks_memory;       /* the device had none for all pages; kv_pages_resize tries again */
};

/* Borrows cuda. A pool of at most n pages of page_bytes (a multiple of 16); as many as fit into
 * `bytes` are allocated now. ERROR_MEMORY: of the host or of the device. */
enum error_code kv_pages_new(struct cuda_device *cuda, uint64_t page_bytes, uint32_t n,
                             uint64_t bytes, struct kv_pages **out, struct error *e);
/* No queued operation may read the pages. Takes NULL. */
void kv_pages_free(struct kv_pages *p);

/* Reserves n pages and writes their addresses to out, in no order; their content is undefined.
 * False: fewer are free now; nothing is reserved. */
bool kv_pages_reserve(struct kv_pages *p, uint32_t n, uint64_t *out);
void kv_pages_release(struct kv_pages *p, const uint64_t *pages, uint32_t n);

/* Sets the size of the pool. It shrinks as reserved pages are released, and grows where the device
 * has the memory. Reserved pages stay where they are. */
void kv_pages_resize(struct kv_pages *p, uint64_t bytes);
struct kv_pages_use kv_pages_use(const struct kv_pages *p);

#endif
