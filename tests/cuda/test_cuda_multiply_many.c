/* multiply_many of the CUDA module, compared with products in double.
 *
 * The error bound of one sum over k columns of w x. An operand with p bits is off by at most 2^-p
 * of itself, or by half the distance of the smallest numbers: 2^-25 for FP16 (11 bits), 2^-134 for
 * BF16 (8 bits). x in FP16 is scaled so that its largest magnitude is at least 2^14: 2^-25 there is
 * at most 2^-39 of that magnitude here. A product of two operands is exact in float32. Each of the
 * k additions is off by at most 2^-23 of the magnitudes' sum (half of that would do, but tensor
 * cores truncate). alpha, which is exact, and the addition to y round once each. For underflow and
 * flushed values the bound adds the least normal float32 of each column. */
#include "tests/unit/kernel_cases.h"

#include <float.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <sys/wait.h>
#include <unistd.h>

#include "on_device.h"

struct rounding {
    double relative;    /* of an operand's value */
    double w_least;     /* and of a weight at least */
    double x_least;     /* and of a value of x at least: relative to x's largest magnitude */
    double x_least_own; /* the same, absolute */
    double most;        /* weights beyond it become it */
};

/* The operands that cuBLAS takes on the device under test. */
static struct device_blas blas;

static struct rounding rounding_of(enum tensor_type type)
{
    if (type == TENSOR_F32 || (type == TENSOR_BF16 && !blas.bf16))
        return (struct rounding){0, 0, 0, 0, INFINITY};
    if (type == TENSOR_BF16)
        return (struct rounding){ldexp(1, -8), 0, 0, ldexp(1, -134), INFINITY};
    return (struct rounding){ldexp(1, -11), ldexp(1, -25), ldexp(1, -39), FLT_TRUE_MIN, 65504};
}

static double clamp(double w, double most)
{
    return w > most ? most : w < -most ? -most : w;
}

/* A finished product and its inputs. */
struct done {
    const struct matrix *m; /* in host memory */
    const float *x;
    size_t x_stride;
    uint32_t n;
    double x_most; /* of |x| */
};

static double largest_of(const float *x, size_t stride, uint32_t cols, uint32_t n)
{
    double most = 0;
    for (uint32_t t = 0; t < n; t++)
        for (uint32_t c = 0; c < cols; c++)
            most = fmax(most, fabs(x[t * stride + c]));
    return most;
}

/* One element: its exact value added to `on`, and the error bound. */
static void check_element(const struct done *p, const float *w, const float *x, double on,
                          float got)
{
    struct rounding r = rounding_of(p->m->type);
    double sum = on, rounded = 0, size = 0;

    for (uint32_t c = 0; c < p->m->cols; c++) {
        double wc = clamp(w[c], r.most), wa = fabs(wc), xa = fabs(x[c]);
        double dw = p->m->type == TENSOR_BF16 || p->m->type == TENSOR_F16
                        ? 0
                        : fmax(wa * r.relative, r.w_least);
        double dx = fmax(fmax(xa * r.relative, p->x_most * r.x_least), r.x_least_own);

        sum += wc * x[c];
        rounded += dw * xa + dx * wa + dw * dx;
        size += (wa + dw) * (xa + dx);
    }
    double bound = rounded + (size * (p->m->cols + 1) + fabs(on)) * ldexp(1, -23) +
                   p->m->cols * (double)FLT_MIN;
    if (!(fabs(got - sum) <= bound))
        fail_msg("%s, %u x %u, %u columns of x: %g, expected %g within %g",
                 tensor_type_info(p->m->type)->name, p->m->rows, p->m->cols, p->n, got, sum, bound);
}

static float before(size_t i)
{
    return (float)(i % 97) * 0.37f - 12;
}

