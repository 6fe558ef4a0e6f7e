/* Matrix products on a pool of threads; see exec.h. experts.c has the experts. */
#include "exec/exec.h"
#include "exec/internal.h"

#include "base/checked.h"
#include "kernels/bf16.h"

#include <cblas.h>
#include <stdlib.h>
#include <string.h>

void openblas_set_num_threads(int n); /* not in every cblas.h */

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
    x->scratch = calloc(n_threads, sizeof *x->scratch);
    if (!x->gate_up || !x->hidden || !x->hidden_memory || !x->parts || !x->chunks || !x->scratch)
        return false;
    if (!x->blas)
        return true;
    size_t gather = (size_t)l->max_tokens * l->max_cols;
    for (unsigned t = 0; t < n_threads; t++) {
        x->scratch[t].weights =
            allocate((size_t)BLAS_TILES * TILE_ROWS * l->max_cols * sizeof(float));
        x->scratch[t].inputs = allocate(gather * sizeof(float));
        if (!x->scratch[t].weights || !x->scratch[t].inputs)
            return false;
    }
    return true;
}

enum error_code exec_new(struct pool *pool, const struct exec_limits *limits, bool blas,
                         struct exec **out, struct error *e)
{
    struct exec *x = calloc(1, sizeof *x);
    if (x) {
        x->pool = pool;
        x->limits = *limits;
        x->blas = x->blas_allowed = blas;
        x->kernels = kernels_get();
        x->bf16 = bf16_is_here();
    }
    if (!x || !allocate_all(x)) {
        exec_free(x);
        return error_set(e, ERROR_MEMORY, "no memory for the scratch of %u tokens",
                         limits->max_tokens);
    }
    openblas_set_num_threads(1); /* the pool's threads call it, each for its rows */
    *out = x;
    return ERROR_OK;
}

void exec_free(struct exec *x)
{
    if (!x)
        return;
    for (int i = 0; i < EXEC_SLOTS; i++)
        free(x->slots[i].memory);
    for (unsigned t = 0; x->scratch && t < pool_thread_count(x->pool); t++) {
        free(x->scratch[t].weights);
        free(x->scratch[t].inputs);
    }
    free(x->scratch);
    free(x->gate_up);
    free(x->hidden);
    free(x->hidden_memory);
    free(x->parts);
    free(x->chunks);
    free(x);
}

void exec_allow_blas(struct exec *x, bool allow)
{
    x->blas_allowed = x->blas && allow;
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

/* Computes y[i][16 * tile_first + ...] by BLAS: unpacks the weights of a few tile rows to float32
 * and multiplies them by the gathered inputs. */
static void multiply_blas(struct exec *x, unsigned thread, const struct matrix *m,
                          uint32_t tile_first, uint32_t tile_count, const struct activations *a,
                          const uint32_t *tokens, uint32_t n_tokens, float *y, size_t y_stride,
                          bool accumulate)
{
    struct exec_scratch *s = &x->scratch[thread];
    uint32_t row_first = tile_first * TILE_ROWS;
    uint32_t n_rows = tile_count * TILE_ROWS;
    if (row_first + n_rows > m->rows)
        n_rows = m->rows - row_first;
    tile_unpack_rows(m, row_first, n_rows, s->weights);
    const float *inputs = a->x;
    size_t stride = a->x_stride;
    s->packed_step = 0;
    if (tokens) {
        for (uint32_t i = 0; i < n_tokens; i++)
            memcpy(s->inputs + (size_t)i * m->cols, a->x + tokens[i] * a->x_stride,
                   m->cols * sizeof(float));
        inputs = s->inputs;
        stride = m->cols;
    }
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)n_tokens, (int)n_rows, (int)m->cols,
                1.0f, inputs, (int)stride, s->weights, (int)m->cols, accumulate ? 1.0f : 0.0f,
                y + row_first, (int)y_stride);
}

/* The same by the CPU's BF16 instruction. In a step, a thread packs the same inputs once for all of
 * its products. */
static void multiply_bf16(struct exec *x, unsigned thread, const struct matrix *m,
                          uint32_t tile_first, uint32_t tile_count, const struct activations *a,
                          const uint32_t *tokens, uint32_t n_tokens, float *y, size_t y_stride,
                          bool accumulate)
{
    struct exec_scratch *s = &x->scratch[thread];
    uint32_t *packed = (uint32_t *)s->inputs;
    if (s->packed_step != x->step || s->packed_of != a || s->packed_tokens != tokens ||
        s->packed_n != n_tokens) {
        bf16_pack(a, tokens, n_tokens, packed);
        s->packed_step = x->step;
        s->packed_of = a;
        s->packed_tokens = tokens;
        s->packed_n = n_tokens;
    }
    bf16_multiply(m, tile_first, tile_count, packed, n_tokens, y, y_stride, accumulate);
}

