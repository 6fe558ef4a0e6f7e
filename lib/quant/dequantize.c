/* Converts blocks to float32. Each function is the definition of its type's layout, including the
 * order of the float operations. dequantize_iq.c has the IQ types with codebooks. */
#include "quant/quant.h"
#include "quant/quant_iq.h"

#include <stdlib.h>
#include <string.h>

static uint16_t load_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static void dequantize_f32(const uint8_t *row, float *out, size_t n)
{
    memcpy(out, row, n * sizeof *out);
}

static void dequantize_f16(const uint8_t *row, float *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = half_to_float(load_u16(row + 2 * i));
}

static void dequantize_bf16(const uint8_t *row, float *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = bf16_to_float(load_u16(row + 2 * i));
}

/* half d; int8 q[32]: d * q. */
static void dequantize_q8_0(const uint8_t *block, float *out, size_t n)
{
    for (; n; n -= 32, block += 34, out += 32) {
        float d = half_to_float(load_u16(block));
        for (int i = 0; i < 32; i++)
            out[i] = d * (float)(int8_t)block[2 + i];
    }
}

/* half d; 16 bytes, low nibbles values 0-15, high nibbles 16-31: d * (q - 8). */
static void dequantize_q4_0(const uint8_t *block, float *out, size_t n)
{
    for (; n; n -= 32, block += 18, out += 32) {
        float d = half_to_float(load_u16(block));
        for (int i = 0; i < 16; i++) {
            out[i] = d * (float)((block[2 + i] & 15) - 8);
            out[i + 16] = d * (float)((block[2 + i] >> 4) - 8);
        }
    }
}

/* half d, half m; 16 bytes as Q4_0: d * q + m. */
static void dequantize_q4_1(const uint8_t *block, float *out, size_t n)
{
    for (; n; n -= 32, block += 20, out += 32) {
        float d = half_to_float(load_u16(block)), m = half_to_float(load_u16(block + 2));
        for (int i = 0; i < 16; i++) {
            out[i] = d * (float)(block[4 + i] & 15) + m;
            out[i + 16] = d * (float)(block[4 + i] >> 4) + m;
        }
    }
}

/* The 5-bit quant i of 4 bytes of high bits, value i in bit i, and 16 bytes of nibbles as Q4_0. */
static int quant_5_bits(const uint8_t *high, int i)
{
    const uint8_t *nibbles = high + 4;
    return (nibbles[i % 16] >> 4 * (i / 16) & 15) | (high[i / 8] >> i % 8 & 1) << 4;
}

/* half d; high bits, nibbles: d * (q - 16). */
static void dequantize_q5_0(const uint8_t *block, float *out, size_t n)
{
    for (; n; n -= 32, block += 22, out += 32) {
        float d = half_to_float(load_u16(block));
        for (int i = 0; i < 32; i++)
            out[i] = d * (float)(quant_5_bits(block + 2, i) - 16);
    }
}

/* half d, half m; high bits, nibbles: d * q + m. */
static void dequantize_q5_1(const uint8_t *block, float *out, size_t n)
{
    for (; n; n -= 32, block += 24, out += 32) {
        float d = half_to_float(load_u16(block)), m = half_to_float(load_u16(block + 2));
        for (int i = 0; i < 32; i++)
            out[i] = d * (float)quant_5_bits(block + 4, i) + m;
    }
}

/* 32 values: d * values[q], nibbles as Q4_0. */
static void dequantize_values(const int8_t values[16], float d, const uint8_t *nibbles, float *out)
{
    for (int i = 0; i < 16; i++) {
        out[i] = d * (float)values[nibbles[i] & 15];
        out[i + 16] = d * (float)values[nibbles[i] >> 4];
    }
}

/* half d, nibbles. */
static void dequantize_iq4_nl(const uint8_t *block, float *out, size_t n)
{
    for (; n; n -= 32, block += 18, out += 32)
        dequantize_values(quant_iq4_values, half_to_float(load_u16(block)), block + 2, out);
}

/* half d, 2 bytes of the scales' upper bits, 4 of their low ones, then for each 32 values 16 bytes
 * of nibbles: (d * scale) * value. */