/* got [n][stride]: rows of y, and 3 floats after each that must not be written. */
static void check_rows(const struct done *p, bool accumulate, const float *got, size_t stride)
{
    float *w = malloc(p->m->cols * sizeof *w);

    for (uint32_t r = 0; r < p->m->rows; r++) {
        tile_unpack_row(p->m, r, w);
        for (uint32_t t = 0; t < p->n; t++) {
            size_t i = t * stride + r;
            check_element(p, w, p->x + t * p->x_stride, accumulate ? before(i) : 0, got[i]);
        }
    }
    for (uint32_t t = 0; t < p->n; t++)
        for (size_t i = t * stride + p->m->rows; i < (t + 1) * stride; i++)
            assert_true(got[i] == before(i));
    free(w);
}

static void check_product(const struct matrix *m, const struct matrix *on_it, uint32_t n,
                          const float *x, size_t x_stride)
{
    struct done p = {m, x, x_stride, n, largest_of(x, x_stride, m->cols, n)};
    size_t stride = m->rows + 3, all = n * stride;
    float *y = malloc(all * sizeof *y), *own_y, *own_x = to_device(x, n * x_stride * sizeof *x);
    void *scratch = on_device(module->ops.multiply_many_scratch_bytes(m, 1, n));

    for (int accumulate = 0; accumulate < 2; accumulate++) {
        for (size_t i = 0; i < all; i++)
            y[i] = before(i);
        own_y = to_device(y, all * sizeof *y);
        module->ops.multiply_many(stream, on_it, own_x, x_stride, n, n, own_y, stride, accumulate,
                                  scratch);
        from_device(y, own_y, all * sizeof *y);
        check_rows(&p, accumulate, y, stride);
    }
    free(y);
}

static void check_weights(enum tensor_type type, uint32_t rows, uint32_t cols, uint32_t n,
                          enum weights kind, int most_inputs)
{
    uint8_t *file = random_rows(type, rows, cols, kind, rows + cols + n);
    struct matrix m = tiles_of(type, rows, cols, file), on_it = m;

    on_it.tiles = to_device(m.tiles, tile_matrix_bytes(type, rows, cols));
    for (int inputs = 0; inputs < most_inputs; inputs++) {
        struct inputs_of in = make_inputs(portable, cols, n, inputs, rows + n);
        check_product(&m, &on_it, n, in.x, in.a.x_stride);
        free_inputs(&in);
    }
    release_all();
    free((void *)m.tiles);
    free(file);
}

static void check_type(enum tensor_type type, uint32_t rows, uint32_t cols, uint32_t n)
{
    for (int kind = 0; kind < N_WEIGHTS; kind++)
        check_weights(type, rows, cols, n, kind, N_INPUTS);
}

static void test_every_type(void **state)
{
    (void)state;
    for (int t = 0; t < N_COMPUTED_TYPES; t++) {
        uint32_t block = tensor_type_info(computed_types[t])->block_values;
        check_type(computed_types[t], 49, block == 256 ? 512 : block == 64 ? 384 : 352, 33);
        check_type(computed_types[t], 16, block == 1 ? 8 : block, 5);
    }
}

/* Columns that are no multiple of the operands' alignment; unaligned rows of x; one row, one
 * column. */
static void test_odd_shapes(void **state)
{
    static const enum tensor_type types[] = {TENSOR_F32, TENSOR_F16, TENSOR_BF16};

    (void)state;
    for (int t = 0; t < 3; t++) {
        for (uint32_t cols = 1; cols < 600; cols = cols * 2 + 1)
            check_weights(types[t], 21, cols, 3, WEIGHTS_USUAL, N_INPUTS);
        check_weights(types[t], 1, 257, 40, WEIGHTS_USUAL, N_INPUTS);
    }
}

/* Rows of two slices and a part; operands of four and of two bytes. */
static void test_chunks(void **state)
{
    (void)state;
    check_weights(TENSOR_Q4_0, 2 * 8192 + 35, 2048, 1, WEIGHTS_USUAL, 1);
    check_weights(TENSOR_F32, 2 * 8192 + 35, 1024, 1, WEIGHTS_USUAL, 1);
}

/* ---- Groups ---- */

