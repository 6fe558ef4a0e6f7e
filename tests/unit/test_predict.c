/* lib/sched's predictors: cases worked out by hand from each rule, and random runs held against the
 * rule's plain definition. */
#include "random_numbers.h"

#include "sched/prefetch/transfer_scheduler.h"
#include "sched/predict/predict_internal.h"

#include "base/clock.h"

#include <fenv.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { MOST_EXPERTS = 64, MOST_TOKENS = 8, MOST_D = 16 };

static float uniform(void)
{
    return (float)(random_u64() >> 40) * 0x1p-24f;
}

static void random_selected(uint32_t n_tokens, const struct predict_shape *s, uint32_t *selected)
{
    for (uint32_t t = 0; t < n_tokens; t++)
        for (uint32_t k = 0; k < s->n_used;) {
            uint32_t expert = below(s->n_experts);
            bool taken = false;
            for (uint32_t j = 0; j < k; j++)
                taken |= selected[t * s->n_used + j] == expert;
            if (!taken)
                selected[t * s->n_used + k++] = expert;
        }
}

static void assert_near(double got, double want)
{
    if (!(fabs(got - want) < 1e-6))
        fail_msg("%.9g instead of %.9g", got, want);
}

/* Five layers; layers 1 to 4 have experts. Distance 1: from 1 to 2, from 4 to none. Distance 2,
 * wrapping: from 2 to 4; from 3 to the first layer of the next step. The embedding precedes layer
 * 1, so distance 2 from it is layer 2. */
