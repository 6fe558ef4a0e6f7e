/* worker/copy_trial.h: steps with and without copies ahead, of times that are made up. */
#include "worker/copy_trial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

enum { TRIAL = COPY_TRIAL_BLOCKS * COPY_TRIAL_BLOCK };

/* Steps of n tokens that take with_s or without_s, by what was said of them before; returns how many were with. One of each kind in 32 is
 * interrupted: it counts three times. */
static uint32_t run(struct copy_trial *t, bool *ahead, uint32_t steps, uint32_t n_tokens, double with_s, double without_s)
{
    uint32_t with = 0;
    for (uint32_t i = 0; i < steps; i++) {
        with += *ahead;
        *ahead = copy_trial_step(t, n_tokens, (*ahead ? with_s : without_s) + (i % 32 == 11 || i % 32 == 27 ? 5 : 0));
    }
    return with;
}

/* Blocks of 16 take turns, then the quicker kind serves 512 steps, 1,024, ... 8,192 while the next trial says the same. */
static void test_quicker(void **state)
{
    (void)state;
    for (int without_wins = 0; without_wins < 2; without_wins++) {
        struct copy_trial t = {0};
        bool ahead = true;
        double without_s = without_wins ? 0.9 : 1.1;
        uint32_t hold = COPY_TRIAL_HOLD;
        for (int trial = 0; trial < 7; trial++) {
            assert_int_equal(run(&t, &ahead, TRIAL, 1, 1, without_s), TRIAL / 2);
            assert_int_equal(ahead, !without_wins);
            assert_int_equal(run(&t, &ahead, hold, 1, 1, without_s), without_wins ? 0 : hold);
            assert_true(ahead);
            hold = hold < COPY_TRIAL_MOST ? 2 * hold : COPY_TRIAL_MOST;
        }
    }
}

/* 1 % is not enough to be without; another answer holds 512 steps again; what copies saved is told. */
static void test_margin_and_change(void **state)
{
    (void)state;
    struct copy_trial t = {0};
    bool ahead = true;
    run(&t, &ahead, TRIAL, 1, 1, 0.99);
    assert_true(ahead);
    assert_true(t.gain < -0.0101 && t.gain > -0.0102); /* 1 - 1 / 0.99 */
    run(&t, &ahead, COPY_TRIAL_HOLD + TRIAL, 1, 1, 0.5);
    assert_false(ahead);
    assert_int_equal(run(&t, &ahead, COPY_TRIAL_HOLD, 1, 1, 0.5), 0);
    run(&t, &ahead, TRIAL, 1, 1, 2);
    assert_true(ahead);
    assert_true(t.gain > 0.4999 && t.gain < 0.5001);
    copy_trial_restart(&t);
    assert_int_equal(run(&t, &ahead, TRIAL, 1, 1, 2), TRIAL / 2);
}

/* Steps of other numbers of tokens are not compared; where they go on for a block the trial begins anew with those. A step whose time
 * is not known does not count. */
static void test_other_steps(void **state)
{
    (void)state;
    struct copy_trial t = {0};
    bool ahead = true;
    for (int i = 0; i < TRIAL; i++) {
        run(&t, &ahead, 1, 1, 1, 0.9);
        for (int k = 0; k < 15 && i == 20; k++) /* a prompt in pieces: in the middle of a block without */
            assert_int_equal(copy_trial_step(&t, 512, 9), ahead);
        if (i == 40)
            assert_int_equal(copy_trial_step(&t, 1, 0), ahead);
    }
    assert_false(ahead);
    for (int i = 0; i < 15; i++)
        assert_false(copy_trial_step(&t, 4, 1));
    assert_true(copy_trial_step(&t, 4, 1)); /* a trial of four at once */
    assert_int_equal(run(&t, &ahead, 1, 4, 1, 2) + run(&t, &ahead, TRIAL - 2, 4, 1, 2), TRIAL / 2 - 2);
    assert_true(ahead);
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
