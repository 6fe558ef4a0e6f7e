/* The pages of a device's KV cache (struct device_kv of device/module.h): a pool that running requests reserve from.
 *
 * Pages lie in chunks, each an allocation of the device's memory, so that the pool can become smaller and larger while requests
 * run. One that is to be smaller gives chunks back: those of which nothing is reserved at once, then those with the least, of
 * which nothing more is reserved, as their pages are released.
 *
 * One thread, the engine's. */
#ifndef MOED_WORKER_KV_PAGES_H
#define MOED_WORKER_KV_PAGES_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct cuda_device;
struct kv_pages;

struct kv_pages_use {
    uint32_t reserved, free; /* free: without those of chunks that go */
    uint32_t most;           /* that there may be, as things are */
    uint64_t bytes;          /* of all that are there, or may come as things are */
};

/* Borrows cuda. n pages of page_bytes (a multiple of 16) at most, of which as many as fit in `bytes` are allocated. ERROR_MEMORY:
 * here, or on the device. */
enum error_code kv_pages_new(struct cuda_device *cuda, uint64_t page_bytes, uint32_t n, uint64_t bytes,
                             struct kv_pages **out, struct error *e);
/* Nothing on the device reads them any more. Takes NULL. */
void kv_pages_free(struct kv_pages *p);

/* The addresses of n pages, in no order; what they hold is not defined. False: there are not so many free now. */
bool kv_pages_reserve(struct kv_pages *p, uint32_t n, uint64_t *out);
void kv_pages_release(struct kv_pages *p, const uint64_t *pages, uint32_t n);

/* At most so many bytes, as soon as may be; up to that, where the device has them. Chunks may lie elsewhere afterwards, reserved
 * pages stay. */
void kv_pages_resize(struct kv_pages *p, uint64_t bytes);
struct kv_pages_use kv_pages_use(const struct kv_pages *p);

#endif
