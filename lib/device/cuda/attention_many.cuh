/* Attention of many rows by tensor cores, of the rows of a prompt: what its kernels share. See
 * attention.cuh for tiles, attention_many.cu and attention_latent.cu for the kernels.
 *
 * A block of threads takes a tile of queries and goes through the positions that any of them sees,
 * a step of 64 or 32 at a time. Of each step:
 *
 *   scores   16 queries x positions = queries x keys, both halves, sums float32 in registers.
 *   softmax  A query's four lanes have its scores. The largest score so far, and the sum, are kept;
 *            where the largest grows, what has been summed is multiplied by exp(old - new).
 *   values   The shares, as halves, times the values: 16 queries x the values' dimensions in
 *            registers, until the last step.
 *
 * Heads of more than 128 dimensions do not fit a warp's registers. There 2 or 4 adjacent warps, the
 * parts, share 16 queries. Each has some of the dimensions of the queries and of the values. Its
 * scores are partial: the parts exchange them through shared memory, add them in the same order,
 * and each makes all shares.
 *
 * What is rounded otherwise than in the definition: the scaled query and the shares to halves (11
 * bits), Q8_0 keys and values to halves, sums in the device's order. A row's result depends on no
 * other row: steps that it does not see add nothing, exactly. */
#ifndef MOED_DEVICE_CUDA_ATTENTION_MANY_CUH
#define MOED_DEVICE_CUDA_ATTENTION_MANY_CUH

#include "device/cuda/attention.cuh"
#include "device/cuda/context.h"
#include "device/cuda/kv.cuh"
#include "device/cuda/tensor_core.cuh"

#include <math.h>

enum {
    WARP_QUERIES = 16, /* rows of a matrix instruction */
    PAD = 8,           /* halves: so that 8 rows' 16 bytes lie in different banks */
};
static const float MOST_HALF = 65504.0f;

/* Dimensions [first, end) of a head; multiples of 16. */
struct dims {
    uint32_t first, end;
};

/* Those of n that a part has. */
template <int PARTS> static __device__ __forceinline__ dims dims_of_part(uint32_t n, uint32_t part)
{
    if constexpr (PARTS == 1)
        return {0, n};
    uint32_t each = (n / 16 + PARTS - 1) / PARTS * 16;
    return {min(part * each, n), min((part + 1) * each, n)};
}

/* What a lane has of its warp's queries: rows `group` and `group` + 8 of the matrices. */
template <int KEY_DIMS, int VALUE_DIMS> struct lane_queries {
    enum { KEYS = KEY_DIMS, VALUES = VALUE_DIMS }; /* dimensions, at most */
    dims keys, values;                             /* this warp's */
    uint32_t row[2], head[2];                      /* of the batch */
    span sees[2];                                  /* end 0: no query */
    uint32_t q[KEY_DIMS / 16][4];
    float out[VALUE_DIMS / 8][4];
    float max[2], sum[2];
};

/* Of the warp's queries and a step's positions, 8 in each element. */
template <int STEP> struct step_scores {
    float of[STEP / 8][4];
};

static __device__ __forceinline__ uint32_t two_halves(float low, float high)
{
    return cuda_float_to_half(low) | (uint32_t)cuda_float_to_half(high) << 16;
}

static __device__ __forceinline__ float in_range(float x)
{
    return cuda_max(-MOST_HALF, cuda_min(MOST_HALF, x));
}

template <int PARTS, class L>
static __device__ __forceinline__ void begin_queries(const attend_call &c, const tile &g, L *l)
{
    uint32_t place = threadIdx.x % 4, warp = threadIdx.x / 32;
    l->keys = dims_of_part<PARTS>(c.k_dim, warp % PARTS);
    l->values = dims_of_part<PARTS>(c.v_dim, warp % PARTS);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t i = warp / PARTS * WARP_QUERIES + threadIdx.x % 32 / 4 + 8 * half;
        bool is_one = i < g.queries;
        l->row[half] = g.first_row + (is_one ? i / g.heads : 0);
        l->head[half] = g.first_head + (is_one ? i % g.heads : 0);
        l->sees[half] = is_one ? row_span(c, l->row[half]) : span{0, 0};
        l->max[half] = -INFINITY;
        l->sum[half] = 0;
        const float *q = c.q + ((size_t)l->row[half] * c.n_heads + l->head[half]) * c.k_dim;
#pragma unroll
        for (uint32_t k = 0; k < L::KEYS / 16; k++)
#pragma unroll
            for (int right = 0; right < 2; right++) {
                uint32_t at = l->keys.first + 16 * k + 8 * right + 2 * place;
                float2 two = {};
                if (is_one && at < l->keys.end)
                    two = *(const float2 *)(q + at);
                l->q[k][half + 2 * right] =
                    two_halves(in_range(two.x * c.scale), in_range(two.y * c.scale));
            }
    }