enum { GROUP = 40, GROUPS_ROWS = 35, GROUPS_COLS = 256, GROUPS_N = 2 * GROUP + 33, PLANES = 2 };

/* Each group of a product has the bits of a product of its own, whatever the other groups have:
 * the first one's values are small, the last one's large. */
static void check_groups(enum tensor_type type)
{
    enum { X = PLANES * GROUPS_COLS, Y = PLANES * GROUPS_ROWS };
    static float x[GROUPS_N][X], y[2][GROUPS_N][Y];
    size_t plane = tile_matrix_bytes(type, GROUPS_ROWS, GROUPS_COLS);
    uint8_t *tiles = malloc(PLANES * plane);
    uint64_t seed = 7;
    for (uint32_t p = 0; p < PLANES; p++) {
        uint8_t *file = random_rows(type, GROUPS_ROWS, GROUPS_COLS, WEIGHTS_USUAL, 3 + p);
        struct matrix m = tiles_of(type, GROUPS_ROWS, GROUPS_COLS, file);
        memcpy(tiles + p * plane, m.tiles, plane);
        free((void *)m.tiles);
        free(file);
    }
    for (uint32_t t = 0; t < GROUPS_N; t++)
        for (uint32_t i = 0; i < X; i++)
            x[t][i] = ldexpf(random_float(&seed), (int)(t / GROUP) * 9 - 7);
    struct matrix m = {type, GROUPS_ROWS, GROUPS_COLS, to_device(tiles, PLANES * plane)};
    const float *own_x = to_device(x, sizeof x);
    void *scratch = on_device(module->ops.multiply_many_scratch_bytes(&m, PLANES, GROUPS_N));
    for (int planes = 0; planes < 2; planes++) {
        float *together = to_device(y[0], sizeof y[0]), *alone = to_device(y[0], sizeof y[0]);
        const struct device_ops *ops = &module->ops;
        if (planes)
            ops->multiply_many_planes(stream, &m, plane, PLANES, GROUPS_N, GROUP, own_x, X,
                                      GROUPS_COLS, together, Y, GROUPS_ROWS, scratch);
        else
            ops->multiply_many(stream, &m, own_x, X, GROUPS_N, GROUP, together, Y, true, scratch);
        for (uint32_t first = 0; first < GROUPS_N; first += GROUP) {
            uint32_t of = GROUPS_N - first < GROUP ? GROUPS_N - first : GROUP;
            float *to = alone + first * Y;
            const float *from = own_x + first * X;
            if (planes)
                ops->multiply_many_planes(stream, &m, plane, PLANES, of, of, from, X, GROUPS_COLS,
                                          to, Y, GROUPS_ROWS, scratch);
            else
                ops->multiply_many(stream, &m, from, X, of, of, to, Y, true, scratch);
        }
        from_device(y[0], together, sizeof y[0]);
        from_device(y[1], alone, sizeof y[1]);
        assert_memory_equal(y[0], y[1], sizeof y[0]);
        memset(y, 0, sizeof y);
    }
    release_all();
    free(tiles);
}

static void test_groups(void **state)
{
    (void)state;
    check_groups(TENSOR_F32);
    check_groups(TENSOR_BF16);
    check_groups(TENSOR_F16);
    check_groups(TENSOR_Q4_K);
}

/* ---- Planes ---- */

/* n_planes different matrices, each with its part of every row of x; the parts of x and y have
 * gaps. */
