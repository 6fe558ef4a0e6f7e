/* Attention of many rows by tensor cores: the rows of a prompt; see attention.cuh for tiles.
 *
 * A block of threads takes a tile of 64 queries, a warp 16 of them, and goes through the pages of
 * positions that any of them sees. Of each page:
 *
 *   scores   16 queries x 64 positions = queries x keys, both halves, sums float32 in registers.
 *   softmax  A query's four lanes have its scores. The largest score so far, and the sum, are kept;
 *            where the largest grows, what has been summed is multiplied by exp(old - new).
 *   values   The shares, as halves, times the values: 16 queries x the values' dimensions in
 *            registers, until the last page.
 *
 * Keys and values come through shared memory by cp.async: the next page's keys while the shares and
 * values of this one are computed, its values while the next one's scores are.
 *
 * What is rounded otherwise than in the definition: the scaled query and the shares to halves (11
 * bits), Q8_0 keys and values to halves, sums in the device's order. A row's result depends on no
 * other row: pages that it does not see add nothing, exactly. */
#include "device/cuda/attention.cuh"
#include "device/cuda/stream.h"
#include "device/cuda/kv.cuh"
#include "device/cuda/tensor_core.cuh"

#include <math.h>

enum {
    PAGE = DEVICE_PAGE,
    THREADS = 128,
    WARP_QUERIES = 16, /* rows of a matrix instruction */
    PAD = 8,           /* halves: so that 8 rows' 16 bytes lie in different banks */
};
static_assert(ATTEND_MANY == THREADS / 32 * WARP_QUERIES, "a warp has 16 queries");
static const float MOST_HALF = 65504.0f;

/* A page's keys and values. */
template <int DIM> struct page_tile {
    uint16_t keys[PAGE][DIM + PAD], values[PAGE][DIM + PAD];
};

/* What a lane has of its warp's queries: rows `group` and `group` + 8 of the matrices. */
template <int DIM> struct lane_queries {
    uint32_t row[2], head[2]; /* of the batch */
    span sees[2];             /* end 0: no query */
    uint32_t q[DIM / 16][4];
    float out[DIM / 8][4];
    float max[2], sum[2];
};

static __device__ __forceinline__ uint32_t two_halves(float low, float high)
{
    return cuda_float_to_half(low) | (uint32_t)cuda_float_to_half(high) << 16;
}

static __device__ __forceinline__ float in_range(float x)
{
    return cuda_max(-MOST_HALF, cuda_min(MOST_HALF, x));
}

template <int DIM>
static __device__ __forceinline__ void begin_queries(const attend_call &c, const tile &g,
                                                     lane_queries<DIM> *l)
{
    uint32_t place = threadIdx.x % 4;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t i = threadIdx.x / 32 * WARP_QUERIES + threadIdx.x % 32 / 4 + 8 * half;
        bool is_one = i < g.queries;
        l->row[half] = g.first_row + (is_one ? i / g.heads : 0);
        l->head[half] = g.first_head + (is_one ? i % g.heads : 0);
        l->sees[half] = is_one ? row_span(c, l->row[half]) : span{0, 0};
        l->max[half] = -INFINITY;
        l->sum[half] = 0;
        const float *q = c.q + ((size_t)l->row[half] * c.n_heads + l->head[half]) * c.k_dim;
#pragma unroll
        for (uint32_t k = 0; k < DIM / 16; k++)
#pragma unroll
            for (int right = 0; right < 2; right++) {
                uint32_t at = 16 * k + 8 * right + 2 * place;
                float2 two = {};
                if (is_one && at < c.k_dim)
                    two = *(const float2 *)(q + at);
                l->q[k][half + 2 * right] =
                    two_halves(in_range(two.x * c.scale), in_range(two.y * c.scale));
            }
    }
#pragma unroll
    for (uint32_t i = 0; i < DIM / 8; i++)
#pragma unroll
        for (int k = 0; k < 4; k++)
            l->out[i][k] = 0;
}

/* Eight values of position i from `at` on, to shared memory. */
static __device__ __forceinline__ void load_eight(const attend_call &c, const kv_rows &rows,
                                                  kv_part part, uint32_t i, uint32_t at,
                                                  uint16_t *to, uint16_t)
{
    tensor_copy<16>(to, kv_row<uint16_t>(c.kv, rows, part, i) + at);
}

