/* Tensor types: hand-worked blocks of each layout, round trips within each type's step, and the
 * half and bfloat16 conversions against the machine's own. */
#include "quant/quant.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

static uint32_t bits_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static float of_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* ---- half, bfloat16 ---- */

/* The value of a half, by the formula of IEEE 754. */
static double half_value(unsigned h)
{
    double sign = h & 0x8000 ? -1 : 1;
    int exponent = h >> 10 & 31, fraction = h & 1023;
    return sign * (exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24));
}

static void test_every_half(void **state)
{
    for (unsigned h = 0; h < 65536; h++) {
        float f = half_to_float((uint16_t)h);
        if ((h & 0x7c00) != 0x7c00) {
            assert_true((double)f == half_value(h));
            assert_int_equal(float_to_half(f), h); /* the sign of zero included */
        } else if ((h & 0x3ff) == 0) {
            assert_true(f == (h >> 15 ? -INFINITY : INFINITY));
            assert_int_equal(float_to_half(f), h);
        } else {
            assert_true(isnan(f));
            assert_int_equal(float_to_half(f), h | 0x200); /* quiet, the payload kept */
        }
    }
}

/* Between each two neighbours: the middle rounds to the even one, a value next to the middle to the
 * nearer one. */
static void test_half_rounding(void **state)
{
    for (unsigned h = 0; h < 0x7c00; h++) {
        double low = half_value(h), high = h + 1 < 0x7c00 ? half_value(h + 1) : 65536;
        float middle = (float)((low + high) / 2); /* exact: float32 has 13 bits more */
        unsigned even = h & 1 ? h + 1 : h;
        assert_int_equal(float_to_half(middle), even);
        assert_int_equal(float_to_half(nextafterf(middle, 0)), h);
        assert_int_equal(float_to_half(nextafterf(middle, INFINITY)), h + 1);
        assert_int_equal(float_to_half(-middle), even | 0x8000);
    }
    assert_int_equal(float_to_half(1e-30f), 0);
    assert_int_equal(float_to_half(3e38f), 0x7c00);
    assert_int_equal(float_to_half(-65519.99f), 0xfbff);
}

static void test_every_bf16(void **state)
{
    for (unsigned h = 0; h < 65536; h++) {
        float f = bf16_to_float((uint16_t)h);
        assert_int_equal(bits_of(f), h << 16);
        bool nan = (h & 0x7f80) == 0x7f80 && (h & 0x7f);
        assert_int_equal(float_to_bf16(f), nan ? h | 0x40 : h);
        if ((h & 0x7f80) == 0x7f80)
            continue;
        unsigned even = h & 1 ? h + 1 : h;
        assert_int_equal(float_to_bf16(of_bits(h << 16 | 0x8000)), even);
        assert_int_equal(float_to_bf16(of_bits(h << 16 | 0x7fff)), h);
        assert_int_equal(float_to_bf16(of_bits(h << 16 | 0x8001)), h + 1);
    }
    assert_true(isnan(bf16_to_float(float_to_bf16(of_bits(0x7f800001))))); /* not infinity */
}

#if defined(__x86_64__)
__attribute__((target("f16c"))) static uint16_t machine_to_half(float f)
{
    return (uint16_t)_mm_cvtsi128_si32(_mm_cvtps_ph(_mm_set_ss(f), _MM_FROUND_TO_NEAREST_INT));
}

__attribute__((target("f16c"))) static uint32_t machine_to_float_bits(uint16_t h)
{
    return (uint32_t)_mm_cvtsi128_si32(_mm_castps_si128(_mm_cvtph_ps(_mm_cvtsi32_si128(h))));
}
#endif

/* The vector kernels convert with F16C: the same bits, NaNs included. */
static void test_half_as_the_machine(void **state)
{
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx2")) { /* clang 14 knows no "f16c"; AVX2 comes with it */
        print_message("this machine has no F16C\n");
        skip();
    }
    for (unsigned h = 0; h < 65536; h++)
        assert_int_equal(bits_of(half_to_float((uint16_t)h)), machine_to_float_bits((uint16_t)h));
    for (uint64_t u = 0; u <= UINT32_MAX; u += 4093) { /* a prime: all low bits occur */
        uint16_t machine = machine_to_half(of_bits((uint32_t)u));
        if (float_to_half(of_bits((uint32_t)u)) != machine)
            fail_msg("float bits %08x: %04x, the machine has %04x", (unsigned)u,
                     float_to_half(of_bits((uint32_t)u)), machine);
    }
#else
    skip();
