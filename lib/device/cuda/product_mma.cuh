/* Products of quantised weights with many tokens, by tensor cores, for one type T (tiles.cuh).
 *
 * A block of threads has ROWS rows and TOKENS tokens, each of its warps 32 by 32 of them. It goes
 * through the columns in stages of two blocks of 32 columns:
 *
 *   weights   read a stage ahead into registers, a row's 32 columns a thread; converted to signed
 *             bytes in shared memory, with the row's scales as float32, once for all tokens
 *   inputs    copied to shared memory a stage ahead by cp.async
 *   products  of 16 columns each, as exact integers, by tensor cores; then the definition's float
 *             operations (kernels/kernels.h) in its order, so the bits are those of product.cuh
 *
 * The integers become floats without a conversion: the matrix function starts its sums at the bits
 * of MAGIC = 1.5 * 2^23, so bits MAGIC + i are the float MAGIC + i, as long as |i| < 2^22. */
#ifndef MOED_DEVICE_CUDA_PRODUCT_MMA_CUH
#define MOED_DEVICE_CUDA_PRODUCT_MMA_CUH

#include "device/cuda/product_job.cuh"
#include "device/cuda/tensor_core.cuh"

/* A block of four warps, WIDTH of them along the tokens. */
template <class T, int WIDTH> struct mma_shape {
    enum {
        WARPS_ALONG = WIDTH,
        THREADS = 128,
        ROWS = 128 / WIDTH,
        TOKENS = 32 * WIDTH,
        STEP = 2,             /* blocks of 32 columns a stage */
        READS = STEP / WIDTH, /* of them that a thread reads, of one row */
        /* of types with many registers: the second read waits until the first is converted */
        APART =
            WIDTH == 1 && (T::FACTORS || (T::MINIMUM == 32 && T::COLUMNS == 32 && T::WORDS > 4)),
        HELD = APART ? 1 : READS, /* of them in registers at a time */
        HALVES = 2 * 16           /* bytes of a row or token: 16 columns twice */
    };
    /* What a row has: w; with a minimum c; or two scales and w; or two factors; where minima are
     * for 16 columns, two scales, w, c and the minima. */
    enum {
        SCALES = T::MINIMUM == 16                 ? 6
                 : T::SCALES_16                   ? 3
                 : T::MINIMUM == 32 || T::FACTORS ? 2
                                                  : 1
    };

    struct weight_block {
        uint8_t q[ROWS * HALVES];
        float scales[SCALES][ROWS]; /* [.][mma_scale_at] */
    };
    struct input_block {
        uint8_t q[TOKENS * HALVES];
        float d[TOKENS][2];
        float bias[T::MINIMUM == 32 ? TOKENS : 4];
        int32_t sum[T::MINIMUM == 16 ? TOKENS : 2][2];
    };
    union shared {
        struct {
            struct weight_block weights[2][STEP];
            struct input_block inputs[2][STEP];
        } stages;
        float sums[TOKENS][ROWS + 4]; /* after the last stage; 4: other banks */
    };
    static_assert(sizeof(union shared) <= 48 << 10, "a block's shared memory");
};

/* The rows of a warp whose results one lane has, 8 apart, are adjacent. */
static __device__ __forceinline__ uint32_t mma_scale_at(uint32_t row)
{
    return row / 32 * 32 + row % 8 * 4 + row / 8 % 4;
}

/* Where 16 columns of a row or token are: the halves of every second four rows are exchanged, so
 * that 8 rows are in different banks. */
static __device__ __forceinline__ uint32_t mma_half_at(uint32_t row, uint32_t half)
{
    return row * 32 + (half ^ (row >> 2 & 1)) * 16;
}

/* ---- Weights ---- */

/* One thread's row of the tiles, and what it has read of a stage. */
template <class T, int WIDTH> struct mma_reader {
    const uint8_t *tiles; /* the next one */
    uint32_t row;         /* in the tiles */
    typename T::scales scales[T::COLUMNS == 256 ? 1 : mma_shape<T, WIDTH>::HELD];
    uint32_t words[mma_shape<T, WIDTH>::HELD][T::WORDS];
};