static __device__ __forceinline__ void load_eight(const attend_call &c, const kv_rows &rows,
                                                  kv_part part, uint32_t i, uint32_t at,
                                                  uint16_t *to, kv_quant)
{
    float4 a = kv_floats(kv_load<kv_quant>(c.kv, rows, part, i, at));
    float4 b = kv_floats(kv_load<kv_quant>(c.kv, rows, part, i, at + 4));
    *(uint4 *)to = make_uint4(two_halves(a.x, a.y), two_halves(a.z, a.w), two_halves(b.x, b.y),
                              two_halves(b.z, b.w));
}

/* Starts the copies of a page's keys, or values, as a group; nothing beyond the last page. What no
 * query sees may never have been stored: zeros. */
template <class T, int DIM>
static __device__ __forceinline__ void load_page(const attend_call &c, const tile &g,
                                                 uint32_t first, kv_part part,
                                                 uint16_t (*to)[DIM + PAD])
{
    const uint32_t eights = DIM / 8;
    uint32_t dim = part == KV_KEYS ? c.k_dim : c.v_dim, at = threadIdx.x % eights * 8;

    if (first < g.seen.end && at < dim) {
        kv_rows rows = kv_head_rows<T>(c.kv, g.slot, first, part, g.kv_head * dim);
#pragma unroll 4
        for (uint32_t i = threadIdx.x / eights; i < PAGE; i += THREADS / eights)
            if (first + i >= g.seen.first && first + i < g.seen.end)
                load_eight(c, rows, part, i, at, &to[i][at], T());
            else
                *(uint4 *)&to[i][at] = make_uint4(0, 0, 0, 0);
    }
    tensor_copy_group();
}

/* Of the warp's queries and a page's positions, 8 in each element. */
typedef float page_scores[PAGE / 8][4];

template <int DIM>
static __device__ __forceinline__ void make_scores(const attend_call &c, const lane_queries<DIM> &l,
                                                   const uint16_t (*keys)[DIM + PAD],
                                                   page_scores scores)
{
    uint32_t lane = threadIdx.x % 32, row = lane / 16 * 8 + lane % 8, column = lane / 8 % 2 * 8;
#pragma unroll
    for (int i = 0; i < PAGE / 8; i++)
#pragma unroll
        for (int k = 0; k < 4; k++)
            scores[i][k] = 0;
#pragma unroll
    for (uint32_t k = 0; k < DIM / 16; k++)
        if (16 * k < c.k_dim)
#pragma unroll
            for (int i = 0; i < PAGE / 16; i++) {
                uint32_t words[4];
                tensor_load_4(&keys[16 * i + row][16 * k + column], words);
                tensor_multiply_f16(l.q[k], words[0], words[1], scores[2 * i]);
                tensor_multiply_f16(l.q[k], words[2], words[3], scores[2 * i + 1]);
            }
}

