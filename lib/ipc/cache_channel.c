/* The region between worker and memd; see cache_channel.h. */
#include "ipc/cache_channel.h"

#include "base/checked.h"
#include "ipc/lease_offer.h"

#include <inttypes.h>

_Static_assert(CACHE_ACCEPT == CACHE_OFFER + LEASE_OFFER_ACCEPTED &&
                   CACHE_REFUSE == CACHE_OFFER + LEASE_OFFER_REFUSED,
               "answers of lease_offer.h");

static uint64_t requests_offset(void)
{
    return round_up(sizeof(struct cache_channel_header), 64);
}

static uint64_t fetches_offset(void)
{
    return round_up(requests_offset() + ring_bytes(CACHE_RING_RECORDS), 64);
}

size_t cache_channel_bytes(void)
{
    return round_up(fetches_offset() + ring_bytes(CACHE_RING_RECORDS), 64);
}

void cache_channel_init(void *memory, uint64_t pool_generation)
{
    struct cache_channel_header *h = memory;
    h->magic = CACHE_CHANNEL_MAGIC;
    h->version = CACHE_CHANNEL_VERSION;
    h->pool_generation = pool_generation;
    h->bytes = cache_channel_bytes();
    h->requests_offset = requests_offset();
    h->fetches_offset = fetches_offset();
    atomic_store(&h->kv_bytes, UINT64_MAX);
    ring_init((uint8_t *)memory + requests_offset(), CACHE_RING_RECORDS);
    ring_init((uint8_t *)memory + fetches_offset(), CACHE_RING_RECORDS);
}

enum error_code cache_channel_attach(struct cache_channel *c, void *memory, size_t bytes,
                                     struct error *e)
{
    struct cache_channel_header *h = memory;
    if (bytes < cache_channel_bytes() || h->magic != CACHE_CHANNEL_MAGIC)
        return error_set(e, ERROR_PROTOCOL, "cache channel: no header found");
    if (h->version != CACHE_CHANNEL_VERSION)
        return error_set(e, ERROR_VERSION, "cache channel: version %" PRIu32 ", expected %u",
                         h->version, CACHE_CHANNEL_VERSION);
    c->header = h;
    enum error_code code = ring_attach(&c->requests, (uint8_t *)memory + requests_offset(),
                                       fetches_offset() - requests_offset(), e);
    return code ? code
                : ring_attach(&c->fetches, (uint8_t *)memory + fetches_offset(),
                              bytes - fetches_offset(), e);
}
