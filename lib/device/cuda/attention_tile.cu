/* Attention of a tile of queries; see attention.cuh. */
#include "device/cuda/attention.cuh"
#include "device/cuda/dependent.cuh"
#include "device/cuda/kv.cuh"

#include <math.h>

enum {
    BLOCK = ATTEND_BLOCK,
    PAGES = BLOCK / DEVICE_PAGE,
    THREADS = 128,
    DIMS = 32, /* dimensions of keys and queries in shared memory at a time */
    /* positions whose values are loaded before their sums; within a page */
    STEP = CUDA_MORE_REGISTERS ? 8 : 16,
    SMALL_TILE = ATTEND_SMALL,
};

/* The memory that the threads of a block share. Positions count from the first one of the block. */
template <int QUERIES> struct shared_tile {
    /* Whose keys are here at a time: 128 threads have 8 products each. */
    static const uint32_t POSITIONS = 1024 / QUERIES;
    /* Scores, then their shares. 16: two half-warps' rows in different banks. */
    float p[QUERIES][BLOCK + 16];
    /* 4: so that 8 rows' 16 bytes lie in different banks. */
    float keys[POSITIONS][DIMS + 4];
    float q[QUERIES][DIMS];
    kv_rows keys_of[PAGES], values_of[PAGES]; /* the key-value head's, a page each */
    uint32_t low[QUERIES], high[QUERIES];     /* positions that the query sees: [low, high) */
    bool first[QUERIES], last[QUERIES];       /* the query's first, its last block of positions */
    /* walk: what is known of all blocks so far, and what its sum and the block's are multiplied by
     */
    float max[QUERIES], sum[QUERIES], before[QUERIES], now[QUERIES], sink[QUERIES];
};

/* Of block b of positions: its pages, and what each query sees of it. */
template <class T, int QUERIES>
static __device__ void prepare(const attend_call &c, const tile &g, uint32_t b,
                               shared_tile<QUERIES> *sh)
{
    uint32_t i = threadIdx.x;

    if (i < g.queries) {
        span s = row_span(c, g.first_row + i / g.heads);
        uint32_t low = max(s.first, b * BLOCK), high = min(s.end, (b + 1) * BLOCK);
        sh->low[i] = low < high ? low - b * BLOCK : 0;
        sh->high[i] = low < high ? high - b * BLOCK : 0;
        sh->first[i] = b == s.first / BLOCK;
        sh->last[i] = b == (s.end - 1) / BLOCK;
    }
    if (i < PAGES) {
        uint32_t position = b * BLOCK + i * DEVICE_PAGE;
        if (position < g.seen.end && position + DEVICE_PAGE > g.seen.first) {
            sh->keys_of[i] = kv_head_rows<T>(c.kv, g.slot, position, KV_KEYS, g.kv_head * c.k_dim);
            sh->values_of[i] =
                kv_head_rows<T>(c.kv, g.slot, position, KV_VALUES, g.kv_head * c.v_dim);
        } else /* so that a load of them fails wherever it is */
            sh->keys_of[i] = sh->values_of[i] = {};
    }
}

/* Ask for the rows of positions [first, end), `values` of each, so that what follows does not wait
 * for each of its loads in turn. */
template <class T>
static __device__ void prefetch_rows(const attend_call &c, const kv_rows *pages, kv_part part,
                                     uint32_t first, uint32_t end, uint32_t values)
{
    uint32_t lines = (values * sizeof(T) + 127) / 128;

    for (uint32_t i = threadIdx.x; i < (end - first) * lines; i += THREADS) {
        uint32_t position = first + i / lines;
        cuda_prefetch((const uint8_t *)kv_row<T>(c.kv, pages[position / DEVICE_PAGE], part,
                                                 position % DEVICE_PAGE) +
                      (size_t)(i % lines) * 128);
    }
}

/* Dimensions [dim, dim + DIMS) of the queries, and of the keys of POSITIONS positions from `first`
 * on; those from `end` on repeat the last. */
