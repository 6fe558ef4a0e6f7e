/* Recurrent layers of the CUDA module, compared to the bit with the portable kernels: gated
 * DeltaNet and short convolutions of several slots, in one piece as in odd pieces, and where a
 * guard stops them. */
#include "kernels/decay.h"
#include "tests/unit/kernel_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "activations.h"

enum { SLOTS = 3, MOST_ROWS = 80 };

static const float l2_eps = 1e-6f, eps = 1e-5f;

struct shape {
    uint32_t k_heads, v_heads, k_dim, v_dim, taps;
    bool grouped, paired;
};

static float *drawn(size_t n, float size, uint64_t seed)
{
    uint64_t state = seed * 2 + 1;
    float *f = malloc(n * sizeof *f);
    for (size_t i = 0; i < n; i++)
        f[i] = size * random_float(&state);
    return f;
}

/* The weights of a layer, in host memory and on the device. */
struct layer {
    struct shape s;
    uint32_t channels, values;
    size_t state_floats;
    float *conv, *dt, *a, *norm;
    struct device_delta device;
};

static struct layer make_layer(struct shape s)
{
    struct layer l = {.s = s,
                      .channels = 2 * s.k_heads * s.k_dim + s.v_heads * s.v_dim,
                      .values = s.v_heads * s.v_dim};
    l.state_floats = (s.taps - 1) * l.channels + s.v_heads * delta_state_floats(s.k_dim, s.v_dim);
    l.conv = drawn((size_t)l.channels * s.taps, 1, 1);
    l.dt = drawn(s.v_heads, 2, 2);
    l.a = drawn(s.v_heads, 1, 3);
    for (uint32_t i = 0; i < s.v_heads; i++)
        l.a[i] = -fabsf(l.a[i]) * (i % 3 == 2 ? 40.0f : 1.0f); /* some forget at once */
    l.norm = drawn(s.v_dim, 1, 4);
    l.device = (struct device_delta){
        .k_heads = s.k_heads,
        .v_heads = s.v_heads,
        .k_dim = s.k_dim,
        .v_dim = s.v_dim,
        .taps = s.taps,
        .grouped = s.grouped,
        .conv = to_device(l.conv, (size_t)l.channels * s.taps * sizeof *l.conv),
        .dt = to_device(l.dt, s.v_heads * sizeof *l.dt),
        .a = to_device(l.a, s.v_heads * sizeof *l.a),
        .q_scale = 1.0f / (float)s.k_dim,
        .k_scale = 1.0f / sqrtf((float)s.k_dim),
        .l2_eps = l2_eps / (float)s.k_dim,
        .norm = to_device(l.norm, s.v_dim * sizeof *l.norm),
        .eps = eps,
        .placed = on_device((size_t)MOST_ROWS * l.channels * sizeof(float)),
        .rates = on_device((size_t)MOST_ROWS * 2 * s.v_heads * sizeof(float))};
    return l;
}

static void free_layer(struct layer *l)
{
    free(l->norm);
    free(l->a);
    free(l->dt);
    free(l->conv);
}

/* The values of a batch's rows. */
struct batch {
    uint32_t n;
    struct device_row rows[MOST_ROWS];
    float *qkv, *z, *beta, *alpha;
    float *out; /* expected */
};

static struct batch make_batch(const struct layer *l, uint64_t seed)
{
    size_t n = MOST_ROWS, heads = l->s.v_heads;
    return (struct batch){.qkv = drawn(n * l->channels, 2, seed),
                          .z = drawn(n * l->values, 3, seed + 1),
                          .beta = drawn(n * 2 * heads, 3, seed + 2),
                          .alpha = drawn(n * heads, 3, seed + 3),
                          .out = malloc(n * l->values * sizeof(float))};
}

static void free_batch(struct batch *b)
{
    free(b->out);
    free(b->alpha);
    free(b->beta);
    free(b->z);
    free(b->qkv);
}

/* ---- What is expected: worker/forward/dense_host_recurrent.c, a row at a time ---- */

static void expect_head(const struct layer *l, const struct batch *b, uint32_t t, uint32_t head,
                        const float *x, float *state)
{
    const struct shape *s = &l->s;
    uint32_t group = s->v_heads / s->k_heads, keys = s->k_heads * s->k_dim;
    uint32_t key = s->grouped ? head / group : head % s->k_heads;
    size_t at = (size_t)t * s->v_heads + head;
    size_t pair = (size_t)t * 2 * s->v_heads + head / group * 2 * group + head % group;
    float beta = s->paired ? b->beta[pair] : b->beta[at];
    float alpha = s->paired ? b->beta[pair + group] : b->alpha[at];
    float decay = decay_of(l->a[head], alpha, l->dt[head]);
    float *out = b->out + at * s->v_dim;
    beta = 1.0f / (1.0f + kernels_exp(-beta));
    struct delta_rows rows = {.q = x + key * s->k_dim,
                              .k = x + keys + key * s->k_dim,
                              .v = x + 2 * keys + head * s->v_dim,
                              .decay = &decay,
                              .beta = &beta,
                              .out = out};
    portable->delta(state + (s->taps - 1) * l->channels +
                        head * delta_state_floats(s->k_dim, s->v_dim),
                    s->k_dim, s->v_dim, b->rows[t].position, &rows, 1);
    portable->rms_norm(out, l->norm, eps, s->v_dim, out);
    portable->gated((struct gating){.activation = ACTIVATION_SILU}, b->z + at * s->v_dim, out, out,
                    s->v_dim);
}

