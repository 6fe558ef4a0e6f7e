/* place_heads and place_latent of the CUDA module, compared to the bit with the portable kernels'
 * norm, rotation and kv_write, head by head. */
#include "model/rope.h"
#include "tests/unit/kernel_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "on_device.h"

enum { SLOTS = 2, PAGES = 3, LAYER_OFFSET = 128 };

/* A cache of pages of one layer, all bytes 0xaa. */
struct cache {
    struct device_kv kv;
    uint8_t *pages;
    size_t page_bytes;
};

static uint32_t bytes_of(enum tensor_type type, uint32_t values)
{
    const struct tensor_type_info *info = tensor_type_info(type);

    return values / (uint32_t)info->block_values * (uint32_t)info->block_bytes;
}

/* value_values 0: values are the keys' first part. */
static struct cache make_cache(enum tensor_type type, uint32_t key_values, uint32_t value_values)
{
    uint32_t row_bytes = bytes_of(type, key_values) + bytes_of(type, value_values);
    struct cache c = {.page_bytes = LAYER_OFFSET + (size_t)DEVICE_PAGE * row_bytes};
    uint64_t table[SLOTS * PAGES];

    c.page_bytes = (c.page_bytes + 15) / 16 * 16;
    c.pages = on_device(SLOTS * PAGES * c.page_bytes);
    module->fill(stream, c.pages, 0xaa, SLOTS * PAGES * c.page_bytes);
    for (int i = 0; i < SLOTS * PAGES; i++)
        table[i] = (uint64_t)(uintptr_t)(c.pages + (size_t)i * c.page_bytes);
    c.kv = (struct device_kv){.type = type,
                              .rows = value_values ? 2 : 1,
                              .key_values = key_values,
                              .value_values = value_values ? value_values : key_values,
                              .key_bytes = bytes_of(type, key_values),
                              .pages = to_device(table, sizeof table),
                              .offset = LAYER_OFFSET,
                              .pages_a_slot = PAGES};
    return c;
}

/* Writes one row's keys or values into a host copy of the cache, as device_kv describes it. */
static void expect_row(const struct cache *c, uint8_t *host, struct device_row row, uint32_t part,
                       const float *x)
{
    const struct device_kv *kv = &c->kv;
    uint32_t page = row.slot * PAGES + row.position / DEVICE_PAGE, at = row.position % DEVICE_PAGE;
    uint32_t width = part ? kv->value_values : kv->key_values;
    uint8_t *rows =
        host + page * c->page_bytes + LAYER_OFFSET + (size_t)part * DEVICE_PAGE * kv->key_bytes;

    if (kv->type != TENSOR_Q8_0) {
        portable->kv_write((enum tensor_type)kv->type, x, width,
                           rows + (size_t)at * bytes_of((enum tensor_type)kv->type, width));
        return;
    }
    for (uint32_t b = 0; b < width / 32; b++) {
        uint8_t block[34];
        size_t first = (size_t)at * width + 32 * b;
        portable->kv_write(TENSOR_Q8_0, x + 32 * b, 32, block);
        memcpy(rows + first, block + 2, 32);
        memcpy(rows + (size_t)DEVICE_PAGE * width + first / 32 * 2, block, 2);
    }
}

static float *random_values(size_t n, uint64_t seed)
{
    uint64_t state = seed * 2 + 1;
    float *f = malloc((n ? n : 1) * sizeof *f);

    for (size_t i = 0; i < n; i++)
        f[i] = random_float(&state) * 3;
    return f;
}

static void check_cache(const struct cache *c, const uint8_t *expected, const char *what)
{
    size_t bytes = SLOTS * PAGES * c->page_bytes;
    uint8_t *got = malloc(bytes);

    from_device(got, c->pages, bytes);
    for (size_t i = 0; i < bytes; i++)
        if (got[i] != expected[i])
            fail_msg("%s: byte %zu of page %zu is 0x%02x, expected 0x%02x", what, i % c->page_bytes,
                     i / c->page_bytes, got[i], expected[i]);
    free(got);
}

struct heads_case {
    const char *what;
    enum tensor_type type;
    uint32_t n_heads, n_kv_heads, k_dim, v_dim, dims;
    bool normed, after, value_norm, no_values, neox;
};

