/* attend of the CUDA module, compared to the bit with the definition of attend in
 * kernels/kernels.h, which this file implements step by step. */
#include "tests/unit/kernel_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "activations.h"

enum { BLOCK = 256 };

struct shape {
    enum tensor_type type;
    uint32_t n_heads, n_kv_heads, k_dim, v_dim;
    bool latent; /* values are the keys' first part */
    uint32_t window;
    bool sinks;
    bool gated, quantized; /* results are multiplied by the sigmoid of a gate; are quantised too */
    float size;            /* of queries and keys */
};

/* Requests with keys and values of all their positions: in the device's cache, and as floats in
 * host memory. */
struct cache {
    struct shape shape;
    struct device_kv kv;
    uint32_t n_slots, positions;
    float *keys, *values; /* [slot][position][kv's of a position]: rounded as in the cache */
};

enum { LAYERS = 2, LAYER = 1 };

static float *random_floats(size_t n, float size, uint64_t *state)
{
    float *f = malloc((n ? n : 1) * sizeof *f);

    for (size_t i = 0; i < n; i++)
        f[i] = random_float(state) * size;
    return f;
}

/* The number of a missing page. */
static const uint64_t no_page = 16;

/* Makes pages in a shuffled order, in two allocations. Entries beyond a slot's positions name no
 * page. */
static uint64_t *shuffled_pages(const struct cache *c, uint32_t pages_a_slot, size_t page_bytes,
                                uint64_t *state)
{
    uint32_t used = (c->positions + DEVICE_PAGE - 1) / DEVICE_PAGE, n = c->n_slots * used;
    uint32_t *order = malloc(n * sizeof *order), half = n / 2;
    uint64_t *pages = malloc(c->n_slots * pages_a_slot * sizeof *pages);
    uint8_t *memory[2] = {on_device((half + 1) * page_bytes),
                          on_device((n - half + 1) * page_bytes)};

    module->fill(stream, memory[0], 0xff, (half + 1) * page_bytes); /* NaNs */
    module->fill(stream, memory[1], 0xff, (n - half + 1) * page_bytes);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t j = (uint32_t)(random_u64(state) % (i + 1));
        order[i] = order[j];
        order[j] = i;
    }
    for (uint32_t i = 0; i < c->n_slots * pages_a_slot; i++) {
        uint32_t place = i % pages_a_slot,
                 page = place < used ? order[i / pages_a_slot * used + place] : 0;
        /* no slot has the first page of either */
        uint8_t *at = page < half ? memory[0] + (page + 1) * page_bytes
                                  : memory[1] + (page - half + 1) * page_bytes;
        pages[i] = place < used ? (uint64_t)(uintptr_t)at : no_page;
    }
    free(order);
    return pages;
}

static uint32_t bytes_of(enum tensor_type type, uint32_t values)
{
    const struct tensor_type_info *info = tensor_type_info(type);

    return values / (uint32_t)info->block_values * (uint32_t)info->block_bytes;
}

/* n values as floats after the definition's kv_write. */
static void round_to_cache(const struct cache *c, float *values, size_t n)
{
    uint8_t block[34];

    for (size_t i = 0; i < n && c->shape.type == TENSOR_F16; i++)
        values[i] = half_to_float(float_to_half(values[i]));
    for (size_t i = 0; i < n && c->shape.type == TENSOR_Q8_0; i += 32) {
        uint16_t d;
        portable->kv_write(TENSOR_Q8_0, values + i, 32, block);
        memcpy(&d, block, sizeof d);
        for (unsigned k = 0; k < 32; k++)
            values[i + k] = half_to_float(d) * (float)(int8_t)block[2 + k];
    }
}

/* Rows of keys and values, as they are, into the cache: one head, which nothing norms or rotates.
 */
static void store(const struct device_kv *kv, const struct device_row *rows, uint32_t n,
                  const float *keys, const float *values)
{
    const struct device_heads whole = {
        .k = to_device(keys, (size_t)n * kv->key_values * sizeof(float)),
        .v = to_device(values, (size_t)n * kv->value_values * sizeof(float)),
        .n_kv_heads = 1,
        .k_dim = kv->key_values,
        .v_dim = kv->value_values};
    module->ops.place_heads(stream, kv, rows, n, &whole);
}

