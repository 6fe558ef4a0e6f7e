/* Offsets inside tiles: tile.c writes by them, the kernels read by them. Private to lib/kernels.
 *
 * A group is 4 consecutive columns of one row, one byte each in a 32-bit word. A vector is the same
 * group of all 16 rows, 64 bytes. The comments in pack_32.c, pack_256.c and pack_iq.c have each
 * type's layout.
 */
#ifndef MOED_KERNELS_TILE_LAYOUT_H
#define MOED_KERNELS_TILE_LAYOUT_H

#include <stddef.h>
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

    NVFP4_QUANTS = TILE_HALVES, /* after the 2 scales of each row's 32 columns; half a block */
    NVFP4_TILE = NVFP4_QUANTS + 4 * TILE_VECTOR,

    K_MINS = TILE_HALVES,       /* Q2_K, Q4_K and Q5_K: 16 fp16 dmin */
    K_SCALES = 2 * TILE_HALVES, /* Q4_K and Q5_K: 3 vectors of packed scales */
    K_QUANTS = K_SCALES + 3 * TILE_VECTOR,
    Q4_K_SUB = 4 * TILE_VECTOR, /* bytes of a sub-block of 32 columns */
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

    /* The types with codebooks (pack_iq.c): HIGH are the indices' upper bits. */
    IQ3_SUB = 3 * TILE_VECTOR, /* indices, signs */
    IQ3_XXS_QUANTS = TILE_HALVES,
    IQ3_XXS_TILE = IQ3_XXS_QUANTS + 8 * IQ3_SUB,
    IQ3_S_HIGH = TILE_HALVES,
    IQ3_S_SCALES = IQ3_S_HIGH + 2 * TILE_VECTOR,
    IQ3_S_QUANTS = IQ3_S_SCALES + TILE_VECTOR,
    IQ3_S_TILE = IQ3_S_QUANTS + 8 * IQ3_SUB,

    IQ2_SUB = 2 * TILE_VECTOR, /* indices, signs */
    IQ2_XXS_QUANTS = TILE_HALVES,
    IQ2_XXS_TILE = IQ2_XXS_QUANTS + 8 * IQ2_SUB,
    IQ2_XS_SCALES = TILE_HALVES,
    IQ2_XS_QUANTS = IQ2_XS_SCALES + 2 * TILE_VECTOR,
    IQ2_XS_TILE = IQ2_XS_QUANTS + 8 * IQ2_SUB,
    IQ2_S_HIGH = TILE_HALVES,
    IQ2_S_SCALES = IQ2_S_HIGH + 2 * TILE_VECTOR,
    IQ2_S_QUANTS = IQ2_S_SCALES + 2 * TILE_VECTOR,
    IQ2_S_TILE = IQ2_S_QUANTS + 8 * IQ2_SUB,

    IQ1_S_HIGH = TILE_HALVES, /* with scales and minus signs */
    IQ1_S_QUANTS = IQ1_S_HIGH + 4 * TILE_VECTOR,
    IQ1_S_TILE = IQ1_S_QUANTS + 8 * TILE_VECTOR,
    IQ1_M_SCALES = TILE_HALVES,                  /* 3 x 16 x 16 bits */
    IQ1_M_HIGH = IQ1_M_SCALES + 3 * TILE_HALVES, /* with minus signs */
    IQ1_M_QUANTS = IQ1_M_HIGH + 4 * TILE_VECTOR,
    IQ1_M_TILE = IQ1_M_QUANTS + 8 * TILE_VECTOR,
};

_Static_assert(Q8_0_TILE == 16 * 34, "a Q8_0 tile is as large as its blocks");
_Static_assert(Q4_0_TILE == 16 * 18, "a Q4_0 tile is as large as its blocks");
_Static_assert(Q4_1_TILE == 16 * 20, "a Q4_1 tile is as large as its blocks");
_Static_assert(Q5_0_TILE == 16 * 22, "a Q5_0 tile is as large as its blocks");
_Static_assert(Q5_1_TILE == 16 * 24, "a Q5_1 tile is as large as its blocks");
_Static_assert(MXFP4_TILE == 16 * 17, "an MXFP4 tile is as large as its blocks");
_Static_assert(2 * NVFP4_TILE == 16 * 36, "two NVFP4 tiles are as large as their blocks");
_Static_assert(Q2_K_TILE == 16 * 84, "a Q2_K tile is as large as its blocks");
_Static_assert(Q3_K_TILE == 16 * 110, "a Q3_K tile is as large as its blocks");
_Static_assert(Q4_K_TILE == 16 * 144, "a Q4_K tile is as large as its blocks");
_Static_assert(Q5_K_TILE == 16 * 176, "a Q5_K tile is as large as its blocks");
_Static_assert(Q6_K_TILE == 16 * 210, "a Q6_K tile is as large as its blocks");
_Static_assert(IQ4_XS_TILE == 16 * 136, "an IQ4_XS tile is as large as its blocks");
_Static_assert(IQ3_XXS_TILE == 16 * 98, "an IQ3_XXS tile is as large as its blocks");
_Static_assert(IQ3_S_TILE == 16 * 110, "an IQ3_S tile is as large as its blocks");
_Static_assert(IQ2_XXS_TILE == 16 * 66, "an IQ2_XXS tile is as large as its blocks");
_Static_assert(IQ2_XS_TILE == 16 * 74, "an IQ2_XS tile is as large as its blocks");
_Static_assert(IQ2_S_TILE == 16 * 82, "an IQ2_S tile is as large as its blocks");
_Static_assert(IQ1_S_TILE == 16 * 50, "an IQ1_S tile is as large as its blocks");
_Static_assert(IQ1_M_TILE == 16 * 56, "an IQ1_M tile is as large as its blocks");

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

/* The factor of a row of a tile row of row_bytes, of a type that has factors. */
static inline float tile_factor(const uint8_t *tile_row, size_t row_bytes, unsigned row)
{
    float factor;
    memcpy(&factor, tile_row + row_bytes - TILE_VECTOR + 4 * row, sizeof factor);
    return factor;
}

/* Word `row` of vector `index` at p. */
static inline uint32_t tile_word(const uint8_t *p, unsigned index, unsigned row)
{
    return load_u32(p + index * TILE_VECTOR + 4 * row);
}

/* Group g (0-7) of 32 columns, from their four vectors of nibbles at p. */
static inline uint32_t tile_nibbles(const uint8_t *p, unsigned g, unsigned row)
{
    return (tile_word(p, g / 2, row) >> (4 * (g % 2))) & 0x0f0f0f0f;
}

/* Group g (0-7) of 32 columns of Q3_K, from their three vectors at p. */
static inline uint32_t tile_3_bits(const uint8_t *p, unsigned g, unsigned row)
{
    if (g < 6)
        return (tile_word(p, g / 2, row) >> (3 * (g % 2))) & 0x07070707;
    return ((tile_word(p, g - 6, row) >> 6) & 0x03030303) |
           ((tile_word(p, 2, row) >> (g - 2)) & 0x04040404);
}

#endif
