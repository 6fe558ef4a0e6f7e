/* The region through which a worker reports to memd what the expert cache and the host tier need to
 * know. The worker makes it (a sealed memfd), one for both, where memd has either, and offers it
 * over its lease connection (CACHE_OFFER, ipc/lease_offer.h; the answer is CACHE_ACCEPT or
 * CACHE_REFUSE).
 *
 * `epoch` protects what the worker reads in the device's arena. The worker makes it odd before it
 * reads the residency table, and even when it has finished with every slot that it found there.
 * memd takes a segment out of the table, then reads the epoch of every worker. It uses the slot
 * again when each epoch was even, or has changed since, or its worker has gone (the kernel reports
 * that by the lease). Epochs and residency words are sequentially consistent. With an odd epoch a
 * worker waits only for an arrival that is in flight: memd may need a slot that this epoch protects
 * for any other.
 *
 * `host_epoch` protects in the same way what the worker, or the CPU executor for it, reads in the
 * host tier (ipc/host_tier.h).
 *
 * `requests` is a ring from worker to memd, without answers. The worker sees a load's arrival in
 * the residency table. memd rings `arrivals` after each arrival and, where slots have flags
 * (ipc/residency.h), when a copy begins. A requested load stays on the device until the worker has
 * counted it in `consumed`: loads are numbered in the order in which they were pushed, across
 * records, from 1, and used up in that order.
 *
 * `fetches` is a ring from worker to the host tier: activated experts, predicted experts, and
 * experts that the worker waits for because they are not in memory. These are numbered as loads
 * are. A requested expert, once in memory, stays there until the worker has counted it in
 * `fetched`. memd reads at most as many at a time as there are slots, so a worker must use and
 * count the first ones before it waits for the last. memd rings `arrivals` after each of them, and
 * after a read that failed.
 *
 * `arena_seen`, `arena_refused` and `kv_bytes` are the worker's answers when memd changes what the
 * device's memory is used for (ipc/arena_follow.h).
 *
 * What memd reads here is input: it checks every number.
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

/* lease_message.kind on memd's lease socket; values as lease_offer.h has them. */
enum { CACHE_OFFER = 0x200, CACHE_ACCEPT, CACHE_REFUSE };

struct cache_channel_header {
    uint64_t magic;
    uint32_t version, reserved;
    uint64_t pool_generation;
    uint64_t bytes;
    uint64_t requests_offset, fetches_offset;
    _Alignas(64) _Atomic uint64_t epoch;    /* worker: odd while it reads the arena */
    _Alignas(64) _Atomic uint64_t consumed; /* worker: the last load that it has finished with */
    /* worker: step << 16 | layer that it computes; memd drops prefetches for layers before it */
    _Alignas(64) _Atomic uint64_t place;
    struct doorbell arrivals;                 /* memd rings, the worker waits */
    _Alignas(64) _Atomic uint64_t host_epoch; /* worker: odd while it uses the host tier */
    _Alignas(64) _Atomic uint64_t fetched;    /* worker: the last fetch that it has finished with */
    /* worker: its cost corrections, in an encoding of its own; the first is 0 where it has none.
     * When the worker has gone memd hands them to the next one (residency_header.costs_known). */
    _Alignas(64) _Atomic uint64_t costs_known[RESIDENCY_COSTS];
    /* worker: the residency_header.changes up to which it has mapped every extent and closed every
     * removed one; and the last one that had an extent which it could not map */
    _Alignas(64) _Atomic uint64_t arena_seen;
    _Atomic uint64_t arena_refused;
    /* worker: bytes of the device's memory that its KV cache has or is about to take: stored after
     * it freed some, and before it allocates more. UINT64_MAX: not reported yet. Sequentially
     * consistent with residency_header.kv_bytes: memd, having lowered that, sees here what a worker
     * takes that has not seen the lower limit. */
    _Atomic uint64_t kv_bytes;
};
_Static_assert(sizeof(struct cache_channel_header) == 640, "shared layout");

enum cache_record_kind {
    CACHE_ROUTED = 1, /* entries: the experts that the layer activates, and their tokens */
    CACHE_LOAD, /* entries: an expert, and how many leading segments of it to load; a load each */
    CACHE_PREDICTED, /* entries: an expert of a later layer, and 65535 times the probability that it
                        is activated */
    CACHE_FETCH,    /* in `fetches`. entries: an expert that the worker waits for, and its tokens; a
                       fetch each */
    CACHE_SCORES,   /* entries: an expert, and 65535 times the mean over the batch of its gate's
                       probability; the largest of a layer, where residency_header.cache_reads asks
                       for them */
    CACHE_EXPECTED, /* entries: as of CACHE_PREDICTED, for the cache policy only, where
                       residency_header.cache_reads asks for them: memd copies nothing for it */
    CACHE_COSTS,    /* costs in the place of entries; n_entries is 0 */
    CACHE_MEASURED, /* no entries: the loads of no step (0) are over, memd may evict their segments
                     */
};

enum { CACHE_RECORD_ENTRIES = 10 };

/* Seconds, as in sched_costs (sched/assign/assign.h) and sched_cache_costs (sched/cache/cache.h).
 */
struct cache_record_costs {
    float load, load_contended, device, device_token, cpu, cpu_token, cpu_contended,
        cpu_contended_token;
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
    uint32_t prompt; /* CACHE_ROUTED: 1 if most of the step's tokens are of prompts */
    uint32_t unused; /* CACHE_ROUTED: 1 if the worker leaves the device's experts out */
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