/* Four quants less OFFSET, as signed bytes. */
template <class T> static __device__ __forceinline__ uint32_t mma_signed(int q)
{
    if (T::OFFSET == 0)
        return (uint32_t)q;
    return (((uint32_t)q | 0x80808080u) - T::OFFSET * 0x01010101u) ^ 0x80808080u;
}

/* Converts 32 columns to row `row` of w. sub: which block of its 256 columns. */
template <class T, int WIDTH>
static __device__ __forceinline__ void mma_put_row(typename mma_shape<T, WIDTH>::weight_block &w,
                                                   uint32_t row, const typename T::scales &from,
                                                   const uint32_t *words, uint32_t sub)
{
    typedef mma_shape<T, WIDTH> S;
    struct tile_block b;

    T::decode(from, words, T::COLUMNS == 32 ? 0 : sub, &b);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        uint4 half = {mma_signed<T>(b.q[4 * h]), mma_signed<T>(b.q[4 * h + 1]),
                      mma_signed<T>(b.q[4 * h + 2]), mma_signed<T>(b.q[4 * h + 3])};
        *(uint4 *)(w.q + mma_half_at(row, h)) = half;
    }
    float *to = &w.scales[0][mma_scale_at(row)];
    if (T::FACTORS || T::SCALES_16) {
        to[0] = T::FACTORS ? b.factor[0] : (float)b.scale[0];
        to[S::ROWS] = T::FACTORS ? b.factor[1] : (float)b.scale[1];
    }
    if (!T::FACTORS)
        to[T::SCALES_16 ? 2 * S::ROWS : 0] = b.w;
    if (T::MINIMUM != 0)
        to[T::MINIMUM == 16 ? 3 * S::ROWS : S::ROWS] = b.c;
    if (T::MINIMUM == 16) {
        to[4 * S::ROWS] = -(float)b.min[0];
        to[5 * S::ROWS] = -(float)b.min[1];
    }
}

/* ---- Inputs ---- */

/* What one thread copies of each stage: 16 columns of a token, in as many blocks as fill the stage
 * (WIDTH); a token's scales, and its biases or sums, which are two threads' work if WIDTH is 1. */
struct mma_copies {
    const uint8_t *q, *d, *other;  /* in device memory: of the next stage */
    uint32_t q_to, d_to, other_to; /* in shared memory: of a stage's inputs */
};

/* Tokens after the last are copies of it, whose results nobody stores. */
template <class T, int WIDTH>
static __device__ __forceinline__ struct mma_copies
mma_copies_of(const struct product &p, const struct product_job &j, uint32_t part)
{
    typedef mma_shape<T, WIDTH> S;
    typedef typename S::input_block inputs;
    uint32_t thread = threadIdx.x, blocks = p.cols / 32, token = thread / 2 % S::TOKENS;
    uint32_t first = j.row + part * j.part_rows, t = min(token, j.n_tokens - 1);
    size_t row = j.tokens ? j.tokens[t] : first + t;
    struct mma_copies c;

    uint32_t block = thread / (2 * S::TOKENS);
    c.q_to = block * sizeof(inputs) + offsetof(inputs, q) + mma_half_at(token, thread % 2);
    c.q = (const uint8_t *)p.q + row * ((p.cols + 63) / 64 * 64) + block * 32 + thread % 2 * 16;

    token = thread % S::TOKENS;
    t = min(token, j.n_tokens - 1);
    row = j.tokens ? j.tokens[t] : first + t;
    block = thread / S::TOKENS % S::STEP;
    row = row * blocks + block;
    c.d_to = block * sizeof(inputs) + offsetof(inputs, d) + token * 8;
    c.d = (const uint8_t *)(p.d + 2 * row);
    c.other_to = block * sizeof(inputs);
    if (T::MINIMUM == 16) {
        c.other = (const uint8_t *)(p.sum + 2 * row);
        c.other_to += offsetof(inputs, sum) + token * 8;
    } else {
        c.other = (const uint8_t *)(p.bias + row);
        c.other_to += offsetof(inputs, bias) + token * 4;
    }
    c.q_to = tensor_keep(c.q_to);
    c.d_to = tensor_keep(c.d_to);
    c.other_to = tensor_keep(c.other_to);
    return c;
}