static void test_targets(void **state)
{
    const struct predict_shape s = {.n_layers = 5, .first_layer = 1};
    const struct predict_traits *one = sched_predictor_traits(PREDICT_RESIDUAL);
    const struct predict_traits *two = sched_predictor_traits(PREDICT_FREQUENCY);
    struct predict_target t;
    assert_true(predict_target(one, &s, 7, 1, 0, &t) && t.step == 7 && t.layer == 2);
    assert_false(predict_target(one, &s, 7, 1, 1, &t));
    assert_false(predict_target(one, &s, 7, 4, 0, &t));
    assert_true(predict_target(two, &s, 7, 2, 0, &t) && t.step == 7 && t.layer == 4);
    assert_true(predict_target(two, &s, 7, 3, 0, &t) && t.step == 8 && t.layer == 1);
    assert_true(predict_target(two, &s, 7, 4, 0, &t) && t.step == 8 && t.layer == 2);
    assert_true(predict_target(two, &s, 7, PREDICT_EMBEDDING, 0, &t) && t.step == 7);
    assert_int_equal(t.layer, 2);
    assert_false(predict_target(sched_predictor_traits(PREDICT_NONE), &s, 7, 1, 0, &t));
    /* several distances: 1 to 3, not wrapping */
    const struct predict_traits more = {.distance_first = 1, .distance_last = 3};
    for (uint32_t i = 0; i < 3; i++)
        assert_true(predict_target(&more, &s, 7, 1, i, &t) && t.layer == 2 + i);
    assert_false(predict_target(&more, &s, 7, 2, 2, &t));
    /* FineMoE: distance 3, and the embedding predicts the first three */
    const struct predict_traits map = predictor_traits(PREDICT_EXPERT_MAP, &s);
    assert_true(map.distance_first == 3 && map.distance_last == 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_true(predict_target(&map, &s, 7, PREDICT_EMBEDDING, i, &t) && t.layer == 1 + i &&
                    t.step == 7);
    assert_false(predict_target(&map, &s, 7, PREDICT_EMBEDDING, 3, &t));
    assert_true(predict_target(&map, &s, 7, 1, 0, &t) && t.layer == 4 && t.step == 7);
    assert_false(predict_target(&map, &s, 7, 1, 1, &t));
    assert_false(predict_target(&map, &s, 7, 2, 0, &t));
    /* 6 and 4 for the shapes of Qwen1.5-MoE and Phi-3.5-MoE; at most the number of layers */
    const struct predict_shape qwen = {.n_layers = 24, .n_experts = 60};
    const struct predict_shape phi = {.n_layers = 32, .n_experts = 16};
    const struct predict_shape tiny = {.n_layers = 2, .n_experts = 16};
    assert_int_equal(predictor_traits(PREDICT_EXPERT_MAP, &qwen).distance_first, 6);
    assert_int_equal(predictor_traits(PREDICT_EXPERT_MAP, &phi).distance_first, 4);
    assert_int_equal(predictor_traits(PREDICT_EXPERT_MAP, &tiny).distance_first, 2);
}

/* The most probable expert first, of equal ones the lower number. An expert with probability 0 or
 * NaN is not predicted. */
static void test_best(void **state)
{
    const double p[6] = {0.25, 0, 0.5, NAN, 0.25, 0.125};
    struct predicted best[6];
    assert_int_equal(predict_best(p, 6, 6, best), 4);
    assert_true(best[0].expert == 2 && best[1].expert == 0 && best[2].expert == 4);
    assert_true(best[3].expert == 5 && best[3].probability == 0.125f);
    assert_int_equal(predict_best(p, 6, 2, best), 2);
    assert_true(best[0].expert == 2 && best[1].expert == 0);
    assert_int_equal(predict_best(p, 6, 0, best), 0);
}

/* Of many: each is the first, by the rule, of those that are left. */
static void test_best_of_many(void **state)
{
    enum { MOST = 512 };
    static double p[MOST];
    static struct predicted best[MOST];
    random_state = 3;
    for (uint32_t n = 1; n <= MOST; n += 73) {
        for (uint32_t i = 0; i < n; i++) { /* equal ones, close ones, very small ones, none */
            const double values[] = {0.25, 0.25 + (double)uniform() * 1e-5,
                                     (double)uniform() * 1e-30, (double)uniform() - 0.5};
            p[i] = values[random_u64() % 4];
        }
        for (uint32_t most = 0; most <= MOST; most = 2 * most + 1) {
            uint32_t found = predict_best(p, n, most, best), left = 0;
            bool taken[MOST] = {false};
            for (uint32_t i = 0; i < n; i++)
                left += p[i] > 0;
            assert_int_equal(found, left < most ? left : most);
            for (uint32_t k = 0; k < found; k++) {
                uint32_t first = n;
                for (uint32_t i = 0; i < n; i++)
                    if (!taken[i] && p[i] > 0 && (first == n || (float)p[i] > (float)p[first]))
                        first = i;
                assert_int_equal(best[k].expert, first);
                assert_true(best[k].probability == (float)p[first]);
                taken[first] = true;
            }
        }
    }
}

static void expect_list(const struct predicted *list, const uint32_t *experts, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(list[i].expert, experts[i]);
}

/* DALI, 4.2: "we count the number of tokens routed to each expert, and the top-k high-workload
 * experts are selected". Of four tokens' predictions expert 1 has three, 2 and 3 have two, 0 has
 * one, though 0 is the most probable; 2 is more probable than 3. With one token all have one. k is
 * 1 for Mixtral's 8 experts and 4 for 64 and 128. */
static void test_workload_order(void **state)
{
    const struct predict_shape s = {
        .n_layers = 2, .n_experts = 6, .n_used = 2, .d_model = 1, .max_tokens = 4};
    const double p[6] = {0.9, 0.5, 0.6, 0.55, 0, 0};
    const uint32_t predicted_routing[8] = {1, 2, 1, 3, 1, 2, 3, 0};
    struct predicted list[6];
    uint32_t n_known;
    const struct predict_traits *loaded = sched_predictor_traits(PREDICT_RESIDUAL);
    const struct predict_traits *probable = sched_predictor_traits(PREDICT_NEXT_GATE);
    struct predictor *line = predictor_new(PREDICT_RESIDUAL, PREDICT_IN_LINE, &s);
    assert_int_equal(predictor_list(line, loaded, 4, predicted_routing, p, list, &n_known), 4);
    assert_int_equal(n_known, 4);
    expect_list(list, (const uint32_t[]){1, 2, 3, 0}, 4);
    assert_true(list[0].probability == 0.5f && list[3].probability == 0.9f);
    assert_int_equal(predictor_list(line, probable, 4, predicted_routing, p, list, &n_known), 4);
    expect_list(list, (const uint32_t[]){0, 2, 3, 1}, 4);
    assert_int_equal(predictor_list(line, loaded, 1, predicted_routing, p, list, &n_known), 2);
    expect_list(list, (const uint32_t[]){0, 2}, 2);
    predictor_free(line);
    assert_int_equal(sched_prefetch_most(PREFETCH_LOADED, 8), 1);
    assert_int_equal(sched_prefetch_most(PREFETCH_LOADED, 64), 4);
    assert_int_equal(sched_prefetch_most(PREFETCH_LOADED, 128), 4);
    assert_true(sched_prefetch_most(PREFETCH_PROBABLE, 8) == UINT32_MAX);
}

/* MoEpic, 3.2: "one by one in descending order of their predicted scores", all of them though a
 * token activates one; the last layer's for "the first layer [...] of previous token", here the
 * next step. Scores (1/2, 1/4, 1/4, 0) of one token. Of two, with (1/2, 0, 1/8, 3/8): 0 is missed
 * with 1/4, 1 with 3/4, 2 with 3/4 7/8 = 21/32, 3 with 5/8. */
static void test_gate_scores(void **state)
{
    const struct predict_shape s = {.n_layers = 5,
                                    .first_layer = 1,
                                    .n_experts = 4,
                                    .n_used = 1,
                                    .d_model = 1,
                                    .max_tokens = 2};
    static const float scores[8] = {0.5f, 0.25f, 0.25f, 0, 0.5f, 0, 0.125f, 0.375f};
    const struct predict_traits *traits = sched_predictor_traits(PREDICT_GATE_SCORES);
    struct predictor *p = predictor_new(PREDICT_GATE_SCORES, PREDICT_IN_LINE, &s);
    struct predict_seen seen = {.step = 7, .layer = 4, .n_tokens = 1, .scores = scores};
    struct predict_target target;
    struct predicted list[4];
    uint32_t n_known;
    double got[4];
    assert_true(traits->scores && !traits->reads);
    assert_true(predict_target(traits, &s, 7, 4, 0, &target) && target.step == 8 &&
                target.layer == 1);
    assert_true(predict_target(traits, &s, 7, 1, 0, &target) && target.step == 7 &&
                target.layer == 2);
    predictor_predict(p, &seen, &target, NULL, got);
    assert_true(got[0] == 0.5 && got[1] == 0.25 && got[2] == 0.25 && got[3] == 0);
    assert_int_equal(predictor_list(p, traits, 1, NULL, got, list, &n_known), 3);
    expect_list(list, (const uint32_t[]){0, 1, 2}, 3);
    seen.n_tokens = 2;
    predictor_predict(p, &seen, &target, NULL, got);
    assert_true(got[0] == 0.75 && got[1] == 0.25 && got[2] == 11.0 / 32 && got[3] == 0.375);
    assert_int_equal(predictor_list(p, traits, 2, NULL, got, list, &n_known), 4);
    expect_list(list, (const uint32_t[]){0, 3, 2, 1}, 4);
    seen.scores = NULL; /* without scores there is no prediction */
    predictor_predict(p, &seen, &target, NULL, got);
    assert_true(got[0] == 0 && got[1] == 0 && got[2] == 0 && got[3] == 0);
    predictor_free(p);
}

/* Mixtral-offloading: "the next layer's gate applied to this layer's gate input"; the worker
 * computes the product, the predictor turns it into probabilities. Two experts a token. Both
 * shares of a layer begin at 1/2, with the weight of 8 predictions. One token predicts 3, then 5:
 * 1/2 each. The layer activates 3 and 0: the first share becomes 1/2 + (1 - 1/2) / 9 = 5/9, the
 * second 1/2 - 1/2 / 9 = 4/9. Then two tokens predict (3, 5) and (5, 3): either expert is missed
 * with (1 - 5/9) (1 - 4/9) = 20/81. Another layer's shares are unchanged. */
static void test_next_gate(void **state)
{
    const struct predict_shape s = {
        .n_layers = 4, .n_experts = 6, .n_used = 2, .d_model = 2, .max_tokens = 2};
    struct predictor *p = predictor_new(PREDICT_NEXT_GATE, PREDICT_IN_LINE, &s);
    const float hidden[4] = {1, 2, 3, 4};
    float out[4];
    const uint32_t prediction[2] = {3, 5}, chosen[2] = {3, 0}, candidates[4] = {3, 5, 5, 3};
    double got[6];
    struct predict_seen seen = {.step = 1, .layer = 0, .n_tokens = 1, .hidden = hidden};
    assert_ptr_equal(predictor_gate_input(p, &seen, out), hidden);
    predictor_predict(p, &seen, &(struct predict_target){1, 1}, prediction, got);
    assert_near(got[3], 0.5);
    assert_near(got[5], 0.5);
    assert_true(got[0] == 0 && got[1] == 0 && got[2] == 0 && got[4] == 0);

    struct predict_seen other = {.step = 1, .layer = 2, .n_tokens = 1, .selected = prediction};
    predictor_observe(p, &other); /* another layer: no share changes */
    seen = (struct predict_seen){.step = 1, .layer = 1, .n_tokens = 1, .selected = chosen};
    predictor_observe(p, &seen);
    predictor_observe(p, &seen); /* the second check has no effect */
    predictor_predict(p, &seen, &(struct predict_target){2, 1}, prediction, got);
    assert_near(got[3], 5.0 / 9);
    assert_near(got[5], 4.0 / 9);
    seen.n_tokens = 2;
    predictor_predict(p, &seen, &(struct predict_target){2, 1}, candidates, got);
    assert_near(got[3], 61.0 / 81);
    assert_near(got[5], 61.0 / 81);
    predictor_predict(p, &seen, &(struct predict_target){2, 2}, candidates, got);
    assert_near(got[3], 0.75);
    predictor_free(p);
    predictor_free(NULL);
}

/* A share converges: if three of four predictions come true, to three quarters. */
static void test_share(void **state)
{
    const struct predict_shape s = {
        .n_layers = 2, .n_experts = 2, .n_used = 1, .d_model = 1, .max_tokens = 1};
    struct predict_ranks *r = predict_ranks_new(&s);
    double got[2];
    for (uint32_t step = 1; step <= 4000; step++) {
        const struct predict_target target = {step, 1};
        const uint32_t prediction = 0, chosen = step % 4 == 0;
        predict_ranks_routing(r, &target, &prediction, 1, got);
        predict_ranks_check(r, &(struct predict_seen){
                                   .step = step, .layer = 1, .n_tokens = 1, .selected = &chosen});
    }
    assert_true(fabs(got[0] - 0.75) < 0.01 && got[1] == 0);
    predict_ranks_free(r);
}

/* DALI, section 4.2, equation 11: res(l) is the mean over tokens of h(l+1) - h(l); here over those
 * served ("N is the number of tokens in the calibration dataset"). h(0) = (t, 1) and h(1) = (t + 1
 * + (-1)^t, 3) of 64 tokens: the mean step from layer 0 is (1, 2). An update comes after the
 * 64th, not before. A layer that its next one does not follow adds nothing: layer 2 is shown in
 * other steps only. */
static void test_residual(void **state)
{
    const struct predict_shape s = {
        .n_layers = 3, .n_experts = 4, .n_used = 1, .d_model = 2, .max_tokens = 2};
    struct predictor *background = predictor_new(PREDICT_RESIDUAL, PREDICT_BACKGROUND, &s);
    struct predictor *line = predictor_new(PREDICT_RESIDUAL, PREDICT_IN_LINE, &s);
    assert_int_equal(predictor_update_floats(PREDICT_RESIDUAL, &s), 2);
    float update[2], out[4];
    uint32_t layer = 9;
    for (uint32_t t = 0; t < 64; t++) {
        assert_false(predictor_next_update(background, &layer, update));
        const float from[2] = {(float)t, 1}, to[2] = {(float)t + 1 + (t % 2 ? -1 : 1), 3};
        predictor_observe(
            background,
            &(struct predict_seen){.step = 2 * t, .layer = 0, .n_tokens = 1, .hidden = from});
        predictor_observe(background, &(struct predict_seen){
                                          .step = 2 * t, .layer = 1, .n_tokens = 1, .hidden = to});
        predictor_observe(
            background,
            &(struct predict_seen){.step = 2 * t + 1, .layer = 2, .n_tokens = 1, .hidden = from});
    }
    assert_true(predictor_next_update(background, &layer, update));
    assert_int_equal(layer, 0);
    assert_near(update[0], 1);
    assert_near(update[1], 2);
    assert_false(predictor_next_update(background, &layer, update));

    const float hidden[4] = {10, 20, 30, 40};
    struct predict_seen seen = {.step = 1, .layer = 0, .n_tokens = 2, .hidden = hidden};
    assert_ptr_equal(predictor_gate_input(line, &seen, out), hidden); /* no step is known yet */
    predictor_apply_update(line, 0, update);
    assert_ptr_equal(predictor_gate_input(line, &seen, out), out);
    const float want[4] = {11, 22, 31, 42};
    for (int i = 0; i < 4; i++)
        assert_near(out[i], want[i]);
    seen.layer = 1;
    assert_ptr_equal(predictor_gate_input(line, &seen, out), hidden);
    predictor_free(background);
    predictor_free(line);
}

/* res(l) is the mean of h(l+1) - h(l) over the tokens whose two inputs the predictor observed, with
 * any batches and any gaps. */
static void test_residual_is_the_mean(void **state)
{
    enum { LAYERS = 4, D = 5 };
    const struct predict_shape s = {
        .n_layers = LAYERS, .n_experts = 4, .n_used = 1, .d_model = D, .max_tokens = MOST_TOKENS};
    random_state = 5;
    struct predictor *background = predictor_new(PREDICT_RESIDUAL, PREDICT_BACKGROUND, &s);
    static double sum[LAYERS][D];
    static uint64_t count[LAYERS], updated[LAYERS];
    uint32_t updates = 0;
    for (uint64_t step = 1; step <= 600; step++) {
        float hidden[LAYERS][MOST_TOKENS * D];
        bool shown_before = false;
        uint32_t n = 1 + below(MOST_TOKENS);
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            bool shown = below(5) > 0;
            for (uint32_t i = 0; i < n * D; i++)
                hidden[layer][i] = uniform() * 2 - 1 + (float)layer * (float)(i % D);
            for (uint32_t i = 0; shown && shown_before && i < n * D; i++)
                sum[layer - 1][i % D] += (double)hidden[layer][i] - (double)hidden[layer - 1][i];
            if (shown && shown_before)
                count[layer - 1] += n;
            if (shown)
                predictor_observe(background, &(struct predict_seen){.step = step,
                                                                     .layer = layer,
                                                                     .n_tokens = n,
                                                                     .hidden = hidden[layer]});
            shown_before = shown;
            float update[D];
            uint32_t about;
            while (predictor_next_update(background, &about, update)) {
                for (int i = 0; i < D; i++)
                    if (fabs(update[i] - sum[about][i] / (double)count[about]) > 1e-4)
                        fail_msg("layer %u: %g instead of %g", about, (double)update[i],
                                 sum[about][i] / (double)count[about]);
                assert_true(count[about] >= 64 && about < LAYERS - 1);
                assert_true(count[about] >=
                            (updated[about] < 1024 ? 2 * updated[about] : updated[about] + 1024));
                updated[about] = count[about];
                updates++;
            }
        }
    }
    assert_true(updates >= 3 * 5);
    predictor_free(background);
}

