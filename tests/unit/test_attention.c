/* Attention over the KV cache: each build against the definition of kernels.h written out one
 * number after the other, to the bit, and against softmax attention in float64; then batches on
 * threads (exec/attention.h), with any grouping. */
#include "exec/attention.h"
#include "model/kv_type.h"
#include "model/memory_need.h"
#include "quant/quant.h"
#include "random_numbers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#if defined(MOED_HAVE_SIMDE)
extern const struct kernels kernels_avx512_simde;
#endif

static const struct kernels *builds[8];
static int n_builds;

static int find_builds(void **state)
{
    (void)state;
    for (const char *const *name = kernels_available(); *name != NULL; name++) {
        assert_true(kernels_select(*name));
        builds[n_builds++] = kernels_get();
    }
#if defined(MOED_HAVE_SIMDE)
    if (n_builds > 1) /* it needs AVX2 */
        builds[n_builds++] = &kernels_avx512_simde;
#endif
    kernels_select("auto");
    return 0;
}

static float random_value(void)
{
    return (float)((int32_t)(random_u64() >> 40) - (1 << 23)) / (float)(1 << 23);
}

/* ---- The definition ---- */

static float fold(float sums[16])
{
    for (int width = 8; width > 0; width /= 2)
        for (int i = 0; i < width; i++)
            sums[i] += sums[i + width];
    return sums[0];
}

/* One query over positions [first, end) of floats k [.][k_dim] and v, v_stride apart. */
static void define(const float *q, const float *k, const float *v, size_t v_stride, uint32_t k_dim,
                   uint32_t v_dim, uint32_t first, uint32_t end, float scale, const float *sink,
                   float *out)
{
    float M = 0, L = 0, *o = malloc(v_dim * sizeof *o);

    for (uint32_t from = first; from < end;) {
        uint32_t to = from / 256 * 256 + 256 < end ? from / 256 * 256 + 256 : end;
        float p[256], sums[16] = {0}, m = -INFINITY, l;

        for (uint32_t j = from; j < to; j++) {
            float dot[16] = {0};
            for (uint32_t i = 0; i < k_dim; i++)
                dot[i % 16] = fmaf(q[i], k[(size_t)j * k_dim + i], dot[i % 16]);
            p[j - from] = scale * fold(dot);
            m = p[j - from] > m ? p[j - from] : m;
        }
        memset(o, 0, v_dim * sizeof *o);
        for (uint32_t j = from; j < to; j++) {
            p[j - from] = kernels_exp(p[j - from] - m);
            sums[(j - from) % 16] += p[j - from];
            for (uint32_t d = 0; d < v_dim; d++)
                o[d] = fmaf(p[j - from], v[j * v_stride + d], o[d]);
        }
        l = fold(sums);
        if (from == first) {
            M = m;
            L = l;
            memcpy(out, o, v_dim * sizeof *o);
        } else {
            float max = m > M ? m : M, a = kernels_exp(M - max), c = kernels_exp(m - max);
            L = fmaf(L, a, l * c);
            for (uint32_t d = 0; d < v_dim; d++)
                out[d] = fmaf(out[d], a, o[d] * c);
            M = max;
        }
        from = to;
    }
    if (sink != NULL) {
        float max = *sink > M ? *sink : M, a = kernels_exp(M - max);
        L = fmaf(L, a, kernels_exp(*sink - max));
        for (uint32_t d = 0; d < v_dim; d++)
            out[d] = out[d] * a;
    }
    for (uint32_t d = 0; d < v_dim; d++)
        out[d] = out[d] / L;
    free(o);
}