static void check_planes(enum tensor_type type, uint32_t n_planes, uint32_t rows, uint32_t cols,
                         uint32_t n)
{
    size_t in_plane = cols + 5, in_stride = n_planes * in_plane + 2,
           plane = tile_matrix_bytes(type, rows, cols);
    size_t out_plane = rows + 3, out_stride = n_planes * out_plane + 1, all = n * out_stride;
    uint8_t *tiles = malloc(n_planes * plane);
    float *x = malloc(n * in_stride * sizeof *x), *y = malloc(all * sizeof *y);
    float *one = malloc(n * out_plane * sizeof *one); /* of a plane */
    uint64_t seed = rows + cols;

    for (size_t i = 0; i < n * in_stride; i++) /* planes with magnitudes far apart */
        x[i] = ldexpf(random_float(&seed), (int)(i % in_stride / in_plane) % 5 * 3);
    for (uint32_t p = 0; p < n_planes; p++) {
        uint8_t *file = random_rows(type, rows, cols, WEIGHTS_USUAL, rows + cols + p);
        struct matrix m = tiles_of(type, rows, cols, file);
        memcpy(tiles + p * plane, m.tiles, plane);
        free((void *)m.tiles);
        free(file);
    }
    for (size_t i = 0; i < all; i++)
        y[i] = before(i);
    struct matrix first = {type, rows, cols, to_device(tiles, n_planes * plane)};
    float *own_y = to_device(y, all * sizeof *y), *own_x = to_device(x, n * in_stride * sizeof *x);
    module->ops.multiply_many_planes(
        stream, &first, plane, n_planes, n, n, own_x, in_stride, in_plane, own_y, out_stride,
        out_plane, on_device(module->ops.multiply_many_scratch_bytes(&first, n_planes, n)));
    from_device(y, own_y, all * sizeof *y);

    float x_most = largest_of(x, in_stride, (uint32_t)in_stride, n);
    for (uint32_t p = 0; p < n_planes; p++) {
        struct matrix m = {type, rows, cols, tiles + p * plane};
        struct done done = {&m, x + p * in_plane, in_stride, n, x_most};
        for (uint32_t t = 0; t < n; t++) {
            memcpy(one + t * out_plane, y + t * out_stride + p * out_plane, rows * sizeof *one);
            for (size_t i = rows; i < out_plane; i++) {
                one[t * out_plane + i] = before(t * out_plane + i);
                assert_true(y[t * out_stride + p * out_plane + i] ==
                            before(t * out_stride + p * out_plane + i));
            }
        }
        check_rows(&done, false, one, out_plane);
    }
    release_all();
    free(one);
    free(y);
    free(x);
    free(tiles);
}

static void test_planes(void **state)
{
    static const enum tensor_type types[] = {TENSOR_F32, TENSOR_F16, TENSOR_BF16, TENSOR_Q8_0,
                                             TENSOR_Q4_0};

    (void)state;
    for (int t = 0; t < 5; t++) {
        check_planes(types[t], 4, 40, 64, 33);
        check_planes(types[t], 1, 16, 32, 3);
        check_planes(types[t], 7, 21, 96, 1);
    }
    check_planes(TENSOR_F16, 3, 5, 13, 9);
    check_planes(TENSOR_Q4_K, 3, 17, 256, 5);
}

/* More planes than fit into a slice: of weights (2 MiB each), of x (1.25 MiB each); and planes
 * larger than a slice. */
static void test_chunks_of_planes(void **state)
{
    (void)state;
    check_planes(TENSOR_Q4_0, 19, 512, 2048, 1);
    check_planes(TENSOR_Q8_0, 8, 16, 32, 20480);
    check_planes(TENSOR_F32, 2, 8192 + 35, 1024, 1);
}

/* ---- What x may be ---- */

/* Values beyond FP16's range in one row of x, and all of x far below the range: neither is lost. */
static void test_range_of_x(void **state)
{
    enum { ROWS = 16, COLS = 64, N = 3 };
    uint8_t *file = random_rows(TENSOR_Q8_0, ROWS, COLS, WEIGHTS_USUAL, 9);
    struct matrix m = tiles_of(TENSOR_Q8_0, ROWS, COLS, file), on_it = m;
    static const float largest[] = {1e6f, 1e38f, 1e-12f, 1e-38f, 0};
    uint64_t seed = 77;
    float x[N * COLS];

    (void)state;
    on_it.tiles = to_device(m.tiles, tile_matrix_bytes(m.type, ROWS, COLS));
    for (size_t i = 0; i < sizeof largest / sizeof *largest; i++) {
        for (size_t c = 0; c < N * COLS; c++)
            x[c] = random_float(&seed) * (largest[i] > 1 ? 1 : largest[i]);
        x[COLS + 5] = largest[i];
        check_product(&m, &on_it, N, x, COLS);
    }
    release_all();
    free((void *)m.tiles);
    free(file);
}

