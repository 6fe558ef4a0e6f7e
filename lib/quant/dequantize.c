/* Blocks to float32: one function a type, each the definition of its layout. The order of the float
 * operations is part of the definition. */
#include "quant/quant.h"

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
    switch (type) {
    case TENSOR_F32:
        dequantize_f32(row, out, n);
        return;
    case TENSOR_F16:
        dequantize_f16(row, out, n);
        return;
    case TENSOR_BF16:
        dequantize_bf16(row, out, n);
        return;
    case TENSOR_Q8_0:
        dequantize_q8_0(row, out, n);
        return;
    case TENSOR_Q4_0:
        dequantize_q4_0(row, out, n);
        return;
    case TENSOR_Q4_K:
        dequantize_q4_k(row, out, n);
        return;
    case TENSOR_Q5_K:
        dequantize_q5_k(row, out, n);
        return;
    case TENSOR_Q6_K:
        dequantize_q6_k(row, out, n);
        return;
    default:
        abort(); /* the caller checks tensor_type_info()->computes */
    }
}
