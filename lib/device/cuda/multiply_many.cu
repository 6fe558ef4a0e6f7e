/* Products of many columns through cuBLAS: the weights, a piece of rows at a time, and x become what its products take, in the
 * caller's scratch:
 *
 *   factors   of one product
 *   x         [n][stride], of the operands' type; float32 ones stay where they are
 *   piece     rows of W, [.][stride]
 *
 * Why FP16 for quantised weights, and x scaled: in BF16 both operands would keep 8 bits, which is what a quantised x has, with the
 * weights' loss on top. FP16 keeps 11, but ends at 65504, and inputs of an FFN's down projection are known to exceed that: they
 * would be infinite. A power of two loses nothing and is given back by alpha. Weights are what trained models have, far
 * from either end. */
#include "device/cuda/blas.h"
#include "device/cuda/ops.h"
#include "device/cuda/unpack.cuh"

enum {
    THREADS = 128,
    COLUMNS = 256,           /* of a block of threads, of 16 rows: 32 of a row a thread */
    STRIDE_VALUES = 8,       /* rows of operands are a multiple of them apart: 16 bytes, which tensor cores want */
    FACTORS_BYTES = 256,
    PIECE_BYTES = 32 << 20,  /* large enough to keep the device busy, small beside its memory */
    SCALED_EXPONENT = 14,    /* of x's largest magnitude, scaled: rounded up it is in FP16's range still */
    MOST_EXPONENT = 126      /* of the scale: its inverse is a normal number */
};
#define MOST_FP16 65504.0f

/* What a product's operands are; largest_bits is of the largest magnitude in x, as an integer, which orders them. */
struct factors {
    unsigned largest_bits;
    float alpha, beta;
};

static __device__ __forceinline__ uint32_t pair(uint16_t low, uint16_t high)
{
    return low | (uint32_t)high << 16;
}

/* How weights and x are rounded: BYTES of a value, TYPE, SCALED: x by a power of two. */
struct as_float {
    enum { BYTES = 4, TYPE = CUDA_R_32F, SCALED = 0 };
};

struct as_fp16 {
    enum { BYTES = 2, TYPE = CUDA_R_16F, SCALED = 1 };

    static __device__ __forceinline__ uint16_t round(float v)
    {
        return cuda_float_to_half(v);
    }

    /* A NaN stays one. */
    static __device__ __forceinline__ uint16_t round_weight(float v)
    {
        v = v > MOST_FP16 ? MOST_FP16 : v;
        return cuda_float_to_half(v < -MOST_FP16 ? -MOST_FP16 : v);
    }
};

struct as_bf16 {
    enum { BYTES = 2, TYPE = CUDA_R_16BF, SCALED = 0 };

    static __device__ __forceinline__ uint16_t round(float v)
    {
        return cuda_float_to_bf16(v);
    }

    static __device__ __forceinline__ uint16_t round_weight(float v)
    {
        return cuda_float_to_bf16(v);
    }
};

template <class T> struct operands_of {
    typedef as_fp16 type;
};
template <> struct operands_of<tiles_f32> {
    typedef as_float type;
};
template <> struct operands_of<tiles_bf16> {
    typedef as_bf16 type;
};

struct many_call {
    const uint8_t *tiles;
    uint64_t row_bytes;
    uint32_t rows, cols, n;
    const float *x;
    size_t x_stride, stride; /* in values; stride: of operands */
    float *y;
    size_t y_stride;
    bool accumulate;
    struct factors *factors;
    uint32_t *operands; /* x's */
    uint4 *piece;
    uint32_t tile_first, piece_tiles; /* of the piece; at most */
};

/* ---- The weights ---- */

/* 32 columns of a row from `col` on; those past the last are 0. */
template <class T>
static __device__ __forceinline__ void unpack_32(const struct many_call &c, uint32_t col, uint32_t row, float v[32])
{
    const uint8_t *tile = c.tiles + (c.tile_first + blockIdx.x) * c.row_bytes +
                          (size_t)(col / COLUMNS) * tiles_256<T>::BYTES;
    uint32_t sub = col % COLUMNS / 32;

#pragma unroll
    for (int k = 0; k < 32; k++)
        v[k] = 0;
    if constexpr (T::QUANTIZED) {
        if (col < c.cols)
            unpack_block<T>(tile, sub, row, v);
    } else {
#pragma unroll
        for (uint32_t k = 0; k < 32; k++)
            if (col + k < c.cols)
                v[k] = T::read(tile, sub * 32 + k, row);
    }
}