static void dequantize_iq4_xs(const uint8_t *block, float *out, size_t n)
{
    for (; n; n -= 256, block += 136) {
        float d = half_to_float(load_u16(block));
        for (unsigned j = 0; j < 8; j++, out += 32) {
            float sub_d = d * (float)quant_iq4_xs_scale(block + 4, load_u16(block + 2), j);
            dequantize_values(quant_iq4_values, sub_d, block + 8 + 16 * j, out);
        }
    }
}

/* The exponent, nibbles. */
static void dequantize_mxfp4(const uint8_t *block, float *out, size_t n)
{
    for (; n; n -= 32, block += 17, out += 32)
        dequantize_values(quant_mxfp4_values, quant_mxfp4_scale(block[0]), block + 1, out);
}

/* 64 values: 4 scales, of 16 values each; for each 16 values 8 bytes, low nibbles values 0-7, high
 * nibbles 8-15. */
static void dequantize_nvfp4(const uint8_t *block, float *out, size_t n)
{
    for (; n; n -= 64, block += 36)
        for (int j = 0; j < 4; j++, out += 16) {
            float d = quant_nvfp4_scale(block[j]);
            for (int i = 0; i < 16; i++) {
                uint8_t both = block[4 + 8 * j + i % 8];
                out[i] = d * (float)quant_mxfp4_values[both >> 4 * (i / 8) & 15];
            }
        }
}

/* 16 bytes of a scale (low nibble) and a minimum for each 16 values; qs[64], 32 bytes for each 128
 * values: quarter k in bits 2k; half d, half dmin: (d * scale) * q - (dmin * min). */
static void dequantize_q2_k(const uint8_t *block, float *out, size_t n)
{
    for (; n; n -= 256, block += 84) {
        float d = half_to_float(load_u16(block + 80));
        float dmin = half_to_float(load_u16(block + 82));
        for (unsigned j = 0; j < 16; j++, out += 16) {
            const uint8_t *qs = block + 16 + 32 * (j / 8) + 16 * (j % 2);
            float sub_d = d * (float)(block[j] & 15), sub_min = dmin * (float)(block[j] >> 4);
            for (int i = 0; i < 16; i++)
                out[i] = sub_d * (float)(qs[i] >> 2 * (j / 2 % 4) & 3) - sub_min;
        }
    }
}

/* hmask[32], the third bit: of values 32s to 32s + 31 bit s; qs[64] as Q2_K; 12 bytes of scales,
 * one for each 16 values; half d: (d * scale) * (q - 4). */
static void dequantize_q3_k(const uint8_t *block, float *out, size_t n)
{
    for (; n; n -= 256, block += 110) {
        float d = half_to_float(load_u16(block + 108));
        for (unsigned j = 0; j < 16; j++, out += 16) {
            const uint8_t *high = block + 16 * (j % 2);
            const uint8_t *qs = block + 32 + 32 * (j / 8) + 16 * (j % 2);
            float sub_d = d * (float)quant_q3_k_scale(block + 96, j);
            for (int i = 0; i < 16; i++) {
                int q = (qs[i] >> 2 * (j / 2 % 4) & 3) | (high[i] >> j / 2 & 1) << 2;
                out[i] = sub_d * (float)(q - 4);
            }
        }
    }
}

/* half d, half dmin, 12 bytes of scales, then 4 groups of 64 values in 32 bytes: low nibbles the
 * first 32 values, high nibbles the next: (d * scale) * q - (dmin * min). */
static void dequantize_q4_k(const uint8_t *block, float *out, size_t n)
{
    for (; n; n -= 256, block += 144) {
        float d = half_to_float(load_u16(block));
        float dmin = half_to_float(load_u16(block + 2));
        for (unsigned j = 0; j < 8; j++, out += 32) {
            const uint8_t *qs = block + 16 + 32 * (j / 2);
            uint8_t scale, min;
            quant_k_scale_min(block + 4, j, &scale, &min);
            float sub_d = d * (float)scale, sub_min = dmin * (float)min;
            for (int i = 0; i < 32; i++)
                out[i] = sub_d * (float)(qs[i] >> 4 * (j % 2) & 15) - sub_min;
        }
    }
}