#endif
}

/* ---- blocks by hand ---- */

#define ONE       0x00, 0x3c /* half 1.0 */
#define HALF      0x00, 0x38 /* half 0.5 */
#define MINUS_TWO 0x00, 0xc0

static void test_q8_0_block(void **state)
{
    uint8_t block[34] = {HALF, 0x00, 0x01, 0xff, 0x7f, 0x80};
    float out[32];
    block[33] = 10;
    quant_dequantize(TENSOR_Q8_0, block, out, 32);
    assert_true(out[0] == 0 && out[1] == 0.5f && out[2] == -0.5f && out[3] == 63.5f);
    assert_true(out[4] == -64 && out[31] == 5);
}

static void test_q4_0_block(void **state)
{
    uint8_t block[18] = {MINUS_TWO};
    float out[32];
    memset(block + 2, 0x88, 16); /* zeros */
    block[2] = 0xf0;             /* value 0: -8, value 16: 7 */
    block[17] = 0x19;            /* value 15: 1, value 31: -7 */
    quant_dequantize(TENSOR_Q4_0, block, out, 32);
    assert_true(out[0] == 16 && out[16] == -14 && out[15] == -2 && out[31] == 14 && out[1] == 0);
}

static void test_q4_1_block(void **state)
{
    uint8_t block[20] = {HALF, MINUS_TWO}; /* m is added, whatever its sign */
    float out[32];
    block[4] = 0xf1;  /* value 0: 1, value 16: 15 */
    block[19] = 0x70; /* value 31: 7 */
    quant_dequantize(TENSOR_Q4_1, block, out, 32);
    assert_true(out[0] == 0.5f - 2 && out[16] == 7.5f - 2 && out[31] == 3.5f - 2 && out[15] == -2);
}

/* The fifth bits of value 0 (bit 0 of the first byte) and of value 19 (bit 3 of the third). */
static void test_q5_0_block(void **state)
{
    uint8_t block[22] = {HALF, 0x01, 0x00, 0x08, 0x00};
    float out[32];
    block[6] = 0x01; /* value 0: 17 */
    block[9] = 0xf0; /* value 19: 31 */
    quant_dequantize(TENSOR_Q5_0, block, out, 32);
    assert_true(out[0] == 0.5f && out[19] == 7.5f && out[1] == -8 && out[16] == -8);
}

static void test_q5_1_block(void **state)
{
    uint8_t block[24] = {HALF, ONE, 0x01, 0x00, 0x08, 0x00};
    float out[32];
    block[8] = 0x01;
    block[11] = 0xf0;
    quant_dequantize(TENSOR_Q5_1, block, out, 32);
    assert_true(out[0] == 8.5f + 1 && out[19] == 15.5f + 1 && out[1] == 1 && out[16] == 1);
}

static void test_iq4_nl_block(void **state)
{
    uint8_t block[18] = {MINUS_TWO};
    float out[32];
    block[2] = 0xf0;  /* value 0: -127, value 16: 113 */
    block[17] = 0x87; /* value 15: -10, value 31: 1 */
    quant_dequantize(TENSOR_IQ4_NL, block, out, 32);
    assert_true(out[0] == 254 && out[16] == -226 && out[15] == 20 && out[31] == -2);
}

static void test_mxfp4_block(void **state)
{
    uint8_t block[17] = {129}; /* 2^2 = 4; the values are doubled, so their scale is 2 */
    float out[32];
    block[1] = 0xf7;  /* value 0: 6, value 16: -6 */
    block[2] = 0x91;  /* value 1: 0.5, value 17: -0.5 */
    block[16] = 0x85; /* value 15: 3, value 31: 0 */
    quant_dequantize(TENSOR_MXFP4, block, out, 32);
    assert_true(out[0] == 24 && out[16] == -24 && out[1] == 2 && out[17] == -2);
    assert_true(out[15] == 12 && out[31] == 0);
    for (int e = 0; e < 256; e++) /* the subnormal ones and 255 too */
        assert_true((double)quant_mxfp4_scale((uint8_t)e) == ldexp(1, e - 128));
}

