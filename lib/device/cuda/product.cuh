/* The kernel of product.h, for one type of weights T (tiles.cuh) and at most N tokens a block. */
#ifndef MOED_DEVICE_CUDA_PRODUCT_CUH
#define MOED_DEVICE_CUDA_PRODUCT_CUH

#include "device/cuda/dependent.cuh"
#include "device/cuda/product_mma.cuh"
#include "device/cuda/quantize.cuh"

/* Half-warps of a block: 128 threads. */
enum { PRODUCT_HALVES = 8, PRODUCT_THREADS = PRODUCT_HALVES * TILE_ROWS };

/* A half-warp copies columns to its own place in shared memory, of about 2 KiB, all at once, and
 * reads them there. So enough bytes are under way for a few warps to use the memory's bandwidth,
 * without registers. Places are laid out so that the two half-warps of a warp use different banks.
 */
template <class T> struct product_stage {
    enum {
        COLUMNS = T::COLUMNS == 256 ? 256
                  : T::QUANTIZED    ? 128
                                    : 2048 / (T::BYTES / T::COLUMNS),
        BYTES = COLUMNS / T::COLUMNS * T::BYTES,
        PLACE = (BYTES + 127) / 128 * 128 + 64,
    };
    static_assert(PRODUCT_HALVES * PLACE <= PRODUCT_STAGE_BYTES, "all halves have a place");
};

/* The activations of one token for 32 columns. */
struct product_input {
    int4 q[2];
    float2 d;
    float bias;
    int2 sum;
};

/* The address of a token's activations for 256 columns. */
struct product_row {
    uint32_t q;     /* in p.q, of 16 bytes */
    uint32_t block; /* in the others, of 32 columns */
};

static __device__ __forceinline__ struct product_row product_row_at(const struct product &p,
                                                                    uint32_t row, uint32_t group)
{
    return {row * ((p.cols + 63) / 64 * 4) + group * 16, row * ((p.cols + 31) / 32) + group * 8};
}

/* sub: which of the blocks of 32 columns. Only what T needs is read. */
template <class T>
static __device__ __forceinline__ struct product_input
product_read_input(const struct product &p, const struct product_row &row, uint32_t sub)
{
    const int4 *q = (const int4 *)p.q + row.q;
    struct product_input in = {};

    in.q[0] = cuda_read(q + 2 * sub);
    in.q[1] = cuda_read(q + 2 * sub + 1);
    in.d = cuda_read((const float2 *)p.d + row.block + sub);
    if (T::OFFSET != 0 || T::MINIMUM == 16 || (T::MINIMUM == 32 && p.bias == NULL))
        in.sum = cuda_read((const int2 *)p.sum + row.block + sub);
    if (T::MINIMUM == 32)
        in.bias = p.bias != NULL ? cuda_read(p.bias + row.block + sub)
                                 : __fmaf_rn((float)in.sum.y, in.d.y, (float)in.sum.x * in.d.x);
    return in;
}

/* The sum of the products of 16 columns. */
static __device__ __forceinline__ int product_dot_16(const int *w, int4 q)
{
    return __dp4a(w[3], q.w, __dp4a(w[2], q.z, __dp4a(w[1], q.y, __dp4a(w[0], q.x, 0))));
}

/* acc plus the product of 32 columns. */
template <class T>
static __device__ __forceinline__ float product_add(const struct tile_block &b,
                                                    const struct product_input &in, float acc)
{
    int i0 = product_dot_16(b.q, in.q[0]), i1 = product_dot_16(b.q + 4, in.q[1]);

    if (T::OFFSET != 0) {
        i0 -= T::OFFSET * in.sum.x;
        i1 -= T::OFFSET * in.sum.y;
    }
    if (T::SCALES_16) {
        i0 *= b.scale[0];
        i1 *= b.scale[1];
    }
    float f0 = (float)i0, f1 = (float)i1;
    if (T::FACTORS) {
        f0 *= b.factor[0];
        f1 *= b.factor[1];
    }
    acc = __fmaf_rn(__fmaf_rn(f1, in.d.y, f0 * in.d.x), b.w, acc);
    if (T::MINIMUM == 32)
        acc = __fmaf_rn(b.c, in.bias, acc);
    if (T::MINIMUM == 16) {
        int j0 = -b.min[0] * in.sum.x, j1 = -b.min[1] * in.sum.y;
        acc = __fmaf_rn(__fmaf_rn((float)j1, in.d.y, (float)j0 * in.d.x), b.c, acc);
    }
    return acc;
}

