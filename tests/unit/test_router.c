/* Routers: small cases worked out by hand, and rotation frequencies against the values of
 * transformers. */
#include "model/rope.h"
#include "model/router.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void close_to(double value, double expected, double tolerance)
{
    if (!(fabs(value - expected) <= tolerance))
        fail_msg("%.9g, expected %.9g", value, expected);
}

/* Routes n_used of the logits and compares experts and weights. */
static void check(const struct router_params *p, const float *logits, const float *bias,
                  const uint32_t *experts, const double *weights)
{
    float copy[16], got_weights[16];
    uint32_t got[16];
    memcpy(copy, logits, p->n_experts * sizeof *copy);
    router_select(p, copy, bias, got, got_weights);
    for (uint32_t i = 0; i < p->n_used; i++) {
        assert_int_equal(got[i], experts[i]);
        close_to(got_weights[i], weights[i], 1e-6);
    }
}

static void test_softmax(void **state)
{
    (void)state;
    const float logits[4] = {logf(1), logf(4), logf(2),
                             logf(1)}; /* probabilities 1/8, 4/8, 2/8, 1/8 */
    struct router_params p = {ROUTER_SOFTMAX, 4, 2, 0, 0, false, 1, 0, 0};
    check(&p, logits, NULL, (uint32_t[]){1, 2}, (double[]){0.5, 0.25});
    p.renormalise = true;
    check(&p, logits, NULL, (uint32_t[]){1, 2}, (double[]){2 / 3.0, 1 / 3.0});
    p.scale = 3;
    check(&p, logits, NULL, (uint32_t[]){1, 2}, (double[]){2, 1});
    /* ties: the lower number first */
    p = (struct router_params){ROUTER_SOFTMAX, 4, 3, 0, 0, false, 1, 0, 0};
    check(&p, logits, NULL, (uint32_t[]){1, 2, 0}, (double[]){0.5, 0.25, 0.125});
}

static void test_sigmoid_with_bias(void **state)
{
    (void)state;
    const float logits[4] = {0, logf(3), logf(1 / 3.0f), 0}; /* 0.5, 0.75, 0.25, 0.5 */
    const float bias[4] = {0, -0.5f, 0.4f, 0.05f}; /* to choose by: 0.5, 0.25, 0.65, 0.55 */
    struct router_params p = {ROUTER_SIGMOID, 4, 2, 0, 0, false, 1, 0, 0};
    check(&p, logits, NULL, (uint32_t[]){1, 0}, (double[]){0.75, 0.5});
    check(&p, logits, bias, (uint32_t[]){2, 3}, (double[]){0.25, 0.5});
    p.renormalise = true;
    p.scale = 2.5f;
    check(&p, logits, bias, (uint32_t[]){2, 3}, (double[]){2.5 / 3, 5 / 3.0});
}

/* Without a bias the larger logit wins where both sigmoids are 1; with one both are equal. */
static void test_large_logits(void **state)
{
    (void)state;
    const float logits[3] = {30, 40, 35}, bias[3] = {0};
    struct router_params p = {ROUTER_SIGMOID, 3, 2, 0, 0, true, 1, 0, 0};
    check(&p, logits, NULL, (uint32_t[]){1, 2}, (double[]){0.5, 0.5});
    check(&p, logits, bias, (uint32_t[]){0, 1}, (double[]){0.5, 0.5});
}

/* Small weights are divided by their sum as the original does, whatever their size. */
static void test_small_weights(void **state)
{
    (void)state;
    const float small[3] = {-20, -20, -30}, none[3] = {-200, -200, -200};
    double one = exp(-20); /* of both that are chosen */
    struct router_params p = {ROUTER_SIGMOID, 3, 2, 0, 0, true, 1, 0, 0};
    check(&p, small, NULL, (uint32_t[]){0, 1}, (double[]){0.5, 0.5});
    check(&p, none, NULL, (uint32_t[]){0, 1}, (double[]){0, 0});
    p.weight_sum_eps = 1e-20f;
    check(&p, small, NULL, (uint32_t[]){0, 1}, (double[]){0.5, 0.5});
    p.weight_sum_eps = 2e-9f;
    check(&p, small, NULL, (uint32_t[]){0, 1},
          (double[]){one / (2 * one + 2e-9), one / (2 * one + 2e-9)});
    p.weight_sum_eps = 0;
    p.weight_sum_least = 1e-8f;
    check(&p, small, NULL, (uint32_t[]){0, 1}, (double[]){one / 1e-8, one / 1e-8});
}

