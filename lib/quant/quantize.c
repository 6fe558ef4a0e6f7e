/* Converts float32 to blocks by plain rounding: the inverse of dequantize.c, within the type's
 * step.
 *
 * Q8_0, Q4_0, Q4_1, Q5_0, Q5_1 and MXFP4 give the same bits as ggml's reference. For the K and IQ
 * types ggml searches for better scales; here each sub-block spans its extremes, and the quants are
 * rounded with the stored scales. */
#include "quant/quant.h"
#include "quant/quant_iq.h"

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

/* The extreme becomes exactly -8, whatever its sign. */
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

static void store_nibbles(const uint8_t q[32], uint8_t *nibbles)
{
    for (int i = 0; i < 16; i++)
        nibbles[i] = (uint8_t)((q[i] & 15) | (q[i + 16] & 15) << 4);
}

/* 4 bytes of fifth bits, then the nibbles. */
static void store_5_bits(const uint8_t q[32], uint8_t *high)
{
    memset(high, 0, 4);
    for (int i = 0; i < 32; i++)
        high[i / 8] |= (uint8_t)(q[i] >> 4 << i % 8);
    store_nibbles(q, high + 4);
}

/* d and the minimum of 32 values to block[0..4), their quants of 0..levels to q. */
static void quantize_min_32(const float *in, int levels, uint8_t *block, uint8_t q[32])
{
    float low = in[0], high = in[0];
    for (int i = 1; i < 32; i++) {
        low = in[i] < low ? in[i] : low;
        high = in[i] > high ? in[i] : high;
    }
    float d = (high - low) / (float)levels, inverse = reciprocal_or_zero(d);
    store_u16(block, float_to_half(d));
    store_u16(block + 2, float_to_half(low));
    for (int i = 0; i < 32; i++) /* floor(x + 1/2), as ggml */
        q[i] = (uint8_t)round_clamped(floorf((in[i] - low) * inverse + 0.5f), 0, levels);
}

static void quantize_q4_1(const float *in, uint8_t *block, size_t n)
{
    for (; n; n -= 32, block += 20, in += 32) {
        uint8_t q[32];
        quantize_min_32(in, 15, block, q);
        store_nibbles(q, block + 4);
    }
}

static void quantize_q5_1(const float *in, uint8_t *block, size_t n)
{
    for (; n; n -= 32, block += 24, in += 32) {
        uint8_t q[32];
        quantize_min_32(in, 31, block, q);
        store_5_bits(q, block + 4);
    }
}

/* The extreme becomes exactly -16. */
static void quantize_q5_0(const float *in, uint8_t *block, size_t n)
{
    for (; n; n -= 32, block += 22, in += 32) {
        float d = extreme(in, 32) / -16.0f;
        float inverse = reciprocal_or_zero(d);
        uint8_t q[32];
        store_u16(block, float_to_half(d));
        for (int i = 0; i < 32; i++) /* floor(x + 1/2), as ggml */
            q[i] = (uint8_t)round_clamped(floorf(in[i] * inverse + 16.5f), 0, 31);
        store_5_bits(q, block + 2);
    }
}

/* The first of the 16 values that comes closest. */
static uint8_t nearest(const int8_t values[16], float d, float x)
{
    uint8_t best = 0;
    for (uint8_t k = 1; k < 16; k++)
        if (fabsf(d * (float)values[k] - x) < fabsf(d * (float)values[best] - x))
            best = k;
    return best;
}

static void quantize_values(const int8_t values[16], float d, const float *in, uint8_t *nibbles)
{
    uint8_t q[32];
    for (int i = 0; i < 32; i++)
        q[i] = nearest(values, d, in[i]);
    store_nibbles(q, nibbles);
}

/* The extreme becomes -127, the value of the largest magnitude. */
static void quantize_iq4_nl(const float *in, uint8_t *block, size_t n)
{
    for (; n; n -= 32, block += 18, in += 32) {
        uint16_t d = float_to_half(extreme(in, 32) / -127.0f);
        store_u16(block, d);
        quantize_values(quant_iq4_values, half_to_float(d), in, block + 2);
    }
}

/* The largest power of two under which the extreme is 4 or more: 6 is the largest value, the
 * doubled value 12. */
