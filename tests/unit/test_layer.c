/* lib/sched/layer: a layer's plan and hints, by hand, and against the assigners that they rest on.
 */
#include "assign_costs.h"

#include "sched/layer/layer.h"
#include "sched/layer/predictions.h"

#include <string.h>

enum { LAYERS = 3, EXPERTS = 4, SEGMENTS = 2 };

/* The device's memory as the tests set it. */
struct memory {
    struct layer_residency there[LAYERS][EXPERTS];
};

static struct layer_residency look(void *arg, uint32_t layer, uint32_t expert)
{
    return ((const struct memory *)arg)->there[layer][expert];
}

static struct layer *make(struct memory *m)
{
    static const uint32_t n_segments[LAYERS] = {SEGMENTS, SEGMENTS, SEGMENTS};
    struct layer *l = layer_new(&(struct layer_options){.n_layers = LAYERS,
                                                        .n_experts = EXPERTS,
                                                        .n_segments = n_segments,
                                                        .residency = look,
                                                        .residency_arg = m});
    assert_non_null(l);
    return l;
}

/* A plan is the assigner's own on the same experts; the step before is their last use. */
static void test_plan_is_the_assigners(void **state)
{
    struct memory m = {0};
    struct layer *l = make(&m);
    const struct sched_costs c = costs(3, 0.5, 0.5, 1, 1);
    for (enum sched_assigner a = ASSIGN_LOAD_ALL; a <= ASSIGN_BALANCE; a++)
        for (uint64_t step = 1; step <= 2; step++) {
            const struct layer_expert experts[] = {{0, 1, {2, 0}}, {1, 3, {1, 1}}, {3, 2, {0, 0}}};
            struct layer_state s = {
                .step = 10 * a + step, .layer = 1, .assigner = a, .costs = &c, .n_slots = 100};
            struct layer_plan plan;
            struct sched_expert own[3];
            for (int i = 0; i < 3; i++)
                own[i] = (struct sched_expert){.expert = experts[i].expert,
                                               .workload = experts[i].workload,
                                               .resident = experts[i].there.resident,
                                               .in_flight = experts[i].there.in_flight,
                                               .last_use = step == 2 ? s.step - 1
                                                           : a > 0   ? s.step - 9
                                                                     : 0};
            const struct sched_layer layer = {.n_segments = SEGMENTS,
                                              .spare_slots = sched_spare_slots(a, 100, 0)};
            double seconds = sched_assign(a, &c, &layer, own, 3);
            layer_plan(l, &s, experts, 3, &plan);
            expect_seconds(plan.predicted_s, seconds);
            assert_false(plan.all_resident);
            for (int i = 0; i < 3; i++) {
                assert_int_equal(plan.experts[i].last_use, own[i].last_use);
                assert_int_equal(plan.experts[i].device, own[i].device);
                assert_int_equal(plan.experts[i].load, own[i].load);
            }
        }
    layer_free(l);
}

/* ondemand loads all missing segments: 2 segments of expert 0, 1 of expert 1. */
static struct layer_plan plan_all(struct layer *l, struct layer_state s)
{
    static const struct sched_costs c = {.load_s = 1, .device_s = 1, .cpu_s = 1};
    const struct layer_expert experts[] = {{0, 1, {0, 0}}, {1, 1, {1, 0}}};
    struct layer_plan plan;
    s.step = 1;
    s.assigner = ASSIGN_LOAD_ALL;
    s.costs = &c;
    layer_plan(l, &s, experts, 2, &plan);
    return plan;
}

static void expect_shares(const struct layer_plan *p, uint32_t d0, uint32_t l0, uint32_t d1,
                          uint32_t l1)
{
    assert_int_equal(p->experts[0].device, d0);
    assert_int_equal(p->experts[0].load, l0);
    assert_int_equal(p->experts[1].device, d1);
    assert_int_equal(p->experts[1].load, l1);
}