static void define_exactly(const float *q, const float *k, const float *v, size_t v_stride,
                           uint32_t k_dim, uint32_t v_dim, uint32_t first, uint32_t end,
                           float scale, const float *sink, double *out)
{
    double sum = sink ? exp(*sink) : 0; /* scores are small enough to need no maximum */

    memset(out, 0, v_dim * sizeof *out);
    for (uint32_t j = first; j < end; j++) {
        double s = 0;
        for (uint32_t i = 0; i < k_dim; i++)
            s += (double)q[i] * k[(size_t)j * k_dim + i];
        s = exp(s * scale);
        sum += s;
        for (uint32_t d = 0; d < v_dim; d++)
            out[d] += s * v[j * v_stride + d];
    }
    for (uint32_t d = 0; d < v_dim; d++)
        out[d] /= sum;
}

/* ---- A cache of one KV head ---- */

struct cache {
    struct kv_head head;
    uint8_t **pages;
    uint32_t n_pages;
    float *k, *v; /* what it holds, as floats */
    size_t v_stride;
};

static size_t row_bytes(enum tensor_type type, uint32_t n)
{
    const struct tensor_type_info *info = tensor_type_info(type);
    return (size_t)n / info->block_values * info->block_bytes;
}

/* Rows of the pages, at this offset in them. */
static void write_rows(enum tensor_type type, uint32_t n, uint32_t dim, float *values,
                       uint8_t **pages, size_t offset)
{
    size_t bytes = row_bytes(type, dim);

    for (uint32_t j = 0; j < n; j++) {
        float *row = values + (size_t)j * dim;
        uint8_t *at = pages[j / KV_PAGE] + offset + j % KV_PAGE * bytes;
        for (uint32_t i = 0; i < dim; i++)
            row[i] = random_value() * (j % 7 == 3 ? 3 : 1);
        builds[0]->kv_write(type, row, dim, at);
        quant_dequantize(type, at, row, dim);
    }
}

/* Pages whose other rows are NaN, and which the sanitizer sees the ends of. latent: the values are
 * the keys' first part. */
static void make_cache(enum tensor_type type, uint32_t n, uint32_t k_dim, uint32_t v_dim,
                       bool latent, struct cache *c)
{
    size_t key = row_bytes(type, k_dim), value = latent ? 0 : row_bytes(type, v_dim);

    c->n_pages = (n + KV_PAGE - 1) / KV_PAGE;
    c->pages = malloc(c->n_pages * sizeof *c->pages);
    for (uint32_t i = 0; i < c->n_pages; i++) {
        c->pages[i] = malloc(KV_PAGE * (key + value));
        memset(c->pages[i], 0xff, KV_PAGE * (key + value));
    }
    c->k = malloc((size_t)n * k_dim * sizeof *c->k);
    c->v = malloc((size_t)n * v_dim * sizeof *c->v);
    write_rows(type, n, k_dim, c->k, c->pages, 0);
    if (!latent)
        write_rows(type, n, v_dim, c->v, c->pages, KV_PAGE * key);
    c->v_stride = v_dim;
    if (latent)
        for (uint32_t j = 0; j < n; j++)
            memcpy(c->v + (size_t)j * v_dim, c->k + (size_t)j * k_dim, v_dim * sizeof(float));
    c->head = (struct kv_head){.type = type,
                               .k_dim = k_dim,
                               .v_dim = v_dim,
                               .pages = (const uint8_t *const *)c->pages,
                               .values_offset = latent ? 0 : KV_PAGE * key,
                               .key_stride = key,
                               .value_stride = latent ? key : value};
}

static void free_cache(struct cache *c)
{
    for (uint32_t i = 0; i < c->n_pages; i++)
        free(c->pages[i]);
    free(c->pages);
    free(c->k);
    free(c->v);
}

/* ---- The kernels ---- */

static uint32_t padded(uint32_t n)
{
    return (n + 15) / 16 * 16;
}

