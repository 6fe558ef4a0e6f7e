/* The residency table: where each expert's segments are, in shared memory. Only memd writes it; any
 * process reads it without a message.
 *
 *     header | words [n_layers][n_experts] | arriving [n_layers][n_experts][n_segments] | slots
 * [same]
 *
 * An expert's 64-bit atomic word holds the number of leading segments resident on the device (a
 * prefix), the number in flight after them, and a generation that grows with every change. Its
 * slots say, for each resident segment, which slot of the device's arena holds it. On the `host`
 * device nothing is resident: the CPU executor computes every expert.
 *
 * Where the device's slots have flags (device/module.h, signal), `arriving` holds the slot of each
 * segment in flight, and the number that the slot's flag will have once it has arrived. memd stores
 * it before the word that has the segment in flight. It belongs to that segment as long as the
 * expert's word has the segment in flight. Segments arrive in the order in which memd announced
 * them.
 *
 * memd stores a word after the segment's bytes and its slot are in place; a reader loads it before
 * it reads them. A slot that a reader found here keeps its bytes until the reader's epoch has
 * passed (ipc/cache_channel.h): both sides use sequentially consistent operations on epoch and
 * word, so either the reader sees the smaller count or memd sees the reader.
 *
 * The slots lie in extents (ipc/arena_layout.h), which the header names, so that memd can add and
 * remove some while workers read the others (ipc/arena_follow.h).
 */
#ifndef MOED_IPC_RESIDENCY_H
#define MOED_IPC_RESIDENCY_H

#include "base/error.h"
#include "ipc/arena_layout.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RESIDENCY_MAGIC          0x5345524445304dull
#define RESIDENCY_LAYOUT_VERSION 10u
#define RESIDENCY_COSTS          12

enum { RESIDENCY_HANDLE_BYTES = 64 }; /* those of struct device_handle (device/module.h) */

/* An extent of the device's arena. memd writes it while `serial` is 0, and stores that last
 * (release); a worker reads it after serial (acquire). */
struct residency_extent {
    _Atomic uint32_t serial; /* no two extents of a memd have the same; 0: no extent */
    uint32_t n_slots;
    uint8_t handle[RESIDENCY_HANDLE_BYTES]; /* of device_link_allocate */
};
_Static_assert(sizeof(struct residency_extent) == 72, "shared layout");

struct residency_header {
    uint64_t magic;
    uint32_t layout_version;
    uint32_t n_layers, n_experts;
    uint32_t n_segments;      /* of an expert, at most */
    uint64_t generation;      /* of the pool that it belongs to */
    uint64_t slot_bytes;      /* 0: the device has no memory of its own */
    _Atomic uint64_t n_slots; /* in use at present; residency_n_slots */
    /* how many of them memd keeps free: that many segments can be loaded without waiting */
    _Atomic uint64_t n_spare;
    struct arena_layout slots;
    /* Changed by memd's copy thread when a copy to the device begins and when it ends: odd while
     * any is queued or under way. */
    _Alignas(64) _Atomic uint64_t copies;
    _Atomic uint64_t copy_began_ns; /* the oldest one's (clock_ns); stored before `copies` */
    _Atomic uint32_t cache_reads;   /* optional records that the policy uses: sched_cache_reads */
    _Atomic uint32_t pinning; /* 1: memd still pins host memory, copies are slower than later */
    _Atomic uint64_t word_changes; /* counts changes of words: while it is the same, so are they */
    uint8_t pad2[32];
    /* The cost corrections of the worker that left last, as it wrote them
     * (cache_channel_header.costs_known): input. */
    _Alignas(64) _Atomic uint64_t costs_known[RESIDENCY_COSTS];
    /* The first extent exists from start to end; a worker gets it with its lease. */
    struct residency_extent extents[ARENA_EXTENTS];
    _Alignas(64) _Atomic uint64_t changes; /* of extents; incremented after each (release) */
    /* Bytes of the device's memory that a worker's KV cache may have; UINT64_MAX: no limit. A
     * worker that has more frees it as its requests end, and reports what it has
     * (cache_channel_header.kv_bytes). */
    _Atomic uint64_t kv_bytes;
    uint32_t batch; /* tokens of prompts that a worker computes at once, as memd has planned */
    uint32_t kv_requests; /* of a whole context, that a worker's KV cache may ever hold */
    uint8_t pad3[40];
};
_Static_assert(sizeof(struct residency_header) == 2624, "shared layout");

static inline uint64_t residency_n_slots(const struct residency_header *h)
{
    return atomic_load_explicit(&h->n_slots, memory_order_relaxed);
}