#pragma unroll
    for (uint32_t i = 0; i < L::VALUES / 8; i++)
#pragma unroll
        for (int k = 0; k < 4; k++)
            l->out[i][k] = 0;
}

/* Eight values of position i of a page from `at` on, to shared memory. */
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

/* Starts the copies of a step's keys, or values, as a group; nothing beyond the last step. What no
 * query sees may never have been stored: zeros. */
template <class T, int DIM, int STEP, int THREADS>
static __device__ __forceinline__ void load_step(const attend_call &c, const tile &g,
                                                 uint32_t first, kv_part part,
                                                 uint16_t (*to)[DIM + PAD])
{
    /* threads that share a row; 8: they have 128 bytes of it at a time */
    constexpr uint32_t lanes = THREADS % (DIM / 8) == 0 ? DIM / 8 : 8;
    uint32_t dim = part == KV_KEYS ? c.k_dim : c.v_dim, at = threadIdx.x % lanes * 8;

    if (first < g.seen.end && at < dim) {
        kv_rows rows = kv_head_rows<T>(c.kv, g.slot, first, part, g.kv_head * dim);
        uint32_t in_page = STEP < DEVICE_PAGE ? first % DEVICE_PAGE : 0;
#pragma unroll 4
        for (uint32_t i = threadIdx.x / lanes; i < STEP; i += THREADS / lanes)
#pragma unroll
            for (uint32_t k = 0; k < DIM; k += 8 * lanes)
                if (first + i < g.seen.first || first + i >= g.seen.end)
                    *(uint4 *)&to[i][at + k] = make_uint4(0, 0, 0, 0);
                else if (k == 0 || at + k < dim)
                    load_eight(c, rows, part, in_page + i, at + k, &to[i][at + k], T());
    }
    tensor_copy_group();
}

template <int DIM, int STEP, class L>
static __device__ __forceinline__ void make_scores(const L &l, const uint16_t (*keys)[DIM + PAD],
                                                   step_scores<STEP> *scores)
{
    uint32_t lane = threadIdx.x % 32, row = lane / 16 * 8 + lane % 8, column = lane / 8 % 2 * 8;
#pragma unroll
    for (int i = 0; i < STEP / 8; i++)
#pragma unroll
        for (int k = 0; k < 4; k++)
            scores->of[i][k] = 0;
#pragma unroll
    for (uint32_t k = 0; k < L::KEYS / 16; k++)
        if (l.keys.first + 16 * k < l.keys.end)
#pragma unroll
            for (int i = 0; i < STEP / 16; i++) {
                uint32_t words[4];
                tensor_load_4(&keys[16 * i + row][l.keys.first + 16 * k + column], words);
                tensor_multiply_f16(l.q[k], words[0], words[1], scores->of[2 * i]);
                tensor_multiply_f16(l.q[k], words[2], words[3], scores->of[2 * i + 1]);
            }
}

/* The parts' scores become the sum of all parts': put_parts, a barrier, add_parts. parts:
 * [STEP / 8][THREADS]. Every part adds in the same order, but for that of two numbers. */
template <int PARTS, int THREADS, int STEP>
static __device__ __forceinline__ void put_parts(const step_scores<STEP> &scores, float4 *parts)
{
    if constexpr (PARTS > 1)
#pragma unroll
        for (int i = 0; i < STEP / 8; i++) {
            const float *s = scores.of[i];
            parts[i * THREADS + threadIdx.x] = make_float4(s[0], s[1], s[2], s[3]);
        }
}