/* Four experts, one a token. After one token that chose 2: f(2) = (1 + 1/4) / (1 + 1) = 5/8, the
 * others 1/8. A batch of two later that chose 2 and 3, the first token counts q = 2^(-2/32): f(2) =
 * (q + 1 + 1/4) / (q + 2 + 1), and of a batch of two at least one chooses it with 1 - (1 - f)^2.
 * A layer that was never observed has no prediction. */
static void test_frequency(void **state)
{
    const struct predict_shape s = {
        .n_layers = 2, .n_experts = 4, .n_used = 1, .d_model = 1, .max_tokens = 2};
    struct predictor *p = predictor_new(PREDICT_FREQUENCY, PREDICT_BACKGROUND, &s);
    const uint32_t two = 2, both[2] = {2, 3};
    double got[4];
    struct predict_seen seen = {.step = 1, .layer = 0, .n_tokens = 1, .selected = &two};
    predictor_observe(p, &seen);
    predictor_predict(p, &seen, &(struct predict_target){2, 0}, NULL, got);
    assert_near(got[2], 0.625);
    assert_near(got[0], 0.125);
    seen = (struct predict_seen){.step = 2, .layer = 0, .n_tokens = 2, .selected = both};
    predictor_observe(p, &seen);
    predictor_predict(p, &seen, &(struct predict_target){3, 0}, NULL, got);
    double q = exp2(-2.0 / 32), f = (q + 1.25) / (q + 3);
    assert_near(got[2], 1 - (1 - f) * (1 - f));
    f = (1 + 0.25) / (q + 3);
    assert_near(got[3], 1 - (1 - f) * (1 - f));
    predictor_predict(p, &seen, &(struct predict_target){3, 1}, NULL, got);
    for (int i = 0; i < 4; i++)
        assert_true(got[i] == 0);
    predictor_free(p);
}