static void test_few_slots_and_no_loads(void **state)
{
    struct memory m = {0};
    struct layer *l = make(&m);
    struct layer_plan p = plan_all(l, (struct layer_state){.n_slots = 2});
    expect_shares(&p, 0, 2, 1, 1);
    p = plan_all(l, (struct layer_state){.n_slots = 1}); /* a device of one slot */
    expect_shares(&p, 0, 1, 1, 0);
    p = plan_all(l, (struct layer_state){.n_slots = 1, .whole = true}); /* half an expert is none */
    expect_shares(&p, 0, 0, 0, 0);
    p = plan_all(l, (struct layer_state){.n_slots = 2, .no_loads = true});
    expect_shares(&p, 0, 0, 1, 0); /* the CPU goes on behind the device */
    p = plan_all(l, (struct layer_state){.n_slots = 2, .no_loads = true, .whole = true});
    expect_shares(&p, 0, 0, 0, 0);
    p = plan_all(l, (struct layer_state){.n_slots = 2, .no_loads = true, .no_device = true});
    expect_shares(&p, 0, 0, 0, 0); /* expert 1 has a segment on the device */
    assert_false(p.all_resident);
    layer_free(l);
}

/* A plan without loads is the best one of the segments that are resident, not what is left of a
 * plan with loads. */
static void test_plan_without_loads(void **state)
{
    struct memory m = {0};
    struct layer *l = make(&m);
    const struct sched_costs c = costs(0.1, 2, 0.1, 2.5, 0.1);
    for (uint32_t load = 1; load <= 200; load += 7) {
        const struct layer_expert experts[] = {
            {0, load, {0, 0}}, {1, 1, {2, 0}}, {2, 2, {2, 0}}, {3, 1, {2, 0}}};
        struct sched_expert own[4];
        for (int i = 0; i < 4; i++)
            own[i] = (struct sched_expert){.expert = experts[i].expert,
                                           .workload = experts[i].workload,
                                           .resident = experts[i].there.resident};
        const struct sched_layer layer = {.n_segments = SEGMENTS, .device_call_s = 1};
        double seconds = sched_assign(ASSIGN_BALANCE, &c, &layer, own, 4);
        struct layer_plan plan;
        layer_plan(l,
                   &(struct layer_state){.step = load,
                                         .layer = 1,
                                         .assigner = ASSIGN_BALANCE,
                                         .costs = &c,
                                         .n_slots = 100,
                                         .n_spare = 50,
                                         .device_call_s = 1,
                                         .no_loads = true},
                   experts, 4, &plan);
        expect_seconds(plan.predicted_s, seconds);
        for (int i = 0; i < 4; i++) {
            assert_int_equal(plan.experts[i].device, own[i].device);
            assert_int_equal(plan.experts[i].load, 0);
        }
    }
    layer_free(l);
}

static void test_all_resident(void **state)
{
    struct memory m = {0};
    struct layer *l = make(&m);
    const struct sched_costs c = costs(3, 0.5, 0.5, 1, 1);
    const struct layer_expert experts[] = {{2, 1, {SEGMENTS, 0}}, {3, 1, {SEGMENTS, 0}}};
    const struct layer_state s = {.step = 1, .assigner = ASSIGN_BALANCE, .costs = &c, .n_slots = 8};
    struct layer_plan plan;
    layer_plan(l, &s, experts, 2, &plan);
    assert_true(plan.all_resident);
    expect_seconds(plan.misses_s, 0);
    layer_free(l);
}

/* The CPU takes 2 segments of 5 seconds. On the device, with a call of 1, four segments would take
 * 4 * 0.5 + 1. */
static void test_misses(void **state)
{
    struct memory m = {0};
    struct layer *l = make(&m);
    const struct sched_costs c = {
        .load_s = 9, .load_contended_s = 9, .device_s = 0.5, .cpu_s = 5, .cpu_contended_s = 5};
    const struct layer_expert experts[] = {{2, 1, {SEGMENTS, 0}}, {3, 1, {0, 0}}};
    const struct layer_state s = {
        .step = 1, .assigner = ASSIGN_LAYERWISE, .costs = &c, .n_slots = 8, .device_call_s = 1};
    struct layer_plan plan;
    layer_plan(l, &s, experts, 2, &plan);
    expect_seconds(plan.predicted_s, 10);
    expect_seconds(plan.misses_s, 7);
    layer_free(l);
}