static void test_q2_k_block(void **state)
{
    uint8_t block[84] = {0};
    float out[256];
    memcpy(block + 80, (uint8_t[]){ONE, HALF}, 4);
    for (int j = 0; j < 16; j++) /* scales 0-15, minima 15-0 */
        block[j] = (uint8_t)(j | (15 - j) << 4);
    /* Value 37 is value 5 of the second quarter of the first half: bits 2-3 of qs[5], scale 2. */
    block[16 + 5] = 0x0c;
    /* Value 128 + 96 + 20 = 244: bits 6-7 of qs[32 + 20], scale 15, whose minimum is 0. */
    block[16 + 32 + 20] = 0x80;
    quant_dequantize(TENSOR_Q2_K, block, out, 256);
    assert_true(out[37] == 2 * 3 - 0.5f * 13 && out[244] == 15 * 2);
    assert_true(out[0] == -7.5f && out[36] == -6.5f && out[128] == -3.5f && out[255] == 0);
}

static void test_q3_k_block(void **state)
{
    uint8_t block[110] = {0};
    float out[256];
    memcpy(block + 108, (uint8_t[]){HALF}, 2);
    /* Scale 0: 1 (33 = 10 0001), in the low nibble of byte 0 and bits 0-1 of byte 8. Scale 11: -27
     * (5 = 00 0101), in the high nibble of byte 3. Scale 14: 31 (63), high nibble of byte 6, bits
     * 6-7 of byte 10. */
    block[96] = 0x01;
    block[96 + 8] = 0x02;
    block[96 + 3] = 0x50;
    block[96 + 6] = 0xf0;
    block[96 + 10] = 0xc0;
    assert_int_equal(quant_q3_k_scale(block + 96, 0), 1);
    assert_int_equal(quant_q3_k_scale(block + 96, 11), -27);
    assert_int_equal(quant_q3_k_scale(block + 96, 14), 31);
    assert_int_equal(quant_q3_k_scale(block + 96, 15), -32);
    /* Value 7, scale 0: bits 0-1 of qs[7], the third bit 0 of hmask[7]: 7 - 4 = 3. */
    block[32 + 7] = 0x03;
    block[7] = 0x01;
    /* Value 128 + 32 + 16 + 3 = 179, scale 11: bits 2-3 of qs[32 + 19]; bit 5 of hmask[19] is off.
     */
    block[32 + 32 + 19] = 0x08;
    /* Value 128 + 96 + 1 = 225, scale 14: bit 7 of hmask[1]: 4 - 4 = 0. */
    block[1] = 0x80;
    quant_dequantize(TENSOR_Q3_K, block, out, 256);
    assert_true(out[7] == 0.5f * 1 * 3 && out[0] == 0.5f * 1 * -4);
    assert_true(out[179] == 0.5f * -27 * -2 && out[178] == 0.5f * -27 * -4);
    assert_true(out[225] == 0 && out[224] == 0.5f * 31 * -4);
}

static void test_iq4_xs_block(void **state)
{
    uint8_t block[136] = {HALF};
    float out[256];
    /* Scale 0: 5 (37 = 10 0101), scale 5: -20 (12 = 00 1100), scale 7: 31 (63): the upper bits of
     * scale j are bits 2j of 16, the low ones nibbles in order. */
    block[2] = 0x02;
    block[3] = 0xc0;
    block[4] = 0x05;
    block[4 + 2] = 0xc0;
    block[4 + 3] = 0xf0;
    block[8] = 0x90;               /* values 0: -127, and 16: 13 */
    block[8 + 5 * 16 + 3] = 0x80;  /* values 163: -127, and 179: 1 */
    block[8 + 7 * 16 + 15] = 0xf8; /* values 239: 1, and 255: 113 */
    quant_dequantize(TENSOR_IQ4_XS, block, out, 256);
    assert_true(out[0] == 2.5f * -127 && out[16] == 2.5f * 13);
    assert_true(out[163] == -10 * -127 && out[179] == -10);
    assert_true(out[239] == 15.5f && out[255] == 15.5f * 113);
}

/* Scales 1-8 and minima 60-53 of the sub-blocks, packed by hand. */
static const uint8_t packed[12] = {
    1 | 0 << 6,                 /* scale 0; the top bits of scale 4 (5 = 00 0101) */
    2,           3,          4, /* scales 1-3, those of 5-7 have no top bits either */
    60 | 3 << 6,                /* minimum 0; the top bits of minimum 4 (56 = 11 1000) */
    59 | 3 << 6,                /* 1, and of 55 = 11 0111 */
    58 | 3 << 6,                /* 2, and of 54 = 11 0110 */
    57 | 3 << 6,                /* 3, and of 53 = 11 0101 */
    5 | 8 << 4,                 /* low nibbles of scale 4 and of minimum 4 */
    6 | 7 << 4,  7 | 6 << 4, 8 | 5 << 4,
};

