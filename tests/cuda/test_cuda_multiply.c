/* quantize, multiply, multiply_planes and embed of the CUDA module, compared to the bit with the
 * portable kernels. */
#include "tests/unit/kernel_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "activations.h"

/* Activations of `in` on the device, quantised there. */
static struct device_activations activations_of(const struct inputs_of *in, bool quantize)
{
    const struct activations *a = &in->a;
    struct device_activations d;
    float *x = to_device(in->x, a->n_tokens * a->x_stride * sizeof *x);

    module->ops.activations_bind(&d, on_device(module->ops.activations_bytes(a->cols, a->n_tokens)),
                                 a->cols, a->n_tokens, x, a->x_stride, quantize);
    assert_true((d.q != NULL) == quantize);
    if (quantize)
        module->ops.quantize(stream, &d);
    return d;
}

static void test_quantize(void **state)
{
    static const uint32_t col_counts[] = {1, 32, 40, 96, 256, 2048};

    (void)state;
    for (size_t i = 0; i < sizeof col_counts / sizeof *col_counts; i++)
        for (int kind = 0; kind < N_INPUTS; kind++) {
            struct inputs_of in = make_inputs(portable, col_counts[i], 3, kind, 11 + i);
            struct device_activations d = activations_of(&in, true);
            check_quantized(&in.a, &d, true);
            free_inputs(&in);
            release_all();
        }
}

/* Inputs that random values do not contain: ties, blocks of different scales, infinity and NaN. */
static void test_quantize_ties_and_faults(void **state)
{
    struct inputs_of in = make_inputs(portable, 96, 1, INPUTS_USUAL, 1);
    static const float ties[8] = {127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 3.49f};
    static const int8_t expected[8] = {127, 0, 2, 2, 0, -2, -2, 3};
    int8_t q[8];

    (void)state;
    memset(in.x, 0, 96 * sizeof *in.x);
    memcpy(in.x, ties, sizeof ties);
    in.x[16] = -254;
    in.x[17] = 1;
    in.x[56] = INFINITY;
    in.x[64] = 1e-38f; /* 1 / d is infinite */
    in.x[95] = NAN;
    portable->quantize(&in.a, 0, 1);
    struct device_activations d = activations_of(&in, true);
    check_quantized(&in.a, &d, true);
    from_device(q, d.q, sizeof q);
    assert_memory_equal(q, expected, sizeof q);
    free_inputs(&in);
    release_all();
}

/* Adds to the old values of y; the 3 floats after each row stay. */
static void check_product(const struct matrix *m, const struct matrix *on_it, uint32_t n_tokens,
                          enum inputs kind)
{
    struct inputs_of in = make_inputs(portable, m->cols, n_tokens, kind, m->rows + n_tokens);
    struct device_activations a = activations_of(&in, tensor_type_info(m->type)->block_values > 1);
    size_t stride = m->rows + 3, n = n_tokens * stride;
    float *expected = malloc(n * sizeof *expected), *got = malloc(n * sizeof *got);

    for (int accumulate = 0; accumulate < 2; accumulate++) {
        for (size_t i = 0; i < n; i++)
            expected[i] = (float)i * 0.37f;
        float *y = to_device(expected, n * sizeof *y);
        portable->multiply(m, 0, tile_row_count(m->rows), &in.a, NULL, n_tokens, expected, stride,
                           accumulate);
        module->ops.multiply(stream, on_it, &a, y, stride, accumulate);
        from_device(got, y, n * sizeof *y);
        assert_same_floats(got, expected, n, tensor_type_info(m->type)->name);
    }
    free(got);
    free(expected);
    free_inputs(&in);
}

static void check_type(enum tensor_type type, uint32_t rows, uint32_t cols, uint32_t n_tokens)
{
    for (int kind = 0; kind < N_WEIGHTS; kind++) {
        uint8_t *file = random_rows(type, rows, cols, kind, rows + cols + n_tokens);
        struct matrix m = tiles_of(type, rows, cols, file), on_it = m;

        on_it.tiles = to_device(m.tiles, tile_matrix_bytes(type, rows, cols));
        for (int inputs = 0; inputs < N_INPUTS; inputs++)
            check_product(&m, &on_it, n_tokens, inputs);
        release_all();
        free((void *)m.tiles);
        free(file);
    }
}