static struct cache make_cache(const struct shape *shape, uint32_t n_slots, uint32_t positions,
                               uint64_t *state)
{
    struct cache c = {.shape = *shape, .n_slots = n_slots, .positions = positions};
    uint32_t keys = shape->n_kv_heads * shape->k_dim,
             values = shape->latent ? keys : shape->n_kv_heads * shape->v_dim;
    uint32_t used = (positions + DEVICE_PAGE - 1) / DEVICE_PAGE, pages_a_slot = used + 3;
    size_t n = (size_t)n_slots * positions;
    size_t layer_bytes =
        (size_t)DEVICE_PAGE *
        (bytes_of(shape->type, keys) + (shape->latent ? 0 : bytes_of(shape->type, values)));
    size_t page_bytes = LAYERS * layer_bytes;
    uint64_t *pages = shuffled_pages(&c, pages_a_slot, page_bytes, state);
    struct device_row *rows = malloc(n * sizeof *rows);

    c.kv = (struct device_kv){.type = shape->type,
                              .rows = shape->latent ? 1 : 2,
                              .key_values = keys,
                              .value_values = values,
                              .key_bytes = bytes_of(shape->type, keys),
                              .pages = to_device(pages, n_slots * pages_a_slot * sizeof *pages),
                              .offset = LAYER * layer_bytes,
                              .pages_a_slot = pages_a_slot};
    c.keys = random_floats(n * keys, shape->size, state);
    c.values = random_floats(n * values, 1, state);
    for (uint32_t i = 0; i < n; i++)
        rows[i] = (struct device_row){i / positions, i % positions};
    store(&c.kv, to_device(rows, n * sizeof *rows), (uint32_t)n, c.keys, c.values);
    finish();
    round_to_cache(&c, c.keys, n * keys);
    round_to_cache(&c, c.values, n * values);
    free(rows);
    free(pages);
    return c;
}

static void free_cache(struct cache *c)
{
    free(c->keys);
    free(c->values);
}

static float fold(float *sum)
{
    for (int width = 8; width > 0; width /= 2)
        for (int i = 0; i < width; i++)
            sum[i] += sum[i + width];
    return sum[0];
}

static float larger(float a, float b)
{
    return a > b ? a : b;
}

/* Positions [first, end) of one block: largest score, sum of shares, values. */
static void attend_block(const struct shape *s, const float *q, const float *keys,
                         const float *values, const struct device_kv *kv, uint32_t n, float *max,
                         float *sum, float *out)
{
    float p[BLOCK], sums[16] = {0};

    for (uint32_t j = 0; j < n; j++) {
        float dot[16] = {0};
        for (uint32_t i = 0; i < s->k_dim; i++)
            dot[i % 16] = fmaf(q[i], keys[j * kv->key_values + i], dot[i % 16]);
        p[j] = fold(dot) * (1.0f / sqrtf((float)s->k_dim));
        *max = j == 0 ? p[j] : larger(*max, p[j]);
    }
    for (uint32_t i = 0; i < s->v_dim; i++)
        out[i] = 0;
    for (uint32_t j = 0; j < n; j++) {
        p[j] = kernels_exp(p[j] - *max);
        sums[j % 16] += p[j];
        for (uint32_t i = 0; i < s->v_dim; i++)
            out[i] = fmaf(p[j], values[j * kv->value_values + i], out[i]);
    }
    *sum = fold(sums);
}

static void attend_defined(const struct cache *c, struct device_row row, uint32_t head,
                           const float *q, const float *sinks, float *out)
{
    const struct shape *s = &c->shape;
    uint32_t end = row.position + 1, first = s->window && end > s->window ? end - s->window : 0;
    uint32_t kv_head = head / (s->n_heads / s->n_kv_heads);
    size_t key = c->kv.key_values, value = c->kv.value_values;
    size_t slot = (size_t)row.slot * c->positions;
    const float *keys = c->keys + slot * key + kv_head * s->k_dim;
    const float *values = s->latent ? keys : c->values + slot * value + kv_head * s->v_dim;
    float max = 0, sum = 0, *block_out = malloc(s->v_dim * sizeof *block_out);

    for (uint32_t at = first; at < end; at = at / BLOCK * BLOCK + BLOCK) {
        uint32_t block_end = at / BLOCK * BLOCK + BLOCK < end ? at / BLOCK * BLOCK + BLOCK : end;
        float block_max = 0, block_sum = 0, merged, a, b;
        attend_block(s, q, keys + at * key, values + at * value, &c->kv, block_end - at, &block_max,
                     &block_sum, block_out);
        merged = at == first ? block_max : larger(max, block_max);
        a = kernels_exp(max - merged);
        b = kernels_exp(block_max - merged);
        for (uint32_t i = 0; i < s->v_dim; i++)
            out[i] = at == first ? block_out[i] : fmaf(out[i], a, block_out[i] * b);
        sum = at == first ? block_sum : fmaf(sum, a, block_sum * b);
        max = merged;
    }
    if (sinks) {
        float merged = larger(max, sinks[head]), a = kernels_exp(max - merged);
        sum = fmaf(sum, a, kernels_exp(sinks[head] - merged));
        for (uint32_t i = 0; i < s->v_dim; i++)
            out[i] *= a;
    }
    for (uint32_t i = 0; i < s->v_dim; i++)
        out[i] /= sum;
    free(block_out);
}

