/* worker/prefetch/copy_trial.h: steps with all copies, without prefetches and without any copy,
 * with invented times. */
#include "worker/prefetch/copy_trial.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

enum {
    ROUND = COPY_LIMITS * COPY_TRIAL_BLOCK,
    TRIAL = COPY_TRIAL_ROUNDS * ROUND,
    PAIR = COPY_TRIAL_ROUNDS * 2 * COPY_TRIAL_BLOCK /* a trial of two kinds */
};

/* The machine: seconds of a step of each kind, and what the misses of one without copies cost. */
struct machine {
    double all_s, loads_s, nothing_s, misses_s;
};

/* How many steps of each kind there were. */
struct steps {
    uint32_t of[COPY_LIMITS];
};

static struct copy_trial restarted(void)
{
    struct copy_trial t;
    copy_trial_restart(&t, true, true);
    return t;
}

/* A step of 1 +- 0.3 times the kind's time: the mean of a block's last twelve is 1. The first four
 * take longer, as after a change; one in 32 of each kind is interrupted, and takes 20 times as
 * long. */
static double step_s(const struct copy_trial *t, const struct machine *m, uint32_t nth)
{
    const double took_s[] = {m->all_s, m->loads_s, m->nothing_s};
    double scale = nth % 32 == 11 ? 20 : t->at < COPY_TRIAL_SETTLE ? 1.5 : t->at % 2 ? 1.3 : 0.7;
    return scale * took_s[t->limit];
}

static struct steps run(struct copy_trial *t, uint32_t n, uint32_t n_tokens,
                        const struct machine *m)
{
    struct steps steps = {0};
    for (uint32_t i = 0; i < n; i++) {
        enum copy_limit limit = t->limit;
        double took_s = step_s(t, m, steps.of[limit]++);
        copy_trial_step(
            t, &(struct copy_trial_step){.n_tokens = n_tokens,
                                         .took_s = took_s,
                                         .misses_s = limit == COPY_NOTHING ? m->misses_s : 9});
    }
    return steps;
}

/* Until the trial's result serves. */
static struct steps run_trial(struct copy_trial *t, const struct machine *m)
{
    struct steps steps = {0};
    while (!t->hold)
        steps.of[t->limit]++, run(t, 1, 1, m);
    return steps;
}

/* Blocks of 16 steps alternate, then the fastest kind runs for 512 steps, 1,024, ... 8,192 while
 * the next trials confirm it. */
static void test_fastest(void **state)
{
    (void)state;
    static const struct machine machines[] = {
        {1, 1.05, 1.09, 0}, {1.02, 0.95, 1, 0}, {1, 1.01, 0.95, 0}};
    for (int best = 0; best < 3; best++) {
        struct copy_trial t = restarted();
        uint32_t hold = COPY_TRIAL_HOLD;
        for (int trial = 0; trial < 7; trial++) {
            struct steps tried = run(&t, TRIAL, 1, &machines[best]);
            for (int kind = 0; kind < COPY_LIMITS; kind++)
                assert_int_equal(tried.of[kind], TRIAL / 3);
            struct steps served = run(&t, hold, 1, &machines[best]);
            assert_int_equal(served.of[best], hold);
            assert_int_equal(t.hold, 0);
            assert_int_equal(t.limit, COPY_LOADS); /* the next trial */
            hold = hold < COPY_TRIAL_MOST ? 2 * hold : COPY_TRIAL_MOST;
        }
    }
}

/* A block's mean is that of its last twelve steps. An interrupted one counts three times the
 * median. */
static void test_mean_of_a_block(void **state)
{
    (void)state;
    struct copy_trial t = restarted();
    for (int i = 0; i < COPY_TRIAL_BLOCK; i++) {
        double took_s = i < 4 ? 7 : i == 9 ? 100 : i % 2 ? 2 : 1;
        copy_trial_step(&t, &(struct copy_trial_step){1, took_s, i < 4 ? 5 : 1});
    }
    assert_int_equal(t.limit, COPY_NOTHING);
    /* six of 1, five of 2, and one that counts 3 * 1.5 */
    assert_float_equal(t.of[COPY_LOADS].took_s, (6 * 1 + 5 * 2 + 4.5) / 12, 1e-9);
    assert_float_equal(t.of[COPY_LOADS].misses_s, 1, 1e-9);
}