/* Of the four lanes that have a row. */
static __device__ __forceinline__ float largest_of_row(float x)
{
    x = cuda_max(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return cuda_max(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

static __device__ __forceinline__ float sum_of_row(float x)
{
    x = x + __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/* Scores of one row of the matrices become shares; what has been summed is adapted. */
template <int DIM>
static __device__ __forceinline__ void make_shares(uint32_t first, int half, lane_queries<DIM> *l,
                                                   page_scores scores)
{
    uint32_t position = first + threadIdx.x % 4 * 2;
    span sees = l->sees[half];
    float largest = l->max[half], sum = 0;
#pragma unroll
    for (int i = 0; i < PAGE / 8; i++)
#pragma unroll
        for (int k = 0; k < 2; k++) {
            uint32_t p = position + 8 * i + k;
            float *score = &scores[i][2 * half + k];
            *score = p >= sees.first && p < sees.end ? *score : -INFINITY;
            largest = cuda_max(largest, *score);
        }
    largest = largest_of_row(largest);
    float from = largest == -INFINITY ? 0 : largest; /* nothing is seen yet: all shares are 0 */
    float factor = cuda_exp(l->max[half] - from);
#pragma unroll
    for (int i = 0; i < PAGE / 8; i++)
#pragma unroll
        for (int k = 0; k < 2; k++) {
            float *score = &scores[i][2 * half + k];
            *score = cuda_exp(*score - from);
            sum = sum + *score;
        }
    l->sum[half] = __fmaf_rn(l->sum[half], factor, sum); /* of this lane's positions */
    l->max[half] = largest;
#pragma unroll
    for (uint32_t i = 0; i < DIM / 8; i++) {
        l->out[i][2 * half] = l->out[i][2 * half] * factor;
        l->out[i][2 * half + 1] = l->out[i][2 * half + 1] * factor;
    }
}

template <int DIM>
static __device__ __forceinline__ void add_values(const attend_call &c, const page_scores shares,
                                                  const uint16_t (*values)[DIM + PAD],
                                                  lane_queries<DIM> *l)
{
    uint32_t lane = threadIdx.x % 32, row = lane % 16, column = lane / 16 * 8;
#pragma unroll
    for (int k = 0; k < PAGE / 16; k++) {
        const float *left = shares[2 * k], *right = shares[2 * k + 1];
        const uint32_t a[4] = {two_halves(left[0], left[1]), two_halves(left[2], left[3]),
                               two_halves(right[0], right[1]), two_halves(right[2], right[3])};
#pragma unroll
        for (uint32_t i = 0; i < DIM / 16; i++)
            if (16 * i < c.v_dim) {
                uint32_t words[4];
                tensor_load_4_transposed(&values[16 * k + row][16 * i + column], words);
                tensor_multiply_f16(a, words[0], words[1], l->out[2 * i]);
                tensor_multiply_f16(a, words[2], words[3], l->out[2 * i + 1]);
            }
    }
}

template <int DIM>
static __device__ __forceinline__ void store_queries(const attend_call &c, lane_queries<DIM> *l)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        softmax_sum all = {l->max[half], sum_of_row(l->sum[half])};
        float factor = 1;
        if (c.sinks != NULL)
            all = merge_sink(all, c.sinks[l->head[half]], &factor);
        if (l->sees[half].end == 0)
            continue;
        float *out = c.out + ((size_t)l->row[half] * c.n_heads + l->head[half]) * c.v_dim;
#pragma unroll
        for (uint32_t i = 0; i < DIM / 8; i++)
            if (8 * i < c.v_dim)
                *(float2 *)(out + 8 * i + threadIdx.x % 4 * 2) =
                    make_float2(l->out[i][2 * half] * factor / all.sum,
                                l->out[i][2 * half + 1] * factor / all.sum);
    }
}

/* Grid: rows, the last first, because they have the most positions; tiles of heads. */
template <class T, int DIM>
static __global__ void __launch_bounds__(THREADS, 2) attend_many_tile(attend_call c)
{
#if TENSOR_CORE_CODE
    CUDA_SHARED(page_tile<DIM>, sh);
    uint32_t t = c.end_row - 1 - blockIdx.x;
    lane_queries<DIM> l;
    page_scores scores;

    if (!begins_tile(c, t))
        return;
    tile g = find_tile(c, t);
    uint32_t first = g.seen.first / PAGE * PAGE;
    load_page<T, DIM>(c, g, first, KV_KEYS, sh->keys);
    load_page<T, DIM>(c, g, first, KV_VALUES, sh->values);
    begin_queries<DIM>(c, g, &l);
    for (; first < g.seen.end; first += PAGE) {
        tensor_copy_wait<1>();
        __syncthreads();
        make_scores<DIM>(c, l, sh->keys, scores);
        __syncthreads();
        load_page<T, DIM>(c, g, first + PAGE, KV_KEYS, sh->keys);
        make_shares<DIM>(first, 0, &l, scores);
        make_shares<DIM>(first, 1, &l, scores);
        tensor_copy_wait<1>();
        __syncthreads();
        add_values<DIM>(c, scores, sh->values, &l);
        __syncthreads();
        load_page<T, DIM>(c, g, first + PAGE, KV_VALUES, sh->values);
    }
    tensor_copy_wait_all();
    store_queries<DIM>(c, &l);
#endif
}

bool attend_many_takes(const attend_call &c)
{
    uint32_t dim = c.k_dim > c.v_dim ? c.k_dim : c.v_dim;

    return c.kv.type != TENSOR_F32 && c.kv.rows == 2 && dim <= 128 && c.k_dim % 16 == 0 &&
           c.v_dim % 16 == 0 && c.kv.key_values % 8 == 0 && c.kv.value_values % 8 == 0 && c.aligned;
}

template <class T, int DIM> static void launch(struct device_stream *s, const attend_call &c)
{
    dim3 grid(c.end_row - c.first_row, c.n_kv_heads * c.tiles_a_kv_head);

    CUDA_LAUNCH((attend_many_tile<T, DIM>), grid, THREADS, sizeof(page_tile<DIM>), cuda_stream(s),
                c);
    cuda_check(s, "attend_many");
}

template <class T> static void launch_of(struct device_stream *s, const attend_call &c)
{
    if (c.k_dim <= 64 && c.v_dim <= 64)
        launch<T, 64>(s, c);
    else
        launch<T, 128>(s, c);
}

void attend_many(struct device_stream *s, const attend_call &c)
{
    if (c.kv.type == TENSOR_Q8_0)
        launch_of<kv_quant>(s, c);
    else
        launch_of<uint16_t>(s, c);
}