static void check_rows(const struct cache *c, const struct device_row *rows, uint32_t n,
                       uint64_t *state)
{
    const struct shape *s = &c->shape;
    size_t n_q = (size_t)n * s->n_heads * s->k_dim, n_out = (size_t)n * s->n_heads * s->v_dim;
    float *q = random_floats(n_q, s->size, state), *sinks = random_floats(s->n_heads, 3, state);
    float *out = malloc(n_out * sizeof *out), *expected = malloc(n_out * sizeof *expected);
    float *device_out = on_device(n_out * sizeof *out);
    uint32_t most = 0;
    char what[160];

    for (uint32_t t = 0; t < n; t++)
        most = rows[t].position + 1 > most ? rows[t].position + 1 : most;
    size_t scratch = module->ops.attend_scratch_bytes(n, s->n_heads, s->v_dim, most);
    float *gate = s->gated ? random_floats(n_out, 4, state) : NULL;
    const struct device_attention a = {
        .n_heads = s->n_heads,
        .n_kv_heads = s->n_kv_heads,
        .k_dim = s->k_dim,
        .v_dim = s->v_dim,
        .scale = 1.0f / sqrtf((float)s->k_dim),
        .window = s->window,
        .sinks = s->sinks ? to_device(sinks, s->n_heads * sizeof *sinks) : NULL,
        .gate = gate ? to_device(gate, n_out * sizeof *gate) : NULL};
    uint32_t width = s->n_heads * s->v_dim;
    struct device_activations quantized;
    module->ops.activations_bind(&quantized, on_device(module->ops.activations_bytes(width, n)),
                                 width, n, device_out, width, true);
    module->ops.attend(stream, &c->kv, to_device(rows, n * sizeof *rows), n, most,
                       to_device(q, n_q * sizeof *q), &a, device_out,
                       s->quantized ? &quantized : NULL, on_device(scratch));
    from_device(out, device_out, n_out * sizeof *out);
    for (uint32_t t = 0; t < n; t++)
        for (uint32_t h = 0; h < s->n_heads; h++) {
            size_t at = (size_t)t * s->n_heads + h;
            attend_defined(c, rows[t], h, q + at * s->k_dim, s->sinks ? sinks : NULL,
                           expected + at * s->v_dim);
            for (uint32_t i = 0; gate && i < s->v_dim; i++)
                expected[at * s->v_dim + i] /= 1.0f + kernels_exp(-gate[at * s->v_dim + i]);
            snprintf(what, sizeof what,
                     "%s, %u of %u heads, %u x %u, window %u: row %u of %u, position %u, head %u",
                     tensor_type_info(s->type)->name, s->n_kv_heads, s->n_heads, s->k_dim, s->v_dim,
                     s->window, t, n, rows[t].position, h);
            assert_same_floats(out + at * s->v_dim, expected + at * s->v_dim, s->v_dim, what);
        }
    if (s->quantized)
        check_activations(portable, &quantized, expected, width);
    free(gate);
    free(expected);
    free(out);
    free(sinks);
    free(q);
}

/* Each of these positions separately, then all as one batch of two requests. */
static void check_decode(const struct shape *shape, const uint32_t *contexts, uint32_t n)
{
    uint64_t state = 77 + shape->k_dim;
    struct device_row rows[16];
    uint32_t most = 0;

    assert_true(n <= 16);
    for (uint32_t i = 0; i < n; i++)
        most = contexts[i] > most ? contexts[i] : most;
    struct cache c = make_cache(shape, 2, most, &state);
    for (uint32_t i = 0; i < n; i++) {
        rows[i] = (struct device_row){i % 2, contexts[i] - 1};
        check_rows(&c, &rows[i], 1, &state);
    }
    check_rows(&c, rows, n, &state);
    free_cache(&c);
    release_all();
}

