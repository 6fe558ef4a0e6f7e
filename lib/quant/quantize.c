/* Float32 to blocks by plain rounding; the inverse of dequantize.c, to within the type's step.
 *
 * Q8_0, Q4_0 choose the same bits as ggml's reference. For the K types ggml searches for better
 * scales; here each sub-block spans its extremes, and quants are rounded against the scales as
 * stored. */
#include "quant/quant.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void store_u16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

/* The nearest integer of low..high; a NaN gives low. */
static int round_clamped(float x, int low, int high)
{
    if (!(x > (float)low))
        return low;
    if (x >= (float)high)
        return high;
    return (int)lrintf(x);
}

static float reciprocal_or_zero(float x)
{
    return x != 0 ? 1.0f / x : 0.0f;
}

/* The value of the largest magnitude, with its sign. */
static float extreme(const float *in, int n)
{
    float best = 0;
    for (int i = 0; i < n; i++)
        if (fabsf(in[i]) > fabsf(best))
            best = in[i];
    return best;
}

static void quantize_f32(const float *in, uint8_t *row, size_t n)
{
    memcpy(row, in, n * sizeof *in);
}

static void quantize_f16(const float *in, uint8_t *row, size_t n)
{
    for (size_t i = 0; i < n; i++)
        store_u16(row + 2 * i, float_to_half(in[i]));
}

static void quantize_bf16(const float *in, uint8_t *row, size_t n)
{
    for (size_t i = 0; i < n; i++)
        store_u16(row + 2 * i, float_to_bf16(in[i]));
}

static void quantize_q8_0(const float *in, uint8_t *block, size_t n)
{
    for (; n; n -= 32, block += 34, in += 32) {
        float d = fabsf(extreme(in, 32)) / 127.0f;
        float inverse = reciprocal_or_zero(d);
        store_u16(block, float_to_half(d));
        for (int i = 0; i < 32; i++) /* ties away from zero, as ggml */
            block[2 + i] = (uint8_t)round_clamped(roundf(in[i] * inverse), -127, 127);
    }
}

/* The extreme becomes exactly -8, whichever its sign. */
static void quantize_q4_0(const float *in, uint8_t *block, size_t n)
{
    for (; n; n -= 32, block += 18, in += 32) {
        float d = extreme(in, 32) / -8.0f;
        float inverse = reciprocal_or_zero(d);
        store_u16(block, float_to_half(d));
        uint8_t q[32];
        for (int i = 0; i < 32; i++) /* floor(x + 1/2), as ggml */
            q[i] = (uint8_t)round_clamped(floorf(in[i] * inverse + 8.5f), 0, 15);
        for (int i = 0; i < 16; i++)
            block[2 + i] = (uint8_t)(q[i] | q[i + 16] << 4);
    }
}

/* Super-block scales and the quants of a Q4_K (levels 15) or Q5_K (levels 31) block: writes d, dmin
 * and the packed scales to block[0..16), the quants to q[256]. */
static void quantize_k_min(const float *in, int levels, uint8_t *block, uint8_t q[256])
{
    float scales[8], mins[8], max_scale = 0, max_min = 0;
    for (int j = 0; j < 8; j++) {
        float low = 0, high = in[32 * j]; /* the minimum is subtracted, so it is never above zero */
        for (int i = 0; i < 32; i++) {
            float x = in[32 * j + i];
            low = x < low ? x : low;
            high = x > high ? x : high;
        }
        high = high > low ? high : low;
        scales[j] = (high - low) / (float)levels;
        mins[j] = -low;
        max_scale = scales[j] > max_scale ? scales[j] : max_scale;
        max_min = mins[j] > max_min ? mins[j] : max_min;
    }
    uint16_t d_half = float_to_half(max_scale / 63.0f);
    uint16_t dmin_half = float_to_half(max_min / 63.0f);
    float d = half_to_float(d_half), dmin = half_to_float(dmin_half);
    float d_inverse = reciprocal_or_zero(d), dmin_inverse = reciprocal_or_zero(dmin);
    memset(block, 0, 16);
    store_u16(block, d_half);
    store_u16(block + 2, dmin_half);
    uint8_t *packed = block + 4;
    for (int j = 0; j < 8; j++) {
        /* The scale is rounded up, else the extremes would be cut off. */
        uint8_t scale = (uint8_t)round_clamped(ceilf(scales[j] * d_inverse), 0, 63);
        uint8_t min = (uint8_t)round_clamped(mins[j] * dmin_inverse, 0, 63);
        if (j < 4) {
            packed[j] |= scale;
            packed[j + 4] |= min;
        } else {
            packed[j + 4] |= (uint8_t)((scale & 15) | (min & 15) << 4);
            packed[j - 4] |= (uint8_t)(scale >> 4 << 6);
            packed[j] |= (uint8_t)(min >> 4 << 6);
        }
        float inverse = reciprocal_or_zero(d * (float)scale), sub_min = dmin * (float)min;
        for (int i = 0; i < 32; i++)
            q[32 * j + i] = (uint8_t)round_clamped((in[32 * j + i] + sub_min) * inverse, 0, levels);
    }
}