static __device__ __forceinline__ float4 sum_of(float4 a, float4 b)
{
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

template <int PARTS, int THREADS, int STEP>
static __device__ __forceinline__ void add_parts(const float4 *parts, step_scores<STEP> *scores)
{
    static_assert(PARTS == 1 || PARTS == 2 || PARTS == 4, "pairs, or pairs of pairs");
    if constexpr (PARTS > 1)
#pragma unroll
        for (int i = 0; i < STEP / 8; i++) {
            const float4 *of = parts + i * THREADS;
            float *s = scores->of[i];
            float4 all = sum_of(make_float4(s[0], s[1], s[2], s[3]), of[threadIdx.x ^ 32]);
            if (PARTS == 4)
                all = sum_of(all, sum_of(of[threadIdx.x ^ 64], of[threadIdx.x ^ 96]));
            s[0] = all.x;
            s[1] = all.y;
            s[2] = all.z;
            s[3] = all.w;
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
template <int STEP, class L>
static __device__ __forceinline__ void make_shares(uint32_t first, int half, L *l,
                                                   step_scores<STEP> *scores)
{
    uint32_t position = first + threadIdx.x % 4 * 2;
    span sees = l->sees[half];
    float largest = l->max[half], sum = 0;
#pragma unroll
    for (int i = 0; i < STEP / 8; i++)
#pragma unroll
        for (int k = 0; k < 2; k++) {
            uint32_t p = position + 8 * i + k;
            float *score = &scores->of[i][2 * half + k];
            *score = p >= sees.first && p < sees.end ? *score : -INFINITY;
            largest = cuda_max(largest, *score);
        }
    largest = largest_of_row(largest);
    float from = largest == -INFINITY ? 0 : largest; /* nothing is seen yet: all shares are 0 */
    float factor = cuda_exp(l->max[half] - from);
#pragma unroll
    for (int i = 0; i < STEP / 8; i++)
#pragma unroll
        for (int k = 0; k < 2; k++) {
            float *score = &scores->of[i][2 * half + k];
            *score = cuda_exp(*score - from);
            sum = sum + *score;
        }
    l->sum[half] = __fmaf_rn(l->sum[half], factor, sum); /* of this lane's positions */
    l->max[half] = largest;
#pragma unroll
    for (uint32_t i = 0; i < L::VALUES / 8; i++) {
        l->out[i][2 * half] = l->out[i][2 * half] * factor;
        l->out[i][2 * half + 1] = l->out[i][2 * half + 1] * factor;
    }
}

template <int DIM, int STEP, class L>
static __device__ __forceinline__ void add_values(const step_scores<STEP> &shares,
                                                  const uint16_t (*values)[DIM + PAD], L *l)
{
    uint32_t lane = threadIdx.x % 32, row = lane % 16, column = lane / 16 * 8;
#pragma unroll
    for (int k = 0; k < STEP / 16; k++) {
        const float *left = shares.of[2 * k], *right = shares.of[2 * k + 1];
        const uint32_t a[4] = {two_halves(left[0], left[1]), two_halves(left[2], left[3]),
                               two_halves(right[0], right[1]), two_halves(right[2], right[3])};
#pragma unroll
        for (uint32_t i = 0; i < L::VALUES / 16; i++)
            if (l->values.first + 16 * i < l->values.end) {
                uint32_t words[4];
                tensor_load_4_transposed(&values[16 * k + row][l->values.first + 16 * i + column],
                                         words);
                tensor_multiply_f16(a, words[0], words[1], l->out[2 * i]);
                tensor_multiply_f16(a, words[2], words[3], l->out[2 * i + 1]);
            }
    }
}

template <class L>
static __device__ __forceinline__ void store_queries(const attend_call &c, const L &l)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        softmax_sum all = {l.max[half], sum_of_row(l.sum[half])};
        float factor = 1;
        if (c.sinks != NULL)
            all = merge_sink(all, c.sinks[l.head[half]], &factor);
        if (l.sees[half].end == 0)
            continue;
        float *out = c.out + ((size_t)l.row[half] * c.n_heads + l.head[half]) * c.v_dim;
#pragma unroll
        for (uint32_t i = 0; i < L::VALUES / 8; i++)
            if (l.values.first + 8 * i < l.values.end)
                *(float2 *)(out + l.values.first + 8 * i + threadIdx.x % 4 * 2) =
                    make_float2(l.out[i][2 * half] * factor / all.sum,
                                l.out[i][2 * half + 1] * factor / all.sum);
    }
}

/* Before a launch with more shared memory than a block has by default. False: the device has
 * not so much, and keeps the error. */
static inline bool allow_shared(struct device *d, void (*kernel)(attend_call), size_t bytes)
{
    return bytes <= d->block_shared_bytes ||
           cuda_try(d, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            (int)bytes));
}

#endif