template <class T, int QUERIES>
static __device__ __forceinline__ void load_keys(const attend_call &c, const tile &g,
                                                 uint32_t first, uint32_t end, uint32_t dim,
                                                 shared_tile<QUERIES> *sh)
{
    const uint32_t quads = DIMS / 4, rows = THREADS / quads;
    const uint32_t n = shared_tile<QUERIES>::POSITIONS / rows;
    const uint32_t in_flight =
        sizeof(T) == 1 ? 2 : 4; /* loads under way: as many as leave the products their registers */
    uint32_t quad = threadIdx.x % quads, row = threadIdx.x / quads, at = dim + 4 * quad;

    if (row < g.queries) {
        uint32_t t = g.first_row + row / g.heads, head = g.first_head + row % g.heads;
        const float *q = c.q + ((size_t)t * c.n_heads + head) * c.k_dim;
        *(float4 *)&sh->q[row][4 * quad] = kv_quad(q, at, c.k_dim);
    }
    if (c.aligned && at < c.k_dim) {
#pragma unroll(sizeof(T) == 1 ? 1 : n / in_flight)
        for (uint32_t i = 0; i < n; i += in_flight) {
            kv_four<T> keys[in_flight];
#pragma unroll
            for (uint32_t k = 0; k < in_flight; k++) {
                uint32_t position = min(first + (i + k) * rows + row, end - 1);
                keys[k] = kv_load<T>(c.kv, sh->keys_of[position / DEVICE_PAGE], KV_KEYS,
                                     position % DEVICE_PAGE, at);
            }
#pragma unroll
            for (uint32_t k = 0; k < in_flight; k++)
                *(float4 *)&sh->keys[(i + k) * rows + row][4 * quad] = kv_floats(keys[k]);
        }
    } else
        for (uint32_t i = 0; i < n; i++) {
            uint32_t position = min(first + i * rows + row, end - 1);
            *(float4 *)&sh->keys[i * rows + row][4 * quad] =
                kv_some<T>(c.kv, sh->keys_of[position / DEVICE_PAGE], KV_KEYS,
                           position % DEVICE_PAGE, at, c.k_dim);
        }
}

/* Products of four queries and two positions, 16 partial sums each. */
struct products {
    float sum[4][2][16];
};

static __device__ __forceinline__ void add_product(float *sum, float4 a, float4 b)
{
    sum[0] = __fmaf_rn(a.x, b.x, sum[0]);
    sum[1] = __fmaf_rn(a.y, b.y, sum[1]);
    sum[2] = __fmaf_rn(a.z, b.z, sum[2]);
    sum[3] = __fmaf_rn(a.w, b.w, sum[3]);
}

/* 16 dimensions; keys_0 and keys_1: the two positions' of them. */
static __device__ __forceinline__ void add_products(products *s, const float (*q)[DIMS],
                                                    const float *keys_0, const float *keys_1)
{
#pragma unroll
    for (int i = 0; i < 16; i += 4) {
        float4 k0 = *(const float4 *)(keys_0 + i), k1 = *(const float4 *)(keys_1 + i);
#pragma unroll
        for (int query = 0; query < 4; query++) {
            float4 values = *(const float4 *)(q[query] + i);
            add_product(s->sum[query][0] + i, values, k0);
            add_product(s->sum[query][1] + i, values, k1);
        }
    }
}

/* By 8, 4, 2, 1; written so that the sums stay in registers. */
static __device__ __forceinline__ float fold(const float *s)
{
    float a = (s[0] + s[8]) + (s[4] + s[12]), b = (s[1] + s[9]) + (s[5] + s[13]);
    float c = (s[2] + s[10]) + (s[6] + s[14]), d = (s[3] + s[11]) + (s[7] + s[15]);

    return (a + c) + (b + d);
}

/* The scores of positions [first, end) of the block, for all queries. Warps differ in their four
 * queries and in which 64 positions; lane l has positions l and l + 32 of them. */
