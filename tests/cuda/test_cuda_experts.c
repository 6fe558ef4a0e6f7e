/* experts of the CUDA module, compared to the bit with exec_experts on the portable kernels; tasks
 * that may round otherwise, within a bound. */
#include "exec/exec.h"
#include "tests/unit/kernel_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "on_device.h"

struct shape {
    enum tensor_type gate, up, down;
    uint32_t d_model, width, n_segments;
    bool biased;
    const char *arch; /* for its activation */
};

/* Segments with random weights, contiguous for each expert, in host memory and on the device. */
struct segments {
    struct pool_slabs slabs;
    struct pool_map map;
    uint8_t *memory, *on_it;
};

static void put_matrix(enum tensor_type type, uint32_t rows, uint32_t cols, uint64_t seed,
                       uint8_t *to)
{
    uint8_t *file = random_rows(type, rows, cols, WEIGHTS_USUAL, seed);
    struct matrix m = tiles_of(type, rows, cols, file);

    multiply_factors(&m, 1 + (float)(seed % 7) / 8);
    memcpy(to, m.tiles, tile_matrix_bytes(type, rows, cols));
    free((void *)m.tiles);
    free(file);
}

static void put_segment(const struct pool_slabs *s, uint64_t seed, uint8_t *to)
{
    struct expert_segment at = pool_segment_at(s, to);
    uint64_t state = seed + 1;

    if (at.gate.tiles)
        put_matrix(at.gate.type, at.gate.rows, at.gate.cols, 3 * seed, (uint8_t *)at.gate.tiles);
    put_matrix(at.up.type, at.up.rows, at.up.cols, 3 * seed + 1, (uint8_t *)at.up.tiles);
    put_matrix(at.down.type, at.down.rows, at.down.cols, 3 * seed + 2, (uint8_t *)at.down.tiles);
    for (uint32_t i = 0; at.gate_bias && i < 2 * s->segment_width; i++)
        ((float *)at.gate_bias)[i] = random_float(&state);
}

/* Filled in place: map borrows slabs. */
static void make_segments(struct segments *s, const struct shape *shape, uint32_t n_experts)
{
    s->map = (struct pool_map){.slabs = &s->slabs};
    s->map.params.arch = architecture_find(shape->arch, strlen(shape->arch));
    assert_non_null(s->map.params.arch);
    uint64_t gate = tile_matrix_bytes(shape->gate, shape->width, shape->d_model);
    uint64_t up = tile_matrix_bytes(shape->up, shape->width, shape->d_model);
    uint64_t down = tile_matrix_bytes(shape->down, shape->d_model, shape->width);
    uint64_t biases = shape->biased ? (2 * sizeof(float) * shape->width + 63) / 64 * 64 : 0;

    if (!activation_has_gate(s->map.params.arch->activation))
        gate = 0;
    s->slabs = (struct pool_slabs){.n_experts = n_experts,
                                   .n_segments = shape->n_segments,
                                   .segment_width = shape->width,
                                   .d_model = shape->d_model,
                                   .gate_type = shape->gate,
                                   .up_type = shape->up,
                                   .down_type = shape->down,
                                   .up_offset = gate,
                                   .down_offset = gate + up,
                                   .bias_offset = shape->biased ? gate + up + down : 0,
                                   .segment_bytes = gate + up + down + biases};
    s->slabs.slab_bytes = shape->n_segments * s->slabs.segment_bytes;
    size_t bytes = n_experts * s->slabs.slab_bytes;
    s->memory = aligned_alloc(TILE_ALIGN, bytes);
    assert_non_null(s->memory);
    for (uint32_t i = 0; i < n_experts * shape->n_segments; i++)
        put_segment(&s->slabs, i + 1, s->memory + i * s->slabs.segment_bytes);
    s->on_it = to_device(s->memory, bytes);
}

