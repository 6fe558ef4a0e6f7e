/* The dense operations: each build against float64 libm, and all builds to the bit. */
#include "tests/unit/kernel_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#if defined(MOED_HAVE_SIMDE)
extern const struct kernels kernels_avx512_simde;
#endif

static const struct kernels *builds[8]; /* the portable one first */
static int n_builds = 1;

static int find_builds(void **state)
{
    for (const char *const *name = kernels_available(); *name != NULL; name++) {
        assert_true(kernels_select(*name));
        builds[strcmp(*name, "portable") == 0 ? 0 : n_builds++] = kernels_get();
    }
#if defined(MOED_HAVE_SIMDE)
    if (n_builds > 1) /* it needs AVX2 */
        builds[n_builds++] = &kernels_avx512_simde;
#endif
    return 0;
}

static float *random_floats(size_t n, float scale, uint64_t seed)
{
    float *f = malloc((n + 1) * sizeof *f);
    uint64_t state = seed * 2 + 1;

    for (size_t i = 0; i < n; i++)
        f[i] = random_float(&state) * scale;
    f[n] = 12345; /* a guard */
    return f;
}

static void assert_close(double value, double expected, double tolerance)
{
    if (!(fabs(value - expected) <= tolerance))
        fail_msg("%.9g, expected %.9g within %.2g", value, expected, tolerance);
}

static void test_exp(void **state)
{
    double worst = 0;

    for (int32_t i = -104 * 4096; i < 89 * 4096; i++) {
        float x = (float)i / 4096 + 1e-4f;
        double exact = exp((double)x);
        float e = builds[0]->exponential(x);

        if (exact < 0x1p-126)
            assert_close(e, exact, 0x1p-149 * 0.5 + exact * 0x1p-23);
        else if (exact < 3.4e38)
            worst = fmax(worst, fabs(e - exact) / exact);
    }
    fprintf(stderr, "exp: largest relative error %.3g (%.2f ulp of 2^-23)\n", worst,
            worst * 0x1p23);
    assert_true(worst < 0x1p-23);
    assert_true(kernels_exp(0) == 1);
    assert_true(kernels_exp(-0.0f) == 1);
    assert_true(kernels_exp(-INFINITY) == 0);
    assert_true(kernels_exp(-1e30f) == 0);
    assert_true(kernels_exp(-104) == 0);
    assert_true(isinf(kernels_exp(INFINITY)));
    assert_true(isinf(kernels_exp(1e30f)));
    assert_true(isinf(kernels_exp(88.7229f)));
    assert_true(isfinite(kernels_exp(88.7228f)));
    assert_true(isnan(kernels_exp(NAN)));
}

/* Fewer points: the build on SIMDe is slow, and slows down the portable one after it. */
static void test_exp_of_builds(void **state)
{
    for (int32_t i = -104 * 32; i < 89 * 32; i++) {
        float x = (float)i / 32 + 1e-4f, e = builds[0]->exponential(x);

        for (int b = 1; b < n_builds; b++)
            assert_true(builds[b]->exponential(x) == e);
    }
}

/* Lengths around the 16 lanes and beyond. */
static const size_t lengths[] = {1, 2, 15, 16, 17, 31, 33, 64, 100, 2048, 4099};
enum { N_LENGTHS = sizeof lengths / sizeof lengths[0] };

static void test_gated(void **state)
{
    for (int l = 0; l < N_LENGTHS; l++) {
        size_t n = lengths[l];
        float *gate = random_floats(n, 20, n), *up = random_floats(n, 3, n + 1);
        float *h = random_floats(n, 1, 3), *first = random_floats(n, 1, 3);

        gate[0] = n == 1 ? -120 : 0;
        gate[n / 2] = -95;
        gate[n - 1] = 130;
        builds[0]->gated((struct gating){.activation = ACTIVATION_SILU}, gate, up, first, n);
        for (size_t i = 0; i < n; i++) {
            double exact = (double)gate[i] / (1 + exp(-(double)gate[i])) * up[i];
            assert_close(first[i], exact, fabs(exact) * 4e-7 + 1e-37);
        }
        for (int b = 1; b < n_builds; b++) {
            builds[b]->gated((struct gating){.activation = ACTIVATION_SILU}, gate, up, h, n);
            assert_memory_equal(h, first, (n + 1) * sizeof *h);
        }
        free(first);
        free(h);
        free(up);
        free(gate);
    }
}