/* n rows of one request after `before` positions, then one row of another, then some of a third. */
static void check_prompt(const struct shape *shape, uint32_t before, uint32_t n)
{
    uint64_t state = 99 + n;
    struct cache c = make_cache(shape, 3, before + n + 3, &state);
    struct device_row *rows = malloc((n + 4) * sizeof *rows);

    for (uint32_t t = 0; t < n; t++)
        rows[t] = (struct device_row){2, before + t};
    check_rows(&c, rows, n, &state);
    rows[n] = (struct device_row){0, before};
    for (uint32_t t = n + 1; t < n + 4; t++)
        rows[t] = (struct device_row){1, t - n - 1};
    check_rows(&c, rows, n + 4, &state);
    free(rows);
    free_cache(&c);
    release_all();
}

/* A row's head in float64, and what attend_many may differ by: its rounding of the scaled query, of
 * keys and values of Q8_0 and of shares to FP16 (2^-11 each), where values are at most 1, latent
 * ones at most s->size. An error of d in all scores changes a share by a factor of at most
 * exp(2 d). */
static double attend_exactly(const struct cache *c, struct device_row row, uint32_t head,
                             const float *q, const float *sinks, double *out)
{
    const struct shape *s = &c->shape;
    uint32_t end = row.position + 1, first = s->window && end > s->window ? end - s->window : 0;
    size_t key = c->kv.key_values, value = c->kv.value_values;
    size_t kv_head = head / (s->n_heads / s->n_kv_heads);
    size_t slot = (size_t)row.slot * c->positions;
    const float *keys = c->keys + slot * key + kv_head * s->k_dim;
    const float *values = s->latent ? keys : c->values + slot * value + kv_head * s->v_dim;
    double *score = malloc(end * sizeof *score), scale = 1 / sqrt(s->k_dim);
    double max = sinks ? (double)sinks[head] : -INFINITY, sum = 0, most = 0;

    for (uint32_t j = first; j < end; j++) {
        double size = score[j] = 0;
        for (uint32_t i = 0; i < s->k_dim; i++) {
            double term = scale * (double)q[i] * (double)keys[j * key + i];
            score[j] += term;
            size += fabs(term);
        }
        most = fmax(most, size);
        max = fmax(max, score[j]);
    }
    for (uint32_t i = 0; i < s->v_dim; i++)
        out[i] = 0;
    for (uint32_t j = first; j < end; j++) {
        double share = exp(score[j] - max);
        sum += share;
        for (uint32_t i = 0; i < s->v_dim; i++)
            out[i] += share * (double)values[j * value + i];
    }
    sum += sinks ? exp((double)sinks[head] - max) : 0;
    for (uint32_t i = 0; i < s->v_dim; i++)
        out[i] /= sum;
    free(score);
    double rounding = 0x1p-11, of_scores = most * rounding * (s->type == TENSOR_Q8_0 ? 2 : 1);
    double largest = s->latent ? (double)s->size : 1;
    return largest * (expm1(2 * of_scores) + 2 * rounding) + 1e-5;
}

struct many_rows {
    const struct cache *c;
    const struct device_row *rows;
    const float *q, *sinks; /* device */
};

static void attend_many(const struct many_rows *m, uint32_t first, uint32_t end, float *out)
{
    const struct shape *s = &m->c->shape;
    uint32_t most = m->c->positions;
    size_t scratch = module->ops.attend_scratch_bytes(end - first, s->n_heads, s->v_dim, most);

    const struct device_attention a = {.n_heads = s->n_heads,
                                       .n_kv_heads = s->n_kv_heads,
                                       .k_dim = s->k_dim,
                                       .v_dim = s->v_dim,
                                       .scale = 1.0f / sqrtf((float)s->k_dim),
                                       .window = s->window,
                                       .sinks = m->sinks};
    module->ops.attend_many(stream, &m->c->kv, m->rows + first, end - first, most,
                            m->q + (size_t)first * s->n_heads * s->k_dim, &a,
                            out + (size_t)first * s->n_heads * s->v_dim, NULL, on_device(scratch));
}

/* n rows of one request after `before` positions, then some of another: within the bound, and the
 * same in one call and in two. exact: the shape is none of attend_many's own, so attend's bits. */