static void test_multiply(void **state)
{
    static const uint32_t token_counts[] = {1, 2, 3, 7, 8, 9, 17};

    (void)state;
    for (int t = 0; t < N_COMPUTED_TYPES; t++) {
        enum tensor_type type = computed_types[t];
        uint32_t block = tensor_type_info(type)->block_values;

        for (size_t i = 0; i < sizeof token_counts / sizeof *token_counts; i++) {
            uint32_t n = token_counts[i];
            check_type(type, 1 + n * 5 % 37, block == 1 ? 512 : 256, n);
            check_type(type, 16, block == 1 ? 64 : block, n);
        }
        check_type(type, 49, 2048, 3);
        check_type(type, 157, 512, 1);
        check_type(type, 40, 1024, 5);
        check_type(type, 7, block == 1 ? 333 : block * 5, 2);
        check_type(type, 18, block == 1 ? 1537 : block * 9, 1);
    }
}

/* Float types: any number of columns, and rows of x that are not aligned. */
static void test_odd_columns(void **state)
{
    static const enum tensor_type types[] = {TENSOR_F32, TENSOR_F16, TENSOR_BF16};

    (void)state;
    for (int t = 0; t < 3; t++)
        for (uint32_t cols = 1; cols < 1100; cols = cols * 2 + 1)
            for (uint32_t n = 1; n < 4; n += 2)
                check_type(types[t], 21, cols, n);
}

/* More groups of 256 columns than half-warps, and more than fit into shared memory with 8 tokens; a
 * block of threads with several tile rows, for every number of groups that leads to it. */
static void test_many_and_few_groups(void **state)
{
    (void)state;
    check_type(TENSOR_Q4_0, 17, 256 * 40 + 96, 2);
    check_type(TENSOR_BF16, 5, 256 * 130, 9);
    for (uint32_t groups = 1; groups <= 9; groups++) {
        check_type(TENSOR_Q8_0, 16 * 9 + 1, 256 * groups - 64, 1);
        check_type(TENSOR_Q6_K, 16 * 3, 256 * groups, 9);
    }
}

/* Products for tensor cores: tokens and rows that leave a part of their tiles empty, or need
 * several; halves of stages and of 256 columns. The simulated device's 16 multiprocessors are busy
 * enough. */
static void test_many_tokens(void **state)
{
    static const struct {
        uint32_t rows, blocks, n_tokens;
    } shapes[] = {{257, 9, 32}, {130, 8, 64}, {65, 3, 81}, {66, 1, 130}, {322, 5, 33}};
    enum { SHAPES = sizeof shapes / sizeof *shapes };

    (void)state;
    for (int i = 0; i < SHAPES * N_COMPUTED_TYPES; i++) {
        enum tensor_type type = computed_types[i / SHAPES];
        uint32_t block = tensor_type_info(type)->block_values, blocks = shapes[i % SHAPES].blocks;
        uint32_t rows = shapes[i % SHAPES].rows, n = shapes[i % SHAPES].n_tokens;
        uint32_t cols = block == 256 ? (blocks + 7) / 8 * 256 : blocks * block;
        if (block == 1 || (type != TENSOR_Q8_0 && i % SHAPES != i / SHAPES % SHAPES))
            continue;
        uint8_t *file = random_rows(type, rows, cols, i % N_WEIGHTS, rows + n);
        struct matrix m = tiles_of(type, rows, cols, file), on_it = m;
        on_it.tiles = to_device(m.tiles, tile_matrix_bytes(type, rows, cols));
        check_product(&m, &on_it, n, i % N_INPUTS);
        check_product(&m, &on_it, n, INPUTS_USUAL);
        release_all();
        free((void *)m.tiles);
        free(file);
    }
}