template <class As> static __device__ __forceinline__ void pack_32(const float v[32], uint4 *out)
{
    if constexpr (As::BYTES == 4) {
#pragma unroll
        for (int k = 0; k < 8; k++)
            out[k] = make_uint4(__float_as_uint(v[4 * k]), __float_as_uint(v[4 * k + 1]),
                                __float_as_uint(v[4 * k + 2]), __float_as_uint(v[4 * k + 3]));
    } else {
        uint32_t words[16];
#pragma unroll
        for (int k = 0; k < 16; k++)
            words[k] = pair(As::round_weight(v[2 * k]), As::round_weight(v[2 * k + 1]));
#pragma unroll
        for (int k = 0; k < 4; k++)
            out[k] = make_uint4(words[4 * k], words[4 * k + 1], words[4 * k + 2], words[4 * k + 3]);
    }
}

/* Tile rows along x, groups of columns along y. A half-warp reads 64 bytes side by side; through shared memory a whole warp
 * writes a part of one row. (A row there is one vector longer, so that 8 threads with a row each write to different banks.) */
template <class T> static __global__ void __launch_bounds__(THREADS) unpack_kernel(const struct many_call c)
{
    typedef typename operands_of<T>::type as;
    enum { VECTORS = COLUMNS * as::BYTES / 16, VALUES = 16 / as::BYTES };
    __shared__ uint4 rows[TILE_ROWS][VECTORS + 1];
    uint32_t part = threadIdx.x / TILE_ROWS, row = threadIdx.x % TILE_ROWS;
    float v[32];

    unpack_32<T>(c, blockIdx.y * COLUMNS + part * 32, row, v);
    pack_32<as>(v, &rows[row][part * 32 / VALUES]);
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < TILE_ROWS * VECTORS; i += THREADS) {
        uint32_t r = i / VECTORS, k = i % VECTORS;
        size_t col = blockIdx.y * COLUMNS + (size_t)k * VALUES;
        if (col < c.stride)
            c.piece[((size_t)(blockIdx.x * TILE_ROWS + r) * c.stride + col) / VALUES] = rows[r][k];
    }
}

/* ---- x ---- */

/* A row a block. */
static __global__ void __launch_bounds__(THREADS) largest_kernel(const struct many_call c)
{
    const float *x = c.x + blockIdx.x * c.x_stride;
    unsigned largest = 0;

    for (uint32_t col = threadIdx.x; col < c.cols; col += THREADS) {
        unsigned bits = __float_as_uint(x[col]) & 0x7fffffffu;
        largest = bits > largest ? bits : largest;
    }
#pragma unroll
    for (int width = 16; width > 0; width /= 2) {
        unsigned other = __shfl_xor_sync(0xffffffffu, largest, width);
        largest = other > largest ? other : largest;
    }
    if (threadIdx.x % 32 == 0)
        atomicMax(&c.factors->largest_bits, largest);
}

/* The exponent of the scale: x's largest magnitude times it is within [2^14, 2^15). An infinity or a NaN among them stays
 * one, whatever the scale. */
static __device__ __forceinline__ int scale_exponent(unsigned largest_bits)
{
    int exponent = SCALED_EXPONENT - ((int)(largest_bits >> 23) - 127);
    return exponent > MOST_EXPONENT ? (int)MOST_EXPONENT : exponent;
}

static __device__ __forceinline__ float power_of_two(int exponent)
{
    return __int_as_float((exponent + 127) << 23);
}

/* A row a block, two values a thread; those past the last column are 0. */
template <class As> static __global__ void __launch_bounds__(THREADS) convert_kernel(const struct many_call c)
{
    int exponent = As::SCALED ? scale_exponent(c.factors->largest_bits) : 0;
    float scale = power_of_two(exponent);

    if (blockIdx.x == 0 && threadIdx.x == 0) {
        c.factors->alpha = power_of_two(-exponent);
        c.factors->beta = c.accumulate;
    }
    if constexpr (As::BYTES == 2) {
        const float *x = c.x + blockIdx.x * c.x_stride;
        uint32_t *out = c.operands + blockIdx.x * (c.stride / 2);
        for (uint32_t col = 2 * threadIdx.x; col < c.stride; col += 2 * THREADS) {
            float low = col < c.cols ? x[col] * scale : 0, high = col + 1 < c.cols ? x[col + 1] * scale : 0;
            out[col / 2] = pair(As::round(low), As::round(high));
        }
    }
}

