/* How often experts were activated lately: the levels against the definition, summed over all steps
 * in double precision; when counting begins, ends and starts anew. */
#include "worker/experts/activity.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

enum { LAYERS = 3, DENSE = 1, EXPERTS = 4, CELLS = (LAYERS - DENSE) * EXPERTS };

static void count_step(struct activity *a, uint64_t step, uint32_t layer, uint32_t experts)
{
    activity_begin_layer(a, step, layer);
    for (uint32_t i = 0; i < EXPERTS; i++)
        if (experts & 1u << i)
            activity_add(a, layer, i);
    activity_end_layer(a);
}

static void test_watching(void **state)
{
    (void)state;
    struct activity *a = activity_new(LAYERS, DENSE, EXPERTS);
    uint8_t out[CELLS];
    uint64_t step;
    assert_int_equal(activity_cells(a), CELLS);
    assert_false(activity_watched(a, 1));
    assert_false(activity_read(a, 1000, out, &step)); /* from now on */
    assert_int_equal(step, 0);
    assert_true(activity_watched(a, 1000 + ACTIVITY_WATCH_NS - 1));
    assert_false(activity_watched(a, 1000 + ACTIVITY_WATCH_NS));
    count_step(a, 77, 1, 1);
    assert_true(activity_read(a, 2000, out, &step));
    assert_int_equal(step, 77);
    assert_int_equal(out[0], ACTIVITY_CHOSEN | (ACTIVITY_LEVELS - 1)); /* in every step so far */
    assert_int_equal(out[1], 0);
    assert_int_equal(out[EXPERTS], 0); /* layer 2 has had no step */
    /* Nobody asked for too long: what was counted before says nothing about now. */
    assert_false(activity_read(a, 2000 + ACTIVITY_WATCH_NS, out, &step));
    for (int i = 0; i < CELLS; i++)
        assert_int_equal(out[i], 0);
    activity_free(a);
    activity_free(NULL);
}

/* The share of the steps up to `last` that had the expert, by the definition. */
static double share_of(const uint8_t *steps, int last, uint32_t expert)
{
    double sum = 0, all = 0;
    for (int i = 0; i <= last; i++) {
        double weight = pow(2, -(double)(last - i) / ACTIVITY_HALF_STEPS);
        all += weight;
        sum += steps[i] & 1u << expert ? weight : 0;
    }
    return sum / all;
}

static void test_levels(void **state)
{
    (void)state;
    enum { STEPS = 1600 };
    struct activity *a = activity_new(LAYERS, DENSE, EXPERTS);
    static uint8_t steps[LAYERS][STEPS];
    uint8_t out[CELLS];
    uint64_t step;
    srand(3);
    activity_read(a, 0, out, &step);
    for (int i = 0; i < STEPS; i++) {
        for (uint32_t layer = DENSE; layer < LAYERS; layer++) {
            /* expert 0 always, 1 at the beginning only, 2 now and then, 3 in half of the steps */
            steps[layer][i] =
                (uint8_t)(1 | (i < 100) << 1 | (rand() % 40 == 0) << 2 | (rand() % 2) << 3);
            count_step(a, (uint64_t)i + 5, layer, steps[layer][i]);
        }
        if (i % 37 != 0 && i != STEPS - 1)
            continue;
        assert_true(activity_read(a, 0, out, &step));
        assert_int_equal(step, i + 5);
        for (uint32_t cell = 0; cell < CELLS; cell++) {
            uint32_t layer = DENSE + cell / EXPERTS, expert = cell % EXPERTS;
            double exact = sqrt(share_of(steps[layer], i, expert)) * (ACTIVITY_LEVELS - 1);
            assert_true(fabs((out[cell] & (ACTIVITY_LEVELS - 1)) - exact) < 0.51);
            assert_int_equal(!!(out[cell] & ACTIVITY_CHOSEN), steps[layer][i] >> expert & 1);
        }
    }
    assert_int_equal(out[0] & 31, 31);
    assert_int_equal(out[1], 0);
    activity_free(a);
}

/* A reader between two layers of a step: the layers above it are one step behind, and none of the
 * experts of either looks less used for that. */
static void test_between_layers(void **state)
{
    (void)state;
    struct activity *a = activity_new(LAYERS, DENSE, EXPERTS);
    uint8_t out[CELLS];
    uint64_t step;
    activity_read(a, 0, out, &step);
    count_step(a, 1, 1, 2);
    count_step(a, 1, 2, 4);
    count_step(a, 2, 1, 2);
    assert_true(activity_read(a, 0, out, &step));
    assert_int_equal(step, 2);
    assert_int_equal(out[1], ACTIVITY_CHOSEN | 31);
    assert_int_equal(out[EXPERTS + 2], ACTIVITY_CHOSEN | 31);
    activity_free(a);
}

/* ThreadSanitizer reports a reader that looks into a layer under way. */
static void *read_often(void *arg)
{
    uint8_t out[CELLS];
    uint64_t step;
    for (int i = 0; i < 2000; i++)
        activity_read(arg, 0, out, &step);
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    struct activity *a = activity_new(LAYERS, DENSE, EXPERTS);
    pthread_t reader;
    uint8_t out[CELLS];
    uint64_t step;
    activity_read(a, 0, out, &step);
    assert_int_equal(pthread_create(&reader, NULL, read_often, a), 0);
    for (uint64_t i = 1; i <= 2000; i++)
        count_step(a, i, DENSE, 15);
    pthread_join(reader, NULL);
    assert_true(activity_read(a, 0, out, &step));
    assert_int_equal(step, 2000);
    assert_int_equal(out[3], ACTIVITY_CHOSEN | 31);
    activity_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_watching),
        cmocka_unit_test(test_levels),
        cmocka_unit_test(test_between_layers),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