static void norm_and_rotate(const struct heads_case *c, float *head, const float *norm,
                            const float *turns)
{
    if (c->normed && !c->after)
        portable->rms_norm(head, norm, 1e-6f, c->k_dim, head);
    if (c->dims)
        rope_apply(head, c->dims, turns, c->neox);
    if (c->normed && c->after)
        portable->rms_norm(head, norm, 1e-6f, c->k_dim, head);
}

static void check_heads(const struct heads_case *c)
{
    static const struct device_row rows[] = {{0, 0}, {0, 1}, {1, 63}, {1, 64}, {1, 130}};
    enum { N = sizeof rows / sizeof *rows };
    size_t n_q = (size_t)N * c->n_heads * c->k_dim, n_k = (size_t)N * c->n_kv_heads * c->k_dim,
           n_v = (size_t)N * c->n_kv_heads * c->v_dim;
    uint32_t k_row = c->n_kv_heads * c->k_dim, v_row = c->n_kv_heads * c->v_dim;
    float *q = random_values(n_q, 1), *k = random_values(n_k, 2), *v = random_values(n_v, 3),
          *q_norm = random_values(c->k_dim, 4), *k_norm = random_values(c->k_dim, 5),
          *turns = random_values((size_t)N * c->dims, 6), *got = malloc(n_q * sizeof *got);
    struct cache cache = make_cache(c->type, k_row, v_row);
    uint8_t *host = malloc(SLOTS * PAGES * cache.page_bytes);
    struct device_heads h = {.q = to_device(q, n_q * sizeof *q),
                             .k = to_device(k, n_k * sizeof *k),
                             .v = c->no_values ? NULL : to_device(v, n_v * sizeof *v),
                             .n_heads = c->n_heads,
                             .n_kv_heads = c->n_kv_heads,
                             .k_dim = c->k_dim,
                             .v_dim = c->v_dim,
                             .q_norm = c->normed ? to_device(q_norm, c->k_dim * 4) : NULL,
                             .k_norm = c->normed ? to_device(k_norm, c->k_dim * 4) : NULL,
                             .norm_after = c->after,
                             .value_norm = c->value_norm,
                             .eps = 1e-6f,
                             .cos_sin = to_device(turns, (size_t)N * c->dims * 4),
                             .dims = c->dims,
                             .neox = c->neox};

    module->ops.place_heads(stream, &cache.kv, to_device(rows, sizeof rows), N, &h);
    memset(host, 0xaa, SLOTS * PAGES * cache.page_bytes);
    for (uint32_t t = 0; t < N; t++) {
        float *keys = k + (size_t)t * k_row, *values = (c->no_values ? k : v) + (size_t)t * v_row;
        float *placed = malloc(v_row * sizeof *placed);
        memcpy(placed, values, v_row * sizeof *placed);
        for (uint32_t i = 0; i < c->n_kv_heads && c->value_norm; i++)
            portable->rms_norm(values + i * c->v_dim, NULL, 1e-6f, c->v_dim, placed + i * c->v_dim);
        for (uint32_t i = 0; i < c->n_heads; i++)
            norm_and_rotate(c, q + ((size_t)t * c->n_heads + i) * c->k_dim, q_norm,
                            turns + (size_t)t * c->dims);
        for (uint32_t i = 0; i < c->n_kv_heads; i++)
            norm_and_rotate(c, keys + i * c->k_dim, k_norm, turns + (size_t)t * c->dims);
        expect_row(&cache, host, rows[t], 0, keys);
        expect_row(&cache, host, rows[t], 1, placed);
        free(placed);
    }
    from_device(got, h.q, n_q * sizeof *got);
    assert_same_floats(got, q, n_q, c->what);
    check_cache(&cache, host, c->what);
    void *all[] = {q, k, v, q_norm, k_norm, turns, got, host};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    release_all();
}

