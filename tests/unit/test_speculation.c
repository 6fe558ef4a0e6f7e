/* When a step has drafts: steps whose times and tokens the test makes up. */
#include "random_numbers.h"

#include "model/speculate.h"
#include "worker/serve/draft.h"
#include "worker/serve/speculation.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* A machine and a text. A step of `streams` without drafts takes 1. */
struct setting {
    uint32_t streams;
    double row; /* what a draft adds to a step */
    double right;
    double noise;               /* of a step's time */
    double none;                /* of all steps so many find no draft */
    uint32_t slow_steps;        /* the first ones, which do not count, */
    double slow;                /* take as many times as long */
    double interruptions, each; /* by other work: in a time of 1; how long each is on average */
    bool calms;                 /* no more of them after the slow steps */
};

struct outcome {
    double time, tokens; /* time: without noise, to which it is proportional in the mean */
    uint32_t drafted;
};

static const uint32_t LOOP[] = {3, 4, 5, 3, 4, 5, 3, 4};

static double exponential(double mean)
{
    return -mean * log((below(1000000) + 0.5) / 1e6);
}

/* How long a computation of `time` takes, which other work interrupts. */
static double interrupted(const struct setting *t, double time)
{
    double sum = time, at = 0;
    while (t->interruptions > 0 && (at += exponential(1 / t->interruptions)) < time)
        sum += exponential(t->each);
    return sum;
}

static double step_time(const struct setting *t, uint32_t step, uint32_t drafts)
{
    double time = 1 + t->row * drafts;
    if (step < t->slow_steps || !t->calms)
        time = interrupted(t, time);
    time *= 1 + t->noise * (below(2001) / 1000.0 - 1);
    return step < t->slow_steps ? t->slow * time : time;
}

/* The drafts of all streams in a step, and how many of them were right. */
static uint32_t draft_step(const struct setting *t, struct speculation *s, struct draft *d,
                           uint32_t *accepted)
{
    struct speculation_step begun = speculation_begin(s, t->streams);
    uint32_t drafts = 0;
    if (t->none > 0 && below(1000) < t->none * 1000)
        return 0;
    for (uint32_t stream = 0; stream < t->streams; stream++) {
        assert_int_equal(draft_find(d, LOOP, 8), 5);
        uint32_t n = speculation_choose(s, &begun, d, 100), i = 0;
        bool right = true;
        while (right && i <= n) {
            right = below(1000) < t->right * 1000;
            draft_learn(d, LOOP, i, right ? draft_token(d, LOOP, i) : 99, &s->rates);
            i++;
        }
        *accepted += i - 1;
        drafts += n;
    }
    return drafts;
}

static struct outcome run(const struct setting *t, uint32_t speculate, uint32_t n_steps)
{
    static struct speculation s;
    struct outcome o = {0, 0, 0};
    random_state = 7;
    speculation_init(&s, speculate);
    struct draft *d = draft_new(8, &s.rates);
    for (uint32_t step = 0; step < t->slow_steps + n_steps; step++) {
        uint32_t accepted = 0, drafts = draft_step(t, &s, d, &accepted);
        speculation_account(&s, t->streams, drafts, accepted, 1e6 * step_time(t, step, drafts));
        if (step < t->slow_steps)
            continue;
        o.time += 1 + t->row * drafts;
        o.tokens += 1 + (double)accepted / t->streams;
        o.drafted += drafts;
    }
    draft_free(d);
    return o;
}

/* The time of a token, as a share of that without drafts. */
static double share_of_off(const struct setting *t, uint32_t n_steps)
{
    struct outcome with = run(t, SPECULATE_AUTO, n_steps), off = run(t, SPECULATE_OFF, n_steps);
    assert_int_equal(off.drafted, 0);
    return with.time / with.tokens * off.tokens / off.time;
}

