/* multiply() and quantize(): the vector builds against the portable one to the bit, and the
 * portable one against float64 sums of lib/quant's values. The dense operations stand in
 * test_kernel_ops.c. */
#include "kernels/builds.h"
#include "tests/unit/kernel_cases.h"

#include <float.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#if defined(MOED_HAVE_SIMDE)
extern const struct kernels kernels_avx512_simde, kernels_avx2_vnni_emulated;
#endif

static const struct kernels *portable;
static const struct kernels *builds[8]; /* every other build that runs here */
static int n_builds;

static int find_builds(void **state)
{
    for (const char *const *name = kernels_available(); *name != NULL; name++) {
        assert_true(kernels_select(*name));
        if (strcmp(*name, "portable") == 0)
            portable = kernels_get();
        else
            builds[n_builds++] = kernels_get();
    }
#if defined(MOED_HAVE_SIMDE)
    if (n_builds > 0) { /* they need AVX2 */
        builds[n_builds++] = &kernels_avx512_simde;
        builds[n_builds++] = &kernels_avx2_vnni_emulated;
    }
#endif
    for (int b = 0; b < n_builds; b++)
        fprintf(stderr, "testing build %s\n", builds[b]->name);
    return portable == NULL;
}

/* The same bits, except a NaN's sign and payload. */
static void assert_same_floats(const float *a, const float *b, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++) {
        if (memcmp(&a[i], &b[i], sizeof *a) != 0 && !(isnan(a[i]) && isnan(b[i])))
            fail_msg("%s: element %zu is %a, expected %a", what, i, a[i], b[i]);
    }
}

/* What every block must be, by its x. */
static void check_quantised(const struct inputs_of *in)
{
    uint32_t cols = in->a.cols;
    double bias = 0;

    for (uint32_t n = 0; n < in->a.n_tokens * cols / 16; n++) {
        uint32_t token = n / (cols / 16), col = n % (cols / 16) * 16;
        const float *x = in->x + token * in->a.x_stride + col;
        const int8_t *q = in->a.q + token * ((cols + 63) / 64 * 64) + col;
        float max = 0, d = in->a.d[n];
        int sums[2] = {0, 0};

        for (int c = 0; c < 16; c++) {
            max = fmaxf(max, fabsf(x[c]));
            sums[c % 4 / 2] += q[c];
        }
        assert_int_equal(in->a.minus_sum8[2 * n], -sums[0]);
        assert_int_equal(in->a.minus_sum8[2 * n + 1], -sums[1]);
        assert_true(d == (isinf(1 / (max / 127)) ? 0 : max / 127));
        for (int c = 0; c < 16; c++)
            assert_true(d == 0 ? q[c] == 0 : fabs((double)x[c] / d - q[c]) < 0.5001);

        bias = (double)d * (sums[0] + sums[1]) + (n % 2 == 0 ? 0 : bias);
        if (n % 2 != 0) { /* each term was rounded once at most */
            float size = 16 * 127 * fmaxf(d, in->a.d[n - 1]);
            assert_true(fabs(in->a.bias[n / 2] - bias) <= size * 1.2e-7 + 2e-45);
        }
    }
}

static void test_quantize(void **state)
{
    static const uint32_t col_counts[] = {32, 96, 256, 2048};

    for (size_t i = 0; i < 4; i++)
        for (int kind = 0; kind < N_INPUTS; kind++) {
            uint32_t cols = col_counts[i];
            struct inputs_of p = make_inputs(portable, cols, 3, kind, 11 + i);

            check_quantised(&p);
            for (int b = 0; b < n_builds; b++) {
                struct inputs_of v = make_inputs(builds[b], cols, 3, kind, 11 + i);
                assert_memory_equal(v.a.d, p.a.d, 3 * cols / 16 * sizeof(float));
                assert_memory_equal(v.a.bias, p.a.bias, 3 * cols / 32 * sizeof(float));
                assert_memory_equal(v.a.minus_sum8, p.a.minus_sum8, 3 * cols / 8 * sizeof(int16_t));
                for (uint32_t t = 0; t < 3; t++)
                    assert_memory_equal(v.a.q + t * ((cols + 63) / 64 * 64),
                                        p.a.q + t * ((cols + 63) / 64 * 64), cols);
                free_inputs(&v);
            }
            free_inputs(&p);
        }
}

