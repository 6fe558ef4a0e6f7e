/* worker/prefetch/device_trial.h: steps with all copies, without prefetches, without any copy and
 * without the device, with invented times. */
#include "worker/prefetch/device_trial.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

enum {
    BLOCK = DEVICE_TRIAL_BLOCK,
    HALF = BLOCK / 2,
    ROUNDS = DEVICE_TRIAL_ROUNDS,
    KINDS = 3, /* without the CPU alone, which most machines do not try */
    TRIAL = ROUNDS * KINDS * BLOCK,
    PAIR = ROUNDS * 2 * BLOCK /* a trial of two kinds */
};

/* The machine: seconds of a step of each kind, and what the misses of one without copies cost. The
 * CPU alone is expected to take cpu_only_s, and takes unused_s. */
struct machine {
    double all_s, loads_s, nothing_s, misses_s;
    double cpu_only_s, unused_s;
};

static const struct machine equal = {1, 1, 1, 0, 0, 0};

static bool has_copies(enum device_use use)
{
    return use == DEVICE_PREFETCHES || use == DEVICE_LOADS;
}

/* Of a step that is compared. */
static bool shows(const struct device_trial *t, uint64_t step)
{
    return device_trial_shows(t, step, t->n_tokens, true);
}

/* How many steps of each kind there were. */
struct steps {
    uint32_t of[DEVICE_USES];
};

/* After the steps in which the device fills. */
static struct device_trial restarted(bool predicts, bool has_cpu)
{
    struct device_trial t;
    device_trial_restart(&t, predicts, has_cpu);
    for (int i = 0; i < DEVICE_TRIAL_WARM; i++) {
        assert_int_equal(t.use, DEVICE_LOADS);
        device_trial_step(&t, &(struct device_trial_step){.n_tokens = 1, .took_s = 9});
    }
    assert_int_equal(t.hold, 0);
    assert_int_equal(t.use, DEVICE_LOADS);
    return t;
}

/* A step of 1 +- 0.3 times the kind's time: the mean of a block's last twelve is 1. The first four
 * take longer, as after a change; one in 32 of each kind is interrupted, and takes 20 times as
 * long. */
static double step_s(const struct device_trial *t, const struct machine *m, uint32_t nth)
{
    const double took_s[] = {m->all_s, m->loads_s, m->nothing_s, m->unused_s};
    double scale = nth % 32 == 11 ? 20 : t->at < DEVICE_TRIAL_SETTLE ? 1.5 : t->at % 2 ? 1.3 : 0.7;
    return scale * took_s[t->use];
}

static struct steps run(struct device_trial *t, uint32_t n, uint32_t n_tokens,
                        const struct machine *m)
{
    struct steps steps = {0};
    for (uint32_t i = 0; i < n; i++) {
        enum device_use use = t->use;
        double took_s = step_s(t, m, steps.of[use]++);
        device_trial_step(
            t, &(struct device_trial_step){.n_tokens = n_tokens,
                                           .took_s = took_s,
                                           .misses_s = use == DEVICE_KEEPS ? m->misses_s : 9,
                                           .cpu_only_s = m->cpu_only_s});
    }
    return steps;
}

/* The steps between the cause of a trial and its begin, all shown to the predictor and with loads.
 */
static void run_until_due(struct device_trial *t, const struct machine *m)
{
    uint32_t steps = 0;
    assert_true(t->due);
    for (; t->hold; steps++) {
        assert_int_equal(t->use, has_copies(t->result) ? t->result : DEVICE_LOADS);
        assert_int_equal(shows(t, steps), t->tries[DEVICE_PREFETCHES]);
        run(t, 1, t->n_tokens, m);
    }
    assert_int_equal(steps, DEVICE_TRIAL_WARM);
    assert_int_equal(t->use, DEVICE_LOADS);
}

/* Until the trial's result serves. */
static struct steps run_trial(struct device_trial *t, const struct machine *m)
{
    struct steps steps = {0};
    while (!t->hold)
        steps.of[t->use]++, run(t, 1, t->n_tokens, m);
    return steps;
}

