/* The CUDA module's operations on rows of floats, compared to the bit with the portable kernels. */
#include "tests/unit/kernel_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "activations.h"

static const uint32_t widths[] = {1, 5, 15, 16, 17, 33, 64, 127, 128, 1000, 1024, 1025, 2880, 4099};
enum { N_WIDTHS = sizeof widths / sizeof *widths };
static const uint32_t row_counts[] = {1, 2, 3, 8, 33};
enum { N_ROW_COUNTS = sizeof row_counts / sizeof *row_counts };

/* Values of usual size, or (extreme) of any size, with zeros of both signs and subnormals. */
static float *random_floats(size_t n, bool extreme, uint64_t seed)
{
    static const float sizes[] = {1, 0, 1e-44f, 1e-20f, -1e-38f, 1e18f, 30, -0.0f};
    uint64_t state = seed * 2 + 1;
    float *f = malloc((n ? n : 1) * sizeof *f);

    for (size_t i = 0; i < n; i++) {
        float size = extreme ? sizes[random_u64(&state) / 1024 % 8] : 3;
        f[i] = random_float(&state) * size;
    }
    return f;
}

static float *floats_to_device(const float *f, size_t n)
{
    return to_device(f, n * sizeof *f);
}

/* The device's values must equal the expected ones; bytes outside the output must not change. */
static void check_floats(const float *device_floats, const float *expected, size_t n,
                         const char *what)
{
    float *f = malloc(n * sizeof *f);

    from_device(f, device_floats, n * sizeof *f);
    assert_same_floats(f, expected, n, what);
    free(f);
}

static void norm_expected(const float *x, const float *weight, const float *bias, uint32_t d,
                          float *out)
{
    if (bias)
        portable->layer_norm(x, weight, bias, 1e-5f, d, out);
    else
        portable->rms_norm(x, weight, 1e-6f, d, out);
}

/* kind: 0 layer norm, 1 RMS, 2 RMS without weights. */
static void check_norm(uint32_t n, uint32_t d, int kind, bool extreme, bool in_place)
{
    size_t x_stride = d + 3, out_stride = in_place ? x_stride : d + 1;
    float *x = random_floats(n * x_stride, extreme, n + d),
          *expected = random_floats(n * out_stride, false, 5);
    float *weight = random_floats(d, false, 6), *bias = random_floats(d, extreme, 7);
    const float *w = kind < 2 ? weight : NULL, *b = kind == 0 ? bias : NULL;
    char what[96];

    if (in_place)
        memcpy(expected, x, n * x_stride * sizeof *x);
    float *device_x = floats_to_device(x, n * x_stride);
    float *device_out = in_place ? device_x : floats_to_device(expected, n * out_stride);
    module->ops.norm(stream, device_x, x_stride, w ? floats_to_device(w, d) : NULL,
                     b ? floats_to_device(b, d) : NULL, b ? 1e-5f : 1e-6f, n, d, device_out,
                     out_stride);
    for (uint32_t t = 0; t < n; t++)
        norm_expected(x + t * x_stride, w, b, d, expected + t * out_stride);
    snprintf(what, sizeof what, "norm %d of %u rows of %u", kind, n, d);
    check_floats(device_out, expected, n * out_stride, what);
    free(bias);
    free(weight);
    free(expected);
    free(x);
    release_all();
}

static void test_norm(void **state)
{
    (void)state;
    for (int w = 0; w < N_WIDTHS; w++)
        for (int r = 0; r < N_ROW_COUNTS; r++)
            for (int kind = 0; kind < 3; kind++)
                check_norm(row_counts[r], widths[w], kind, (w + r) % 2 != 0, (w + kind) % 3 == 0);
    check_norm(2, 12001, 0, false, false); /* more than fits into shared memory */
    check_norm(1, 13000, 1, true, true);
}

