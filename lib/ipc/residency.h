/* The residency table: where each expert's segments are, one 64-bit atomic word an expert in shared
 * memory. memd alone writes it; any process reads it without a message.
 *
 * A word has the number of leading segments resident on the device (a prefix), the number in flight
 * after them, and a generation that grows with every change. On the `host` device nothing is
 * resident: every expert is computed by the CPU executor.
 *
 * A word is stored with release after the segment's bytes are in place, and loaded with acquire
 * before they are read.
 */
#ifndef MOED_IPC_RESIDENCY_H
#define MOED_IPC_RESIDENCY_H

#include "base/error.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define RESIDENCY_MAGIC          0x5345524445304dull
#define RESIDENCY_LAYOUT_VERSION 1u

struct residency_header {
    uint64_t magic;
    uint32_t layout_version;
    uint32_t n_layers, n_experts;
    uint32_t reserved;
    uint64_t generation; /* of the pool that it belongs to */
    uint8_t pad[32];
};
_Static_assert(sizeof(struct residency_header) == 64, "shared layout");

struct residency_table {
    const struct residency_header *header;
    _Atomic uint64_t *words;      /* [n_layers][n_experts] */
    uint32_t n_layers, n_experts; /* checked copies */
};

struct residency {
    uint8_t resident;    /* leading segments on the device */
    uint8_t in_flight;   /* segments after those that are being copied */
    uint64_t generation; /* 48 bits */
};

static inline uint64_t residency_pack(struct residency r)
{
    return (uint64_t)r.resident | (uint64_t)r.in_flight << 8 | r.generation << 16;
}

static inline struct residency residency_unpack(uint64_t word)
{
    return (struct residency){(uint8_t)word, (uint8_t)(word >> 8), word >> 16};
}

size_t residency_bytes(uint32_t n_layers, uint32_t n_experts);
/* memd: a fresh table, nothing resident. memory is zeroed and 64-byte aligned. */
void residency_init(void *memory, uint32_t n_layers, uint32_t n_experts, uint64_t generation);
enum error_code residency_attach(struct residency_table *t, void *memory, size_t bytes,
                                 struct error *e);

static inline struct residency residency_read(const struct residency_table *t, uint32_t layer,
                                              uint32_t expert)
{
    return residency_unpack(atomic_load_explicit(&t->words[(size_t)layer * t->n_experts + expert],
                                                 memory_order_acquire));
}

/* memd alone: publish new counts; the generation grows by one. */
static inline void residency_write(const struct residency_table *t, uint32_t layer, uint32_t expert,
                                   uint8_t resident, uint8_t in_flight)
{
    _Atomic uint64_t *word = &t->words[(size_t)layer * t->n_experts + expert];
    struct residency r = residency_unpack(atomic_load_explicit(word, memory_order_relaxed));
    r.resident = resident;
    r.in_flight = in_flight;
    r.generation++;
    atomic_store_explicit(word, residency_pack(r), memory_order_release);
}

#endif
