/* Experts and matrix products on threads. Truth: the same sums in double precision from lib/quant's
 * reading of the weights (float types exactly, quantised types within what rounding the activations
 * explains); and to the bit: any number of threads, any batch, any split of an expert's segments
 * give the same. */
#include "exec/exec.h"
#include "kernels/bf16.h"
#include "quant/quant.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "loaded_model.h"

#include <math.h>

enum { HIDDEN = 256, WIDTH = 1536, EXPERTS = 3, TOKENS = 40, MANY = 150 };
#ifdef __SANITIZE_THREAD__ /* slow, and what threads share is the same for all types */
enum { OF_ALL_TYPES = 0, ALL_NARROW = 64 };
#else
enum { OF_ALL_TYPES = 1, ALL_NARROW = 256 };
#endif

static float inputs[MANY][HIDDEN]; /* of most tests the first TOKENS */

static void fill_inputs(void)
{
    uint32_t s = 1;
    for (int t = 0; t < MANY; t++)
        for (int i = 0; i < HIDDEN; i++) {
            s = s * 1664525u + 1013904223u;
            inputs[t][i] = (float)(int32_t)s * 0x1p-31f;
        }
}

static void options(struct mkmodel_options *o, const char *type)
{
    mkmodel_defaults(o);
    o->arch = "qwen3moe";
    o->type = type;
    o->layers = 1;
    o->hidden = HIDDEN;
    o->heads = 4;
    o->kv_heads = 2;
    o->head_dim = 64;
    o->experts = EXPERTS;
    o->top_k = 2;
    o->expert_width = WIDTH;
    o->vocab = 300;
}

/* Several threads on two made-up memory nodes, so that experts' rows or
 * segments are assigned by node. */
static struct exec *new_exec(struct pool **pool, unsigned threads, const struct exec_limits *limits,
                             bool rounds)
{
    static const struct topology one = {
        .n_cpus = 1, .n_cores = 1, .n_nodes = 1, .cpus = {{0, 0, 0}}};
    static const struct topology two = {
        .n_cpus = 2, .n_cores = 2, .n_nodes = 2, .cpus = {{0, 0, 0}, {1, 1, 1}}};
    struct error e;
    struct exec *x;
    must(pool_new_on(threads > 1 ? &two : &one, "test", threads, false, 0, pool, &e), &e);
    must(exec_new(*pool, limits, rounds, &x, &e), &e);
    exec_set_groups(x, &(struct row_groups){&(struct row_group){0, limits->max_tokens}, 1});
    return x;
}

/* All experts for the given tokens, segments [first, first + n), out[expert][token][HIDDEN]. */
static void run(struct exec *x, const struct loaded_model *m, const uint32_t *tokens,
                uint32_t n_tokens, uint32_t first, uint32_t n, float *out)
{
    struct expert_task tasks[EXPERTS];
    const struct pool_slabs *s = &m->map.slabs[0];
    bool quantize = exec_quantizes((enum tensor_type)s->gate_type);
    const struct activations *a =
        exec_prepare(x, 0, &inputs[0][0], HIDDEN, TOKENS, HIDDEN, quantize);
    for (uint32_t i = 0; i < EXPERTS; i++)
        tasks[i] = (struct expert_task){.expert = i,
                                        .first_segment = first,
                                        .n_segments = n,
                                        .n_tokens = n_tokens,
                                        .tokens = tokens,
                                        .out = out + (size_t)i * n_tokens * HIDDEN};
    exec_experts(x, &m->map, 0, a, tasks, EXPERTS);
}

static double dot(const float *w, const double *x, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double)w[i] * x[i];
    return sum;
}

static float *weights(const struct loaded_model *m, const char *part, uint32_t expert)
{
    char name[64];
    snprintf(name, sizeof name, "blk.0.ffn_%s_exps.weight", part);
    const struct gguf_tensor *t = gguf_tensor_find(m->g, name);
    size_t n = t->ne[0] * t->ne[1];
    float *w = malloc(n * sizeof *w);
    if (!w)
        abort();
    quant_dequantize(
        t->type, (const uint8_t *)gguf_tensor_data(m->g, t) + expert * quant_row_bytes(t->type, n),
        w, n);
    snprintf(name, sizeof name, "blk.0.ffn_%s_exps.scale", part);
    const struct gguf_tensor *factors = gguf_tensor_find(m->g, name);
    for (size_t i = 0; factors && i < n; i++)
        w[i] *= ((const float *)gguf_tensor_data(m->g, factors))[expert];
    return w;
}