/* All blocks of some queries by one build, out [n][v_dim]. */
static void attend(const struct kernels *kernels, const struct cache *c, float scale,
                   const struct attend_query *queries, uint32_t n, const float *sink, float *out)
{
    uint32_t v_dim = c->head.v_dim, end = 0;
    struct attend_part parts[ATTEND_QUERIES], sums[ATTEND_QUERIES];
    float *values = malloc(n * padded(v_dim) * sizeof *values);
    size_t bytes = kernels->attend_scratch(c->head.k_dim, v_dim);
    void *scratch = aligned_alloc(64, (bytes + 63) / 64 * 64);

    for (uint32_t i = 0; i < n; i++) {
        parts[i] = (struct attend_part){NAN, NAN, values + i * padded(v_dim)};
        sums[i] = (struct attend_part){NAN, 0, out + i * v_dim};
        end = queries[i].end > end ? queries[i].end : end;
    }
    memset(scratch, 0xff, bytes); /* NaNs */
    for (uint32_t block = 0; block * ATTEND_BLOCK < end; block++) {
        kernels->attend_block(&c->head, block, scale, queries, n, scratch, parts);
        for (uint32_t i = 0; i < n; i++)
            kernels->attend_merge(&sums[i], &parts[i], v_dim);
    }
    for (uint32_t i = 0; i < n; i++)
        kernels->attend_finish(&sums[i], sink, v_dim);
    free(scratch);
    free(values);
}

/* n queries whose ranges end at n_kv and before it, and begin at 0 or, with a window, up to that
 * many positions before their end. */
static void check_attend(enum tensor_type type, uint32_t n_kv, uint32_t k_dim, uint32_t v_dim,
                         bool latent, uint32_t n, uint32_t window, const float *sink)
{
    struct attend_query queries[ATTEND_QUERIES];
    struct cache c;
    float scale = 1 / sqrtf((float)k_dim);
    float *q = malloc(n * k_dim * sizeof *q);
    float *expected = malloc(n * v_dim * sizeof *expected), *out = malloc(n * v_dim * sizeof *out);
    double *exact = malloc(v_dim * sizeof *exact);

    make_cache(type, n_kv, k_dim, v_dim, latent, &c);
    for (uint32_t i = 0; i < n * k_dim; i++)
        q[i] = random_value();
    for (uint32_t i = 0; i < n; i++) {
        uint32_t before = i % 8 < 4 ? 0 : (n - 1 - i) / 2;
        uint32_t end = n_kv > before ? n_kv - before : 1;
        uint32_t first = window && end > window ? end - window : 0;
        queries[i] = (struct attend_query){q + i * k_dim, first, end};
        define(queries[i].q, c.k, c.v, c.v_stride, k_dim, v_dim, first, end, scale, sink,
               expected + i * v_dim);
        define_exactly(queries[i].q, c.k, c.v, c.v_stride, k_dim, v_dim, first, end, scale, sink,
                       exact);
        for (uint32_t d = 0; d < v_dim; d++)
            if (!(fabs(expected[i * v_dim + d] - exact[d]) <= 5e-6))
                fail_msg("%.9g, exactly %.9g", expected[i * v_dim + d], exact[d]);
    }
    for (int b = 0; b < n_builds; b++) {
        attend(builds[b], &c, scale, queries, n, sink, out);
        if (memcmp(out, expected, n * v_dim * sizeof *out) != 0)
            fail_msg("%s: %s, %u positions, %u x %u, %u queries, window %u", builds[b]->name,
                     tensor_type_info(type)->name, n_kv, k_dim, v_dim, n, window);
    }
    free_cache(&c);
    free(exact);
    free(out);
    free(expected);
    free(q);
}

static const enum tensor_type types[] = {TENSOR_F32, TENSOR_F16, TENSOR_Q8_0};
enum { N_TYPES = sizeof types / sizeof types[0] };

/* Numbers of positions around the groups of 16 keys, 32 values and 256 positions. */
static void test_positions(void **state)
{
    static const uint32_t counts[] = {1,  2,   3,   5,   15,  16,  17,  31,  32,
                                      33, 100, 255, 256, 257, 511, 512, 513, 1000};
    const float sink = 1.5f;

    (void)state;
    random_state = 1;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        for (int t = 0; t < N_TYPES; t++) {
            check_attend(types[t], counts[i], 64, 64, false, 4, 0, i % 2 ? &sink : NULL);
            check_attend(types[t], counts[i], 64, 32, false, 6, 100, i % 3 ? &sink : NULL);
        }
}