static void expect_row(const struct layer *l, const struct batch *b, uint32_t t, float *state)
{
    const struct shape *s = &l->s;
    float *x = malloc(l->channels * sizeof *x);
    float *scales[2] = {malloc(s->k_dim * sizeof(float)), malloc(s->k_dim * sizeof(float))};
    memcpy(x, b->qkv + (size_t)t * l->channels, l->channels * sizeof *x);
    if (b->rows[t].position == 0)
        memset(state, 0, l->state_floats * sizeof *state);
    portable->convolve(l->conv, NULL, s->taps, l->channels, state, l->channels, x, l->channels, 1,
                       true);
    for (uint32_t i = 0; i < s->k_dim; i++) {
        scales[0][i] = l->device.q_scale;
        scales[1][i] = l->device.k_scale;
    }
    for (uint32_t i = 0; i < 2 * s->k_heads; i++)
        portable->rms_norm(x + i * s->k_dim, scales[i / s->k_heads], l2_eps / (float)s->k_dim,
                           s->k_dim, x + i * s->k_dim);
    for (uint32_t head = 0; head < s->v_heads; head++)
        expect_head(l, b, t, head, x, state);
    free(scales[1]);
    free(scales[0]);
    free(x);
}

/* ---- The device ---- */

static struct device_recurrent rows_on_device(const struct batch *b, float *states,
                                              size_t slot_floats)
{
    struct device_run runs[SLOTS] = {{0, 0}};
    uint32_t n_runs = 0;
    for (uint32_t t = 0; t < b->n; t++) {
        if (t == 0 || b->rows[t].slot != b->rows[t - 1].slot)
            runs[n_runs++] = (struct device_run){t, 0};
        runs[n_runs - 1].n++;
    }
    return (struct device_recurrent){.states = states,
                                     .slot_floats = slot_floats,
                                     .rows = to_device(b->rows, b->n * sizeof *b->rows),
                                     .runs = to_device(runs, sizeof runs),
                                     .n_runs = SLOTS};
}

/* Computes the batch in calls of `part` rows, and compares. */
static void check_batch(struct layer *l, const struct batch *b, float *states, uint32_t part)
{
    const struct shape *s = &l->s;
    size_t size = b->n * sizeof(float);
    struct device_delta d = l->device;
    struct device_activations a;
    struct device_recurrent r = rows_on_device(b, states, l->state_floats);
    float *got = malloc(size * l->values);
    d.qkv = to_device(b->qkv, size * l->channels);
    d.z = to_device(b->z, size * l->values);
    d.beta = to_device(b->beta, size * 2 * s->v_heads);
    d.alpha = s->paired ? NULL : to_device(b->alpha, size * s->v_heads);
    d.out = on_device(size * l->values);
    module->ops.activations_bind(&a, on_device(module->ops.activations_bytes(l->values, b->n)),
                                 l->values, b->n, d.out, l->values, true);
    for (r.first = 0; r.first < b->n; r.first += r.n) {
        r.n = b->n - r.first < part ? b->n - r.first : part;
        module->ops.delta(stream, &r, &d, &a);
    }
    from_device(got, d.out, size * l->values);
    assert_same_floats(got, b->out, (size_t)b->n * l->values, "delta");
    check_activations(portable, &a, b->out, l->values);
    free(got);
}

/* A stopped call changes no state, so that the same rows give the same values afterwards. */
static void stop_batch(struct layer *l, const struct batch *b, float *states)
{
    const uint32_t one = 1;
    size_t size = b->n * sizeof(float);
    struct device_delta d = l->device;
    struct device_recurrent r = rows_on_device(b, states, l->state_floats);
    d.qkv = to_device(b->qkv, size * l->channels);
    d.z = to_device(b->z, size * l->values);
    d.beta = to_device(b->beta, size * 2 * l->s.v_heads);
    d.alpha = l->s.paired ? NULL : to_device(b->alpha, size * l->s.v_heads);
    d.out = on_device(size * l->values);
    r.n = b->n;
    module->guard(stream, to_device(&one, sizeof one));
    module->ops.delta(stream, &r, &d, NULL);
    module->guard(stream, NULL);
    finish();
}

/* rows[i] positions of slot i; next: their first positions, which are moved on. */
static void fill_rows(struct batch *b, const uint32_t *rows, uint32_t *next)
{
    b->n = 0;
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        for (uint32_t i = 0; i < rows[slot]; i++)
            b->rows[b->n++] = (struct device_row){slot, next[slot]++};
}

