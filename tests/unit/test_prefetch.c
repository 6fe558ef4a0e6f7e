/* worker/prefetch/prefetch.h: which steps are shown to the predictor, and which prefetch. The
 * device's cache is one that nothing reads. */
#include "worker/prefetch/prefetch_internal.h"
#include "worker/prefetch/prediction_metrics.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

enum { LAYERS = 3, EXPERTS = 8, USED = 2, D = 4 };

struct bench {
    struct memory_client memory;
    struct cost_model costs;
    struct metrics *metrics;
    struct counter counters[4];
    _Atomic int assigner;
    char cache;
    struct prefetch *prefetch;
    uint64_t step;
};

static void open_bench(struct bench *b, enum sched_assigner assigner)
{
    *b = (struct bench){.metrics = metrics_new(), .assigner = (int)assigner};
    b->memory.map.params.n_layers = LAYERS;
    b->memory.map.params.d_model = D;
    b->memory.map.params.router.n_experts = EXPERTS;
    b->memory.map.params.router.n_used = USED;
    const struct prefetch_options options = {.memory = &b->memory,
                                             .costs = &b->costs,
                                             .cache = (struct device_cache *)&b->cache,
                                             .assigner = &b->assigner,
                                             .predictor = PREDICT_NEXT_GATE,
                                             .prefetcher = PREFETCH_SELECTIVE,
                                             .prediction_counters =
                                                 prediction_metrics_counters(b->metrics),
                                             .counters = {.declined = &b->counters[0],
                                                          .without = &b->counters[1],
                                                          .without_loads = &b->counters[2],
                                                          .without_device = &b->counters[3]}};
    assert_int_equal(prefetch_new(&options, &b->prefetch, NULL), ERROR_OK);
}

static void close_bench(struct bench *b)
{
    prefetch_free(b->prefetch);
    metrics_free(b->metrics);
}

/* A step's first layer, from which the gate of the second predicts experts 1 and 5 if the step is
 * shown. Returns whether it is. */
static bool run_step(struct bench *b, struct prefetch_step kind, struct sched_upcoming **upcoming,
                     uint32_t *n)
{
    static const struct predict_token token = {1, 2, 3};
    static const float hidden[D] = {1, 2, 3, 4};
    static const uint32_t selected[USED] = {0, 3}, predicted[USED] = {1, 5};
    if (b->step)
        prefetch_step(b->prefetch, kind, kind, false);
    prefetch_enter(b->prefetch, ++b->step);
    const struct predict_seen seen = {b->step, 0, 1, &token, hidden, NULL, selected, NULL};
    struct predict_target target;
    const float *input;
    prefetch_routed(b->prefetch, &seen);
    bool shown = prefetch_gate(b->prefetch, &seen, 0, &target, &input);
    if (shown) {
        assert_true(target.step == b->step && target.layer == 1);
        prefetch_from_gate(b->prefetch, &seen, &target, predicted);
    }
    prefetch_gates_end(b->prefetch);
    *upcoming = prefetch_upcoming(b->prefetch, &(struct predict_target){b->step, 0}, 1, n);
    return shown;
}

/* An assigner that plans prefetches plans none in steps that are shown and do not prefetch: before
 * a trial, and in its other blocks. */
static void test_plan(void **state)
{
    (void)state;
    static const struct prefetch_step answer = {1, true};
    struct bench b;
    open_bench(&b, ASSIGN_PRESCHED);
    uint32_t n_without = 0, n_with = 0, n;
    for (int i = 0; i < 2 * DEVICE_TRIAL_WARM; i++) {
        struct sched_upcoming *upcoming;
        bool shown = run_step(&b, answer, &upcoming, &n);
        if (b.prefetch->use == DEVICE_PREFETCHES) {
            assert_true(shown && upcoming && n == USED);
            assert_true(upcoming[0].distance == 1 && upcoming[0].expert % 4 == 1);
            n_with++;
        } else {
            assert_true(!upcoming && n == 0);
            n_without += shown;
        }
    }
    assert_true(n_without >= DEVICE_TRIAL_WARM / 2 && n_with > 2);
    close_bench(&b);
}

/* Steps with drafts are shown one in eight by their number, not where layers are timed. */
static void test_drafts(void **state)
{
    (void)state;
    static const struct prefetch_step drafts = {4, false};
    struct bench b;
    struct sched_upcoming *upcoming;
    uint32_t n, n_shown = 0;
    open_bench(&b, ASSIGN_PRESCHED);
    for (int i = 0; i < 3; i++)
        run_step(&b, drafts, &upcoming, &n);
    b.prefetch->trial.result = DEVICE_LOADS;
    for (int i = 0; i < 64; i++) {
        bool shown = run_step(&b, drafts, &upcoming, &n);
        assert_int_equal(shown, b.step % 8 == 4);
        assert_false(shown && cost_model_is_timed(b.step));
        n_shown += shown;
    }
    assert_int_equal(n_shown, 8);
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan),
        cmocka_unit_test(test_drafts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
