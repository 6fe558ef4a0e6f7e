/* Products of many columns through cuBLAS. The weights, one slice at a time, and x are converted to
 * cuBLAS' operands in the caller's scratch:
 *
 *   factors   of one slice, for each group of rows of x
 *   x         [planes][n][stride], of the operands' type; float32 x stays where it is
 *   slice     rows of W, [planes][rows, whole tiles][stride]
 *
 * A slice is some rows of one plane, or all rows of several planes, which cuBLAS multiplies in one
 * call.
 *
 * Why FP16 for quantised weights, and why x is scaled: BF16 would keep 8 bits of both operands. A
 * quantised x has 8 bits too, but here the loss of the weights would come on top. FP16 keeps 11
 * bits, but ends at 65504, and inputs of an FFN's down projection are known to exceed that: they
 * would become infinite. A power of two loses nothing, and alpha undoes it. The weights of trained
 * models are far from both ends of the range.
 *
 * If cuBLAS has no BF16 on this device, BF16 weights become float32, which loses nothing. FP16
 * would silently lose values beyond its range.
 *
 * If cuBLAS is given up (blas.h), moed's kernels compute the rest of the product and all later
 * ones. They take the same scratch: x, quantised, is smaller than the operands. */
#include "device/cuda/blas.h"
#include "device/cuda/ops.h"
#include "device/cuda/product.h"
#include "device/cuda/unpack.cuh"

enum {
    THREADS = 128,
    COLUMNS = 256, /* of a block of threads, of 16 rows: 32 of a row a thread */
    STRIDE_VALUES =
        8, /* rows of operands are a multiple of them apart: 16 bytes, which tensor cores want */
    SLICE_BYTES = 32 << 20, /* large enough to keep the device busy, small against its memory */
    INPUT_BYTES = 8 << 20,  /* of x, of several planes: as many as fit */
    SCALED_EXPONENT =
        14, /* of x's largest magnitude, scaled: rounded up it is in FP16's range still */
    MOST_EXPONENT = 126 /* of the scale: its inverse is a normal number */
};
#define MOST_FP16 65504.0f

/* A product's operands, of one group of rows. largest_bits: the largest magnitude in x, as an
 * integer, which has the same order. */
struct factors {
    unsigned largest_bits;
    float alpha, beta;
};

static __device__ __forceinline__ uint32_t pair(uint16_t low, uint16_t high)
{
    return low | (uint32_t)high << 16;
}

/* Types of operands. BYTES: of a value; TYPE: cuBLAS'; SCALED: x is scaled by a power of two. */
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
    uint64_t row_bytes, plane_bytes;
    uint32_t rows, cols, n, group, n_planes;
    const float *x;
    size_t x_stride, x_plane, stride; /* in values; stride: of operands */
    float *y;
    size_t y_stride, y_plane;
    bool accumulate;
    struct factors *factors;
    uint32_t *operands; /* x's */
    uint4 *slice;
    /* of the slice; tiles: tile rows of each plane */
    uint32_t plane_first, slice_planes, tile_first, slice_tiles;
};

/* ---- The weights ---- */

