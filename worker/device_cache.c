/* The worker's side of the expert cache; see device_cache.h. */
#include "device_cache.h"

#include "base/clock.h"

#include <stdlib.h>

struct device_cache {
    const struct memory_client *memory;
    const uint8_t *arena; /* on the device */
    struct cache_channel *channel;
    bool holds_all;
};

static bool holds_all(const struct memory_client *memory)
{
    uint64_t segments = 0;
    for (uint32_t layer = 0; layer < memory->map.params.n_layers; layer++) {
        const struct pool_slabs *s = &memory->map.slabs[layer];
        segments += (uint64_t)s->n_experts * s->n_segments;
    }
    return memory->residency.header->n_slots >= segments;
}

struct device_cache *device_cache_new(const struct memory_client *memory, const uint8_t *arena,
                                      struct cache_link *link)
{
    struct device_cache *c = calloc(1, sizeof *c);
    if (c)
        *c = (struct device_cache){memory, arena, &link->channel, holds_all(memory)};
    return c;
}

void device_cache_free(struct device_cache *c)
{
    free(c);
}

uint64_t device_cache_kv_limit(const struct device_cache *c)
{
    return atomic_load(&c->memory->residency.header->kv_bytes);
}

void device_cache_tell_kv(struct device_cache *c, uint64_t bytes)
{
    _Atomic uint64_t *said = &c->channel->header->kv_bytes;
    if (atomic_load_explicit(said, memory_order_relaxed) != bytes) /* ours alone */
        atomic_store(said, bytes);
}

/* The epoch is the worker's alone; what must not move before it is the reading of the table. */
void device_cache_pass(struct device_cache *c, uint64_t step, uint32_t layer)
{
    atomic_store_explicit(&c->channel->header->place, step << 16 | layer, memory_order_relaxed);
}

void device_cache_enter(struct device_cache *c, uint64_t step, uint32_t layer)
{
    device_cache_pass(c, step, layer);
    atomic_fetch_add(&c->channel->header->epoch, 1);
}

void device_cache_leave(struct device_cache *c)
{
    atomic_fetch_add(&c->channel->header->epoch, 1);
}

struct cached_expert device_cache_read(const struct device_cache *c, uint32_t layer,
                                       uint32_t expert)
{
    struct residency r = residency_read(&c->memory->residency, layer, expert);
    uint32_t most = c->memory->map.slabs[layer].n_segments;
    return (struct cached_expert){r.resident < most ? r.resident : most, r.in_flight};
}

const uint8_t *device_cache_place(const struct device_cache *c, uint32_t layer, uint32_t expert,
                                  uint32_t segment)
{
    const struct residency_header *h = c->memory->residency.header;
    uint64_t slot = atomic_load_explicit(
        residency_slot(&c->memory->residency, layer, expert, segment),
        memory_order_acquire); /* a later slot than the word's: its bytes come with its number */
    return c->arena + slot * h->slot_bytes;
}

bool device_cache_arriving(const struct device_cache *c, uint32_t layer, uint32_t expert, uint32_t segment,
                           struct cached_arrival *out)
{
    const struct residency_header *h = c->memory->residency.header;
    struct residency_arrival a;
    if (!residency_arriving(&c->memory->residency, layer, expert, segment, &a) || a.slot >= h->n_slots)
        return false;
    *out = (struct cached_arrival){c->arena + a.slot * h->slot_bytes, a.slot, a.flag};
    return true;
}

bool device_cache_holds_all(const struct device_cache *c)
{
    return c->holds_all;
}

uint64_t device_cache_copies(const struct device_cache *c)
{
    /* acquire: who sees it odd sees when that copy began */
    return atomic_load_explicit(&c->memory->residency.header->copies, memory_order_acquire);
}

uint64_t device_cache_changes(const struct device_cache *c)
{
    return atomic_load(&c->memory->residency.header->word_changes);
}

bool device_cache_pinning(const struct device_cache *c)
{
    return atomic_load(&c->memory->residency.header->pinning) != 0;
}

double device_cache_copying_s(const struct device_cache *c)
{
    const struct residency_header *h = c->memory->residency.header;
    uint64_t began = atomic_load_explicit(&h->copy_began_ns, memory_order_relaxed),
             now = clock_ns();
    return now > began ? (double)(now - began) * 1e-9 : 0;
}

bool device_cache_routed(struct device_cache *c, uint64_t step, uint32_t layer,
                         const struct cache_mention *experts, uint32_t n)
{
    return cache_link_mention(&c->channel->requests, CACHE_ROUTED, step, layer, experts, n) == n;
}