static void reference(const struct loaded_model *m, uint32_t expert, const float *x, double *y)
{
    float *gate = weights(m, "gate", expert), *up = weights(m, "up", expert);
    float *down = weights(m, "down", expert);
    static double input[HIDDEN], h[WIDTH];
    for (int i = 0; i < HIDDEN; i++)
        input[i] = x[i];
    for (int i = 0; i < WIDTH; i++) {
        double g = dot(gate + i * HIDDEN, input, HIDDEN);
        h[i] = g / (1 + exp(-g)) * dot(up + i * HIDDEN, input, HIDDEN);
    }
    for (int i = 0; i < HIDDEN; i++)
        y[i] = dot(down + (size_t)i * WIDTH, h, WIDTH);
    free(gate);
    free(up);
    free(down);
}

static double distance(const float *got, const double *want)
{
    double difference = 0, size = 0;
    for (int i = 0; i < HIDDEN; i++) {
        difference += (got[i] - want[i]) * (got[i] - want[i]);
        size += want[i] * want[i];
    }
    return sqrt(difference / size);
}

static void check_type(const char *type, double tolerance)
{
    struct mkmodel_options o;
    struct loaded_model m;
    options(&o, type);
    load_model(&m, &o);
    uint32_t n = m.map.slabs[0].n_segments, all[TOKENS];
    for (uint32_t t = 0; t < TOKENS; t++)
        all[t] = t;
    size_t values = (size_t)EXPERTS * TOKENS * HIDDEN;
    float *whole = malloc(values * sizeof *whole), *other = malloc(values * sizeof *other);
    struct pool *pool1, *pool3, *pool_rounding;
    struct exec_limits limits = {TOKENS, WIDTH, TOKENS * EXPERTS, WIDTH};
    struct exec *x1 = new_exec(&pool1, 1, &limits, false);
    struct exec *x3 = new_exec(&pool3, 3, &limits, false);
    struct exec *x_rounding = new_exec(&pool_rounding, 2, &limits, true);

    run(x1, &m, all, TOKENS, 0, n, whole);
    for (uint32_t expert = 0; expert < EXPERTS; expert++)
        for (uint32_t t = 0; t < TOKENS; t += 13) {
            double want[HIDDEN];
            reference(&m, expert, inputs[t], want);
            assert_true(distance(whole + (expert * TOKENS + t) * HIDDEN, want) < tolerance);
        }
    run(x3, &m, all, TOKENS, 0, n, other);
    assert_memory_equal(whole, other, values * sizeof *whole);
    struct pool_header *header = (struct pool_header *)m.pool;
    header->split_rows = 1; /* the nodes have rows of each expert, not whole segments */
    run(x3, &m, all, TOKENS, 0, n, other);
    assert_memory_equal(whole, other, values * sizeof *whole);

    /* a single token, and three in another order */
    for (uint32_t t = 0; t < TOKENS; t += 7) {
        header->split_rows = t / 7 % 2;
        uint32_t some[] = {t, (t + 5) % TOKENS, (t + 11) % TOKENS};
        for (uint32_t count = 1; count <= 3; count += 2) {
            run(x3, &m, some, count, 0, n, other);
            for (uint32_t expert = 0; expert < EXPERTS; expert++)
                assert_memory_equal(whole + (expert * TOKENS + t) * HIDDEN,
                                    other + expert * count * HIDDEN, HIDDEN * sizeof *whole);
        }
    }
    /* segment by segment, added in order */
    float *sum = calloc(values, sizeof *sum);
    for (uint32_t s = 0; s < n; s++) {
        run(x3, &m, all, TOKENS, s, 1, other);
        for (size_t i = 0; i < values; i++)
            sum[i] = s ? sum[i] + other[i] : other[i];
    }
    assert_memory_equal(whole, sum, values * sizeof *whole);
    /* BF16's products have inputs of 8 bits, whose errors are half a thousandth of a value of about
     * 1 each; all others are the definition's */
    bool rounds = strcmp(type, "BF16") == 0 && bf16_get() != NULL;
    run(x_rounding, &m, all, TOKENS, 0, n, other);
    for (size_t i = 0; i < values; i++)
        assert_true(fabs((double)other[i] - whole[i]) < 2e-2);
    assert_int_equal(memcmp(whole, other, values * sizeof *whole) != 0, rounds);

    free(sum);
    free(whole);
    free(other);
    exec_free(x1);
    exec_free(x3);
    exec_free(x_rounding);
    pool_free(pool1);
    pool_free(pool3);
    pool_free(pool_rounding);
    unload_model(&m);
}

