/* The worker's costs, corrected by the times of layers, against a machine with a known pace and a
 * known slowdown by copies. */
#include "calibration/layer_costs.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

/* Calibrated: a segment for one token takes 2 s on the device, 3 s on the CPU, and 4.5 s on the CPU
 * during a copy. */
static const struct sched_costs first = {.load_s = 10,
                                         .load_contended_s = 10,
                                         .device_s = 1,
                                         .device_token_s = 1,
                                         .cpu_s = 2,
                                         .cpu_token_s = 1,
                                         .cpu_contended_s = 3,
                                         .cpu_contended_token_s = 1.5};

static void near(double got, double expected, double share)
{
    if (fabs(got - expected) > share * fabs(expected))
        fail_msg("%.6g, not %.6g", got, expected);
}

/* Layers of n segments for one token each. Every `period`th layer has a concurrent copy. A layer
 * takes `slow` times the calibrated time, and with a copy `contended` times that. */
static void run(struct layer_costs *c, uint32_t layers, uint32_t period, double slow,
                double contended)
{
    for (uint32_t i = 0; i < layers; i++) {
        bool copying = i % period == 0;
        uint32_t n = 1 + i % 5;
        layer_costs_cpu(c, n * sched_cpu_s(&c->now, 1), n * 3 * slow * (copying ? contended : 1),
                        copying);
    }
}

static void test_nothing_seen(void **state)
{
    struct layer_costs c;
    (void)state;
    layer_costs_init(&c, &first, 1e-4);
    layer_costs_cpu(&c, 0, 1, false);
    layer_costs_cpu(&c, 1, 0, true);
    layer_costs_device(&c, 0, 1);
    near(sched_cpu_s(&c.now, 1), 3, 1e-12);
    near(sched_cpu_contended_s(&c.now, 1), 4.5, 1e-12);
    near(sched_device_s(&c.now, 1), 2, 1e-12);
    near(c.cpu * c.device * c.slowdown, 1, 1e-12);
}

static void test_updates(void **state)
{
    struct layer_costs c;
    (void)state;
    layer_costs_init(&c, &first, 1e-4);
    run(&c, 20000, 7, 1.3, 2.5);
    near(c.cpu, 1.3, 0.02);
    near(c.slowdown * 1.5, 2.5, 0.05); /* calibrated 1.5 counts as 16 layers of some 290 */
    near(sched_cpu_contended_s(&c.now, 1), 3 * 1.3 * 2.5, 0.05);
    near(sched_cpu_s(&c.now, 4), 6 * 1.3, 0.02);
}

/* The pace of the whole machine drifts; the cost of a copy stays. */
static void test_drift(void **state)
{
    struct layer_costs c;
    (void)state;
    layer_costs_init(&c, &first, 1e-4);
    for (int i = 0; i < 40; i++) {
        run(&c, 500, 8, i % 2 ? 1.6 : 0.8, 2.0);
        near(c.slowdown * 1.5, 2.0, 0.26); /* from 1.5 on */
    }
    near(c.slowdown * 1.5, 2.0, 0.06);
}

/* Only layers with copies: the slowdown by a copy is unknown and stays as calibrated; the pace is
 * known. */
static void test_only_copies(void **state)
{
    struct layer_costs c;
    (void)state;
    layer_costs_init(&c, &first, 1e-4);
    run(&c, 20000, 1, 1.2, 1.5);
    near(c.slowdown, 1, 1e-9);
    near(c.cpu, 1.2, 0.02);
    near(sched_cpu_contended_s(&c.now, 1), 3 * 1.2 * 1.5, 0.02);
}

/* A copy cannot make the CPU faster, whatever the noise. */
static void test_never_quicker(void **state)
{
    struct layer_costs c;
    (void)state;
    layer_costs_init(&c, &first, 1e-4);
    run(&c, 20000, 2, 1, 0.7);
    near(sched_cpu_contended_s(&c.now, 1), sched_cpu_s(&c.now, 1), 1e-9);
}

/* One layer in a hundred takes a thousand times as long. */
static void test_interrupted(void **state)
{
    struct layer_costs c;
    (void)state;
    layer_costs_init(&c, &first, 1e-4);
    for (uint32_t i = 0; i < 20000; i++)
        layer_costs_cpu(&c, sched_cpu_s(&c.now, 1), i % 100 ? 3 : 3000, false);
    near(c.cpu, 1, 0.03);
}

static void test_device(void **state)
{
    struct layer_costs c;
    (void)state;
    layer_costs_init(&c, &first, 1e-4);
    for (uint32_t i = 0; i < 2000; i++)
        layer_costs_device(&c, sched_device_s(&c.now, 3), 4 * 0.7);
    near(c.device, 0.7, 0.01);
    near(sched_device_s(&c.now, 1), 2 * 0.7, 0.01);
}

