/* Klotski's correlation table: the paper's figure 8, and what it does not show. */
#include "sched/predict/predict.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

enum { EXPERTS = 4, TOKENS = 4 };

static void show(struct predictor *p, uint64_t step, uint32_t layer, const uint32_t *selected,
                 uint32_t n_tokens)
{
    const struct predict_seen seen = {
        .step = step, .layer = layer, .n_tokens = n_tokens, .selected = selected};
    predictor_observe(p, &seen);
}

/* Counts the pairs of the figure: how often expert i of layer 0 was followed by j of layer 1. */
static struct predictor *with_table(const struct predict_shape *s, uint64_t *step)
{
    static const uint32_t table[2][EXPERTS] = {{38, 27, 97, 15}, {66, 35, 41, 117}};
    struct predictor *p = predictor_new(PREDICT_CORRELATION, PREDICT_BACKGROUND, s);
    assert_non_null(p);
    for (uint32_t i = 0; i < 2; i++)
        for (uint32_t j = 0; j < EXPERTS; j++)
            for (uint32_t n = 0; n < table[i][j]; n++) {
                show(p, ++*step, 0, &i, 1);
                show(p, *step, 1, &j, 1);
            }
    return p;
}

/* Tokens that chose 0 tend to 2, those that chose 1 to 3. One expert is predicted: the one with the
 * most votes. */
static void test_figure(void **state)
{
    const struct predict_shape s = {
        .n_layers = 2, .n_experts = EXPERTS, .n_used = 1, .max_tokens = TOKENS};
    const struct predict_traits traits = predictor_traits(PREDICT_CORRELATION, &s);
    const struct predict_target target = {9999, 1};
    uint64_t step = 0;
    struct predictor *p = with_table(&s, &step);
    for (uint32_t ones = 0; ones <= 4; ones += 1) {
        const uint32_t selected[TOKENS] = {ones > 0, ones > 1, ones > 2, ones > 3};
        const struct predict_seen seen = {.step = 9999, .n_tokens = TOKENS, .selected = selected};
        double probability[EXPERTS];
        struct predicted list[EXPERTS];
        uint32_t n_known;
        show(p, 9999, 0, selected, TOKENS);
        predictor_predict(p, &seen, &target, NULL, probability);
        assert_true(probability[2] == (4 - ones) / 4.0 && probability[3] == ones / 4.0);
        assert_true(probability[0] == 0 && probability[1] == 0);
        uint32_t n = predictor_list(p, &traits, TOKENS, NULL, probability, list, &n_known);
        assert_int_equal(n, 1); /* of equal votes the lower number */
        assert_int_equal(list[0].expert, ones > 2 ? 3 : 2);
        assert_int_equal(n_known, ones == 0 || ones == 4 ? 1 : 2);
    }
    predictor_free(p);
}

/* Nothing is counted between layers of different steps, nor across one that was not shown; a choice
 * that was never seen predicts nothing. */
static void test_gaps(void **state)
{
    const struct predict_shape s = {
        .n_layers = 3, .n_experts = EXPERTS, .n_used = 1, .max_tokens = TOKENS};
    const struct predict_target target = {3, 1};
    struct predictor *p = predictor_new(PREDICT_CORRELATION, PREDICT_BACKGROUND, &s);
    const uint32_t zero = 0, one = 1;
    double probability[EXPERTS];
    show(p, 1, 0, &zero, 1);
    show(p, 1, 2, &one, 1);
    show(p, 2, 1, &one, 1);
    const struct predict_seen seen = {.step = 3, .n_tokens = 1, .selected = &zero};
    predictor_predict(p, &seen, &target, NULL, probability);
    for (uint32_t e = 0; e < EXPERTS; e++)
        assert_true(probability[e] == 0);
    predictor_free(p);
}

/* Two experts a token. Expert 0 led to 2 and 3 ten times, 1 to 0 and 3 seven times: together 3 has
 * 17 and 2 has 10 (all twice: a choice has two places). */
static void test_sum_of_rows(void **state)
{
    const struct predict_shape s = {
        .n_layers = 2, .n_experts = EXPERTS, .n_used = 2, .max_tokens = TOKENS};
    const struct predict_target target = {99, 1};
    struct predictor *p = predictor_new(PREDICT_CORRELATION, PREDICT_BACKGROUND, &s);
    const uint32_t chose[2][2] = {{0, 0}, {1, 1}}, led[2][2] = {{2, 3}, {0, 3}}, both[] = {0, 1};
    double probability[EXPERTS];
    for (uint64_t step = 1; step <= 17; step++) {
        show(p, step, 0, chose[step > 10], 1);
        show(p, step, 1, led[step > 10], 1);
    }
    const struct predict_seen seen = {.step = 99, .n_tokens = 1, .selected = both};
    predictor_predict(p, &seen, &target, NULL, probability);
    assert_true(probability[0] == 0 && probability[1] == 0);
    assert_true(probability[2] == 1 && probability[3] == 1);
    predictor_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_figure),
        cmocka_unit_test(test_gaps),
        cmocka_unit_test(test_sum_of_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