static void test_pays(void **state)
{
    static const struct {
        struct setting setting;
        double most;
    } cases[] = {{{.streams = 1, .row = 0.1, .right = 0.9}, 0.4},
                 {{.streams = 1, .row = 0.6, .right = 0.99, .noise = 0.1}, 0.8},
                 {{.streams = 4, .row = 0.1, .right = 0.9, .noise = 0.1}, 0.67}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_true(share_of_off(&cases[i].setting, 2000) < cases[i].most);
}

/* Where it cannot pay it costs little, whatever made it look well before. */
static void test_costs_little(void **state)
{
    static const struct setting settings[] = {
        {.streams = 1, .row = 0.9, .right = 0.6, .noise = 0.1},
        {.streams = 1, .row = 0.6, .right = 0.5, .noise = 0.3},
        {.streams = 4, .row = 0.5, .right = 0.4, .noise = 0.1},
        {.streams = 1, .row = 1.5, .right = 0.99, .noise = 0.1},
        {.streams = 2, .row = 0.3, .right = 0.05, .noise = 0.1},
        {.streams = 16, .row = 0.4, .right = 0.5, .noise = 0.1},
        {.streams = 1, .row = 0.8, .right = 0.3, .slow_steps = 60, .slow = 5},
        {.streams = 1, .row = 0.93, .right = 0.7, .interruptions = 0.15, .each = 5.3},
        {.streams = 1, .row = 0.6, .right = 0.5, .interruptions = 0.15, .each = 27},
    };
    (void)state;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        assert_true(share_of_off(&settings[i], 4000) < 1.03);
}

/* At first experts are loaded, and what a draft costs is measured while they are: after that the
 * first 300 tokens have drafts. */
static void test_slow_start(void **state)
{
    struct setting machine = {.streams = 1, .row = 0.2, .right = 0.8, .none = 0.5, .slow = 5};
    (void)state;
    for (machine.slow_steps = 20; machine.slow_steps <= 120; machine.slow_steps += 20)
        assert_true(share_of_off(&machine, 200) < 0.8);
}

/* The machine becomes faster while steps have drafts: what a plain step takes is measured again
 * soon, else more is drafted than pays. */
static void test_becomes_faster(void **state)
{
    static const struct setting machine = {
        .streams = 1, .row = 0.45, .right = 0.7, .slow_steps = 600, .slow = 3};
    (void)state;
    assert_true(share_of_off(&machine, 100) < 1);
}

/* Other work ends while steps have drafts. */
static void test_other_work_ends(void **state)
{
    static const struct setting machine = {.streams = 1,
                                           .row = 0.45,
                                           .right = 0.7,
                                           .slow_steps = 1000,
                                           .slow = 1,
                                           .interruptions = 0.75,
                                           .each = 5.3,
                                           .calms = true};
    (void)state;
    assert_true(share_of_off(&machine, 150) < 0.97);
}

/* Other work interrupts a step with drafts more often, because it is longer; in the second case
 * nearly always. */
static void test_other_work(void **state)
{
    struct setting machine = {.streams = 1, .row = 0.5, .right = 1, .each = 5.3};
    (void)state;
    machine.interruptions = 0.15;
    assert_true(share_of_off(&machine, 4000) < 0.65);
    machine.interruptions = 0.75;
    assert_true(share_of_off(&machine, 4000) < 0.65);
    machine.row = 0.93; /* where drafts do not pay it is found out more slowly */
    machine.right = 0.7;
    assert_true(share_of_off(&machine, 4000) < 1.12);
}

static void test_fixed(void **state)
{
    static const struct setting poor = {.streams = 20, .row = 1, .right = 0.1};
    (void)state;
    assert_int_equal(run(&poor, 3, 10).drafted, 3 * 20 * 10);
    assert_int_equal(run(&poor, SPECULATE_AUTO, 100).drafted, 0); /* too many streams */
}

static void test_option(void **state)
{
    static const char *const wrong[] = {"", "0", "16", "-1", "3x", "on", "99999999999999999999"};
    uint32_t n = 77;
    struct error e;
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(speculate_parse(wrong[i], &n, &e), ERROR_USAGE);
    assert_int_equal(n, 77);
    assert_non_null(strstr(e.text, SPECULATE_VALUES));
    assert_int_equal(speculate_parse("auto", &n, &e), ERROR_OK);
    assert_int_equal(n, SPECULATE_AUTO);
    assert_int_equal(speculate_parse("off", &n, &e), ERROR_OK);
    assert_int_equal(n, SPECULATE_OFF);
    assert_int_equal(speculate_parse("15", &n, &e), ERROR_OK);
    assert_int_equal(n, SPECULATE_MOST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pays),       cmocka_unit_test(test_costs_little),
        cmocka_unit_test(test_slow_start), cmocka_unit_test(test_becomes_faster),
        cmocka_unit_test(test_other_work), cmocka_unit_test(test_other_work_ends),
        cmocka_unit_test(test_fixed),      cmocka_unit_test(test_option),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