static struct device_segments layout_of(const struct segments *s)
{
    return (struct device_segments){.d_model = s->slabs.d_model,
                                    .width = s->slabs.segment_width,
                                    .gate_type = s->slabs.gate_type,
                                    .up_type = s->slabs.up_type,
                                    .down_type = s->slabs.down_type,
                                    .up_offset = s->slabs.up_offset,
                                    .down_offset = s->slabs.down_offset,
                                    .bias_offset = s->slabs.bias_offset,
                                    .activation = s->map.params.arch->activation};
}

/* A task for both sides: segments [first, first + n) of an expert for some tokens. */
struct wanted {
    uint32_t expert, first, n_segments, n_tokens;
    const uint32_t *tokens;
    bool continues;
    bool rounds; /* on the device */
};

static void on_host(const struct segments *s, const struct inputs_of *in,
                    const struct wanted *wanted, uint32_t n, uint32_t n_task_rows, float *rows)
{
    struct expert_task *tasks = calloc(n, sizeof *tasks);
    struct exec_limits limits = {in->a.n_tokens, in->a.cols, n_task_rows, s->slabs.segment_width};
    struct pool *pool;
    struct exec *x;
    struct error e;

    check_code(pool_new("test", 1, false, 0, &pool, &e), &e);
    check_code(exec_new(pool, &limits, false, &x, &e), &e);
    for (uint32_t i = 0; i < n; i++) {
        const struct wanted *w = &wanted[i];
        tasks[i] = (struct expert_task){.expert = w->expert,
                                        .first_segment = w->first,
                                        .n_segments = w->n_segments,
                                        .n_tokens = w->n_tokens,
                                        .tokens = w->tokens,
                                        .out = rows,
                                        .output = w->continues ? EXPERT_CONTINUE : EXPERT_SUM,
                                        .slab = s->memory + w->expert * s->slabs.slab_bytes};
        rows += (size_t)w->n_tokens * s->slabs.d_model;
    }
    exec_experts(x, &s->map, 0, &in->a, tasks, n);
    exec_free(x);
    pool_free(pool);
    free(tasks);
}

static void on_it(const struct segments *s, const struct device_activations *in,
                  const struct wanted *wanted, uint32_t n, uint32_t n_segments,
                  uint32_t n_task_rows, float *rows)
{
    struct device_expert_task *tasks = calloc(n, sizeof *tasks);
    const void **places = calloc(n_segments + 1, sizeof *places), **next = places;
    struct device_segments layout = layout_of(s);
    uint32_t row = 0;

    for (uint32_t i = 0; i < n; i++) {
        const struct wanted *w = &wanted[i];
        const uint8_t *slab = s->on_it + w->expert * s->slabs.slab_bytes;
        tasks[i] = (struct device_expert_task){
            w->n_segments, w->n_tokens, next, w->tokens, row, w->continues, w->rounds,
        };
        for (uint32_t k = 0; k < w->n_segments; k++)
            *next++ = slab + (w->first + k) * s->slabs.segment_bytes;
        row += w->n_tokens;
    }
    void *scratch = on_device(module->ops.experts_scratch_bytes(&layout, n_segments, n_task_rows));
    module->ops.experts(stream, &layout, in, tasks, n, rows, scratch);
    memset(tasks, 0xff, n * sizeof *tasks); /* the call has read it before it returned */
    memset(places, 0xff, n_segments * sizeof *places);
    free(tasks);
    free(places);
}

/* The rows of some tasks, by both sides. */
struct results {
    float *expected, *got;
    size_t values;
};

static struct results compute(const struct segments *s, const struct inputs_of *in,
                              const struct device_activations *a, const struct wanted *wanted,
                              uint32_t n)
{
    uint32_t n_rows = 0, n_segments = 0, n_task_rows = 0;
    struct results r;

    for (uint32_t i = 0; i < n; i++) {
        n_rows += wanted[i].n_tokens;
        n_segments += wanted[i].n_segments;
        n_task_rows += wanted[i].n_segments * wanted[i].n_tokens;
    }
    r.values = ((size_t)n_rows + 1) * s->slabs.d_model; /* a row more, which stays */
    r.expected = malloc(r.values * sizeof *r.expected);
    r.got = malloc(r.values * sizeof *r.got);
    uint64_t state = 77;
    for (size_t i = 0; i < r.values; i++)
        r.expected[i] = random_float(&state);
    float *rows = to_device(r.expected, r.values * sizeof *rows);
    on_host(s, in, wanted, n, n_task_rows, r.expected);
    on_it(s, a, wanted, n, n_segments, n_task_rows, rows);
    from_device(r.got, rows, r.values * sizeof *rows);
    return r;
}