/* The sums over all tokens ever seen, each with its age, from scratch. */
static void test_frequency_is_the_definition(void **state)
{
    enum { N = 12, USED = 3, STEPS = 150 };
    const struct predict_shape s = {
        .n_layers = 1, .n_experts = N, .n_used = USED, .d_model = 1, .max_tokens = MOST_TOKENS};
    struct predictor *p = predictor_new(PREDICT_FREQUENCY, PREDICT_BACKGROUND, &s);
    static uint32_t all[STEPS][MOST_TOKENS * USED], n[STEPS];
    random_state = 11;
    for (uint32_t step = 0; step < STEPS; step++) {
        n[step] = 1 + below(MOST_TOKENS);
        random_selected(n[step], &s, all[step]);
        struct predict_seen seen = {
            .step = step, .layer = 0, .n_tokens = n[step], .selected = all[step]};
        predictor_observe(p, &seen);
        double got[N];
        predictor_predict(p, &seen, &(struct predict_target){step + 1, 0}, NULL, got);
        for (uint32_t expert = 0; expert < N; expert++) {
            double above = (double)USED / N, below_ = 1;
            uint32_t age = 0;
            for (uint32_t i = step + 1; i-- > 0; age += n[i]) {
                double weight = exp2(-(double)age / 32);
                below_ += n[i] * weight;
                for (uint32_t k = 0; k < n[i] * USED; k++)
                    above += all[i][k] == expert ? weight : 0;
            }
            assert_near(got[expert], 1 - pow(1 - above / below_, n[step]));
        }
    }
    predictor_free(p);
}