/* As norm, and the result quantised. */
static void check_norm_quantize(uint32_t n, uint32_t d, int kind)
{
    size_t x_stride = d + 4;
    float *x = random_floats(n * x_stride, kind == 0, n + d), *weight = random_floats(d, false, 6),
          *bias = random_floats(d, false, 7), *expected = malloc((size_t)n * d * sizeof *expected);
    const float *w = kind < 2 ? weight : NULL, *b = kind == 0 ? bias : NULL;
    float *out = on_device((size_t)n * d * sizeof *out);
    struct device_activations a;

    module->ops.activations_bind(&a, on_device(module->ops.activations_bytes(d, n)), d, n, out, d,
                                 true);
    module->ops.norm_quantize(stream, floats_to_device(x, n * x_stride), x_stride,
                              w ? floats_to_device(w, d) : NULL, b ? floats_to_device(b, d) : NULL,
                              b ? 1e-5f : 1e-6f, out, d, &a);
    for (uint32_t t = 0; t < n; t++)
        norm_expected(x + t * x_stride, w, b, d, expected + (size_t)t * d);
    check_floats(out, expected, (size_t)n * d, "norm_quantize");
    check_activations(portable, &a, expected, d);
    free(expected);
    free(bias);
    free(weight);
    free(x);
    release_all();
}

static void test_norm_quantize(void **state)
{
    static const uint32_t quantized[] = {32, 96, 256, 288, 2048, 12032};

    (void)state;
    for (int w = 0; w < 6; w++)
        for (int kind = 0; kind < 3; kind++) {
            check_norm_quantize(1, quantized[w], kind);
            check_norm_quantize(5, quantized[w], kind);
        }
}

static void check_norm_add(uint32_t n, uint32_t d, bool biased, float by)
{
    size_t n_all = (size_t)n * d;
    float *x = random_floats(n_all, false, n + d), *rows = random_floats(n_all, true, 4);
    float *weight = random_floats(d, false, 6), *bias = random_floats(d, false, 7),
          *normed = malloc(d * sizeof *normed);
    float *device_x = floats_to_device(x, n_all), *device_rows = floats_to_device(rows, n_all);

    module->ops.norm_add(stream, device_x, floats_to_device(weight, d),
                         biased ? floats_to_device(bias, d) : NULL, biased ? 1e-5f : 1e-6f, n, d,
                         by, device_rows);
    for (uint32_t t = 0; t < n; t++) {
        float *row = rows + (size_t)t * d;
        norm_expected(x + (size_t)t * d, weight, biased ? bias : NULL, d, normed);
        portable->add(normed, row, d);
        for (uint32_t i = 0; i < d; i++)
            row[i] *= by;
    }
    check_floats(device_rows, rows, n_all, "norm_add");
    check_floats(device_x, x, n_all, "what norm_add reads");
    void *all[] = {x, rows, weight, bias, normed};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    release_all();
}

static void test_norm_add(void **state)
{
    (void)state;
    check_norm_add(1, 2816, false, 1);
    check_norm_add(3, 2816, false, 0.73f);
    check_norm_add(5, 100, false, 0.73f);
    check_norm_add(4, 33, true, 1);
    check_norm_add(1, 13000, true, -2);
}

static void check_add(uint32_t n, uint32_t d, bool same)
{
    size_t stride = d + 2, add_stride = same ? 0 : d + 5, n_add = same ? d : n * add_stride;
    float *rows = random_floats(n * stride, true, n), *add = random_floats(n_add, true, d);
    float *device_rows = floats_to_device(rows, n * stride);

    module->ops.add(stream, floats_to_device(add, n_add), add_stride, device_rows, stride, n, d);
    for (uint32_t t = 0; t < n; t++)
        portable->add(add + t * add_stride, rows + t * stride, d);
    check_floats(device_rows, rows, n * stride, "add");
    free(add);
    free(rows);
    release_all();
}

