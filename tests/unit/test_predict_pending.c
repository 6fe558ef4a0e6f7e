/* lib/sched's pending predictions: the check against activations, the next layers that a plan gets,
 * and the number of tokens for a probability. */
#include "sched/predict/predict_pending.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

enum { LAYERS = 4, EXPERTS = 8, USED = 2, TOKENS = 4 };

static const struct predict_shape shape = {
    .n_layers = LAYERS, .n_experts = EXPERTS, .n_used = USED, .d_model = 1, .max_tokens = TOKENS};

static void put(struct predict_pending *k, uint64_t step, uint32_t layer,
                const struct predicted *experts, uint32_t n)
{
    predict_pending_put(k, &(struct predict_target){step, layer}, experts, n);
}

static struct predict_hits check(struct predict_pending *k, uint64_t step, uint32_t layer,
                                 const uint32_t *selected, uint32_t n_tokens)
{
    return predict_pending_check(
        k, &(struct predict_seen){
               .step = step, .layer = layer, .n_tokens = n_tokens, .selected = selected});
}

/* Two tokens activate three experts: 1, 2 and 5. Of the three most probable, 5, 0 and 1, two are
 * right; the fourth, 2, does not count. One token's two experts are both predicted. After the check
 * the prediction is gone, and a prediction of another step does not count. */
static void test_check(void **state)
{
    static const struct predicted reported[] = {{5, 0.9f}, {0, 0.8f}, {1, 0.7f}, {2, 0.1f}};
    static const uint32_t two[] = {1, 2, 5, 1}, one[] = {0, 5};
    struct predict_pending *k = predict_pending_new(&shape);
    put(k, 7, 1, reported, 4);
    assert_int_equal(check(k, 8, 1, two, 2).predictions, 0);
    assert_int_equal(check(k, 7, 2, two, 2).predictions, 0);
    struct predict_hits hits = check(k, 7, 1, two, 2);
    assert_int_equal(hits.predictions, 3);
    assert_int_equal(hits.right, 2);
    assert_int_equal(check(k, 7, 1, two, 2).predictions, 0);
    struct predicted *capacity = predict_pending_list(k, 3);
    capacity[0] = reported[0];
    capacity[1] = reported[1];
    put(k, 7, 3, reported, 3); /* the newer prediction counts */
    put(k, 7, 3, capacity, 2);
    hits = check(k, 7, 3, one, 1);
    assert_int_equal(hits.predictions, 2);
    assert_int_equal(hits.right, 2);
    put(k, 9, 0, reported, 1);
    put(k, 9, 0, reported, 0);     /* another predictor without a prediction */
    hits = check(k, 9, 0, one, 1); /* fewer predicted than activated */
    assert_int_equal(hits.predictions, 1);
    assert_int_equal(hits.right, 1);
    put(k, 9, 1, reported, 4);
    predict_pending_clear(k);
    assert_int_equal(check(k, 9, 1, two, 2).predictions, 0);
    predict_pending_free(k);
}

/* The plan of layer 1 gets layer 2 first, then layer 3, and no predictions of another step or of
 * earlier layers. Of four tokens, each activates an expert of probability 0.9375 = 1 - 1/16 with
 * 1/2: two of them, 2 / 0.9375 = 2.13 if any does, rounded to 2. All four activate a certain
 * expert, one activates a rare one. */