/* NaN and infinity in a row of x show in that row of y. */
static void test_faults_in_x(void **state)
{
    enum { ROWS = 16, COLS = 32, N = 3 };
    static const enum tensor_type types[] = {TENSOR_F32, TENSOR_BF16, TENSOR_Q8_0};
    float x[N * COLS], got[N * ROWS];

    (void)state;
    for (int t = 0; t < 3; t++) {
        uint8_t *file = random_rows(types[t], ROWS, COLS, WEIGHTS_USUAL, 3);
        struct matrix m = tiles_of(types[t], ROWS, COLS, file), on_it = m;

        for (int i = 0; i < N * COLS; i++)
            x[i] = 1;
        x[3] = NAN;
        x[COLS + 3] = -INFINITY;
        on_it.tiles = to_device(m.tiles, tile_matrix_bytes(m.type, ROWS, COLS));
        float *y = on_device(sizeof got);
        module->ops.multiply_many(stream, &on_it, to_device(x, sizeof x), COLS, N, N, y, ROWS,
                                  false,
                                  on_device(module->ops.multiply_many_scratch_bytes(&m, 1, N)));
        from_device(got, y, sizeof got);
        for (int r = 0; r < ROWS; r++) {
            assert_true(isnan(got[r]));
            assert_false(isfinite(got[ROWS + r]));
            assert_true(isfinite(got[2 * ROWS + r]));
        }
        release_all();
        free((void *)m.tiles);
        free(file);
    }
}

static void test_nothing_to_do(void **state)
{
    float y = 5, *on_it = to_device(&y, sizeof y);
    struct matrix m = {TENSOR_Q8_0, 16, 256, on_device(tile_matrix_bytes(TENSOR_Q8_0, 16, 256))};

    (void)state;
    module->ops.multiply_many(stream, &m, on_it, 256, 0, 0, on_it, 16, false, NULL);
    m.rows = 0;
    module->ops.multiply_many(stream, &m, on_it, 256, 1, 1, on_it, 16, false, NULL);
    m.rows = 16;
    module->ops.multiply_many_planes(stream, &m, 0, 0, 1, 1, on_it, 256, 0, on_it, 16, 0, NULL);
    from_device(&y, on_it, sizeof y);
    assert_true(y == 5);
    release_all();
}

static bool is_simulated(void)
{
    struct device_facts facts;
    module->facts(device, &facts);
    return strstr(facts.name, "cusim");
}

/* cuBLAS is missing, or too new for the driver: load_blas reports that, and nothing else fails. A
 * second call may succeed. Only on cusim: the test cannot hide a GPU's cuBLAS. */
static void test_without_blas(void **state)
{
    struct device_blas takes;
    struct device_stream *s;
    struct device *other;
    struct error e;

    (void)state;
    if (!is_simulated())
        skip();
    check_code(module->open(0, DEVICE_COMPUTES, &other, &e), &e);
    check_code(module->stream_new(other, &s, &e), &e);
    setenv("MOED_CUSIM_BLAS", "0", 1);
    assert_int_equal(module->load_blas(other, &takes, &e), ERROR_UNSUPPORTED);
    assert_non_null(strstr(e.text, "does not start"));
    unsetenv("MOED_CUSIM_BLAS");
    check_code(module->finish(s, &e), &e);
    for (int again = 0; again < 2; again++) {
        takes = (struct device_blas){false, false, false};
        check_code(module->load_blas(other, &takes, &e), &e);
        assert_true(takes.f32 && takes.f16 && takes.bf16);
    }
    module->stream_free(s);
    module->close(other);
}