/* Copies `bytes` (a multiple of 16) to this half-warp's place; its threads no longer need the old
 * contents. All 16 threads call it. */
static __device__ __forceinline__ void product_fill(uint8_t *place, const uint8_t *from,
                                                    uint32_t bytes)
{
    unsigned half = 0xffffu << (threadIdx.x & 16);

    __syncwarp(half);
#pragma unroll 4
    for (uint32_t i = threadIdx.x % TILE_ROWS * 16; i < bytes; i += TILE_ROWS * 16)
        tensor_copy<16>(place + i, from + i);
    tensor_copy_wait_all();
    __syncwarp(half);
}

/* Block `sub` of 32 columns of those in the place, which is block `of_256` of the 256, for n
 * tokens. */
template <class T, uint32_t N>
static __device__ __forceinline__ void
product_block(const struct product &p, const uint8_t *place, const typename T::scales &scales,
              uint32_t sub, uint32_t of_256, const struct product_row rows[N], uint32_t n,
              float acc[N])
{
    uint32_t words[T::WORDS];
    struct tile_block b;

    T::read_quants(place, sub, threadIdx.x % TILE_ROWS, words);
    T::decode(scales, words, sub, &b);
#pragma unroll
    for (uint32_t t = 0; t < N; t++)
        if (N == 1 || t < n)
            acc[t] = product_add<T>(b, product_read_input<T>(p, rows[t], of_256), acc[t]);
}

/* 256 columns, or what is left of them, of one row for n tokens. rows: of `in`. */
template <class T, uint32_t N>
static __device__ __forceinline__ void
product_quantized(const struct product &p, uint8_t *place, const uint8_t *tile, uint32_t group,
                  const uint32_t rows[N], uint32_t n, float acc[N])
{
    uint32_t row = threadIdx.x % TILE_ROWS;
    struct product_row at[N];

#pragma unroll
    for (uint32_t t = 0; t < N; t++)
        at[t] = product_row_at(p, rows[t], group);
    if (T::COLUMNS == 256) {
        product_fill(place, tile, T::BYTES);
        typename T::scales scales = T::read_scales(place, row);
#pragma unroll(N == 1 ? 8 : 1)
        for (uint32_t sub = 0; sub < 8; sub++)
            product_block<T, N>(p, place, scales, sub, sub, at, n, acc);
        return;
    }
    enum { STEP = product_stage<T>::COLUMNS / 32 };
    uint32_t blocks = min(8u, p.cols / 32 - 8 * group);
    for (uint32_t first = 0; first < blocks; first += STEP) {
        uint32_t count = min((uint32_t)STEP, blocks - first);
        product_fill(place, tile + first * T::BYTES, count * T::BYTES);
#pragma unroll(N == 1 ? 4 : 1)
        for (uint32_t sub = 0; sub < count; sub++)
            product_block<T, N>(p, place, T::read_scales(place + sub * T::BYTES, row), sub,
                                first + sub, at, n, acc);
    }
}

/* acc plus the products of COUNT columns, one by one. aligned: x is aligned to 16 bytes. */
template <int COUNT>
static __device__ __forceinline__ float product_add_floats(const float w[COUNT], const float *x,
                                                           bool aligned, float acc)
{
    if (aligned) {
#pragma unroll
        for (int k = 0; k < COUNT; k += 4) {
            float4 v = cuda_read((const float4 *)(x + k));
            acc = __fmaf_rn(w[k], v.x, acc);
            acc = __fmaf_rn(w[k + 1], v.y, acc);
            acc = __fmaf_rn(w[k + 2], v.z, acc);
            acc = __fmaf_rn(w[k + 3], v.w, acc);
        }
    } else {
#pragma unroll
        for (int k = 0; k < COUNT; k++)
            acc = __fmaf_rn(w[k], cuda_read(x + k), acc);
    }
    return acc;
}