static void test_experts(void **state)
{
    (void)state;
    fill_inputs();
    check_type("F32", 1e-6);
    check_type("BF16", 1e-6);
    check_type("Q4_0", 0.02);
    if (!OF_ALL_TYPES)
        return;
    check_type("F16", 1e-6);
    check_type("Q8_0", 0.02);
    check_type("Q4_1", 0.02);
    check_type("Q5_0", 0.02);
    check_type("Q5_1", 0.02);
    check_type("Q2_K", 0.02);
    check_type("Q3_K", 0.02);
    check_type("Q4_K", 0.02);
    check_type("Q5_K", 0.02);
    check_type("Q6_K", 0.02);
    check_type("IQ4_NL", 0.02);
    check_type("IQ4_XS", 0.02);
    check_type("MXFP4", 0.02);
    check_type("NVFP4", 0.02);
    check_type("IQ3_S", 0.02);
    check_type("IQ3_XXS", 0.02);
    check_type("IQ2_S", 0.02);
    check_type("IQ2_XS", 0.02);
    check_type("IQ2_XXS", 0.02);
    check_type("IQ1_S", 0.02);
    check_type("IQ1_M", 0.02);
}

/* In groups, five tile rows of gate and of up give the same bits on any number of threads. */
static void test_group_threads(void **state)
{
    struct mkmodel_options o;
    struct loaded_model m;
    uint32_t all[TOKENS];
    static float out[2][EXPERTS * TOKENS * HIDDEN];
    (void)state;
    options(&o, "BF16");
    o.expert_width = 80;
    load_model(&m, &o);
    for (uint32_t t = 0; t < TOKENS; t++)
        all[t] = t;
    for (int i = 0; i < 2; i++) {
        struct exec_limits limits = {TOKENS, HIDDEN, EXPERTS * TOKENS, WIDTH};
        struct pool *pool;
        struct exec *x = new_exec(&pool, i ? 3 : 1, &limits, true);
        run(x, &m, all, TOKENS, 0, 1, out[i]);
        exec_free(x);
        pool_free(pool);
    }
    assert_memory_equal(out[0], out[1], sizeof out[0]);
    unload_model(&m);
}

/* Runs of a list: of one group, of none, of an end in the middle of a group. */
static void test_runs(void **state)
{
    static const struct row_group some[] = {{2, 3}, {5, 4}, {12, 2}};
    const struct row_groups g = {some, 3}, none = {NULL, 0};
    static const uint32_t rows[] = {0, 3, 4, 5, 8, 9, 13, 14, 20};
    static const struct row_run of_all[] = {{2, false},
                                            {3, true},
                                            {4, true},
                                            {3, false},
                                            {1, true}},
                                of_rows[] = {{1, false}, {2, true}, {2, true},
                                             {1, false}, {1, true}, {2, false}};
    (void)state;
    for (uint32_t at = 0, i = 0; at < 13; at += of_all[i++].n) {
        struct row_run run = row_groups_run(&g, NULL, 13, at);
        assert_int_equal(run.n, of_all[i].n);
        assert_int_equal(run.grouped, of_all[i].grouped);
    }
    for (uint32_t at = 0, i = 0; at < 9; at += of_rows[i++].n) {
        struct row_run run = row_groups_run(&g, rows, 9, at);
        assert_int_equal(run.n, of_rows[i].n);
        assert_int_equal(run.grouped, of_rows[i].grouped);
    }
    assert_int_equal(row_groups_run(&none, rows, 9, 2).n, 7);
    assert_false(row_groups_run(&none, rows, 9, 2).grouped);
}