static void test_quantize_ties_and_faults(void **state)
{
    float x[64] = {127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 3.49f};
    static const int8_t expected[8] = {127, 0, 2, 2, 0, -2, -2, 3};
    _Alignas(TILE_ALIGN) uint8_t memory[256];
    struct activations a;

    x[16] = -254; /* the second block of 16 has its own scale */
    x[17] = 1;
    x[56] = INFINITY; /* the fourth shows the fault, and not as a plausible number */
    for (int b = -1; b < n_builds; b++) {
        const struct kernels *k = b < 0 ? portable : builds[b];

        assert_true(act_bytes(64, 1) <= sizeof memory);
        act_bind(&a, memory, 64, 1, x, 64);
        k->quantize(&a, 0, 1);
        assert_memory_equal(a.q, expected, 8);
        assert_true(a.d[0] == 1);
        assert_true(a.d[1] == 2);
        assert_int_equal(a.q[16], -127);
        assert_int_equal(a.q[17], 0);
        assert_true(a.d[2] == 0);
        assert_true(isnan(a.d[3]));
        assert_true(a.bias[0] == 130 - 254);
        assert_true(isnan(a.bias[1]));
    }
}

static void check_builds_agree(const struct matrix *m, uint32_t n_tokens, enum inputs kind)
{
    struct inputs_of in = make_inputs(portable, m->cols, n_tokens, kind, m->rows + n_tokens);
    size_t stride = m->rows + 3, n = n_tokens * stride;
    float *expected = malloc(n * sizeof *expected), *y = malloc(n * sizeof *y);

    for (int accumulate = 0; accumulate < 2; accumulate++) {
        for (size_t i = 0; i < n; i++)
            expected[i] = (float)i * 0.37f;
        portable->multiply(m, 0, tile_row_count(m->rows), &in.a, NULL, n_tokens, expected, stride,
                           accumulate);
        for (uint32_t t = 0; t < n_tokens; t++) /* nothing beyond the rows was written */
            for (uint32_t r = m->rows; r < stride; r++)
                assert_true(expected[t * stride + r] == (float)(t * stride + r) * 0.37f);
        for (int b = 0; b < n_builds; b++) {
            for (size_t i = 0; i < n; i++)
                y[i] = (float)i * 0.37f;
            builds[b]->multiply(m, 0, tile_row_count(m->rows), &in.a, NULL, n_tokens, y, stride,
                                accumulate);
            assert_same_floats(y, expected, n, builds[b]->name);
        }
    }
    free(y);
    free(expected);
    free_inputs(&in);
}

static void check_type(enum tensor_type type, uint32_t rows, uint32_t cols, uint32_t n_tokens)
{
    for (int kind = 0; kind < N_WEIGHTS; kind++) {
        uint8_t *file = random_rows(type, rows, cols, kind, rows + cols + n_tokens);
        struct matrix m = tiles_of(type, rows, cols, file);

        for (int inputs = 0; inputs < N_INPUTS; inputs++)
            check_builds_agree(&m, n_tokens, inputs);
        free((void *)m.tiles);
        free(file);
    }
}

static void test_builds_agree(void **state)
{
    static const uint32_t token_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 33, 65};

    for (int t = 0; t < N_COMPUTED_TYPES; t++) {
        uint32_t block = tensor_type_info(computed_types[t])->block_values;

        for (size_t i = 0; i < sizeof token_counts / sizeof token_counts[0]; i++) {
            uint32_t n = token_counts[i];

            check_type(computed_types[t], 1 + n * 5 % 37, block == 1 ? 512 : 256, n);
            check_type(computed_types[t], 16, block == 1 ? 64 : block, n);
        }
        check_type(computed_types[t], 49, 2048, 3);
        /* One token: tile rows in four streams, two and one; 157 rows are 4 x 2 and 2 x 1. */
        check_type(computed_types[t], 107, block == 1 ? 300 : 256, 1);
        check_type(computed_types[t], 157, 512, 1);
        check_type(computed_types[t], 40, 1024, 5);
        check_type(computed_types[t], 7, block == 1 ? 333 : block * 5, 2);
        check_type(computed_types[t], 18, block == 1 ? 1537 : block * 9, 1);
    }
}