/* The CPU takes 2 segments of 2 seconds, or of 4 while the link copies. */
static double seconds_of(struct layer *l, uint64_t step, uint32_t layer, bool prompt,
                         uint32_t n_activated)
{
    const struct sched_costs c = {
        .load_s = 1, .load_contended_s = 1, .cpu_s = 2, .cpu_contended_s = 4};
    const struct layer_expert experts[] = {{0, 1, {0, 0}}};
    const struct layer_state s = {.step = step,
                                  .layer = layer,
                                  .assigner = ASSIGN_LAYERWISE,
                                  .costs = &c,
                                  .n_slots = 8,
                                  .n_tokens = 64,
                                  .prompt = prompt,
                                  .n_activated = n_activated};
    struct layer_plan plan;
    layer_plan(l, &s, experts, 1, &plan);
    return plan.predicted_s;
}

/* In the first prompt 4 of layer 1's 8 missing segments came while layer 0 was computed. So 4 of 8
 * will come in the second: 4 seconds, in which the CPU does half of its work; 2 more for the rest.
 */
static void test_prefetches_slow_the_cpu(void **state)
{
    struct memory m = {0};
    struct layer *l = make(&m);
    expect_seconds(seconds_of(l, 1, 0, true, EXPERTS), 4);
    m.there[1][1] = m.there[1][2] = (struct layer_residency){1, 1};
    expect_seconds(seconds_of(l, 1, 1, true, EXPERTS), 4); /* nothing is known of layer 2 */
    memset(m.there, 0, sizeof m.there);
    expect_seconds(seconds_of(l, 2, 0, true, EXPERTS), 6);
    expect_seconds(seconds_of(l, 2, 1, true, EXPERTS), 4);
    expect_seconds(seconds_of(l, 3, 0, true, EXPERTS), 4); /* none came in the second */
    layer_free(l);
}

/* Steps of decoding, and short prompts that activate few experts, neither count nor are changed. A
 * step that activates all counts, whatever it is. */
static void test_steps_that_do_not_stream(void **state)
{
    struct memory m = {0};
    struct layer *l = make(&m);
    seconds_of(l, 1, 0, true, EXPERTS);
    m.there[1][1] = m.there[1][2] = (struct layer_residency){2, 0};
    seconds_of(l, 1, 1, true, EXPERTS);
    memset(m.there, 0, sizeof m.there);
    expect_seconds(seconds_of(l, 2, 0, false, EXPERTS - 1), 4);
    expect_seconds(seconds_of(l, 2, 1, false, EXPERTS - 1), 4);
    expect_seconds(seconds_of(l, 3, 0, true, EXPERTS / 2), 4);
    expect_seconds(seconds_of(l, 3, 1, true, EXPERTS / 2), 4);
    expect_seconds(seconds_of(l, 4, 0, true, EXPERTS), 6);
    expect_seconds(seconds_of(l, 5, 0, false, EXPERTS), 6);
    layer_free(l);
}