/* Starts the copies of the next stage. half: it has one block. to: its inputs. */
template <class T, int WIDTH>
static __device__ __forceinline__ void mma_start_copies(struct mma_copies &c, bool half,
                                                        uint8_t *to)
{
    typedef mma_shape<T, WIDTH> S;
    bool first = threadIdx.x < S::THREADS / 2;

#pragma unroll
    for (uint32_t i = 0; i < WIDTH; i++)
        if (!half || (WIDTH == 1 ? first : i == 0))
            tensor_copy<16>(to + c.q_to + i * sizeof(typename S::input_block), c.q + i * 32);
    if (!half || threadIdx.x / S::TOKENS % S::STEP == 0) {
        if (WIDTH > 1 || first)
            tensor_copy<8>(to + c.d_to, c.d);
        if (T::MINIMUM == 16 && (WIDTH > 1 || !first))
            tensor_copy<8>(to + c.other_to, c.other);
        if (T::MINIMUM == 32 && (WIDTH > 1 || !first))
            tensor_copy<4>(to + c.other_to, c.other);
    }
    c.q += S::STEP * 32;
    c.d += S::STEP * 8;
    c.other += S::STEP * (T::MINIMUM == 16 ? 8 : 4);
}

/* ---- Products ---- */

/* The 32 x 32 sums of a warp: [rows by 16][tokens by 8], each as D of tensor_multiply_s8. */
typedef float mma_sums[2][4][4];

static const float MMA_MAGIC = 12582912.0f;
enum { MMA_MAGIC_BITS = 0x4b400000 };

/* A row's scales for 32 columns. */
struct mma_scales {
    float s0, s1, w, c, m0, m1;
    float magic_0, magic_1; /* -MMA_MAGIC * s0, exact */
};

/* One value of each of COUNT of a lane's rows. */
template <int COUNT>
static __device__ __forceinline__ void mma_load(const float *from, float values[COUNT])
{
#pragma unroll
    for (int i = 0; i < COUNT; i += 2) {
        float2 v = *(const float2 *)(from + i);
        values[i] = v.x;
        values[i + 1] = v.y;
    }
}

template <> __device__ __forceinline__ void mma_load<4>(const float *from, float values[4])
{
    float4 v = *(const float4 *)from;
    values[0] = v.x;
    values[1] = v.y;
    values[2] = v.z;
    values[3] = v.w;
}

/* Of COUNT of a lane's rows. from: the first, at its mma_scale_at. */
template <class T, int WIDTH, int COUNT>
static __device__ __forceinline__ void mma_scales_of(const float *from, struct mma_scales r[COUNT])
{
    typedef mma_shape<T, WIDTH> S;
    float v[S::SCALES][COUNT];

#pragma unroll
    for (int k = 0; k < S::SCALES; k++)
        mma_load<COUNT>(from + k * S::ROWS, v[k]);
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        r[i].w = T::FACTORS ? 1.0f : v[T::SCALES_16 ? 2 : 0][i];
        if constexpr (T::FACTORS || T::SCALES_16) {
            r[i].s0 = v[0][i];
            r[i].s1 = v[1][i];
            r[i].magic_0 = -MMA_MAGIC * r[i].s0;
            r[i].magic_1 = -MMA_MAGIC * r[i].s1;
        }
        if constexpr (T::MINIMUM != 0)
            r[i].c = v[T::MINIMUM == 16 ? 3 : 1][i];
        if constexpr (T::MINIMUM == 16) {
            r[i].m0 = v[4][i];
            r[i].m1 = v[5][i];
        }
    }
}

/* A token's, for the same. */
struct mma_token {
    float d0, d1, bias;
    float sum0, sum1;
};