/* The rows of a batch whose experts and products are compared with those of a batch of their own.
 */
struct of_groups {
    struct exec *x;
    const struct loaded_model *m;
    float *experts;                     /* [EXPERTS][MANY][HIDDEN] */
    float product[MANY][2 * TILE_ROWS]; /* of some rows of the first expert's gate */
};

/* Computes rows [first, first + n) of the inputs as a batch. Each expert takes all tokens but every
 * third of its own. */
static void run_batch(struct of_groups *o, uint32_t first, uint32_t n, const struct row_groups *g)
{
    struct expert_task tasks[EXPERTS];
    static uint32_t tokens[EXPERTS][MANY];
    const struct pool_slabs *s = &o->m->map.slabs[0];
    bool quantize = exec_quantizes((enum tensor_type)s->gate_type);
    const struct expert_segment segment =
        pool_segment_at(s, pool_map_segment_place(&o->m->map, 0, 0, 0));
    struct matrix m = segment.gate;
    m.rows = 2 * TILE_ROWS;
    exec_set_groups(o->x, g);
    const struct activations *a =
        exec_prepare(o->x, 0, &inputs[first][0], HIDDEN, n, HIDDEN, quantize);
    for (uint32_t i = 0; i < EXPERTS; i++) {
        uint32_t taken = 0;
        for (uint32_t t = 0; t < n; t++)
            if ((first + t + i) % 3)
                tokens[i][taken++] = t;
        tasks[i] = (struct expert_task){.expert = i,
                                        .n_segments = s->n_segments,
                                        .n_tokens = taken,
                                        .tokens = tokens[i],
                                        .out = o->experts + (size_t)i * MANY * HIDDEN};
    }
    exec_experts(o->x, &o->m->map, 0, a, tasks, EXPERTS);
    exec_multiply(o->x, &m, a, o->product[0], 2 * TILE_ROWS, false);
}

/* Each group of a batch has the bits that it has in a batch of its own, and rows of no group those
 * of the definition. */
static void check_groups(const char *type)
{
    enum { CUT = 60, DEFINED = 9 }; /* two thirds of a group are enough for BF16 instructions */
    static const struct row_group groups[] = {{0, CUT}, {CUT + DEFINED, MANY - CUT - DEFINED}};
    struct mkmodel_options o;
    struct loaded_model m;
    struct pool *pool;
    static struct of_groups all, alone;
    struct exec_limits limits = {MANY, WIDTH, MANY * EXPERTS, WIDTH};
    const uint32_t firsts[] = {0, CUT, CUT + DEFINED, MANY};
    options(&o, type);
    load_model(&m, &o);
    all.x = alone.x = new_exec(&pool, 2, &limits, true);
    all.m = alone.m = &m;
    all.experts = calloc((size_t)EXPERTS * MANY, HIDDEN * sizeof(float));
    alone.experts = calloc((size_t)EXPERTS * MANY, HIDDEN * sizeof(float));
    run_batch(&all, 0, MANY, &(struct row_groups){groups, 2});
    uint32_t taken[EXPERTS] = {0}; /* rows of each expert before this part */
    for (int part = 0; part < 3; part++) {
        uint32_t first = firsts[part], n = firsts[part + 1] - first;
        run_batch(&alone, first, n,
                  &(struct row_groups){&(struct row_group){0, n}, part == 1 ? 0 : 1});
        assert_memory_equal(all.product[first], alone.product[0], n * sizeof all.product[0]);
        for (uint32_t i = 0; i < EXPERTS; i++) {
            uint32_t rows = 0;
            for (uint32_t t = first; t < first + n; t++)
                rows += (t + i) % 3 != 0;
            size_t of = (size_t)i * MANY * HIDDEN;
            assert_memory_equal(all.experts + of + (size_t)taken[i] * HIDDEN, alone.experts + of,
                                rows * HIDDEN * sizeof(float));
            taken[i] += rows;
        }
    }
    free(all.experts);
    free(alone.experts);
    exec_free(all.x);
    pool_free(pool);
    unload_model(&m);
}