/* The prediction of two later layers: what is missing of each, and the plan's hints by layer. */
static void test_hints_of_a_plan(void **state)
{
    struct memory m = {.there = {[1] = {[2] = {1, 0}, [3] = {1, 1}}}};
    struct layer *l = make(&m);
    const struct sched_costs c = costs(1, 0.1, 0.1, 5, 5);
    struct sched_upcoming upcoming[] = {
        {.expert = 2, .distance = 1, .workload = 1, .probability = 1, .hit_rate = 1},
        {.expert = 3, .distance = 1, .workload = 1, .probability = 0.5, .hit_rate = 1},
        {.expert = 0, .distance = 2, .workload = 1, .probability = 0.25, .hit_rate = 1},
    };
    const struct layer_expert experts[] = {{0, 1, {SEGMENTS, 0}}};
    const struct layer_state s = {.step = 1,
                                  .assigner = ASSIGN_LAYERWISE,
                                  .costs = &c,
                                  .n_slots = 8,
                                  .upcoming = upcoming,
                                  .n_upcoming = 3};
    struct layer_plan plan;
    layer_plan(l, &s, experts, 1, &plan);
    assert_int_equal(upcoming[0].missing, 1);
    assert_int_equal(upcoming[1].missing, 0); /* its last segment is on its way */
    assert_int_equal(upcoming[2].missing, 2);
    upcoming[0].prefetch = upcoming[2].prefetch = true;
    struct layer_hints h;
    uint32_t next = 0;
    assert_true(layer_plan_hints(l, &s, &plan, &next, &h));
    assert_int_equal(h.layer, 1);
    assert_int_equal(h.n, 1);
    assert_int_equal(h.hints[0].expert, 2);
    assert_int_equal(h.hints[0].value, 65535);
    assert_true(layer_plan_hints(l, &s, &plan, &next, &h));
    assert_int_equal(h.layer, 2);
    assert_int_equal(h.n, 1);
    assert_int_equal(h.hints[0].expert, 0);
    assert_int_equal(h.hints[0].value, 16383); /* a quarter of 65535, rounded down */
    assert_false(layer_plan_hints(l, &s, &plan, &next, &h));
    layer_free(l);
}

/* A copy takes 3 and slows a CPU segment of 2 to 2.5: it loses 0.6 and saves 2 p, so it is worth
 * making from p = 0.3 on (test_candidates). Expert 1 is resident. */
static void test_judgement(void **state)
{
    struct memory m = {.there = {[2] = {[1] = {SEGMENTS, 0}}}};
    struct layer *l = make(&m);
    const struct sched_costs c = {.load_s = 3,
                                  .load_contended_s = 3,
                                  .cpu_s = 1,
                                  .cpu_token_s = 1,
                                  .cpu_contended_s = 1.5,
                                  .cpu_contended_token_s = 1};
    const struct predicted experts[] = {{0, 0.75f}, {1, 0.5f}, {3, 0.25f}, {2, 0.125f}};
    const struct layer_prediction p = {
        .target = {.step = 1, .layer = 2}, .experts = experts, .n = 3, .n_known = 4};
    struct layer_judge judge = {.assigner = ASSIGN_QSTAR, /* does not matter */
                                .prefetcher = PREFETCH_SELECTIVE,
                                .costs = &c,
                                .step = 1,
                                .expected = true};
    struct layer_judgement got;
    layer_judge(l, &judge, &p, &got);
    assert_int_equal(got.n_expected, 4); /* all that is known */
    assert_int_equal(got.expected[3].expert, 2);
    assert_int_equal(got.expected[3].value, 8191);
    assert_int_equal(got.n_fetch, 1); /* expert 3 is not worth it, 2 not predicted */
    assert_int_equal(got.fetch[0].expert, 0);
    assert_int_equal(got.fetch[0].value, 49151);
    assert_int_equal(got.n_declined, 1);

    judge.nothing = true;
    layer_judge(l, &judge, &p, &got);
    assert_int_equal(got.n_expected, 4);
    assert_int_equal(got.n_fetch + got.n_declined, 0);

    judge = (struct layer_judge){
        .assigner = ASSIGN_BALANCE, .prefetcher = PREFETCH_LOADED, .costs = &c, .step = 1};
    layer_judge(l, &judge, &p, &got);
    assert_int_equal(got.n_expected, 0);
    assert_int_equal(got.n_fetch, 1); /* the prefetcher's limit */

    judge.assigner = ASSIGN_PRESCHED; /* its plans prefetch */
    layer_judge(l, &judge, &p, &got);
    assert_int_equal(got.n_expected + got.n_fetch + got.n_declined, 0);
    layer_free(l);
}

