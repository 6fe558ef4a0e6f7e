/* The computations of `moed perplexity`. The windows of a text, against a plain loop and examples
 * by hand. The estimate's error, against a hand-worked ratio and against the share of intervals
 * that contain the true mean of correlated data. */
#include "client/cli/estimate.h"
#include "client/cli/windows.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

/* ---- Windows ---- */

static void expect_window(const struct window_plan *plan, size_t k, size_t begin, size_t end,
                          size_t scored_begin)
{
    struct window w = windows_at(plan, k);
    assert_int_equal(w.begin, begin);
    assert_int_equal(w.end, end);
    assert_int_equal(w.scored_begin, scored_begin);
}

static void test_side_by_side(void **context)
{
    struct window_plan plan = {.n_tokens = 10, .size = 4, .stride = 4};
    assert_int_equal(windows_count(&plan), 3);
    expect_window(&plan, 0, 0, 4, 1);
    expect_window(&plan, 1, 4, 8, 5);
    expect_window(&plan, 2, 8, 10, 9);
    plan.begin_token = true;
    expect_window(&plan, 1, 4, 8, 4);
    expect_window(&plan, 2, 8, 10, 8);
    plan.n_tokens = 9; /* only a begin token precedes the last token */
    assert_int_equal(windows_count(&plan), 3);
    plan.begin_token = false;
    assert_int_equal(windows_count(&plan), 2);
}

static void test_sliding(void **context)
{
    struct window_plan plan = {.n_tokens = 10, .size = 6, .stride = 2};
    assert_int_equal(windows_count(&plan), 3);
    expect_window(&plan, 0, 0, 6, 1);
    expect_window(&plan, 1, 2, 8, 6);
    expect_window(&plan, 2, 4, 10, 8);
    plan.n_tokens = 11; /* one more window, for one token */
    assert_int_equal(windows_count(&plan), 4);
    expect_window(&plan, 3, 6, 11, 10);
}

/* llama-perplexity's: of a chunk of 8 it scores the tokens 5, 6 and 7. */
static void test_second_halves(void **context)
{
    struct window_plan plan = {.n_tokens = 23, .size = 8, .stride = 8, .halves = true};
    assert_int_equal(windows_count(&plan), 2);
    expect_window(&plan, 0, 0, 8, 5);
    expect_window(&plan, 1, 8, 16, 13);
    plan.n_tokens = 7;
    assert_int_equal(windows_count(&plan), 0);
    plan = (struct window_plan){.n_tokens = 3, .size = 3, .stride = 3, .halves = true};
    assert_int_equal(windows_count(&plan), 1);
    expect_window(&plan, 0, 0, 3, 2);
}

static void test_short_texts(void **context)
{
    struct window_plan plan = {.n_tokens = 0, .size = 4, .stride = 4, .begin_token = true};
    assert_int_equal(windows_count(&plan), 0);
    plan.n_tokens = 1;
    assert_int_equal(windows_count(&plan), 1);
    plan.begin_token = false;
    assert_int_equal(windows_count(&plan), 0);
    plan.n_tokens = 2;
    assert_int_equal(windows_count(&plan), 1);
    expect_window(&plan, 0, 0, 2, 1);
}

/* For every plan of small numbers: a window scores a token once, namely the first window in which
 * another token precedes it. No window scores a token that begins every window that contains it. */
static void test_each_token_once(void **context)
{
    enum { N = 24, SIZE = 9 };
    for (unsigned i = 0; i < 2 * N * SIZE * SIZE; i++) {
        struct window_plan plan = {.n_tokens = i / 2 / SIZE / SIZE,
                                   .size = 1 + i / 2 / SIZE % SIZE,
                                   .stride = 1 + i / 2 % SIZE,
                                   .begin_token = i % 2};
        if (plan.stride > plan.size || (plan.size == 1 && !plan.begin_token))
            continue;
        size_t got[N] = {0}, want[N] = {0}, count = windows_count(&plan);
        for (size_t k = 0; k < count; k++) {
            struct window w = windows_at(&plan, k);
            assert_in_range(w.end - w.begin, 1, plan.size);
            assert_true(w.end <= plan.n_tokens && w.scored_begin < w.end);
            for (size_t t = w.scored_begin; t < w.end; t++)
                got[t] = got[t] ? SIZE_MAX : k + 1;
        }
        for (size_t begin = 0, k = 1; begin < plan.n_tokens; begin += plan.stride, k++)
            for (size_t t = begin + !plan.begin_token; t < begin + plan.size; t++)
                if (t < plan.n_tokens && !want[t])
                    want[t] = k;
        assert_memory_equal(got, want, plan.n_tokens * sizeof *got);
    }
}