/* As product_quantized. x: of row 0, the first of these columns. */
template <class T, uint32_t N>
static __device__ __forceinline__ void
product_floats(const struct product &p, uint8_t *place, const uint8_t *tile, uint32_t group,
               const uint32_t rows[N], const float *x, uint32_t n, float acc[N])
{
    enum { COUNT = 16, STEP = product_stage<T>::COLUMNS };
    uint32_t columns = min(256u, p.cols - 256 * group), row = threadIdx.x % TILE_ROWS;

    for (uint32_t first = 0; first < columns; first += STEP, x += STEP) {
        uint32_t count = min((uint32_t)STEP, columns - first), c = 0;
        product_fill(place, tile + first / T::COLUMNS * T::BYTES,
                     (count + T::COLUMNS - 1) / T::COLUMNS * T::BYTES);
#pragma unroll(N == 1 ? 2 : 1)
        for (; c + COUNT <= count; c += COUNT) {
            float w[COUNT];
#pragma unroll
            for (uint32_t k = 0; k < COUNT; k++)
                w[k] = T::read(place, c + k, row);
#pragma unroll
            for (uint32_t t = 0; t < N; t++)
                if (N == 1 || t < n)
                    acc[t] = product_add_floats<COUNT>(w, x + rows[t] * p.x_stride + c, p.x_aligned,
                                                       acc[t]);
        }
        for (; c < count; c++) {
            float w = T::read(place, c, row);
#pragma unroll
            for (uint32_t t = 0; t < N; t++)
                if (N == 1 || t < n)
                    acc[t] = __fmaf_rn(w, cuda_read(x + rows[t] * p.x_stride + c), acc[t]);
        }
    }
}

/* The weights of a slice. */
template <class T>
static __device__ __forceinline__ const uint8_t *product_slice_at(const struct product &p,
                                                                  const struct product_job &j,
                                                                  uint32_t tile_row, uint32_t slice)
{
    uint32_t part = slice / p.groups, group = slice % p.groups;
    const uint8_t *segment = product_part(p, j, part);

    return segment + p.offset + tile_row * p.row_bytes + (size_t)group * tiles_256<T>::BYTES;
}

/* Asks for the weights of a slice, so that they are near when the half-warp comes to them. */
template <class T>
static __device__ __forceinline__ void product_prefetch(const struct product &p,
                                                        const struct product_job &j,
                                                        uint32_t tile_row, uint32_t slice)
{
    const uint8_t *tile = product_slice_at<T>(p, j, tile_row, slice);
    uint32_t bytes = min((uint32_t)tiles_256<T>::BYTES,
                         (uint32_t)(p.row_bytes - slice % p.groups * tiles_256<T>::BYTES));

    for (uint32_t i = threadIdx.x % TILE_ROWS * 128; i < bytes; i += TILE_ROWS * 128)
        cuda_prefetch(tile + i);
}

/* Computes slice number `slice` of the tile row; its sums for each token go to sums[token][row]. */
template <class T, uint32_t N>
static __device__ __forceinline__ void product_slice(const struct product &p,
                                                     const struct product_job &j, uint32_t tile_row,
                                                     uint32_t slice, uint8_t *place, float *sums)
{
    uint32_t part = slice / p.groups, group = slice % p.groups;
    const uint8_t *tile = product_slice_at<T>(p, j, tile_row, slice);
    uint32_t rows[N];
    float acc[N];

#pragma unroll
    for (uint32_t t = 0; t < N; t++) {
        acc[t] = 0;
        rows[t] = 0;
        if (N == 1 || t < j.n_tokens)
            rows[t] = j.tokens ? j.tokens[t] : j.row + part * j.part_rows + t;
    }
    if constexpr (T::QUANTIZED)
        product_quantized<T, N>(p, place, tile, group, rows, j.n_tokens, acc);
    else
        product_floats<T, N>(p, place, tile, group, rows, p.x + j.x_shift + 256 * group, j.n_tokens,
                             acc);
#pragma unroll
    for (uint32_t t = 0; t < N; t++)
        if (N == 1 || t < j.n_tokens)
            sums[t * TILE_ROWS + threadIdx.x % TILE_ROWS] = acc[t];
}