/* Low nibbles of q into the 128 bytes qs: values 0-31 of each 64 low, 32-63 high. */
static void pack_nibbles(const uint8_t q[256], uint8_t *qs)
{
    for (int group = 0; group < 4; group++)
        for (int i = 0; i < 32; i++)
            qs[32 * group + i] =
                (uint8_t)((q[64 * group + i] & 15) | (q[64 * group + 32 + i] & 15) << 4);
}

static void quantize_q4_k(const float *in, uint8_t *block, size_t n)
{
    for (; n; n -= 256, block += 144, in += 256) {
        uint8_t q[256];
        quantize_k_min(in, 15, block, q);
        pack_nibbles(q, block + 16);
    }
}

static void quantize_q5_k(const float *in, uint8_t *block, size_t n)
{
    for (; n; n -= 256, block += 176, in += 256) {
        uint8_t q[256];
        quantize_k_min(in, 31, block, q);
        memset(block + 16, 0, 32);
        for (int j = 0; j < 8; j++)
            for (int i = 0; i < 32; i++)
                block[16 + i] |= (uint8_t)(q[32 * j + i] >> 4 << j);
        pack_nibbles(q, block + 48);
    }
}

/* Each 16 values have a signed scale under which their extreme is -32; the largest scale is -128.
 */
static void quantize_q6_k_block(const float *in, uint8_t *block)
{
    float scales[16];
    for (int j = 0; j < 16; j++)
        scales[j] = extreme(in + 16 * j, 16) / -32.0f;
    uint16_t d_half = float_to_half(extreme(scales, 16) / -128.0f);
    float d = half_to_float(d_half), d_inverse = reciprocal_or_zero(d);
    uint8_t q[256];
    for (int j = 0; j < 16; j++) {
        int scale = round_clamped(scales[j] * d_inverse, -128, 127);
        float inverse = reciprocal_or_zero(d * (float)scale);
        block[192 + j] = (uint8_t)scale;
        for (int i = 0; i < 16; i++)
            q[16 * j + i] = (uint8_t)(round_clamped(in[16 * j + i] * inverse, -32, 31) + 32);
    }
    for (int half = 0; half < 2; half++) {
        const uint8_t *h = q + 128 * half;
        for (int i = 0; i < 32; i++) {
            block[64 * half + i] = (uint8_t)((h[i] & 15) | (h[i + 64] & 15) << 4);
            block[64 * half + 32 + i] = (uint8_t)((h[i + 32] & 15) | (h[i + 96] & 15) << 4);
            block[128 + 32 * half + i] = (uint8_t)(h[i] >> 4 | h[i + 32] >> 4 << 2 |
                                                   h[i + 64] >> 4 << 4 | h[i + 96] >> 4 << 6);
        }
    }
    store_u16(block + 208, d_half);
}

static void quantize_q6_k(const float *in, uint8_t *block, size_t n)
{
    for (; n; n -= 256, block += 210, in += 256)
        quantize_q6_k_block(in, block);
}

void quant_quantize(enum tensor_type type, const float *in, void *row, size_t n)
{
    switch (type) {
    case TENSOR_F32:
        quantize_f32(in, row, n);
        return;
    case TENSOR_F16:
        quantize_f16(in, row, n);
        return;
    case TENSOR_BF16:
        quantize_bf16(in, row, n);
        return;
    case TENSOR_Q8_0:
        quantize_q8_0(in, row, n);
        return;
    case TENSOR_Q4_0:
        quantize_q4_0(in, row, n);
        return;
    case TENSOR_Q4_K:
        quantize_q4_k(in, row, n);
        return;
    case TENSOR_Q5_K:
        quantize_q5_k(in, row, n);
        return;
    case TENSOR_Q6_K:
        quantize_q6_k(in, row, n);
        return;
    default:
        abort(); /* the caller checks tensor_type_info()->computes */
    }
}