static void free_results(struct results *r)
{
    free(r->got);
    free(r->expected);
}

static void check(const struct segments *s, const struct inputs_of *in,
                  const struct device_activations *a, const struct wanted *wanted, uint32_t n)
{
    struct results r = compute(s, in, a, wanted, n);
    assert_same_floats(r.got, r.expected, r.values, tensor_type_info(s->slabs.gate_type)->name);
    free_results(&r);
}

static void check_shape(const struct shape *shape)
{
    enum { TOKENS = 43, EXPERTS = 4 };
    static const uint32_t few[] = {41, 3, 17}, one[] = {42}, other[] = {0};
    uint32_t all[TOKENS], last = shape->n_segments - 1;
    struct segments s;
    struct inputs_of in = make_inputs(kernels_get(), shape->d_model, TOKENS, INPUTS_USUAL, 5);
    struct device_activations a;

    for (uint32_t i = 0; i < TOKENS; i++)
        all[i] = i * 16 % TOKENS;
    make_segments(&s, shape, EXPERTS);
    float *x = to_device(in.x, TOKENS * in.a.x_stride * sizeof *x);
    void *memory = on_device(module->ops.activations_bytes(shape->d_model, TOKENS));
    module->ops.activations_bind(&a, memory, shape->d_model, TOKENS, x, in.a.x_stride, true);
    module->ops.quantize(stream, &a);

    /* a decoded token; some for each; a part of the segments, onto others' sums; one expert's,
     * twice */
    const struct wanted decode[] = {{0, 0, shape->n_segments, 1, one, false, false},
                                    {2, 0, shape->n_segments, 1, one, false, false}};
    const struct wanted some[] = {{3, 0, shape->n_segments, 3, few, false, false},
                                  {1, last, 1, 1, other, true, false},
                                  {0, 0, 1, TOKENS, all, false, false},
                                  {2, last, 1, 9, all, false, false},
                                  {2, 0, shape->n_segments, 8, all + 3, true, false}};
    check(&s, &in, &a, decode, 2);
    check(&s, &in, &a, some, 5);
    check(&s, &in, &a, some + 1, 1);
    check(&s, &in, &a, some, 0);
    release_all();
    free(s.memory);
    free_inputs(&in);
}

/* Every type as gate, up and down; several segments, and a single one. */
static void test_types(void **state)
{
    (void)state;
    for (int t = 0; t < N_COMPUTED_TYPES; t++) {
        enum tensor_type type = computed_types[t];
        uint32_t block = tensor_type_info(type)->block_values;
        uint32_t width = block == 1 ? 48 : block == 32 ? 96 : 256;
        check_shape(
            &(struct shape){type, type, type, block == 1 ? 300 : 512, width, 3, t % 2, "qwen3moe"});
        check_shape(&(struct shape){type, type, type, block == 1 ? 77 : 256, width, 1, t % 2 == 0,
                                    "gpt-oss"});
    }
}