static void quantize_mxfp4(const float *in, uint8_t *block, size_t n)
{
    for (; n; n -= 32, block += 17, in += 32) {
        float most = fabsf(extreme(in, 32));
        int exponent = 0; /* frexp's: most = 1/2 to 1 times 2^exponent */
        frexpf(most, &exponent);
        block[0] = most > 0 ? (uint8_t)round_clamped((float)(exponent - 1 - 2 + 127), 0, 254) : 0;
        quantize_values(quant_mxfp4_values, quant_mxfp4_scale(block[0]), in, block + 1);
    }
}

/* The scale nearest to the one under which the extreme is 6, the largest value: doubled 12. */
static uint8_t nearest_nvfp4_scale(float most)
{
    uint8_t best = 0;
    for (uint8_t bits = 1; bits < 0x7f; bits++)
        if (fabsf(12 * quant_nvfp4_scale(bits) - most) < fabsf(12 * quant_nvfp4_scale(best) - most))
            best = bits;
    return best;
}

static void quantize_nvfp4(const float *in, uint8_t *block, size_t n)
{
    for (; n; n -= 64, block += 36)
        for (int j = 0; j < 4; j++, in += 16) {
            uint8_t *q = block + 4 + 8 * j;
            block[j] = nearest_nvfp4_scale(fabsf(extreme(in, 16)));
            float d = quant_nvfp4_scale(block[j]);
            for (int i = 0; i < 8; i++)
                q[i] = (uint8_t)(nearest(quant_mxfp4_values, d, in[i]) |
                                 nearest(quant_mxfp4_values, d, in[i + 8]) << 4);
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
        /* Round the scale up, so that the quants reach the extremes. */
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

/* Values of 2 bits, 256 of them, to qs[64]: 32 bytes for each 128, quarter k in bits 2k. */
static void pack_2_bits(const uint8_t q[256], uint8_t *qs)
{
    for (int i = 0; i < 64; i++) {
        const uint8_t *half = q + 128 * (i / 32) + i % 32;
        qs[i] = (uint8_t)((half[0] & 3) | (half[32] & 3) << 2 | (half[64] & 3) << 4 |
                          (half[96] & 3) << 6);
    }
}

/* Each 16 values span their extremes; scales and minima are rounded to 4 bits. */
static void quantize_q2_k_block(const float *in, uint8_t *block)
{
    float scales[16], mins[16], max_scale = 0, max_min = 0;
    for (int j = 0; j < 16; j++) {
        float low = 0, high = in[16 * j];
        for (int i = 0; i < 16; i++) {
            float x = in[16 * j + i];
            low = x < low ? x : low;
            high = x > high ? x : high;
        }
        high = high > low ? high : low;
        scales[j] = (high - low) / 3.0f;
        mins[j] = -low;
        max_scale = scales[j] > max_scale ? scales[j] : max_scale;
        max_min = mins[j] > max_min ? mins[j] : max_min;
    }
    uint16_t d_half = float_to_half(max_scale / 15.0f), dmin_half = float_to_half(max_min / 15.0f);
    float d = half_to_float(d_half), dmin = half_to_float(dmin_half);
    float d_inverse = reciprocal_or_zero(d), dmin_inverse = reciprocal_or_zero(dmin);
    uint8_t q[256];
    for (int j = 0; j < 16; j++) {
        int scale = round_clamped(scales[j] * d_inverse, 0, 15);
        int min = round_clamped(mins[j] * dmin_inverse, 0, 15);
        float inverse = reciprocal_or_zero(d * (float)scale), sub_min = dmin * (float)min;
        block[j] = (uint8_t)(scale | min << 4);
        for (int i = 16 * j; i < 16 * j + 16; i++)
            q[i] = (uint8_t)round_clamped((in[i] + sub_min) * inverse, 0, 3);
    }
    pack_2_bits(q, block + 16);
    store_u16(block + 80, d_half);
    store_u16(block + 82, dmin_half);
}

static void quantize_q2_k(const float *in, uint8_t *block, size_t n)
{
    for (; n; n -= 256, block += 84, in += 256)
        quantize_q2_k_block(in, block);
}

/* Each 16 values have a signed scale under which their extreme is -4; the largest scale is -32. */
static void quantize_q3_k_block(const float *in, uint8_t *block)
{
    float scales[16];
    for (int j = 0; j < 16; j++)
        scales[j] = extreme(in + 16 * j, 16) / -4.0f;
    uint16_t d_half = float_to_half(extreme(scales, 16) / -32.0f);
    float d = half_to_float(d_half), d_inverse = reciprocal_or_zero(d);
    uint8_t q[256];
    memset(block, 0, 110);
    for (int j = 0; j < 16; j++) {
        int scale = round_clamped(scales[j] * d_inverse, -32, 31);
        float inverse = reciprocal_or_zero(d * (float)scale);
        block[96 + j % 8] |= (uint8_t)(((scale + 32) & 15) << 4 * (j / 8));
        block[104 + j % 4] |= (uint8_t)((scale + 32) >> 4 << 2 * (j / 4));
        for (int i = 16 * j; i < 16 * j + 16; i++) {
            q[i] = (uint8_t)(round_clamped(in[i] * inverse, -4, 3) + 4);
            block[i % 32] |= (uint8_t)(q[i] >> 2 << i / 32);
        }
    }
    pack_2_bits(q, block + 32);
    store_u16(block + 108, d_half);
}

static void quantize_q3_k(const float *in, uint8_t *block, size_t n)
{
    for (; n; n -= 256, block += 110, in += 256)
        quantize_q3_k_block(in, block);
}

/* Each 32 values have a signed scale under which their extreme is -127; the largest scale is -32.
 */
static void quantize_iq4_xs_block(const float *in, uint8_t *block)
{
    float scales[8];
    for (int j = 0; j < 8; j++)
        scales[j] = extreme(in + 32 * j, 32) / -127.0f;
    uint16_t d_half = float_to_half(extreme(scales, 8) / -32.0f);
    float d = half_to_float(d_half), d_inverse = reciprocal_or_zero(d);
    unsigned high = 0;
    memset(block + 4, 0, 4);
    for (int j = 0; j < 8; j++) {
        int scale = round_clamped(scales[j] * d_inverse, -32, 31);
        block[4 + j / 2] |= (uint8_t)(((scale + 32) & 15) << 4 * (j % 2));
        high |= (unsigned)(scale + 32) >> 4 << 2 * j;
        quantize_values(quant_iq4_values, d * (float)scale, in + 32 * j, block + 8 + 16 * j);
    }
    store_u16(block, d_half);
    store_u16(block + 2, (uint16_t)high);
}

static void quantize_iq4_xs(const float *in, uint8_t *block, size_t n)
{
    for (; n; n -= 256, block += 136, in += 256)
        quantize_iq4_xs_block(in, block);
}

void quant_quantize(enum tensor_type type, const float *in, void *row, size_t n)
{
    static quantize_function *const functions[] = {
        [TENSOR_F32] = quantize_f32,         [TENSOR_F16] = quantize_f16,
        [TENSOR_BF16] = quantize_bf16,       [TENSOR_Q8_0] = quantize_q8_0,
        [TENSOR_Q4_0] = quantize_q4_0,       [TENSOR_Q4_1] = quantize_q4_1,
        [TENSOR_Q5_0] = quantize_q5_0,       [TENSOR_Q5_1] = quantize_q5_1,
        [TENSOR_Q2_K] = quantize_q2_k,       [TENSOR_Q3_K] = quantize_q3_k,
        [TENSOR_Q4_K] = quantize_q4_k,       [TENSOR_Q5_K] = quantize_q5_k,
        [TENSOR_Q6_K] = quantize_q6_k,       [TENSOR_IQ4_NL] = quantize_iq4_nl,
        [TENSOR_IQ4_XS] = quantize_iq4_xs,   [TENSOR_MXFP4] = quantize_mxfp4,
        [TENSOR_NVFP4] = quantize_nvfp4,     [TENSOR_IQ3_S] = quantize_iq3_s,
        [TENSOR_IQ3_XXS] = quantize_iq3_xxs, [TENSOR_IQ2_S] = quantize_iq2_s,
        [TENSOR_IQ2_XS] = quantize_iq2_xs,   [TENSOR_IQ2_XXS] = quantize_iq2_xxs,
        [TENSOR_IQ1_S] = quantize_iq1_s,     [TENSOR_IQ1_M] = quantize_iq1_m,
    };
    size_t index = (size_t)type;

    /* The caller checks tensor_type_info()->computes. */
    if (index >= sizeof functions / sizeof functions[0] || functions[index] == NULL)
        abort();
    functions[index](in, row, n);
}
