/* Converts blocks of the IQ types with codebooks to float32. Each function is the definition of its
 * type's layout. Every product is exact in float32, so the order of the operations is free. */
#include "quant/grids.h"
#include "quant/quant.h"
#include "quant/quant_iq.h"

static uint32_t load_u16(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static uint32_t load_u32(const uint8_t *p)
{
    return load_u16(p) | load_u16(p + 2) << 16;
}

static float load_half(const uint8_t *p)
{
    return half_to_float((uint16_t)load_u16(p));
}

/* n values, the bytes of a point of a codebook; bit i of signs is value i's. */
static void put_point(uint64_t point, unsigned signs, unsigned n, float scale, float *out)
{
    for (unsigned i = 0; i < n; i++) {
        int value = (int)(point >> 8 * i & 255);
        out[i] = scale * (float)(signs >> i & 1 ? -value : value);
    }
}

/* half d; for each 32 values 4 bytes of indices, then a word: 7 bits of signs for each 8 values,
 * and a scale in the upper 4: (d / 8) * (2 * scale + 1). */
void dequantize_iq2_xxs(const uint8_t *block, float *out, size_t n)
{
    for (; n; n -= 256, block += 66) {
        float d = load_half(block) * 0.125f;
        for (unsigned s = 0; s < 8; s++) {
            const uint8_t *p = block + 2 + 8 * s;
            uint32_t signs = load_u32(p + 4);
            for (unsigned k = 0; k < 4; k++, out += 8)
                put_point(quant_grid_iq2_xxs[p[k]], quant_even_signs(signs >> 7 * k & 127), 8,
                          d * (float)(2 * (signs >> 28) + 1), out);
        }
    }
}

/* half d; for each 8 values 16 bits: 9 of an index, 7 of signs; 16 nibbles of scales, one for each
 * 16 values: (d / 8) * (2 * scale + 1). */
void dequantize_iq2_xs(const uint8_t *block, float *out, size_t n)
{
    for (; n; n -= 256, block += 74) {
        float d = load_half(block) * 0.125f;
        for (unsigned k = 0; k < 32; k++, out += 8) {
            uint32_t q = load_u16(block + 2 + 2 * k);
            unsigned scale = block[66 + k / 4] >> 4 * (k / 2 % 2) & 15;
            put_point(quant_grid_iq2_xs[q & 511], quant_even_signs(q >> 9), 8,
                      d * (float)(2 * scale + 1), out);
        }
    }
}

/* half d; for each 8 values 8 bits of an index (32 bytes) and 8 signs (32 bytes), then the upper 2
 * bits of the indices, 4 in a byte; scales as IQ2_XS. */
void dequantize_iq2_s(const uint8_t *block, float *out, size_t n)
{
    for (; n; n -= 256, block += 82) {
        float d = load_half(block) * 0.125f;
        for (unsigned k = 0; k < 32; k++, out += 8) {
            unsigned index = block[2 + k] | (block[66 + k / 4] >> 2 * (k % 4) & 3u) << 8;
            unsigned scale = block[74 + k / 4] >> 4 * (k / 2 % 2) & 15;
            put_point(quant_grid_iq2_s[index], block[34 + k], 8, d * (float)(2 * scale + 1), out);
        }
    }
}

/* half d; 64 indices, one for each 4 values; for each 32 values a word as in IQ2_XXS:
 * (d / 4) * (2 * scale + 1). */
void dequantize_iq3_xxs(const uint8_t *block, float *out, size_t n)
{
    for (; n; n -= 256, block += 98) {
        float d = load_half(block) * 0.25f;
        for (unsigned k = 0; k < 64; k++, out += 4) {
            uint32_t word = load_u32(block + 66 + 4 * (k / 8));
            unsigned signs = quant_even_signs(word >> 7 * (k / 2 % 4) & 127);
            put_point(quant_grid_iq3_xxs()[block[2 + k]], signs >> 4 * (k % 2), 4,
                      d * (float)(2 * (word >> 28) + 1), out);
        }
    }
}

/* half d; 64 indices, their ninth bits, 8 in a byte; a sign for each value; 8 nibbles of scales,
 * one for each 32 values: d * (2 * scale + 1). */
void dequantize_iq3_s(const uint8_t *block, float *out, size_t n)
{
    for (; n; n -= 256, block += 110) {
        float d = load_half(block);
        for (unsigned k = 0; k < 64; k++, out += 4) {
            unsigned index = block[2 + k] | (block[66 + k / 8] >> k % 8 & 1u) << 8;
            unsigned scale = block[106 + k / 16] >> 4 * (k / 8 % 2) & 15;
            put_point(quant_grid_iq3_s()[index], block[74 + k / 2] >> 4 * (k % 2), 4,
                      d * (float)(2 * scale + 1), out);
        }
    }
}

/* 8 values of IQ1: scale * (8 * level + 1), or - 1. */
static void put_iq1(unsigned index, bool minus, float scale, float *out)
{
    for (unsigned i = 0; i < 8; i++) {
        unsigned level = quant_grid_iq1()[index] >> (8 * (i % 4) + 4 * (i / 4)) & 15;
        out[i] = scale * (float)quant_iq1_values[level | (minus ? 4u : 0u)];
    }
}

/* half d; 32 indices, one for each 8 values; for each 32 values 16 bits: the upper 3 bits of the 4
 * indices, a scale of 3 bits, and whether an eighth is subtracted from the levels or added:
 * (d / 8) * (2 * scale + 1). */
void dequantize_iq1_s(const uint8_t *block, float *out, size_t n)
{
    for (; n; n -= 256, block += 50) {
        float d = load_half(block) * 0.125f;
        for (unsigned k = 0; k < 32; k++, out += 8) {
            uint32_t high = load_u16(block + 34 + 2 * (k / 4));
            unsigned index = block[2 + k] | (high >> 3 * (k % 4) & 7) << 8;
            put_iq1(index, high >> 15, d * (float)(2 * (high >> 12 & 7) + 1), out);
        }
    }
}

/* 32 indices; for each a nibble: its upper 3 bits, and the bit of IQ1_S's eighth; four 16-bit words
 * of four scales each, of 16 values, and 4 bits of the half d: (d / 8) * (2 * scale + 1). */
void dequantize_iq1_m(const uint8_t *block, float *out, size_t n)
{
    for (; n; n -= 256, block += 56) {
        float d = half_to_float(quant_iq1_m_d(block + 48)) * 0.125f;
        for (unsigned k = 0; k < 32; k++, out += 8) {
            unsigned high = block[32 + k / 2] >> 4 * (k % 2) & 15;
            unsigned scale = load_u16(block + 48 + 2 * (k / 8)) >> 3 * (k / 2 % 4) & 7;
            put_iq1(block[k] | (high & 7) << 8, high >> 3, d * (float)(2 * scale + 1), out);
        }
    }
}
