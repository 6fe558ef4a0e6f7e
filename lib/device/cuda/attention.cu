/* Attention: how a batch is cut into launches, and the merge of blocks of positions; see
 * attention.cuh. */
#include "device/cuda/attention.cuh"
#include "device/cuda/dependent.cuh"
#include "device/cuda/ops.h"
#include "device/cuda/quantize.cuh"

enum {
    BLOCK = ATTEND_BLOCK,
    MERGE_THREADS = 128,
    MANY_ROWS = 64,      /* from here on tiles are larger: most likely a prefill chunk */
    WALK_QUERIES = 4096, /* heads of rows that give enough tiles for any device */
    GRID_ROWS = 32768,
};
static const size_t PARTIAL_BYTES = 64u << 20u; /* of one launch, where a row does not need more */

/* Value d of a head of row t: multiplied by its gate, stored and quantised. Whole warps call it
 * where it is quantised. */
static __device__ __forceinline__ void finish_value(const attend_call &c, uint32_t t, uint32_t head,
                                                    uint32_t d, float value)
{
    size_t at = ((size_t)t * c.n_heads + head) * c.v_dim + d;

    if (c.gate != NULL)
        value = value / (1.0f + cuda_exp(-c.gate[at]));
    c.out[at] = value;
    if (c.quantized.q != NULL)
        quantize_32(c.quantized, t, (head * c.v_dim + d) / 32, value);
}

/* A head in x, a row in y: the blocks of scratch, in order. In rounds of MERGE_THREADS blocks,
 * whose factors a thread each makes; then a thread a value. */
static __global__ void __launch_bounds__(MERGE_THREADS)
    merge_blocks(const __grid_constant__ attend_call c)
{
    __shared__ float block_max[MERGE_THREADS], block_sum[MERGE_THREADS], before[MERGE_THREADS],
        now[MERGE_THREADS];
    uint32_t head = blockIdx.x, t = c.first_row + blockIdx.y;

    cuda_await_previous();
    span s = row_span(c, t);
    uint32_t blocks = (s.end - 1) / BLOCK - s.first / BLOCK + 1;
    size_t at = ((size_t)blockIdx.y * c.n_heads + head) * c.row_blocks;
    const float2 *sums = c.partial_sum + at;
    const float *partial = c.partial + at * c.v_stride;

    for (uint32_t d0 = 0; d0 < c.v_dim; d0 += MERGE_THREADS) {
        uint32_t d = min(d0 + threadIdx.x, c.v_dim - 1);
        softmax_sum all = {0, 0};
        float value = 0;
        for (uint32_t b0 = 0; b0 < blocks; b0 += MERGE_THREADS) {
            uint32_t n = min((uint32_t)MERGE_THREADS, blocks - b0), i = threadIdx.x;
            __syncthreads();
            if (i < n) {
                float2 sum = sums[b0 + i];
                block_max[i] = sum.x;
                block_sum[i] = sum.y;
            }
            __syncthreads();
            if (i < n && b0 + i > 0) {
                float max = b0 > 0 ? all.max : block_max[0]; /* of all blocks before b0 + i */
                for (uint32_t k = 0; k < i; k++)
                    max = cuda_max(max, block_max[k]);
                merge({max, 0}, {block_max[i], 0}, &before[i], &now[i]);
            }
            __syncthreads();
#pragma unroll 8
            for (uint32_t k = 0; k < n; k++) {
                float of_block = partial[(size_t)(b0 + k) * c.v_stride + d];
                bool first = b0 + k == 0;
                all.max = first ? block_max[k] : cuda_max(all.max, block_max[k]);
                all.sum =
                    first ? block_sum[k] : __fmaf_rn(all.sum, before[k], block_sum[k] * now[k]);
                value = first ? of_block : __fmaf_rn(value, before[k], of_block * now[k]);
            }
        }
        if (c.sinks != NULL) {
            float factor;
            all = merge_sink(all, c.sinks[head], &factor);
            value = value * factor;
        }
        if (d0 + threadIdx.x < c.v_dim)
            finish_value(c, t, head, d, value / all.sum);
    }
}

static uint32_t blocks_of(uint32_t positions)
{
    return (positions + BLOCK - 1) / BLOCK;
}

/* Of one row's blocks in scratch. */
static size_t row_partial_bytes(uint32_t n_heads, uint32_t v_dim, uint32_t blocks)
{
    return (size_t)n_heads * blocks * ((v_dim + 3) / 4 * sizeof(float4) + sizeof(float2));
}

static bool walks(uint32_t n, uint32_t n_heads)
{
    return (size_t)n * n_heads >= WALK_QUERIES;
}

/* How many rows' blocks scratch holds at a time. */
static uint32_t rows_a_split(size_t row_bytes)
{
    return row_bytes >= PARTIAL_BYTES ? 1 : (uint32_t)(PARTIAL_BYTES / row_bytes);
}

/* Never less for more rows or positions than for fewer. */
size_t cuda_attend_scratch_bytes(uint32_t n, uint32_t n_heads, uint32_t v_dim,
                                 uint32_t most_positions)
{
    uint32_t blocks = blocks_of(most_positions),
             rows = min(n, (uint32_t)((WALK_QUERIES - 1) / n_heads));
    size_t row_bytes = row_partial_bytes(n_heads, v_dim, blocks);
    size_t most = row_bytes > PARTIAL_BYTES ? row_bytes : PARTIAL_BYTES;

    return rows * row_bytes < most ? rows * row_bytes : most;
}

