/* Norms of rows, as rms_norm and layer_norm of kernels/ops.inc.c: the 16 partial sums are 16 lanes.
 */
#include "device/cuda/stream.h"
#include "device/cuda/ops.h"
#include "device/cuda/scalar.cuh"

enum { NARROW_MOST = 1024, NARROW_THREADS = 128, WIDE_THREADS = 256, WIDE_SHARED_MOST = 12000 };

struct norm_call {
    const float *x;
    size_t x_stride;
    const float *weight, *bias;
    float eps;
    uint32_t n, d;
    float *out;
    size_t out_stride;
};

/* The value to subtract from a row's values, and the factor to multiply them by. Lane l of a
 * half-warp has partial sum l; all lanes of the warp call it. */
struct norm_factors {
    float mean, scale;
};

static __device__ __forceinline__ norm_factors norm_measure(const norm_call &c, const float *row)
{
    uint32_t lane = threadIdx.x % 16;
    norm_factors f = {0, 0};
    float squares = 0;

    if (c.bias != NULL) {
        float sum = 0;
#pragma unroll 8
        for (uint32_t i = lane; i < c.d; i += 16)
            sum = sum + row[i];
        f.mean = cuda_fold_add(sum) / (float)c.d;
#pragma unroll 8
        for (uint32_t i = lane; i < c.d; i += 16) {
            float v = row[i] - f.mean;
            squares = __fmaf_rn(v, v, squares);
        }
    } else {
#pragma unroll 8
        for (uint32_t i = lane; i < c.d; i += 16)
            squares = __fmaf_rn(row[i], row[i], squares);
    }
    f.scale = 1.0f / sqrtf(cuda_fold_add(squares) / (float)c.d + c.eps);
    return f;
}

static __device__ __forceinline__ float norm_value(const norm_call &c, norm_factors f, float x,
                                                   uint32_t i)
{
    float weight = c.weight != NULL ? c.weight[i] : 1.0f;

    if (c.bias != NULL)
        return __fmaf_rn((x - f.mean) * f.scale, weight, c.bias[i]);
    return x * f.scale * weight;
}

/* Short rows, as heads: a half-warp each. */
static __global__ void norm_narrow(norm_call c)
{
    uint32_t t = (uint32_t)blockIdx.x * (NARROW_THREADS / 16) + threadIdx.x / 16;
    uint32_t read =
        min(t, c.n - 1); /* a half-warp beyond the last row takes part in the other one's fold */
    const float *row = c.x + read * c.x_stride;
    norm_factors f = norm_measure(c, row);

    if (t < c.n)
        for (uint32_t i = threadIdx.x % 16; i < c.d; i += 16)
            c.out[t * c.out_stride + i] = norm_value(c, f, row[i], i);
}

/* One block for each row: all threads copy it to shared memory (if it fits), one warp sums it, all
 * write. */
static __global__ void norm_wide(norm_call c)
{
    CUDA_SHARED(float, staged);
    __shared__ norm_factors factors;
    const float *row = c.x + blockIdx.x * c.x_stride;

    if (c.d <= WIDE_SHARED_MOST) {
#pragma unroll 4
        for (uint32_t i = threadIdx.x; i < c.d; i += WIDE_THREADS)
            staged[i] = row[i];
        row = staged;
        __syncthreads();
    }
    if (threadIdx.x < 32) {
        norm_factors f = norm_measure(c, row);
        if (threadIdx.x == 0)
            factors = f;
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < c.d; i += WIDE_THREADS)
        c.out[blockIdx.x * c.out_stride + i] = norm_value(c, factors, row[i], i);
}

void cuda_norm(struct device_stream *s, const float *x, size_t x_stride, const float *weight,
               const float *bias, float eps, uint32_t n, uint32_t d, float *out, size_t out_stride)
{
    norm_call c = {x, x_stride, weight, bias, eps, n, d, out, out_stride};
    uint32_t rows_a_block = NARROW_THREADS / 16;

    if (n == 0)
        return;
    if (d <= NARROW_MOST && n >= 2)
        CUDA_LAUNCH(norm_narrow, (n + rows_a_block - 1) / rows_a_block, NARROW_THREADS, 0,
                    cuda_stream(s), c);
    else
        CUDA_LAUNCH(norm_wide, n, WIDE_THREADS, d <= WIDE_SHARED_MOST ? d * sizeof(float) : 0,
                    cuda_stream(s), c);
    cuda_check(s, "norm");
}
