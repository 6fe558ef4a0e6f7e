/* Fuzz target of attaching to shared memory that a peer wrote: each kind of region, well formed but
 * for the changes of the input: pieces of offset (2 bytes), length (1 byte), bytes. What attaches
 * is then walked through as its users do.
 *
 * The first byte chooses the kind. */
#include "ipc/host_tier.h"
#include "ipc/kv_pool.h"
#include "ipc/kv_store.h"
#include "ipc/residency.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    LAYERS = 2,
    EXPERTS = 3,
    SEGMENTS = 2,
    SLOT_BYTES = 64,
    SLOTS = 4,
    PAGES = 3,
    BYTES = 1 << 16
};

static _Alignas(4096) uint8_t memory[BYTES];

static void require(bool holds)
{
    if (!holds)
        abort();
}

/* The parts that a table points at lie in the region. */
static void inside(const void *at, uint64_t bytes, size_t region)
{
    const uint8_t *p = at;
    require(p >= memory && bytes <= region && (uint64_t)(p - memory) <= region - bytes);
}

static void change(size_t bytes, const uint8_t *data, size_t size)
{
    while (size >= 3) {
        size_t at = (size_t)data[0] | (size_t)data[1] << 8, n = data[2];
        data += 3;
        size -= 3;
        n = n < size ? n : size;
        for (size_t i = 0; i < n && at + i < bytes; i++)
            memory[at + i] = data[i];
        data += n;
        size -= n;
    }
}

static void residency(const uint8_t *data, size_t size)
{
    struct residency_table t;
    size_t bytes = residency_bytes(LAYERS, EXPERTS, SEGMENTS);
    residency_init(memory, LAYERS, EXPERTS, SEGMENTS, SLOT_BYTES, SLOTS, 1);
    change(bytes, data, size);
    if (residency_attach(&t, memory, bytes, NULL))
        return;
    uint64_t experts = (uint64_t)t.n_layers * t.n_experts;
    inside(t.words, experts * sizeof *t.words, bytes);
    inside(t.arriving, experts * t.n_segments * sizeof *t.arriving, bytes);
    inside(t.slots, experts * t.n_segments * sizeof *t.slots, bytes);
    for (uint32_t layer = 0; layer < t.n_layers; layer++)
        for (uint32_t expert = 0; expert < t.n_experts; expert++)
            residency_read(&t, layer, expert);
}

static void tier(const uint8_t *data, size_t size)
{
    struct host_tier t;
    size_t bytes = host_tier_bytes(LAYERS, EXPERTS, SLOT_BYTES, SLOTS);
    host_tier_init(memory, LAYERS, EXPERTS, SLOT_BYTES, SLOTS, 1);
    change(bytes, data, size);
    if (host_tier_attach(&t, memory, bytes, NULL))
        return;
    for (uint32_t slot = 0; slot < t.n_slots; slot++)
        inside(host_tier_slot(&t, slot), t.slot_bytes, bytes);
    for (uint32_t layer = 0; layer < t.n_layers; layer++)
        for (uint32_t expert = 0; expert < t.n_experts; expert++)
            host_tier_read(&t, layer, expert);
}

static void pool(const uint8_t *data, size_t size)
{
    struct kv_pool p;
    size_t bytes = (size_t)kv_pool_bytes(PAGES, KV_POOL_ALIGN);
    require(bytes <= BYTES);
    kv_pool_init(memory, PAGES, KV_POOL_ALIGN, 1);
    change(bytes, data, size);
    if (kv_pool_attach(&p, memory, bytes, NULL))
        return;
    inside(p.records, p.n_pages * sizeof *p.records, bytes);
    for (uint32_t page = 0; page < p.n_pages; page++)
        inside(kv_pool_page(&p, page), p.page_bytes, bytes);
    struct kv_pool_use use = kv_pool_use(&p);
    require(use.pages_used <= use.pages);
}

static void store(const uint8_t *data, size_t size)
{
    struct kv_store s;
    struct kv_store_page page;
    size_t bytes = (size_t)kv_store_bytes(SLOTS);
    kv_store_init(memory, SLOTS, KV_POOL_ALIGN, 1);
    change(bytes, data, size);
    if (kv_store_attach(&s, memory, bytes, -1, NULL))
        return;
    inside(s.parents, s.n_slots * sizeof *s.parents, bytes);
    inside(s.records, s.n_slots * sizeof *s.records, bytes);
    uint64_t key = s.n_slots ? s.parents[0] : 0;
    uint32_t slot = 0, n = 0;
    for (; key && n <= SLOTS && kv_store_next(&s, key, &slot, &page); slot++, n++)
        require(slot < s.n_slots);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const kinds[])(const uint8_t *data, size_t size) = {residency, tier, pool, store};
    if (size == 0)
        return 0;
    memset(memory, 0, sizeof memory);
    kinds[data[0] % 4](data + 1, size - 1);
    return 0;
}