static void test_every_exponent(void **state)
{
    enum { ROWS = 256, COLS = 32, BLOCK_BYTES = 17 };
    uint8_t *file = random_rows(TENSOR_MXFP4, ROWS, COLS, WEIGHTS_USUAL, 4);

    (void)state;
    for (uint32_t r = 0; r < ROWS; r++) {
        memcpy(file + r * BLOCK_BYTES, file, BLOCK_BYTES);
        file[r * BLOCK_BYTES] = (uint8_t)r;
    }
    struct matrix m = tiles_of(TENSOR_MXFP4, ROWS, COLS, file), on_it = m;
    on_it.tiles = to_device(m.tiles, tile_matrix_bytes(m.type, ROWS, COLS));
    for (int kind = 0; kind < N_INPUTS; kind++)
        check_product(&m, &on_it, 1, kind);
    release_all();
    free((void *)m.tiles);
    free(file);
}

struct several {
    enum tensor_type type;
    uint32_t rows;
    bool accumulate, biased;
};

/* Products of one input, some of them in one launch, as each by itself. */
static void check_several(const struct several *of, unsigned n_of, uint32_t cols, uint32_t n_tokens)
{
    enum { MOST = 6 };
    struct inputs_of in = make_inputs(portable, cols, n_tokens, INPUTS_USUAL, cols + n_tokens);
    struct device_activations a = activations_of(&in, true);
    struct device_product products[MOST];
    struct matrix there[MOST];
    float *expected[MOST], *got = malloc((size_t)n_tokens * 1000 * sizeof *got);
    uint64_t state = 9;

    assert_true(n_of <= MOST);
    for (unsigned i = 0; i < n_of; i++) {
        uint32_t rows = of[i].rows, stride = rows + i;
        size_t n = (size_t)n_tokens * stride;
        uint8_t *file = random_rows(of[i].type, rows, cols, WEIGHTS_USUAL, i + 1);
        struct matrix m = tiles_of(of[i].type, rows, cols, file);
        float *bias = malloc(rows * sizeof *bias);
        expected[i] = malloc(n * sizeof(float));
        for (size_t k = 0; k < n; k++)
            expected[i][k] = random_float(&state);
        for (uint32_t k = 0; k < rows; k++)
            bias[k] = random_float(&state);
        there[i] = m;
        there[i].tiles = to_device(m.tiles, tile_matrix_bytes(m.type, rows, cols));
        products[i] = (struct device_product){
            &there[i], to_device(expected[i], n * sizeof(float)), stride, of[i].accumulate,
            of[i].biased ? to_device(bias, rows * sizeof *bias) : NULL};
        portable->multiply(&m, 0, tile_row_count(rows), &in.a, NULL, n_tokens, expected[i], stride,
                           of[i].accumulate);
        for (uint32_t t = 0; t < n_tokens && of[i].biased; t++)
            portable->add(bias, expected[i] + (size_t)t * stride, rows);
        free(bias);
        free((void *)m.tiles);
        free(file);
    }
    module->ops.multiply_several(stream, products, n_of, &a);
    for (unsigned i = 0; i < n_of; i++) {
        size_t n = (size_t)n_tokens * products[i].y_stride;
        from_device(got, products[i].y, n * sizeof *got);
        assert_same_floats(got, expected[i], n, tensor_type_info(of[i].type)->name);
        free(expected[i]);
    }
    free(got);
    free_inputs(&in);
    release_all();
}

static void test_several(void **state)
{
    /* q, k, v as in files; more than a set holds; types that are in none; tensor cores for one */
    static const struct several usual[] = {{TENSOR_Q4_K, 320, false, false},
                                           {TENSOR_Q4_K, 48, false, true},
                                           {TENSOR_Q6_K, 37, false, false}};
    static const struct several many[] = {
        {TENSOR_Q8_0, 16, false, true},  {TENSOR_Q3_K, 33, true, true},
        {TENSOR_Q5_K, 100, true, false}, {TENSOR_Q6_K, 17, false, true},
        {TENSOR_Q4_K, 70, false, false}, {TENSOR_Q8_0, 1, true, false}};
    static const struct several others[] = {{TENSOR_IQ3_S, 50, false, true},
                                            {TENSOR_Q8_0, 20, true, false},
                                            {TENSOR_F32, 30, false, true},
                                            {TENSOR_Q2_K, 40, false, false}};
    static const struct several wide[] = {{TENSOR_Q4_K, 640, true, true},
                                          {TENSOR_Q6_K, 20, false, true},
                                          {TENSOR_Q8_0, 30, false, false}};
    static const uint32_t token_counts[] = {1, 3, 8, 9};

    (void)state;
    for (int i = 0; i < 4; i++) {
        check_several(usual, 3, 2048, token_counts[i]);
        check_several(many, 6, 512, token_counts[i]);
        check_several(others, 4, 256, token_counts[i]);
    }
    check_several(wide, 3, 512, 40);
}

