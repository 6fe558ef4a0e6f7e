/* Attention over the paged cache, as kernels/kernels.h defines it for `attend`.
 *
 * A block of threads takes a tile of 4, 8 or 16 queries that read the same keys and values: heads
 * that share a key-value head, of adjacent rows of the batch with the same slot. Small tiles read
 * the keys and values more often, but more blocks of threads share the work: they are for few
 * blocks of positions. For each block of 256 positions:
 *
 *   scores   A thread computes the products of four queries with two positions, with their 16
 *            partial sums in registers. Keys and queries come through shared memory,
 *            32 dimensions at a time.
 *   softmax  A half-warp takes a query; its 16 lanes are the 16 partial sums.
 *   values   A thread sums four values of some queries over the positions in order, in registers,
 *            straight from the cache.
 *
 * The results of blocks of positions are merged in one of two ways, to the same bits:
 *
 *   walk     A block of threads goes through all positions, and merges into `out` as it goes. For
 *            many rows.
 *   split    The grid has a dimension of blocks of positions. Each result goes to scratch, and
 *            merge_blocks merges them. For few rows.
 *
 * A position that a query does not see, because another row of the tile sees it, takes no part in
 * the query's sums. Nothing is read that was not stored. */
#ifndef MOED_DEVICE_CUDA_ATTENTION_CUH
#define MOED_DEVICE_CUDA_ATTENTION_CUH

#include "device/cuda/scalar.cuh"
#include "device/module.h"

enum {
    ATTEND_BLOCK = 256, /* positions: of the definition */
    ATTEND_SMALL = 4,   /* queries of a small tile */
};

struct attend_call {
    device_kv kv;
    const device_row *rows; /* [end_row] */
    uint32_t first_row, end_row;
    const float *q;
    uint32_t n_heads, n_kv_heads, k_dim, v_dim;
    float scale;
    uint32_t window;
    const float *sinks;
    float *out;
    /* split: applied by the merge */
    const float *gate;              /* as out: device_attention.gate */
    device_activations quantized;   /* of the results; q NULL: none */
    uint32_t tile_heads, tile_rows; /* of a tile, at most */
    uint32_t tiles_a_kv_head;
    bool aligned; /* rows of q, keys, values and out are aligned to 4 values */
    /* split: of the launch's rows, [row][head][blocks of a row at most]; NULL: walk */
    float *partial; /* [v_stride] each */
    float2 *partial_sum;
    uint32_t row_blocks, v_stride;
};

/* Positions [first, end) of a row's slot. */
struct span {
    uint32_t first, end;
};

static __device__ __forceinline__ span row_span(const attend_call &c, uint32_t t)
{
    uint32_t end = c.rows[t].position + 1;

    return {c.window != 0 && end > c.window ? end - c.window : 0, end};
}

/* Query i of a tile is head first_head + i % heads of row first_row + i / heads. */
struct tile {
    uint32_t first_row, rows, slot;
    uint32_t first_head, heads, kv_head;
    uint32_t queries;
    span seen; /* by any */
};

/* A tile begins where a multiple of tile_rows, the launch or another slot's rows do. */
static __device__ __forceinline__ bool begins_tile(const attend_call &c, uint32_t t)
{
    return t == c.first_row || t % c.tile_rows == 0 || c.rows[t - 1].slot != c.rows[t].slot;
}

/* The tile that begins at row t, of this block's heads. */
static __device__ __forceinline__ tile find_tile(const attend_call &c, uint32_t t)
{
    uint32_t group = c.n_heads / c.n_kv_heads, part = blockIdx.y % c.tiles_a_kv_head;
    tile g;

    g.first_row = t;
    g.slot = c.rows[t].slot;
    g.kv_head = blockIdx.y / c.tiles_a_kv_head;
    g.first_head = g.kv_head * group + part * c.tile_heads;
    g.heads = min(c.tile_heads, group - part * c.tile_heads);
    g.seen = row_span(c, t);
    for (t++; t < c.end_row && !begins_tile(c, t); t++) {
        span s = row_span(c, t);
        g.seen.first = min(g.seen.first, s.first);
        g.seen.end = max(g.seen.end, s.end);
    }
    g.rows = t - g.first_row;
    g.queries = g.rows * g.heads;
    return g;
}

/* A query's largest score and the sum of the exponentials, of some blocks of positions. */
struct softmax_sum {
    float max, sum;
};

/* *before and *now: what values so far, and the block's, are multiplied by. */
static __device__ __forceinline__ softmax_sum merge(softmax_sum all, softmax_sum block,
                                                    float *before, float *now)
{
    float max = cuda_max(all.max, block.max);

    *before = cuda_exp(all.max - max);
    *now = cuda_exp(block.max - max);
    return {max, __fmaf_rn(all.sum, *before, block.sum * *now)};
}

static __device__ __forceinline__ softmax_sum merge_sink(softmax_sum all, float sink, float *before)
{
    float max = cuda_max(all.max, sink);

    *before = cuda_exp(all.max - max);
    return {max, __fmaf_rn(all.sum, *before, cuda_exp(sink - max))};
}

/* Rows [c.first_row, c.end_row), in tiles of at most `queries` (ATTEND_SMALL, 8 or 16):
 * attention_tile.cu. */
void attend_tiles(struct device_stream *s, const attend_call &c, uint32_t queries);

/* By tensor cores, in tiles of at most so many queries; 0: not for these dimensions on this device.
 * Keys and values in rows of their own: attention_many.cu; latent: attention_latent.cu. */
uint32_t attend_many_queries(const struct device *d, const attend_call &c);
void attend_many(struct device_stream *s, const attend_call &c);
uint32_t attend_latent_queries(const struct device *d, const attend_call &c);
void attend_latent(struct device_stream *s, const attend_call &c);

#endif
