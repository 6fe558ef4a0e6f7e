/* The worker's end of the cache channel; see cache_link.h. */
#include "cache_link.h"

#include "ipc/lease.h"

#define ACCEPT_TIMEOUT_MS 5000

static enum error_code offer(const struct cache_link *l, const struct memory_client *memory,
                             struct error *e)
{
    struct lease_message m = {.magic = LEASE_MAGIC, .kind = CACHE_OFFER};
    m.value[0] = l->region.bytes;
    m.value[1] = memory->generation;
    enum error_code code = lease_send(memory->lease_fd, &m, &l->region.fd, 1, e);
    if (!code)
        code = lease_receive(memory->lease_fd, &m, NULL, 0, &(unsigned){0}, ACCEPT_TIMEOUT_MS, e);
    if (!code && m.kind != CACHE_ACCEPT)
        code = error_set(e, ERROR_PROTOCOL, "memd refused the cache channel (%s)",
                         error_meaning((enum error_code)m.value[0]));
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

uint32_t cache_link_mention(struct ring *ring, enum cache_record_kind kind, uint64_t step,
                            uint32_t layer, const struct cache_mention *experts, uint32_t n)
{
    uint32_t said = 0;
    while (said < n) {
        struct cache_record r = {.kind = kind, .layer = (uint16_t)layer, .step = step};
        for (uint32_t i = said; r.n_entries < CACHE_RECORD_ENTRIES && i < n; i++) {
            uint32_t value = experts[i].value < UINT16_MAX ? experts[i].value : UINT16_MAX;
            r.entries[r.n_entries++] =
                (struct cache_entry){(uint16_t)experts[i].expert, (uint16_t)value};
        }
        if (ring_push(ring, &r) != 1)
            break;
        said += r.n_entries;
    }
    return said;
}