/* A random batch: requests begin and end, positions advance or begin again. */
struct batch {
    uint32_t n;
    struct predict_token tokens[MOST_TOKENS];
    uint32_t selected[MOST_TOKENS * 8], predicted_routing[MOST_TOKENS * 8];
    float hidden[MOST_TOKENS * MOST_D], gate[MOST_TOKENS * MOST_EXPERTS];
};

static void random_batch(struct batch *b, uint64_t step)
{
    b->n = 1 + below(MOST_TOKENS);
    for (uint32_t t = 0; t < b->n; t++)
        b->tokens[t] = (struct predict_token){.request = step / 8 + below(3),
                                              .position = below(10) ? (uint32_t)step : below(100),
                                              .id = below(5) ? below(40) : PREDICT_NO_ID};
}

static struct predict_seen random_layer(struct batch *b, const struct predict_shape *s,
                                        uint64_t step, uint32_t layer)
{
    static const float odd[] = {0, -1, 1e30f, 1e-40f};
    random_selected(b->n, s, b->selected);
    random_selected(b->n, s, b->predicted_routing);
    for (uint32_t i = 0; i < b->n * s->d_model; i++)
        b->hidden[i] = below(50) ? uniform() - 0.5f : odd[below(4)];
    for (uint32_t i = 0; i < b->n * s->n_experts; i++)
        b->gate[i] = below(50) ? uniform() : odd[below(4)];
    bool embedding = layer == PREDICT_EMBEDDING;
    return (struct predict_seen){.step = step,
                                 .layer = layer,
                                 .n_tokens = b->n,
                                 .tokens = b->tokens,
                                 .hidden = b->hidden,
                                 .gate = embedding ? NULL : b->gate,
                                 .selected = embedding ? NULL : b->selected};
}