/* A row's groups of one part in order, and its factor. sums: of the first part's first group. */
template <class T>
static __device__ __forceinline__ float product_sum(const struct product &p,
                                                    const struct product_job &j, uint32_t part,
                                                    uint32_t row, const float *sums, uint32_t step)
{
    sums += part * p.groups * step;
    float sum = sums[0];
    for (uint32_t g = 1; g < p.groups; g++)
        sum += sums[g * step];
    return product_times_factor<T>(p, j, part, row, sum);
}

/* Quantises 16 rows, one a lane of the half-warp: row `row` of token t. */
static __device__ __forceinline__ void product_keep_quantized(const struct product &p, uint32_t row,
                                                              size_t t, float value)
{
    quantized_16 q = quantize_16(0xffffu << (threadIdx.x & 16), value);
    size_t at = 2 * t * ((p.rows + 31) / 32) + row / 16;

    p.out_q[t * ((p.rows + 63) / 64 * 64) + row] = (int8_t)q.q;
    if (threadIdx.x % TILE_ROWS == 0) {
        p.out_d[at] = q.d;
        p.out_sum[at] = q.sum;
    }
}

/* Finishes one row for token t of the job. sums: of the tile row's first slice; `step` from one to
 * the next. */
template <class T>
static __device__ __forceinline__ void
product_finish_row(const struct product &p, const struct product_job &j, uint32_t row, uint32_t t,
                   const float *sums, uint32_t step)
{
    float first = product_sum<T>(p, j, 0, row, sums, step), *out = j.out + t * p.out_stride + row;

    if (p.finish == PRODUCT_GATED) {
        float gate = j.n_parts == 2 ? first : *out;
        float up = j.n_parts == 2 ? product_sum<T>(p, j, 1, row, sums, step) : first;
        if (p.bias_offset) {
            const float *bias = (const float *)(j.segment + p.bias_offset);
            gate += bias[row];
            up += bias[p.rows + row];
        }
        float value = cuda_gated(p.activation, p.limit, gate, up);
        if (p.out_q != NULL)
            product_keep_quantized(p, row, j.out_row + t, value);
        else
            *out = value;
        return;
    }
    float total = j.add ? *out + first : first;
    for (uint32_t part = 1; part < j.n_parts; part++)
        total += product_sum<T>(p, j, part, row, sums, step);
    *out = p.row_bias != NULL ? total + p.row_bias[row] : total;
}

/* Block number `block` of the product. shared: a place for each half-warp; then
 * [n_tiles][slices][tokens_a_block][TILE_ROWS] sums. */
template <class T, uint32_t N>
static __device__ __forceinline__ void product_run(const struct product &p, uint32_t block,
                                                   uint8_t *shared)
{
    float *sums = (float *)(shared + blockDim.x / TILE_ROWS * product_stage<T>::PLACE);
    uint32_t index = block / p.n_blocks, first_tile = block % p.n_blocks * p.n_tiles;
    uint32_t step = p.tokens_a_block * TILE_ROWS;
    uint32_t half = threadIdx.x / TILE_ROWS, tile = half / p.halves;
    bool works = tile < p.n_tiles && (first_tile + tile) * TILE_ROWS < p.rows;

    if (p.work == PRODUCT_PLANES && works) /* dense weights: where they are depends on nothing */
        product_prefetch<T>(p, product_plane(p, index), first_tile + tile, half % p.halves);
    cuda_await_previous();
    const struct product_job j = product_job_of(p, index);
    uint32_t slices = j.n_parts * p.groups;
    if (works)
        for (uint32_t slice = half % p.halves; slice < slices; slice += p.halves) {
            if (slice + p.halves < slices)
                product_prefetch<T>(p, j, first_tile + tile, slice + p.halves);
            product_slice<T, N>(p, j, first_tile + tile, slice,
                                shared + half * product_stage<T>::PLACE,
                                sums + (tile * slices + slice) * step);
        }
    __syncthreads();
    if (p.guard != NULL && *p.guard != 0)
        return;
    for (uint32_t i = threadIdx.x; i < p.n_tiles * j.n_tokens * TILE_ROWS; i += blockDim.x) {
        uint32_t t = i / TILE_ROWS % j.n_tokens, at = i / TILE_ROWS / j.n_tokens;
        uint32_t row = (first_tile + at) * TILE_ROWS + i % TILE_ROWS;
        if (row < p.rows)
            product_finish_row<T>(p, j, row, t,
                                  sums + at * slices * step + t * TILE_ROWS + i % TILE_ROWS, step);
    }
}

