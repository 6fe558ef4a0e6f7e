/* Offsets inside tiles: what tile.c writes and the kernels read. Private to lib/kernels.
 *
 * A "group" is 4 consecutive columns of one row, one byte each in a 32-bit word; a "vector" is the
 * same group of all 16 rows, 64 bytes. The layout of each type stands above its packer, in pack_32.c and
 * pack_256.c.
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

    Q4_1_QUANTS = 2 * TILE_HALVES,
    Q4_1_TILE = Q4_1_QUANTS + 4 * TILE_VECTOR,

    Q5_0_QUANTS = TILE_HALVES,
    Q5_0_TILE = Q5_0_QUANTS + 5 * TILE_VECTOR,

    Q5_1_QUANTS = 2 * TILE_HALVES,
    Q5_1_TILE = Q5_1_QUANTS + 5 * TILE_VECTOR,

    MXFP4_QUANTS = 16, /* after 16 exponents */
    MXFP4_TILE = MXFP4_QUANTS + 4 * TILE_VECTOR,

    K_MINS = TILE_HALVES,       /* Q2_K, Q4_K and Q5_K: 16 fp16 dmin */
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

    Q2_K_SCALES = 2 * TILE_HALVES, /* 4 vectors of nibbles, scales and minima */
    Q2_K_QUANTS = Q2_K_SCALES + 4 * TILE_VECTOR,
    Q2_K_SUB = 2 * TILE_VECTOR,
    Q2_K_TILE = Q2_K_QUANTS + 8 * Q2_K_SUB,

    Q3_K_SCALES = TILE_HALVES, /* 3 vectors of packed scales */
    Q3_K_QUANTS = Q3_K_SCALES + 3 * TILE_VECTOR,
    Q3_K_SUB = 3 * TILE_VECTOR,
    Q3_K_TILE = Q3_K_QUANTS + 8 * Q3_K_SUB,

    IQ4_XS_HIGH = TILE_HALVES,    /* 16 x 16 bits */
    IQ4_XS_LOW = 2 * TILE_HALVES, /* 1 vector */
    IQ4_XS_QUANTS = IQ4_XS_LOW + TILE_VECTOR,
    IQ4_XS_TILE = IQ4_XS_QUANTS + 8 * Q4_K_SUB,
};

_Static_assert(Q8_0_TILE == 16 * 34, "a Q8_0 tile is as large as its blocks");
_Static_assert(Q4_0_TILE == 16 * 18, "a Q4_0 tile is as large as its blocks");
_Static_assert(Q4_1_TILE == 16 * 20, "a Q4_1 tile is as large as its blocks");
_Static_assert(Q5_0_TILE == 16 * 22, "a Q5_0 tile is as large as its blocks");
_Static_assert(Q5_1_TILE == 16 * 24, "a Q5_1 tile is as large as its blocks");
_Static_assert(MXFP4_TILE == 16 * 17, "an MXFP4 tile is as large as its blocks");
_Static_assert(Q2_K_TILE == 16 * 84, "a Q2_K tile is as large as its blocks");
_Static_assert(Q3_K_TILE == 16 * 110, "a Q3_K tile is as large as its blocks");
_Static_assert(Q4_K_TILE == 16 * 144, "a Q4_K tile is as large as its blocks");
_Static_assert(Q5_K_TILE == 16 * 176, "a Q5_K tile is as large as its blocks");
_Static_assert(Q6_K_TILE == 16 * 210, "a Q6_K tile is as large as its blocks");
_Static_assert(IQ4_XS_TILE == 16 * 136, "an IQ4_XS tile is as large as its blocks");

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

/* Group g (0-7) of the 32 columns of Q3_K whose three vectors stand at p. */
static inline uint32_t tile_3_bits(const uint8_t *p, unsigned g, unsigned row)
{
    if (g < 6)
        return (tile_word(p, g / 2, row) >> (3 * (g % 2))) & 0x07070707;
    return ((tile_word(p, g - 6, row) >> 6) & 0x03030303) |
           ((tile_word(p, 2, row) >> (g - 2)) & 0x04040404);
}

#endif