/* acc plus the product of 32 columns. i0, i1: sums that began at MMA_MAGIC_BITS. */
template <class T>
static __device__ __forceinline__ float mma_add(int i0, int i1, const struct mma_scales &r,
                                                const struct mma_token &t, float acc)
{
    float f0 = __int_as_float(i0), f1 = __int_as_float(i1);

    if (T::SCALES_16 || T::FACTORS) { /* the integer times its scale, exact */
        f0 = __fmaf_rn(f0, r.s0, r.magic_0);
        f1 = __fmaf_rn(f1, r.s1, r.magic_1);
    } else {
        f0 -= MMA_MAGIC;
        f1 -= MMA_MAGIC;
    }
    acc = __fmaf_rn(__fmaf_rn(f1, t.d1, f0 * t.d0), r.w, acc);
    if (T::MINIMUM == 32)
        acc = __fmaf_rn(r.c, t.bias, acc);
    if (T::MINIMUM == 16) { /* plus 0: the definition's integer 0 has no sign */
        float j0 = __fmaf_rn(r.m0, t.sum0, 0.0f), j1 = __fmaf_rn(r.m1, t.sum1, 0.0f);
        acc = __fmaf_rn(__fmaf_rn(j1, t.d1, j0 * t.d0), r.c, acc);
    }
    return acc;
}

/* Tokens `first` and first + 1 of the inputs. */
template <class T, class I>
static __device__ __forceinline__ void mma_tokens_of(const I &in, uint32_t first,
                                                     struct mma_token t[2])
{
    float4 d = *(const float4 *)in.d[first];

    t[0] = {d.x, d.y, 0, 0, 0};
    t[1] = {d.z, d.w, 0, 0, 0};
    if (T::MINIMUM == 32) {
        float2 bias = *(const float2 *)&in.bias[first];
        t[0].bias = bias.x;
        t[1].bias = bias.y;
    }
    if (T::MINIMUM == 16) {
        int4 sum = *(const int4 *)in.sum[first];
        t[0].sum0 = (float)sum.x;
        t[0].sum1 = (float)sum.y;
        t[1].sum0 = (float)sum.z;
        t[1].sum1 = (float)sum.w;
    }
}

/* Where a lane finds its part of a block's weights and inputs. */
struct mma_lane {
    uint32_t a, b;       /* of the rows that it gives to tensor_load_4, in bytes */
    uint32_t scales;     /* of its rows */
    uint32_t row, token; /* its first row and token of the results */
    bool some, all;      /* the warp has any of its rows and tokens; more than 16 tokens */
};

/* n_rows, n_tokens: of the block, at most; those that exist. */
template <int WIDTH>
static __device__ __forceinline__ struct mma_lane mma_lane_of(uint32_t n_rows, uint32_t n_tokens)
{
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, matrix = lane / 8;
    uint32_t row = warp % (4 / WIDTH) * 32, token = warp / (4 / WIDTH) * 32;
    struct mma_lane l;

    l.a = tensor_keep(mma_half_at(row + matrix % 2 * 8 + lane % 8, matrix / 2));
    l.b = tensor_keep(mma_half_at(token + matrix / 2 * 8 + lane % 8, matrix % 2));
    l.scales = tensor_keep(mma_scale_at(row + lane / 4));
    l.row = tensor_keep(row + lane / 4);
    l.token = tensor_keep(token + lane % 4 * 2);
    l.some = tensor_keep(n_rows > row && n_tokens > token) != 0;
    l.all = tensor_keep(n_tokens > token + 16) != 0;
    return l;
}