/* The operands of a cuBLAS that refuses `refused`, on another device than the test's. */
static enum error_code operands_without(const char *refused, struct device_blas *out,
                                        struct error *e)
{
    struct device *other;

    check_code(module->open(0, DEVICE_COMPUTES, &other, e), e);
    setenv("MOED_CUSIM_BLAS_REFUSES", refused, 1);
    enum error_code code = module->load_blas(other, out, e);
    unsetenv("MOED_CUSIM_BLAS_REFUSES");
    module->close(other);
    return code;
}

/* Refuses each type of operands separately. */
static void test_refused_types(void **state)
{
    static const enum tensor_type types[] = {TENSOR_F32, TENSOR_F16, TENSOR_BF16, TENSOR_Q4_K};
    static const struct {
        const char *refused;
        bool takes[4];                               /* of types */
    } cases[] = {{"bf16", {true, true, true, true}}, /* as float32 */
                 {"f16", {true, false, true, false}},
                 {"f32", {false, true, true, true}},
                 {"f32,bf16", {false, true, false, true}},
                 {"f16,bf16", {true, false, true, false}}};
    struct device_blas takes;
    struct error e;

    (void)state;
    if (!is_simulated())
        skip();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_code(operands_without(cases[i].refused, &takes, &e), &e);
        for (int t = 0; t < 4; t++)
            assert_int_equal(device_blas_takes(&takes, types[t]), cases[i].takes[t]);
    }
    assert_int_equal(operands_without("f32,f16,bf16", &takes, &e), ERROR_UNSUPPORTED);
    assert_non_null(strstr(e.text, "not supported"));
}

/* BF16 weights where cuBLAS has no BF16: float32 products, x not rounded, in scratch whose size was
 * computed before that was known. On another device than the other tests, whose cuBLAS takes all.
 */
static void test_bf16_as_float32(void **state)
{
    struct device *whole = device;
    struct device_stream *its = stream;
    struct error e;

    (void)state;
    if (!is_simulated())
        skip();
    open_device();
    setenv("MOED_CUSIM_BLAS_REFUSES", "bf16", 1);
    check_code(module->load_blas(device, &blas, &e), &e);
    assert_true(!blas.bf16 && blas.f32);
    check_type(TENSOR_BF16, 49, 352, 33);
    check_planes(TENSOR_BF16, 4, 40, 64, 33);
    check_weights(TENSOR_BF16, 8192 + 35, 1024, 1, WEIGHTS_USUAL, 1);
    unsetenv("MOED_CUSIM_BLAS_REFUSES");
    close_device();
    device = whole;
    stream = its;
    check_code(module->load_blas(device, &blas, &e), &e);
}

/* A failing call of cuBLAS is an error of the device; so is a product before load_blas. */
static void test_errors(void **state)
{
    enum { ROWS = 16, COLS = 32, N = 2 };
    struct matrix m = {TENSOR_F32, ROWS, COLS,
                       on_device(tile_matrix_bytes(TENSOR_F32, ROWS, COLS))};
    float *x = on_device(N * COLS * sizeof *x), *y = on_device(N * ROWS * sizeof *y);
    void *scratch = on_device(module->ops.multiply_many_scratch_bytes(&m, 1, N));
    static const char *const words[] = {"was not loaded", "cublasGemmEx: "};
    struct error e;

    (void)state;
    module->fill(stream, x, 0, N * COLS * sizeof *x);
    finish();
    for (int loaded = 0; loaded < 2; loaded++) {
        struct device_stream *s;
        struct device *other;
        check_code(module->open(0, DEVICE_COMPUTES, &other, &e), &e);
        check_code(module->stream_new(other, &s, &e), &e);
        if (loaded)
            check_code(module->load_blas(other, &(struct device_blas){false, false, false}, &e),
                       &e);
        /* an invalid matrix: y's stride is less than its rows */
        module->ops.multiply_many(s, &m, x, COLS, N, N, y, ROWS - 1, false, scratch);
        assert_int_not_equal(module->finish(s, &e), ERROR_OK);
        if (!strstr(e.text, words[loaded]))
            fail_msg("%s", e.text);
        module->stream_free(s);
        module->close(other);
    }
    release_all();
}