/* ---- Predictions ---- */

struct seen {
    uint32_t n;
    struct predict_target target;
    struct predicted first;
};

static void take(void *arg, const struct layer_prediction *p)
{
    struct seen *s = arg;
    s->n++;
    s->target = p->target;
    s->first = p->experts[0];
}

/* The worker uses an answer while its layer is still to come, and until a gate gives a better
 * prediction. */
static void test_answers(void **state)
{
    const struct predict_shape shape = {
        .n_layers = LAYERS, .n_experts = EXPERTS, .n_used = 1, .d_model = 2, .max_tokens = 1};
    struct seen seen = {0};
    struct layer_predictions *p = layer_predictions_new(&shape, take, &seen);
    struct predictor *gate = predictor_new(PREDICT_NEXT_GATE, PREDICT_IN_LINE, &shape);
    const struct predict_traits traits = predictor_traits(PREDICT_NEXT_GATE, &shape);
    assert_non_null(p);
    assert_non_null(gate);
    layer_predictions_use(p, &traits, gate);
    struct predicted answered[EXPERTS] = {{3, 0.5f}};
    struct layer_prediction answer = {.target = {5, 1}, .experts = answered, .n = 1, .n_known = 1};
    assert_false(layer_predictions_answer(p, &answer, &(struct predict_target){5, 2}));
    assert_false(layer_predictions_answer(p, &answer, &(struct predict_target){6, 0}));
    assert_int_equal(seen.n, 0);
    assert_true(layer_predictions_answer(p, &answer, &(struct predict_target){5, 1}));
    assert_int_equal(seen.n, 1);
    assert_int_equal(seen.first.expert, 3);

    /* layer 1 activates expert 3: right */
    const float hidden[] = {1, 2};
    const uint32_t three = 3, two = 2;
    struct predict_seen layer1 = {
        .step = 5, .layer = 1, .n_tokens = 1, .hidden = hidden, .selected = &three};
    struct predict_hits hits = layer_predictions_routed(p, &layer1);
    assert_int_equal(hits.predictions, 1);
    assert_int_equal(hits.right, 1);

    /* at layer 1 layer 2's gate, on this layer's input, chooses expert 2 */
    struct predict_target target;
    const float *input;
    assert_true(layer_predictions_gate(p, &layer1, 0, &target, &input));
    assert_int_equal(target.layer, 2);
    assert_memory_equal(input, hidden, sizeof hidden);
    layer_predictions_from_gate(p, &layer1, &target, &two);
    assert_int_equal(seen.n, 2);
    assert_int_equal(seen.target.layer, 2);
    assert_int_equal(seen.first.expert, 2);
    uint32_t n;
    const struct sched_upcoming *u =
        layer_predictions_upcoming(p, &(struct predict_target){5, 1}, 1, &n);
    assert_int_equal(n, 1);
    assert_int_equal(u->expert, 2);

    /* an answer about that layer comes too late, though the layer is still to come */
    answer.target = (struct predict_target){5, 2};
    assert_false(layer_predictions_answer(p, &answer, &(struct predict_target){5, 2}));
    assert_int_equal(seen.n, 2);

    /* another predictor: nothing is predicted any more */
    layer_predictions_use(p, &traits, gate);
    layer_predictions_upcoming(p, &(struct predict_target){5, 1}, 1, &n);
    assert_int_equal(n, 0);
    layer_predictions_free(p);
    predictor_free(gate);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan_is_the_assigners),
        cmocka_unit_test(test_few_slots_and_no_loads),
        cmocka_unit_test(test_plan_without_loads),
        cmocka_unit_test(test_all_resident),
        cmocka_unit_test(test_misses),
        cmocka_unit_test(test_prefetches_slow_the_cpu),
        cmocka_unit_test(test_steps_that_do_not_stream),
        cmocka_unit_test(test_hints_of_a_plan),
        cmocka_unit_test(test_judgement),
        cmocka_unit_test(test_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