static void test_k_scales(void **state)
{
    uint8_t scale, min;
    for (unsigned j = 0; j < 8; j++) {
        quant_k_scale_min(packed, j, &scale, &min);
        assert_int_equal(scale, j + 1);
        assert_int_equal(min, 60 - j);
    }
    uint8_t high[12] = {0xc0, 0x80, 0x40, 0x3f}; /* the top bits of the scales 4-6: 3, 2, 1 */
    quant_k_scale_min(high, 4, &scale, &min);
    assert_int_equal(scale, 48);
    quant_k_scale_min(high, 5, &scale, &min);
    assert_int_equal(scale, 32);
    quant_k_scale_min(high, 3, &scale, &min);
    assert_int_equal(scale, 63);
}

static void test_q4_k_block(void **state)
{
    uint8_t block[144] = {ONE, HALF};
    float out[256];
    memcpy(block + 4, packed, 12);
    block[16] = 0x52;               /* values 0 (sub-block 0): 2, and 32 (sub-block 1): 5 */
    block[16 + 3 * 32 + 31] = 0x9f; /* values 223 (sub-block 6): 15, and 255 (7): 9 */
    quant_dequantize(TENSOR_Q4_K, block, out, 256);
    assert_true(out[0] == 1 * 2 - 30.0f && out[32] == 2 * 5 - 29.5f);
    assert_true(out[223] == 7 * 15 - 27.0f && out[255] == 8 * 9 - 26.5f);
    assert_true(out[1] == -30.0f && out[254] == -26.5f);
}

static void test_q5_k_block(void **state)
{
    uint8_t block[176] = {ONE, HALF};
    float out[256];
    memcpy(block + 4, packed, 12);
    block[16] = 0x02;      /* the fifth bit of value 32: bit 1 of qh[0] */
    block[16 + 31] = 0x80; /* of value 255: bit 7 of qh[31] */
    block[48] = 0x52;
    block[48 + 3 * 32 + 31] = 0x9f;
    quant_dequantize(TENSOR_Q5_K, block, out, 256);
    assert_true(out[0] == 1 * 2 - 30.0f && out[32] == 2 * 21 - 29.5f);
    assert_true(out[223] == 7 * 15 - 27.0f && out[255] == 8 * 25 - 26.5f);
}

static void test_q6_k_block(void **state)
{
    uint8_t block[210] = {0};
    float out[256];
    memcpy(block + 208, (uint8_t[]){HALF}, 2);
    for (int j = 0; j < 16; j++)
        block[192 + j] = (uint8_t)(j - 8); /* scales -8 to 7 */
    /* Second half: value 128 + 70 = 198 is value 6 of its third quarter: the high nibble of ql[64 +
     * 6], bits 4-5 of qh[32 + 6]; its scale is number 12 (4). 0x2b = 43: 43 - 32 = 11. */
    block[64 + 6] = 0xb0;
    block[128 + 32 + 6] = 0x20;
    /* First half, value 33: low nibble of ql[33], bits 2-3 of qh[1]; scale 2 (-6). 0x35 = 53: 21.
     */
    block[33] = 0x05;
    block[128 + 1] = 0x0c;
    quant_dequantize(TENSOR_Q6_K, block, out, 256);
    assert_true(out[198] == 0.5f * 4 * 11 && out[33] == 0.5f * -6 * 21);
    assert_true(out[0] == 0.5f * -8 * -32 && out[255] == 0.5f * 7 * -32);
}

/* ---- round trips ---- */

static uint32_t noise_state;

/* -1 to 1. */
static float noise(void)
{
    noise_state = noise_state * 1664525u + 1013904223u;
    return (float)(int32_t)noise_state * 0x1p-31f;
}

/* The largest error over the largest magnitude, over blocks of several scales. */
static void check_round_trip(enum tensor_type type, float bound)
{
    const struct tensor_type_info *info = tensor_type_info(type);
    float in[512], out[512];
    uint8_t row[2048 + 1];
    noise_state = 1;
    for (int trial = 0; trial < 200; trial++) {
        /* Not smaller: scales would be subnormal halves, which are coarse. */
        float size = ldexpf(1, trial % 14 - 1), worst = 0;
        for (int i = 0; i < 512; i++)
            in[i] = size * (i < 2 ? 1.0f - 2 * (float)i : noise());
        memset(row, 0xa5, sizeof row);
        quant_quantize(type, in, row, 512);
        assert_int_equal(quant_row_bytes(type, 512), 512 / info->block_values * info->block_bytes);
        assert_int_equal(row[quant_row_bytes(type, 512)], 0xa5); /* nothing written past the row */
        quant_dequantize(type, row, out, 512);
        for (int i = 0; i < 512; i++)
            worst = fmaxf(worst, fabsf(out[i] - in[i]));
        if (!(worst <= bound * size))
            fail_msg("%s: error %g of %g", info->name, (double)worst, (double)size);
    }
}