static void test_sigmoid(void **state)
{
    for (int l = 0; l < N_LENGTHS; l++) {
        size_t n = lengths[l];
        float *x = random_floats(n, 20, n), *y = malloc((n + 1) * sizeof *y);
        float *first = malloc((n + 1) * sizeof *first);

        x[0] = n == 1 ? -120 : 0;
        x[n / 2] = -95;
        x[n - 1] = 130;
        memcpy(first, x, (n + 1) * sizeof *x);
        builds[0]->sigmoid(first, n);
        for (size_t i = 0; i < n; i++) {
            double exact = 1 / (1 + exp(-(double)x[i]));
            assert_close(first[i], exact, exact * 4e-7 + 1e-37);
            assert_true(first[i] == 1 / (1 + kernels_exp(-x[i])));
        }
        assert_memory_equal(first + n, x + n, sizeof *x);
        for (int b = 1; b < n_builds; b++) {
            memcpy(y, x, (n + 1) * sizeof *x);
            builds[b]->sigmoid(y, n);
            assert_memory_equal(y, first, (n + 1) * sizeof *y);
        }
        free(first);
        free(y);
        free(x);
    }
}

static void test_gated_gelu(void **state)
{
    for (int l = 0; l < N_LENGTHS; l++) {
        size_t n = lengths[l];
        float *gate = random_floats(n, 6, n), *up = random_floats(n, 3, n + 1);
        float *h = random_floats(n, 1, 3), *first = random_floats(n, 1, 3);

        gate[0] = n == 1 ? 1e-3f : 0;
        gate[n / 2] = -1e20f; /* its cube overflows */
        gate[n - 1] = 1e20f;
        builds[0]->gated((struct gating){.activation = ACTIVATION_GELU}, gate, up, first, n);
        for (size_t i = 0; i < n; i++) {
            double x = gate[i], t = 0.7978845608028654 * (x + 0.044715 * x * x * x);
            double exact = x / (1 + exp(-2 * t)) * up[i];
            assert_close(first[i], exact, fabs(exact) * 1e-5 + 1e-30);
        }
        for (int b = 1; b < n_builds; b++) {
            builds[b]->gated((struct gating){.activation = ACTIVATION_GELU}, gate, up, h, n);
            assert_memory_equal(h, first, (n + 1) * sizeof *h);
        }
        free(first);
        free(h);
        free(up);
        free(gate);
    }
}

static void test_soft_cap(void **state)
{
    const float cap = 30;
    for (int l = 0; l < N_LENGTHS; l++) {
        size_t n = lengths[l];
        float *x = random_floats(n, 80, n), *h = random_floats(n, 1, 3),
              *first = random_floats(n, 1, 3);

        x[0] = n == 1 ? 1e-3f : 0;
        x[n / 2] = -1e30f;
        memcpy(first, x, n * sizeof *x);
        builds[0]->soft_cap(cap, first, n);
        for (size_t i = 0; i < n; i++)
            assert_close(first[i], cap * tanh((double)x[i] / cap), cap * 0x1p-22);
        for (int b = 1; b < n_builds; b++) {
            memcpy(h, x, n * sizeof *x);
            builds[b]->soft_cap(cap, h, n);
            assert_memory_equal(h, first, (n + 1) * sizeof *h);
        }
        free(first);
        free(h);
        free(x);
    }
}

static double exact_clamped(double gate, double up)
{
    double g = fmin(gate, 7), u = fmin(fmax(up, -7), 7);
    return g / (1 + exp(-1.702 * g)) * (u + 1);
}

static double exact_limited(double gate, double up)
{
    return fmin(gate / (1 + exp(-gate)), 2.5) * fmin(fmax(up, -2.5), 2.5);
}

static double exact_softplus(double gate, double up)
{
    return (fmax(gate, 0) + log1p(exp(-fabs(gate)))) * up;
}

static double exact_relu_squared(double gate, double up)
{
    (void)gate;
    return up > 0 ? up * up : 0;
}

/* Against the exact value, with a relative tolerance; all builds give the same. */
static void check_gating(struct gating g, double (*exact_of)(double, double), double tolerance)
{
    for (int l = 0; l < N_LENGTHS; l++) {
        size_t n = lengths[l];
        float *gate = random_floats(n, 20, n), *up = random_floats(n, 20, n + 1);
        float *h = random_floats(n, 1, 3), *first = random_floats(n, 1, 3);

        gate[n / 2] = n % 2 ? -80 : 80;
        builds[0]->gated(g, gate, up, first, n);
        for (size_t i = 0; i < n; i++) {
            double exact = exact_of(gate[i], up[i]);
            assert_close(first[i], exact, fabs(exact) * tolerance + 1e-37);
        }
        for (int b = 1; b < n_builds; b++) {
            builds[b]->gated(g, gate, up, h, n);
            assert_memory_equal(h, first, (n + 1) * sizeof *h);
        }
        free(first);
        free(h);
        free(up);
        free(gate);
    }
}

