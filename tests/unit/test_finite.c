/* lib/quant/finite.h against the definition: a block is finite where quant_dequantize gives finite
 * values only. */
#include "quant/finite.h"

#include "quant/quant.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { BLOCKS = 700, MOST_BYTES = 512 };

static uint32_t random_state = 7;

static uint32_t random_number(void)
{
    random_state = random_state * 1664525u + 1013904223u;
    return random_state >> 8;
}

static bool is_finite(enum tensor_type type, const uint8_t *block)
{
    float values[256];
    uint32_t n = tensor_type_info(type)->block_values;
    quant_dequantize(type, block, values, n);
    for (uint32_t i = 0; i < n; i++)
        if (!isfinite(values[i]))
            return false;
    return true;
}

/* A block of random bytes that is finite, or is not. False: the type has none. */
static bool make_block(enum tensor_type type, bool finite, uint8_t *block)
{
    for (int tries = 0; tries < 20000; tries++) {
        for (uint32_t i = 0; i < tensor_type_info(type)->block_bytes; i++)
            block[i] = (uint8_t)random_number();
        if (is_finite(type, block) == finite)
            return true;
    }
    return false;
}

static const enum tensor_type types[] = {
#define X(name, id, block, bytes, computes) id,
    TENSOR_TYPE_LIST(X)
#undef X
};

static void finds_the_first(void **state)
{
    static uint8_t blocks[BLOCKS * MOST_BYTES], bad[MOST_BYTES];
    int tried = 0;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        const struct tensor_type_info *info = tensor_type_info(types[t]);
        if (!info->computes)
            continue;
        for (size_t i = 0; i < BLOCKS; i++)
            assert_true(make_block(types[t], true, blocks + i * info->block_bytes));
        assert_int_equal(quant_find_not_finite(types[t], blocks, BLOCKS), BLOCKS);
        assert_int_equal(quant_find_not_finite(types[t], blocks, 0), 0);
        tried++;
        static const size_t places[] = {BLOCKS - 1, 300, 256, 255, 1, 0};
        for (size_t k = 0; k < sizeof places / sizeof *places; k++) {
            if (!make_block(types[t], false, bad)) { /* every scale of 8 bits is a number */
                assert_int_equal(types[t], TENSOR_NVFP4);
                break;
            }
            memcpy(blocks + places[k] * info->block_bytes, bad, info->block_bytes);
            assert_int_equal(quant_find_not_finite(types[t], blocks, BLOCKS), places[k]);
        }
    }
    assert_true(tried >= 14);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(finds_the_first)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
