/* Matrix products on a pool of threads; see exec.h. experts.c has the experts. */
#include "exec/exec.h"
#include "exec/internal.h"

#include "base/checked.h"
#include "kernels/bf16.h"

#include <stdlib.h>
#include <string.h>

static void *allocate(size_t bytes)
{
    return aligned_alloc(TILE_ALIGN, round_up(bytes ? bytes : 1, TILE_ALIGN));
}

bool exec_quantizes(enum tensor_type type)
{
    return tensor_type_info(type)->block_values > 1;
}

bool exec_experts_quantize(const struct pool_slabs *slabs)
{
    return exec_quantizes((enum tensor_type)slabs->gate_type) ||
           exec_quantizes((enum tensor_type)slabs->up_type);
}

static bool allocate_all(struct exec *x)
{
    const struct exec_limits *l = &x->limits;
    unsigned n_threads = pool_thread_count(x->pool);
    for (int i = 0; i < EXEC_SLOTS; i++)
        if (!(x->slots[i].memory = allocate(act_bytes(l->max_cols, l->max_tokens))))
            return false;
    size_t hidden = (size_t)l->max_task_rows * round_up(l->max_width, TILE_ROWS);
    x->gate_up = allocate(2 * hidden * sizeof(float));
    x->hidden = allocate(hidden * sizeof(float));
    /* act_bytes rounds up each segment's columns, and each part is aligned. */
    x->hidden_bytes = act_bytes(l->max_width + 64 * POOL_MAX_SEGMENTS, l->max_task_rows) +
                      (size_t)EXEC_MAX_PARTS * 8 * TILE_ALIGN;
    x->hidden_memory = allocate(x->hidden_bytes);
    x->parts = calloc(EXEC_MAX_PARTS, sizeof *x->parts);
    x->chunks = calloc(EXEC_MAX_CHUNKS, sizeof *x->chunks);
    x->packed = calloc(n_threads, sizeof *x->packed);
    x->group_memory = calloc(l->max_tokens + 1u, sizeof *x->group_memory);
    x->row_numbers = calloc(l->max_tokens + 1u, sizeof *x->row_numbers);
    for (uint32_t i = 0; x->row_numbers && i < l->max_tokens; i++)
        x->row_numbers[i] = i;
    if (!x->row_numbers || !x->group_memory || !x->gate_up || !x->hidden || !x->hidden_memory ||
        !x->parts || !x->chunks || !x->packed)
        return false;
    size_t inputs = (size_t)l->max_tokens * BF16_PACKED_BYTES(l->max_cols);
    for (unsigned t = 0; x->bf16 && t < n_threads; t++)
        if (!(x->packed[t].inputs = allocate(inputs)))
            return false;
    return true;
}

enum error_code exec_new(struct pool *pool, const struct exec_limits *limits, bool rounds,
                         struct exec **out, struct error *e)
{
    struct exec *x = calloc(1, sizeof *x);
    if (x) {
        x->pool = pool;
        x->limits = *limits;
        x->rounds = rounds;
        x->kernels = kernels_get();
        x->bf16 = rounds ? bf16_get() : NULL;
    }
    if (!x || !allocate_all(x)) {
        exec_free(x);
        return error_set(e, ERROR_MEMORY, "no memory for the scratch of %u tokens",
                         limits->max_tokens);
    }
    *out = x;
    return ERROR_OK;
}

void exec_free(struct exec *x)
{
    if (!x)
        return;
    for (int i = 0; i < EXEC_SLOTS; i++)
        free(x->slots[i].memory);
    for (unsigned t = 0; x->packed && t < pool_thread_count(x->pool); t++)
        free(x->packed[t].inputs);
    free(x->packed);
    free(x->group_memory);
    free(x->row_numbers);
    free(x->gate_up);
    free(x->hidden);
    free(x->hidden_memory);
    free(x->parts);
    free(x->chunks);
    free(x);
}