static void test_groups(void **state)
{
    (void)state;
    fill_inputs();
    check_groups("F32");
    check_groups("F16");
    check_groups("BF16");
    check_groups("Q4_0");
}

/* Sixteen segments of 160: the columns of each are rounded up, which takes more memory than the
 * whole width. A token gets the same bits in a large batch and in a batch of one. */
static void test_narrow_segments(void **state)
{
    enum { N = ALL_NARROW, WIDE = 3584, EXPERT_WIDTH = 2560 };
    struct mkmodel_options o;
    struct loaded_model m;
    (void)state;
    options(&o, "Q8_0");
    o.hidden = WIDE;
    o.experts = 2;
    o.expert_width = EXPERT_WIDTH;
    load_model(&m, &o);
    assert_int_equal(m.map.slabs[0].n_segments, 16);
    struct exec_limits limits = {N, WIDE, 2 * N, EXPERT_WIDTH};
    struct pool *pool;
    struct exec *x = new_exec(&pool, 2, &limits, true);
    float *in = malloc((size_t)N * WIDE * sizeof *in), *out = malloc(2ull * N * WIDE * sizeof *out);
    float *one = malloc(WIDE * sizeof *one);
    uint32_t all[N];
    for (uint32_t t = 0; t < N; t++) {
        all[t] = t;
        for (uint32_t i = 0; i < WIDE; i++)
            in[t * WIDE + i] = sinf((float)(t * 7 + i));
    }
    const struct activations *a = exec_prepare(x, 0, in, WIDE, N, WIDE, true);
    struct expert_task tasks[2];
    for (uint32_t i = 0; i < 2; i++)
        tasks[i] = (struct expert_task){.expert = i,
                                        .n_segments = 16,
                                        .n_tokens = N,
                                        .tokens = all,
                                        .out = out + (size_t)i * N * WIDE};
    exec_experts(x, &m.map, 0, a, tasks, 2);
    for (uint32_t t = 0; t < N; t += N / 3) {
        struct expert_task single = {
            .expert = 1, .n_segments = 16, .n_tokens = 1, .tokens = &all[t], .out = one};
        exec_experts(x, &m.map, 0, a, &single, 1);
        assert_memory_equal(one, out + (size_t)(N + t) * WIDE, WIDE * sizeof *one);
    }
    free(in);
    free(out);
    free(one);
    exec_free(x);
    pool_free(pool);
    unload_model(&m);
}

/* A sum cut anywhere: begun from copies, continued from the pool, its last rows computed apart and
 * added by hand. The bits are those of one sum. */