/* 32 columns of a row from `col` on; those past the last are 0. */
template <class T>
static __device__ __forceinline__ void unpack_32(const struct many_call &c, uint32_t col,
                                                 uint32_t row, float v[32])
{
    const uint8_t *tile_row = c.tiles + (c.plane_first + blockIdx.z) * c.plane_bytes +
                              (c.tile_first + blockIdx.x) * c.row_bytes;
    const uint8_t *tile = tile_row + (size_t)(col / COLUMNS) * tiles_256<T>::BYTES;
    uint32_t sub = col % COLUMNS / 32;

#pragma unroll
    for (int k = 0; k < 32; k++)
        v[k] = 0;
    if constexpr (T::QUANTIZED) {
        if (col < c.cols)
            unpack_block<T>(tile, sub, row, tiles_row_factor<T>(tile_row, c.row_bytes, row), v);
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

/* Grid: x tile rows, y groups of columns, z planes. A half-warp reads 64 adjacent bytes; through
 * shared memory a whole warp writes a part of one row. (A row there is one vector longer, so that 8
 * threads with a row each write to different banks.) */
template <class T, class As>
static __global__ void __launch_bounds__(THREADS) unpack_kernel(const struct many_call c)
{
    enum { VECTORS = COLUMNS * As::BYTES / 16, VALUES = 16 / As::BYTES };
    __shared__ uint4 rows[TILE_ROWS][VECTORS + 1];
    uint32_t part = threadIdx.x / TILE_ROWS, row = threadIdx.x % TILE_ROWS;
    float v[32];

    unpack_32<T>(c, blockIdx.y * COLUMNS + part * 32, row, v);
    pack_32<As>(v, &rows[row][part * 32 / VALUES]);
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < TILE_ROWS * VECTORS; i += THREADS) {
        uint32_t r = i / VECTORS, k = i % VECTORS;
        size_t col = blockIdx.y * COLUMNS + (size_t)k * VALUES;
        size_t of = ((size_t)blockIdx.z * gridDim.x + blockIdx.x) * TILE_ROWS + r;
        if (col < c.stride)
            c.slice[(of * c.stride + col) / VALUES] = rows[r][k];
    }
}

/* ---- x ---- */

/* x of the block: a row along x, a plane along y. */
static __device__ __forceinline__ const float *row_of_block(const struct many_call &c)
{
    return c.x + (c.plane_first + blockIdx.y) * c.x_plane + blockIdx.x * c.x_stride;
}

static __global__ void __launch_bounds__(THREADS) largest_kernel(const struct many_call c)
{
    const float *x = row_of_block(c);
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
        atomicMax(&c.factors[blockIdx.x / c.group].largest_bits, largest);
}

/* The exponent of the scale: x's largest magnitude times it is within [2^14, 2^15). An infinity or
 * a NaN among them stays one, whatever the scale. */
static __device__ __forceinline__ int scale_exponent(unsigned largest_bits)
{
    int exponent = SCALED_EXPONENT - ((int)(largest_bits >> 23) - 127);
    return exponent > MOST_EXPONENT ? (int)MOST_EXPONENT : exponent;
}

static __device__ __forceinline__ float power_of_two(int exponent)
{
    return __int_as_float((exponent + 127) << 23);
}

/* Two values a thread; those past the last column are 0. */
template <class As>
static __global__ void __launch_bounds__(THREADS) convert_kernel(const struct many_call c)
{
    struct factors *f = &c.factors[blockIdx.x / c.group];
    int exponent = As::SCALED ? scale_exponent(f->largest_bits) : 0;
    float scale = power_of_two(exponent);

    if (blockIdx.x % c.group == 0 && blockIdx.y == 0 && threadIdx.x == 0) {
        f->alpha = power_of_two(-exponent);
        f->beta = c.accumulate;
    }
    if constexpr (As::BYTES == 2) {
        const float *x = row_of_block(c);
        uint32_t *out = c.operands + ((size_t)blockIdx.y * gridDim.x + blockIdx.x) * (c.stride / 2);
        for (uint32_t col = 2 * threadIdx.x; col < c.stride; col += 2 * THREADS) {
            float low = col < c.cols ? x[col] * scale : 0,
                  high = col + 1 < c.cols ? x[col + 1] * scale : 0;
            out[col / 2] = pair(As::round(low), As::round(high));
        }
    }
}

/* ---- The product ---- */

/* Converts x of the slice's planes. */
template <class As> static void convert(struct device_stream *s, const struct many_call &c)
{
    size_t factors = (c.n + c.group - 1) / c.group * sizeof *c.factors;

    cuda_try(s->device, cudaMemsetAsync(c.factors, 0, factors, cuda_stream(s)));
    if (As::SCALED) {
        CUDA_LAUNCH(largest_kernel, dim3(c.n, c.slice_planes), THREADS, 0, cuda_stream(s), c);
        cuda_check(s, "largest of x");
    }
    dim3 grid(c.n, As::BYTES == 2 ? c.slice_planes : 1); /* of float32 the factors */
    CUDA_LAUNCH(convert_kernel<As>, grid, THREADS, 0, cuda_stream(s), c);
    cuda_check(s, "convert x");
}

/* Multiplies the slice by the rows of x from `first` on, without cuBLAS. */
static void multiply_rest(struct device_stream *s, enum tensor_type type, const struct many_call &c,
                          uint32_t first)
{
    uint32_t row = c.tile_first * TILE_ROWS, n_rows = c.slice_tiles * TILE_ROWS;
    struct matrix part = {type, c.rows - row < n_rows ? c.rows - row : n_rows, c.cols, NULL};
    bool quantize = product_quantizes(type);
    struct device_activations a;

    for (uint32_t i = 0; i < c.slice_planes; i++) {
        size_t plane = c.plane_first + i;
        part.tiles = c.tiles + plane * c.plane_bytes + c.tile_first * c.row_bytes;
        cuda_activations_bind(&a, c.factors, c.cols, c.n - first,
                              c.x + plane * c.x_plane + first * c.x_stride, c.x_stride, quantize);
        if (quantize)
            cuda_quantize(s, &a);
        cuda_multiply(s, &part, &a, c.y + plane * c.y_plane + first * c.y_stride + row, c.y_stride,
                      c.accumulate);
    }
}

/* Multiplies one slice of weights by x of its planes, one group of rows after the other. */
template <class T, class As>
static void multiply_slice(struct device_stream *s, enum tensor_type type,
                           const struct many_call &c)
{
    uint32_t row = c.tile_first * TILE_ROWS, n_rows = c.slice_tiles * TILE_ROWS;
    struct cuda_blas_product p = {};

    CUDA_LAUNCH((unpack_kernel<T, As>),
                dim3(c.slice_tiles, (c.cols + COLUMNS - 1) / COLUMNS, c.slice_planes), THREADS, 0,
                cuda_stream(s), c);
    cuda_check(s, "unpack");
    p.type = (cudaDataType)As::TYPE;
    p.rows = c.rows - row < n_rows ? c.rows - row : n_rows;
    p.cols = c.cols;
    p.w = c.slice;
    p.w_stride = c.stride;
    p.x_stride = As::BYTES == 4 ? c.x_stride : c.stride;
    p.y_stride = c.y_stride;
    p.n_planes = c.slice_planes;
    p.w_plane = n_rows * c.stride;
    p.x_plane = As::BYTES == 4 ? c.x_plane : c.n * c.stride;
    p.y_plane = c.y_plane;
    for (uint32_t first = 0, i = 0; first < c.n; first += c.group, i++) {
        p.n = c.n - first < c.group ? c.n - first : c.group;
        p.x = As::BYTES == 4
                  ? (const void *)(c.x + c.plane_first * c.x_plane + first * c.x_stride)
                  : (const void *)((const uint8_t *)c.operands + first * c.stride * As::BYTES);
        p.y = c.y + c.plane_first * c.y_plane + first * c.y_stride + row;
        p.alpha = &c.factors[i].alpha;
        p.beta = &c.factors[i].beta;
        if (!cuda_blas_multiply(s, &p)) {
            multiply_rest(s, type, c, first);
            return;
        }
    }
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* c->slice_planes and c->slice_tiles are the largest slice. */
template <class T, class As>
static void multiply_slices(struct device_stream *s, enum tensor_type type, struct many_call c)
{
    uint32_t tiles = tile_row_count(c.rows), most_tiles = c.slice_tiles,
             most_planes = c.slice_planes;

    c.row_bytes = tiles_row_bytes<T>(c.cols);
    for (; c.plane_first < c.n_planes; c.plane_first += most_planes) {
        c.slice_planes = least(most_planes, c.n_planes - c.plane_first);
        convert<As>(s, c);
        for (c.tile_first = 0; c.tile_first < tiles; c.tile_first += most_tiles) {
            c.slice_tiles = least(most_tiles, tiles - c.tile_first);
            multiply_slice<T, As>(s, type, c);
        }
    }
}

/* The layout of a product's scratch. */
struct layout {
    size_t stride;                      /* of operands, in values */
    size_t factors, operands, all;      /* bytes: of these, of x's, and of everything */
    uint32_t slice_planes, slice_tiles; /* planes, and tile rows of each; one at least */
};

/* As many of n as fit, one at least. */
static uint32_t fitting(size_t capacity, size_t bytes, uint32_t n)
{
    size_t fit = capacity / (bytes ? bytes : 1);
    fit = fit < n ? fit : n;
    return fit ? (uint32_t)fit : 1;
}

/* value_bytes: of operands. */
static struct layout layout_of(const struct matrix *m, uint32_t n_planes, uint32_t n,
                               size_t value_bytes)
{
    uint32_t tiles = tile_row_count(m->rows);
    struct layout l;

    l.stride = ((size_t)m->cols + STRIDE_VALUES - 1) / STRIDE_VALUES * STRIDE_VALUES;
    size_t tile_bytes = TILE_ROWS * l.stride * value_bytes,
           x_bytes = value_bytes == 4 ? 0 : n * l.stride * value_bytes;
    l.slice_tiles = fitting(SLICE_BYTES, tile_bytes, tiles);
    l.slice_planes =
        fitting(INPUT_BYTES, x_bytes, fitting(SLICE_BYTES, tiles * tile_bytes, n_planes));
    l.factors = (n / DEVICE_LEAST_GROUP + 1) * sizeof(struct factors);
    l.factors = (l.factors + 255) / 256 * 256;
    l.operands = (l.slice_planes * x_bytes + 255) / 256 * 256;
    l.all = l.factors + l.operands + (size_t)l.slice_planes * l.slice_tiles * tile_bytes;
    return l;
}

/* For n rows or fewer: fewer rows may leave memory for more planes at a time. */
static size_t most_bytes(const struct matrix *m, uint32_t n_planes, uint32_t n, size_t value_bytes)
{
    struct layout all = layout_of(m, n_planes, n, value_bytes),
                  few = layout_of(m, n_planes, 1, value_bytes);
    size_t weights = all.all - all.operands, operands = all.operands;

    if (few.slice_planes > all.slice_planes) {
        weights = few.all - few.operands + all.factors;
        operands = operands > INPUT_BYTES ? operands : (size_t)INPUT_BYTES;
    }
    return weights + operands;
}

/* BF16's are of whichever operands take more. */
size_t cuda_multiply_many_scratch_bytes(const struct matrix *m, uint32_t n_planes, uint32_t n)
{
    size_t in_two = most_bytes(m, n_planes, n, 2), in_four = most_bytes(m, n_planes, n, 4);

    if (m->type == TENSOR_F32 || (m->type == TENSOR_BF16 && in_four > in_two))
        return in_four;
    size_t quantized = product_quantizes(m->type) ? cuda_activations_bytes(m->cols, n) : 0;
    return quantized > in_two ? quantized : in_two; /* of few columns: multiply_rest's */
}

/* c describes the product; this sets W and the scratch. */
static void multiply_all(struct device_stream *s, const struct matrix *m, struct many_call *c,
                         void *scratch)
{
    bool in_float =
        m->type == TENSOR_F32 || (m->type == TENSOR_BF16 && !cuda_blas_operands(s->device).bf16);
    struct layout l = layout_of(m, c->n_planes, c->n, in_float ? 4 : 2);
    uint8_t *memory = (uint8_t *)scratch;

    if (c->n == 0 || c->n_planes == 0 || m->rows == 0)
        return;
    c->tiles = (const uint8_t *)m->tiles;
    c->rows = m->rows;
    c->cols = m->cols;
    c->stride = l.stride;
    c->factors = (struct factors *)memory;
    c->operands = (uint32_t *)(memory + l.factors);
    c->slice = (uint4 *)(memory + l.factors + l.operands);
    c->slice_planes = l.slice_planes;
    c->slice_tiles = l.slice_tiles;
    if (cuda_blas_given_up(s->device)) {
        c->slice_planes = c->n_planes;
        c->slice_tiles = tile_row_count(m->rows);
        multiply_rest(s, m->type, *c, 0);
        return;
    }
    tiles_of_type(m->type, [&](auto tiles) {
        typedef decltype(tiles) T;
        typedef typename operands_of<T>::type as;
        if constexpr ((int)as::TYPE == (int)CUDA_R_16BF)
            if (in_float)
                return multiply_slices<T, as_float>(s, m->type, *c);
        multiply_slices<T, as>(s, m->type, *c);
    });
}

void cuda_multiply_many(struct device_stream *s, const struct matrix *m, const float *x,
                        size_t x_stride, uint32_t n, uint32_t group, float *y, size_t y_stride,
                        bool accumulate, void *scratch)
{
    struct many_call c = {};

    c.n_planes = 1;
    c.n = n;
    c.group = group;
    c.x = x;
    c.x_stride = x_stride;
    c.y = y;
    c.y_stride = y_stride;
    c.accumulate = accumulate;
    multiply_all(s, m, &c, scratch);
}

void cuda_multiply_many_planes(struct device_stream *s, const struct matrix *m, size_t plane_bytes,
                               uint32_t n_planes, uint32_t n, uint32_t group, const float *in,
                               size_t in_stride, size_t in_plane, float *out, size_t out_stride,
                               size_t out_plane, void *scratch)
{
    struct many_call c = {};

    c.plane_bytes = plane_bytes;
    c.n_planes = n_planes;
    c.n = n;
    c.group = group;
    c.x = in;
    c.x_stride = in_stride;
    c.x_plane = in_plane;
    c.y = out;
    c.y_stride = out_stride;
    c.y_plane = out_plane;
    multiply_all(s, m, &c, scratch);
}
