/* The worker's side of the host tier; see host_experts.h. */
#include "host_experts.h"

#include <stdlib.h>

struct host_experts {
    const struct host_tier *tier;
    struct cache_channel_header *header;
    struct ring *fetches;
};

struct host_experts *host_experts_new(const struct memory_client *memory, struct cache_link *link)
{
    struct host_experts *h = calloc(1, sizeof *h);
    if (h)
        *h = (struct host_experts){&memory->tier, link->channel.header, &link->channel.fetches};
    return h;
}

void host_experts_free(struct host_experts *h)
{
    free(h);
}

void host_experts_enter(struct host_experts *h, uint64_t step, uint32_t layer)
{
    atomic_store_explicit(&h->header->place, step << 16 | layer, memory_order_relaxed);
    atomic_fetch_add(&h->header->host_epoch, 1);
}

void host_experts_leave(struct host_experts *h)
{
    atomic_fetch_add(&h->header->host_epoch, 1);
}

bool host_experts_find(const struct host_experts *h, uint32_t layer, uint32_t expert,
                       uint32_t *slot)
{
    struct host_expert x = host_tier_read(h->tier, layer, expert);
    *slot = x.slot_and_one ? x.slot_and_one - 1 : 0;
    return x.slot_and_one != 0;
}

const uint8_t *host_experts_slab(const struct host_experts *h, uint32_t slot)
{
    return host_tier_slot(h->tier, slot);
}

void host_experts_routed(struct host_experts *h, const struct cache_turn *turn,
                         const struct cache_hint *experts, uint32_t n)
{
    cache_link_routed(h->fetches, turn, experts, n);
}

void host_experts_predicted(struct host_experts *h, uint64_t step, uint32_t layer,
                            const struct cache_hint *experts, uint32_t n)
{
    cache_link_hint(h->fetches, CACHE_PREDICTED, step, layer, experts, n);
}

uint32_t host_experts_fetch(struct host_experts *h, uint64_t step, uint32_t layer,
                            const struct cache_hint *experts, uint32_t n)
{
    return cache_link_hint(h->fetches, CACHE_FETCH, step, layer, experts, n);
}

void host_experts_count(struct host_experts *h, uint32_t n)
{
    if (!n)
        return;
    atomic_fetch_add(&h->header->fetched, n);
    ring_notify(h->fetches); /* another fetch may wait for the free slot */
}

void host_experts_notify(struct host_experts *h)
{
    ring_notify(h->fetches);
}

uint32_t host_experts_failures(const struct host_experts *h, uint32_t layer, uint32_t expert)
{
    return host_tier_read(h->tier, layer, expert).failures;
}

uint64_t host_experts_progress(const struct host_experts *h)
{
    const struct host_tier_header *header = h->tier->header;
    return atomic_load_explicit(&header->reads, memory_order_acquire) +
           atomic_load_explicit(&header->pieces, memory_order_relaxed);
}

void host_experts_wait(struct host_experts *h, bool (*ready)(void *arg), void *arg,
                       struct spinner *spinner, int timeout_ms)
{
    doorbell_wait(&h->header->arrivals, ready, arg, spinner, timeout_ms);
}

void host_experts_wake(struct host_experts *h)
{
    doorbell_ring(&h->header->arrivals);
}