static void test_gated_clamped(void **state)
{
    check_gating((struct gating){.activation = ACTIVATION_SWIGLU_CLAMPED}, exact_clamped, 2e-5);
}

static void test_gated_limited(void **state)
{
    check_gating((struct gating){ACTIVATION_SILU, 2.5f}, exact_limited, 4e-7);
}

static void test_gated_softplus(void **state)
{
    check_gating((struct gating){.activation = ACTIVATION_SOFTPLUS}, exact_softplus, 4e-7);
}

/* It has no gate, whose values may be anything. */
static void test_relu_squared(void **state)
{
    float gate[2] = {NAN, INFINITY}, up[2] = {-3, NAN}, h[2];
    (void)state;
    check_gating((struct gating){.activation = ACTIVATION_RELU_SQUARED}, exact_relu_squared, 1e-7);
    for (int b = 0; b < n_builds; b++) {
        builds[b]->gated((struct gating){.activation = ACTIVATION_RELU_SQUARED}, gate, up, h, 2);
        assert_true(h[0] == 0 && isnan(h[1]));
    }
}

/* A NaN of either input stays one, whatever the limit. */
static void test_gated_nan(void **state)
{
    static const struct gating all[] = {{ACTIVATION_SILU, 0},    {ACTIVATION_SILU, 2.5f},
                                        {ACTIVATION_GELU, 0},    {ACTIVATION_SWIGLU_CLAMPED, 0},
                                        {ACTIVATION_SIGMOID, 0}, {ACTIVATION_SOFTPLUS, 0}};
    float gate[2] = {NAN, 1}, up[2] = {1, NAN}, h[3];
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        for (int b = 0; b < n_builds; b++) {
            builds[b]->gated(all[i], gate, up, h, 2);
            if (!isnan(h[0]) || !isnan(h[1]))
                fail_msg("activation %d: %g, %g", (int)all[i].activation, h[0], h[1]);
        }
}

static void test_layer_norm(void **state)
{
    for (int l = 0; l < N_LENGTHS; l++) {
        size_t n = lengths[l];
        float *x = random_floats(n, 5, n), *w = random_floats(n, 2, n + 1),
              *b = random_floats(n, 2, n + 2);
        float *out = random_floats(n, 1, 3), *first = random_floats(n, 1, 3);
        double mean = 0, squares = 0;

        for (size_t i = 0; i < n; i++)
            mean += x[i] / (double)n;
        for (size_t i = 0; i < n; i++)
            squares += (x[i] - mean) * (x[i] - mean) / (double)n;
        builds[0]->layer_norm(x, w, b, 1e-6f, n, first);
        for (size_t i = 0; i < n; i++) {
            double exact = (x[i] - mean) / sqrt(squares + 1e-6) * w[i] + b[i];
            assert_close(first[i], exact,
                         n == 1 ? 1e-2 : 1e-5); /* one value: a difference of equals */
        }
        for (int build = 1; build < n_builds; build++) {
            memcpy(out, x, n * sizeof *x); /* in place */
            builds[build]->layer_norm(out, w, b, 1e-6f, n, out);
            assert_memory_equal(out, first, (n + 1) * sizeof *out);
        }
        free(first);
        free(out);
        free(b);
        free(w);
        free(x);
    }
}

static void test_rms_norm(void **state)
{
    for (int l = 0; l < N_LENGTHS; l++) {
        size_t n = lengths[l];
        float *x = random_floats(n, 5, n), *w = random_floats(n, 2, n + 1);
        float *out = random_floats(n, 1, 3), *first = random_floats(n, 1, 3);

        for (int with_w = 0; with_w < 2; with_w++) {
            double sum = 0;

            for (size_t i = 0; i < n; i++)
                sum += (double)x[i] * x[i];
            builds[0]->rms_norm(x, with_w ? w : NULL, 1e-6f, n, first);
            for (size_t i = 0; i < n; i++) {
                double exact = x[i] / sqrt(sum / (double)n + 1e-6) * (with_w ? w[i] : 1);
                assert_close(first[i], exact, fabs(exact) * 1e-6);
            }
            for (int b = 1; b < n_builds; b++) {
                memcpy(out, x, n * sizeof *x); /* in place */
                builds[b]->rms_norm(out, with_w ? w : NULL, 1e-6f, n, out);
                assert_memory_equal(out, first, (n + 1) * sizeof *out);
            }
        }
        free(first);
        free(out);
        free(w);
        free(x);
    }
}

