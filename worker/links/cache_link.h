/* The worker's end of the cache channel (ipc/cache_channel.h): one shared region for all messages
 * to memd about the device's cache and the host tier. Threads: only the engine's. */
#ifndef MOED_WORKER_LINKS_CACHE_LINK_H
#define MOED_WORKER_LINKS_CACHE_LINK_H

#include "ipc/cache_channel.h"
#include "memory/memory_client.h"

struct cache_link {
    struct shm region;
    struct cache_channel channel;
};

/* Makes the region and offers it to memd. ERROR_UNAVAILABLE: memd has gone. */
enum error_code cache_link_open(const struct memory_client *memory, struct cache_link *out,
                                struct error *e);
/* Also of a link that was not opened, if its descriptor is -1. */
void cache_link_close(struct cache_link *l);

struct cache_hint {
    uint32_t expert, value;
};
/* Writes hints into the ring, several to a record, without ringing. Returns how many were written:
 * fewer than n where the ring is full. */
uint32_t cache_link_hint(struct ring *ring, enum cache_record_kind kind, uint64_t step,
                         uint32_t layer, const struct cache_hint *experts, uint32_t n);
/* A layer of a step. */
struct cache_turn {
    uint64_t step;
    uint32_t layer;
    bool prompt; /* most of the step's tokens are of prompts */
    bool unused; /* the worker leaves the device's experts out */
};
/* The same of CACHE_ROUTED. */
uint32_t cache_link_routed(struct ring *ring, const struct cache_turn *turn,
                           const struct cache_hint *experts, uint32_t n);

#endif