void exec_set_groups(struct exec *x, const struct row_groups *groups)
{
    uint32_t n = x->rounds ? groups->n : 0;
    n = n < x->limits.max_tokens ? n : x->limits.max_tokens;
    if (n)
        memcpy(x->group_memory, groups->groups, n * sizeof *groups->groups);
    x->groups = (struct row_groups){x->group_memory, n};
}

struct row_groups exec_groups(const struct exec *x)
{
    return x->groups;
}

struct pool *exec_pool(const struct exec *x)
{
    return x->pool;
}

void exec_set_progress(struct exec *x, _Atomic uint64_t *progress)
{
    x->progress = progress;
}

void exec_each(struct exec *x, pool_work *work, void *arg, uint32_t n_chunks)
{
    pool_run(x->pool, work, arg, n_chunks);
}

struct quantize_job {
    struct exec *x;
    struct activations *a;
};

static void quantize_chunk(void *arg, unsigned thread, uint32_t chunk)
{
    const struct quantize_job *job = arg;
    (void)thread;
    job->x->kernels->quantize(job->a, chunk, 1);
}

const struct activations *exec_prepare(struct exec *x, unsigned slot, const float *values,
                                       size_t stride, uint32_t n_tokens, uint32_t cols,
                                       bool quantize)
{
    struct activations *a = &x->slots[slot].activations;
    act_bind(a, x->slots[slot].memory, cols, n_tokens, values, stride);
    if (quantize && n_tokens < 4)
        x->kernels->quantize(a, 0, n_tokens);
    else if (quantize)
        pool_run(x->pool, quantize_chunk, &(struct quantize_job){x, a}, n_tokens);
    return a;
}

/* A part of a product: tile rows of m, some rows of its input, and the rows of y that belong to
 * them. */
struct part {
    const struct matrix *m;
    uint32_t tile_first, tile_count;
    struct exec_rows in;
    float *y; /* of the first row of in */
    size_t y_stride;
    bool accumulate;
};

static struct part rows_of_part(const struct part *p, uint32_t at, uint32_t n)
{
    struct part some = *p;
    some.in.at += at;
    some.in.n = n;
    some.y += at * p->y_stride;
    return some;
}

/* The rows of `in`, float32, as activations that begin with the first of them. */
static struct activations float_rows(const struct exec_rows *in)
{
    struct activations a = {.n_tokens = in->n, .cols = in->a->cols, .x_stride = in->a->x_stride};
    a.x = in->tokens ? in->a->x : in->a->x + in->at * in->a->x_stride;
    return a;
}

static const uint32_t *tokens_of(const struct exec_rows *in)
{
    return in->tokens ? in->tokens + in->at : NULL;
}

static bool same_rows(const struct exec_rows *a, const struct exec_rows *b)
{
    return a->a == b->a && a->tokens == b->tokens && a->at == b->at && a->n == b->n;
}

/* True: the product's rows of large enough groups take the BF16 instructions. */
static bool uses_bf16(const struct exec *x, const struct matrix *m)
{
    return x->bf16 && x->groups.n && m->type == TENSOR_BF16;
}

static bool takes_bf16(struct row_run run)
{
    return run.grouped && run.n >= BF16_MIN_TOKENS;
}

/* By the CPU's BF16 instruction, which computes each row by itself. In a step, a thread packs the
 * same inputs once for all of its products. */
static void multiply_bf16(struct exec *x, unsigned thread, const struct part *p)
{
    struct exec_packed *packed = &x->packed[thread];
    if (packed->step != x->step || !same_rows(&packed->rows, &p->in)) {
        const struct activations a = float_rows(&p->in);
        x->bf16->pack(&a, tokens_of(&p->in), p->in.n, packed->inputs);
        packed->step = x->step;
        packed->rows = p->in;
    }
    x->bf16->multiply(p->m, p->tile_first, p->tile_count, packed->inputs, p->in.n, p->y,
                      p->y_stride, p->accumulate);
}

static void multiply_defined(const struct exec *x, const struct part *p)
{
    const struct activations a = float_rows(&p->in);
    x->kernels->multiply(p->m, p->tile_first, p->tile_count, &a, tokens_of(&p->in), p->in.n, p->y,
                         p->y_stride, p->accumulate);
}