static void test_exp_sum(void **state)
{
    for (int l = 0; l < N_LENGTHS; l++) {
        size_t n = lengths[l];
        float *x = random_floats(n, 10, n);
        double exact = 0;

        x[n / 2] = -INFINITY;
        x[0] = 12;
        for (size_t i = 0; i < n; i++)
            exact += exp((double)x[i] - 12);
        float sum = builds[0]->exp_sum(x, 12, n);
        assert_close((double)sum, exact, exact * (n < 300 ? 4e-7 : 2e-6));
        for (int b = 1; b < n_builds; b++)
            assert_true(builds[b]->exp_sum(x, 12, n) == sum);
        x[n - 1] = NAN;
        for (int b = 0; b < n_builds; b++)
            assert_true(isnan(builds[b]->exp_sum(x, 12, n)));
        free(x);
    }
}

/* n logits up to top, among them NaNs and logits without weight. */
static void check_weigh(size_t n, float top, float scale, int32_t least)
{
    float *x = random_floats(n, 30, n + (size_t)least);
    int32_t *first = malloc((n + 1) * sizeof *first), *w = malloc((n + 1) * sizeof *w);
    uint64_t sum = 0;

    for (size_t i = 0; i < n; i++)
        x[i] = i % 97 == 5 ? NAN : i % 89 == 3 ? -INFINITY : top - fabsf(x[i]);
    x[n / 2] = top;
    first[n] = w[n] = 12345;
    uint64_t returned = builds[0]->weigh(x, top, scale, least, n, first);
    for (size_t i = 0; i < n; i++) {
        double exact = exp((double)((x[i] - top) * scale)) * WEIGH_ONE;
        if (isnan(x[i]) || exact + 1 + exact * 0x1p-22 < least)
            assert_int_equal(first[i], 0);
        else if (first[i] || exact - 1 - exact * 0x1p-22 >= least)
            assert_close(first[i], exact, 0.5 + exact * 0x1p-23);
        assert_true(first[i] == 0 || first[i] >= least);
        sum += (uint64_t)first[i];
    }
    assert_int_equal(first[n / 2], WEIGH_ONE);
    assert_true(returned == sum);
    assert_int_equal(first[n], 12345);
    for (int b = 1; b < n_builds; b++) {
        assert_true(builds[b]->weigh(x, top, scale, least, n, w) == sum);
        assert_memory_equal(w, first, (n + 1) * sizeof *w);
    }
    free(w);
    free(first);
    free(x);
}

static void test_weigh(void **state)
{
    (void)state;
    for (int l = 0; l < N_LENGTHS; l++) {
        check_weigh(lengths[l], 3.25f, 1, 0);
        check_weigh(lengths[l], -40, 0.3f, 1 << 20);
        check_weigh(lengths[l], 1e4f, 1.7f, WEIGH_ONE);
    }
    float *same = calloc(WEIGH_MOST, sizeof *same); /* the largest sum */
    int32_t *w = malloc(WEIGH_MOST * sizeof *w);
    for (int b = 0; b < n_builds; b++) {
        assert_true(builds[b]->weigh(same, 0, 1, 0, WEIGH_MOST, w) ==
                    (uint64_t)WEIGH_MOST * WEIGH_ONE);
        /* infinity minus infinity is NaN */
        assert_true(builds[b]->weigh((float[]){1, INFINITY, 2}, INFINITY, 1, 0, 3, w) == 0);
        assert_true(builds[b]->weigh((float[]){1, -1, 2}, 2, INFINITY, 0, 3, w) == 0);
    }
    free(w);
    free(same);
}

static void test_softmax(void **state)
{
    for (int l = 0; l < N_LENGTHS; l++) {
        size_t n = lengths[l];
        float *x = random_floats(n, 30, n), *out = random_floats(n, 1, 3);
        float *first = random_floats(n, 1, 3);
        double max = -INFINITY, sum = 0, total = 0;

        if (n > 2)
            x[n / 2] = -INFINITY; /* a masked position */
        for (size_t i = 0; i < n; i++)
            max = fmax(max, x[i]);
        for (size_t i = 0; i < n; i++)
            sum += exp(x[i] - max);
        memcpy(first, x, n * sizeof *x);
        builds[0]->softmax(first, n);
        for (size_t i = 0; i < n; i++) {
            /* x - max is rounded to float32: 60 * 2^-24 */
            assert_close(first[i], exp(x[i] - max) / sum, exp(x[i] - max) / sum * 5e-6);
            total += first[i];
        }
        assert_close(total, 1, 1e-6);
        for (int b = 1; b < n_builds; b++) {
            memcpy(out, x, n * sizeof *x);
            builds[b]->softmax(out, n);
            assert_memory_equal(out, first, (n + 1) * sizeof *out);
        }
        free(first);
        free(out);
        free(x);
    }
}

