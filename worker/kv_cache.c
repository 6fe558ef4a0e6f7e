/* The KV cache; see kv_cache.h. */
#include "kv_cache.h"

#include "base/checked.h"

#include <inttypes.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t slot_values(const struct kv_cache *c)
{
    return (size_t)c->rows * c->context * c->row_values;
}

enum error_code kv_cache_new(const struct model_params *p, uint32_t n_slots, uint32_t context,
                             struct kv_cache *out, struct error *e)
{
    struct kv_cache c = {.n_layers = p->n_layers,
                         .n_slots = n_slots,
                         .context = context,
                         .rows = params_cache_rows(p),
                         .row_values = params_cache_row(p)};
    uint64_t bytes;
    if (!checked_mul((uint64_t)c.n_layers * n_slots, slot_values(&c) * sizeof(float), &bytes) ||
        bytes > SIZE_MAX / 2)
        return error_set(e, ERROR_MEMORY, "a context of %" PRIu32 " tokens is too long", context);
    c.bytes = bytes;
    c.memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (c.memory == MAP_FAILED)
        return error_set(e, ERROR_MEMORY,
                         "no memory for a KV cache of %.2f GB (%" PRIu32 " requests of %" PRIu32
                         " tokens): lower --ctx or --parallel",
                         (double)bytes * 1e-9, n_slots, context);
    *out = c;
    return ERROR_OK;
}

void kv_cache_free(struct kv_cache *c)
{
    if (c->memory)
        munmap(c->memory, c->bytes);
    c->memory = NULL;
}

static float *slot_start(const struct kv_cache *c, uint32_t layer, uint32_t slot)
{
    return c->memory + ((size_t)layer * c->n_slots + slot) * slot_values(c);
}

float *kv_cache_keys(const struct kv_cache *c, uint32_t layer, uint32_t slot)
{
    return slot_start(c, layer, slot);
}

float *kv_cache_values(const struct kv_cache *c, uint32_t layer, uint32_t slot)
{
    return slot_start(c, layer, slot) + (size_t)(c->rows - 1) * c->context * c->row_values;
}

void kv_cache_release(struct kv_cache *c, uint32_t slot)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    for (uint32_t layer = 0; layer < c->n_layers; layer++) {
        /* whole pages inside the slot: its neighbours share the edges */
        uintptr_t first = (uintptr_t)slot_start(c, layer, slot);
        uintptr_t last = first + slot_values(c) * sizeof(float);
        first = (first + page - 1) / page * page;
        last = last / page * page;
        if (last > first)
            madvise((void *)first, last - first, MADV_DONTNEED);
    }
}