/* act(gate x) * (up x), then quantised: to the bit what the portable kernels make of it. */
static void check_gated(enum tensor_type gate, enum tensor_type up, uint32_t rows, uint32_t cols,
                        uint32_t n, bool quantize)
{
    const struct gating gating = {ACTIVATION_SILU, n > 1 ? 0.5f : 0};
    size_t values = (size_t)n * rows;
    uint8_t *files[2] = {random_rows(gate, rows, cols, WEIGHTS_USUAL, 5),
                         random_rows(up, rows, cols, WEIGHTS_USUAL, 6)};
    struct matrix m[2] = {tiles_of(gate, rows, cols, files[0]), tiles_of(up, rows, cols, files[1])},
                  there[2];
    struct inputs_of in = make_inputs(portable, cols, n, INPUTS_USUAL, n);
    struct device_activations a = activations_of(&in, true), hidden;
    float *h = malloc(2 * values * sizeof *h), *got = malloc(values * sizeof *got);

    multiply_factors(&m[1], 1.7f);
    for (int i = 0; i < 2; i++) {
        there[i] = m[i];
        there[i].tiles = to_device(m[i].tiles, tile_matrix_bytes(m[i].type, rows, cols));
        portable->multiply(&m[i], 0, tile_row_count(rows), &in.a, NULL, n, h + i * values, rows,
                           false);
    }
    portable->gated(gating, h, h + values, h, values);
    module->ops.activations_bind(&hidden, on_device(module->ops.activations_bytes(rows, n)), rows,
                                 n, on_device(values * sizeof *h), rows, quantize);
    module->ops.multiply_gated(stream, &there[0], &there[1], &a,
                               (struct device_gating){gating.activation, gating.limit}, &hidden,
                               on_device(values * sizeof *h));
    if (quantize) {
        check_activations(portable, &hidden, h, rows);
    } else {
        from_device(got, hidden.x, values * sizeof *got);
        assert_same_floats(got, h, values, "gated products");
    }
    for (int i = 0; i < 2; i++) {
        free((void *)m[i].tiles);
        free(files[i]);
    }
    free(got);
    free(h);
    free_inputs(&in);
    release_all();
}

static void test_gated(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 9; n += 4)
        for (int quantize = 0; quantize < 2; quantize++) {
            check_gated(TENSOR_Q4_K, TENSOR_Q4_K, 256, 512, n, quantize);
            check_gated(TENSOR_Q8_0, TENSOR_Q8_0, 96, 2048, n, quantize);
            check_gated(TENSOR_F32, TENSOR_F32, 32, 96, n, quantize);
            check_gated(TENSOR_Q4_K, TENSOR_Q6_K, 64, 256, n, quantize);
            check_gated(TENSOR_NVFP4, TENSOR_NVFP4, 96, 576, n, quantize);
            check_gated(TENSOR_NVFP4, TENSOR_Q8_0, 64, 256, n, quantize);
        }
    check_gated(TENSOR_NVFP4, TENSOR_NVFP4, 640, 256, 40, true);
    check_gated(TENSOR_Q4_K, TENSOR_Q4_K, 640, 256, 40, true); /* tensor cores */
    check_gated(TENSOR_Q8_0, TENSOR_Q8_0, 40, 64, 2, false);   /* a part of a tile row */
}