static uint32_t longer(uint32_t hold)
{
    return hold < DEVICE_TRIAL_MOST ? 2 * hold : DEVICE_TRIAL_MOST;
}

/* Blocks of 16 steps alternate, then the fastest kind runs for 512 steps, 1,024, ... 8,192 while
 * the next trials confirm it. */
static void test_fastest(void **state)
{
    (void)state;
    static const struct machine machines[] = {
        {1, 1.05, 1.09, 0, 0, 0}, {1.02, 0.95, 1, 0, 0, 0}, {1, 1.01, 0.95, 0, 0, 0}};
    for (int best = 0; best < 3; best++) {
        struct device_trial t = restarted(true, true);
        uint32_t hold = DEVICE_TRIAL_HOLD;
        for (int trial = 0; trial < 7; trial++) {
            struct steps tried = run(&t, TRIAL, 1, &machines[best]);
            for (int kind = 0; kind < KINDS; kind++)
                assert_int_equal(tried.of[kind], TRIAL / 3);
            struct steps served = run(&t, hold, 1, &machines[best]);
            assert_int_equal(served.of[best], hold);
            assert_int_equal(t.hold, 0);
            assert_int_equal(t.use, DEVICE_LOADS); /* the next trial */
            hold = longer(hold);
        }
    }
}

/* A block's mean is that of its last twelve steps. An interrupted one counts three times the
 * median. Only misses of steps without copies are counted. */
static void test_mean_of_a_block(void **state)
{
    (void)state;
    struct device_trial t = restarted(true, true);
    for (int i = 0; i < 2 * BLOCK; i++) {
        int at = i % BLOCK;
        double took_s = at < 4 ? 7 : at == 9 ? 100 : at % 2 ? 2 : 1;
        device_trial_step(&t, &(struct device_trial_step){1, i < BLOCK ? took_s : 2,
                                                          i < BLOCK ? 7
                                                          : at < 4  ? 5
                                                          : at % 2  ? 2
                                                                    : 1,
                                                          0});
    }
    assert_int_equal(t.use, DEVICE_PREFETCHES);
    double mean = (6 * 1 + 5 * 2 + 3 * 1.5) / 12; /* of one: 100 */
    assert_float_equal(t.loads_s, mean, 1e-9);
    assert_float_equal(t.of[DEVICE_LOADS].ratio[0], 1, 1e-9);
    assert_float_equal(t.of[DEVICE_KEEPS].ratio[0], 2 / mean, 1e-9);
    assert_float_equal(t.trial_misses_s, 1.5, 1e-9);
}

/* The median of the rounds decides: not one in which the machine had other work. */
static void test_median(void **state)
{
    (void)state;
    for (int disturbed = 0; disturbed < ROUNDS; disturbed++)
        for (int kind = 0; kind < KINDS; kind++) {
            struct device_trial t = restarted(true, true);
            for (int i = 0; i < TRIAL; i++) {
                bool slow = (int)t.of[kind].blocks == disturbed && (int)t.use == kind;
                double s = t.use == DEVICE_KEEPS ? 0.97 : t.use == DEVICE_PREFETCHES ? 1.04 : 1;
                device_trial_step(&t, &(struct device_trial_step){1, slow ? 1.4 * s : s, 0, 0});
            }
            assert_int_equal(t.hold, DEVICE_TRIAL_HOLD);
            assert_int_equal(t.result, DEVICE_KEEPS);
            assert_float_equal(t.prefetch_saves, -0.04, 1e-9);
        }
}

/* A spell in which the machine is slower, wherever it begins and ends, falsifies one round's ratios
 * at most in each direction, so the median is right. */