static void test_axpy_and_add(void **state)
{
    for (int l = 0; l < N_LENGTHS; l++) {
        size_t n = lengths[l];
        float *x = random_floats(n, 5, n), *y = random_floats(n, 5, n + 1);
        float *out = random_floats(n, 1, 3);

        for (int b = 0; b < n_builds; b++) {
            memcpy(out, y, n * sizeof *y);
            builds[b]->axpy(0.3f, x, out, n);
            for (size_t i = 0; i < n; i++)
                assert_true(out[i] == fmaf(0.3f, x[i], y[i]));
            memcpy(out, y, n * sizeof *y);
            builds[b]->add(x, out, n);
            for (size_t i = 0; i < n; i++)
                assert_true(out[i] == y[i] + x[i]);
            assert_true(out[n] == 12345);
        }
        free(out);
        free(y);
        free(x);
    }
}

static void test_rope(void **state)
{
    enum { DIMS = 10, HEAD = 14 };

    for (int neox = 0; neox < 2; neox++) {
        float head[HEAD], cos_sin[DIMS];

        for (int i = 0; i < HEAD; i++)
            head[i] = (float)(i + 1);
        for (int i = 0; i < DIMS / 2; i++) {
            cos_sin[i] = cosf(0.3f * (float)(i + 1));
            cos_sin[DIMS / 2 + i] = sinf(0.3f * (float)(i + 1));
        }
        rope_apply(head, DIMS, cos_sin, neox);
        for (int i = 0; i < DIMS / 2; i++) {
            int a = neox ? i : 2 * i, b = neox ? i + DIMS / 2 : 2 * i + 1;
            double angle = (double)(0.3f * (float)(i + 1)), x = a + 1, y = b + 1;

            assert_close(head[a], x * cos(angle) - y * sin(angle), 2e-6);
            assert_close(head[b], x * sin(angle) + y * cos(angle), 2e-6);
        }
        for (int i = DIMS; i < HEAD; i++)
            assert_true(head[i] == (float)(i + 1));
    }
}

/* In every build products and sums round separately, for any length. The rest of the row does not
 * change. */
static void test_rotate(void **state)
{
    enum { MOST = 67 };
    float *x = random_floats(MOST + 1, 5, 1), *y = random_floats(MOST + 1, 5, 2);
    float *cosines = random_floats(MOST, 1, 3), *sines = random_floats(MOST, 1, 4);

    for (uint32_t n = 0; n <= MOST; n++)
        for (int k = 0; k < n_builds; k++) {
            float a[MOST + 1], b[MOST + 1];

            memcpy(a, x, sizeof a);
            memcpy(b, y, sizeof b);
            builds[k]->rotate(a, b, cosines, sines, n);
            for (uint32_t i = 0; i < n; i++) {
                float parts[4] = {x[i] * cosines[i], y[i] * sines[i], x[i] * sines[i],
                                  y[i] * cosines[i]};

                assert_true(a[i] == parts[0] - parts[1] && b[i] == parts[2] + parts[3]);
            }
            assert_memory_equal(a + n, x + n, (MOST + 1 - n) * sizeof *x);
            assert_memory_equal(b + n, y + n, (MOST + 1 - n) * sizeof *y);
        }
    free(sines);
    free(cosines);
    free(y);
    free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exp),           cmocka_unit_test(test_exp_of_builds),
        cmocka_unit_test(test_gated),         cmocka_unit_test(test_gated_clamped),
        cmocka_unit_test(test_sigmoid),       cmocka_unit_test(test_gated_gelu),
        cmocka_unit_test(test_gated_limited), cmocka_unit_test(test_gated_softplus),
        cmocka_unit_test(test_relu_squared),  cmocka_unit_test(test_gated_nan),
        cmocka_unit_test(test_soft_cap),      cmocka_unit_test(test_layer_norm),
        cmocka_unit_test(test_rms_norm),      cmocka_unit_test(test_softmax),
        cmocka_unit_test(test_exp_sum),       cmocka_unit_test(test_weigh),
        cmocka_unit_test(test_axpy_and_add),  cmocka_unit_test(test_rope),
        cmocka_unit_test(test_rotate),
    };
    int failed = cmocka_run_group_tests_name("kernel operations", tests, find_builds, NULL);

    if (failed || n_builds > 1)
        return failed;
    fprintf(stderr, "skipped: this CPU runs only the portable build\n");
    return 77;
}
