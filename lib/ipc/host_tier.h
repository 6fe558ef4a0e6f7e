/* The host tier: the experts that lie in host memory when it is smaller than the model (--ram SIZE); the others are in
 * the model file. One shared region that memd makes and writes, and others map read-only: a header, a table, and slots of
 * one slab each.
 *
 * For each expert one 64-bit atomic word says which slot holds it, whole. A word is stored after the slot's bytes are
 * in place; both sides use sequentially consistent operations on words and epochs.
 *
 * A worker protects what it reads by `host_epoch` of its cache channel (ipc/cache_channel.h), just as it protects device
 * slots by `epoch`: odd from before it reads a word until it has done with the slots that it found, the CPU executor's
 * part included. memd takes the expert out of the table, then uses the slot again only when each worker's epoch
 * was even, or has changed since, or the kernel says that the worker is gone. As long as it waits for that the bytes are
 * still there, so an expert that is wanted again meanwhile goes back into the table with the same slot.
 *
 * The executor does not read the table, which may have changed since the worker did: the worker tells it the slots
 * (ipc/expert_channel.h). A worker that dies may leave it computing from a slot that is filled anew; the result
 * is thrown away with the worker.
 *
 * What is not there is asked for by CACHE_FETCH records. A worker never waits for it with an odd epoch: the room for
 * it may be what the epoch holds back. `reads` grows with each read that has ended, well or not, of whatever expert.
 */
#ifndef MOED_IPC_HOST_TIER_H
#define MOED_IPC_HOST_TIER_H

#include "base/error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HOST_TIER_MAGIC          0x5245495444454f4dull
#define HOST_TIER_LAYOUT_VERSION 1u
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

/* Within an epoch. A slot that is not there counts as none. */
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