static void test_cut_sums(void **state)
{
    enum { WIDE = 1024, EXPERT_WIDTH = 2048, SEGMENTS = 4, N = 3 };
    struct mkmodel_options o;
    struct loaded_model m;
    (void)state;
    options(&o, "Q8_0");
    o.hidden = WIDE;
    o.experts = 2;
    o.expert_width = EXPERT_WIDTH;
    load_model(&m, &o);
    const struct pool_slabs *s = &m.map.slabs[0];
    assert_int_equal(s->n_segments, SEGMENTS);
    struct exec_limits limits = {N, EXPERT_WIDTH, 2 * N, EXPERT_WIDTH};
    struct pool *pool;
    struct exec *x = new_exec(&pool, 2, &limits, false);
    static float in[N * WIDE], whole[N * WIDE], cut[N * WIDE], apart[SEGMENTS * N * WIDE];
    uint32_t all[N] = {0, 1, 2};
    const uint8_t *copies[SEGMENTS];
    for (uint32_t i = 0; i < N * WIDE; i++)
        in[i] = sinf((float)i);
    for (uint32_t i = 0; i < SEGMENTS; i++) {
        uint8_t *copy = aligned_alloc(64, (s->segment_bytes + 63) / 64 * 64);
        memcpy(copy, pool_map_segment_place(&m.map, 0, 1, i), s->segment_bytes);
        copies[i] = copy;
    }
    const struct activations *a = exec_prepare(x, 0, in, WIDE, N, WIDE, true);
    struct expert_task task = {
        .expert = 1, .n_segments = SEGMENTS, .n_tokens = N, .tokens = all, .out = whole};
    exec_experts(x, &m.map, 0, a, &task, 1);
    for (uint32_t first = 1; first < SEGMENTS; first++)
        for (uint32_t second = first; second < SEGMENTS; second++) {
            task = (struct expert_task){.expert = 1,
                                        .n_segments = first,
                                        .n_tokens = N,
                                        .tokens = all,
                                        .out = cut,
                                        .places = copies};
            exec_experts(x, &m.map, 0, a, &task, 1);
            task = (struct expert_task){.expert = 1,
                                        .first_segment = first,
                                        .n_segments = second - first,
                                        .n_tokens = N,
                                        .tokens = all,
                                        .out = cut,
                                        .output = EXPERT_CONTINUE};
            if (second > first)
                exec_experts(x, &m.map, 0, a, &task, 1);
            task = (struct expert_task){.expert = 1,
                                        .first_segment = second,
                                        .n_segments = SEGMENTS - second,
                                        .n_tokens = N,
                                        .tokens = all,
                                        .out = apart,
                                        .output = EXPERT_APART};
            exec_experts(x, &m.map, 0, a, &task, 1);
            for (uint32_t i = 0; i < SEGMENTS - second; i++)
                kernels_get()->add(apart + (size_t)i * N * WIDE, cut, (size_t)N * WIDE);
            assert_memory_equal(cut, whole, sizeof whole);
        }
    for (uint32_t i = 0; i < SEGMENTS; i++)
        free((void *)copies[i]);
    exec_free(x);
    pool_free(pool);
    unload_model(&m);
}

struct tally {
    _Atomic uint32_t done[1000];
    uint32_t plain[1000]; /* written by work, read by the caller: TSan sees a missing order */
};

static void count_chunk(void *arg, unsigned thread, uint32_t chunk)
{
    struct tally *t = arg;
    (void)thread;
    atomic_fetch_add(&t->done[chunk], 1);
    t->plain[chunk] = chunk + 1;
}

static void test_pool(void **state)
{
    static struct tally t;
    (void)state;
    for (unsigned threads = 1; threads <= 4; threads++)
        for (unsigned spin = 0; spin <= 20; spin += 20) {
            struct pool *p;
            struct error e;
            must(pool_new("test", threads, true, spin, &p, &e), &e);
            for (uint32_t round = 0; round < 300; round++) {
                uint32_t n = round % 7 == 0 ? 0 : round * 3 % 1000;
                memset(&t, 0, sizeof t);
                pool_run(p, count_chunk, &t, n);
                for (uint32_t i = 0; i < 1000; i++) {
                    assert_int_equal(t.done[i], i < n);
                    assert_int_equal(t.plain[i], i < n ? i + 1 : 0);
                }
            }
            pool_free(p);
        }
    assert_true(pool_usable_cores() >= 1);
}

/* More threads than cores and jobs of a few chunks, one after the other: helpers come late, and
 * find the gate closed or a later job. The pool goes right after the last. */
static void test_late_helpers(void **state)
{
    static struct tally t;
    (void)state;
    for (unsigned spin = 0; spin <= 20; spin += 20) {
        struct pool *p;
        struct error e;
        must(pool_new("test", 4 * pool_usable_cores() + 3, false, spin, &p, &e), &e);
        memset(&t, 0, sizeof t);
        for (uint32_t round = 1; round <= 3000; round++) {
            uint32_t n = 2 + round % 5;
            pool_run(p, count_chunk, &t, n);
            assert_int_equal(t.plain[n - 1], n);
            t.plain[n - 1] = 0;
        }
        assert_int_equal(t.done[0], 3000);
        assert_int_equal(t.done[5], 600); /* rounds of 6 chunks */
        pool_free(p);
    }
}

