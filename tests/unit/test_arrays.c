/* lib/base/arrays. */
#include "base/arrays.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_zeroed_aligned_and_apart(void **state)
{
    uint8_t *bytes = NULL;
    double *doubles = NULL;
    uint32_t *none = NULL, *last = NULL;
    void *memory =
        ARRAYS_NEW(ARRAY(bytes, 3), ARRAY(doubles, 1000), ARRAY(none, 0), ARRAY(last, 17));
    assert_non_null(memory);
    assert_ptr_equal(memory, bytes); /* so free(bytes) would do as well */
    assert_non_null(none);
    assert_int_equal((uintptr_t)bytes % ARRAYS_ALIGNMENT, 0);
    assert_int_equal((uintptr_t)doubles % ARRAYS_ALIGNMENT, 0);
    assert_int_equal((uintptr_t)last % ARRAYS_ALIGNMENT, 0);
    for (int i = 0; i < 1000; i++)
        assert_true(doubles[i] == 0);
    memset(bytes, 0xff, 3);
    memset(last, 0xff, 17 * sizeof *last);
    for (int i = 0; i < 1000; i++)
        assert_true(doubles[i] == 0);
    memset(doubles, 0x11, 1000 * sizeof *doubles);
    assert_int_equal(bytes[2], 0xff);
    assert_int_equal(last[0], UINT32_MAX);
    free(memory);
}

static void test_sizes_that_overflow(void **state)
{
    uint64_t *a = NULL, *b = NULL;
    assert_null(ARRAYS_NEW(ARRAY(a, SIZE_MAX / 4), ARRAY(b, 1)));
    assert_null(ARRAYS_NEW(ARRAY(a, SIZE_MAX / 16), ARRAY(b, SIZE_MAX / 16)));
    assert_null(ARRAYS_NEW(ARRAY(a, SIZE_MAX / 8), ARRAY(b, 1)));
    assert_null(a);
    assert_null(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_zeroed_aligned_and_apart),
        cmocka_unit_test(test_sizes_that_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
