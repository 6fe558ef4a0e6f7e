/* The worker's end of the cache channel; see cache_link.h. */
#include "cache_link.h"

#include "ipc/lease_offer.h"

#define ACCEPT_TIMEOUT_MS 5000

static enum error_code offer(const struct cache_link *l, const struct memory_client *memory,
                             struct error *e)
{
    enum error_code code =
        lease_offer_send(memory->lease_fd, CACHE_OFFER, &l->region, memory->generation, e);
    if (!code)
        code = lease_offer_answered(memory->lease_fd, CACHE_OFFER, ACCEPT_TIMEOUT_MS, e);
    if (code)
        error_prefix(e, "memd's cache channel");
    return code;
}

enum error_code cache_link_open(const struct memory_client *memory, struct cache_link *out,
                                struct error *e)
{
    struct cache_link l = {.region.fd = -1};
    enum error_code code = shm_create("moed-cache", cache_channel_bytes(), &l.region, e);
    if (!code) {
        cache_channel_init(l.region.base, memory->generation);
        code = cache_channel_attach(&l.channel, l.region.base, l.region.bytes, e);
    }
    if (!code)
        code = offer(&l, memory, e);
    if (code) {
        shm_close(&l.region);
        return code;
    }
    *out = l;
    return ERROR_OK;
}

void cache_link_close(struct cache_link *l)
{
    shm_close(&l->region);
}

/* head: what the records have in common. */
static uint32_t write_hints(struct ring *ring, const struct cache_record *head,
                            const struct cache_hint *experts, uint32_t n)
{
    uint32_t reported = 0;
    while (reported < n) {
        struct cache_record r = *head;
        for (uint32_t i = reported; r.n_entries < CACHE_RECORD_ENTRIES && i < n; i++) {
            uint32_t value = experts[i].value < UINT16_MAX ? experts[i].value : UINT16_MAX;
            r.entries[r.n_entries++] =
                (struct cache_entry){(uint16_t)experts[i].expert, (uint16_t)value};
        }
        if (ring_push(ring, &r) != 1)
            break;
        reported += r.n_entries;
    }
    return reported;
}

uint32_t cache_link_hint(struct ring *ring, enum cache_record_kind kind, uint64_t step,
                         uint32_t layer, const struct cache_hint *experts, uint32_t n)
{
    const struct cache_record head = {.kind = kind, .layer = (uint16_t)layer, .step = step};
    return write_hints(ring, &head, experts, n);
}

uint32_t cache_link_routed(struct ring *ring, const struct cache_turn *turn,
                           const struct cache_hint *experts, uint32_t n)
{
    const struct cache_record head = {.kind = CACHE_ROUTED,
                                      .layer = (uint16_t)turn->layer,
                                      .step = turn->step,
                                      .prompt = turn->prompt,
                                      .unused = turn->unused};
    return write_hints(ring, &head, experts, n);
}
