/* The device's slots in pieces: which piece a slot lies in, and where in it. memd and the workers share this
 * arithmetic.
 *
 * Slots are numbered through all pieces. Each piece is an allocation of its own, so that the memory behind the last
 * slots can be given back, and had again, while the others stay where they are:
 *
 *     piece        0          1          2        ...     the last one that there is
 *     slots      first      each       each               at most each
 *
 * `first` and `each` never change while memd lives. The first piece stays as it is, too. */
#ifndef MOED_IPC_ARENA_LAYOUT_H
#define MOED_IPC_ARENA_LAYOUT_H

#include <stdint.h>

enum { ARENA_PIECES = 32 }; /* at most */

struct arena_layout {
    uint32_t first, each; /* at least 1 */
};

static inline uint32_t arena_piece_of(struct arena_layout l, uint32_t slot)
{
    return slot < l.first ? 0 : 1 + (slot - l.first) / l.each;
}

/* The number of its first slot. */
static inline uint32_t arena_piece_begin(struct arena_layout l, uint32_t piece)
{
    return piece == 0 ? 0 : l.first + (piece - 1) * l.each;
}

/* How many pieces n slots take, n at least 1. */
static inline uint32_t arena_pieces(struct arena_layout l, uint32_t n)
{
    return arena_piece_of(l, n - 1) + 1;
}

/* How many of n slots lie in this piece, one of arena_pieces(l, n). The first is always whole. */
static inline uint32_t arena_piece_slots(struct arena_layout l, uint32_t piece, uint32_t n)
{
    uint32_t rest = n - arena_piece_begin(l, piece);
    return piece == 0 ? l.first : rest < l.each ? rest : l.each;
}

/* For at most `total` slots (at least 1) of slot_bytes, of a device whose memory is had in multiples of unit_bytes, a
 * power of two: `first` are the slots that fill up one unit, or a single one; all pieces together have room for the
 * total, and no unit of theirs is lost to as much as a slot. */
struct arena_layout arena_layout_for(uint64_t slot_bytes, uint32_t total, uint64_t unit_bytes);

/* Bytes of the pieces of n slots, at least 1. The caller knows that the slots' bytes can be counted. */
uint64_t arena_bytes(struct arena_layout l, uint64_t slot_bytes, uint64_t unit_bytes, uint32_t n);
/* The most slots, up to `most`, whose pieces take so many bytes; 0: not one. */
uint32_t arena_slots_in(struct arena_layout l, uint64_t slot_bytes, uint64_t unit_bytes, uint64_t bytes,
                        uint32_t most);

#endif