/* A product of values whose biases are not there: it makes them. */
static void test_no_biases(void **state)
{
    static const enum tensor_type types[] = {TENSOR_Q4_K, TENSOR_Q5_K, TENSOR_Q4_1, TENSOR_Q2_K,
                                             TENSOR_Q8_0};
    enum { ROWS = 21, COLS = 512, STRIDE = ROWS + 2 };

    (void)state;
    for (int t = 0; t < 5; t++)
        for (uint32_t n = 1; n <= 40; n += 13) {
            uint8_t *file = random_rows(types[t], ROWS, COLS, WEIGHTS_USUAL, n);
            struct matrix m = tiles_of(types[t], ROWS, COLS, file), there = m;
            struct inputs_of in = make_inputs(portable, COLS, n, INPUTS_USUAL, n);
            struct device_activations a = activations_of(&in, true);
            float expected[40 * STRIDE] = {0}, got[40 * STRIDE];
            float *y = to_device(expected, n * STRIDE * sizeof *y);
            there.tiles = to_device(m.tiles, tile_matrix_bytes(types[t], ROWS, COLS));
            module->fill(stream, a.bias, 0xff, n * COLS / 32 * sizeof(float));
            a.bias = NULL;
            portable->multiply(&m, 0, tile_row_count(ROWS), &in.a, NULL, n, expected, STRIDE,
                               false);
            module->ops.multiply(stream, &there, &a, y, STRIDE, false);
            from_device(got, y, n * STRIDE * sizeof *y);
            assert_same_floats(got, expected, n * STRIDE, tensor_type_info(types[t])->name);
            free((void *)m.tiles);
            free(file);
            free_inputs(&in);
            release_all();
        }
}

/* Each plane multiplies its own columns of every row, as separate products would. */
static void check_planes(enum tensor_type type, uint32_t n)
{
    enum { PLANES = 3, ROWS = 37, GAP = 4 };
    uint32_t cols = tensor_type_info(type)->block_values == 1 ? 300 : 256;
    uint8_t *file = random_rows(type, PLANES * 48, cols, WEIGHTS_USUAL, 7 + n);
    size_t plane_bytes = tile_matrix_bytes(type, ROWS, cols),
           file_plane = 48 * quant_row_bytes(type, cols);
    size_t in_plane = cols + GAP, in_stride = PLANES * in_plane, out_stride = PLANES * ROWS + 5;
    uint8_t *tiles = malloc(PLANES * plane_bytes);
    struct inputs_of in = make_inputs(portable, (uint32_t)in_stride, n, INPUTS_USUAL, n);
    float *expected = calloc(n * out_stride, sizeof *expected),
          *got = malloc(n * out_stride * sizeof *got);
    float *y = to_device(expected, n * out_stride * sizeof *y);
    float *x = to_device(in.x, n * in.a.x_stride * sizeof *x);
    void *scratch = on_device(module->ops.activations_bytes(cols, n * PLANES));

    for (uint32_t i = 0; i < PLANES; i++) {
        struct matrix m = tiles_of(type, ROWS, cols, file + i * file_plane);
        multiply_factors(&m, 1 + (float)i / 4);
        void *memory = aligned_alloc(TILE_ALIGN, act_bytes(cols, n));
        struct activations a;

        act_bind(&a, memory, cols, n, in.x + i * in_plane, in.a.x_stride);
        portable->quantize(&a, 0, n);
        portable->multiply(&m, 0, tile_row_count(ROWS), &a, NULL, n, expected + i * ROWS,
                           out_stride, false);
        memcpy(tiles + i * plane_bytes, m.tiles, plane_bytes);
        free(memory);
        free((void *)m.tiles);
    }
    struct matrix m = {type, ROWS, cols, to_device(tiles, PLANES * plane_bytes)};
    module->ops.multiply_planes(stream, &m, plane_bytes, PLANES, n, x, in.a.x_stride, in_plane, y,
                                out_stride, ROWS, scratch);
    from_device(got, y, n * out_stride * sizeof *y);
    assert_same_floats(got, expected, n * out_stride, tensor_type_info(type)->name);
    release_all();
    free(tiles);
    free(expected);
    free(got);
    free_inputs(&in);
    free(file);
}

static void test_planes(void **state)
{
    static const uint32_t token_counts[] = {1, 3, 10};

    (void)state;
    for (int t = 0; t < N_COMPUTED_TYPES; t++)
        for (int i = 0; i < 3; i++)
            check_planes(computed_types[t], token_counts[i]);
}

