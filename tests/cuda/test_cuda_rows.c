/* The CUDA module's operations on rows of floats, compared to the bit with the portable kernels. */
#include "tests/unit/kernel_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "on_device.h"

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

static void check_rotate(uint32_t n, uint32_t n_heads, uint32_t dims, bool neox)
{
    size_t head_stride = dims + 3, row_stride = n_heads * head_stride + 7;
    float *heads = random_floats(n * row_stride, n % 2 == 0, n),
          *turns = random_floats(n * dims, false, dims);
    float *device_heads = floats_to_device(heads, n * row_stride);

    module->ops.rotate(stream, device_heads, row_stride, head_stride, n, n_heads,
                       floats_to_device(turns, n * dims), dims, neox);
    for (uint32_t t = 0; t < n; t++)
        for (uint32_t h = 0; h < n_heads; h++)
            rope_apply(heads + t * row_stride + h * head_stride, dims, turns + (size_t)t * dims,
                       neox);
    check_floats(device_heads, heads, n * row_stride, "rotate");
    free(turns);
    free(heads);
    release_all();
}

static void check_scatter(uint32_t n, uint32_t n_parts, uint32_t width)
{
    size_t from_part = width + 3, from_row = n_parts * from_part + 5, to_row = width + 1,
           to_part = n * to_row + 2;
    size_t n_from = n * from_row, n_to = n_parts * to_part;
    float *from = random_floats(n_from, true, n), *to = random_floats(n_to, false, 3);
    float *device_to = floats_to_device(to, n_to);

    module->ops.scatter(stream, floats_to_device(from, n_from), from_row, from_part, device_to,
                        to_row, to_part, n, n_parts, width);
    for (uint32_t t = 0; t < n; t++)
        for (uint32_t p = 0; p < n_parts; p++)
            memcpy(to + t * to_row + p * to_part, from + t * from_row + p * from_part,
                   width * sizeof *to);
    check_floats(device_to, to, n_to, "scatter");
    free(to);
    free(from);
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

static void check_scale(uint32_t n, uint32_t d)
{
    float *rows = random_floats((size_t)n * d, true, n), *by = random_floats(n, false, d);
    float *device_rows = floats_to_device(rows, (size_t)n * d);

    module->ops.scale(stream, floats_to_device(by, n), device_rows, n, d);
    for (uint32_t t = 0; t < n; t++)
        for (uint32_t i = 0; i < d; i++)
            rows[(size_t)t * d + i] *= by[t];
    check_floats(device_rows, rows, (size_t)n * d, "scale");
    free(by);
    free(rows);
    release_all();
}

/* As host_scale_by_sigmoid in worker/forward/dense_host.c. */
static void check_scale_by_sigmoid(uint32_t n, uint32_t d)
{
    float *rows = random_floats((size_t)n * d, true, n), *by = random_floats(n, false, d);

    by[0] = -200;
    by[n / 2] = 90;
    float *device_rows = floats_to_device(rows, (size_t)n * d);
    module->ops.scale_by_sigmoid(stream, floats_to_device(by, n), device_rows, n, d);
    for (uint32_t t = 0; t < n; t++) {
        float scale = 1.0f / (1.0f + kernels_exp(-by[t]));
        for (uint32_t i = 0; i < d; i++)
            rows[(size_t)t * d + i] *= scale;
    }
    check_floats(device_rows, rows, (size_t)n * d, "scale_by_sigmoid");
    free(by);
    free(rows);
    release_all();
}

/* As combine_token in worker/forward/dense_host.c. */
static void check_combine(uint32_t n, uint32_t d, uint32_t n_used, bool bias, bool shared)
{
    enum { EXPERTS = 12 };
    uint64_t state = 17;
    uint32_t n_rows = n * n_used;
    float *rows = random_floats((size_t)n_rows * d, true, 1),
          *x = random_floats((size_t)n * d, false, 2);
    float *weights = random_floats(n_rows, false, 3),
          *down_bias = random_floats((size_t)EXPERTS * d, false, 4);
    float *of_shared = random_floats((size_t)n * d, true, 5), *sum = malloc(d * sizeof *sum);
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
                        shared ? floats_to_device(of_shared, (size_t)n * d) : NULL, device_x, n, d);
    for (uint32_t t = 0; t < n; t++) {
        memset(sum, 0, d * sizeof *sum);
        for (uint32_t k = 0; k < n_used; k++) {
            uint32_t i = t * n_used + k;
            portable->axpy(weights[i], rows + (size_t)row_of[i] * d, sum, d);
            if (bias)
                portable->axpy(weights[i], down_bias + (size_t)selected[i] * d, sum, d);
        }
        if (shared)
            portable->add(of_shared + (size_t)t * d, sum, d);
        portable->add(sum, x + (size_t)t * d, d);
    }
    check_floats(device_x, x, (size_t)n * d, "combine");
    free(selected);
    free(row_of);
    free(sum);
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
            check_scatter(n, 1 + (uint32_t)w % 4, d);
            check_gated((size_t)n * d, r % 2 == 0);
            check_scale(n, d);
            check_scale_by_sigmoid(n, d);
        }
}

static void test_rotate(void **state)
{
    (void)state;
    for (uint32_t dims = 2; dims <= 130; dims += 32)
        for (int r = 0; r < N_ROW_COUNTS; r++) {
            check_rotate(row_counts[r], 1 + dims % 5, dims, true);
            check_rotate(row_counts[r], 7, dims, false);
        }
}

static void test_combine(void **state)
{
    (void)state;
    for (int w = 0; w < N_WIDTHS; w++)
        for (int r = 0; r < N_ROW_COUNTS; r++)
            check_combine(row_counts[r], widths[w], 1 + (uint32_t)(w + r) % 9, w % 2 == 0,
                          r % 2 == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norm),
        cmocka_unit_test(test_elements),
        cmocka_unit_test(test_rotate),
        cmocka_unit_test(test_combine),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