static void check_gated(size_t n, bool extreme)
{
    static const struct gating all[] = {{ACTIVATION_SILU, 0},
                                        {ACTIVATION_SILU, 0.75f},
                                        {ACTIVATION_SWIGLU_CLAMPED, 0},
                                        {ACTIVATION_GELU, 0}};
    for (size_t a = 0; a < sizeof all / sizeof all[0]; a++) {
        float *gate = random_floats(n, extreme, n), *up = random_floats(n, extreme, n + 1),
              *h = random_floats(n, false, 2);
        for (size_t i = 0; i < n; i += 7)
            gate[i] *= 40; /* exponentials that vanish or overflow */
        float *device_gate = floats_to_device(gate, n),
              *device_h = extreme ? device_gate : floats_to_device(h, n);

        module->ops.gated(stream, all[a].activation, all[a].limit, device_gate,
                          floats_to_device(up, n), device_h, n);
        portable->gated(all[a], gate, up, h, n);
        check_floats(device_h, h, n, "gated");
        free(h);
        free(up);
        free(gate);
        release_all();
    }
}

static void check_gate_by_sigmoid(size_t n)
{
    float *rows = random_floats(n, true, n), *gate = random_floats(n, false, n + 1);

    gate[0] = -200;
    gate[n / 2] = 90;
    float *device_rows = floats_to_device(rows, n);
    module->ops.gate_by_sigmoid(stream, floats_to_device(gate, n), device_rows, n);
    for (size_t i = 0; i < n; i++)
        rows[i] = rows[i] / (1.0f + kernels_exp(-gate[i]));
    check_floats(device_rows, rows, n, "gate_by_sigmoid");
    free(gate);
    free(rows);
    release_all();
}

/* As dense_host_gate_parts; width 1: a gate a value. */
static void check_gate_parts(enum activation activation, uint32_t n, uint32_t n_gates,
                             uint32_t width)
{
    const struct gating by = {activation, 0};
    size_t n_all = (size_t)n * n_gates;
    float *gate = random_floats(n_all, false, n_gates), one = 1,
          *rows = random_floats(n_all * width, true, width);

    for (size_t i = 0; i < n_all; i += 5)
        gate[i] *= 60; /* exponentials that vanish or overflow */
    float *device_rows = floats_to_device(rows, n_all * width);
    module->ops.gate_parts(stream, activation, floats_to_device(gate, n_all), device_rows, n,
                           n_gates, width);
    if (width == 1)
        portable->gated(by, gate, rows, rows, n_all);
    for (size_t i = 0; i < n_all && width > 1; i++) {
        float factor;
        portable->gated(by, gate + i, &one, &factor, 1);
        for (uint32_t k = 0; k < width; k++)
            rows[i * width + k] *= factor;
    }
    check_floats(device_rows, rows, n_all * width, "gate_parts");
    free(gate);
    free(rows);
    release_all();
}

static void test_gate_parts(void **state)
{
    static const enum activation all[] = {ACTIVATION_SIGMOID, ACTIVATION_SOFTPLUS};

    (void)state;
    for (unsigned a = 0; a < 2; a++) {
        check_gate_parts(all[a], 1, 2000, 1);
        check_gate_parts(all[a], 7, 33, 1);
        check_gate_parts(all[a], 1, 64, 128);
        check_gate_parts(all[a], 5, 6, 17);
    }
}

static void check_scale(size_t n, float by, bool in_place)
{
    float *from = random_floats(n, true, n), *to = random_floats(n, false, 3);
    float *device_from = floats_to_device(from, n),
          *device_to = in_place ? device_from : floats_to_device(to, n);

    module->ops.scale(stream, by, device_from, device_to, n);
    for (size_t i = 0; i < n; i++)
        to[i] = from[i] * by;
    check_floats(device_to, to, n, "scale");
    if (!in_place)
        check_floats(device_from, from, n, "what scale reads");
    free(from);
    free(to);
    release_all();
}