static void check_many(const struct shape *s, uint32_t before, uint32_t n, bool exact)
{
    uint64_t state = 99 + n;
    uint32_t all = n + 5;
    struct cache c = make_cache(s, 2, before + n, &state);
    struct device_row *rows = malloc(all * sizeof *rows);
    size_t n_q = (size_t)all * s->n_heads * s->k_dim, n_out = (size_t)all * s->n_heads * s->v_dim;
    float *q = random_floats(n_q, s->size, &state), *sinks = random_floats(s->n_heads, 3, &state);
    float *out = malloc(n_out * sizeof *out), *parts = malloc(n_out * sizeof *parts);
    float *defined = malloc(s->v_dim * sizeof *defined), *device_out = on_device(n_out * 4);
    double *expected = malloc(s->v_dim * sizeof *expected);
    bool differs = false;
    char what[160];

    for (uint32_t t = 0; t < all; t++)
        rows[t] = t < n ? (struct device_row){1, before + t} : (struct device_row){0, t - n};
    struct many_rows m = {&c, to_device(rows, all * sizeof *rows), to_device(q, n_q * sizeof *q),
                          s->sinks ? to_device(sinks, s->n_heads * sizeof *sinks) : NULL};
    attend_many(&m, 0, all, device_out);
    from_device(out, device_out, n_out * sizeof *out);
    attend_many(&m, n / 3, all, device_out);
    attend_many(&m, 0, n / 3, device_out);
    from_device(parts, device_out, n_out * sizeof *out);
    assert_same_floats(parts, out, n_out, "attend_many in two calls");
    for (uint32_t t = 0; t < all; t++)
        for (uint32_t h = 0; h < s->n_heads; h++) {
            size_t at = (size_t)t * s->n_heads + h;
            const float *own = out + at * s->v_dim, *own_sinks = s->sinks ? sinks : NULL;
            double bound = attend_exactly(&c, rows[t], h, q + at * s->k_dim, own_sinks, expected);
            snprintf(what, sizeof what, "%s, %u of %u heads, %u x %u, window %u: row %u, head %u",
                     tensor_type_info(s->type)->name, s->n_kv_heads, s->n_heads, s->k_dim, s->v_dim,
                     s->window, t, h);
            attend_defined(&c, rows[t], h, q + at * s->k_dim, own_sinks, defined);
            differs |= memcmp(own, defined, s->v_dim * sizeof *own) != 0;
            for (uint32_t i = 0; i < s->v_dim && !exact; i++)
                if (!(fabs((double)own[i] - expected[i]) <= bound))
                    fail_msg("%s: value %u is %.9g, not %.9g, which is beyond %.3g", what, i,
                             (double)own[i], expected[i], bound);
        }
    if (differs == exact) /* not computed by tensor cores, or not by attend */
        fail_msg("%s: %s the definition's bits", what, exact ? "not" : "exactly");
    free(expected);
    free(defined);
    free(parts);
    free(out);
    free(sinks);
    free(q);
    free(rows);
    free_cache(&c);
    release_all();
}

#ifdef __SANITIZE_ADDRESS__ /* minutes instead of seconds; it finds the same in fewer */
enum { sanitized = 1 };
static const uint32_t contexts[] = {1, 65, 257, 700};
static const uint32_t prompt_rows[] = {2, 9};
static const uint32_t windows[] = {1, 257};
#else
enum { sanitized = 0 };
static const uint32_t contexts[] = {1, 2, 16, 63, 64, 65, 255, 256, 257, 512, 700, 1000};
static const uint32_t prompt_rows[] = {2, 3, 7, 8, 9, 33, 64, 70};
static const uint32_t windows[] = {1, 16, 128, 255, 256, 257, 600};
#endif
enum { N_CONTEXTS = sizeof contexts / sizeof *contexts };
static const enum tensor_type types[] = {TENSOR_F32, TENSOR_F16};

static void test_decode(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        check_decode(
            &(struct shape){types[i], 8, 2, 64, 64, .size = 1, .gated = i == 0, .quantized = true},
            contexts, N_CONTEXTS);
        check_decode(&(struct shape){types[i], 8, 1, 128, 128, .size = 2}, contexts, N_CONTEXTS);
        check_decode(&(struct shape){types[i], 2, 2, 80, 80, .size = 1, .quantized = true},
                     contexts, N_CONTEXTS);
    }
}