static void test_slow_spell(void **state)
{
    (void)state;
    static const double times[] = {1.4, 5};
    for (int i = 0; i < 2; i++)
        for (int from = 0; from < TRIAL; from++)
            for (int length = 1; length <= 4 * BLOCK; length += 3) {
                struct device_trial t = restarted(true, true);
                for (int step = 0; !t.hold; step++) {
                    double s = t.use == DEVICE_KEEPS ? 1.05 : t.use == DEVICE_PREFETCHES ? 0.95 : 1;
                    bool slow = step >= from && step < from + length;
                    device_trial_step(
                        &t, &(struct device_trial_step){1, slow ? times[i] * s : s, 0, 0});
                }
                assert_int_equal(t.result, DEVICE_PREFETCHES);
                assert_float_equal(t.prefetch_saves, 0.05, 1e-9);
            }
}

/* Whenever the machine becomes some times slower, or faster: the trial ends, with a result that is
 * right or, in a round or two of four, nearly so. */
static void test_other_speed(void **state)
{
    (void)state;
    static const double times[] = {0.2, 0.6, 1.5, 2, 5, 100};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        for (int from = 0; from < TRIAL; from++) {
            struct device_trial t = restarted(true, true);
            int steps = 0;
            for (; !t.hold; steps++) {
                double s = t.use == DEVICE_KEEPS ? 1.4 : t.use == DEVICE_PREFETCHES ? 0.9 : 1;
                assert_true(t.use < DEVICE_UNUSED);
                device_trial_step(
                    &t, &(struct device_trial_step){1, steps >= from ? times[i] * s : s, 0, 0});
            }
            assert_in_range(steps, 2 * BLOCK + 2, TRIAL);
            assert_int_equal(t.result, DEVICE_PREFETCHES);
            assert_int_equal(t.skips[DEVICE_KEEPS], 0);
        }
}