static void test_scale(void **state)
{
    (void)state;
    check_scale(1, 0.5f, true);
    check_scale(255, 1, false);
    check_scale(5000, 53.06599664568481f, true);
    check_scale(2816, 1e-3f, false);
}

/* As combine_token in worker/forward/dense_host.c. */
static void check_combine(uint32_t n, uint32_t d, uint32_t n_used, bool bias, bool shared,
                          bool gated)
{
    enum { EXPERTS = 12 };
    uint64_t state = 17;
    uint32_t n_rows = n * n_used;
    float *rows = random_floats((size_t)n_rows * d, true, 1),
          *x = random_floats((size_t)n * d, false, 2);
    float *weights = random_floats(n_rows, false, 3),
          *down_bias = random_floats((size_t)EXPERTS * d, false, 4);
    float *of_shared = random_floats((size_t)n * d, true, 5), *sum = malloc(d * sizeof *sum);
    float *shared_by = random_floats(n, false, 6);
    uint32_t *row_of = malloc(n_rows * sizeof *row_of),
             *selected = malloc(n_rows * sizeof *selected);

    for (uint32_t i = 0; i < n_rows; i++) {
        row_of[i] = n_rows - 1 - i;
        selected[i] = (uint32_t)(random_u64(&state) % EXPERTS);
    }
    float *device_x = floats_to_device(x, (size_t)n * d);
    module->ops.combine(stream, floats_to_device(rows, (size_t)n_rows * d),
                        to_device(row_of, n_rows * sizeof *row_of),
                        floats_to_device(weights, n_rows),
                        to_device(selected, n_rows * sizeof *selected), n_used,
                        bias ? floats_to_device(down_bias, (size_t)EXPERTS * d) : NULL,
                        shared ? floats_to_device(of_shared, (size_t)n * d) : NULL,
                        gated ? floats_to_device(shared_by, n) : NULL, device_x, n, d);
    for (uint32_t t = 0; t < n; t++) {
        memset(sum, 0, d * sizeof *sum);
        for (uint32_t k = 0; k < n_used; k++) {
            uint32_t i = t * n_used + k;
            portable->axpy(weights[i], rows + (size_t)row_of[i] * d, sum, d);
            if (bias)
                portable->axpy(weights[i], down_bias + (size_t)selected[i] * d, sum, d);
        }
        for (uint32_t i = 0; i < d && gated; i++)
            of_shared[(size_t)t * d + i] *= 1.0f / (1.0f + kernels_exp(-shared_by[t]));
        if (shared)
            portable->add(of_shared + (size_t)t * d, sum, d);
        portable->add(sum, x + (size_t)t * d, d);
    }
    check_floats(device_x, x, (size_t)n * d, "combine");
    free(selected);
    free(row_of);
    free(sum);
    free(shared_by);
    free(of_shared);
    free(down_bias);
    free(weights);
    free(x);
    free(rows);
    release_all();
}

static void test_elements(void **state)
{
    (void)state;
    for (int w = 0; w < N_WIDTHS; w++)
        for (int r = 0; r < N_ROW_COUNTS; r++) {
            uint32_t d = widths[w], n = row_counts[r];
            check_add(n, d, w % 2 == 0);
            check_gated((size_t)n * d, r % 2 == 0);
            check_gate_by_sigmoid((size_t)n * d);
        }
}

static void test_combine(void **state)
{
    (void)state;
    for (int w = 0; w < N_WIDTHS; w++)
        for (int r = 0; r < N_ROW_COUNTS; r++)
            check_combine(row_counts[r], widths[w], 1 + (uint32_t)(w + r) % 9, w % 2 == 0,
                          r % 2 == 0, r % 4 == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norm),          cmocka_unit_test(test_elements),
        cmocka_unit_test(test_norm_quantize), cmocka_unit_test(test_gate_parts),
        cmocka_unit_test(test_norm_add),      cmocka_unit_test(test_scale),
        cmocka_unit_test(test_combine),
    };
    return run_group("cuda_rows", tests, open_all);
}