/* ---- cuBLAS that is given up ---- */

enum { X = PLANES * GROUPS_COLS, Y = PLANES * GROUPS_ROWS };

/* A product of three groups; planes: of all planes, else of the first, accumulated. */
struct grouped_product {
    struct matrix m;
    size_t plane;
    bool planes;
    const float *x;
    float *y;
    void *scratch;
};

static void multiply_through_blas(const struct grouped_product *p)
{
    const struct device_ops *ops = &module->ops;
    if (p->planes)
        ops->multiply_many_planes(stream, &p->m, p->plane, PLANES, GROUPS_N, GROUP, p->x, X,
                                  GROUPS_COLS, p->y, Y, GROUPS_ROWS, p->scratch);
    else
        ops->multiply_many(stream, &p->m, p->x, X, GROUPS_N, GROUP, p->y, Y, true, p->scratch);
}

static void multiply_without_blas(const struct grouped_product *p)
{
    const struct device_ops *ops = &module->ops;
    bool quantize = tensor_type_info(p->m.type)->block_values > 1;
    struct device_activations a;
    void *memory = on_device(ops->activations_bytes(GROUPS_COLS, PLANES * GROUPS_N));
    if (p->planes) {
        ops->multiply_planes(stream, &p->m, p->plane, PLANES, GROUPS_N, p->x, X, GROUPS_COLS, p->y,
                             Y, GROUPS_ROWS, memory);
        return;
    }
    ops->activations_bind(&a, memory, GROUPS_COLS, GROUPS_N, p->x, X, quantize);
    if (quantize)
        ops->quantize(stream, &a);
    ops->multiply(stream, &p->m, &a, p->y, Y, true);
}

/* Multiplies three times through cuBLAS, which is given up at the second group of the second time.
 * The rows before have cuBLAS' bits, all others those of the module's own kernels. Returns a bit
 * for each fact. */
static int give_up_in(enum tensor_type type, bool planes)
{
    static float x[GROUPS_N][X], start[GROUPS_N][Y], own[GROUPS_N][Y], y[3][GROUPS_N][Y];
    uint32_t rows = PLANES * tile_row_count(GROUPS_ROWS) * TILE_ROWS;
    uint8_t *file = random_rows(type, rows, GROUPS_COLS, WEIGHTS_USUAL, 3);
    struct matrix m = tiles_of(type, rows, GROUPS_COLS, file);
    struct device_facts facts;
    struct error e;
    uint64_t seed = 7;
    for (uint32_t t = 0; t < GROUPS_N; t++) {
        for (uint32_t i = 0; i < X; i++)
            x[t][i] = random_float(&seed);
        for (uint32_t i = 0; i < Y && !planes; i++)
            start[t][i] = before(i + t);
    }
    struct grouped_product p = {.m = {type, GROUPS_ROWS, GROUPS_COLS},
                                .plane = tile_matrix_bytes(type, GROUPS_ROWS, GROUPS_COLS),
                                .planes = planes,
                                .x = to_device(x, sizeof x),
                                .y = to_device(start, sizeof start)};
    p.m.tiles = to_device(m.tiles, PLANES * p.plane);
    p.scratch = on_device(module->ops.multiply_many_scratch_bytes(&p.m, PLANES, GROUPS_N));
    multiply_without_blas(&p);
    from_device(own, p.y, sizeof own);
    for (int i = 0; i < 3; i++) {
        module->upload(stream, p.y, start, sizeof start);
        multiply_through_blas(&p);
        from_device(y[i], p.y, sizeof y[i]); /* checks that the device has no error */
    }
    module->facts(device, &facts);
    bool through_blas = memcmp(y[0], own, sizeof own) != 0,
         first = memcmp(y[1], y[0], GROUP * sizeof y[0][0]) == 0,
         others = memcmp(y[1][GROUP], own[GROUP], (GROUPS_N - GROUP) * sizeof own[0]) == 0,
         later = memcmp(y[2], own, sizeof own) == 0,
         is_off = facts.blas[0] == '\0' && module->load_blas(device, &blas, &e);
    release_all();
    free((void *)m.tiles);
    free(file);
    return through_blas << 0 | first << 1 | others << 2 | later << 3 | is_off << 4;
}