/* Every number of rows in the last tile row, for one token, some, and a full batch; as the only
 * tile row, and after a whole one. */
static void test_every_row_count(void **state)
{
    static const uint32_t token_counts[] = {1, 2, 8};

    for (int t = 0; t < N_COMPUTED_TYPES; t++) {
        uint32_t block = tensor_type_info(computed_types[t])->block_values;

        for (uint32_t rows = 1; rows <= 16; rows++)
            for (int i = 0; i < 3; i++)
                check_type(computed_types[t], rows + i % 2 * 16, block == 1 ? 64 : block,
                           token_counts[i]);
    }
}

static void test_odd_columns(void **state)
{
    static const enum tensor_type types[] = {TENSOR_F32, TENSOR_F16, TENSOR_BF16};

    for (int t = 0; t < 3; t++)
        for (uint32_t cols = 1; cols < 1100; cols = cols * 2 + 1)
            for (uint32_t n = 1; n < 6; n += 2)
                check_type(types[t], 21, cols, n);
}

/* The independent truth. The tolerance covers the float accumulation of up to 2048 columns and
 * lib/quant's rounding of each weight to float32, whose terms (scale and minimum) may cancel. */
static void test_portable_against_float64(void **state)
{
    enum { ROWS = 37, COLS = 2048, TOKENS = 3 };

    for (int t = 0; t < N_COMPUTED_TYPES; t++) {
        enum tensor_type type = computed_types[t];
        bool quantised = tensor_type_info(type)->block_values > 1;
        uint8_t *file = random_rows(type, ROWS, COLS, WEIGHTS_USUAL, 99 + t);
        struct matrix m = tiles_of(type, ROWS, COLS, file);
        struct inputs_of in = make_inputs(portable, COLS, TOKENS, INPUTS_USUAL, t);
        float y[TOKENS][ROWS], w[COLS];
        double worst = 0;

        portable->multiply(&m, 0, tile_row_count(ROWS), &in.a, NULL, TOKENS, y[0], ROWS, false);
        for (uint32_t r = 0; r < ROWS; r++) {
            case_row(type, r, file + r * quant_row_bytes(type, COLS), w, COLS);
            for (uint32_t i = 0; i < TOKENS; i++) {
                double sum = 0, size = 0;
                for (uint32_t c = 0; c < COLS; c++) {
                    double x = quantised ? (double)in.a.q[i * COLS + c] *
                                               (double)in.a.d[(i * COLS + c) / 16]
                                         : (double)in.x[i * in.a.x_stride + c];
                    sum += w[c] * x;
                    size += fabs(w[c] * x);
                }
                worst = fmax(worst, fabs(sum - y[i][r]) / size);
            }
        }
        fprintf(stderr, "%s: largest error %.2g of the sum of magnitudes\n",
                tensor_type_info(type)->name, worst);
        assert_true(worst < 5e-7);
        free_inputs(&in);
        free((void *)m.tiles);
        free(file);
    }
}

/* MXFP4's scales in every build: each of the 256 exponents, subnormal results and overflow
 * included. */
static void test_every_exponent(void **state)
{
    enum { ROWS = 256, COLS = 32, BLOCK_BYTES = 17 };
    uint8_t *file = random_rows(TENSOR_MXFP4, ROWS, COLS, WEIGHTS_USUAL, 4);
    struct inputs_of in = make_inputs(portable, COLS, 1, INPUTS_USUAL, 9);
    float y[ROWS], w[COLS];

    for (uint32_t r = 0; r < ROWS; r++) {
        memcpy(file + r * BLOCK_BYTES, file, BLOCK_BYTES);
        file[r * BLOCK_BYTES] = (uint8_t)r;
    }
    struct matrix m = tiles_of(TENSOR_MXFP4, ROWS, COLS, file);
    for (int kind = 0; kind < N_INPUTS; kind++)
        check_builds_agree(&m, 1, kind);
    portable->multiply(&m, 0, tile_row_count(ROWS), &in.a, NULL, 1, y, ROWS, false);
    quant_dequantize(TENSOR_MXFP4, file + 128 * BLOCK_BYTES, w, COLS); /* of scale 1 */
    double sum = 0;
    for (int c = 0; c < COLS; c++)
        sum += (double)w[c] * in.a.q[c] * (double)in.a.d[c / 16];
    assert_true(fabs(sum) > 1 && fabs(sum) < 1000); /* no cancellation that hides an error */
    for (int r = 0; r < ROWS; r++) {
        double expected = ldexp(sum, r - 128);
        assert_true(fabs(expected) > FLT_MAX
                        ? isinf(y[r])
                        : fabs(expected - y[r]) <= fabs(expected) * 1e-5 + 1e-45);
    }
    free_inputs(&in);
    free((void *)m.tiles);
    free(file);
}

