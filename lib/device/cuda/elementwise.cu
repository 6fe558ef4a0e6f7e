/* Operations on single elements, one thread for each, in the order of steps of kernels/ops.inc.c,
 * rope_apply and worker/forward/dense_host.c. */
#include "device/cuda/stream.h"
#include "device/cuda/ops.h"
#include "device/cuda/scalar.cuh"

enum { THREADS = 256 };

/* Elements of a block of threads, in the y direction; rows are in x. */
static unsigned parts(size_t elements)
{
    return (unsigned)((elements + THREADS - 1) / THREADS);
}

static __device__ __forceinline__ uint32_t element(void)
{
    return blockIdx.y * THREADS + threadIdx.x;
}

static __device__ __forceinline__ bool stopped(const uint32_t *guard)
{
    return guard != NULL && *guard != 0;
}

static __global__ void add_rows(const float *add, size_t add_stride, float *rows, size_t stride,
                                uint32_t d, const uint32_t *guard)
{
    uint32_t i = element();

    if (i < d && !stopped(guard)) {
        float *y = rows + blockIdx.x * stride + i;
        *y = *y + add[blockIdx.x * add_stride + i];
    }
}

void cuda_add(struct device_stream *s, const float *add, size_t add_stride, float *rows,
              size_t stride, uint32_t n, uint32_t d)
{
    if (n == 0 || d == 0)
        return;
    CUDA_LAUNCH(add_rows, dim3(n, parts(d)), THREADS, 0, cuda_stream(s), add, add_stride, rows,
                stride, d, s->guard);
    cuda_check(s, "add");
}

struct rotate_call {
    float *heads;
    size_t row_stride, head_stride;
    uint32_t n_heads;
    const float *cos_sin;
    uint32_t half; /* pairs of a head */
    bool neox;
};

static __global__ void rotate_pairs(rotate_call c)
{
    uint32_t pair = element();

    if (pair >= c.n_heads * c.half)
        return;
    uint32_t i = pair % c.half;
    float *head = c.heads + blockIdx.x * c.row_stride + pair / c.half * c.head_stride;
    float *a = head + (c.neox ? i : 2 * i);
    float *b = c.neox ? a + c.half : a + 1;
    const float *turns = c.cos_sin + (size_t)blockIdx.x * 2 * c.half;
    float x = *a, y = *b, cos = turns[i], sin = turns[c.half + i];

    *a = x * cos - y * sin;
    *b = x * sin + y * cos;
}

void cuda_rotate(struct device_stream *s, float *heads, size_t row_stride, size_t head_stride,
                 uint32_t n, uint32_t n_heads, const float *cos_sin, uint32_t dims, bool neox)
{
    rotate_call c = {heads, row_stride, head_stride, n_heads, cos_sin, dims / 2, neox};

    if (n == 0 || n_heads == 0 || dims < 2)
        return;
    CUDA_LAUNCH(rotate_pairs, dim3(n, parts((size_t)n_heads * c.half)), THREADS, 0, cuda_stream(s),
                c);
    cuda_check(s, "rotate");
}

struct scatter_call {
    const float *from;
    size_t from_row, from_part;
    float *to;
    size_t to_row, to_part;
    uint32_t n_parts, width;
};

static __global__ void scatter_parts(scatter_call c)
{
    uint32_t i = element();

    if (i < c.n_parts * c.width)
        c.to[blockIdx.x * c.to_row + i / c.width * c.to_part + i % c.width] =
            c.from[blockIdx.x * c.from_row + i / c.width * c.from_part + i % c.width];
}

void cuda_scatter(struct device_stream *s, const float *from, size_t from_row, size_t from_part,
                  float *to, size_t to_row, size_t to_part, uint32_t n, uint32_t n_parts,
                  uint32_t width)
{
    scatter_call c = {from, from_row, from_part, to, to_row, to_part, n_parts, width};

    if (n == 0 || n_parts == 0 || width == 0)
        return;
    CUDA_LAUNCH(scatter_parts, dim3(n, parts((size_t)n_parts * width)), THREADS, 0, cuda_stream(s),
                c);
    cuda_check(s, "scatter");
}

static __global__ void gate_elements(uint32_t activation, float limit, const float *gate,
                                     const float *up, float *h, size_t n)
{
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;

    if (i < n)
        h[i] = cuda_gated(activation, limit, gate[i], up[i]);
}

void cuda_gated(struct device_stream *s, uint32_t activation, float limit, const float *gate,
                const float *up, float *h, size_t n)
{
    if (n == 0)
        return;
    CUDA_LAUNCH(gate_elements, parts(n), THREADS, 0, cuda_stream(s), activation, limit, gate, up, h,
                n);
    cuda_check(s, "gated");
}

static __global__ void scale_rows(const float *by, float *rows, uint32_t d)
{
    uint32_t i = element();

    if (i < d)
        rows[(size_t)blockIdx.x * d + i] *= by[blockIdx.x];
}

void cuda_scale(struct device_stream *s, const float *by, float *rows, uint32_t n, uint32_t d)
{
    if (n == 0 || d == 0)
        return;
    CUDA_LAUNCH(scale_rows, dim3(n, parts(d)), THREADS, 0, cuda_stream(s), by, rows, d);
    cuda_check(s, "scale");
}

static __global__ void scale_rows_by_sigmoid(const float *by, float *rows, uint32_t d)
{
    uint32_t i = element();

    if (i < d)
        rows[(size_t)blockIdx.x * d + i] *= 1.0f / (1.0f + cuda_exp(-by[blockIdx.x]));
}

void cuda_scale_by_sigmoid(struct device_stream *s, const float *by, float *rows, uint32_t n,
                           uint32_t d)
{
    if (n == 0 || d == 0)
        return;
    CUDA_LAUNCH(scale_rows_by_sigmoid, dim3(n, parts(d)), THREADS, 0, cuda_stream(s), by, rows, d);
    cuda_check(s, "scale_by_sigmoid");
}

struct combine_call {
    const float *rows;
    const uint32_t *row_of;
    const float *weights;
    const uint32_t *selected;
    uint32_t n_used;
    const float *down_bias, *shared;
    float *x;
    uint32_t d;
    const uint32_t *guard;
};

static __global__ void combine_rows(combine_call c)
{
    uint32_t i = element();
    size_t at = (size_t)blockIdx.x * c.d + i, first = (size_t)blockIdx.x * c.n_used;
    float sum = 0;

    if (i >= c.d || stopped(c.guard))
        return;
#pragma unroll 4
    for (uint32_t k = 0; k < c.n_used; k++) {
        float weight = c.weights[first + k];
        sum = __fmaf_rn(weight, c.rows[(size_t)c.row_of[first + k] * c.d + i], sum);
        if (c.down_bias != NULL)
            sum = __fmaf_rn(weight, c.down_bias[(size_t)c.selected[first + k] * c.d + i], sum);
    }
    if (c.shared != NULL)
        sum = sum + c.shared[at];
    c.x[at] = c.x[at] + sum;
}

void cuda_combine(struct device_stream *s, const float *rows, const uint32_t *row_of,
                  const float *weights, const uint32_t *selected, uint32_t n_used,
                  const float *down_bias, const float *shared, float *x, uint32_t n, uint32_t d)
{
    combine_call c = {rows, row_of, weights, selected, n_used, down_bias, shared, x, d, s->guard};

    if (n == 0 || d == 0)
        return;
    CUDA_LAUNCH(combine_rows, dim3(n, parts(d)), THREADS, 0, cuda_stream(s), c);
    cuda_check(s, "combine");
}