/* Gate and up of one type, down of another, as in files; and three types. */
static void test_mixed_types(void **state)
{
    static const struct shape shapes[] = {
        {TENSOR_Q4_K, TENSOR_Q4_K, TENSOR_Q6_K, 768, 512, 3, false, "qwen3moe"},
        {TENSOR_Q4_K, TENSOR_Q5_K, TENSOR_Q8_0, 256, 64, 3, true, "gpt-oss"},
        {TENSOR_F32, TENSOR_Q8_0, TENSOR_BF16, 288, 32, 2, true, "qwen3moe"},
        {TENSOR_Q8_0, TENSOR_F16, TENSOR_IQ4_NL, 2080, 32, 16, false, "gpt-oss"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_shape(&shapes[i]);
}

/* Up and down alone, with the activation that takes no gate. */
static void test_no_gate(void **state)
{
    static const struct shape shapes[] = {
        {TENSOR_Q4_K, TENSOR_Q4_K, TENSOR_Q6_K, 768, 512, 3, false, "nemotron_h_moe"},
        {TENSOR_Q5_0, TENSOR_Q5_0, TENSOR_Q8_0, 288, 64, 1, false, "nemotron_h_moe"},
        {TENSOR_F32, TENSOR_F32, TENSOR_F32, 77, 48, 2, false, "nemotron_h_moe"},
        {TENSOR_BF16, TENSOR_BF16, TENSOR_Q4_0, 256, 32, 2, false, "nemotron_h_moe"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_shape(&shapes[i]);
}

/* More tasks, and more tokens of one task, than a pass takes. */
static void test_many(void **state)
{
    enum { TOKENS = 9000, TASKS = 700 };
    static const struct shape shape = {TENSOR_F32, TENSOR_F32, TENSOR_Q8_0, 16,
                                       32,         2,          false,       "qwen3moe"};
    struct segments s;
    struct inputs_of in = make_inputs(kernels_get(), 16, TOKENS, INPUTS_USUAL, 5);
    struct device_activations a;
    uint32_t *tokens = malloc(TOKENS * sizeof *tokens);
    struct wanted *tasks = calloc(TASKS, sizeof *tasks);

    (void)state;
    make_segments(&s, &shape, 2);
    for (uint32_t i = 0; i < TOKENS; i++)
        tokens[i] = i * 7 % TOKENS;
    float *x = to_device(in.x, TOKENS * in.a.x_stride * sizeof *x);
    module->ops.activations_bind(&a, NULL, 16, TOKENS, x, in.a.x_stride, false);
    check(&s, &in, &a, &(struct wanted){1, 0, 2, TOKENS, tokens, false, false}, 1);
    /* kept in exec_experts' limit of parts a pass by one segment each */
    for (uint32_t i = 0; i < TASKS; i++)
        tasks[i] = (struct wanted){i % 2,      i % 2,      1,    1 + i % 3 * (i % 5 == 0),
                                   tokens + i, i % 7 == 0, false};
    tasks[100].n_tokens = 0;
    tasks[TASKS - 1].n_tokens = 4500;
    check(&s, &in, &a, tasks, TASKS);
    release_all();
    free(tasks);
    free(tokens);
    free(s.memory);
    free_inputs(&in);
}

/* ---- Tasks that may round otherwise ---- */

struct rounding {
    struct shape shape;
    double bound; /* of the error's root mean square, relative to that of the values; 0: exact */
};

/* The results of `rows` rows from row `first` on. */
static void check_error(const struct results *r, uint32_t first, uint32_t rows, uint32_t d,
                        double bound)
{
    double square = 0, error = 0, most = 0;
    const float *got = r->got + (size_t)first * d, *expected = r->expected + (size_t)first * d;

    for (size_t i = 0; i < (size_t)rows * d; i++) {
        double difference = fabs((double)got[i] - expected[i]);
        assert_true(isfinite(got[i]));
        square += (double)expected[i] * expected[i];
        error += difference * difference;
        most = difference > most ? difference : most;
    }
    if (bound == 0) {
        assert_true(error == 0);
        return;
    }
    assert_true(error > 0); /* else tensor cores have not computed them */
    assert_true(sqrt(error / square) < bound);
    assert_true(most < 8 * bound * sqrt(square / ((double)rows * d)));
}

static void check_rounding(const struct rounding *c)
{
    enum { TOKENS = 70, EXPERTS = 4, FEW = 7, SOME = 9 };
    const struct shape *shape = &c->shape;
    uint32_t all[TOKENS], d = shape->d_model, n = shape->n_segments;
    struct segments s;
    struct inputs_of in = make_inputs(kernels_get(), d, TOKENS, INPUTS_USUAL, 5);
    struct device_activations a;

    for (uint32_t i = 0; i < TOKENS; i++)
        all[i] = i;
    make_segments(&s, shape, EXPERTS);
    float *x = to_device(in.x, TOKENS * in.a.x_stride * sizeof *x);
    void *memory = on_device(module->ops.activations_bytes(d, TOKENS));
    module->ops.activations_bind(&a, memory, d, TOKENS, x, in.a.x_stride, true);
    module->ops.quantize(stream, &a);

    /* many tokens; too few; a part of the segments; not of a group; onto others' sums */
    const struct wanted tasks[] = {{3, 0, n, TOKENS, all, false, true},
                                   {1, 0, n, FEW, all + 3, false, true},
                                   {0, n - 1, 1, SOME, all + 20, false, true},
                                   {2, 0, n, SOME, all, false, false},
                                   {2, 0, 1, SOME, all + 40, true, true}};
    const uint32_t rows[] = {TOKENS, FEW, SOME, SOME, SOME};
    struct results together = compute(&s, &in, &a, tasks, 5);
    for (uint32_t i = 0, first = 0; i < 5; first += rows[i++]) {
        check_error(&together, first, rows[i], d, i % 2 == 0 ? c->bound : 0);
        struct results alone = compute(&s, &in, &a, &tasks[i], 1);
        if (!tasks[i].continues) /* the same bits whatever else is computed */
            assert_same_floats(alone.got, together.got + (size_t)first * d, (size_t)rows[i] * d,
                               "alone");
        free_results(&alone);
    }
    free_results(&together);
    release_all();
    free(s.memory);
    free_inputs(&in);
}

/* An input of BF16 has 8 bits, an error of up to 2^-9; that of both products of an expert is at
 * most twice as large on average. F16: 16 bits, and the left out products of weights. */
static void test_rounding(void **state)
{
    static const struct rounding cases[] = {
        {{TENSOR_BF16, TENSOR_BF16, TENSOR_BF16, 288, 96, 3, false, "qwen3moe"}, 0x1p-8},
        {{TENSOR_BF16, TENSOR_BF16, TENSOR_BF16, 64, 160, 1, true, "gpt-oss"}, 0x1p-8},
        {{TENSOR_F16, TENSOR_F16, TENSOR_F16, 288, 96, 3, false, "qwen3moe"}, 0x1p-14},
        {{TENSOR_Q8_0, TENSOR_BF16, TENSOR_F16, 96, 64, 2, false, "qwen3moe"}, 0x1p-8},
        {{TENSOR_BF16, TENSOR_BF16, TENSOR_BF16, 256, 32, 2, false, "nemotron_h_moe"}, 0x1p-8},
        {{TENSOR_BF16, TENSOR_BF16, TENSOR_BF16, 300, 48, 2, false, "qwen3moe"}, 0},
        {{TENSOR_BF16, TENSOR_BF16, TENSOR_F32, 64, 64, 2, false, "qwen3moe"}, 0},
        {{TENSOR_Q8_0, TENSOR_Q8_0, TENSOR_Q4_0, 64, 64, 2, false, "qwen3moe"}, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_rounding(&cases[i]);
}

/* Kernels compiled for an older device than this one, as by a list of architectures such as
 * "75;86-real" on 9.0: their code for newer instructions is empty, and must not be launched. The
 * simulation has that code, so its rounding would show. */
static void test_older_code(void **state)
{
    static const struct rounding cases[] = {
        {{TENSOR_BF16, TENSOR_BF16, TENSOR_BF16, 288, 96, 3, false, "qwen3moe"}, 0},
        {{TENSOR_Q8_0, TENSOR_Q8_0, TENSOR_Q4_0, 64, 64, 2, false, "qwen3moe"}, 0},
    };
    static const char *const architectures[] = {"75", "70"};

    (void)state;
    if (strcmp(module->name, "cusim") != 0)
        skip();
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++) {
        close_device();
        setenv("MOED_CUSIM_ARCHITECTURE", architectures[i], 1);
        open_device();
        for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
            check_rounding(&cases[k]);
    }
    close_device();
    unsetenv("MOED_CUSIM_ARCHITECTURE");
    open_device();
}

/* ---- Experts that a gate chose ---- */

enum { CHOSEN_EXPERTS = 6, CHOSEN_TOKENS = 64 };

struct chosen {
    struct segments s;
    struct inputs_of in;
    struct device_activations a;
    const void *places[CHOSEN_EXPERTS * 16];
    struct device_places at;
};

static void make_chosen(struct chosen *c, const struct shape *shape, uint32_t n_used)
{
    uint32_t n_segments = shape->n_segments;
    make_segments(&c->s, shape, CHOSEN_EXPERTS);
    c->in = make_inputs(kernels_get(), shape->d_model, CHOSEN_TOKENS, INPUTS_USUAL, 5);
    float *x = to_device(c->in.x, CHOSEN_TOKENS * c->in.a.x_stride * sizeof *x);
    void *memory = on_device(module->ops.activations_bytes(shape->d_model, CHOSEN_TOKENS));
    module->ops.activations_bind(&c->a, memory, shape->d_model, CHOSEN_TOKENS, x, c->in.a.x_stride,
                                 true);
    module->ops.quantize(stream, &c->a);
    for (uint32_t i = 0; i < CHOSEN_EXPERTS * n_segments; i++)
        c->places[i] = c->s.on_it + i * c->s.slabs.segment_bytes;
    c->at = (struct device_places){.n_experts = CHOSEN_EXPERTS,
                                   .n_segments = n_segments,
                                   .n_used = n_used,
                                   .layer = 6,
                                   .missed = on_device(4)};
    module->fill(stream, c->at.missed, 0, 4);
}

static void free_chosen(struct chosen *c)
{
    release_all();
    free(c->s.memory);
    free_inputs(&c->in);
}

/* A shared expert, and its result by the portable kernels. */
struct shared {
    struct matrix m[3], there[3]; /* gate, up, down */
    struct device_shared on;
    float *expected;
};

static void make_shared(struct shared *sh, const struct chosen *c, const enum tensor_type types[3],
                        uint32_t width, uint32_t n)
{
    uint32_t d = c->s.slabs.d_model;
    size_t values = (size_t)n * width;
    float *h = malloc(2 * values * sizeof *h);
    struct activations a;
    bool quantize = tensor_type_info(types[2])->block_values > 1;

    for (int i = 0; i < 3; i++) {
        uint32_t rows = i < 2 ? width : d, cols = i < 2 ? d : width;
        uint8_t *file = random_rows(types[i], rows, cols, WEIGHTS_USUAL, 50 + i);
        sh->m[i] = sh->there[i] = tiles_of(types[i], rows, cols, file);
        sh->there[i].tiles = to_device(sh->m[i].tiles, tile_matrix_bytes(types[i], rows, cols));
        free(file);
    }
    for (int i = 0; i < 2; i++)
        kernels_get()->multiply(&sh->m[i], 0, tile_row_count(width), &c->in.a, NULL, n,
                                h + i * values, width, false);
    kernels_get()->gated((struct gating){ACTIVATION_SILU, 0.5f}, h, h + values, h, values);
    void *memory = aligned_alloc(TILE_ALIGN, act_bytes(width, n));
    act_bind(&a, memory, width, n, h, width);
    kernels_get()->quantize(&a, 0, n);
    sh->expected = malloc((size_t)n * d * sizeof(float));
    kernels_get()->multiply(&sh->m[2], 0, tile_row_count(d), &a, NULL, n, sh->expected, d, false);
    free(memory);
    free(h);
    sh->on = (struct device_shared){.gate = &sh->there[0],
                                    .up = &sh->there[1],
                                    .down = &sh->there[2],
                                    .gating = {ACTIVATION_SILU, 0.5f},
                                    .out = on_device((size_t)n * d * sizeof(float)),
                                    .up_values = on_device(values * sizeof(float))};
    module->ops.activations_bind(&sh->on.hidden, on_device(module->ops.activations_bytes(width, n)),
                                 width, n, on_device(values * sizeof(float)), width, quantize);
}

static void check_shared(struct shared *sh, uint32_t n)
{
    size_t values = (size_t)n * sh->m[2].rows;
    float *got = malloc(values * sizeof *got);
    from_device(got, sh->on.out, values * sizeof *got);
    assert_same_floats(got, sh->expected, values, "the shared expert");
    free(got);
    free(sh->expected);
    for (int i = 0; i < 3; i++)
        free((void *)sh->m[i].tiles);
}

/* The result of experts_chosen on rows that hold `before`, and its *missed. */
static uint32_t choose(struct chosen *c, const uint32_t *selected, uint32_t n, float before,
                       float *rows, uint32_t *row_of, struct device_shared *shared)
{
    uint32_t n_rows = n * c->at.n_used, missed;
    size_t values = (size_t)n_rows * c->s.slabs.d_model;
    struct device_segments layout = layout_of(&c->s);
    size_t scratch = module->ops.experts_scratch_bytes(&layout, 0, n_rows * c->at.n_segments);

    for (size_t i = 0; i < values; i++)
        rows[i] = before;
    float *on = to_device(rows, values * sizeof *on);
    c->a.n_tokens = n;
    c->at.places = to_device(c->places, sizeof c->places);
    const struct device_choice choice = {
        .layout = &layout,
        .at = c->at,
        .row_of = on_device(n_rows * sizeof *row_of),
        .tables = on_device(module->ops.chosen_bytes(n, c->at.n_used, c->at.n_segments))};
    module->ops.choose(stream, &choice, to_device(selected, n_rows * sizeof *selected), n);
    module->ops.experts_chosen(stream, &choice, &c->a, on, on_device(scratch), shared);
    from_device(rows, on, values * sizeof *rows);
    from_device(row_of, choice.row_of, n_rows * sizeof *row_of);
    from_device(&missed, c->at.missed, sizeof missed);
    return missed;
}

/* Each row is the sum of one expert for one token, as the host computes it. shared NULL: none. */
static void check_chosen(struct chosen *c, const uint32_t *selected, uint32_t n,
                         struct device_shared *shared)
{
    uint32_t n_used = c->at.n_used, d = c->s.slabs.d_model, n_rows = n * n_used;
    float *rows = malloc((size_t)n_rows * d * sizeof *rows),
          *expected = malloc(d * sizeof *expected);
    uint32_t *row_of = malloc(n_rows * sizeof *row_of);
    bool *taken = calloc(n_rows, sizeof *taken);

    assert_int_equal(choose(c, selected, n, 7, rows, row_of, shared), 0);
    for (uint32_t i = 0; i < n_rows; i++) {
        uint32_t token = i / n_used;
        const struct wanted one = {selected[i], 0, c->at.n_segments, 1, &token, false, false};
        on_host(&c->s, &c->in, &one, 1, c->at.n_segments, expected);
        assert_true(row_of[i] < n_rows && !taken[row_of[i]]);
        taken[row_of[i]] = true;
        assert_same_floats(rows + (size_t)row_of[i] * d, expected, d, "chosen");
    }
    free(taken);
    free(row_of);
    free(expected);
    free(rows);
}

static void test_chosen(void **state)
{
    static const struct shape shapes[] = {
        {TENSOR_Q4_K, TENSOR_Q4_K, TENSOR_Q6_K, 512, 256, 3, false, "qwen3moe"},
        {TENSOR_F32, TENSOR_Q8_0, TENSOR_BF16, 288, 32, 1, true, "gpt-oss"},
        {TENSOR_Q8_0, TENSOR_Q8_0, TENSOR_Q8_0, 2080, 512, 16, false,
         "qwen3moe"}, /* few tokens an item */
    };
    /* all rows the same experts, none of them shared, and in between */
    static const uint32_t same[] = {3, 0, 3, 0, 3, 0, 3, 0, 3, 0, 3, 0, 3, 0, 3, 0};
    static const uint32_t mixed[] = {5, 1, 1, 4, 0, 5, 5, 2, 2, 3, 4, 1, 0, 1, 3, 5};

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct chosen c;
        make_chosen(&c, &shapes[i], 2);
        check_chosen(&c, mixed, 1, NULL);
        check_chosen(&c, mixed, 3, NULL);
        check_chosen(&c, mixed, 8, NULL);
        check_chosen(&c, same, 8, NULL);
        free_chosen(&c);
    }
}

/* As many rows as a graph takes: an expert has several items. */
static void test_chosen_by_many(void **state)
{
    static const struct shape shape = {TENSOR_Q4_K, TENSOR_Q4_K, TENSOR_Q8_0, 256,
                                       64,          2,           false,       "qwen3moe"};
    uint32_t selected[CHOSEN_TOKENS * 3];
    struct chosen c;

    (void)state;
    for (uint32_t i = 0; i < CHOSEN_TOKENS; i++)
        for (uint32_t k = 0; k < 3; k++)
            selected[3 * i + k] = i < 20 ? k : (i * 7 + k * k) % CHOSEN_EXPERTS;
    make_chosen(&c, &shape, 3);
    check_chosen(&c, selected, CHOSEN_TOKENS, NULL);
    check_chosen(&c, selected, 33, NULL);
    free_chosen(&c);
}

/* A shared expert of other types and another width, in the launches of the routed ones and apart.
 */
static void test_chosen_and_shared(void **state)
{
    static const struct shape shapes[] = {
        {TENSOR_Q4_K, TENSOR_Q4_K, TENSOR_Q6_K, 512, 256, 2, false, "qwen3moe"},
        {TENSOR_IQ3_S, TENSOR_IQ3_S, TENSOR_IQ3_S, 512, 256, 1, false, "qwen3moe"},
    };
    static const enum tensor_type types[][3] = {{TENSOR_Q4_K, TENSOR_Q4_K, TENSOR_Q6_K},
                                                {TENSOR_Q8_0, TENSOR_Q8_0, TENSOR_Q8_0},
                                                {TENSOR_Q5_K, TENSOR_Q6_K, TENSOR_Q4_K},
                                                {TENSOR_F32, TENSOR_F32, TENSOR_BF16}};
    static const uint32_t selected[] = {5, 1, 1, 4, 0, 5};

    (void)state;
    for (int i = 0; i < 2; i++)
        for (int t = 0; t < 4; t++)
            for (uint32_t n = 1; n <= 3; n += 2) {
                struct chosen c;
                struct shared sh;
                make_chosen(&c, &shapes[i], 2);
                make_shared(&sh, &c, types[t], t % 2 ? 96 : 512, n);
                check_chosen(&c, selected, n, &sh.on);
                check_shared(&sh, n);
                free_chosen(&c);
            }
}

/* If an expert or one of its segments is missing, *missed is set and nothing is written, nor by
 * later calls. */
static void test_chosen_missed(void **state)
{
    static const struct shape shape = {TENSOR_Q8_0, TENSOR_Q8_0, TENSOR_Q8_0, 64,
                                       32,          2,           false,       "qwen3moe"};
    static const uint32_t selected[] = {5, 1, 2, 4}, others[] = {1, 2, 5, 1};
    struct chosen c;
    float rows[4 * 64];
    uint32_t row_of[4], zero = 0;

    (void)state;
    make_chosen(&c, &shape, 2);
    c.places[4 * 2 + 1] = NULL;
    check_chosen(&c, others, 2, NULL);
    assert_int_equal(choose(&c, selected, 2, 7, rows, row_of, NULL), 6 + 1);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_true(rows[i] == 7);
    c.at.layer = 9;
    assert_int_equal(choose(&c, others, 2, 8, rows, row_of, NULL), 6 + 1); /* the first stays */
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_true(rows[i] == 8);
    module->upload(stream, c.at.missed, &zero, sizeof zero);
    check_chosen(&c, others, 2, NULL);
    free_chosen(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_mixed_types),
        cmocka_unit_test(test_no_gate),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_older_code),
        cmocka_unit_test(test_chosen),
        cmocka_unit_test(test_chosen_by_many),
        cmocka_unit_test(test_chosen_and_shared),
        cmocka_unit_test(test_chosen_missed),
    };
    return run_group("cuda_experts", tests, open_all);
}