static void test_embed(void **state)
{
    enum { ROWS = 35 };
    static const uint32_t tokens[] = {34, 0, 16, 15, 0, 33};
    enum { N = sizeof tokens / sizeof *tokens };

    (void)state;
    for (int t = 0; t < N_COMPUTED_TYPES; t++)
        for (int kind = 0; kind < N_WEIGHTS; kind++) {
            enum tensor_type type = computed_types[t];
            uint32_t cols = tensor_type_info(type)->block_values == 1 ? 333 : 768;
            uint8_t *file = random_rows(type, ROWS, cols, kind, 5 + t);
            struct matrix m = tiles_of(type, ROWS, cols, file), on_it = m;
            float *expected = malloc(cols * sizeof *expected),
                  *got = malloc(N * cols * sizeof *got);
            float *out = on_device(N * cols * sizeof *out);

            on_it.tiles = to_device(m.tiles, tile_matrix_bytes(type, ROWS, cols));
            module->ops.embed(stream, &on_it, tokens, N, out);
            from_device(got, out, N * cols * sizeof *got);
            for (uint32_t i = 0; i < N; i++) {
                tile_unpack_row(&m, tokens[i], expected);
                assert_same_floats(got + i * cols, expected, cols, tensor_type_info(type)->name);
            }
            release_all();
            free(got);
            free(expected);
            free((void *)m.tiles);
            free(file);
        }
}

/* No rows, no tokens: nothing is written, nothing fails. */
static void test_nothing_to_do(void **state)
{
    struct inputs_of in = make_inputs(portable, 256, 1, INPUTS_USUAL, 3);
    struct device_activations a = activations_of(&in, true);
    float y = 5, *on_it = to_device(&y, sizeof y);
    struct matrix m = {TENSOR_Q8_0, 16, 256, on_device(tile_matrix_bytes(TENSOR_Q8_0, 16, 256))};

    (void)state;
    a.n_tokens = 0;
    module->ops.quantize(stream, &a);
    module->ops.multiply(stream, &m, &a, on_it, 16, false);
    module->ops.multiply_planes(stream, &m, 0, 0, 0, a.x, 256, 256, on_it, 16, 16, NULL);
    module->ops.embed(stream, &m, NULL, 0, on_it);
    from_device(&y, on_it, sizeof y);
    assert_true(y == 5);
    free_inputs(&in);
    release_all();
}

/* A product whose sums do not fit into shared memory is an error of the device; the test opens
 * another device for it. */
static void test_too_many_columns(void **state)
{
    enum { COLS = 100000 };
    struct matrix m = {TENSOR_BF16, 16, COLS, on_device(tile_matrix_bytes(TENSOR_BF16, 16, COLS))};
    struct device_activations a;
    struct device_stream *s;
    struct device *other;
    struct error e;

    (void)state;
    check_code(module->open(0, DEVICE_COMPUTES, &other, &e), &e);
    check_code(module->stream_new(other, &s, &e), &e);
    module->ops.activations_bind(&a, NULL, COLS, 1, on_device(COLS * sizeof(float)), COLS, false);
    module->ops.multiply(s, &m, &a, on_device(16 * sizeof(float)), 16, false);
    assert_int_not_equal(module->finish(s, &e), ERROR_OK);
    assert_non_null(strstr(e.text, "too many columns"));
    module->stream_free(s);
    module->close(other);
    release_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quantize),       cmocka_unit_test(test_quantize_ties_and_faults),
        cmocka_unit_test(test_multiply),       cmocka_unit_test(test_odd_columns),
        cmocka_unit_test(test_every_exponent), cmocka_unit_test(test_many_and_few_groups),
        cmocka_unit_test(test_planes),         cmocka_unit_test(test_embed),
        cmocka_unit_test(test_nothing_to_do),  cmocka_unit_test(test_too_many_columns),
        cmocka_unit_test(test_many_tokens),    cmocka_unit_test(test_several),
        cmocka_unit_test(test_gated),          cmocka_unit_test(test_no_biases),
    };
    return run_group("cuda_multiply", tests, open_all);
}