static void test_dimensions(void **state)
{
    static const struct {
        uint32_t k, v;
        bool latent;
    } sizes[] = {{128, 128, false}, {192, 128, false}, {96, 64, true}, {576, 512, true},
                 {80, 72, false},   {5, 3, false},     {40, 24, true}, {32, 160, false}};
    const float sink = -0.5f;

    (void)state;
    random_state = 2;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int t = 0; t < N_TYPES; t++)
            if (types[t] != TENSOR_Q8_0 || (sizes[i].k % 32 == 0 && sizes[i].v % 32 == 0))
                check_attend(types[t], 300, sizes[i].k, sizes[i].v, sizes[i].latent, 5, 0,
                             i % 2 ? &sink : NULL);
}

/* Every number of queries: groups of what registers hold, and what is left. */
static void test_groups(void **state)
{
    (void)state;
    random_state = 3;
    for (uint32_t n = 1; n <= ATTEND_QUERIES; n++) {
        check_attend(TENSOR_F32, 290, 32, 32, false, n, 0, NULL);
        check_attend(TENSOR_F16, 290, 32, 48, false, n, 7, NULL); /* some have nothing of a block */
    }
}

/* A sink larger than every score, and scores so far apart that a block's weights vanish. */
static void test_extremes(void **state)
{
    enum { N = 600, DIM = 32 };
    struct cache c;
    float q[DIM], expected[DIM], out[DIM];
    const float sinks[] = {-1000, 60, 1000};

    (void)state;
    random_state = 4;
    make_cache(TENSOR_F32, N, DIM, DIM, false, &c);
    for (uint32_t i = 0; i < DIM; i++)
        q[i] = random_value() * 60;
    for (int i = 0; i < 3; i++) {
        struct attend_query query = {q, 0, N};
        define(q, c.k, c.v, DIM, DIM, DIM, 0, N, 1, &sinks[i], expected);
        for (int b = 0; b < n_builds; b++) {
            attend(builds[b], &c, 1, &query, 1, &sinks[i], out);
            assert_memory_equal(out, expected, sizeof out);
        }
    }
    free_cache(&c);
}

/* ---- Rows of the cache ---- */

static void test_kv_write(void **state)
{
    enum { N = 96 };
    static const float special[] = {0, -0.0f, 65504, 65520, 1e-8f, -6e-8f, 1.00048828125f, 1e30f};
    float x[N];
    uint8_t row[N * 4], expected[N * 2];

    (void)state;
    random_state = 5;
    for (int i = 0; i < N; i++)
        x[i] = i < 8 ? special[i] : random_value() * powf(2, (float)(i % 40) - 25);
    for (int i = 0; i < N; i++) {
        uint16_t half = float_to_half(x[i]);
        memcpy(expected + 2 * i, &half, 2);
    }
    for (int b = 0; b < n_builds; b++)
        for (uint32_t n = 1; n <= N; n++) {
            memset(row, 0xaa, sizeof row);
            builds[b]->kv_write(TENSOR_F16, x, n, row);
            assert_memory_equal(row, expected, 2 * n);
            assert_int_equal(row[2 * n], 0xaa);
            builds[b]->kv_write(TENSOR_F32, x, n, row);
            assert_memory_equal(row, x, 4 * n);
        }
}