/* Adds the products of 32 columns. start: MMA_MAGIC_BITS. */
template <class T, int WIDTH>
static __device__ __forceinline__ void
mma_block(const typename mma_shape<T, WIDTH>::weight_block &w,
          const typename mma_shape<T, WIDTH>::input_block &in, const struct mma_lane &l,
          const int start[4], mma_sums acc)
{
    /* rows by 16 at a time: with many scales one, which leaves enough registers */
    enum { AT_ONCE = T::SCALES_16 || T::FACTORS ? 1 : 2 };

#pragma unroll
    for (uint32_t first = 0; first < 2; first += AT_ONCE) {
        uint32_t a[AT_ONCE][4]; /* [rows by 16][half][rows by 8] */
        struct mma_scales scales[2 * AT_ONCE];

#pragma unroll
        for (uint32_t m = 0; m < AT_ONCE; m++)
            tensor_load_4(w.q + l.a + (first + m) * 16 * 32, a[m]);
        mma_scales_of<T, WIDTH, 2 * AT_ONCE>(w.scales[0] + l.scales + 2 * first, scales);
#pragma unroll
        for (uint32_t pair = 0; pair < 2; pair++) {
            if (pair > 0 && !l.all)
                break;
            uint32_t b[4]; /* [tokens by 8][half] */
            tensor_load_4(in.q + l.b + pair * 16 * 32, b);
#pragma unroll
            for (uint32_t n = 0; n < 2; n++) {
                struct mma_token tokens[2];
                mma_tokens_of<T>(in, l.token + pair * 16 + n * 8, tokens);
#pragma unroll
                for (uint32_t m = 0; m < AT_ONCE; m++) {
                    float *sums = acc[first + m][2 * pair + n];
                    int i0[4], i1[4];
                    tensor_multiply_s8(a[m], b[2 * n], start, i0);
                    tensor_multiply_s8(a[m] + 2, b[2 * n + 1], start, i1);
#pragma unroll
                    for (uint32_t i = 0; i < 4; i++)
                        sums[i] =
                            mma_add<T>(i0[i], i1[i], scales[2 * m + i / 2], tokens[i % 2], sums[i]);
                }
            }
        }
    }
}

/* Ends 256 columns: adds their sums to total. */
static __device__ __forceinline__ void mma_end_group(mma_sums acc, mma_sums total)
{
#pragma unroll
    for (uint32_t i = 0; i < 32; i++) {
        float *sum = &acc[i / 16][i / 4 % 4][i % 4];
        total[i / 16][i / 4 % 4][i % 4] += *sum;
        *sum = 0;
    }
}

static __device__ __forceinline__ void mma_set(mma_sums sums, float value)
{
#pragma unroll
    for (uint32_t i = 0; i < 32; i++)
        sums[i / 16][i / 4 % 4][i % 4] = value;
}

/* Reads a thread's row of block i of the stage, which is the next one. half: it has one block. The
 * blocks of a stage are read in order. */
template <class T, int WIDTH>
static __device__ __forceinline__ void mma_read_block(struct mma_reader<T, WIDTH> &r,
                                                      uint32_t stage, bool half, uint32_t i)
{
    typedef mma_shape<T, WIDTH> S;
    const uint8_t *tile = tensor_in_device_memory(r.tiles);
    uint32_t first = threadIdx.x / S::ROWS, sub = stage * S::STEP % 8 + first;
    uint32_t at = S::APART ? 0 : i;

    if (T::COLUMNS == 256) {
        if (i == 0 && sub < S::STEP)
            r.scales[0] = T::read_scales(tile, r.row);
        T::read_quants(tile, sub + i, r.row, r.words[at]);
    } else if (!half || first + i == 0) {
        r.scales[at] = T::read_scales(tile + i * T::BYTES, r.row);
        T::read_quants(tile + i * T::BYTES, 0, r.row, r.words[at]);
    }
    if (i + 1 < S::READS)
        return;
    if (T::COLUMNS == 32)
        r.tiles += S::STEP * T::BYTES;
    else if (sub >= 8 - S::STEP)
        r.tiles += T::BYTES;
}