static void test_upcoming(void **state)
{
    static const struct predicted next[] = {{6, 1}, {3, 0.9375f}, {4, 0.001f}},
                                  after[] = {{2, 0.5f}};
    struct predict_pending *k = predict_pending_new(&shape);
    const struct predict_target now = {5, 1};
    uint32_t n = 9;
    assert_null(predict_pending_upcoming(k, &now, 4, &n));
    assert_int_equal(n, 0);
    put(k, 5, 0, next, 3);
    put(k, 5, 1, next, 3);
    put(k, 5, 2, next, 3);
    put(k, 4, 3, next, 3);
    const struct sched_upcoming *a = predict_pending_upcoming(k, &now, 4, &n);
    assert_int_equal(n, 3);
    static const uint32_t experts[] = {6, 3, 4}, workloads[] = {4, 2, 1};
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(a[i].expert, experts[i]);
        assert_int_equal(a[i].distance, 1);
        assert_int_equal(a[i].workload, workloads[i]);
        assert_float_equal(a[i].probability, next[i].probability, 1e-6);
        assert_int_equal(a[i].missing, 0);
        assert_false(a[i].prefetch);
    }
    put(k, 5, 3, after, 1);
    a = predict_pending_upcoming(k, &now, 1, &n);
    assert_int_equal(n, 4);
    assert_int_equal(a[0].workload, 1); /* one token */
    assert_int_equal(a[3].expert, 2);
    assert_int_equal(a[3].distance, 2);
    assert_null(predict_pending_upcoming(k, &(struct predict_target){5, 3}, 4, &n)); /* the last */
    predict_pending_free(k);
}

static void test_workload(void **state)
{
    assert_float_equal(predict_workload(0.9375, 4), 2 / 0.9375, 1e-12);
    assert_float_equal(predict_workload(0.75, 2), 1 / 0.75, 1e-12);
    assert_float_equal(predict_workload(1, 32), 32, 1e-12);
    assert_float_equal(predict_workload(2, 32), 32, 1e-12); /* not a probability */
    assert_float_equal(predict_workload(1e-12, 32), 1, 1e-9);
    assert_float_equal(predict_workload(0, 32), 1, 0);
    assert_float_equal(predict_workload(0.3, 1), 1, 0);
}

/* Of 100 predictions of layer 2, 5 before 0, the first came true in 25, the second always. So a
 * plan gets 0.25 at rank 0 of that layer and 1 at rank 1, for any expert at that rank. With fewer
 * than 100 predictions, and for another layer, it gets 1. _clear drops the counts. */
static void test_ranks(void **state)
{
    static const struct predicted reported[] = {{5, 0.9f}, {0, 0.8f}},
                                  other[] = {{7, 0.9f}, {6, 0.8f}};
    static const uint32_t both[] = {0, 5}, one[] = {0, 3};
    struct predict_pending *k = predict_pending_new(&shape);
    const struct sched_upcoming *a;
    uint32_t n;
    for (uint64_t step = 1; step <= 100; step++) {
        put(k, step, 2, reported, 2);
        a = predict_pending_upcoming(k, &(struct predict_target){step, 1}, 1, &n);
        assert_true(n == 2 && a[0].hit_rate == 1 && a[1].hit_rate == 1);
        check(k, step, 2, step <= 25 ? both : one, 1);
    }
    put(k, 101, 2, other, 2);
    put(k, 101, 1, other, 2);
    a = predict_pending_upcoming(k, &(struct predict_target){101, 1}, 1, &n);
    assert_true(n == 2 && a[0].expert == 7);
    assert_float_equal(a[0].hit_rate, 0.25, 0);
    assert_float_equal(a[1].hit_rate, 1, 0);
    a = predict_pending_upcoming(k, &(struct predict_target){101, 0}, 1,
                                 &n); /* layer 2 has distance 2 */
    assert_true(n == 4 && a[0].hit_rate == 1 && a[2].distance == 2);
    assert_float_equal(a[2].hit_rate, 0.25, 0);
    predict_pending_clear(k);
    put(k, 102, 2, other, 2);
    a = predict_pending_upcoming(k, &(struct predict_target){102, 1}, 1, &n);
    assert_true(n == 2 && a[0].hit_rate == 1);
    predict_pending_free(k);
}

static void test_hit_rate(void **state)
{
    assert_float_equal(predict_hit_rate((struct predict_hits){99, 0}), 1, 0);
    assert_float_equal(predict_hit_rate((struct predict_hits){100, 25}), 0.25, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_check),    cmocka_unit_test(test_upcoming),
        cmocka_unit_test(test_workload), cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_hit_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