/* ---- Estimate ---- */

static void test_over_windows(void **context)
{
    /* Ten windows: nine of two tokens with sum 2, one of four with sum 16. The mean is 34 / 22; the
     * windows are off by 2 - 68 / 22 = -12 / 11 and 16 - 136 / 22 = 108 / 11, so the squares' sum
     * is (9 * 144 + 11664) / 121 = 12960 / 121 and the error sqrt(12960 / 121 * 10 / 9) / 22. */
    struct estimate e;
    estimate_init(&e);
    for (int w = 0; w < 10; w++) {
        for (int t = 0; t < (w == 3 ? 4 : 2); t++)
            estimate_add(&e, w == 3 ? 4 : 1);
        assert_true(estimate_end_window(&e));
    }
    struct estimate_result r = estimate_get(&e);
    assert_true(r.over_windows);
    assert_int_equal(r.tokens, 22);
    assert_true(fabs(r.mean - 34.0 / 22) < 1e-12);
    assert_true(fabs(r.standard_error - 120 / 11.0 / 22) < 1e-12);
    /* Student's t, 9 degrees of freedom, 97.5 %: 2.26216 (any table) */
    assert_true(fabs((r.high - r.mean) / r.standard_error - 2.26216) < 5e-4);
    assert_true(fabs(r.high + r.low - 2 * r.mean) < 1e-12);
    estimate_fini(&e);
}

static void test_over_tokens(void **context)
{
    /* 1, 2, 3, 4: mean 2.5, variance 5 / 3, error sqrt(5 / 12); t with 3 degrees: 3.18245. */
    struct estimate e;
    estimate_init(&e);
    for (int t = 1; t <= 4; t++) {
        estimate_add(&e, t);
        if (t % 2 == 0)
            assert_true(estimate_end_window(&e));
    }
    struct estimate_result r = estimate_get(&e);
    assert_false(r.over_windows);
    assert_true(fabs(r.mean - 2.5) < 1e-12);
    assert_true(fabs(r.standard_error - sqrt(5.0 / 12)) < 1e-12);
    assert_true(fabs((r.high - r.mean) / r.standard_error - 3.18245) < 0.03);
    estimate_fini(&e);
}

static void test_unfinished(void **context)
{
    struct estimate e;
    estimate_init(&e);
    estimate_add(&e, 7);
    assert_int_equal(estimate_get(&e).tokens, 0); /* not a whole window yet */
    estimate_drop_window(&e);
    assert_true(estimate_end_window(&e)); /* an empty window does not count */
    assert_int_equal(e.n_windows, 0);
    estimate_add(&e, 3);
    assert_true(estimate_end_window(&e));
    struct estimate_result r = estimate_get(&e);
    assert_int_equal(r.tokens, 1);
    assert_true(r.mean == 3);
    assert_true(isnan(r.standard_error) && isnan(r.low) && isnan(r.high)); /* one window: unknown */
    estimate_fini(&e);
}

static uint64_t state = 88172645463325252u;

static double uniform(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (double)(state >> 11) / 9007199254740992.0;
}

/* Windows of different lengths, each with its own level: the true mean is 3, and 95 of 100
 * intervals contain it. If the estimate took tokens as independent, only 39 would. */
static void test_coverage(void **context)
{
    enum { TRIALS = 2000, WINDOWS = 20 };
    int held = 0;
    for (int trial = 0; trial < TRIALS; trial++) {
        struct estimate e;
        estimate_init(&e);
        for (int w = 0; w < WINDOWS; w++) {
            int tokens = 20 + (int)(uniform() * 20);
            double level = 2.5 + uniform();
            for (int t = 0; t < tokens; t++)
                estimate_add(&e, level + uniform() - 0.5);
            assert_true(estimate_end_window(&e));
        }
        struct estimate_result r = estimate_get(&e);
        held += r.low <= 3 && 3 <= r.high;
        estimate_fini(&e);
    }
    assert_in_range(held, TRIALS * 93 / 100, TRIALS * 97 / 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_side_by_side),    cmocka_unit_test(test_sliding),
        cmocka_unit_test(test_short_texts),     cmocka_unit_test(test_second_halves),
        cmocka_unit_test(test_each_token_once), cmocka_unit_test(test_over_windows),
        cmocka_unit_test(test_over_tokens),     cmocka_unit_test(test_unfinished),
        cmocka_unit_test(test_coverage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