static int give_up(const char *type, const char *planes)
{
    open_device();
    struct error e;
    if (module->load_blas(device, &blas, &e))
        return 0;
    int passed = give_up_in((enum tensor_type)atoi(type), planes[0] == '1');
    close_device();
    return passed;
}

/* No memory for a shape's code, or no such product: a log line, and no error. */
static void test_given_up(void **state)
{
    static const enum tensor_type types[] = {TENSOR_F32, TENSOR_BF16, TENSOR_Q4_K};
    /* three trials, three groups, and the second of the next three */
    static const char *const failures[2][2] = {
        {"cublasGemmEx:8:cudaErrorMemoryAllocation", "cublasGemmEx:8:cudaErrorNotSupported"},
        {"cublasGemmStridedBatchedEx:8:cudaErrorMemoryAllocation",
         "cublasGemmStridedBatchedEx:8:cudaErrorNotSupported"}};

    (void)state;
    if (!is_simulated())
        skip();
    for (int i = 0; i < 12; i++) {
        char type[16], planes[] = {(char)('0' + i / 6), '\0'};
        int status;
        snprintf(type, sizeof type, "%d", (int)types[i % 3]);
        pid_t child = fork();
        if (child == 0) {
            setenv("MOED_CUSIM_FAIL", failures[i / 6][i / 3 % 2], 1);
            execl("/proc/self/exe", "test_cuda_multiply_many", "give-up", type, planes,
                  (char *)NULL);
            _exit(127);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 31)
            fail_msg("%s of %s: status 0x%x", failures[i / 6][i / 3 % 2],
                     tensor_type_info(types[i % 3])->name, status);
    }
}

/* Skips without a cuBLAS. */
static int open_with_blas(void **state)
{
    struct error e;
    open_all(state);
    if (module->load_blas(device, &blas, &e)) {
        fprintf(stderr, "skipped: %s\n", e.text);
        exit(77);
    }
    return 0;
}

/* The scratch of a batch suffices for a smaller batch, of which more planes are unpacked at a time.
 */
static void test_scratch_of_fewer(void **state)
{
    static const enum tensor_type types[] = {TENSOR_F32, TENSOR_BF16, TENSOR_Q8_0};
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (uint32_t planes = 1; planes <= 128; planes *= 2) {
            const struct matrix m = {.type = types[i], .rows = 128, .cols = 512};
            size_t most = module->ops.multiply_many_scratch_bytes(&m, planes, 256);
            for (uint32_t n = 1; n <= 256; n++)
                assert_true(module->ops.multiply_many_scratch_bytes(&m, planes, n) <= most);
        }
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "give-up") == 0)
        return give_up(argv[2], argv[3]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type),       cmocka_unit_test(test_odd_shapes),
        cmocka_unit_test(test_chunks),           cmocka_unit_test(test_groups),
        cmocka_unit_test(test_planes),           cmocka_unit_test(test_chunks_of_planes),
        cmocka_unit_test(test_range_of_x),       cmocka_unit_test(test_faults_in_x),
        cmocka_unit_test(test_nothing_to_do),    cmocka_unit_test(test_without_blas),
        cmocka_unit_test(test_refused_types),    cmocka_unit_test(test_bf16_as_float32),
        cmocka_unit_test(test_errors),           cmocka_unit_test(test_given_up),
        cmocka_unit_test(test_scratch_of_fewer),
    };
    return run_group("cuda_multiply_many", tests, open_with_blas);
}
