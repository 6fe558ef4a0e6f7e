/* The host tier: the experts in host memory when that is smaller than the model (--ram SIZE). The
 * other experts are in the model file. memd makes and writes one shared region; other processes map
 * it read-only:
 *
 *     header | words [n_layers][n_experts] | slots [n_slots], a whole slab each
 *
 * Each expert has one 64-bit atomic word that names the slot which holds it whole. memd stores a
 * word after the slot's bytes are in place; both sides use sequentially consistent operations on
 * words and epochs.
 *
 * A worker protects what it reads by `host_epoch` of its cache channel (ipc/cache_channel.h), as it
 * protects device slots by `epoch`: odd from before it reads a word until it, and the CPU executor
 * for it, have finished with the slots that it found. memd takes the expert out of the table. It
 * uses the slot again only when each worker's epoch was even, or has changed since, or the kernel
 * reports that the worker has gone. Until then the bytes are still there, so memd can put a
 * requested expert back into the table with the same slot.
 *
 * The executor does not read the table, which may have changed since the worker read it: the worker
 * passes it the slots (ipc/expert_channel.h). If a worker dies, the executor may compute from a
 * slot that is being filled again; no process reads that result.
 *
 * The worker requests a missing expert by a CACHE_FETCH record. It never waits for one with an odd
 * epoch: memd may need a slot that the epoch protects. `reads` counts the reads that have ended, of
 * any expert, also failed ones; `pieces` the parts of reads that have come: a disk that is slow,
 * but reads, is told by it from one that does not answer.
 */
#ifndef MOED_IPC_HOST_TIER_H
#define MOED_IPC_HOST_TIER_H

#include "base/error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HOST_TIER_MAGIC          0x5245495444454f4dull
#define HOST_TIER_LAYOUT_VERSION 2u
#define HOST_TIER_PAGE           4096u

struct host_tier_header {
    uint64_t magic;
    uint32_t layout_version;
    uint32_t n_layers, n_experts;
    uint32_t n_slots;
    uint64_t generation; /* of the pool that it belongs to */
    uint64_t slot_bytes; /* the largest slab, in whole pages */
    uint64_t slots_offset;
    uint8_t pad[16];
    _Alignas(64) _Atomic uint64_t reads; /* memd: reads that have ended */
    _Atomic uint64_t pieces;             /* memd: parts of reads that have come */
};
_Static_assert(sizeof(struct host_tier_header) == 128, "shared layout");

struct host_tier {
    struct host_tier_header *header;
    _Atomic uint64_t *words; /* [n_layers][n_experts] */
    const uint8_t *slots;
    uint32_t n_layers, n_experts, n_slots; /* checked copies */
    uint64_t slot_bytes;
};

/* A word, unpacked. */
struct host_expert {
    uint32_t slot_and_one; /* 0: not in memory */
    uint32_t failures;     /* reads of it that failed, since start */
};

static inline uint64_t host_expert_pack(struct host_expert x)
{
    return (uint64_t)x.slot_and_one | (uint64_t)x.failures << 32;
}

static inline struct host_expert host_expert_unpack(uint64_t word)
{
    return (struct host_expert){(uint32_t)word, (uint32_t)(word >> 32)};
}

static inline _Atomic uint64_t *host_tier_word(const struct host_tier *t, uint32_t layer,
                                               uint32_t expert)
{
    return &t->words[(size_t)layer * t->n_experts + expert];
}

static inline const uint8_t *host_tier_slot(const struct host_tier *t, uint32_t slot)
{
    return t->slots + slot * t->slot_bytes;
}

/* Within an epoch. A slot number out of range counts as "not in memory". */
static inline struct host_expert host_tier_read(const struct host_tier *t, uint32_t layer,
                                                uint32_t expert)
{
    struct host_expert x = host_expert_unpack(atomic_load(host_tier_word(t, layer, expert)));
    if (x.slot_and_one > t->n_slots)
        x.slot_and_one = 0;
    return x;
}

static inline uint64_t host_tier_slots_offset(uint32_t n_layers, uint32_t n_experts)
{
    uint64_t end =
        sizeof(struct host_tier_header) + (uint64_t)n_layers * n_experts * sizeof(uint64_t);
    return (end + HOST_TIER_PAGE - 1) / HOST_TIER_PAGE * HOST_TIER_PAGE;
}

static inline uint64_t host_tier_bytes(uint32_t n_layers, uint32_t n_experts, uint64_t slot_bytes,
                                       uint64_t n_slots)
{
    return host_tier_slots_offset(n_layers, n_experts) + n_slots * slot_bytes;
}

/* memd: lay out the zeroed region; nothing is in memory. */
void host_tier_init(void *memory, uint32_t n_layers, uint32_t n_experts, uint64_t slot_bytes,
                    uint32_t n_slots, uint64_t generation);
enum error_code host_tier_attach(struct host_tier *t, void *memory, size_t bytes, struct error *e);

#endif
