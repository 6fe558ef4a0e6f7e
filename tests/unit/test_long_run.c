/* lib/sched's counts of the long run, by hand. */
#include "sched/cache/long_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

/* Of four numbers three are experts. 3, 0, 6 of 9: the mean is 3, and one more of each is added to
 * it. */
static void test_share(void **state)
{
    struct long_run l;
    assert_true(long_run_init(&l, 4, 3, NULL, 2));
    assert_true(long_run_share(&l, 1) == 0);
    long_run_count(&l, 1, 3);
    long_run_count(&l, 3, 6);
    assert_true(long_run_share(&l, 1) == 0.75);
    assert_true(long_run_share(&l, 2) == 0);
    assert_true(long_run_share(&l, 3) == 1.5);
    long_run_fini(&l);
}

/* After 2048 steps 3 and 6 are 1.5 and 3, their mean 1.5. */
static void test_halved(void **state)
{
    struct long_run l;
    assert_true(long_run_init(&l, 4, 3, NULL, 2));
    long_run_count(&l, 1, 3);
    long_run_count(&l, 3, 6);
    for (unsigned i = 0; i < 2047; i++)
        long_run_step_over(&l);
    assert_true(long_run_share(&l, 3) == 1.5);
    long_run_step_over(&l);
    assert_true(long_run_share(&l, 1) == 1.5 / 2.5);
    assert_true(long_run_share(&l, 3) == 3 / 2.5);
    long_run_fini(&l);
}

/* A profile counts with its own numbers, but for at most 2048 steps of 2 activations: of 3 * 4096,
 * a third. */
static void test_profile(void **state)
{
    static const uint32_t few[] = {0, 3, 0, 6}, many[] = {0, 3 * 3072, 0, 3 * 1024};
    struct long_run l;
    assert_true(long_run_init(&l, 4, 3, few, 2));
    assert_true(long_run_share(&l, 3) == 1.5);
    long_run_fini(&l);
    assert_true(long_run_init(&l, 4, 1, many, 2));
    assert_true(l.sum == 4096);
    assert_true(long_run_share(&l, 1) == 3072.0 / 4097);
    long_run_fini(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_share),
        cmocka_unit_test(test_halved),
        cmocka_unit_test(test_profile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