/* Converts it. to: the stage's weights. */
template <class T, int WIDTH>
static __device__ __forceinline__ void mma_put_block(typename mma_shape<T, WIDTH>::weight_block *to,
                                                     const struct mma_reader<T, WIDTH> &r,
                                                     uint32_t stage, uint32_t i)
{
    typedef mma_shape<T, WIDTH> S;
    uint32_t first = threadIdx.x / S::ROWS, row = threadIdx.x % S::ROWS, at = S::APART ? 0 : i;

    mma_put_row<T, WIDTH>(to[first + i], row, r.scales[T::COLUMNS == 256 ? 0 : at], r.words[at],
                          (stage * S::STEP + first + i) % 8);
}

/* The rows of one part, for all columns. */
template <class T, int WIDTH>
static __device__ __forceinline__ void
mma_part(const struct product &p, const struct product_job &j, uint32_t part, uint32_t first_row,
         typename mma_shape<T, WIDTH>::shared &shared, mma_sums total)
{
    typedef mma_shape<T, WIDTH> S;
    uint32_t blocks = p.cols / 32, stages = (blocks + S::STEP - 1) / S::STEP;
    uint32_t row = min(first_row + threadIdx.x % S::ROWS, p.rows - 1);
    const uint8_t *segment = product_part(p, j, part);
    struct mma_copies copies = mma_copies_of<T, WIDTH>(p, j, part);
    const struct mma_lane lane = mma_lane_of<WIDTH>(p.rows - first_row, j.n_tokens);
    struct mma_reader<T, WIDTH> reader = {
    };
    int start[4];
    mma_sums acc;

    tensor_keep_start(MMA_MAGIC_BITS, start);
    reader.tiles = segment + p.offset + (size_t)(row / TILE_ROWS) * p.row_bytes;
    reader.row = threadIdx.x % TILE_ROWS;
    if (T::COLUMNS == 32)
        reader.tiles += threadIdx.x / S::ROWS * T::BYTES;
    mma_set(acc, 0);
    mma_set(total, -0.0f); /* plus x it is x, also where x is -0 */

    mma_start_copies<T, WIDTH>(copies, blocks == 1, (uint8_t *)shared.stages.inputs[0]);
#pragma unroll
    for (uint32_t i = 0; i < S::READS; i++) {
        mma_read_block<T, WIDTH>(reader, 0, blocks == 1, i);
        mma_put_block<T, WIDTH>(shared.stages.weights[0], reader, 0, i);
    }
    tensor_copy_wait_all();
    __syncthreads();
    for (uint32_t stage = 0; stage < stages; stage++) {
        uint32_t now = stage % 2, next = now ^ 1;
        bool more = stage + 1 < stages, half = (stage + 1) * S::STEP + 1 == blocks;

        if (more) {
#pragma unroll
            for (uint32_t i = 0; i < S::HELD; i++)
                mma_read_block<T, WIDTH>(reader, stage + 1, half, i);
            mma_start_copies<T, WIDTH>(copies, half, (uint8_t *)shared.stages.inputs[next]);
        }
        if (lane.some)
            mma_block<T, WIDTH>(shared.stages.weights[now][0], shared.stages.inputs[now][0], lane,
                                start, acc);
        if (S::APART && more) {
            mma_put_block<T, WIDTH>(shared.stages.weights[next], reader, stage + 1, 0);
            mma_read_block<T, WIDTH>(reader, stage + 1, half, 1);
        }
        if (lane.some && stage * S::STEP + 1 < blocks)
            mma_block<T, WIDTH>(shared.stages.weights[now][1], shared.stages.inputs[now][1], lane,
                                start, acc);
        if (stage % (8 / S::STEP) == 8 / S::STEP - 1 || !more)
            mma_end_group(acc, total);
#pragma unroll
        for (uint32_t i = S::APART ? 1 : 0; i < S::READS && more; i++)
            mma_put_block<T, WIDTH>(shared.stages.weights[next], reader, stage + 1, i);
        tensor_copy_wait_all();
        __syncthreads();
    }
}

/* ---- Results ---- */