/* By hand: the largest is 127 d; 2.5 d and 3.5 d are ties, which go to the even number. */
static void test_kv_write_q8_0(void **state)
{
    uint8_t row[2 * 34 + 1];
    float x[64] = {127, -127, 2.5f, 3.5f, -2.5f, 0.49f, 0.51f};
    const int8_t q[] = {127, -127, 2, 4, -2, 0, 1};

    (void)state;
    for (int b = 0; b < n_builds; b++) {
        memset(row, 0x55, sizeof row);
        builds[b]->kv_write(TENSOR_Q8_0, x, 64, row);   /* the second block is zeros */
        assert_int_equal(row[0] | row[1] << 8, 0x3c00); /* 1.0 */
        assert_memory_equal(row + 2, q, sizeof q);
        for (int i = 2 + (int)sizeof q; i < 68; i++)
            assert_int_equal(row[i], 0);
        assert_int_equal(row[68], 0x55);
    }
    random_state = 6;
    for (int turn = 0; turn < 200; turn++) {
        float back[64], most = 0;
        for (int i = 0; i < 64; i++)
            x[i] = random_value() * powf(2, (float)(turn % 24) - 12);
        builds[0]->kv_write(TENSOR_Q8_0, x, 64, row);
        for (int b = 1; b < n_builds; b++) {
            uint8_t other[68];
            builds[b]->kv_write(TENSOR_Q8_0, x, 64, other);
            assert_memory_equal(other, row, 68);
        }
        quant_dequantize(TENSOR_Q8_0, row, back, 64);
        for (int i = 0; i < 64; i++)
            most = fmaxf(most, fabsf(x[i]));
        for (int i = 0; i < 64;
             i++) /* half a step, and 127 times the scale's rounding, of a small half too */
            assert_true(fabsf(x[i] - back[i]) <= most / 127 * 0.5625f + 127 * 0x1p-25f);
    }
    x[3] = INFINITY;
    builds[0]->kv_write(TENSOR_Q8_0, x, 32, row);
    assert_true(isnan(half_to_float((uint16_t)(row[0] | row[1] << 8))));
}

static void test_kv_types(void **state)
{
    static const struct model_params grouped = {
        .n_layers = 2,
        .layers = {{.n_kv_heads = 2, .k_dim = 64, .v_dim = 32},
                   {.n_kv_heads = 1, .k_dim = 128, .v_dim = 128}}};
    static const struct model_params latent = {
        .n_layers = 1, .kv_rank = 512, .layers = {{.n_kv_heads = 1, .k_dim = 576, .v_dim = 512}}};
    static const struct model_params odd = {
        .n_layers = 2,
        .layers = {{.n_kv_heads = 2, .k_dim = 64, .v_dim = 64},
                   {.n_kv_heads = 2, .k_dim = 80, .v_dim = 80}}};
    enum tensor_type type;
    struct error e;

    (void)state;
    assert_int_equal(kv_type_parse("q8_0", &type, &e), ERROR_OK);
    assert_int_equal(type, TENSOR_Q8_0);
    assert_int_equal(kv_type_parse("f16", &type, &e), ERROR_OK);
    assert_int_equal(type, TENSOR_F16);
    assert_int_equal(kv_type_parse("F64", &type, &e), ERROR_USAGE);
    assert_int_equal(kv_key_bytes(&grouped, 0, TENSOR_F32), 256);
    assert_int_equal(kv_value_bytes(&grouped, 0, TENSOR_F16), 64);
    assert_int_equal(kv_key_bytes(&grouped, 0, TENSOR_Q8_0), 68);
    assert_int_equal(kv_key_bytes(&grouped, 1, TENSOR_F16), 256);
    assert_int_equal(kv_key_bytes(&latent, 0, TENSOR_Q8_0), 18 * 34);
    assert_int_equal(kv_value_bytes(&latent, 0, TENSOR_F32), 0);
    /* 2 heads of 64 and 32 halves, 1 of 128 and 128 */
    assert_int_equal(memory_kv_bytes(&grouped, TENSOR_F16).a_token, 2 * 192 + 512);
    assert_int_equal(kv_type_check(&grouped, TENSOR_Q8_0, &e), ERROR_OK);
    assert_int_equal(kv_type_check(&odd, TENSOR_F16, &e), ERROR_OK);
    assert_int_equal(kv_type_check(&odd, TENSOR_Q8_0, &e), ERROR_UNSUPPORTED);
    assert_non_null(strstr(e.text, "80"));
}

/* ---- Batches on threads ---- */