/* NVFP4's scales in every build: each of the 256 bytes. */
static void test_every_nvfp4_scale(void **state)
{
    enum { ROWS = 256, COLS = 64, BLOCK_BYTES = 36 };
    uint8_t *file = random_rows(TENSOR_NVFP4, ROWS, COLS, WEIGHTS_USUAL, 4);
    struct inputs_of in = make_inputs(portable, COLS, 1, INPUTS_USUAL, 9);
    float y[ROWS], w[COLS];

    for (uint32_t r = 0; r < ROWS; r++) {
        memcpy(file + r * BLOCK_BYTES, file, BLOCK_BYTES);
        memset(file + r * BLOCK_BYTES, (int)r, 4);
    }
    struct matrix m = tiles_of(TENSOR_NVFP4, ROWS, COLS, file);
    for (uint32_t n = 1; n <= 8; n++)
        check_builds_agree(&m, n, INPUTS_USUAL);
    portable->multiply(&m, 0, tile_row_count(ROWS), &in.a, NULL, 1, y, ROWS, false);
    for (int r = 0; r < ROWS; r++) {
        double sum = 0, size = 0;
        case_row(TENSOR_NVFP4, (uint32_t)r, file + r * BLOCK_BYTES, w, COLS);
        for (int c = 0; c < COLS; c++) {
            double term = (double)w[c] * in.a.q[c] * (double)in.a.d[c / 16];
            sum += term;
            size += fabs(term);
        }
        assert_true(fabs(sum - y[r]) <= size * 1e-6);
    }
    free_inputs(&in);
    free((void *)m.tiles);
    free(file);
}

static void check_packed(enum tensor_type type, uint32_t rows, uint32_t cols, uint32_t n_tokens)
{
    uint8_t *file = random_rows(type, rows, cols, WEIGHTS_USUAL, n_tokens);
    struct matrix m = tiles_of(type, rows, cols, file);

    for (int inputs = 0; inputs < (n_tokens < 64 ? N_INPUTS : 1); inputs++)
        check_builds_agree(&m, n_tokens, inputs);
    free((void *)m.tiles);
    free(file);
}

/* Enough tokens and tile rows that a build may pack the activations: whole batches and the rest of
 * one; too few tile rows; batches that wide columns make smaller; columns so many that none can be
 * packed. */
static void test_packed_tokens(void **state)
{
    for (int t = 0; t < N_COMPUTED_TYPES; t++) {
        check_packed(computed_types[t], 70, 256, 7);
        check_packed(computed_types[t], 70, 256, 8);
        check_packed(computed_types[t], 130, 256, 15);
        check_packed(computed_types[t], 49, 512, 21);
        check_packed(computed_types[t], 65, 256, 130);
        check_packed(computed_types[t], 17, 256, 127);
    }
    check_packed(TENSOR_Q8_0, 49, 5376, 30);
    check_packed(TENSOR_IQ2_XS, 49, 5376, 30);
    check_packed(TENSOR_Q8_0, 49, 20736, 9);
    check_packed(TENSOR_IQ2_XS, 49, 20736, 9);
}

