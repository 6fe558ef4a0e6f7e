/* The worker's end of the cache channel (ipc/cache_channel.h): one region for all that it tells memd of the device's cache
 * and of the host tier, where there is either. One thread, the engine's. */
#ifndef MOED_WORKER_CACHE_LINK_H
#define MOED_WORKER_CACHE_LINK_H

#include "ipc/cache_channel.h"
#include "memory/memory_client.h"

struct cache_link {
    struct shm region;
    struct cache_channel channel;
};

/* Makes the region and offers it; ERROR_UNAVAILABLE where memd has gone. */
enum error_code cache_link_open(const struct memory_client *memory, struct cache_link *out,
                                struct error *e);
/* Takes one that was not opened, with a descriptor of -1. */
void cache_link_close(struct cache_link *l);

struct cache_mention {
    uint32_t expert, value;
};
/* In pieces of a record, without ringing. Returns how many were said: fewer where the ring is full. */
uint32_t cache_link_mention(struct ring *ring, enum cache_record_kind kind, uint64_t step,
                            uint32_t layer, const struct cache_mention *experts, uint32_t n);

#endif