/* The number of rows from `at` on whose runs all take the BF16 instruction, or all do not. */
static uint32_t rows_alike(const struct exec *x, const struct exec_rows *in,
                           const uint32_t *rows_of, uint32_t at, bool *taken)
{
    struct row_run run = row_groups_run(&x->groups, rows_of, in->n, at);
    uint32_t n = run.n;
    *taken = takes_bf16(run);
    for (; at + n < in->n; n += run.n) {
        run = row_groups_run(&x->groups, rows_of, in->n, at + n);
        if (takes_bf16(run) != *taken)
            break;
    }
    return n;
}

/* Rows of BF16 weights: those of groups that are large enough by the BF16 instruction, the others
 * by the definition. */
static void multiply_by_groups(struct exec *x, unsigned thread, const struct part *p,
                               const uint32_t *rows_of)
{
    bool taken;
    for (uint32_t at = 0, n; at < p->in.n; at += n) {
        n = rows_alike(x, &p->in, rows_of, at, &taken);
        const struct part rows = rows_of_part(p, at, n);
        if (taken)
            multiply_bf16(x, thread, &rows);
        else
            multiply_defined(x, &rows);
    }
}

void exec_multiply_part(struct exec *x, unsigned thread, const struct matrix *m,
                        uint32_t tile_first, uint32_t tile_count, const struct exec_rows *in,
                        const uint32_t *rows_of, float *y, size_t y_stride, bool accumulate)
{
    const struct part p = {m, tile_first, tile_count, *in, y, y_stride, accumulate};
    if (uses_bf16(x, m))
        multiply_by_groups(x, thread, &p, rows_of);
    else
        x->kernels->multiply(m, tile_first, tile_count, in->a, in->tokens, in->n, y, y_stride,
                             accumulate);
    if (x->progress)
        atomic_fetch_add_explicit(x->progress, 1, memory_order_relaxed);
}

/* The least rows of inputs of a part, if a product is cut by these too. */
#define LEAST_ROWS 16

struct multiply_job {
    struct exec *x;
    const struct exec_product *products;
    const struct activations *a;
    uint32_t parts; /* of the rows of inputs */
};

static uint32_t first_row(const struct multiply_job *j, uint32_t part)
{
    return (uint32_t)((uint64_t)j->a->n_tokens * part / j->parts);
}

/* The parts of the inputs' rows, so that matrices of few tile rows keep all threads busy. Rows of
 * groups stay together, because their number decides how they are computed. */
static uint32_t count_parts(const struct exec *x, const struct exec_product *products, unsigned n,
                            uint64_t tiles, uint32_t n_tokens)
{
    uint64_t chunks = 2u * pool_active_count(x->pool);
    if (n_tokens < 2 * LEAST_ROWS || n_tokens > x->limits.max_tokens || chunks <= 2 ||
        tiles >= chunks || !tiles)
        return 1;
    for (unsigned i = 0; i < n; i++)
        if (uses_bf16(x, products[i].m))
            return 1;
    uint64_t parts = (chunks + tiles - 1) / tiles;
    return parts < n_tokens / LEAST_ROWS ? (uint32_t)parts : n_tokens / LEAST_ROWS;
}

static void multiply_chunk(void *arg, unsigned thread, uint32_t index)
{
    const struct multiply_job *j = arg;
    const struct exec_chunk *c = &j->x->chunks[index];
    const struct exec_product *p = &j->products[c->product / j->parts];
    uint32_t part = c->product % j->parts, first = first_row(j, part);
    const struct exec_rows in = {j->a, j->parts > 1 ? j->x->row_numbers + first : NULL, 0,
                                 first_row(j, part + 1) - first};
    exec_multiply_part(j->x, thread, p->m, c->tile_first, c->tile_count, &in, NULL,
                       p->y + first * p->y_stride, p->y_stride, p->accumulate);
}

