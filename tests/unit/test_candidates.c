/* lib/sched/prefetch/candidates.h: the choice of predictions to prefetch, by hand and compared with
 * every subset. */
#include "sched/prefetch/candidates.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

/* The worker asks a coming layer's gate where that takes a tenth of a layer at most, or three
 * hundredths with an early predictor, and 0.6 of what misses take. */
static void test_pays(void **state)
{
    (void)state;
    assert_true(prefetch_gate_pays(PREFETCH_SELECTIVE, false, 15e-6, 160e-6, 1));
    assert_false(prefetch_gate_pays(PREFETCH_SELECTIVE, false, 15e-6, 140e-6, 1));
    assert_true(prefetch_gate_pays(PREFETCH_SELECTIVE, true, 15e-6, 510e-6, 1));
    assert_false(prefetch_gate_pays(PREFETCH_SELECTIVE, true, 15e-6, 490e-6, 1));
    assert_true(prefetch_gate_pays(PREFETCH_SELECTIVE, false, 15e-6, 0, 0)); /* not known */
    assert_true(prefetch_gate_pays(PREFETCH_SELECTIVE, false, 15e-6, 160e-6, 26e-6));
    assert_false(prefetch_gate_pays(PREFETCH_SELECTIVE, false, 15e-6, 160e-6, 24e-6));
    assert_false(
        prefetch_gate_pays(PREFETCH_SELECTIVE, false, 15e-6, 160e-6, 0)); /* all is resident */
    /* The papers' prefetchers, whatever its share of a layer. */
    for (int i = 0; i < PREFETCH_VALUE; i++) {
        enum sched_prefetcher kind = (enum sched_prefetcher)i;
        assert_true(prefetch_gate_pays(kind, false, 15e-6, 20e-6, 26e-6));
        assert_true(prefetch_gate_pays(kind, true, 15e-6, 20e-6, 26e-6));
        assert_false(prefetch_gate_pays(kind, false, 15e-6, 160e-6, 24e-6));
        assert_true(prefetch_gate_pays(kind, false, 15e-6, 0, 0)); /* not known */
    }
}

/* A copy of 3 seconds slows a CPU segment of 2 to 2.5: it costs 3 (1 - 2 / 2.5) = 0.6, and saves 2
 * p: worth it from 0.3 on. */
static const struct sched_costs costs = {.load_s = 3,
                                         .load_contended_s = 3,
                                         .cpu_s = 1,
                                         .cpu_token_s = 1,
                                         .cpu_contended_s = 1.5,
                                         .cpu_contended_token_s = 1};

/* Without a call each candidate is judged separately. In steps 32, 64 ... nothing is copied, in 16,
 * 48 ... everything. */
static void test_uncontended(void **state)
{
    (void)state;
    for (uint64_t step = 0; step < 100; step++) {
        struct prefetch_candidate g[] = {{.p = 0.31, .missing = 1}, {.p = 0.29, .missing = 1}};
        prefetch_judge_candidates(PREFETCH_SELECTIVE, &costs, 0, step, g, 2, 2);
        assert_int_equal(g[0].verdict, step % 32 == 0 ? CANDIDATE_SKIP : CANDIDATE_PREFETCH);
        assert_int_equal(g[1].verdict, step % 32 == 0    ? CANDIDATE_SKIP
                                       : step % 32 == 16 ? CANDIDATE_PREFETCH
                                                         : CANDIDATE_DECLINE);
        for (int kind = 0; kind < PREFETCH_VALUE; kind++) { /* those of the papers */
            g[0] = (struct prefetch_candidate){.p = 0, .missing = 1, .verdict = CANDIDATE_DECLINE};
            prefetch_judge_candidates((enum sched_prefetcher)kind, &costs, 0, step, g, 1, 1);
            assert_int_equal(g[0].verdict, CANDIDATE_PREFETCH);
        }
    }
}

static uint32_t copied(double call_s, struct prefetch_candidate *g, uint32_t n, uint32_t n_known)
{
    uint32_t mask = 0;
    prefetch_judge_candidates(PREFETCH_SELECTIVE, &costs, call_s, 1, g, n, n_known);
    for (uint32_t i = 0; i < n; i++)
        mask |= (g[i].verdict == CANDIDATE_PREFETCH) << i;
    return mask;
}

/* 0.9 has a gain of its own. 0.2 costs 0.6 - 0.4 = 0.2 a segment, and without it the layer does
 * without the CPU with 1 instead of 0.8: of a call of 2 seconds 0.4. Of two segments it costs as
 * much. 0.1 costs 0.4: all three with a call of 6, (1 - 0.72) 6 = 1.68 for 0.2 + 0.4; with one of 2
 * only the second, (0.9 - 0.72) 2 = 0.36 for 0.2, and the third as well 0.2 more for 0.4. A third
 * that cannot be copied leaves (0.9 - 0.72) 2; one that is nearly certain nothing. */
static void test_for_the_call(void **state)
{
    (void)state;
    struct prefetch_candidate two[] = {{.p = 0.9, .missing = 1}, {.p = 0.2, .missing = 1}};
    assert_int_equal(copied(0, two, 2, 2), 1);
    assert_int_equal(copied(0.9, two, 2, 2), 1);
    assert_int_equal(copied(1.1, two, 2, 2), 3);
    two[1].missing = 2;
    assert_int_equal(copied(1.9, two, 2, 2), 1);
    assert_int_equal(copied(2.1, two, 2, 2), 3);
    struct prefetch_candidate three[] = {
        {.p = 0.9, .missing = 1}, {.p = 0.2, .missing = 1}, {.p = 0.1, .missing = 1}};
    assert_int_equal(copied(6, three, 3, 3), 7);
    assert_int_equal(copied(2, three, 3, 3), 3);
    assert_int_equal(copied(2, three, 2, 3), 3);
    three[2].p = 1; /* beyond those that may be copied, whatever the order */
    assert_int_equal(copied(2, three, 2, 3), 1);
}

/* Of experts of one size the verdicts are the best of all sets. */
static void test_best_of_all(void **state)
{
    enum { N = 8 };
    uint32_t seed = 7;
    (void)state;
    for (int round = 0; round < 2000; round++) {
        struct prefetch_candidate g[N];
        double falling = 1, call_s = (double)(round % 50) * 0.3, best = -1;
        for (int i = 0; i < N; i++) {
            seed = seed * 1664525 + 1013904223;
            falling *= 0.5 + 0.5 * (double)(seed >> 8) / (1 << 24);
            g[i] = (struct prefetch_candidate){.p = falling, .missing = 1};
        }
        uint32_t n = N - (uint32_t)(round % 3), got = copied(call_s, g, n, N);
        double of_got = 0;
        for (uint32_t set = 0; set < 1u << n; set++) {
            double value = 0, none = 1;
            for (uint32_t i = 0; i < N; i++)
                if (set >> i & 1)
                    value += 2 * g[i].p - 0.6;
                else
                    none *= 1 - g[i].p;
            value += call_s * none;
            best = value > best ? value : best;
            of_got = set == got ? value : of_got;
        }
        if (of_got < best - 1e-3 * (1 + call_s)) /* 1 - p is no less than a thousandth there */
            fail_msg("round %d: the set %x is worth %g, the best one %g", round, got, of_got, best);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pays),
        cmocka_unit_test(test_uncontended),
        cmocka_unit_test(test_for_the_call),
        cmocka_unit_test(test_best_of_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
