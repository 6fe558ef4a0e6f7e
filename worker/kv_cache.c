/* The KV cache; see kv_cache.h. */
#include "kv_cache.h"

#include "base/checked.h"
#include "model/memory_need.h"

#include <inttypes.h>
#include <sys/mman.h>
#include <unistd.h>

enum error_code kv_cache_new(const struct model_params *p, enum tensor_type type, uint32_t n_slots,
                             uint32_t context, struct kv_cache *out, struct error *e)
{
    enum error_code code = kv_type_check(p, type, e);
    if (code)
        return code;
    struct kv_cache c = {.type = type,
                         .n_layers = p->n_layers,
                         .n_slots = n_slots,
                         .context = context,
                         .key_bytes = kv_key_bytes(p, type),
                         .value_bytes = kv_value_bytes(p, type)};
    /* 2^24 tokens of 2^16 bytes: no overflow before the product below */
    c.values_offset = c.value_bytes ? round_up(context * c.key_bytes, 64) : 0;
    c.head_bytes = round_up(context * c.key_bytes, 64) + round_up(context * c.value_bytes, 64);
    c.slot_bytes = p->n_kv_heads * c.head_bytes;
    uint64_t bytes;
    if (!checked_mul((uint64_t)c.n_layers * n_slots, c.slot_bytes, &bytes) || bytes > SIZE_MAX / 2)
        return error_set(e, ERROR_MEMORY, "a context of %" PRIu32 " tokens is too long", context);
    c.bytes = bytes;
    c.memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (c.memory == MAP_FAILED)
        return error_set(e, ERROR_MEMORY,
                         "no memory for a KV cache of %.2f GB (%" PRIu32 " requests of %" PRIu32
                         " tokens): lower --ctx or --parallel, or take a smaller --kv-type",
                         (double)bytes * 1e-9, n_slots, context);
    /* A position's keys and values lie far apart: huge pages would make a request's first tokens take most of its slot. */
    madvise(c.memory, bytes, MADV_NOHUGEPAGE);
    *out = c;
    return ERROR_OK;
}

void kv_cache_free(struct kv_cache *c)
{
    if (c->memory)
        munmap(c->memory, c->bytes);
    c->memory = NULL;
}

uint8_t *kv_cache_keys(const struct kv_cache *c, uint32_t layer, uint32_t slot)
{
    return c->memory + ((size_t)layer * c->n_slots + slot) * c->slot_bytes;
}

uint8_t *kv_cache_values(const struct kv_cache *c, uint32_t layer, uint32_t slot)
{
    return kv_cache_keys(c, layer, slot) + c->values_offset;
}

size_t kv_cache_value_stride(const struct kv_cache *c)
{
    return c->value_bytes ? c->value_bytes : c->key_bytes;
}

void kv_cache_release(struct kv_cache *c, uint32_t slot)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    for (uint32_t layer = 0; layer < c->n_layers; layer++) {
        /* whole pages inside the slot: its neighbours share the edges */
        uintptr_t first = (uintptr_t)kv_cache_keys(c, layer, slot);
        uintptr_t last = first + c->slot_bytes;
        first = (first + page - 1) / page * page;
        last = last / page * page;
        if (last > first)
            madvise((void *)first, last - first, MADV_DONTNEED);
    }
}