void exec_multiply_part(struct exec *x, unsigned thread, const struct matrix *m,
                        uint32_t tile_first, uint32_t tile_count, const struct activations *a,
                        const uint32_t *tokens, uint32_t n_tokens, float *y, size_t y_stride,
                        bool accumulate)
{
    if (x->blas_allowed && x->bf16 && m->type == TENSOR_BF16 && n_tokens >= BF16_MIN_TOKENS)
        multiply_bf16(x, thread, m, tile_first, tile_count, a, tokens, n_tokens, y, y_stride,
                      accumulate);
    else if (x->blas_allowed && n_tokens >= BLAS_MIN_TOKENS && !exec_quantizes(m->type))
        for (uint32_t done = 0; done < tile_count; done += BLAS_TILES)
            multiply_blas(x, thread, m, tile_first + done,
                          tile_count - done < BLAS_TILES ? tile_count - done : BLAS_TILES, a,
                          tokens, n_tokens, y, y_stride, accumulate);
    else
        x->kernels->multiply(m, tile_first, tile_count, a, tokens, n_tokens, y, y_stride,
                             accumulate);
    if (x->progress)
        atomic_fetch_add_explicit(x->progress, 1, memory_order_relaxed);
}

struct multiply_job {
    struct exec *x;
    const struct exec_product *products;
    const struct activations *a;
};

static void multiply_chunk(void *arg, unsigned thread, uint32_t index)
{
    const struct multiply_job *j = arg;
    const struct exec_chunk *c = &j->x->chunks[index];
    const struct exec_product *p = &j->products[c->product];
    exec_multiply_part(j->x, thread, p->m, c->tile_first, c->tile_count, j->a, NULL, j->a->n_tokens,
                       p->y, p->y_stride, p->accumulate);
}

struct exec_cutting exec_cut_begin(const struct exec *x, uint64_t tiles, uint64_t tiles_by_tokens)
{
    unsigned n_threads = pool_active_count(x->pool);
    return (struct exec_cutting){.left = tiles_by_tokens,
                                 .shares = n_threads > 1 ? 2 * n_threads : 1,
                                 .fair = (uint32_t)(tiles / n_threads)};
}

/* The least tile rows of a chunk. BLAS always gets BLAS_TILES tile rows, so that the bits do not
 * depend on the number of threads. One token reads four tile rows in parallel: a multiple of 4. */
static uint32_t least_tiles(const struct exec *x, const struct exec_cutting *c,
                            const struct matrix *m, uint32_t n_tokens)
{
    if (x->blas_allowed && !exec_quantizes(m->type) && n_tokens >= BF16_MIN_TOKENS)
        return BLAS_TILES;
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
    if (n > n_tiles || x->n_chunks + EXEC_MAX_PARTS >= EXEC_MAX_CHUNKS)
        n = n_tiles;
    c->left -= n * n_tokens;
    return (uint32_t)n;
}

void exec_multiply_defined(struct exec *x, const struct matrix *m, const struct activations *a,
                           float *y, size_t y_stride, bool accumulate)
{
    bool allowed = x->blas_allowed;
    x->blas_allowed = false;
    exec_multiply(x, m, a, y, y_stride, accumulate);
    x->blas_allowed = allowed;
}

void exec_cut_product(struct exec *x, struct exec_cutting *c, uint32_t product,
                      const struct matrix *m, uint32_t n_tokens)
{
    uint32_t n_tiles = n_tokens ? tile_row_count(m->rows) : 0;
    for (uint32_t first = 0; first < n_tiles; first += x->chunks[x->n_chunks++].tile_count)
        x->chunks[x->n_chunks] =
            (struct exec_chunk){product, first, next_cut(x, c, m, n_tokens, n_tiles - first)};
}

void exec_multiply_several(struct exec *x, const struct exec_product *products, unsigned n,
                           const struct activations *a)
{
    struct multiply_job job = {x, products, a};
    uint64_t tiles = 0;
    for (unsigned i = 0; i < n; i++)
        tiles += tile_row_count(products[i].m->rows);
    struct exec_cutting cutting = exec_cut_begin(x, tiles, tiles * a->n_tokens);
    x->n_chunks = 0;
    for (unsigned i = 0; i < n; i++)
        exec_cut_product(x, &cutting, i, products[i].m, a->n_tokens);
    x->step++;
    pool_run(x->pool, multiply_chunk, &job, x->n_chunks);
}

void exec_multiply(struct exec *x, const struct matrix *m, const struct activations *a, float *y,
                   size_t y_stride, bool accumulate)
{
    exec_multiply_several(x, &(struct exec_product){m, y, y_stride, accumulate}, 1, a);
}