/* ---- The product ---- */

template <class As> static void convert(struct device_stream *s, const struct many_call &c)
{
    cuda_try(s->device, cudaMemsetAsync(c.factors, 0, sizeof *c.factors, cuda_stream(s)));
    if (As::SCALED) {
        CUDA_LAUNCH(largest_kernel, c.n, THREADS, 0, cuda_stream(s), c);
        cuda_check(s, "largest of x");
    }
    CUDA_LAUNCH(convert_kernel<As>, As::BYTES == 2 ? c.n : 1, THREADS, 0, cuda_stream(s), c); /* of float32 the factors */
    cuda_check(s, "convert x");
}

template <class T> static void multiply_many(struct device_stream *s, struct many_call c)
{
    typedef typename operands_of<T>::type as;
    uint32_t tiles = tile_row_count(c.rows);
    struct cuda_blas_product p = {};

    c.row_bytes = tiles_row_bytes<T>(c.cols);
    convert<as>(s, c);
    p.type = (cudaDataType)as::TYPE;
    p.cols = c.cols;
    p.n = c.n;
    p.w = c.piece;
    p.w_stride = c.stride;
    p.x = as::BYTES == 4 ? (const void *)c.x : c.operands;
    p.x_stride = as::BYTES == 4 ? c.x_stride : c.stride;
    p.y_stride = c.y_stride;
    p.alpha = &c.factors->alpha;
    p.beta = &c.factors->beta;
    for (; c.tile_first < tiles; c.tile_first += c.piece_tiles) {
        uint32_t n_tiles = tiles - c.tile_first < c.piece_tiles ? tiles - c.tile_first : c.piece_tiles;
        uint32_t row = c.tile_first * TILE_ROWS, n_rows = n_tiles * TILE_ROWS;
        dim3 grid(n_tiles, (c.cols + COLUMNS - 1) / COLUMNS);
        CUDA_LAUNCH(unpack_kernel<T>, grid, THREADS, 0, cuda_stream(s), c);
        cuda_check(s, "unpack");
        p.rows = c.rows - row < n_rows ? c.rows - row : n_rows;
        p.y = c.y + row;
        cuda_blas_multiply(s, &p);
    }
}

/* How the scratch of a product is laid out. */
struct layout {
    size_t stride;        /* of operands, in values */
    size_t operands, all; /* bytes of x's, and of everything */
    uint32_t piece_tiles; /* tile rows, one at least */
};

static struct layout layout_of(const struct matrix *m, uint32_t n)
{
    size_t value_bytes = m->type == TENSOR_F32 ? 4 : 2;
    struct layout l;

    l.stride = ((size_t)m->cols + STRIDE_VALUES - 1) / STRIDE_VALUES * STRIDE_VALUES;
    l.operands = value_bytes == 4 ? 0 : (n * l.stride * value_bytes + 255) / 256 * 256;
    size_t tile_bytes = TILE_ROWS * l.stride * value_bytes, tiles = PIECE_BYTES / tile_bytes;
    tiles = tiles < tile_row_count(m->rows) ? tiles : tile_row_count(m->rows);
    l.piece_tiles = tiles ? (uint32_t)tiles : 1;
    l.all = FACTORS_BYTES + l.operands + l.piece_tiles * tile_bytes;
    return l;
}

size_t cuda_multiply_many_scratch_bytes(const struct matrix *m, uint32_t n)
{
    return layout_of(m, n).all;
}

void cuda_multiply_many(struct device_stream *s, const struct matrix *m, const float *x, size_t x_stride, uint32_t n,
                        float *y, size_t y_stride, bool accumulate, void *scratch)
{
    uint8_t *memory = (uint8_t *)scratch;
    struct layout l = layout_of(m, n);
    struct many_call c = {};

    if (n == 0 || m->rows == 0)
        return;
    c.tiles = (const uint8_t *)m->tiles;
    c.rows = m->rows;
    c.cols = m->cols;
    c.n = n;
    c.x = x;
    c.x_stride = x_stride;
    c.stride = l.stride;
    c.y = y;
    c.y_stride = y_stride;
    c.accumulate = accumulate;
    c.factors = (struct factors *)memory;
    c.operands = (uint32_t *)(memory + FACTORS_BYTES);
    c.piece = (uint4 *)(memory + FACTORS_BYTES + l.operands);
    c.piece_tiles = l.piece_tiles;
    tiles_of_type(m->type, [&](auto tiles) { multiply_many<decltype(tiles)>(s, c); });
}