/* A kind that took 1.3 times as long in two rounds gets no more blocks. */
static void test_far_slower(void **state)
{
    (void)state;
    static const struct {
        struct machine m;
        uint32_t all, loads, nothing; /* steps */
    } cases[] = {
        {{1.4, 1, 1.4, 0, 0, 0}, 2 * BLOCK, 2 * BLOCK, 2 * BLOCK},
        {{1, 1, 1.4, 0, 0, 0}, 4 * BLOCK, 4 * BLOCK, 2 * BLOCK},
        {{1.4, 1, 1, 0, 0, 0}, 2 * BLOCK, 4 * BLOCK, 4 * BLOCK},
        {{1.25, 1, 1.25, 0, 0, 0}, 4 * BLOCK, 4 * BLOCK, 4 * BLOCK},
        {{1, 3, 1, 0, 0, 0}, 4 * BLOCK, 4 * BLOCK, 4 * BLOCK},
        /* blocks end early: the shortest step takes 0.7 of these times */
        {{2.5, 1, 1, 0, 0, 0}, 2 * HALF, 4 * BLOCK, 4 * BLOCK},
        {{1, 1, 2.5, 0, 0, 0}, 4 * BLOCK, 4 * BLOCK, 2 * HALF},
        {{1, 1, 5, 0, 0, 0}, 4 * BLOCK, 4 * BLOCK, 2 * DEVICE_TRIAL_SETTLE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct device_trial t = restarted(true, true);
        struct steps steps = run_trial(&t, &cases[i].m);
        assert_int_equal(steps.of[DEVICE_PREFETCHES], cases[i].all);
        assert_int_equal(steps.of[DEVICE_LOADS], cases[i].loads);
        assert_int_equal(steps.of[DEVICE_KEEPS], cases[i].nothing);
    }
}

/* If steps without copies take twice as long, the next seven trials leave them out. */
static void test_skips(void **state)
{
    (void)state;
    static const struct machine slow = {1, 1.05, 30, 0, 0, 0};
    struct device_trial t = restarted(true, true);
    run_trial(&t, &slow);
    assert_true(t.copies_save > 0.9);
    run(&t, DEVICE_TRIAL_SWITCH, 2, &slow);
    run_until_due(&t, &slow);
    uint32_t hold = DEVICE_TRIAL_HOLD;
    for (int trial = 0; trial < DEVICE_TRIAL_SKIPS; trial++) {
        assert_int_equal(run(&t, PAIR, 2, &slow).of[DEVICE_KEEPS], 0);
        assert_int_equal(t.hold, hold);
        assert_true(t.copies_save > 0.9); /* as last tried */
        run(&t, hold, 2, &slow);
        hold = longer(hold);
    }
    struct steps steps = run_trial(&t, &(struct machine){1, 1, 0.9, 0, 0, 0});
    assert_int_equal(steps.of[DEVICE_KEEPS], 4 * BLOCK);
    assert_int_equal(t.result, DEVICE_KEEPS);
    /* where prefetches take so long, they are tried each time */
    t = restarted(true, true);
    run_trial(&t, &(struct machine){9, 1, 1, 0, 0, 0});
    run(&t, t.hold, 1, &equal);
    assert_int_equal(run_trial(&t, &equal).of[DEVICE_PREFETCHES], 4 * BLOCK);
}

/* An interrupted step does not end a block early, nor one short step make a long block short. */
static void test_one_long_step(void **state)
{
    (void)state;
    struct device_trial t = restarted(true, true);
    run(&t, BLOCK, 1, &equal);
    for (int i = 0; i < BLOCK; i++) {
        assert_int_equal(t.use, DEVICE_KEEPS);
        device_trial_step(&t, &(struct device_trial_step){1, i % 4 == 3 ? 1 : 30, 0, 0});
    }
    assert_int_equal(t.use, DEVICE_PREFETCHES);
    assert_true(t.of[DEVICE_KEEPS].ratio[0] > 15);
}

/* 1 % is not enough to leave copies out. A changed result holds for 512 steps again. The trial
 * reports what copies saved. */
static void test_margin_and_change(void **state)
{
    (void)state;
    struct device_trial t = restarted(true, true);
    assert_true(isnan(t.copies_save));
    run(&t, TRIAL, 1, &(struct machine){1, 0.99, 0.975, 0, 0, 0});
    assert_int_equal(t.result, DEVICE_PREFETCHES);
    assert_float_equal(t.prefetch_saves, 1 - 1 / 0.99, 1e-9);
    assert_float_equal(t.copies_save, 1 - 0.99 / 0.975, 1e-9);
    static const struct machine nothing = {1.1, 1, 0.975, 0, 0, 0}, all = {0.95, 1, 1, 0, 0, 0};
    run(&t, DEVICE_TRIAL_HOLD + TRIAL, 1, &nothing);
    assert_int_equal(t.result, DEVICE_KEEPS);
    assert_int_equal(t.hold, DEVICE_TRIAL_HOLD);
    assert_float_equal(t.saved_s, 0.025, 1e-9);
    run(&t, DEVICE_TRIAL_HOLD + TRIAL, 1, &all);
    assert_int_equal(t.result, DEVICE_PREFETCHES);
    assert_int_equal(t.hold, DEVICE_TRIAL_HOLD);
    assert_float_equal(t.prefetch_saves, 0.05, 1e-9);
}

/* Steps without copies are compared with the faster of the two other kinds. */
static void test_faster_of_two(void **state)
{
    (void)state;
    struct device_trial t = restarted(true, true);
    run(&t, TRIAL, 1, &(struct machine){1.8, 2, 1.7, 0, 0, 0});
    assert_int_equal(t.result, DEVICE_KEEPS);
    assert_float_equal(t.saved_s, 0.1, 1e-9);
    t = restarted(true, true);
    run(&t, TRIAL, 1, &(struct machine){0.9, 1, 0.95, 0, 0, 0});
    assert_int_equal(t.result, DEVICE_PREFETCHES);
}

/* Where nothing is predicted, or no CPU computes experts, there are fewer kinds. */
static void test_fewer_kinds(void **state)
{
    (void)state;
    struct device_trial t = restarted(false, true);
    assert_int_equal(t.result, DEVICE_LOADS);
    for (int trial = 0; trial < 2; trial++) {
        struct steps steps = run(&t, PAIR, 1, &(struct machine){0.5, 1, 0.95, 0, 0, 0});
        assert_int_equal(steps.of[DEVICE_LOADS], PAIR / 2);
        assert_int_equal(steps.of[DEVICE_KEEPS], PAIR / 2);
        assert_int_equal(t.use, DEVICE_KEEPS);
        assert_true(isnan(t.prefetch_saves));
        run(&t, t.hold, 1, &(struct machine){0.5, 1, 0.95, 0, 0, 0});
    }
    t = restarted(true, false);
    assert_int_equal(t.result, DEVICE_PREFETCHES);
    struct steps steps = run(&t, PAIR, 1, &(struct machine){1, 0.95, 0.5, 0, 0, 0});
    assert_int_equal(steps.of[DEVICE_KEEPS], 0);
    assert_int_equal(t.use, DEVICE_LOADS);
    assert_true(isnan(t.copies_save));
    t = restarted(false, false);
    for (int i = 0; i < 3000; i++) {
        run(&t, 1, 1, &equal);
        assert_int_equal(t.use, DEVICE_LOADS);
    }
}

/* Without copies misses cost more with time: once that is what leaving them out saved, a new trial
 * begins. Then they must save twice as much to win, and after a full time half of that. */
static void test_more_misses(void **state)
{
    (void)state;
    struct device_trial t = restarted(true, true);
    struct machine m = {1.02, 1, 0.85, 0.1, 0, 0}; /* 0.15 saved */
    run_trial(&t, &m);
    run(&t, t.hold, 1, &m);
    static const double margins[] = {0.04, 0.08, 0.16};
    for (int time = 0; time < 3; time++) {
        m.misses_s = 0.1;
        run_trial(&t, &m);
        assert_int_equal(t.hold, time ? DEVICE_TRIAL_HOLD : 2 * DEVICE_TRIAL_HOLD);
        assert_int_equal(t.use, DEVICE_KEEPS);
        m.misses_s = 0.1 + 0.149;
        run(&t, 400, 1, &m);
        assert_int_equal(t.use, DEVICE_KEEPS);
        m.misses_s = 0.1 + 0.16;
        uint32_t steps = 0;
        for (; !t.due && steps <= 100; steps++)
            run(&t, 1, 1, &m);
        assert_in_range(steps, 1, 100); /* after the mean of 64 */
        run_until_due(&t, &m);
        assert_float_equal(t.margin, margins[time], 1e-9);
    }
    run_trial(&t, &m); /* 15 % are less than 16 */
    assert_int_equal(t.result, DEVICE_PREFETCHES);
    run(&t, t.hold, 1, &m);
    assert_float_equal(t.margin, 0.08, 1e-9);
    m.misses_s = 0.1;
    run_trial(&t, &m);
    assert_int_equal(t.result, DEVICE_KEEPS);
    m.misses_s = 5; /* not at once: one step may miss much */
    run(&t, 63, 1, &m);
    assert_false(t.due);
    run(&t, 1, 1, &m);
    run_until_due(&t, &m);
    m.nothing_s = 0.5;
    for (int i = 0; i < 4; i++) {
        m.misses_s = 0.1;
        run_trial(&t, &m);
        assert_int_equal(t.use, DEVICE_KEEPS);
        m.misses_s = 5;
        run(&t, 64, 1, &m);
        run_until_due(&t, &m);
    }
    assert_float_equal(t.margin, 0.32, 1e-9); /* at most */
    /* shortly before a trial that comes anyway: that one */
    m.misses_s = 0.1;
    run_trial(&t, &m);
    run(&t, t.hold - 20, 1, &m);
    m.misses_s = 500;
    run(&t, 1, 1, &m);
    assert_true(t.due && t.hold - t.at == 19);
    run(&t, 19, 1, &m);
    assert_int_equal(t.hold, 0);
}

/* The trial does not compare steps with another number of tokens. Once 64 of one other number came
 * in a row, it compares these. A step of unknown time does not count. */
static void test_other_steps(void **state)
{
    (void)state;
    struct device_trial t = restarted(true, true);
    const struct machine m = {1, 0.95, 1, 0, 0, 0};
    for (int i = 0; i < TRIAL; i++) {
        run(&t, 1, 1, &m);
        struct device_trial before = t;
        for (int k = 0; k < DEVICE_TRIAL_SWITCH - 1 && i % 50 == 20; k++)
            device_trial_step(&t, &(struct device_trial_step){.n_tokens = 3, .took_s = 9});
        for (int k = 0; k < 200 && i == 30; k++) /* changing numbers */
            device_trial_step(&t, &(struct device_trial_step){.n_tokens = 2 + k % 5, .took_s = 9});
        if (i == 40)
            device_trial_step(&t, &(struct device_trial_step){.n_tokens = 1});
        assert_int_equal(t.use, before.use);
        assert_int_equal(t.at, before.at);
    }
    assert_int_equal(t.use, DEVICE_LOADS);
    run(&t, t.hold, 1, &m);
    run(&t, TRIAL, 1, &m);
    assert_int_equal(t.hold, 2 * DEVICE_TRIAL_HOLD);
    t.margin = 0.1;
    run(&t, DEVICE_TRIAL_SWITCH - 1, 4, &m);
    assert_int_equal(t.n_tokens, 1);
    run(&t, 1, 4, &m); /* a trial of four */
    assert_int_equal(t.n_tokens, 4);
    run_until_due(&t, &m);
    assert_int_equal(run(&t, TRIAL, 4, &m).of[DEVICE_LOADS], TRIAL / 3);
    assert_int_equal(t.hold, DEVICE_TRIAL_HOLD);
    assert_true(t.margin < 0.02);
}

/* Four steps without copies in a row that take so long that they look idle end the block. */
static void test_seem_idle(void **state)
{
    (void)state;
    struct device_trial t = restarted(true, true);
    for (int i = 0; i < 9; i++)
        device_trial_step(&t, &(struct device_trial_step){.n_tokens = 1});
    assert_int_equal(t.use, DEVICE_LOADS);
    for (int round = 0; round < 2; round++) {
        run(&t, BLOCK, 1, &equal);
        for (int i = 0; i < 3 + 4; i++) {
            assert_int_equal(t.use, DEVICE_KEEPS);
            if (i == 3)
                device_trial_step(&t, &(struct device_trial_step){.n_tokens = 1, .took_s = 1});
            device_trial_step(&t, &(struct device_trial_step){.n_tokens = 1});
        }
        assert_int_equal(t.use, DEVICE_PREFETCHES);
        run(&t, BLOCK, 1, &equal);
    }
    assert_int_equal(run_trial(&t, &equal).of[DEVICE_KEEPS], 0);
    assert_int_equal(t.result, DEVICE_PREFETCHES);
    assert_int_equal(t.skips[DEVICE_KEEPS], DEVICE_TRIAL_SKIPS);
}

/* The CPU alone is tried where it should take at most 1.3 times as long; it must be 2 % faster than
 * the device at its best. */
static void test_cpu_only(void **state)
{
    (void)state;
    static const struct {
        struct machine m;
        bool tried;
        enum device_use result;
    } cases[] = {
        {{1, 1, 1, 0, 0, 0.5}, false, DEVICE_PREFETCHES}, /* not known */
        {{1, 1, 1, 0, 1.4, 0.5}, false, DEVICE_PREFETCHES},
        {{1, 1, 1, 0, 1.2, 0.97}, true, DEVICE_UNUSED},
        {{1, 1, 1, 0, 0.5, 0.99}, true, DEVICE_PREFETCHES},
        {{1.1, 1, 0.9, 0, 0.5, 0.89}, true, DEVICE_KEEPS},
        {{1.1, 1, 0.9, 0, 0.5, 0.88}, true, DEVICE_UNUSED},
        {{1.1, 1, 1, 0, 0.5, 1.05}, true, DEVICE_LOADS},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct device_trial t;
        device_trial_restart(&t, true, true);
        run(&t, DEVICE_TRIAL_WARM, 1, &cases[i].m);
        assert_true(isnan(t.device_saves));
        struct steps steps = run_trial(&t, &cases[i].m);
        assert_int_equal(steps.of[DEVICE_UNUSED], cases[i].tried ? 4 * BLOCK : 0);
        assert_int_equal(steps.of[DEVICE_LOADS], 4 * BLOCK);
        assert_int_equal(t.result, cases[i].result);
        assert_int_equal(isnan(t.device_saves), !cases[i].tried);
        assert_int_equal(device_trial_use(&t, 1, true), cases[i].result);
    }
    /* 0.9 against 0.88; prompts and steps of another number load */
    struct device_trial t = restarted(true, true);
    run_trial(&t, &cases[5].m);
    assert_float_equal(t.device_saves, 1 - 0.9 / 0.88, 1e-9);
    assert_int_equal(device_trial_use(&t, 1, false), DEVICE_LOADS);
    assert_int_equal(device_trial_use(&t, 2, true), DEVICE_LOADS);
    /* its own steps say nothing of what it should take, and another n_tokens begins anew */
    run(&t, 100, 1, &(struct machine){1, 1, 1, 0, 9, 1});
    assert_true(t.cpu_only < 1);
    run(&t, DEVICE_TRIAL_SWITCH, 2, &cases[5].m);
    assert_true(t.cpu_only == 0);
    /* without cpuexec */
    t = restarted(true, false);
    assert_int_equal(run_trial(&t, &cases[5].m).of[DEVICE_UNUSED], 0);
}

/* One kind so much faster than all others ends the trial after two rounds. */
static void test_one_far_faster(void **state)
{
    (void)state;
    static const struct {
        struct machine m;
        uint32_t rounds[DEVICE_USES];
        enum device_use result;
    } cases[] = {
        {{1, 1, 1, 0, 1, 0.7}, {2, 2, 2, 2}, DEVICE_UNUSED},
        {{1, 1, 0.9, 0, 1, 0.72}, {2, 4, 4, 4}, DEVICE_UNUSED},
        {{0.7, 1, 1, 0, 1, 1}, {2, 2, 2, 2}, DEVICE_PREFETCHES},
        {{1, 1, 0.7, 0, 1, 1}, {2, 2, 2, 2}, DEVICE_KEEPS},
        {{1, 1, 1, 0, 1.2, 1.35}, {4, 4, 4, 2}, DEVICE_PREFETCHES},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct device_trial t;
        device_trial_restart(&t, true, true);
        run(&t, DEVICE_TRIAL_WARM, 1, &cases[i].m);
        struct steps steps = run_trial(&t, &cases[i].m);
        for (int kind = 0; kind < DEVICE_USES; kind++)
            assert_int_equal(steps.of[kind], cases[i].rounds[kind] * BLOCK);
        assert_int_equal(t.result, cases[i].result);
    }
}

/* Steps that are not compared follow the last result, but load. */
static void test_limit(void **state)
{
    (void)state;
    struct device_trial t = restarted(true, true);
    assert_int_equal(device_trial_use(&t, 1, true), DEVICE_LOADS);
    assert_int_equal(device_trial_use(&t, 1, false), DEVICE_PREFETCHES);
    assert_int_equal(device_trial_use(&t, 2, true), DEVICE_PREFETCHES);
    run_trial(&t, &(struct machine){1, 1, 0.5, 0, 0, 0});
    assert_int_equal(device_trial_use(&t, 1, true), DEVICE_KEEPS);
    assert_int_equal(device_trial_use(&t, 1, false), DEVICE_LOADS);
    assert_int_equal(device_trial_use(&t, 2, true), DEVICE_LOADS);
    run(&t, t.hold, 1, &equal);
    assert_int_equal(device_trial_use(&t, 2, true), DEVICE_LOADS);
    device_trial_restart(&t, true, true);
    assert_int_equal(device_trial_use(&t, 1, true),
                     DEVICE_PREFETCHES); /* the first step is compared later */
}

static bool is_eighth(uint64_t step)
{
    return step % 8 == DEVICE_TRIAL_SHOWN_AT;
}

/* The predictor sees the steps before each trial, and one in eight of those that serve, also where
 * nothing is prefetched. */
static void test_shown(void **state)
{
    (void)state;
    static const struct machine slow_copies = {1.2, 1, 1.1, 0, 0, 0};
    struct device_trial t;
    device_trial_restart(&t, true, false);
    for (int i = 0; i < DEVICE_TRIAL_WARM; i++) {
        assert_true(i == 0 || shows(&t, i)); /* of the first it is not known if it is compared */
        device_trial_step(&t, &(struct device_trial_step){.n_tokens = 1, .took_s = 9});
    }
    while (!t.hold) {
        for (uint64_t step = 0; step < DEVICE_TRIAL_SHOWN; step++)
            assert_false(shows(&t, step)); /* its blocks are compared */
        run(&t, 1, 1, &slow_copies);
    }
    assert_int_equal(t.result, DEVICE_LOADS);
    for (int i = 0; t.hold; i++) {
        bool before_trial = i >= DEVICE_TRIAL_HOLD - DEVICE_TRIAL_WARM;
        assert_int_equal(shows(&t, i), before_trial || is_eighth(i));
        run(&t, 1, 1, &slow_copies);
    }
    device_trial_restart(&t, false, true);
    assert_false(shows(&t, DEVICE_TRIAL_SHOWN_AT)); /* nothing is predicted */
}

/* The same before a trial of another number of tokens, wherever the last one was, and before one
 * because of misses. */
static void test_shown_before_each(void **state)
{
    (void)state;
    static const struct machine m = {1.2, 1, 0.9, 0.1, 0, 0}, misses = {1.2, 1, 0.9, 5, 0, 0};
    for (uint32_t at = 0; at < TRIAL; at += 7) {
        struct device_trial t = restarted(true, true);
        run(&t, at, 1, &m);
        run(&t, DEVICE_TRIAL_SWITCH, 4, &m);
        run_until_due(&t, &m);
        run_trial(&t, &m);
        assert_int_equal(t.result, DEVICE_KEEPS);
        run(&t, 64, 4, &misses);
        assert_float_equal(t.margin, 0.04, 1e-9);
        run_until_due(&t, &misses);
        assert_float_equal(t.margin, 0.04, 1e-9); /* it did not end its time */
        run_trial(&t, &misses);
        assert_int_equal(t.hold, DEVICE_TRIAL_HOLD);
    }
}

/* Of steps that are not compared one in eight is shown, wherever the trial stands. */
static void test_shown_of_others(void **state)
{
    (void)state;
    static const struct machine m = {1.2, 1, 1.1, 0, 0, 0};
    struct device_trial t = restarted(true, true);
    for (uint32_t i = 0; i < TRIAL + DEVICE_TRIAL_HOLD; i++) {
        for (uint64_t step = 0; step < DEVICE_TRIAL_SHOWN; step++) {
            assert_int_equal(device_trial_shows(&t, step, 1, false), is_eighth(step));
            assert_int_equal(device_trial_shows(&t, step, 2, true), is_eighth(step));
        }
        run(&t, 1, 1, &m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shown),
        cmocka_unit_test(test_shown_before_each),
        cmocka_unit_test(test_shown_of_others),
        cmocka_unit_test(test_fastest),
        cmocka_unit_test(test_mean_of_a_block),
        cmocka_unit_test(test_median),
        cmocka_unit_test(test_other_speed),
        cmocka_unit_test(test_far_slower),
        cmocka_unit_test(test_skips),
        cmocka_unit_test(test_one_long_step),
        cmocka_unit_test(test_margin_and_change),
        cmocka_unit_test(test_fewer_kinds),
        cmocka_unit_test(test_faster_of_two),
        cmocka_unit_test(test_more_misses),
        cmocka_unit_test(test_other_steps),
        cmocka_unit_test(test_seem_idle),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_slow_spell),
        cmocka_unit_test(test_cpu_only),
        cmocka_unit_test(test_one_far_faster),
    };
    return cmocka_run_group_tests(tests, 0, 0);
}