/* Both halves of a predictor, driven as by the worker, without delay. */
struct halves {
    enum sched_predictor kind;
    struct predict_traits traits;
    struct predictor *line, *background;
    float *update;
    uint64_t n_predicted, n_silent;
};

static void check_probabilities(struct halves *h, const struct predict_shape *s, const double *got,
                                const struct batch *b, bool in_line)
{
    double total = 0;
    for (uint32_t i = 0; i < s->n_experts; i++) {
        if (!(got[i] >= 0 && got[i] <= 1))
            fail_msg("predictor %d, expert %u: %g", h->kind, i, got[i]);
        total += got[i];
        bool was_predicted = false;
        for (uint32_t k = 0; k < b->n * s->n_used; k++)
            was_predicted |= b->predicted_routing[k] == i;
        if (in_line && h->kind != PREDICT_MIXTURE && h->kind != PREDICT_GATE_SCORES)
            assert_int_equal(got[i] > 0, was_predicted);
    }
    h->n_predicted += total > 0;
    h->n_silent += !(total > 0);
}

static void run_layer(struct halves *h, const struct predict_shape *s, struct batch *b,
                      const struct predict_seen *seen)
{
    struct predict_target target;
    double got[MOST_EXPERTS];
    float input[MOST_TOKENS * MOST_D];
    bool embedding = seen->layer == PREDICT_EMBEDDING;
    uint32_t layer;
    if (h->line && !embedding)
        predictor_observe(h->line, seen);
    if (h->background && below(12) && /* else the background half is busy */
        (!embedding || h->traits.reads & PREDICT_READS_EMBEDDING)) {
        predictor_observe(h->background, seen);
        for (uint32_t i = 0; h->traits.answers &&
                             predict_target(&h->traits, s, seen->step, seen->layer, i, &target);
             i++) {
            predictor_predict(h->background, seen, &target, NULL, got);
            check_probabilities(h, s, got, b, false);
        }
        while (predictor_next_update(h->background, &layer, h->update))
            if (below(8))
                predictor_apply_update(h->line, layer, h->update);
    }
    for (uint32_t i = 0; h->line && !embedding &&
                         predict_target(&h->traits, s, seen->step, seen->layer, i, &target);
         i++) {
        predictor_gate_input(h->line, seen, input);
        struct predict_seen scored = *seen;
        scored.scores = seen->gate;
        predictor_predict(h->line, &scored, &target, b->predicted_routing, got);
        check_probabilities(h, s, got, b, true);
    }
}