/* Numbers of heads that are no multiple of a tile, dimensions that are no multiple of a vector. */
static void test_odd_shapes(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        check_decode(&(struct shape){types[i], 14, 2, 20, 12, .size = 2}, contexts, N_CONTEXTS);
        check_decode(&(struct shape){types[i], 6, 2, 17, 31, .size = 2}, contexts, N_CONTEXTS);
        check_decode(&(struct shape){types[i], 3, 3, 1, 1, .size = 2}, contexts, N_CONTEXTS);
        check_decode(&(struct shape){types[i], 20, 1, 33, 6, .size = 2}, contexts,
                     N_CONTEXTS * 3 / 4);
        check_prompt(&(struct shape){types[i], 5, 1, 19, 7, .size = 2}, 250, 33);
    }
}

static void test_windows_and_sinks(void **state)
{
    (void)state;
    for (unsigned i = 0; i < sizeof windows / sizeof *windows; i++) {
        struct shape s = {types[i % 2],        8,        2, 32, 32, .window = windows[i],
                          .sinks = i % 3 != 0, .size = 2};
        check_decode(&s, contexts, N_CONTEXTS);
        check_prompt(&s, 500, 33);
    }
}

static void test_latent(void **state)
{
    (void)state;
    static const uint32_t few[] = {1, 255, 256, 257, 600};
    check_decode(&(struct shape){TENSOR_F16, 16, 1, 576, 512, .latent = true, .size = 0.3f}, few,
                 5);
    check_decode(&(struct shape){TENSOR_F32, 20, 1, 576, 512, .latent = true, .size = 0.3f}, few,
                 5);
    check_decode(&(struct shape){TENSOR_F32, 5, 1, 40, 24, .latent = true, .size = 1}, contexts,
                 N_CONTEXTS);
    check_prompt(&(struct shape){TENSOR_F16, 20, 1, 72, 64, .latent = true, .size = 1}, 250, 9);
}

static void test_prompts(void **state)
{
    (void)state;
    for (unsigned i = 0; i < sizeof prompt_rows / sizeof *prompt_rows; i++) {
        check_prompt(&(struct shape){types[i % 2], 8, 2, 32, 32, .size = 2, .gated = true,
                                     .quantized = true},
                     0, prompt_rows[i]);
        check_prompt(&(struct shape){types[i % 2], 4, 4, 24, 24, .size = 2, .gated = true}, 240,
                     prompt_rows[i]);
        check_prompt(&(struct shape){types[(i + 1) % 2], 16, 2, 16, 16, .size = 2, .window = 40},
                     500, prompt_rows[i]);
    }
}

/* Heads of whole blocks of 32, in every way through the kernels: one row and many, grouped and
 * latent, windows, sinks. */
static void test_q8_0(void **state)
{
    (void)state;
    static const uint32_t all[] = {1, 64, 255, 256, 257, 600};
    const uint32_t *few = sanitized ? all + 4 : all, n_few = sanitized ? 2 : 6;
    const enum tensor_type q8 = TENSOR_Q8_0;
    check_decode(&(struct shape){q8, 8, 2, 64, 64, .size = 1}, contexts, N_CONTEXTS);
    check_decode(&(struct shape){q8, 8, 1, 128, 128, .size = 2}, few, n_few);
    check_decode(&(struct shape){q8, 6, 3, 32, 32, .size = 2}, contexts, N_CONTEXTS);
    check_decode(&(struct shape){q8, 14, 2, 96, 32, .size = 1}, few, n_few);
    check_decode(&(struct shape){q8, 16, 1, 576, 512, .latent = true, .size = 0.3f}, few, n_few);
    check_prompt(&(struct shape){q8, 20, 1, 96, 64, .latent = true, .size = 1}, 250, 9);
    check_prompt(&(struct shape){q8, 8, 2, 32, 32, .size = 2}, 0, 70);
    check_prompt(&(struct shape){q8, 16, 2, 32, 32, .size = 2, .window = 40}, 500, 33);
    if (!sanitized)
        check_prompt(&(struct shape){q8, 64, 8, 32, 32, .size = 2, .sinks = true}, 500, 65);
    check_prompt(&(struct shape){q8, 64, 4, 32, 64, .size = 2, .window = 300}, 230, 70);
}

/* The cache returns the values that kv_write keeps: of a large value among small ones, with scales
 * that a half cannot represent, with a scale of 0, and NaN. A row's share of itself is 1. */