/* Rows [c.first_row, c.end_row). */
static void attend_rows(struct device_stream *s, const attend_call &c, uint32_t queries)
{
    attend_tiles(s, c, queries);
    if (c.partial != NULL) {
        CUDA_LAUNCH_EARLY(merge_blocks, dim3(c.n_heads, c.end_row - c.first_row), MERGE_THREADS, 0,
                          s, c);
        cuda_check(s, "merge_blocks");
    }
}

static bool aligned_to(size_t value, size_t to)
{
    return value % to == 0;
}

/* What a launch that walks leaves to do. */
static void finish_walked(struct device_stream *s, const struct device_attention *a, uint32_t n,
                          float *out, const struct device_activations *quantized)
{
    if (a->gate)
        cuda_gate_by_sigmoid(s, a->gate, out, (size_t)n * a->n_heads * a->v_dim);
    if (quantized)
        cuda_quantize(s, quantized);
}

/* How many queries a tile has: as many as leave no multiprocessor idle, where there are so many. */
static uint32_t tile_queries(const struct device_stream *s, const struct device_attention *a,
                             uint32_t n, uint32_t blocks)
{
    uint32_t group = a->n_heads / a->n_kv_heads;
    uint64_t tiles = (uint64_t)n * blocks * a->n_kv_heads * ((group + 7) / 8);

    if (n >= MANY_ROWS)
        return 16;
    if (2 * tiles <= (uint64_t)s->device->multiprocessors)
        return ATTEND_SMALL;
    return group > 8 ? 16 : 8;
}

static attend_call call_of(const struct device_kv *kv, const struct device_row *rows,
                           const float *q, const struct device_attention *a, float *out)
{
    attend_call c = {};

    c.kv = *kv;
    c.rows = rows;
    c.q = q;
    c.n_heads = a->n_heads;
    c.n_kv_heads = a->n_kv_heads;
    c.k_dim = a->k_dim;
    c.v_dim = a->v_dim;
    c.scale = a->scale;
    c.window = a->window;
    c.sinks = a->sinks;
    c.out = out;
    c.aligned = aligned_to(a->k_dim, 4) && aligned_to(a->v_dim, 4) &&
                aligned_to(kv->key_values, 4) && aligned_to(kv->value_values, 4) &&
                aligned_to((uintptr_t)q, 16) && aligned_to((uintptr_t)out, 16);
    return c;
}

/* Tiles of at most so many queries. */
static void cut_tiles(attend_call *c, uint32_t queries)
{
    uint32_t group = c->n_heads / c->n_kv_heads;

    c->tiles_a_kv_head = (group + queries - 1) / queries;
    c->tile_heads = (group + c->tiles_a_kv_head - 1) / c->tiles_a_kv_head;
    c->tile_rows = queries / c->tile_heads;
}

void cuda_attend(struct device_stream *s, const struct device_kv *kv, const struct device_row *rows,
                 uint32_t n, uint32_t most_positions, const float *q,
                 const struct device_attention *a, float *out,
                 const struct device_activations *quantized, void *scratch)
{
    uint32_t rows_a_launch = GRID_ROWS;
    uint32_t blocks = blocks_of(most_positions), queries = tile_queries(s, a, n, blocks);
    bool walk = walks(n, a->n_heads), quantize_after = quantized && a->v_dim % 32 != 0;
    attend_call c = call_of(kv, rows, q, a, out);

    cut_tiles(&c, queries);
    if (!walk) {
        rows_a_launch = rows_a_split(row_partial_bytes(a->n_heads, a->v_dim, blocks));
        c.row_blocks = a->window != 0 ? min(blocks, (a->window + BLOCK - 2) / BLOCK + 1) : blocks;
        c.v_stride = (a->v_dim + 3) / 4 * 4;
        c.partial = (float *)scratch;
        c.partial_sum = (float2 *)(c.partial + (size_t)min(n, rows_a_launch) * a->n_heads *
                                                   c.row_blocks * c.v_stride);
        c.gate = a->gate;
        if (quantized && !quantize_after)
            c.quantized = *quantized;
    }
    for (; c.first_row < n; c.first_row = c.end_row) {
        c.end_row = min(n, c.first_row + rows_a_launch);
        attend_rows(s, c, queries);
    }
    if (n > 0 && walk)
        finish_walked(s, a, n, out, quantized);
    else if (n > 0 && quantize_after)
        cuda_quantize(s, quantized);
}

/* Queries of a tile for tensor cores; 0: they cannot compute it. */
static uint32_t many_queries(const struct device *d, const attend_call &c)
{
    if (!d->tensor_cores || c.kv.type == TENSOR_F32 || !c.aligned || !aligned_to(c.k_dim, 16) ||
        !aligned_to(c.v_dim, 16) || !aligned_to(c.kv.key_values, 8) ||
        !aligned_to(c.kv.value_values, 8))
        return 0;
    return c.kv.rows == 1 ? attend_latent_queries(d, c) : attend_many_queries(d, c);
}

void cuda_attend_many(struct device_stream *s, const struct device_kv *kv,
                      const struct device_row *rows, uint32_t n, uint32_t most_positions,
                      const float *q, const struct device_attention *a, float *out,
                      const struct device_activations *quantized, void *scratch)
{
    attend_call c = call_of(kv, rows, q, a, out);
    uint32_t queries = many_queries(s->device, c);

    if (queries == 0) {
        cuda_attend(s, kv, rows, n, most_positions, q, a, out, quantized, scratch);
        return;
    }
    cut_tiles(&c, queries);
    c.end_row = n;
    if (kv->rows == 1)
        attend_latent(s, c);
    else
        attend_many(s, c);
    finish_walked(s, a, n, out, quantized);
}
