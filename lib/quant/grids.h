/* The codebooks of the IQ types as the kernels look them up, and the bits that the formats pack.
 *
 * A file's block has an index for each 4 values (IQ3) or 8 values (IQ1, IQ2). It selects a point of
 * the type's codebook, whose levels are the values but for sign and scale. */
#ifndef MOED_QUANT_GRIDS_H
#define MOED_QUANT_GRIDS_H

#include <stdint.h>

/* A byte for each value, the first one lowest: 8, 25, 43. */
extern const uint64_t quant_grid_iq2_xxs[256], quant_grid_iq2_xs[512], quant_grid_iq2_s[1024];

/* Points of 4 bytes have a few words before and after them, because kernels load more than a point:
 * a row's point goes to its lane without being moved. The functions below find them. */
enum { QUANT_GRID_PAD = 4 };
extern const uint32_t quant_padded_iq3_xxs[256 + 2 * QUANT_GRID_PAD];
extern const uint32_t quant_padded_iq3_s[512 + 2 * QUANT_GRID_PAD];
extern const uint32_t quant_padded_iq1[2048 + 2 * QUANT_GRID_PAD];

/* A byte for each value: 4 to 62, of IQ3_S odd numbers to 15. */
static inline const uint32_t *quant_grid_iq3_xxs(void)
{
    return quant_padded_iq3_xxs + QUANT_GRID_PAD;
}

static inline const uint32_t *quant_grid_iq3_s(void)
{
    return quant_padded_iq3_s + QUANT_GRID_PAD;
}

/* IQ1_S and IQ1_M: a nibble for each value: 0, 1, 2 for the levels -1, 0, 1. The low nibbles of the
 * four bytes are values 0 to 3, the high ones 4 to 7. */
static inline const uint32_t *quant_grid_iq1(void)
{
    return quant_padded_iq1 + QUANT_GRID_PAD;
}

/* Eight times the values of IQ1: 8 * level + 1, and 8 * level - 1 with 4 added to the nibble. */
extern const int8_t quant_iq1_values[16];

/* The signs of 8 values, one bit each, from 7 bits: the eighth makes the number of minus signs
 * even. */
static inline uint8_t quant_even_signs(unsigned seven)
{
    return (uint8_t)(seven | (unsigned)__builtin_parity(seven) << 7);
}

/* The half d of an IQ1_M block: the upper 4 bits of each of the four 16-bit words of its 8 bytes of
 * scales. */
uint16_t quant_iq1_m_d(const uint8_t scales[8]);

#endif