static void test_q8_0_scales(void **state)
{
    (void)state;
    static const float largest[] = {0,     1e-45f, 1e-38f, 5e-37f, 3e-7f,    7e-6f,   0.37f,
                                    1.0f,  127.0f, 300.5f, 8e6f,   8.31e6f,  8.33e6f, 1e30f,
                                    3e38f, 0.5f,   -2.5f,  -1e9f,  INFINITY, NAN};
    enum { N = sizeof largest / sizeof *largest, WIDTH = 64 };
    uint64_t random = 5;
    struct cache c = make_cache(
        &(struct shape){TENSOR_Q8_0, 1, 1, WIDTH, WIDTH, .window = 1, .size = 1}, 1, N, &random);
    float *values = malloc(N * WIDTH * sizeof *values), out[N * WIDTH], q[N * WIDTH] = {0};
    struct device_row rows[N];
    char what[64];

    for (uint32_t t = 0; t < N; t++) {
        rows[t] = (struct device_row){0, t};
        for (uint32_t i = 0; i < WIDTH; i++)
            values[t * WIDTH + i] = i % 32 == t ? largest[t] : largest[t] * random_float(&random);
    }
    struct device_row *device_rows = to_device(rows, sizeof rows);
    float *device_out = on_device(sizeof out);
    const struct device_attention a = {
        .n_heads = 1, .n_kv_heads = 1, .k_dim = WIDTH, .v_dim = WIDTH, .scale = 1, .window = 1};
    store(&c.kv, device_rows, N, c.keys, values);
    module->ops.attend(stream, &c.kv, device_rows, N, N, to_device(q, sizeof q), &a, device_out,
                       NULL, on_device(module->ops.attend_scratch_bytes(N, 1, WIDTH, N)));
    from_device(out, device_out, sizeof out);
    round_to_cache(&c, values, N * WIDTH);
    for (uint32_t t = 0; t < N; t++) {
        snprintf(what, sizeof what, "a block of at most %g", (double)largest[t]);
        for (uint32_t i = 0; i < WIDTH; i++) /* 0 + 1 * value is never -0 */
            values[t * WIDTH + i] += 0.0f;
        assert_same_floats(out + t * WIDTH, values + t * WIDTH, WIDTH, what);
    }
    free(values);
    free_cache(&c);
    release_all();
}

/* Enough rows of heads that a block of threads walks through all positions. */
static void test_many_rows(void **state)
{
    (void)state;
    for (int i = sanitized; i < 2; i++) {
        check_prompt(&(struct shape){types[i], 64, 8, 16, 16, .size = 2, .sinks = i == 0,
                                     .gated = true, .quantized = true},
                     500, 65);
        check_prompt(&(struct shape){types[i], 64, 4, 8, 20, .size = 2, .window = 300 * i}, 230,
                     70);
    }
}

/* More blocks than one round of the merge takes; more partial results than scratch holds at a time.
 */
static void test_long_contexts(void **state)
{
    (void)state;
    static const uint32_t two[] = {256 * 128, 256 * 129 + 3};
    check_decode(&(struct shape){TENSOR_F32, 2, 1, 4, 4, .size = 2, .sinks = true}, two, 2);
    uint32_t many[12];
    for (uint32_t i = 0; i < 12; i++)
        many[i] = 33000 - i * 50;
    check_decode(&(struct shape){TENSOR_F16, 128, 1, 4, 128, .size = 2, .window = 300}, many, 12);
}

/* Scores far below and far above an exponential's range, shares of zero, equal shares. */
static void test_extreme_scores(void **state)
{
    (void)state;
    static const float sizes[] = {0, 1e-30f, 40, 1e9f};
    for (unsigned i = 0; i < 4; i++) {
        struct shape s = {types[i % 2], 8, 2, 32, 32, .size = sizes[i], .sinks = true};
        if (sizes[i] > 60000)
            s.type = TENSOR_F32;
        check_decode(&s, contexts, N_CONTEXTS);
        check_prompt(&s, 240, 33);
    }
}

/* Scratch that is enough for a large batch is enough for every smaller one. */
static void test_scratch(void **state)
{
    (void)state;
    for (uint32_t heads = 1; heads <= 128; heads *= 2) {
        size_t most = module->ops.attend_scratch_bytes(2048, heads, 128, 131072);
        for (uint32_t n = 1; n <= 2048; n += n / 3 + 1)
            for (uint32_t positions = 1; positions <= 131072; positions += positions / 5 + 1)
                assert_true(module->ops.attend_scratch_bytes(n, heads, 128, positions) <= most);
    }
}