enum { MAX_ROWS = 96, MAX_REQUESTS = 3 };

/* Requests with their own caches; rows [n_rows] are positions of them. */
struct batch {
    struct attention_shape shape;
    uint32_t n_requests, context;
    struct cache caches[MAX_REQUESTS][8]; /* of each KV head */
    uint8_t **pages[MAX_REQUESTS];        /* of all KV heads, as the shape's strides say */
    uint32_t n_pages;
    uint32_t n_rows, request[MAX_ROWS];
    struct attention_row rows[MAX_ROWS];
    float *q, *out, *expected, *sinks;
};

static void make_batch(struct batch *b, enum tensor_type type, uint32_t n_heads,
                       uint32_t n_kv_heads, uint32_t k_dim, uint32_t v_dim, bool latent,
                       uint32_t context, uint32_t n_requests)
{
    size_t key = row_bytes(type, k_dim), value = latent ? 0 : row_bytes(type, v_dim);

    *b = (struct batch){.n_requests = n_requests, .context = context};
    b->n_pages = (context + KV_PAGE - 1) / KV_PAGE;
    b->shape = (struct attention_shape){.type = type,
                                        .n_heads = n_heads,
                                        .n_kv_heads = n_kv_heads,
                                        .k_dim = k_dim,
                                        .v_dim = v_dim,
                                        .scale = 0.3f,
                                        .key_stride = key,
                                        .value_stride = latent ? key : value,
                                        .values_offset = latent ? 0 : KV_PAGE * key,
                                        .head_stride = KV_PAGE * (key + value),
                                        .layer_offset = 192};
    for (uint32_t r = 0; r < n_requests; r++) {
        b->pages[r] = malloc(b->n_pages * sizeof *b->pages[r]);
        for (uint32_t i = 0; i < b->n_pages; i++)
            b->pages[r][i] = malloc(b->shape.layer_offset + n_kv_heads * b->shape.head_stride);
        for (uint32_t h = 0; h < n_kv_heads; h++) {
            make_cache(type, context, k_dim, v_dim, latent, &b->caches[r][h]);
            for (uint32_t i = 0; i < b->n_pages; i++)
                memcpy(b->pages[r][i] + b->shape.layer_offset + h * b->shape.head_stride,
                       b->caches[r][h].pages[i], b->shape.head_stride);
        }
    }
    b->q = malloc((size_t)MAX_ROWS * n_heads * k_dim * sizeof *b->q);
    b->out = malloc((size_t)MAX_ROWS * n_heads * v_dim * sizeof *b->out);
    b->expected = malloc((size_t)MAX_ROWS * n_heads * v_dim * sizeof *b->expected);
    b->sinks = malloc(n_heads * sizeof *b->sinks);
    for (size_t i = 0; i < (size_t)MAX_ROWS * n_heads * k_dim; i++)
        b->q[i] = random_value();
    for (uint32_t i = 0; i < n_heads; i++)
        b->sinks[i] = random_value();
}

static void free_batch(struct batch *b)
{
    for (uint32_t r = 0; r < b->n_requests; r++) {
        for (uint32_t h = 0; h < b->shape.n_kv_heads; h++)
            free_cache(&b->caches[r][h]);
        for (uint32_t i = 0; i < b->n_pages; i++)
            free(b->pages[r][i]);
        free(b->pages[r]);
    }
    free(b->q);
    free(b->out);
    free(b->expected);
    free(b->sinks);
}

static void add_rows(struct batch *b, uint32_t request, uint32_t position, uint32_t n,
                     uint32_t window)
{
    for (; n > 0; n--, position++) {
        uint32_t end = position + 1;
        b->request[b->n_rows] = request;
        b->rows[b->n_rows++] =
            (struct attention_row){(const uint8_t *const *)b->pages[request],
                                   window && end > window ? end - window : 0, end};
    }
}

