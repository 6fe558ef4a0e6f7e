/* Offsets inside tiles: what tile.c writes and the kernels read. Private to lib/kernels.
 *
 * A "group" is 4 consecutive columns of one row, one byte each in a 32-bit word; a "vector" is the
 * same group of all 16 rows, 64 bytes. The layout of each type stands in tile.c, above its packer.
 */
#ifndef MOED_KERNELS_TILE_LAYOUT_H
#define MOED_KERNELS_TILE_LAYOUT_H

#include <stdint.h>
#include <string.h>

enum {
    TILE_VECTOR = 64, /* 16 rows x 4 bytes */
    TILE_HALVES = 32, /* 16 rows x one fp16 */

    Q8_0_QUANTS = TILE_HALVES,
    Q8_0_TILE = Q8_0_QUANTS + 8 * TILE_VECTOR,

    Q4_0_QUANTS = TILE_HALVES,
    Q4_0_TILE = Q4_0_QUANTS + 4 * TILE_VECTOR,

    K_MINS = TILE_HALVES,       /* Q4_K and Q5_K: 16 fp16 dmin */
    K_SCALES = 2 * TILE_HALVES, /* Q4_K and Q5_K: 3 vectors of packed scales */
    K_QUANTS = K_SCALES + 3 * TILE_VECTOR,
    Q4_K_SUB = 4 * TILE_VECTOR, /* bytes a sub-block of 32 columns */
    Q4_K_TILE = K_QUANTS + 8 * Q4_K_SUB,
    Q5_K_SUB = 5 * TILE_VECTOR, /* nibbles, then high bits */
    Q5_K_TILE = K_QUANTS + 8 * Q5_K_SUB,

    Q6_K_SCALES = TILE_HALVES, /* 4 vectors of int8 scales */
    Q6_K_QUANTS = Q6_K_SCALES + 4 * TILE_VECTOR,
    Q6_K_SUB = 6 * TILE_VECTOR, /* nibbles, then two vectors of 2-bit highs */
    Q6_K_TILE = Q6_K_QUANTS + 8 * Q6_K_SUB,
};

_Static_assert(Q8_0_TILE == 16 * 34, "a Q8_0 tile is as large as its blocks");
_Static_assert(Q4_0_TILE == 16 * 18, "a Q4_0 tile is as large as its blocks");
_Static_assert(Q4_K_TILE == 16 * 144, "a Q4_K tile is as large as its blocks");
_Static_assert(Q5_K_TILE == 16 * 176, "a Q5_K tile is as large as its blocks");
_Static_assert(Q6_K_TILE == 16 * 210, "a Q6_K tile is as large as its blocks");

static inline uint32_t load_u32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void store_u32(void *p, uint32_t v)
{
    memcpy(p, &v, sizeof v);
}

static inline uint16_t load_u16(const void *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void store_u16(void *p, uint16_t v)
{
    memcpy(p, &v, sizeof v);
}

/* Word `row` of vector `index` at p. */
static inline uint32_t tile_word(const uint8_t *p, unsigned index, unsigned row)
{
    return load_u32(p + index * TILE_VECTOR + 4 * row);
}

/* Group g (0-7) of the 32 columns whose four vectors of nibbles stand at p. */
static inline uint32_t tile_nibbles(const uint8_t *p, unsigned g, unsigned row)
{
    return (tile_word(p, g / 2, row) >> (4 * (g % 2))) & 0x0f0f0f0f;
}

#endif
