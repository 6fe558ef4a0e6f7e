/* How a worker follows the device's arena while memd adds extents to it and removes some
 * (residency_header.extents).
 *
 *     memd                                         worker, between two epochs
 *     adds an extent
 *     A1 extents[i] of the new one, its serial     F1 seen = changes                    (acquire)
 *     A2 changes + 1               (release)       F2 import new extents, close removed ones
 *     A3 wait: each arena_seen = changes (acquire) F3 arena_seen = seen                 (release)
 *     A4 use the slots
 *
 *     removes an extent
 *     W1 wait: no slot of it is in use or in its grace period
 *     W2 serial = 0, changes + 1   (release)
 *     W3 wait: each arena_seen = changes (acquire)
 *     W4 free the memory
 *
 * So every worker has mapped every slot that the table names, and memory that a worker has mapped
 * exists. A worker that attaches follows once before it reads anything; memd waits for it from the
 * moment it accepts the channel. A worker that cannot map an extent stores arena_refused in place
 * of arena_seen (F3), and memd removes the extent instead of using it. memd does not wait for a
 * worker that has gone.
 *
 * The first extent never changes: the worker has it by its lease.
 *
 * Extents and a worker's KV cache share the device's memory. Two numbers divide it, one written by
 * each side. All four steps are sequentially consistent, so either the worker sees the lower limit
 * or memd sees what the worker has:
 *
 *     memd, before it allocates                    worker, before it allocates
 *     K1 header kv_bytes = the limit               C1 channel kv_bytes = what it will have
 *     K2 wait: each channel's kv_bytes is at       C2 read the limit; where it is lower, allocate
 *        most the limit                               no more, and repeat C1 once the rest is free
 */
#ifndef MOED_IPC_ARENA_FOLLOW_H
#define MOED_IPC_ARENA_FOLLOW_H

#include "ipc/cache_channel.h"
#include "ipc/residency.h"

#include <stdbool.h>

struct arena_follower {
    const struct residency_header *header; /* memd's */
    struct cache_channel_header *channel;
    void *arg;
    /* Map an extent, never the first. On success the worker has it until `close`. */
    enum error_code (*import)(void *arg, uint32_t extent, const struct residency_extent *what,
                              struct error *e);
    void (*close)(void *arg, uint32_t extent);
    /* private */
    bool followed;
    uint64_t seen;
    uint32_t serials[ARENA_EXTENTS]; /* 0: not imported */
};

/* Whether arena_follow has anything to do: one relaxed load. */
static inline bool arena_changed(const struct arena_follower *f)
{
    return !f->followed ||
           atomic_load_explicit(&f->header->changes, memory_order_relaxed) != f->seen;
}

/* F1 to F3, outside of an epoch. Imports all that it can, and returns the error of the first import
 * that failed; a failed one is not tried again until `changes` grows. */
enum error_code arena_follow(struct arena_follower *f, struct error *e);
/* Close every imported extent, without notifying memd. */
void arena_forget(struct arena_follower *f);

#endif