template <class T, int QUERIES>
static __device__ void make_scores(const attend_call &c, const tile &g, uint32_t first,
                                   uint32_t end, shared_tile<QUERIES> *sh)
{
    const uint32_t positions = shared_tile<QUERIES>::POSITIONS;
    uint32_t warp = threadIdx.x / 32, query = warp % (QUERIES / 4) * 4;
    uint32_t place = warp / (QUERIES / 4) * 64 + threadIdx.x % 32;

    for (; first < end; first += positions) {
        products s = {};
        bool idle = query >= g.queries || first + place - threadIdx.x % 32 >= end;
        for (uint32_t dim = 0; dim < c.k_dim; dim += DIMS) {
            load_keys<T>(c, g, first, end, dim, sh);
            __syncthreads();
            if (!idle) {
                add_products(&s, &sh->q[query], sh->keys[place], sh->keys[place + 32]);
                if (dim + 16 < c.k_dim)
                    add_products(&s, (const float(*)[DIMS]) & sh->q[query][16],
                                 sh->keys[place] + 16, sh->keys[place + 32] + 16);
            }
            __syncthreads();
        }
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            float score[2] = {fold(s.sum[i][0]) * c.scale, fold(s.sum[i][1]) * c.scale};
            for (uint32_t half = 0; half < 2 && !idle; half++)
                if (first + place + 32 * half < end)
                    sh->p[query + i][first + place + 32 * half] = score[half];
        }
    }
}

/* Merges a query's sums of one block; called by lane 0 of its half-warp. */
template <int QUERIES>
static __device__ void keep_sums(const attend_call &c, const tile &g, uint32_t b, uint32_t i,
                                 softmax_sum block, shared_tile<QUERIES> *sh)
{
    uint32_t t = g.first_row + i / g.heads, head = g.first_head + i % g.heads;

    if (c.partial != NULL) {
        uint32_t row_block = b - row_span(c, t).first / BLOCK;
        c.partial_sum[((size_t)(t - c.first_row) * c.n_heads + head) * c.row_blocks + row_block] =
            make_float2(block.max, block.sum);
        return;
    }
    if (!sh->first[i])
        block = merge({sh->max[i], sh->sum[i]}, block, &sh->before[i], &sh->now[i]);
    if (sh->last[i] && c.sinks != NULL)
        block = merge_sink(block, c.sinks[head], &sh->sink[i]);
    sh->max[i] = block.max;
    sh->sum[i] = block.sum;
}

template <int QUERIES>
static __device__ void make_shares(const attend_call &c, const tile &g, uint32_t b,
                                   shared_tile<QUERIES> *sh)
{
    const uint32_t half_warps = THREADS / 16;
    uint32_t lane = threadIdx.x % 16;

    for (uint32_t i = threadIdx.x / 16; i < QUERIES; i += half_warps) {
        /* A half-warp without a query takes part in the other one's fold. */
        bool seen = i < g.queries && sh->low[i] < sh->high[i];
        uint32_t low = seen ? sh->low[i] + lane : 0, high = seen ? sh->high[i] : 0;
        softmax_sum block = {-INFINITY, 0};
        for (uint32_t j = low; j < high; j += 16)
            block.max = cuda_max(block.max, sh->p[i][j]);
        block.max = cuda_fold_max(block.max);
#pragma unroll 4
        for (uint32_t j = low; j < high; j += 16) {
            float p = cuda_exp(sh->p[i][j] - block.max);
            sh->p[i][j] = p;
            block.sum = block.sum + p;
        }
        block.sum = cuda_fold_add(block.sum);
        if (seen && lane == 0)
            keep_sums(c, g, b, i, block, sh);
    }
}

static __device__ __forceinline__ float4 times(float4 a, float by)
{
    return make_float4(a.x * by, a.y * by, a.z * by, a.w * by);
}