/* Half a step of the type, plus the rounding of the scales. */
static void test_round_trips(void **state)
{
    check_round_trip(TENSOR_F32, 0);
    check_round_trip(TENSOR_F16, 0x1p-11f);
    check_round_trip(TENSOR_BF16, 0x1p-8f);
    check_round_trip(TENSOR_Q8_0, 0.5f / 127 + 0x1p-10f);
    check_round_trip(TENSOR_Q4_0,
                     1.0f / 8 + 0x1p-9f); /* the side away from the extreme ends at 7 */
    check_round_trip(TENSOR_Q4_1, 0.5f * 2 / 15 + 0x1p-9f);
    check_round_trip(TENSOR_Q5_0, 1.0f / 16 + 0x1p-9f);
    check_round_trip(TENSOR_Q5_1, 0.5f * 2 / 31 + 0x1p-9f);
    check_round_trip(TENSOR_IQ4_NL, 14.0f / 127 + 0x1p-9f); /* 127 of the other sign is 113 */
    check_round_trip(TENSOR_IQ4_XS, 1 - 113.0f / 127 * 31 / 32 + 0x1p-9f); /* and 32 is 31 */
    check_round_trip(TENSOR_MXFP4, 0.25f + 0x1p-9f); /* nearly 8, of which there are 4 and 6 */
    check_round_trip(TENSOR_Q2_K, 0.5f * 2 / 3 + 1.5f / 15 + 0.5f / 15 + 0.01f);
    check_round_trip(TENSOR_Q3_K, 1 - 3.0f / 4 * 31 / 32 + 0x1p-9f); /* 4 is 3, and 32 is 31 */
    check_round_trip(TENSOR_Q4_K, 0.5f * 2 / 15 + 0.5f / 63 + 0.02f);
    check_round_trip(TENSOR_Q5_K, 0.5f * 2 / 31 + 0.5f / 63 + 0.01f);
    check_round_trip(TENSOR_Q6_K, 1.0f / 32 + 0.01f); /* as with Q4_0: 31 of 32 */
}

static void test_zeros_and_constants(void **state)
{
    static const enum tensor_type types[] = {
        TENSOR_F32,  TENSOR_F16,    TENSOR_BF16,   TENSOR_Q8_0, TENSOR_Q4_0, TENSOR_Q4_1,
        TENSOR_Q5_0, TENSOR_Q5_1,   TENSOR_Q2_K,   TENSOR_Q3_K, TENSOR_Q4_K, TENSOR_Q5_K,
        TENSOR_Q6_K, TENSOR_IQ4_NL, TENSOR_IQ4_XS, TENSOR_MXFP4};
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        float in[256] = {0}, out[256];
        uint8_t row[1024];
        quant_quantize(types[t], in, row, 256);
        quant_dequantize(types[t], row, out, 256);
        for (int i = 0; i < 256; i++)
            assert_true(out[i] == 0);
        for (int i = 0; i < 256; i++)
            in[i] = 3.0f;
        quant_quantize(types[t], in, row, 256);
        quant_dequantize(types[t], row, out, 256);
        for (int i = 0; i < 256; i++)
            assert_true(fabsf(out[i] - 3.0f) < 0.01f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_half),  cmocka_unit_test(test_half_rounding),
        cmocka_unit_test(test_every_bf16),  cmocka_unit_test(test_half_as_the_machine),
        cmocka_unit_test(test_q8_0_block),  cmocka_unit_test(test_q4_0_block),
        cmocka_unit_test(test_q4_1_block),  cmocka_unit_test(test_q5_0_block),
        cmocka_unit_test(test_q5_1_block),  cmocka_unit_test(test_iq4_nl_block),
        cmocka_unit_test(test_mxfp4_block), cmocka_unit_test(test_q2_k_block),
        cmocka_unit_test(test_q3_k_block),  cmocka_unit_test(test_iq4_xs_block),
        cmocka_unit_test(test_k_scales),    cmocka_unit_test(test_q4_k_block),
        cmocka_unit_test(test_q5_k_block),  cmocka_unit_test(test_q6_k_block),
        cmocka_unit_test(test_round_trips), cmocka_unit_test(test_zeros_and_constants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