/* Stores the sum of one row and token of a part. Between parts a result is in *out. */
static __device__ __forceinline__ void mma_store(const struct product &p,
                                                 const struct product_job &j, uint32_t part,
                                                 uint32_t row, float sum, float *out)
{
    if (p.finish == PRODUCT_GATED && (part > 0 || j.n_parts == 1)) {
        float gate = *out;
        if (p.bias_offset) {
            const float *bias = (const float *)(j.segment + p.bias_offset);
            gate += bias[row];
            sum += bias[p.rows + row];
        }
        *out = cuda_gated(p.activation, p.limit, gate, sum);
        return;
    }
    sum = part > 0 || j.add ? *out + sum : sum;
    *out = p.row_bias != NULL ? sum + p.row_bias[row] : sum;
}

/* Stores a part's sums. They go through shared memory, so that a warp stores adjacent rows. T: the
 * type of the weights; S: as mma_shape. */
template <class T, class S>
static __device__ __forceinline__ void
mma_finish(const struct product &p, const struct product_job &j, uint32_t part, uint32_t first_row,
           typename S::shared &shared, const mma_sums total)
{
    const struct mma_lane lane = mma_lane_of<S::WARPS_ALONG>(p.rows - first_row, j.n_tokens);

#pragma unroll
    for (uint32_t i = 0; i < 32; i++)
        shared.sums[lane.token + i / 4 % 4 * 8 + i % 2][lane.row + i / 16 * 16 + i % 4 / 2 * 8] =
            total[i / 16][i / 4 % 4][i % 4];
    __syncthreads();
    uint32_t row = threadIdx.x % S::ROWS;
    if (first_row + row < p.rows)
#pragma unroll 1
        for (uint32_t t = threadIdx.x / S::ROWS; t < j.n_tokens; t += S::THREADS / S::ROWS)
            mma_store(p, j, part, first_row + row,
                      product_times_factor<T>(p, j, part, first_row + row, shared.sums[t][row]),
                      j.out + (size_t)t * p.out_stride + first_row + row);
    __syncthreads();
}

template <class T, int WIDTH>
static __global__ void __launch_bounds__(128, 3) product_mma_kernel(const struct product p)
{
#if TENSOR_CORE_CODE
    CUDA_SHARED(uint8_t, memory);
    typedef mma_shape<T, WIDTH> S;
    typename S::shared &shared = *(typename S::shared *)memory;
    uint32_t first_row = blockIdx.x % p.n_blocks * S::ROWS;
    const struct product_job j = product_job_of(p, blockIdx.x / p.n_blocks);

    if (j.n_tokens == 0 || (p.guard != NULL && *p.guard != 0))
        return; /* the whole block */
    for (uint32_t part = 0; part < j.n_parts; part++) {
        mma_sums total;
        mma_part<T, WIDTH>(p, j, part, first_row, shared, total);
        mma_finish<T, S>(p, j, part, first_row, shared, total);
    }
#endif
}

/* KERNEL: with weights of type T and the shape S. */
template <class T, class S, void (*KERNEL)(struct product)>
static void product_mma_launch(struct device_stream *s, struct product *p)
{
    uint64_t jobs = (uint64_t)p->n_items * (p->work == PRODUCT_SEGMENTS ? p->n_segments : 1);

    p->n_blocks = (p->rows + S::ROWS - 1) / S::ROWS;
    p->row_bytes = tiles_row_bytes<T>(p->cols);
    p->tokens_a_block = S::TOKENS;
    if (p->work == PRODUCT_PLANES)
        jobs = (uint64_t)p->n_planes * ((p->n + S::TOKENS - 1) / S::TOKENS);
    if (jobs * p->n_blocks > INT32_MAX) {
        cuda_refuse(s->device, "a product of too many blocks", __FILE__, __LINE__);
        return;
    }
    CUDA_LAUNCH(KERNEL, (unsigned)(jobs * p->n_blocks), S::THREADS, sizeof(typename S::shared),
                cuda_stream(s), *p);
    cuda_check(s, "product");
}

template <class T, int WIDTH>
static void product_mma_start(struct device_stream *s, struct product *p)
{
    product_mma_launch<T, mma_shape<T, WIDTH>, product_mma_kernel<T, WIDTH>>(s, p);
}

#endif