static inline uint64_t residency_n_spare(const struct residency_header *h)
{
    return atomic_load_explicit(&h->n_spare, memory_order_relaxed);
}

struct residency_table {
    const struct residency_header *header;
    _Atomic uint64_t *words;    /* [n_layers][n_experts] */
    _Atomic uint64_t *arriving; /* [n_layers][n_experts][n_segments]: residency_arrival, packed */
    _Atomic uint32_t *slots;    /* [n_layers][n_experts][n_segments] */
    uint32_t n_layers, n_experts, n_segments; /* checked copies */
};

struct residency {
    uint8_t resident;    /* leading segments on the device */
    uint8_t in_flight;   /* segments after those that are being copied */
    uint64_t generation; /* 48 bits */
};

struct residency_arrival {
    uint32_t slot, flag; /* flag: the number that the slot's flag becomes */
};

static inline uint64_t residency_pack(struct residency r)
{
    return (uint64_t)r.resident | (uint64_t)r.in_flight << 8 | r.generation << 16;
}

static inline struct residency residency_unpack(uint64_t word)
{
    return (struct residency){(uint8_t)word, (uint8_t)(word >> 8), word >> 16};
}

size_t residency_bytes(uint32_t n_layers, uint32_t n_experts, uint32_t n_segments);
/* memd: a fresh table: nothing resident, no extent, no limit to the KV cache. memory is zeroed and
 * 64-byte aligned. slot_bytes and n_slots are 0 for a device without memory of its own. */
void residency_init(void *memory, uint32_t n_layers, uint32_t n_experts, uint32_t n_segments,
                    uint64_t slot_bytes, uint64_t n_slots, uint64_t generation);
enum error_code residency_attach(struct residency_table *t, void *memory, size_t bytes,
                                 struct error *e);

static inline struct residency residency_read(const struct residency_table *t, uint32_t layer,
                                              uint32_t expert)
{
    return residency_unpack(atomic_load(&t->words[(size_t)layer * t->n_experts + expert]));
}

static inline _Atomic uint32_t *residency_slot(const struct residency_table *t, uint32_t layer,
                                               uint32_t expert, uint32_t segment)
{
    return &t->slots[((size_t)layer * t->n_experts + expert) * t->n_segments + segment];
}

static inline _Atomic uint64_t *residency_arrival_at(const struct residency_table *t,
                                                     uint32_t layer, uint32_t expert,
                                                     uint32_t segment)
{
    return &t->arriving[((size_t)layer * t->n_experts + expert) * t->n_segments + segment];
}

/* Whether the expert's segment number `segment` (from 0) is in flight, and where to. The slot keeps
 * that segment for the reader's epoch, as it keeps a resident one. */
static inline bool residency_arriving(const struct residency_table *t, uint32_t layer,
                                      uint32_t expert, uint32_t segment,
                                      struct residency_arrival *out)
{
    const _Atomic uint64_t *word = &t->words[(size_t)layer * t->n_experts + expert];
    uint64_t before = atomic_load(word), arriving;
    for (;;) {
        struct residency r = residency_unpack(before);
        if (segment < r.resident || segment >= (uint32_t)r.resident + r.in_flight)
            return false;
        arriving = atomic_load(residency_arrival_at(t, layer, expert, segment));
        uint64_t after = atomic_load(word);
        if (after == before)
            break;
        before = after; /* `arriving` may be an earlier or a later copy's */
    }
    *out = (struct residency_arrival){(uint32_t)arriving, (uint32_t)(arriving >> 32)};
    return true;
}

/* memd only, before it publishes that the segment is in flight. */
static inline void residency_announce(const struct residency_table *t, uint32_t layer,
                                      uint32_t expert, uint32_t segment, struct residency_arrival a)
{
    atomic_store(residency_arrival_at(t, layer, expert, segment), (uint64_t)a.flag << 32 | a.slot);
}

/* memd only: publish new counts; the generation grows by one. memd retires a slot after it has
 * incremented `word_changes`: a reader that still found the old count is within an epoch that memd
 * sees. */
static inline void residency_write(const struct residency_table *t, uint32_t layer, uint32_t expert,
                                   uint8_t resident, uint8_t in_flight)
{
    _Atomic uint64_t *word = &t->words[(size_t)layer * t->n_experts + expert];
    struct residency r = residency_unpack(atomic_load_explicit(word, memory_order_relaxed));
    r.resident = resident;
    r.in_flight = in_flight;
    r.generation++;
    atomic_store(word, residency_pack(r));
    atomic_fetch_add(&((struct residency_header *)(uintptr_t)t->header)->word_changes, 1);
}

#endif