static __device__ __forceinline__ float4 fused(float by, float4 a, float4 sum)
{
    return make_float4(__fmaf_rn(by, a.x, sum.x), __fmaf_rn(by, a.y, sum.y),
                       __fmaf_rn(by, a.z, sum.z), __fmaf_rn(by, a.w, sum.w));
}

static __device__ __forceinline__ void store_quad(float *p, uint32_t i, uint32_t n, bool aligned,
                                                  float4 a)
{
    if (aligned) {
        *(float4 *)(p + i) = a;
        return;
    }
    p[i] = a.x;
    if (i + 1 < n)
        p[i + 1] = a.y;
    if (i + 2 < n)
        p[i + 2] = a.z;
    if (i + 3 < n)
        p[i + 3] = a.w;
}

static __device__ __forceinline__ float4 load_quad(const float *p, uint32_t i, uint32_t n,
                                                   bool aligned)
{
    if (aligned)
        return *(const float4 *)(p + i);
    return make_float4(p[i], i + 1 < n ? p[i + 1] : 0, i + 2 < n ? p[i + 2] : 0,
                       i + 3 < n ? p[i + 3] : 0);
}

/* Query i's values [4 * quad, 4 * quad + 4) of block b of positions: into scratch, or onto what out
 * has of the blocks before, which the same thread put there. */
template <int QUERIES>
static __device__ __forceinline__ void keep_values(const attend_call &c, const tile &g, uint32_t b,
                                                   uint32_t i, uint32_t quad, float4 values,
                                                   const shared_tile<QUERIES> &sh)
{
    uint32_t t = g.first_row + i / g.heads, head = g.first_head + i % g.heads;

    if (c.partial != NULL) {
        uint32_t row_block = b - row_span(c, t).first / BLOCK;
        size_t at = ((size_t)(t - c.first_row) * c.n_heads + head) * c.row_blocks + row_block;
        *(float4 *)(c.partial + at * c.v_stride + 4 * quad) = values;
        return;
    }
    float *out = c.out + ((size_t)t * c.n_heads + head) * c.v_dim;
    if (!sh.first[i])
        values = fused(sh.before[i], load_quad(out, 4 * quad, c.v_dim, c.aligned),
                       times(values, sh.now[i]));
    if (sh.last[i]) {
        if (c.sinks != NULL)
            values = times(values, sh.sink[i]);
        float sum = sh.sum[i];
        values = make_float4(values.x / sum, values.y / sum, values.z / sum, values.w / sum);
    }
    store_quad(out, 4 * quad, c.v_dim, c.aligned, values);
}

/* Four values of OWN queries next to each other, summed by one thread; those beyond the tile's last
 * query repeat it, to no end. any, all: positions that some, that every one of them sees; any:
 * {BLOCK, 0} where none sees one. Only of pages with such positions are the rows known. */
template <int OWN> struct weighing {
    uint32_t query[OWN];
    span any, all;
    float4 sum[OWN];
};

template <int QUERIES, int OWN>
static __device__ __forceinline__ weighing<OWN> begin_weighing(const tile &g, uint32_t first,
                                                               const shared_tile<QUERIES> &sh)
{
    weighing<OWN> w;

    w.any = {BLOCK, 0};
    w.all = {0, BLOCK};
#pragma unroll
    for (int i = 0; i < OWN; i++) {
        uint32_t query = min(first + i, g.queries - 1);
        w.query[i] = query;
        w.sum[i] = make_float4(0, 0, 0, 0);
        if (sh.low[query] < sh.high[query])
            w.any = {min(w.any.first, sh.low[query]), max(w.any.end, sh.high[query])};
        w.all = {max(w.all.first, sh.low[query]), min(w.all.end, sh.high[query])};
    }
    return w;
}

/* A position that not every query sees. */
template <int QUERIES, int OWN>
static __device__ __forceinline__ void add_seen(weighing<OWN> *w, uint32_t position, float4 values,
                                                const shared_tile<QUERIES> &sh)
{
#pragma unroll
    for (int i = 0; i < OWN; i++)
        if (position >= sh.low[w->query[i]] && position < sh.high[w->query[i]])
            w->sum[i] = fused(sh.p[w->query[i]][position], values, w->sum[i]);
}