/* The tile rows in any division, the tokens in any order and company: the same bits. */
static void test_parts_and_batches(void **state)
{
    enum { ROWS = 70, TOKENS = 13 };
    static const uint32_t lists[][5] = {{12, 0, 3, 3, 7}, {1, 2, 4, 8, 11}, {5, 4, 3, 2, 1}};
    static const uint32_t long_list[] = {12, 0, 3, 3, 7, 1, 2, 4, 8, 11};
    enum { LONG = sizeof long_list / sizeof long_list[0] };

    for (int t = 0; t < N_COMPUTED_TYPES; t++) {
        enum tensor_type type = computed_types[t];
        uint32_t cols = tensor_type_info(type)->block_values == 1 ? 700 : 768;
        uint8_t *file = random_rows(type, ROWS, cols, WEIGHTS_USUAL, 3 + t);
        struct matrix m = tiles_of(type, ROWS, cols, file);
        struct inputs_of in = make_inputs(portable, cols, TOKENS, INPUTS_USUAL, t);
        float all[TOKENS][ROWS], y[TOKENS][ROWS];

        portable->multiply(&m, 0, tile_row_count(ROWS), &in.a, NULL, TOKENS, all[0], ROWS, false);
        for (int b = -1; b < n_builds; b++) {
            const struct kernels *k = b < 0 ? portable : builds[b];

            for (uint32_t i = 0; i < TOKENS; i++) { /* one at a time */
                k->multiply(&m, 0, tile_row_count(ROWS), &in.a, &i, 1, y[i], ROWS, false);
                assert_same_floats(y[i], all[i], ROWS, "a single token");
            }
            for (size_t l = 0; l < sizeof lists / sizeof lists[0]; l++) {
                memset(y, 0, sizeof y);
                k->multiply(&m, 0, 2, &in.a, lists[l], 5, y[0], ROWS, false);
                k->multiply(&m, 2, 1, &in.a, lists[l], 5, y[0], ROWS, false);
                k->multiply(&m, 3, 2, &in.a, lists[l], 5, y[0], ROWS, false);
                for (int i = 0; i < 5; i++)
                    assert_same_floats(y[i], all[lists[l][i]], ROWS, "a list of tokens");
            }
            memset(y, 0, sizeof y);
            k->multiply(&m, 0, 1, &in.a, long_list, LONG, y[0], ROWS, false);
            k->multiply(&m, 1, 4, &in.a, long_list, LONG, y[0], ROWS, false);
            for (int i = 0; i < LONG; i++)
                assert_same_floats(y[i], all[long_list[i]], ROWS, "a long list of tokens");
        }
        free_inputs(&in);
        free((void *)m.tiles);
        free(file);
    }
}

static void test_select(void **state)
{
    const char *const *names = kernels_available();
    size_t n = 0;

    while (names[n] != NULL)
        n++;
    assert_string_equal(names[n - 1], "portable");
    for (size_t i = 0; i < n; i++) {
        assert_true(kernels_select(names[i]));
        assert_string_equal(kernels_get()->name, names[i]);
    }
    assert_false(kernels_select("sse9"));
    assert_string_equal(kernels_get()->name, names[n - 1]); /* a refusal changes nothing */
    assert_true(kernels_select("auto"));
    assert_string_equal(kernels_get()->name, names[0]);
}

static void test_lacking(void **state)
{
    char text[KERNELS_LACKING_BYTES];

    assert_true(kernels_lacking_text(false, false, false, text));
    assert_non_null(strstr(text, "lacks AVX2, FMA and F16C: it computes 45 to 900 times slower"));
    assert_true(text[strlen(text) - 1] == ')'); /* not cut off */
    assert_true(kernels_lacking_text(true, false, false, text));
    assert_non_null(strstr(text, "lacks FMA and F16C: "));
    assert_true(kernels_lacking_text(false, true, true, text));
    assert_non_null(strstr(text, "lacks AVX2: it computes 10 to 80 times slower"));
    assert_false(kernels_lacking_text(true, true, true, text));
#if defined(__x86_64__)
    assert_int_equal(kernels_lacking(text), kernels_available()[1] == NULL);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_select),
        cmocka_unit_test(test_lacking),
        cmocka_unit_test(test_quantize),
        cmocka_unit_test(test_quantize_ties_and_faults),
        cmocka_unit_test(test_builds_agree),
        cmocka_unit_test(test_every_row_count),
        cmocka_unit_test(test_odd_columns),
        cmocka_unit_test(test_every_exponent),
        cmocka_unit_test(test_every_nvfp4_scale),
        cmocka_unit_test(test_portable_against_float64),
        cmocka_unit_test(test_packed_tokens),
        cmocka_unit_test(test_parts_and_batches),
    };
    int failed = cmocka_run_group_tests_name("kernels", tests, find_builds, NULL);

    if (failed || n_builds > 0)
        return failed;
    fprintf(stderr, "skipped: this CPU runs only the portable build\n");
    return 77;
}