static void test_link_and_job(void **state)
{
    struct layer_costs c;
    (void)state;
    layer_costs_init(&c, &first, 1e-4);
    for (uint32_t i = 0; i < 2000; i++) {
        layer_costs_link(&c, 3 * c.now.load_contended_s, 3 * 10 * 1.8);
        layer_costs_job(&c, i % 100 ? 3e-4 : 5); /* a loaded machine delays one in 100 */
    }
    near(c.link, 1.8, 0.01);
    near(c.now.load_s, 18, 0.01);
    near(c.job_s, 3e-4, 0.1);
}

/* Costs that resume from stored corrections plan and are corrected like the original. */
static void test_resume(void **state)
{
    struct layer_costs c, next;
    (void)state;
    layer_costs_init(&c, &first, 1e-4);
    run(&c, 300, 7, 1.3, 2.5);
    for (int i = 0; i < 100; i++) {
        layer_costs_device(&c, sched_device_s(&c.now, 3), 4 * 0.7);
        layer_costs_link(&c, c.now.load_contended_s, 10 * 1.8);
        layer_costs_job(&c, 3e-4);
    }
    struct layer_corrections corrections = layer_corrections(&c);
    layer_costs_init(&next, &first, 1e-4);
    assert_true(layer_costs_resume(&next, &corrections));
    assert_memory_equal(&next, &c, sizeof c);
    run(&c, 50, 5, 1.1, 2);
    run(&next, 50, 5, 1.1, 2);
    assert_memory_equal(&next, &c, sizeof c);
}

/* Corrections without any layer, and impossible ones, which change nothing. */
static void test_resume_nonsense(void **state)
{
    struct layer_costs c, fresh;
    (void)state;
    layer_costs_init(&fresh, &first, 1e-4);
    c = fresh;
    struct layer_corrections good = layer_corrections(&fresh);
    assert_true(layer_costs_resume(&c, &good));
    assert_memory_equal(&c, &fresh, sizeof c);
    static const double nonsense[] = {NAN, INFINITY, -INFINITY, -1, 1e300};
    for (size_t i = 0; i < sizeof good / sizeof(double); i++)
        for (size_t n = 0; n < sizeof nonsense / sizeof *nonsense; n++) {
            double values[sizeof good / sizeof(double)];
            struct layer_corrections bad;
            memcpy(values, &good, sizeof values);
            values[i] = nonsense[n];
            memcpy(&bad, values, sizeof bad);
            assert_false(layer_costs_resume(&c, &bad));
            assert_memory_equal(&c, &fresh, sizeof c);
        }
    good.cpu_means.weight[1] = 5; /* a sum of nothing over five layers */
    assert_false(layer_costs_resume(&c, &good));
}

/* Whole layers take 1.4 times as long during a copy, at whatever pace: that is the cost of a copy,
 * not the CPU's calibrated 1.5. */
static void test_whole_layers(void **state)
{
    struct layer_costs c;
    (void)state;
    layer_costs_init(&c, &first, 1e-4);
    near(c.now.layer_slowdown, 1.5, 1e-12);
    for (uint32_t i = 0; i < 20000; i++)
        layer_costs_layer(&c, 5, 5 * 1.2 * (i % 3 ? 1 : 1.4), i % 3 == 0);
    near(c.now.layer_slowdown, 1.4, 0.01);
    near(sched_prefetch_gain(&c.now, 1), 3 - 10 * (1 - 1 / c.now.layer_slowdown), 1e-12);
    layer_costs_layer(&c, 0, 1, true);
    layer_costs_layer(&c, INFINITY, 0, true);
    near(c.now.layer_slowdown, 1.4, 0.01);
    struct layer_costs next;
    struct layer_corrections corrections = layer_corrections(&c);
    layer_costs_init(&next, &first, 1e-4);
    assert_true(layer_costs_resume(&next, &corrections));
    assert_memory_equal(&next, &c, sizeof c);
}

/* p of 3 s, less the share 1 - 1/1.5 of the CPU's time while the link copies for 10 s. */
static void test_prefetch_gain(void **state)
{
    struct sched_costs c = first;
    (void)state;
    near(sched_prefetch_gain(&c, 1), 3 - 10.0 / 3, 1e-12);
    c.load_s = 1;
    near(sched_prefetch_gain(&c, 0.5), 1.5 - 1.0 / 3, 1e-12);
    c.cpu_contended_s = c.cpu_s;
    c.cpu_contended_token_s = c.cpu_token_s; /* copies do not slow down the CPU */
    near(sched_prefetch_gain(&c, 0.01), 0.03, 1e-12);
    c.cpu_s = c.cpu_contended_s = INFINITY; /* no CPU: the wait for the load */
    near(sched_prefetch_gain(&c, 0.5), 0.5, 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_seen),  cmocka_unit_test(test_updates),
        cmocka_unit_test(test_drift),         cmocka_unit_test(test_only_copies),
        cmocka_unit_test(test_never_quicker), cmocka_unit_test(test_interrupted),
        cmocka_unit_test(test_device),        cmocka_unit_test(test_link_and_job),
        cmocka_unit_test(test_prefetch_gain), cmocka_unit_test(test_resume),
        cmocka_unit_test(test_whole_layers),  cmocka_unit_test(test_resume_nonsense)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