/* With any observations the results are probabilities; an expert that the gate did not choose has
 * none. */
static void test_probabilities(void **state)
{
    uint64_t n_predicted[PREDICT_KINDS] = {0};
    for (uint64_t seed = 1; seed <= 40; seed++)
        for (int kind = PREDICT_NEXT_GATE; kind < PREDICT_KINDS; kind++) {
            random_state = seed;
            struct predict_shape s = {.first_layer = below(2),
                                      .n_experts = 2 + below(MOST_EXPERTS - 2),
                                      .d_model = 1 + below(MOST_D),
                                      .max_tokens = MOST_TOKENS};
            s.n_layers = s.first_layer + 1 + below(6);
            s.n_used = 1 + below(s.n_experts < 8 ? s.n_experts : 8);
            struct halves h = {.kind = (enum sched_predictor)kind};
            h.traits = predictor_traits(h.kind, &s);
            assert_true(h.traits.in_line || h.traits.answers);
            h.line = h.traits.in_line ? predictor_new(h.kind, PREDICT_IN_LINE, &s) : NULL;
            h.background = h.traits.reads ? predictor_new(h.kind, PREDICT_BACKGROUND, &s) : NULL;
            h.update = calloc(1 + predictor_update_floats(h.kind, &s), sizeof *h.update);
            struct batch b;
            for (uint64_t step = 1; step <= 60; step++) {
                random_batch(&b, step);
                for (uint32_t i = 0; i <= s.n_layers - s.first_layer; i++) {
                    struct predict_seen seen = random_layer(
                        &b, &s, step, i == 0 ? PREDICT_EMBEDDING : s.first_layer + i - 1);
                    run_layer(&h, &s, &b, &seen);
                }
            }
            if (!h.background || kind == PREDICT_FREQUENCY) /* silent only at first */
                assert_true(h.n_silent <= s.n_layers);
            n_predicted[kind] += h.n_predicted;
            predictor_free(h.line);
            predictor_free(h.background);
            free(h.update);
        }
    for (int kind = PREDICT_NEXT_GATE; kind < PREDICT_KINDS; kind++)
        if (kind == PREDICT_MLP || kind == PREDICT_LLAPOR ||
            kind == PREDICT_MTP) /* without trained predictors */
            assert_true(n_predicted[kind] == 0);
        else
            assert_true(n_predicted[kind] > 1000);
}