struct seen_threads {
    struct tally tally;
    _Atomic uint32_t highest;
};

static void note_thread(void *arg, unsigned thread, uint32_t chunk)
{
    struct seen_threads *s = arg;
    if (thread > atomic_load(&s->highest))
        atomic_store(&s->highest, thread);
    count_chunk(&s->tally, thread, chunk);
}

/* Shares of every size, one after the other: each job is done once, by the threads of its share
 * once the others have noticed; threads that slept come back. */
static void test_share(void **state)
{
    static struct seen_threads s;
    struct pool *p;
    struct error e;
    (void)state;
    must(pool_new("test", 4, true, 20, &p, &e), &e);
    for (unsigned round = 0; round < 400; round++) {
        unsigned n = 1 + round % 5, active = n > 4 ? 1 : 4 / n;
        pool_share(p, round % n, n);
        assert_int_equal(pool_active_count(p), active);
        assert_int_equal(pool_thread_count(p), 4);
        for (int i = 0; i < 3; i++) {
            memset(&s, 0, sizeof s);
            pool_run(p, note_thread, &s, 500);
            for (uint32_t k = 0; k < 500; k++)
                assert_int_equal(s.tally.plain[k], k + 1);
        }
        if (active == 1)
            assert_int_equal(s.highest, 0); /* the caller's own */
    }
    pool_free(p); /* while some sleep */
}

/* Products of BF16 with the same slot and other values: a thread reuses packed inputs only within a
 * call. */
static void test_packed_inputs(void **state)
{
    enum { ROWS = 40, COLS = 64, N = 24 };
    struct pool *pool;
    struct exec_limits limits = {N, COLS, N, COLS};
    (void)state;
    if (bf16_get() == NULL)
        skip();
    struct exec *x = new_exec(&pool, 2, &limits, true);
    uint16_t one[ROWS][COLS];
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLS; c++)
            one[r][c] = r == c ? 0x3f80 : 0; /* 1 */
    struct matrix m = {.type = TENSOR_BF16, .rows = ROWS, .cols = COLS};
    uint8_t *tiles = aligned_alloc(TILE_ALIGN, tile_matrix_bytes(m.type, ROWS, COLS));
    assert_non_null(tiles);
    for (uint32_t i = 0; i < tile_row_count(ROWS); i++)
        tile_pack(m.type, COLS, ROWS - i * TILE_ROWS < TILE_ROWS ? ROWS - i * TILE_ROWS : TILE_ROWS,
                  one[i * TILE_ROWS], COLS * sizeof **one,
                  tiles + i * tile_row_bytes(m.type, COLS));
    m.tiles = tiles;
    static float values[N][COLS], y[N][ROWS];
    for (int round = 1; round <= 3; round++) {
        for (int t = 0; t < N; t++)
            for (int c = 0; c < COLS; c++)
                values[t][c] = (float)(round * (t + c));
        const struct activations *a = exec_prepare(x, 0, values[0], COLS, N, COLS, false);
        exec_multiply(x, &m, a, y[0], ROWS, false);
        for (int t = 0; t < N; t++)
            for (int r = 0; r < ROWS; r++)
                assert_true(y[t][r] == (float)(round * (t + r))); /* below 256: BF16 has them */
    }
    /* a router's are not rounded */
    values[3][5] = 257;
    const struct activations *a = exec_prepare(x, 0, values[0], COLS, N, COLS, false);
    exec_multiply(x, &m, a, y[0], ROWS, false);
    assert_true(y[3][5] == 256);
    exec_multiply_defined(x, &m, a, y[0], ROWS, false);
    assert_true(y[3][5] == 257);
    free(tiles);
    exec_free(x);
    pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pool),
        cmocka_unit_test(test_late_helpers),
        cmocka_unit_test(test_share),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_narrow_segments),
        cmocka_unit_test(test_cut_sums),
        cmocka_unit_test(test_group_threads),
        cmocka_unit_test(test_runs),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_packed_inputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