static void check_delta(struct shape s)
{
    static const uint32_t sizes[][SLOTS] = {{1, 1, 1},   {2, 0, 14},  {5, 16, 1},
                                            {0, 33, 17}, {1, 0, 1},   {9, 31, 0},
                                            {1, 1, 1},   {40, 1, 16}, {0, 2, 1}};
    static const uint32_t parts[] = {MOST_ROWS, MOST_ROWS, 7, 20, 1, MOST_ROWS, 2, MOST_ROWS, 3};
    struct layer l = make_layer(s);
    uint32_t next[SLOTS] = {0, 0, 0};
    float *expected = malloc(SLOTS * l.state_floats * sizeof(float));
    float *states = on_device(SLOTS * l.state_floats * sizeof(float));
    module->fill(stream, states, 0xff, SLOTS * l.state_floats * sizeof(float)); /* NaN */
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct batch b = make_batch(&l, 10 * i);
        if (i == 6)
            next[1] = 0; /* another request */
        fill_rows(&b, sizes[i], next);
        for (uint32_t t = 0; t < b.n; t++)
            expect_row(&l, &b, t, expected + b.rows[t].slot * l.state_floats);
        stop_batch(&l, &b, states);
        check_batch(&l, &b, states, parts[i]);
        free_batch(&b);
    }
    free(expected);
    free_layer(&l);
    release_all();
}

static void test_delta(void **state)
{
    (void)state;
    check_delta((struct shape){2, 4, 12, 16, 4, true, true});
    check_delta((struct shape){2, 6, 16, 8, 4, false, false});
    check_delta((struct shape){1, 2, 128, 128, 4, true, false});
    check_delta((struct shape){2, 2, 40, 72, 2, false, true});
    check_delta((struct shape){1, 3, 64, 96, 8, false, false});
}

static void test_short_convolution(void **state)
{
    enum { WIDTH = 300, TAPS = 3 };
    static const uint32_t sizes[][SLOTS] = {{1, 2, 0}, {3, 1, 40}, {1, 1, 1}, {0, 7, 2}};
    float *weights = drawn(WIDTH * TAPS, 1, 1), *past = calloc(SLOTS * TAPS * WIDTH, sizeof *past);
    size_t state_floats = (TAPS - 1) * WIDTH;
    float *states = on_device(SLOTS * state_floats * sizeof(float));
    uint32_t next[SLOTS] = {0, 0, 0};
    (void)state;
    module->fill(stream, states, 0xff, SLOTS * state_floats * sizeof(float));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct batch b = {.n = 0};
        float *in = drawn((size_t)MOST_ROWS * 3 * WIDTH, 2, i), out[WIDTH], got[WIDTH];
        fill_rows(&b, sizes[i], next);
        struct device_recurrent r = rows_on_device(&b, states, state_floats);
        struct device_short_convolution c = {
            .width = WIDTH,
            .taps = TAPS,
            .in = to_device(in, (size_t)b.n * 3 * WIDTH * sizeof *in),
            .weights = to_device(weights, WIDTH * TAPS * sizeof *weights),
            .out = on_device((size_t)b.n * WIDTH * sizeof(float))};
        for (r.first = 0; r.first < b.n; r.first += r.n) {
            r.n = i % 2 && b.n - r.first > 5 ? 5 : b.n - r.first;
            module->ops.short_convolution(stream, &r, &c);
        }
        for (uint32_t t = 0; t < b.n; t++) {
            const float *row = in + (size_t)t * 3 * WIDTH;
            for (uint32_t k = 0; k < WIDTH; k++)
                out[k] = row[k] * row[2 * WIDTH + k];
            portable->convolve(weights, NULL, TAPS, WIDTH, past + b.rows[t].slot * state_floats,
                               WIDTH, out, WIDTH, 1, false);
            for (uint32_t k = 0; k < WIDTH; k++)
                out[k] *= row[WIDTH + k];
            from_device(got, c.out + (size_t)t * WIDTH, sizeof got);
            assert_same_floats(got, out, WIDTH, "short convolution");
        }
        free(in);
    }
    free(past);
    free(weights);
    release_all();
}

static void test_split(void **state)
{
    enum { ROWS = 3, PARTS = 5, A = 7, B = 300 };
    float *from = drawn(ROWS * PARTS * (A + B), 1, 1), a[ROWS][PARTS][A], b[ROWS][PARTS + 1][B];
    float *device_a = on_device(sizeof a), *device_b = on_device(sizeof b);
    const struct device_split to = {
        .n_parts = PARTS,
        .n_to = 2,
        .to = {{device_a, A, sizeof a[0] / sizeof(float)}, {device_b, B, (PARTS + 1) * B}}};
    (void)state;
    module->ops.split(stream, to_device(from, ROWS * PARTS * (A + B) * sizeof *from), ROWS, &to);
    from_device(a, device_a, sizeof a);
    from_device(b, device_b, sizeof b);
    for (size_t t = 0; t < ROWS; t++)
        for (size_t p = 0; p < PARTS; p++) {
            const float *part = from + (t * PARTS + p) * (A + B);
            assert_same_floats(a[t][p], part, A, "split, first");
            assert_same_floats(b[t][p], part + A, B, "split, second");
        }
    free(from);
    release_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_short_convolution),
        cmocka_unit_test(test_delta),
    };
    return run_group("cuda_recurrent", tests, open_all);
}
