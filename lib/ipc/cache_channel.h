/* What a worker tells memd about the expert cache and the host tier, through shared memory: a region that the worker makes (a
 * sealed memfd), one for both, where there is either, and offers over its lease socket (CACHE_OFFER with the descriptor; the answer is CACHE_ACCEPT or CACHE_REFUSE).
 *
 * `epoch` protects what the worker reads in the device's arena. The worker makes it odd before it reads the residency
 * table, and even when it has done with every slot that it found there. memd, after it has taken a segment out of the
 * table, looks at the epoch of every worker: a slot is used again when each was even, or has changed since, or its
 * worker has gone (the kernel says so, by the lease). Epochs and residency words are sequentially consistent. A worker
 * never waits for an arrival with an odd epoch, unless that is in flight: the room for it may be what the epoch holds back.
 *
 * `host_epoch` protects in the same way what is read in the host tier (ipc/host_tier.h), by whoever computes for the worker.
 *
 * `requests` is a ring from worker to memd. Nothing in it is answered; a load's arrival is seen in the residency table, and
 * memd rings `arrivals` after each, and, where slots have flags (ipc/residency.h), when one is begun. A load that was asked for stays on the device until the worker has counted it in
 * `consumed`: loads are numbered in the order in which they were pushed, across records, from 1, and used up in
 * that order.
 *
 * `fetches` is another one, to the host tier: what was activated, what is predicted, and experts that the worker waits for
 * because they are not in memory. These are numbered like loads; an expert that was asked for, once it is in
 * memory, stays until the worker has counted it in `fetched`. memd asks for no more at a time than there are slots, so a
 * worker must use and count the first ones before it waits for the last. `arrivals` is rung after each of them, too, and
 * after a read that failed.
 *
 * `arena_seen`, `arena_refused` and `kv_bytes` are a worker's answers to a change of what the device's memory is used
 * for (ipc/arena_follow.h).
 *
 * What memd reads here is input: every number is checked.
 */
#ifndef MOED_IPC_CACHE_CHANNEL_H
#define MOED_IPC_CACHE_CHANNEL_H

#include "base/error.h"
#include "ipc/residency.h"
#include "ipc/ring.h"

#include <stdatomic.h>
#include <stdint.h>

#define CACHE_CHANNEL_MAGIC   0x4e4843434d30ull
#define CACHE_CHANNEL_VERSION 5u
#define CACHE_RING_RECORDS    1024

/* lease_message.kind on memd's lease socket. OFFER: value[0] bytes of the region, value[1] the pool generation.
 * REFUSE: value[0] an enum error_code. */
enum { CACHE_OFFER = 0x200, CACHE_ACCEPT, CACHE_REFUSE };

struct cache_channel_header {
    uint64_t magic;
    uint32_t version, reserved;
    uint64_t pool_generation;
    uint64_t bytes;
    uint64_t requests_offset, fetches_offset;
    _Alignas(64) _Atomic uint64_t epoch;    /* worker: odd while it reads the arena */
    _Alignas(64) _Atomic uint64_t consumed; /* worker: the last load it is done with */
    _Alignas(64) _Atomic uint64_t
        place; /* worker: step << 16 | layer, for prefetches that have lost their point */
    struct doorbell arrivals;                 /* memd rings, the worker waits */
    _Alignas(64) _Atomic uint64_t host_epoch; /* worker: odd while it uses the host tier */
    _Alignas(64) _Atomic uint64_t fetched;    /* worker: the last fetch it is done with */
    /* worker: what it has learnt of its machine, in words of its own; the first is 0 where there is nothing. memd shows them
     * to the next worker when this one has gone (residency_header.learnt). */
    _Alignas(64) _Atomic uint64_t learnt[RESIDENCY_LEARNT];
    /* worker: residency_header.changes up to which it has every piece that there is and none that has gone; and the
     * last one that had a piece which it could not map */
    _Alignas(64) _Atomic uint64_t arena_seen;
    _Atomic uint64_t arena_refused;
    /* worker: what its KV cache has of the device's memory, or may take, in bytes: stored after memory was given back, and before
     * more is taken. UINT64_MAX: it has not said yet. Sequentially consistent with residency_header.kv_bytes: who lowers
     * that sees here what a worker takes that has not seen it. */
    _Atomic uint64_t kv_bytes;
};
_Static_assert(sizeof(struct cache_channel_header) == 640, "shared layout");

enum cache_record_kind {
    CACHE_ROUTED = 1, /* entries: the experts that the layer activates, and their tokens */
    CACHE_LOAD,       /* entries: an expert, and how many leading segments are wanted of it; a load each */
    CACHE_PREDICTED,  /* entries: an expert of a later layer, and 65535 times the probability that it is activated */
    CACHE_FETCH,      /* in `fetches`. entries: an expert that is waited for, and its tokens; a fetch each */
    CACHE_SCORES,     /* entries: an expert, and 65535 times the mean over the batch of its gate's probability; the largest
                         ones of a layer, where residency_header.cache_reads asks for them */
    CACHE_EXPECTED,   /* entries: as of CACHE_PREDICTED, for the cache policy alone, where residency_header.cache_reads asks for
                         them: nothing is copied for it */
    CACHE_COSTS,      /* costs in the place of entries, n_entries is 0 */
    CACHE_MEASURED,   /* no entries: the loads of no step (0) are over, and what they brought may go */
};

enum { CACHE_RECORD_ENTRIES = 10 };

/* Seconds; as sched_costs (sched/assign.h) and sched_cache_costs (sched/cache.h) have them. */
struct cache_record_costs {
    float load, load_contended, device, device_token, cpu, cpu_token, cpu_contended, cpu_contended_token;
    float attention, head;
};

/* A record of `requests` or `fetches`. */
struct cache_record {
    uint32_t kind;
    uint16_t layer;
    uint16_t n_entries;
    uint64_t step;
    union {
        struct cache_entry {
            uint16_t expert, value;
        } entries[CACHE_RECORD_ENTRIES];
        struct cache_record_costs costs;
    };
    uint32_t reserved[2];
};
_Static_assert(sizeof(struct cache_record) == RING_RECORD_BYTES, "ring record");

/* Either end, attached. Borrows the mapping. */
struct cache_channel {
    struct cache_channel_header *header;
    struct ring requests, fetches;
};

size_t cache_channel_bytes(void);
/* The worker lays out the zeroed region. */
void cache_channel_init(void *memory, uint64_t pool_generation);
enum error_code cache_channel_attach(struct cache_channel *c, void *memory, size_t bytes,
                                     struct error *e);

#endif