/* Prompts by tensor cores: whole pages and parts of them, groups of heads that fill tiles or not,
 * dimensions that fill them or not, windows, sinks, Q8_0; and the shapes that go to attend. */
static void test_attend_many(void **state)
{
    (void)state;
    const enum tensor_type f16 = TENSOR_F16, q8 = TENSOR_Q8_0;
    check_many(&(struct shape){f16, 8, 2, 64, 64, .size = 2}, 0, 70, false);
    check_many(&(struct shape){f16, 4, 1, 128, 128, .size = 2}, 60, 9, false);
    check_many(&(struct shape){q8, 7, 1, 64, 32, .size = 2, .sinks = true}, 200, 33, false);
    check_many(&(struct shape){f16, 5, 5, 16, 48, .size = 2, .window = 70}, 130, 40, false);
    check_many(&(struct shape){TENSOR_F32, 4, 2, 32, 32, .size = 2}, 10, 20, true);
    check_many(&(struct shape){f16, 4, 2, 20, 32, .size = 2}, 10, 20, true);
    check_many(&(struct shape){f16, 6, 2, 256, 256, .size = 1, .sinks = true}, 60, 9, false);
    check_many(&(struct shape){q8, 5, 1, 192, 128, .size = 1}, 130, 9, false);
    check_many(&(struct shape){f16, 3, 1, 512, 512, .size = 1}, 90, 6, false);
    check_many(&(struct shape){f16, 2, 1, 528, 512, .size = 1}, 10, 9, true);
    if (sanitized)
        return;
    check_many(&(struct shape){f16, 64, 1, 96, 112, .size = 2}, 63, 4, false);
    check_many(&(struct shape){f16, 80, 1, 32, 32, .size = 2, .sinks = true}, 127, 3, false);
    check_many(&(struct shape){q8, 8, 2, 128, 128, .size = 1, .window = 64}, 300, 66, false);
    check_many(&(struct shape){f16, 4, 2, 64, 64, .size = 10, .window = 3}, 64, 66, false);
    check_many(&(struct shape){f16, 70, 1, 144, 208, .size = 1, .window = 33}, 70, 40, false);
    check_many(&(struct shape){f16, 8, 2, 256, 256, .size = 5, .window = 100}, 190, 70, false);
    check_many(&(struct shape){q8, 8, 2, 512, 256, .size = 1, .window = 40}, 100, 33, false);
}

/* Latent attention of prompts: DeepSeek's dimensions, more heads than a tile has, and dimensions
 * that leave some of the warps without work. */
static void test_attend_many_latent(void **state)
{
    (void)state;
    const enum tensor_type f16 = TENSOR_F16, q8 = TENSOR_Q8_0;
    check_many(&(struct shape){f16, 5, 1, 576, 512, .latent = true, .size = 1}, 60, 9, false);
    check_many(&(struct shape){q8, 40, 1, 96, 64, .latent = true, .size = 1}, 30, 4, false);
    check_many(&(struct shape){f16, 3, 1, 48, 16, .latent = true, .size = 2}, 5, 70, false);
    check_many(&(struct shape){f16, 4, 1, 584, 512, .latent = true, .size = 1}, 10, 9, true);
    if (sanitized)
        return;
    check_many(&(struct shape){q8, 20, 1, 576, 512, .latent = true, .size = 1}, 95, 34, false);
    check_many(&(struct shape){f16, 2, 1, 320, 256, .latent = true, .size = 2, .window = 50}, 96,
               66, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decode),
        cmocka_unit_test(test_odd_shapes),
        cmocka_unit_test(test_windows_and_sinks),
        cmocka_unit_test(test_latent),
        cmocka_unit_test(test_prompts),
        cmocka_unit_test(test_q8_0),
        cmocka_unit_test(test_q8_0_scales),
        cmocka_unit_test(test_many_rows),
        cmocka_unit_test(test_long_contexts),
        cmocka_unit_test(test_extreme_scores),
        cmocka_unit_test(test_scratch),
        cmocka_unit_test(test_attend_many),
        cmocka_unit_test(test_attend_many_latent),
    };
    return run_group("cuda_attention", tests, open_all);
}