/* As Q4_K, with a fifth bit: of sub-block j, value i it is bit j of qh[i]. */
static void dequantize_q5_k(const uint8_t *block, float *out, size_t n)
{
    for (; n; n -= 256, block += 176) {
        float d = half_to_float(load_u16(block));
        float dmin = half_to_float(load_u16(block + 2));
        const uint8_t *qh = block + 16;
        for (unsigned j = 0; j < 8; j++, out += 32) {
            const uint8_t *qs = block + 48 + 32 * (j / 2);
            uint8_t scale, min;
            quant_k_scale_min(block + 4, j, &scale, &min);
            float sub_d = d * (float)scale, sub_min = dmin * (float)min;
            for (int i = 0; i < 32; i++) {
                int q = (qs[i] >> 4 * (j % 2) & 15) | (qh[i] >> j & 1) << 4;
                out[i] = sub_d * (float)q - sub_min;
            }
        }
    }
}

/* ql[128], qh[64], int8 scales[16], half d: halves of 128 values, each with 64 bytes of ql and 32
 * of qh. Quarter k (32 values) of a half: low 4 bits in ql[32 * (k % 2) + i], nibble k / 2; top 2
 * bits in bits 2k of qh[i]; a scale every 16 values: (d * scale) * (q - 32). */
static void dequantize_q6_k(const uint8_t *block, float *out, size_t n)
{
    for (; n; n -= 256, block += 210) {
        float d = half_to_float(load_u16(block + 208));
        for (unsigned part = 0; part < 8; part++, out += 32) {
            unsigned half = part / 4, k = part % 4;
            const uint8_t *ql = block + 64 * half + 32 * (k % 2);
            const uint8_t *qh = block + 128 + 32 * half;
            const uint8_t *scales = block + 192 + 2 * part;
            for (int i = 0; i < 32; i++) {
                int q = (ql[i] >> 4 * (k / 2) & 15) | (qh[i] >> 2 * k & 3) << 4;
                out[i] = d * (float)(int8_t)scales[i / 16] * (float)(q - 32);
            }
        }
    }
}

void quant_dequantize(enum tensor_type type, const void *row, float *out, size_t n)
{
    static dequantize_function *const functions[] = {
        [TENSOR_F32] = dequantize_f32,         [TENSOR_F16] = dequantize_f16,
        [TENSOR_BF16] = dequantize_bf16,       [TENSOR_Q8_0] = dequantize_q8_0,
        [TENSOR_Q4_0] = dequantize_q4_0,       [TENSOR_Q4_1] = dequantize_q4_1,
        [TENSOR_Q5_0] = dequantize_q5_0,       [TENSOR_Q5_1] = dequantize_q5_1,
        [TENSOR_Q2_K] = dequantize_q2_k,       [TENSOR_Q3_K] = dequantize_q3_k,
        [TENSOR_Q4_K] = dequantize_q4_k,       [TENSOR_Q5_K] = dequantize_q5_k,
        [TENSOR_Q6_K] = dequantize_q6_k,       [TENSOR_IQ4_NL] = dequantize_iq4_nl,
        [TENSOR_IQ4_XS] = dequantize_iq4_xs,   [TENSOR_MXFP4] = dequantize_mxfp4,
        [TENSOR_NVFP4] = dequantize_nvfp4,     [TENSOR_IQ3_S] = dequantize_iq3_s,
        [TENSOR_IQ3_XXS] = dequantize_iq3_xxs, [TENSOR_IQ2_S] = dequantize_iq2_s,
        [TENSOR_IQ2_XS] = dequantize_iq2_xs,   [TENSOR_IQ2_XXS] = dequantize_iq2_xxs,
        [TENSOR_IQ1_S] = dequantize_iq1_s,     [TENSOR_IQ1_M] = dequantize_iq1_m,
    };
    size_t index = (size_t)type;

    /* The caller checks tensor_type_info()->computes. */
    if (index >= sizeof functions / sizeof functions[0] || functions[index] == NULL)
        abort();
    functions[index](row, out, n);
}
