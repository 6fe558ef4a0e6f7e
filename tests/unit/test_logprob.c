/* Log-probabilities (worker/sample/logprob.h) against their definition in long double, and edge
 * cases. */
#include "worker/sample/logprob.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

static float logprob(const float *logits, uint32_t n, uint32_t token)
{
    return logprob_of(logits, logprob_norm(logits, n), token);
}

static uint32_t state = 1;

static float random_between(float low, float high)
{
    state = state * 1664525u + 1013904223u;
    return low + (high - low) * (float)(state >> 8) / 16777216.0f;
}

static long double by_definition(const float *logits, uint32_t n, uint32_t token)
{
    long double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += expl((long double)logits[i] - logits[token]);
    return -logl(sum);
}

static void test_definition(void **context)
{
    static const uint32_t sizes[] = {1, 2, 7, 320, 151936};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        uint32_t n = sizes[s];
        float *logits = malloc(n * sizeof *logits);
        for (uint32_t i = 0; i < n; i++)
            logits[i] = random_between(-15, 15);
        for (uint32_t token = 0; token < n; token += n / 5 + 1) {
            long double want = by_definition(logits, n, token), got = logprob(logits, n, token);
            assert_true(got <= 0);
            assert_true(fabsl(got - want) <= 2e-7L * (1 - want));
        }
        free(logits);
    }
}

static void test_edges(void **context)
{
    /* Nothing overflows, and a certain token has logarithm 0. */
    const float far[] = {3e38f, -3e38f, 0};
    assert_true(logprob(far, 3, 0) == 0);
    assert_true(logprob(far, 3, 2) < -2.9e38f);
    assert_true(logprob(far, 3, 1) == -INFINITY); /* 6e38 is beyond a float */
    const float equal[] = {-1e4f, -1e4f, -1e4f, -1e4f};
    assert_true(fabs(logprob(equal, 4, 3) + log(4.0)) < 1e-6);
    const float broken[] = {1, NAN, 2};
    assert_true(isnan(logprob(broken, 3, 0)));
}

/* The most probable tokens are those that sorting finds, with logprob_of's values. */
static void test_top(void **context)
{
    enum { N = 3000, TOP = 64 };
    static float logits[N], values[TOP];
    uint32_t tokens[TOP];
    struct sampler *s = sampler_new(N, 1);
    for (int round = 0; round < 20; round++) {
        for (uint32_t i = 0; i < N; i++)
            logits[i] = floorf(random_between(-9, 9) * (round % 2 ? 4 : 1e5f)) * 0.25f;
        double norm = logprob_norm(logits, N);
        logprob_top(s, logits, norm, TOP, tokens, values);
        for (uint32_t k = 0; k < TOP; k++) {
            uint32_t before = 0;
            for (uint32_t i = 0; i < N; i++)
                before += logits[i] > logits[tokens[k]] ||
                          (logits[i] == logits[tokens[k]] && i < tokens[k]);
            assert_int_equal(before, k);
            assert_true(values[k] == logprob_of(logits, norm, tokens[k]));
        }
    }
    sampler_free(s);
}

/* As many as there are; none. */
static void test_whole_top(void **context)
{
    const float logits[] = {1, 3, 2, 3};
    const uint32_t want[] = {1, 3, 2, 0};
    uint32_t tokens[4];
    float values[4];
    struct sampler *s = sampler_new(4, 1);
    double norm = logprob_norm(logits, 4);
    logprob_top(s, logits, norm, 4, tokens, values);
    for (uint32_t k = 0; k < 4; k++) {
        assert_int_equal(tokens[k], want[k]);
        assert_true(values[k] == logprob_of(logits, norm, tokens[k]));
    }
    logprob_top(s, logits, norm, 0, NULL, NULL);
    sampler_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_definition),
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_top),
        cmocka_unit_test(test_whole_top),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
