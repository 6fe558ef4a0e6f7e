/* worker/prefetch/prefetch_trial.h: steps with and without prefetch, with invented times. */
#include "worker/prefetch/prefetch_trial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

enum { TRIAL = PREFETCH_TRIAL_BLOCKS * PREFETCH_TRIAL_BLOCK };

/* Steps of n tokens that take with_s with prefetch and without_s without it. Returns the number of
 * steps with prefetch. One of each kind in 32 is interrupted and takes three times as long. */
static uint32_t run(struct prefetch_trial *t, bool *upcoming, uint32_t steps, uint32_t n_tokens,
                    double with_s, double without_s)
{
    uint32_t with = 0;
    for (uint32_t i = 0; i < steps; i++) {
        with += *upcoming;
        *upcoming = prefetch_trial_step(
            t, n_tokens, (*upcoming ? with_s : without_s) + (i % 32 == 11 || i % 32 == 27 ? 5 : 0));
    }
    return with;
}

/* Blocks of 16 steps alternate, then the faster kind runs for 512 steps, 1,024, ... 8,192 while the
 * next trials confirm it. */
static void test_quicker(void **state)
{
    (void)state;
    for (int without_wins = 0; without_wins < 2; without_wins++) {
        struct prefetch_trial t = {0};
        bool upcoming = true;
        double without_s = without_wins ? 0.9 : 1.1;
        uint32_t hold = PREFETCH_TRIAL_HOLD;
        for (int trial = 0; trial < 7; trial++) {
            assert_int_equal(run(&t, &upcoming, TRIAL, 1, 1, without_s), TRIAL / 2);
            assert_int_equal(upcoming, !without_wins);
            assert_int_equal(run(&t, &upcoming, hold, 1, 1, without_s), without_wins ? 0 : hold);
            assert_true(upcoming);
            hold = hold < PREFETCH_TRIAL_MOST ? 2 * hold : PREFETCH_TRIAL_MOST;
        }
    }
}

/* 1 % is not enough to switch prefetch off. A changed result holds for 512 steps again. The trial
 * reports what prefetch saved. */
static void test_margin_and_change(void **state)
{
    (void)state;
    struct prefetch_trial t = {0};
    bool upcoming = true;
    run(&t, &upcoming, TRIAL, 1, 1, 0.99);
    assert_true(upcoming);
    assert_true(t.gain < -0.0101 && t.gain > -0.0102); /* 1 - 1 / 0.99 */
    run(&t, &upcoming, PREFETCH_TRIAL_HOLD + TRIAL, 1, 1, 0.5);
    assert_false(upcoming);
    assert_int_equal(run(&t, &upcoming, PREFETCH_TRIAL_HOLD, 1, 1, 0.5), 0);
    run(&t, &upcoming, TRIAL, 1, 1, 2);
    assert_true(upcoming);
    assert_true(t.gain > 0.4999 && t.gain < 0.5001);
    prefetch_trial_restart(&t);
    assert_int_equal(run(&t, &upcoming, TRIAL, 1, 1, 2), TRIAL / 2);
}

/* The trial does not compare steps with another number of tokens. If they continue for a block, the
 * trial begins again with that number. A step of unknown time does not count. */
static void test_other_steps(void **state)
{
    (void)state;
    struct prefetch_trial t = {0};
    bool upcoming = true;
    for (int i = 0; i < TRIAL; i++) {
        run(&t, &upcoming, 1, 1, 1, 0.9);
        for (int k = 0; k < 15 && i == 20;
             k++) /* a prompt in chunks, in the middle of a block without prefetch */
            assert_int_equal(prefetch_trial_step(&t, 512, 9), upcoming);
        if (i == 40)
            assert_int_equal(prefetch_trial_step(&t, 1, 0), upcoming);
    }
    assert_false(upcoming);
    for (int i = 0; i < 15; i++)
        assert_false(prefetch_trial_step(&t, 4, 1));
    assert_true(prefetch_trial_step(&t, 4, 1)); /* a trial of four at once */
    assert_int_equal(run(&t, &upcoming, 1, 4, 1, 2) + run(&t, &upcoming, TRIAL - 2, 4, 1, 2),
                     TRIAL / 2 - 2);
    assert_true(upcoming);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quicker),
        cmocka_unit_test(test_margin_and_change),
        cmocka_unit_test(test_other_steps),
    };
    return cmocka_run_group_tests(tests, 0, 0);
}