bool device_cache_predicted(struct device_cache *c, uint64_t step, uint32_t layer,
                            const struct cache_mention *experts, uint32_t n)
{
    return cache_link_mention(&c->channel->requests, CACHE_PREDICTED, step, layer, experts, n) == n;
}

bool device_cache_expected(struct device_cache *c, uint64_t step, uint32_t layer,
                           const struct cache_mention *experts, uint32_t n)
{
    return cache_link_mention(&c->channel->requests, CACHE_EXPECTED, step, layer, experts, n) == n;
}

uint32_t device_cache_reads(const struct device_cache *c)
{
    return atomic_load_explicit(&c->memory->residency.header->cache_reads, memory_order_relaxed);
}

bool device_cache_scores(struct device_cache *c, uint64_t step, uint32_t layer,
                         const struct cache_mention *experts, uint32_t n)
{
    return cache_link_mention(&c->channel->requests, CACHE_SCORES, step, layer, experts, n) == n;
}

bool device_cache_costs(struct device_cache *c, const struct sched_costs *costs, double attention_s,
                        double head_s)
{
    struct cache_record r = {.kind = CACHE_COSTS};
    r.costs.load = (float)costs->load_s;
    r.costs.load_contended = (float)costs->load_contended_s;
    r.costs.device = (float)costs->device_s;
    r.costs.device_token = (float)costs->device_token_s;
    r.costs.cpu = (float)costs->cpu_s;
    r.costs.cpu_token = (float)costs->cpu_token_s;
    r.costs.cpu_contended = (float)costs->cpu_contended_s;
    r.costs.cpu_contended_token = (float)costs->cpu_contended_token_s;
    r.costs.attention = (float)attention_s;
    r.costs.head = (float)head_s;
    return ring_push(&c->channel->requests, &r) == 1;
}

bool device_cache_load(struct device_cache *c, uint64_t step, uint32_t layer, uint32_t expert,
                       uint32_t segments)
{
    struct cache_record r = {
        .kind = CACHE_LOAD, .layer = (uint16_t)layer, .step = step, .n_entries = 1};
    r.entries[0] = (struct cache_entry){(uint16_t)expert, (uint16_t)segments};
    return ring_push(&c->channel->requests, &r) == 1;
}

void device_cache_consumed(struct device_cache *c)
{
    atomic_fetch_add(&c->channel->header->consumed, 1);
    ring_notify(&c->channel->requests); /* another load may wait for the room */
}

void device_cache_notify(struct device_cache *c)
{
    ring_notify(&c->channel->requests);
}

struct awaited {
    const struct device_cache *cache;
    uint32_t layer, expert, segments;
    bool begun; /* that the last one is in flight is enough */
};

static bool arrived(void *arg)
{
    const struct awaited *a = arg;
    struct cached_expert there = device_cache_read(a->cache, a->layer, a->expert);
    return there.resident + (a->begun ? there.in_flight : 0) >= a->segments;
}

void device_cache_wait(struct device_cache *c, uint32_t layer, uint32_t expert, uint32_t segments,
                       unsigned spin_us, int timeout_ms)
{
    struct awaited a = {c, layer, expert, segments, false};
    doorbell_wait(&c->channel->header->arrivals, arrived, &a, spin_us, timeout_ms);
}

void device_cache_wait_begun(struct device_cache *c, uint32_t layer, uint32_t expert, uint32_t segments,
                             unsigned spin_us, int timeout_ms)
{
    struct awaited a = {c, layer, expert, segments, true};
    doorbell_wait(&c->channel->header->arrivals, arrived, &a, spin_us, timeout_ms);
}

struct arrival_wait {
    const struct device_cache *cache;
    uint32_t layer, expert, segment;
    const struct cached_arrival *arrival;
};

/* While a segment is in flight nothing else happens to its expert: whatever is said now, it has come. */
static bool has_come(void *arg)
{
    const struct arrival_wait *a = arg;
    struct cached_arrival now;
    return !device_cache_arriving(a->cache, a->layer, a->expert, a->segment, &now) ||
           now.slot != a->arrival->slot || now.flag != a->arrival->flag;
}

bool device_cache_wait_arrived(struct device_cache *c, uint32_t layer, uint32_t expert, uint32_t segment,
                               const struct cached_arrival *arrival, unsigned spin_us, int timeout_ms)
{
    struct arrival_wait a = {c, layer, expert, segment, arrival};
    return doorbell_wait(&c->channel->header->arrivals, has_come, &a, spin_us, timeout_ms);
}
