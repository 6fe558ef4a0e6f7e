/* Waiting for several doorbells at once (ipc/doorbell.h), each rung by another process. Used by one
 * thread. */
#ifndef MOED_MEMD_SLOTS_CACHE_WAIT_H
#define MOED_MEMD_SLOTS_CACHE_WAIT_H

#include "ipc/doorbell.h"

enum { CACHE_WAIT_DOORBELLS = 64 };

struct cache_wait {
    struct doorbell *doorbells[CACHE_WAIT_DOORBELLS]; /* borrowed until the sleep ends */
    uint32_t seen[CACHE_WAIT_DOORBELLS];
    uint32_t n;
    bool polling; /* the kernel cannot wait for several */
};

/* Before looking for work: forget all doorbells, then watch each that may announce work. */
void cache_wait_begin(struct cache_wait *w);
void cache_wait_watch(struct cache_wait *w, struct doorbell *d);
/* After no work was found: sleeps until a watched doorbell has rung since it was watched, or for
 * timeout_ns, at most a second. */
void cache_wait_sleep(struct cache_wait *w, uint64_t timeout_ns);

#endif
