/* Log-probabilities (worker/logprob.c) against the definition in long double, and at the edges. */
#include "worker/logprob.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

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
            long double want = by_definition(logits, n, token), got = logprob_of(logits, n, token);
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
    assert_true(logprob_of(far, 3, 0) == 0);
    assert_true(logprob_of(far, 3, 2) < -2.9e38f);
    assert_true(logprob_of(far, 3, 1) == -INFINITY); /* 6e38 is beyond a float */
    const float equal[] = {-1e4f, -1e4f, -1e4f, -1e4f};
    assert_true(fabs(logprob_of(equal, 4, 3) + log(4.0)) < 1e-6);
    const float broken[] = {1, NAN, 2};
    assert_true(isnan(logprob_of(broken, 3, 0)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_definition),
        cmocka_unit_test(test_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
