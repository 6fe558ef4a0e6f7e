/* The extents of the device's arena: which extent a slot lies in, and where in it. memd and the
 * workers share this arithmetic.
 *
 * Slots are numbered through all extents. Each extent is an allocation of its own, so memd can free
 * the memory of the last slots, and allocate it again, while the other slots stay in place:
 *
 *     extent       0          1          2        ...     the last one
 *     slots      first      each       each               at most each
 *
 * `first` and `each` never change while memd lives, nor does the first extent. */
#ifndef MOED_IPC_ARENA_LAYOUT_H
#define MOED_IPC_ARENA_LAYOUT_H

#include <stdint.h>

enum { ARENA_EXTENTS = 32 }; /* at most */

struct arena_layout {
    uint32_t first, each; /* at least 1 */
};

static inline uint32_t arena_extent_of(struct arena_layout l, uint32_t slot)
{
    return slot < l.first ? 0 : 1 + (slot - l.first) / l.each;
}

/* The number of the extent's first slot. */
static inline uint32_t arena_extent_begin(struct arena_layout l, uint32_t extent)
{
    return extent == 0 ? 0 : l.first + (extent - 1) * l.each;
}

/* How many extents n slots take; n is at least 1. */
static inline uint32_t arena_extents(struct arena_layout l, uint32_t n)
{
    return arena_extent_of(l, n - 1) + 1;
}

/* How many of n slots lie in this extent, one of arena_extents(l, n). The first is always whole. */
static inline uint32_t arena_extent_slots(struct arena_layout l, uint32_t extent, uint32_t n)
{
    uint32_t rest = n - arena_extent_begin(l, extent);
    return extent == 0 ? l.first : rest < l.each ? rest : l.each;
}

/* The layout for at most `total` slots (at least 1) of slot_bytes each, on a device that allocates
 * memory in multiples of unit_bytes, a power of two. The first extent is as many slots as fill one
 * unit, at least one slot. All extents together hold `total` slots, and each wastes less than one
 * slot of its last unit. */
struct arena_layout arena_layout_for(uint64_t slot_bytes, uint32_t total, uint64_t unit_bytes);

/* Bytes of the extents of n slots; n is at least 1. The caller has checked that they fit 64 bits.
 */
uint64_t arena_bytes(struct arena_layout l, uint64_t slot_bytes, uint64_t unit_bytes, uint32_t n);
/* The largest number of slots, at most `most`, whose extents take at most `bytes`; 0: not one fits.
 */
uint32_t arena_slots_in(struct arena_layout l, uint64_t slot_bytes, uint64_t unit_bytes,
                        uint64_t bytes, uint32_t most);

#endif