/* A background prediction of a layer is outdated once the layer's gate has made one. Exception: for
 * the first layer the embedding of the step itself is better than the gate at the end of the step
 * before. */
static void test_outdated(void **state)
{
    const struct predict_target asked = {7, 5}, at_the_end = {8, 1};
    (void)state;
    assert_true(predict_outdated(&(struct predict_target){7, 5}, &asked, 1, 7));
    assert_false(predict_outdated(&(struct predict_target){7, 6}, &asked, 1, 7));
    assert_false(predict_outdated(&(struct predict_target){8, 5}, &asked, 1, 7));
    assert_true(predict_outdated(&(struct predict_target){8, 1}, &at_the_end, 1, 7));
    assert_false(predict_outdated(&(struct predict_target){8, 1}, &at_the_end, 1, 8));
}

/* Counts of experts that the text no longer activates do not sink into numbers that are too small
 * for the processor, which takes many times as long for them. */
static void test_no_underflow(void **state)
{
    (void)state;
    const struct predict_shape s = {
        .n_layers = 1, .n_experts = 8, .n_used = 1, .d_model = 1, .max_tokens = 1};
    struct predictor *p = predictor_new(PREDICT_FREQUENCY, PREDICT_BACKGROUND, &s);
    const struct predict_token token = {.id = PREDICT_NO_ID};
    feclearexcept(FE_ALL_EXCEPT);
    for (uint32_t step = 1; step <= 40000; step++) {
        uint32_t selected = step < 100 ? step % 8 : step % 2;
        predictor_observe(
            p, &(struct predict_seen){
                   .step = step, .n_tokens = 1, .tokens = &token, .selected = &selected});
    }
    assert_false(fetestexcept(FE_UNDERFLOW));
    predictor_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_targets),
        cmocka_unit_test(test_workload_order),
        cmocka_unit_test(test_gate_scores),
        cmocka_unit_test(test_best),
        cmocka_unit_test(test_best_of_many),
        cmocka_unit_test(test_next_gate),
        cmocka_unit_test(test_share),
        cmocka_unit_test(test_residual),
        cmocka_unit_test(test_residual_is_the_mean),
        cmocka_unit_test(test_frequency),
        cmocka_unit_test(test_no_underflow),
        cmocka_unit_test(test_frequency_is_the_definition),
        cmocka_unit_test(test_probabilities),
        cmocka_unit_test(test_outdated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
