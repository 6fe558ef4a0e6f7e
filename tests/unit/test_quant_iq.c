/* The types with codebooks, and NVFP4: blocks worked out by hand, random blocks against the gguf
 * package's reading of them, round trips. */
#include "quant/grids.h"
#include "quant/quant.h"
#include "tests/unit/kernel_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

enum { BLOCKS = 512 };

static uint64_t fnv(uint64_t hash, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ ((const uint8_t *)data)[i]) * 0x100000001b3u;
    return hash;
}

/* Every bit of a block means what ggml's code says: random bytes, and d finite. */
static void test_as_the_gguf_package(void **state)
{
    static const struct {
        enum tensor_type type;
        uint64_t hash;
    } expected[] = {
#include "tests/unit/quant_hashes.inc"
    };

    (void)state;
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        const struct tensor_type_info *info = tensor_type_info(expected[i].type);
        uint64_t random = 1, hash = 0xcbf29ce484222325u;

        for (int b = 0; b < BLOCKS; b++) {
            uint8_t block[256];
            float out[256];
            for (uint32_t k = 0; k < info->block_bytes; k++)
                block[k] = (uint8_t)(random_u64(&random) >> 32);
            if (expected[i].type != TENSOR_NVFP4) /* the upper bit of d's exponent */
                block[expected[i].type == TENSOR_IQ1_M ? 55 : 1] &= 0xbf;
            quant_dequantize(expected[i].type, block, out, info->block_values);
            hash = fnv(hash, out, info->block_values * sizeof *out);
        }
        if (hash != expected[i].hash)
            fail_msg("%s: hash %016llx, the gguf package's is %016llx", info->name,
                     (unsigned long long)hash, (unsigned long long)expected[i].hash);
    }
}

#define ONE  0x00, 0x3c /* half 1.0 */
#define HALF 0x00, 0x38 /* half 0.5 */

/* Point 0 of IQ2_XXS's codebook is eight 8s, point 1 (code 0x0002) 43 and seven 8s. */
static void test_iq2_xxs_block(void **state)
{
    uint8_t block[66] = {ONE};
    float out[256];

    (void)state;
    block[2 + 8 + 3] = 1; /* index 3 of sub-block 1: values 56 to 63 */
    /* its signs: 7 bits from bit 21: value 0 and, to make the number even, value 7; scale 2 */
    memcpy(block + 2 + 8 + 4, (uint8_t[]){0, 0, 0x20, 0x20}, 4);
    quant_dequantize(TENSOR_IQ2_XXS, block, out, 256);
    assert_true(out[0] == 8 * 0.125f && out[32] == 8 * 0.125f * 5);
    assert_true(out[56] == -43 * 0.125f * 5 && out[57] == 8 * 0.125f * 5);
    assert_true(out[63] == -8 * 0.125f * 5 && out[64] == 1);
}

/* Index 256 of IQ3_S's codebook: its ninth bit alone. */
static void test_iq3_s_block(void **state)
{
    uint8_t block[110] = {HALF};
    float out[256];
    uint32_t point = quant_grid_iq3_s()[256], zero = quant_grid_iq3_s()[0];

    (void)state;
    assert_int_equal(zero, 0x01010101);
    block[66 + 2] = 0x02;  /* the upper bit of index 1 of sub-block 2: values 68 to 71 */
    block[74 + 8] = 0x21;  /* the signs of values 64 and 69 */
    block[106 + 1] = 0x0f; /* scale 15 of sub-block 2, 0 of sub-block 3 */
    quant_dequantize(TENSOR_IQ3_S, block, out, 256);
    assert_true(out[64] == -0.5f * 31 && out[65] == 0.5f * 31 && out[96] == 0.5f);
    for (unsigned i = 0; i < 4; i++) {
        float value = 0.5f * 31 * (float)(point >> 8 * i & 255);
        assert_true(out[68 + i] == (i == 1 ? -value : value));
    }
}

/* Point 0 of IQ1's codebook is eight -1s. d is 0x3c00, a nibble in each word of scales. */
static void test_iq1_m_block(void **state)
{
    uint8_t block[56] = {0};
    float out[256];

    (void)state;
    block[55] = 0x30;
    block[53] = 0xc0;
    assert_int_equal(quant_iq1_m_d(block + 48), 0x3c00);
    block[48] = 0x08;     /* scale 1 of values 16 to 31, the second 3 bits */
    block[32 + 1] = 0x80; /* an eighth less for values 24 to 31 */
    quant_dequantize(TENSOR_IQ1_M, block, out, 256);
    assert_true(out[0] == -0.875f && out[16] == -0.875f * 3);
    assert_true(out[24] == -1.125f * 3 && out[32] == -0.875f);
}