static void check_batch(struct batch *b, bool sinks)
{
    static const unsigned thread_counts[] = {1, 2, 5};
    const struct attention_shape *s = &b->shape;
    size_t n_out = (size_t)b->n_rows * s->n_heads * s->v_dim;

    for (uint32_t t = 0; t < b->n_rows; t++)
        for (uint32_t h = 0; h < s->n_heads; h++) {
            const struct cache *c = &b->caches[b->request[t]][h / (s->n_heads / s->n_kv_heads)];
            size_t at = (size_t)t * s->n_heads + h;
            define(b->q + at * s->k_dim, c->k, c->v, c->v_stride, s->k_dim, s->v_dim,
                   b->rows[t].first, b->rows[t].end, s->scale, sinks ? &b->sinks[h] : NULL,
                   b->expected + at * s->v_dim);
        }
    for (size_t i = 0; i < sizeof thread_counts / sizeof thread_counts[0]; i++) {
        struct pool *pool;
        struct attention *a;
        struct error e;
        assert_int_equal(pool_new("test", thread_counts[i], false, 20, &pool, &e), ERROR_OK);
        assert_int_equal(attention_new(pool, s->n_heads, s->k_dim, s->v_dim, MAX_ROWS, &a, &e),
                         ERROR_OK);
        for (int again = 0; again < 2; again++) {
            memset(b->out, 0xff, n_out * sizeof *b->out);
            attention_run(a, s, b->rows, b->n_rows, b->q, sinks ? b->sinks : NULL, b->out);
            assert_memory_equal(b->out, b->expected, n_out * sizeof *b->out);
        }
        attention_free(a);
        pool_free(pool);
    }
    b->n_rows = 0;
}

static void check_shape(enum tensor_type type, uint32_t n_heads, uint32_t n_kv_heads,
                        uint32_t k_dim, uint32_t v_dim, bool latent)
{
    static struct batch b;

    make_batch(&b, type, n_heads, n_kv_heads, k_dim, v_dim, latent, 1400, MAX_REQUESTS);
    add_rows(&b, 0, 1399, 1, 0); /* one long request: its blocks are shared out */
    check_batch(&b, false);
    add_rows(&b, 1, 700, 1, 300); /* with a window */
    check_batch(&b, true);
    add_rows(&b, 2, 0, 1, 0); /* the first token */
    check_batch(&b, true);
    add_rows(&b, 0, 1300, 1, 0); /* decoding of several, one much longer */
    add_rows(&b, 1, 5, 1, 0);
    add_rows(&b, 2, 256, 1, 0);
    check_batch(&b, false);
    add_rows(&b, 0, 230, 64,
             0); /* a prefill chunk across a block's border, with tokens of other requests */
    add_rows(&b, 1, 511, 1, 0);
    add_rows(&b, 2, 512, 1, 0);
    check_batch(&b, true);
    add_rows(&b, 1, 480, 60, 40); /* a prompt under a window that leaves blocks behind */
    check_batch(&b, false);
    free_batch(&b);
}

static void test_batches(void **state)
{
    (void)state;
    random_state = 7;
    check_shape(TENSOR_F32, 8, 2, 32, 32, false);
    check_shape(TENSOR_F16, 6, 1, 32, 32, false);
    check_shape(TENSOR_Q8_0, 8, 8, 32, 32, false);
    check_shape(TENSOR_F16, 3, 3, 20, 12, false);
}

static void test_batches_latent(void **state)
{
    (void)state;
    random_state = 8;
    check_shape(TENSOR_F32, 48, 1, 48, 32, true); /* more heads than share a call */
    check_shape(TENSOR_Q8_0, 5, 1, 96, 64, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_positions),      cmocka_unit_test(test_dimensions),
        cmocka_unit_test(test_groups),         cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_kv_write),       cmocka_unit_test(test_kv_write_q8_0),
        cmocka_unit_test(test_kv_types),       cmocka_unit_test(test_batches),
        cmocka_unit_test(test_batches_latent),
    };
    return cmocka_run_group_tests_name("attention", tests, find_builds, NULL);
}