static void test_heads(void **state)
{
    (void)state;
    static const struct heads_case cases[] = {
        {"rotated", TENSOR_F32, 4, 2, 64, 64, 64, false, false, false, false, true},
        {"normed", TENSOR_F16, 8, 2, 128, 128, 128, true, false, false, false, true},
        {"normed after", TENSOR_Q8_0, 5, 1, 96, 96, 96, true, true, false, false, true},
        {"adjacent pairs", TENSOR_F16, 3, 3, 40, 40, 20, true, false, false, false, false},
        {"not rotated", TENSOR_F32, 7, 1, 17, 17, 0, true, false, false, false, true},
        {"values of keys", TENSOR_Q8_0, 4, 2, 256, 256, 64, true, false, true, true, true},
        {"narrow values", TENSOR_F32, 4, 1, 12, 8, 4, false, false, false, false, true},
        {"narrow values", TENSOR_F16, 8, 4, 192, 128, 64, false, false, false, false, true},
        {"narrow values", TENSOR_Q8_0, 4, 2, 192, 128, 64, false, false, false, false, true},
        {"wide values", TENSOR_Q8_0, 3, 1, 32, 96, 32, false, false, false, false, true},
        {"values normed", TENSOR_F16, 4, 2, 512, 512, 512, true, false, true, false, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_heads(&cases[i]);
}

static void check_latent(enum tensor_type type, uint32_t n_heads, uint32_t rank, uint32_t q_dim,
                         uint32_t dims, bool scaled)
{
    static const struct device_row rows[] = {{1, 2}, {0, 64}, {0, 65}};
    enum { N = sizeof rows / sizeof *rows };
    uint32_t k_dim = rank + dims;
    size_t n_q = (size_t)N * n_heads * q_dim, n_absorbed = (size_t)N * n_heads * k_dim;
    float *q = random_values(n_q, 1), *absorbed = random_values(n_absorbed, 2),
          *row = random_values((size_t)N * k_dim, 3), *norm = random_values(rank, 4),
          *turns = random_values((size_t)N * dims, 5), *scales = random_values(N, 6),
          *got = malloc((n_q + n_absorbed) * sizeof *got);
    struct cache cache = make_cache(type, k_dim, 0);
    uint8_t *host = malloc(SLOTS * PAGES * cache.page_bytes);
    struct device_latent l = {.row = to_device(row, (size_t)N * k_dim * 4),
                              .q = to_device(q, n_q * 4),
                              .absorbed = to_device(absorbed, n_absorbed * 4),
                              .n_heads = n_heads,
                              .rank = rank,
                              .q_dim = q_dim,
                              .dims = dims,
                              .norm = to_device(norm, rank * 4),
                              .eps = 1e-6f,
                              .query_scales = scaled ? to_device(scales, N * 4) : NULL,
                              .cos_sin = to_device(turns, (size_t)N * dims * 4)};

    module->ops.place_latent(stream, &cache.kv, to_device(rows, sizeof rows), N, &l);
    memset(host, 0xaa, SLOTS * PAGES * cache.page_bytes);
    for (uint32_t t = 0; t < N; t++) {
        for (size_t i = 0; i < (size_t)n_heads * q_dim && scaled; i++)
            q[(size_t)t * n_heads * q_dim + i] *= scales[t];
        for (uint32_t h = 0; h < n_heads; h++) {
            size_t at = (size_t)t * n_heads + h;
            float *rotated = absorbed + at * k_dim + rank;
            memcpy(rotated, q + (at + 1) * q_dim - dims, dims * sizeof *rotated);
            rope_apply(rotated, dims, turns + (size_t)t * dims, false);
        }
        portable->rms_norm(row + (size_t)t * k_dim, norm, 1e-6f, rank, row + (size_t)t * k_dim);
        rope_apply(row + (size_t)t * k_dim + rank, dims, turns + (size_t)t * dims, false);
        expect_row(&cache, host, rows[t], 0, row + (size_t)t * k_dim);
    }
    from_device(got, l.q, n_q * 4);
    assert_same_floats(got, q, n_q, "latent: q");
    from_device(got, l.absorbed, n_absorbed * 4);
    assert_same_floats(got, absorbed, n_absorbed, "latent: absorbed");
    check_cache(&cache, host, "latent");
    void *all[] = {q, absorbed, row, norm, turns, scales, got, host};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    release_all();
}

static void test_latent(void **state)
{
    (void)state;
    check_latent(TENSOR_F32, 3, 40, 24, 8, false);
    check_latent(TENSOR_F16, 16, 512, 192, 64, true);
    check_latent(TENSOR_Q8_0, 4, 64, 96, 32, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heads),
        cmocka_unit_test(test_latent),
    };
    return run_group("cuda_place", tests, open_all);
}