/* Four values of each of STEP positions, as they are in the cache. */
template <class T> struct value_step {
    kv_four<T> of[STEP];
};

/* Positions [j, j + STEP): at the ends of what is seen some once more, to no end. */
template <class T, int QUERIES, int OWN>
static __device__ __forceinline__ void
load_step(const attend_call &c, uint32_t j, uint32_t quad, const weighing<OWN> &w,
          const shared_tile<QUERIES> &sh, value_step<T> *step)
{
    kv_rows rows = sh.values_of[j / DEVICE_PAGE];

#pragma unroll
    for (int k = 0; k < STEP; k++) {
        uint32_t position = min(max(j + k, w.any.first), w.any.end - 1);
        step->of[k] = kv_load<T>(c.kv, rows, KV_VALUES, position % DEVICE_PAGE, 4 * quad);
    }
}

template <class T, int QUERIES, int OWN>
static __device__ __forceinline__ void add_step(uint32_t j, const value_step<T> &step,
                                                weighing<OWN> *w, const shared_tile<QUERIES> &sh)
{
    if (j < w->all.first || j + STEP > w->all.end) {
#pragma unroll
        for (int k = 0; k < STEP; k++)
            add_seen(w, j + k, kv_floats(step.of[k]), sh);
        return;
    }
#pragma unroll
    for (int k = 0; k < STEP; k += 4) {
        float4 values[4];
#pragma unroll
        for (int n = 0; n < 4; n++)
            values[n] = kv_floats(step.of[k + n]);
#pragma unroll
        for (int i = 0; i < OWN; i++) {
            float4 p = *(const float4 *)&sh.p[w->query[i]][j + k];
            w->sum[i] = fused(p.x, values[0], w->sum[i]);
            w->sum[i] = fused(p.y, values[1], w->sum[i]);
            w->sum[i] = fused(p.z, values[2], w->sum[i]);
            w->sum[i] = fused(p.w, values[3], w->sum[i]);
        }
    }
}

/* All positions that some query sees. In small tiles a block of threads has a multiprocessor to
 * itself, and nothing else covers its loads: so the next step's are under way. */
template <class T, int QUERIES, int OWN>
static __device__ __forceinline__ void add_steps(const attend_call &c, uint32_t quad,
                                                 weighing<OWN> *w, const shared_tile<QUERIES> &sh)
{
    uint32_t j = w->any.first / STEP * STEP;
    value_step<T> now, next;

    if (QUERIES > SMALL_TILE) {
        for (; j < w->any.end; j += STEP) {
            load_step<T>(c, j, quad, *w, sh, &now);
            add_step<T>(j, now, w, sh);
        }
        return;
    }
    load_step<T>(c, j, quad, *w, sh, &now);
    for (; j < w->any.end; j += STEP) {
        if (j + STEP < w->any.end)
            load_step<T>(c, j + STEP, quad, *w, sh, &next);
        add_step<T>(j, now, w, sh);
        now = next;
    }
}

/* The sums over a block's positions of shares times values. */
template <class T, int QUERIES, int OWN>
static __device__ __forceinline__ void weigh_values(const attend_call &c, const tile &g, uint32_t b,
                                                    const shared_tile<QUERIES> &sh)
{
    uint32_t quads = (c.v_dim + 3) / 4;

    for (uint32_t item = threadIdx.x; item < QUERIES / OWN * quads; item += THREADS) {
        uint32_t first = item / quads * OWN, quad = item % quads;
        if (first >= g.queries)
            break;
        weighing<OWN> w = begin_weighing<QUERIES, OWN>(g, first, sh);
        if (w.any.first >= w.any.end)
            continue;
        if (c.aligned)
            add_steps<T>(c, quad, &w, sh);
        else
            for (uint32_t j = w.any.first; j < w.any.end; j++)
                add_seen(&w, j,
                         kv_some<T>(c.kv, sh.values_of[j / DEVICE_PAGE], KV_VALUES, j % DEVICE_PAGE,
                                    4 * quad, c.v_dim),
                         sh);
#pragma unroll
        for (int i = 0; i < OWN; i++)
            if (first + i < g.queries && sh.low[first + i] < sh.high[first + i])
                keep_values(c, g, b, first + i, quad, w.sum[i], sh);
    }
}

