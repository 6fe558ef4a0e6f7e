/* How a worker follows the device's arena while memd adds pieces to it and takes some back (residency_header.pieces).
 *
 *     memd                                        worker, between two epochs
 *     A1 pieces[i] of a new piece, its serial     F1 seen = changes                    (acquire)
 *     A2 changes + 1              (release)       F2 imports the pieces that are new, closes those that have gone
 *     A3 until each arena_seen is that (acquire)  F3 arena_seen = seen                 (release)
 *     A4 uses the slots
 *
 *     W1 no slot of it is in use or in its grace
 *     W2 serial = 0, changes + 1  (release)
 *     W3 until each arena_seen is that (acquire)
 *     W4 gives the memory back
 *
 * So a slot in the table is always one that each worker has, and memory that a worker has mapped is there. A worker
 * that attaches follows once before it reads anything; memd waits for it from the moment in which it accepts the
 * channel. One that cannot map a piece says so (arena_refused), and memd takes the piece back instead of using it. A
 * worker that has gone is not waited for.
 *
 * The first piece never changes: the worker has it by its lease.
 *
 * What pieces and a worker's KV cache share is divided by two numbers, one written by each side. All four steps are
 * sequentially consistent, so either the worker sees the lower limit or memd sees what the worker has:
 *
 *     memd, before it allocates                       worker, before it allocates
 *     K1 header kv_bytes = the limit                  C1 channel kv_bytes = what it is going to have
 *     K2 until each channel's kv_bytes is no more     C2 reads the limit; where that is less, it takes (or keeps) no more, and
 *                                                        writes C1 anew when the rest is free
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
    /* A piece but the first. On success it is the worker's until it is closed. */
    enum error_code (*import)(void *arg, uint32_t piece, const struct residency_piece *what,
                              struct error *e);
    void (*close)(void *arg, uint32_t piece);
    /* private */
    bool followed;
    uint64_t seen;
    uint32_t serials[ARENA_PIECES]; /* 0: not imported */
};

/* Cheap: one relaxed load. */
static inline bool arena_changed(const struct arena_follower *f)
{
    return !f->followed || atomic_load_explicit(&f->header->changes, memory_order_relaxed) != f->seen;
}

/* F1 to F3; outside of the epoch. An error is the first import's that failed: the others are done, and it is not tried
 * again until something changes. */
enum error_code arena_follow(struct arena_follower *f, struct error *e);
/* Close all that was imported; nothing is said. */
void arena_forget(struct arena_follower *f);

#endif