static void test_groups(void **state)
{
    (void)state;
    /* three groups of two; sigmoids 0.9 0.1 | 0.6 0.6 | 0.5 0.8: sums 1.0, 1.2, 1.3, largest 0.9,
     * 0.6, 0.8 */
    const double s[6] = {0.9, 0.1, 0.6, 0.6, 0.5, 0.8};
    float logits[6];
    for (int i = 0; i < 6; i++)
        logits[i] = (float)log(s[i] / (1 - s[i]));
    struct router_params p = {ROUTER_SIGMOID, 6, 2, 3, 2, false, 1, 0, 0};
    check(&p, logits, NULL, (uint32_t[]){5, 2}, (double[]){0.8, 0.6});
    /* the same as softmax: the group of the largest is kept */
    double sum = 0;
    for (int i = 0; i < 6; i++) {
        sum += s[i];
        logits[i] = (float)log(s[i]);
    }
    p.kind = ROUTER_SOFTMAX;
    check(&p, logits, NULL, (uint32_t[]){0, 5}, (double[]){0.9 / sum, 0.8 / sum});
}

static void test_softmax_of_selected(void **state)
{
    (void)state;
    const float logits[4] = {logf(5), logf(1), logf(3), logf(4)};
    struct router_params p = {ROUTER_SOFTMAX_SELECTED, 4, 2, 0, 0, false, 1, 0, 0};
    check(&p, logits, NULL, (uint32_t[]){0, 3}, (double[]){5 / 9.0, 4 / 9.0});
}

static void test_sparse_mixer(void **state)
{
    (void)state;
    /* The first expert: 2.00; near it 1.99 (0.5 %) and 1.97 (1.5 %), not 1.90 (5 %). The second:
     * 1.99; near it 1.97. */
    const float logits[5] = {1.90f, 1.99f, -3, 2.00f, 1.97f};
    struct router_params p = {ROUTER_SPARSE_MIXER, 5, 2, 0, 0, false, 1, 0, 0};
    double near = exp(1.99 - 2.00), third = exp(1.97 - 2.00);
    check(&p, logits, NULL, (uint32_t[]){3, 1},
          (double[]){1 / (1 + near + third), 1 / (1 + exp(1.97 - 1.99))});
    /* all negative: -1 leads, -1.01 is 1 % of 1.01 away */
    const float negative[3] = {-1.01f, -1, -5};
    p.n_experts = 3;
    p.n_used = 1;
    check(&p, negative, NULL, (uint32_t[]){1}, (double[]){1 / (1 + exp(-0.01))});
}

/* transformers' inverse frequencies, 64 values a head, an original context of 4096. Without rounded
 * ends (truncate false) as gpt-oss has it. */
static void test_yarn(void **state)
{
    static const int pairs[] = {0, 5, 9, 10, 12, 15, 17, 20, 23, 31};
    static const struct {
        float base, factor;
        bool exact;
        double frequency[10];
    } cases[] = {
        {150000,
         32,
         true,
         {1, 0.155322984, 0.0317056961, 0.0193349998, 0.00679495931, 0.00105260219, 0.000129318694,
          1.8188337e-05, 5.95023948e-06, 3.0235114e-07}},
        {150000,
         32,
         false,
         {1, 0.155322984, 0.0316207521, 0.0194509663, 0.00701571396, 0.00120613095, 0.000227947836,
          1.8188337e-05, 5.95023948e-06, 3.0235114e-07}},
        {10000,
         40,
         false,
         {1, 0.237137362, 0.0749894157, 0.0562341288, 0.0268793609, 0.0083345091, 0.00356199732,
          0.000790569407, 3.3338034e-05, 3.33380353e-06}},
    };
    (void)state;
    for (int c = 0; c < 3; c++) {
        struct rope_params p = {
            ROPE_SCALING_YARN, 64, cases[c].base, cases[c].factor, 4096, 32, 1, 1, cases[c].exact};
        double frequency[32];
        rope_frequencies(&p, NULL, frequency);
        for (int i = 0; i < 10; i++)
            close_to(frequency[pairs[i]] / cases[c].frequency[i], 1, 2e-6);
    }
}

static void test_other_scalings(void **state)
{
    const float factors[2] = {1, 4};
    double frequency[2];
    struct rope_params p = {.scaling = ROPE_SCALING_NONE, .dims = 4, .base = 10000, .factor = 1};
    (void)state;
    rope_frequencies(&p, NULL, frequency);
    close_to(frequency[0], 1, 1e-12);
    close_to(frequency[1], 0.01, 1e-9);
    rope_frequencies(&p, factors, frequency);
    close_to(frequency[1], 0.0025, 1e-9);
    p.scaling = ROPE_SCALING_LINEAR;
    p.factor = 2;
    rope_frequencies(&p, NULL, frequency);
    close_to(frequency[0], 0.5, 1e-12);
    p.scaling = ROPE_SCALING_LONG;
    p.original_context = 100;
    assert_false(rope_uses_long(&p, 100));
    assert_true(rope_uses_long(&p, 101));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_softmax),        cmocka_unit_test(test_sigmoid_with_bias),
        cmocka_unit_test(test_large_logits),   cmocka_unit_test(test_small_weights),
        cmocka_unit_test(test_groups),         cmocka_unit_test(test_softmax_of_selected),
        cmocka_unit_test(test_sparse_mixer),   cmocka_unit_test(test_yarn),
        cmocka_unit_test(test_other_scalings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