/* Blocks of threads of a multiprocessor: as many as need no register saved. */
template <class T, int QUERIES> struct resident {
    enum { BLOCKS = QUERIES == 8 && sizeof(T) > 1 && !CUDA_MORE_REGISTERS ? 3 : 2 };
};

/* Grid: blocks of positions (1: walk), tiles of heads, rows. */
template <class T, int QUERIES>
static __global__ void __launch_bounds__(THREADS, resident<T, QUERIES>::BLOCKS)
    attend_tile(const __grid_constant__ attend_call c)
{
    __shared__ __align__(16) shared_tile<QUERIES> sh;
    __shared__ tile g; /* shared, to leave the registers to the products */

    cuda_await_previous();
    if (!begins_tile(c, c.first_row + blockIdx.z))
        return;
    if (threadIdx.x == 0)
        g = find_tile(c, c.first_row + blockIdx.z);
    __syncthreads();
    for (uint32_t b = g.seen.first / BLOCK + blockIdx.x; b * BLOCK < g.seen.end; b += gridDim.x) {
        prepare<T>(c, g, b, &sh);
        __syncthreads();
        uint32_t first = max(g.seen.first, b * BLOCK) - b * BLOCK,
                 end = min(g.seen.end - b * BLOCK, BLOCK);
        prefetch_rows<T>(c, sh.keys_of, KV_KEYS, first, end, c.k_dim);
        if (c.kv.rows > 1)
            prefetch_rows<T>(c, sh.values_of, KV_VALUES, first, end, c.v_dim);
        make_scores<T>(c, g, first, end, &sh);
        __syncthreads();
        make_shares(c, g, b, &sh);
        __syncthreads();
        /* As many queries a thread as leave no thread without work: a value that is loaded serves
         * them all. */
        uint32_t values = QUERIES * ((c.v_dim + 3) / 4);
        if constexpr (QUERIES <= SMALL_TILE) {
            if (values >= 2 * THREADS)
                weigh_values<T, QUERIES, 2>(c, g, b, sh);
            else
                weigh_values<T, QUERIES, 1>(c, g, b, sh);
        } else if (values >= 8 * THREADS)
            weigh_values<T, QUERIES, 8>(c, g, b, sh);
        else if (values >= 4 * THREADS)
            weigh_values<T, QUERIES, 4>(c, g, b, sh);
        else
            weigh_values<T, QUERIES, 2>(c, g, b, sh);
        __syncthreads();
    }
}

template <class T>
static void launch(struct device_stream *s, const attend_call &c, uint32_t queries)
{
    dim3 grid(c.partial != NULL ? c.row_blocks : 1, c.n_kv_heads * c.tiles_a_kv_head,
              c.end_row - c.first_row);

    if (queries == ATTEND_SMALL)
        CUDA_LAUNCH_EARLY((attend_tile<T, ATTEND_SMALL>), grid, THREADS, 0, s, c);
    else if (queries == 8)
        CUDA_LAUNCH_EARLY((attend_tile<T, 8>), grid, THREADS, 0, s, c);
    else
        CUDA_LAUNCH_EARLY((attend_tile<T, 16>), grid, THREADS, 0, s, c);
    cuda_check(s, "attend");
}

void attend_tiles(struct device_stream *s, const attend_call &c, uint32_t queries)
{
    if (c.kv.type == TENSOR_Q8_0)
        launch<kv_quant>(s, c, queries);
    else if (c.kv.type == TENSOR_F16)
        launch<uint16_t>(s, c, queries);
    else
        launch<float>(s, c, queries);
}