/* Scales of 16 values, low nibbles the first 8 of them. 0x38 is 1, 0x01 the smallest, 2^-9. */
static void test_nvfp4_block(void **state)
{
    uint8_t block[36] = {0x38, 0x01, 0x7f, 0x7e};
    float out[64];

    (void)state;
    block[4] = 0x97;  /* values 0: 6, and 8: -0.5 */
    block[19] = 0x20; /* value 31, the last high nibble of the second 16: 1 */
    block[20] = 0x77; /* value 32, whose scale is none */
    block[28] = 0x0f; /* value 48: -6, times the largest scale, 448 */
    quant_dequantize(TENSOR_NVFP4, block, out, 64);
    assert_true(out[0] == 6 && out[8] == -0.5f && out[1] == 0);
    assert_true(out[31] == 0x1p-9f && out[32] == 0 && out[48] == -6 * 448.0f);
    for (unsigned x = 0; x < 128; x++) /* the definition of the 8-bit float */
        assert_true((double)quant_nvfp4_scale((uint8_t)x) ==
                    (x == 127    ? 0
                     : x / 8 > 0 ? ldexp(8 + x % 8, (int)(x / 8) - 11)
                                 : ldexp(x % 8, -10)));
}

/* Random values come back as close as the nearest point allows: the mean square error, as a part of
 * the values', stays below `bound`, which is near what the types' bits make possible. */
static void check_round_trip(enum tensor_type type, double bound)
{
    float in[512], out[512];
    uint8_t row[512];
    uint64_t random = 5;
    double error = 0, square = 0;

    for (int trial = 0; trial < 50; trial++) {
        for (int i = 0; i < 512; i++) {
            in[i] = 0;
            for (int k = 0; k < 4; k++)
                in[i] += random_float(&random);
        }
        memset(row, 0xa5, sizeof row);
        quant_quantize(type, in, row, 512);
        assert_int_equal(row[quant_row_bytes(type, 512)], 0xa5);
        quant_dequantize(type, row, out, 512);
        for (int i = 0; i < 512; i++) {
            error += (double)(out[i] - in[i]) * (double)(out[i] - in[i]);
            square += (double)in[i] * (double)in[i];
        }
    }
    if (!(error / square < bound))
        fail_msg("%s: error %.3f", tensor_type_info(type)->name, error / square);
}

static void test_round_trips(void **state)
{
    (void)state;
    check_round_trip(TENSOR_NVFP4, 0.012);
    check_round_trip(TENSOR_IQ3_S, 0.04);
    check_round_trip(TENSOR_IQ3_XXS, 0.06);
    check_round_trip(TENSOR_IQ2_S, 0.12);
    check_round_trip(TENSOR_IQ2_XS, 0.16);
    check_round_trip(TENSOR_IQ2_XXS, 0.2);
    check_round_trip(TENSOR_IQ1_S, 0.45);
    check_round_trip(TENSOR_IQ1_M, 0.4);
}

static void test_zeros(void **state)
{
    static const enum tensor_type types[] = {TENSOR_IQ3_S,  TENSOR_IQ3_XXS, TENSOR_IQ2_S,
                                             TENSOR_IQ2_XS, TENSOR_IQ2_XXS, TENSOR_IQ1_S,
                                             TENSOR_IQ1_M,  TENSOR_NVFP4};

    (void)state;
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        float in[256] = {0}, out[256];
        uint8_t row[256];
        quant_quantize(types[t], in, row, 256);
        quant_dequantize(types[t], row, out, 256);
        for (int i = 0; i < 256; i++)
            assert_true(out[i] == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_the_gguf_package),
        cmocka_unit_test(test_iq2_xxs_block),
        cmocka_unit_test(test_iq3_s_block),
        cmocka_unit_test(test_iq1_m_block),
        cmocka_unit_test(test_nvfp4_block),
        cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_zeros),
    };
    return cmocka_run_group_tests_name("quant_iq", tests, NULL, NULL);
}
