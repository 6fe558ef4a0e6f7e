/* The portable build's reading of the types with codebooks (pack_iq.c). Included by portable.c. */
#ifndef MOED_KERNELS_PORTABLE_IQ_H
#define MOED_KERNELS_PORTABLE_IQ_H

#include "kernels/tile_layout.h"
#include "quant/grids.h"

#include <stdbool.h>

/* The word of signs with the signs that the format leaves out, in place of its upper 4 bits: each
 * makes the number of minus signs in 8 columns even. */
static inline uint32_t tile_even_signs(uint32_t word)
{
    uint32_t signs = word & 0x0fffffff, of_4_bytes = signs;

    of_4_bytes ^= of_4_bytes << 16;
    of_4_bytes ^= of_4_bytes << 8; /* the upper byte: all four */
    return signs | ((of_4_bytes ^ of_4_bytes << 4) & 0xf0000000);
}

/* Of column c of 32. */
static inline bool tile_is_negative(uint32_t signs, unsigned c)
{
    return signs >> (8 * (c % 4) + 4 * (c / 4 % 2) + c / 8) & 1;
}

/* Columns [c, c + n) of 32: a point's n bytes, with signs. */
static inline void put_point(uint64_t point, uint32_t signs, unsigned c, unsigned n, int8_t *quants)
{
    for (unsigned i = 0; i < n; i++) {
        int value = (int)(point >> 8 * i & 255);
        quants[c + i] = (int8_t)(tile_is_negative(signs, c + i) ? -value : value);
    }
}

/* The `bits` upper bits of index k, of n in a sub-block; the high words at p hold `subs` sub-blocks
 * each. */
static inline unsigned tile_high(const uint8_t *p, unsigned row, unsigned sub, unsigned subs,
                                 unsigned n, unsigned bits, unsigned k)
{
    uint32_t word = tile_word(p, sub / subs, row);
    unsigned field = sub % subs * (n / 2) + k / 2;

    return word >> (bits * field + 16 * (k % 2)) & ((1u << bits) - 1);
}

static inline unsigned index_byte(uint32_t word, unsigned k)
{
    return word >> 8 * k & 255;
}

/* 8 columns of IQ1. */
static inline void put_iq1(unsigned index, bool minus, int8_t *quants)
{
    for (unsigned i = 0; i < 8; i++) {
        unsigned level = quant_grid_iq1()[index] >> (8 * (i % 4) + 4 * (i / 4)) & 15;
        quants[i] = quant_iq1_values[level | (minus ? 4u : 0u)];
    }
}

#endif