/* A kind that is far slower gets no more blocks: 2.1 times after one round, 1.4 times after two. */
static void test_far_slower(void **state)
{
    (void)state;
    static const struct {
        struct machine m;
        uint32_t all, loads, nothing; /* blocks */
    } cases[] = {
        {{1, 1.4, 1.9, 0}, 2, 2, 2},   {{1.2, 1, 1.4, 0}, 4, 4, 2},   {{2.1, 2.1, 1, 0}, 1, 1, 1},
        {{1, 1.25, 1.25, 0}, 4, 4, 4}, {{1.09, 1, 1.09, 0}, 4, 4, 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct copy_trial t = restarted();
        struct steps steps = run_trial(&t, &cases[i].m);
        assert_int_equal(steps.of[COPY_ALL], cases[i].all * COPY_TRIAL_BLOCK);
        assert_int_equal(steps.of[COPY_LOADS], cases[i].loads * COPY_TRIAL_BLOCK);
        assert_int_equal(steps.of[COPY_NOTHING], cases[i].nothing * COPY_TRIAL_BLOCK);
    }
}

/* A block ends if its shortest step, of eight and more, is 1.5 times as long as the fastest mean.
 * If steps without copies are so slow, seven trials leave them out, also those of another n_tokens.
 */
static void test_hopeless(void **state)
{
    (void)state;
    static const struct machine slow = {1, 1.05, 30, 0};
    struct copy_trial t = restarted();
    struct steps steps = run_trial(&t, &slow);
    assert_int_equal(steps.of[COPY_ALL], 4 * COPY_TRIAL_BLOCK);
    assert_int_equal(steps.of[COPY_LOADS], 4 * COPY_TRIAL_BLOCK);
    assert_int_equal(steps.of[COPY_NOTHING], 8);
    assert_true(t.copies_save > 0.9);
    struct copy_trial other = restarted();
    assert_int_equal(run_trial(&other, &(struct machine){3, 1, 1, 0}).of[COPY_ALL], 8);
    run(&t, COPY_TRIAL_BLOCK, 2, &slow); /* the last of them counts */
    uint32_t hold = COPY_TRIAL_HOLD;
    for (int trial = 0; trial < COPY_TRIAL_SKIPS; trial++) {
        assert_int_equal(run(&t, PAIR - (trial == 0), 2, &slow).of[COPY_NOTHING], 0);
        assert_int_equal(t.hold, hold);
        assert_true(t.copies_save > 0.9); /* as last tried */
        run(&t, hold, 2, &slow);
        hold = hold < COPY_TRIAL_MOST ? 2 * hold : COPY_TRIAL_MOST;
    }
    steps = run_trial(&t, &(struct machine){1, 1, 0.9, 0});
    assert_int_equal(steps.of[COPY_NOTHING], 4 * COPY_TRIAL_BLOCK);
    assert_int_equal(t.result, COPY_NOTHING);
}

/* An interrupted step does not end a block. */
static void test_one_long_step(void **state)
{
    (void)state;
    struct copy_trial t = restarted();
    run(&t, COPY_TRIAL_BLOCK, 1, &(struct machine){1, 1, 1, 0});
    for (int i = 0; i < COPY_TRIAL_BLOCK; i++) {
        assert_int_equal(t.limit, COPY_NOTHING);
        copy_trial_step(&t, &(struct copy_trial_step){1, i % 4 == 3 ? 1 : 30, 0});
    }
    assert_int_equal(t.limit, COPY_ALL);
    run(&t, COPY_TRIAL_BLOCK, 1, &(struct machine){1, 1, 1, 0});
    assert_int_equal(t.skips, COPY_TRIAL_SKIPS); /* but its mean is far longer */
}

/* 1 % is not enough to leave copies out. A changed result holds for 512 steps again. The trial
 * reports what copies saved. */
static void test_margin_and_change(void **state)
{
    (void)state;
    struct copy_trial t = restarted();
    assert_true(isnan(t.copies_save));
    run(&t, TRIAL, 1, &(struct machine){1, 0.99, 0.975, 0});
    assert_int_equal(t.result, COPY_ALL);
    assert_float_equal(t.prefetch_saves, 1 - 1 / 0.99, 1e-9);
    assert_float_equal(t.copies_save, 1 - 0.99 / 0.975, 1e-9);
    static const struct machine nothing = {1.1, 1, 0.975, 0}, all = {0.95, 1, 1, 0};
    run(&t, COPY_TRIAL_HOLD + TRIAL, 1, &nothing);
    assert_int_equal(t.result, COPY_NOTHING);
    assert_int_equal(t.hold, COPY_TRIAL_HOLD);
    run(&t, COPY_TRIAL_HOLD + TRIAL, 1, &all);
    assert_int_equal(t.result, COPY_ALL);
    assert_int_equal(t.hold, COPY_TRIAL_HOLD);
    assert_float_equal(t.prefetch_saves, 0.05, 1e-9);
}

/* Where nothing is predicted, or no CPU computes experts, there are fewer kinds. */
static void test_fewer_kinds(void **state)
{
    (void)state;
    struct copy_trial t;
    copy_trial_restart(&t, false, true);
    assert_int_equal(t.result, COPY_LOADS);
    for (int trial = 0; trial < 2; trial++) {
        struct steps steps = run(&t, PAIR, 1, &(struct machine){0.5, 1, 0.95, 0});
        assert_int_equal(steps.of[COPY_LOADS], PAIR / 2);
        assert_int_equal(steps.of[COPY_NOTHING], PAIR / 2);
        assert_int_equal(t.limit, COPY_NOTHING);
        assert_true(isnan(t.prefetch_saves));
        run(&t, t.hold, 1, &(struct machine){0.5, 1, 0.95, 0});
    }
    copy_trial_restart(&t, true, false);
    struct steps steps = run(&t, PAIR, 1, &(struct machine){1, 0.95, 0.5, 0});
    assert_int_equal(steps.of[COPY_NOTHING], 0);
    assert_int_equal(t.limit, COPY_LOADS);
    assert_true(isnan(t.copies_save));
    copy_trial_restart(&t, false, false);
    for (int i = 0; i < 3000; i++) {
        run(&t, 1, 1, &(struct machine){1, 1, 1, 0});
        assert_int_equal(t.limit, COPY_LOADS);
    }
}

/* Without copies misses cost more with time: once that is what leaving them out saved, a new trial
 * begins. Then they must save twice as much to win, and after a full time half of that. */
static void test_more_misses(void **state)
{
    (void)state;
    struct copy_trial t = restarted();
    struct machine m = {1.02, 1, 0.85, 0.1}; /* 0.15 saved */
    run_trial(&t, &m);
    run(&t, t.hold, 1, &m);
    double margin = 0.02;
    for (int time = 0; time < 6; time++) {
        m.misses_s = 0.1;
        run_trial(&t, &m);
        assert_int_equal(t.hold, time ? COPY_TRIAL_HOLD : 2 * COPY_TRIAL_HOLD);
        bool wins = 0.15 > margin;
        assert_int_equal(t.limit, wins ? COPY_NOTHING : COPY_ALL);
        if (!wins)
            break;
        m.misses_s = 0.1 + 0.149;
        run(&t, 400, 1, &m);
        assert_int_equal(t.limit, COPY_NOTHING);
        m.misses_s = 0.1 + 0.16;
        uint32_t steps = 0;
        for (; t.hold; steps++)
            run(&t, 1, 1, &m);
        assert_in_range(steps, 1, 100); /* after the mean of 64 */
        margin *= 2;
    }
    assert_float_equal(margin, 0.16, 1e-9);
    assert_float_equal(t.margin, 0.16, 1e-9);
    run(&t, t.hold, 1, &m);
    assert_float_equal(t.margin, 0.08, 1e-9);
    m.misses_s = 0.1;
    run_trial(&t, &m);
    assert_int_equal(t.result, COPY_NOTHING);
    m.misses_s = 5; /* not at once: one layer may miss much */
    run(&t, 63, 1, &m);
    assert_int_not_equal(t.hold, 0);
    run(&t, 1, 1, &m);
    assert_int_equal(t.hold, 0);
}

/* The trial does not compare steps with another number of tokens. If they continue for a block, the
 * trial begins again with that number. A step of unknown time does not count. */
static void test_other_steps(void **state)
{
    (void)state;
    struct copy_trial t = restarted();
    const struct machine m = {1, 0.95, 1, 0};
    for (int i = 0; i < TRIAL; i++) {
        run(&t, 1, 1, &m);
        struct copy_trial before = t;
        for (int k = 0; k < COPY_TRIAL_BLOCK - 1 && i == 20; k++)
            copy_trial_step(&t, &(struct copy_trial_step){.n_tokens = 3, .took_s = 9});
        if (i == 40)
            copy_trial_step(&t, &(struct copy_trial_step){.n_tokens = 1});
        assert_int_equal(t.limit, before.limit);
        assert_int_equal(t.at, before.at);
    }
    assert_int_equal(t.limit, COPY_LOADS);
    run(&t, t.hold, 1, &m);
    run(&t, TRIAL, 1, &m);
    assert_int_equal(t.hold, 2 * COPY_TRIAL_HOLD);
    t.margin = 0.1;
    run(&t, COPY_TRIAL_BLOCK - 1, 4, &m);
    assert_int_equal(t.limit, COPY_LOADS);
    run(&t, 1, 4, &m); /* a trial of four at once */
    assert_int_equal(run(&t, TRIAL - 1, 4, &m).of[COPY_LOADS], TRIAL / 3 - 1);
    assert_int_equal(t.hold, COPY_TRIAL_HOLD);
    assert_true(t.margin < 0.02);
}

/* Four steps without copies in a row that take so long that they look idle end the block. */
static void test_seem_idle(void **state)
{
    (void)state;
    struct copy_trial t = restarted();
    for (int i = 0; i < 9; i++)
        copy_trial_step(&t, &(struct copy_trial_step){.n_tokens = 1});
    assert_int_equal(t.limit, COPY_LOADS);
    run(&t, COPY_TRIAL_BLOCK, 1, &(struct machine){1, 1, 1, 0});
    for (int i = 0; i < 3 + 4; i++) {
        if (i == 3)
            copy_trial_step(&t, &(struct copy_trial_step){.n_tokens = 1, .took_s = 1});
        assert_int_equal(t.limit, COPY_NOTHING);
        copy_trial_step(&t, &(struct copy_trial_step){.n_tokens = 1});
    }
    assert_int_equal(t.limit, COPY_ALL);
    assert_int_equal(run(&t, TRIAL, 1, &(struct machine){1, 1, 1, 0}).of[COPY_NOTHING], 0);
}

static void test_may_load(void **state)
{
    (void)state;
    struct copy_trial t = restarted();
    run(&t, COPY_TRIAL_BLOCK - 1, 1, &(struct machine){1, 1, 1, 0});
    assert_true(copy_trial_may_load(&t, 1, true));
    run(&t, 1, 1, &(struct machine){1, 1, 1, 0});
    assert_int_equal(t.limit, COPY_NOTHING);
    assert_false(copy_trial_may_load(&t, 1, true));
    assert_true(copy_trial_may_load(&t, 1, false));
    assert_true(copy_trial_may_load(&t, 2, true));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fastest),       cmocka_unit_test(test_mean_of_a_block),
        cmocka_unit_test(test_far_slower),    cmocka_unit_test(test_hopeless),
        cmocka_unit_test(test_one_long_step), cmocka_unit_test(test_margin_and_change),
        cmocka_unit_test(test_fewer_kinds),   cmocka_unit_test(test_more_misses),
        cmocka_unit_test(test_other_steps),   cmocka_unit_test(test_seem_idle),
        cmocka_unit_test(test_may_load),
    };
    return cmocka_run_group_tests(tests, 0, 0);
}