/* Blocks of a multiprocessor: the number that shared memory allows on most devices, so the compiler
 * need not save registers for more. Float types would spill. */
template <class T, uint32_t N> struct product_resident {
    enum {
        BLOCKS = CUDA_MORE_REGISTERS ? (N == 1 ? 5 : 4)
                 : T::QUANTIZED      ? (N == 1 ? 7 : 6)
                                     : (N == 1 ? 6 : 4)
    };
};

template <class T, uint32_t N>
static __global__ void __launch_bounds__(PRODUCT_THREADS, product_resident<T, N>::BLOCKS)
    product_kernel(const __grid_constant__ struct product p)
{
    CUDA_SHARED(uint8_t, shared);
    product_run<T, N>(p, blockIdx.x, shared);
}

/* Sets the fields that product_launch sets, except row_bytes. Returns the number of jobs for each
 * of the n_blocks. */
static inline uint64_t product_shape(struct product *p, uint32_t parts)
{
    uint32_t tile_rows = tile_row_count(p->rows), chunks;

    p->groups = (p->cols + 255) / 256;
    p->x_aligned = product_rows_aligned(p);
    p->halves = min(parts * p->groups, (uint32_t)PRODUCT_HALVES);
    p->n_tiles = min(PRODUCT_HALVES / p->halves, tile_rows);
    p->n_blocks = (tile_rows + p->n_tiles - 1) / p->n_tiles;
    if (p->work != PRODUCT_PLANES) {
        p->tokens_a_block = p->n_tokens;
        return (uint64_t)p->n_items * (p->work == PRODUCT_SEGMENTS ? p->n_segments : 1);
    }
    p->tokens_a_block = product_tokens(parts, p->cols);
    chunks = (p->n + p->tokens_a_block - 1) / p->tokens_a_block;
    p->tokens_a_block = (p->n + chunks - 1) / chunks;
    return (uint64_t)p->n_planes * chunks;
}

/* A launch of products by product_run. */
struct product_grid {
    uint64_t blocks;
    uint32_t threads;    /* of a block */
    size_t places, sums; /* bytes of shared memory */
};

/* Sets p's last fields. threads: of a block; 0: as many as p needs. */
template <class T>
static inline struct product_grid product_grid_of(struct product *p, uint32_t threads)
{
    uint32_t parts = p->work == PRODUCT_TASKS ? p->n_segments : p->part_bytes ? 2 : 1;
    uint64_t jobs = product_shape(p, parts);
    struct product_grid g;

    p->row_bytes = tiles_row_bytes<T>(p->cols);
    g.blocks = jobs * p->n_blocks;
    g.threads = threads ? threads : (p->halves * p->n_tiles + 1) / 2 * 32;
    g.places = g.threads / TILE_ROWS * product_stage<T>::PLACE;
    g.sums = (size_t)p->n_tiles * parts * p->groups * p->tokens_a_block * PRODUCT_ROW_BYTES;
    return g;
}

template <class T> static void product_dp4a_start(struct device_stream *s, struct product *p)
{
    struct product_grid g = product_grid_of<T>(p, 0);
    size_t shared_bytes = g.places + g.sums;

    if (g.blocks > INT32_MAX) {
        cuda_refuse(s->device, "a product of too many blocks", __FILE__, __LINE__);
        return;
    }
    if (p->tokens_a_block == 1)
        CUDA_LAUNCH_EARLY((product_kernel<T, 1>), (unsigned)g.blocks, g.threads, shared_bytes, s,
                          *p);
    else
        CUDA_LAUNCH_EARLY((product_kernel<T, PRODUCT_TOKENS>), (unsigned)g.blocks, g.threads,
                          shared_bytes, s, *p);
    cuda_check(s, "product");
}

template <class T> static bool product_start(struct device_stream *s, struct product *p)
{
    if constexpr (T::QUANTIZED) {
        uint32_t tokens = p->work == PRODUCT_PLANES ? p->n : p->n_tokens;
        if (p->tensor_cores) {
            (tokens <= 32 ? product_mma_start<T, 1> : product_mma_start<T, 2>)(s, p);
            return true;
        }
    }
    product_dp4a_start<T>(s, p);
    return true;
}

#endif
