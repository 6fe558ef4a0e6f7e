/* One thread that waits for several doorbells at once (ipc/doorbell.h), each rung by another process. */
#ifndef MOED_MEMD_CACHE_WAIT_H
#define MOED_MEMD_CACHE_WAIT_H

#include "ipc/doorbell.h"

enum { CACHE_WAIT_DOORBELLS = 64 };

struct cache_wait {
    struct doorbell *doorbells[CACHE_WAIT_DOORBELLS]; /* borrowed until the sleep is over */
    uint32_t seen[CACHE_WAIT_DOORBELLS];
    uint32_t n;
    bool polling; /* the kernel cannot wait for several */
};

/* Before looking for work: forget the doorbells, then watch each that may announce some. */
void cache_wait_begin(struct cache_wait *w);
void cache_wait_watch(struct cache_wait *w, struct doorbell *d);
/* No work was found: sleep until one of them has been rung since it was watched, or at most so long (a second
 * at most, whatever is asked). */
void cache_wait_sleep(struct cache_wait *w, uint64_t timeout_ns);

#endif