struct exec_cutting exec_cut_begin(unsigned n_threads, uint64_t tiles, uint64_t tiles_by_tokens)
{
    return (struct exec_cutting){.left = tiles_by_tokens,
                                 .shares = n_threads > 1 ? 2 * n_threads : 1,
                                 .fair = (uint32_t)(tiles / n_threads)};
}

/* The least tile rows of a chunk, of which longer ones are a multiple. One token reads four tile
 * rows in parallel: a multiple of 4. */
static uint32_t least_tiles(const struct exec *x, const struct exec_cutting *c,
                            const struct matrix *m, uint32_t n_tokens)
{
    if (uses_bf16(x, m) && n_tokens >= BF16_MIN_TOKENS)
        return BF16_TILES;
    if (n_tokens > 1)
        return 1;
    size_t n = EXEC_CHUNK_BYTES / tile_row_bytes(m->type, m->cols) + 1;
    n = n > c->fair ? c->fair : n;
    return n < 1 ? 1 : n < 4 ? (uint32_t)n : (uint32_t)(n - n % 4);
}

/* The next chunk's share of a product's n_tiles remaining tile rows. */
static uint32_t next_cut(const struct exec *x, struct exec_cutting *c, const struct matrix *m,
                         uint32_t n_tokens, uint32_t n_tiles)
{
    uint32_t least = least_tiles(x, c, m, n_tokens);
    uint64_t share = c->left / ((uint64_t)c->shares * n_tokens);
    share = share < least ? least : share;
    /* equal chunks, because a short last one would begin one more stream of reads */
    uint64_t chunks = (n_tiles + share - 1) / share;
    uint64_t n = round_up((n_tiles + chunks - 1) / chunks, least);
    if (n_tokens > 1 && n > MOST_TILES)
        n = MOST_TILES; /* longer ones gain nothing and report progress less often */
    if (n > n_tiles || x->n_chunks + EXEC_MAX_SLICES >= EXEC_MAX_CHUNKS)
        n = n_tiles;
    c->left -= n * n_tokens;
    return (uint32_t)n;
}

void exec_multiply_defined(struct exec *x, const struct matrix *m, const struct activations *a,
                           float *y, size_t y_stride, bool accumulate)
{
    struct row_groups groups = x->groups;
    x->groups.n = 0;
    exec_multiply(x, m, a, y, y_stride, accumulate);
    x->groups = groups;
}

void exec_cut_product(struct exec *x, struct exec_cutting *c, uint32_t product,
                      const struct matrix *m, uint32_t first, uint32_t end, uint32_t n_tokens)
{
    for (; first < end && n_tokens; first += x->chunks[x->n_chunks++].tile_count)
        x->chunks[x->n_chunks] =
            (struct exec_chunk){product, first, next_cut(x, c, m, n_tokens, end - first)};
}

void exec_multiply_several(struct exec *x, const struct exec_product *products, unsigned n,
                           const struct activations *a)
{
    struct multiply_job job = {x, products, a, 1};
    uint64_t tiles = 0;
    for (unsigned i = 0; i < n; i++)
        tiles += tile_row_count(products[i].m->rows);
    job.parts = count_parts(x, products, n, tiles, a->n_tokens);
    struct exec_cutting cutting =
        exec_cut_begin(pool_active_count(x->pool), tiles * job.parts, tiles * a->n_tokens);
    x->n_chunks = 0;
    for (uint32_t i = 0; i < n * job.parts; i++) {
        uint32_t part = i % job.parts;
        exec_cut_product(x, &cutting, i, products[i / job.parts].m, 0,
                         tile_row_count(products[i / job.parts].m->rows),
                         first_row(&job, part + 1) - first_row(&job, part));
    }
    x->step++;
    pool_run(x->pool, multiply_chunk, &job, x->n_chunks);
}

void exec_multiply(struct exec *x, const struct matrix *m, const struct activations *a, float *y,
                   size_t y_stride, bool accumulate)
{
    exec_multiply_several(x, &(struct exec_product){m, y, y_stride, accumulate}, 1, a);
}
