/* Numbers in 8 bits: cases worked out by hand. */
#include "sched/predict/eight_bits.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void test_round(void **state)
{
    static const float in[4] = {
        1, -0.25f, 0, -2}; /* by 127 / 2: 63.5, which goes to the even one, -15.875, 0, -127 */
    static const int8_t expected[4] = {64, -16, 0, -127};
    int8_t out[4];
    (void)state;
    assert_true(eight_bits_round(in, 4, out) == 2.0f / 127);
    assert_memory_equal(out, expected, 4);
}

/* Zeros, infinities and NaNs, and values so small that their scale has no finite inverse. */
static void test_nothing(void **state)
{
    static const float in[][3] = {{0, 0, 0}, {1, NAN, 2}, {1, INFINITY, 2}, {0, 1e-44f, 0}};
    static const int8_t zeros[3];
    (void)state;
    for (size_t i = 0; i < sizeof in / sizeof *in; i++) {
        int8_t out[3] = {1, 1, 1};
        assert_true(eight_bits_round(in[i], 3, out) == 0);
        assert_memory_equal(out, zeros, 3);
    }
}

/* The extremes, over as many as the header allows: 127 * 127 * 131,072 is 2,114,060,288. */
static void test_dot(void **state)
{
    enum { MOST = 131072 };
    static const int8_t a[5] = {1, -2, 3, 127, -127},
                        rows[10] = {1, 1, 1, 1, 1, -127, 127, 0, 127, 127};
    int8_t *large = malloc(MOST);
    int32_t out[2];
    (void)state;
    eight_bits_dot_rows(a, rows, 2, 5, out);
    assert_int_equal(out[0], 2);
    assert_int_equal(out[1], -127 - 254); /* the last two undo each other */
    assert_int_equal(eight_bits_dot(a, a, 5), 1 + 4 + 9 + 2 * 16129);
    memset(large, 127, MOST);
    assert_int_equal(eight_bits_dot(large, large, MOST), 2114060288);
    free(large);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_round), cmocka_unit_test(test_nothing),
                                       cmocka_unit_test(test_dot)};
    return cmocka_run_group_tests_name("eight_bits", tests, NULL, NULL);
}
