/* Norms of rows, as rms_norm and layer_norm of kernels/ops.inc.c: the 16 partial sums are 16 lanes.
 * norm_quantize also quantises the result, in the same launch; norm_add adds it to other rows. */
#include "device/cuda/dependent.cuh"
#include "device/cuda/norm.cuh"
#include "device/cuda/ops.h"
#include "device/cuda/quantize.cuh"

enum { NARROW_MOST = 1024, NARROW_THREADS = 128, WIDE_THREADS = 256, WIDE_SHARED_MOST = 12000 };

struct norm_call {
    const float *x;
    size_t x_stride;
    const float *weight, *bias;
    float eps;
    uint32_t n, d;
    float *out;
    size_t out_stride;
    device_activations quantized; /* q NULL: none */
    bool adds;                    /* out = (out + the result) * by */
    float by;
    const uint32_t *guard; /* of adds */
};

static __device__ __forceinline__ bool stopped(const norm_call &c)
{
    return c.guard != NULL && *c.guard != 0;
}

static __device__ __forceinline__ void store_value(const norm_call &c, float *out, float value)
{
    *out = c.adds ? (*out + value) * c.by : value;
}

/* Short rows, as heads: a half-warp each. */
static __global__ void norm_narrow(norm_call c)
{
    uint32_t t = (uint32_t)blockIdx.x * (NARROW_THREADS / 16) + threadIdx.x / 16;
    uint32_t read =
        min(t, c.n - 1); /* a half-warp beyond the last row takes part in the other one's fold */
    const float *row = c.x + read * c.x_stride;

    cuda_await_previous();
    norm_factors f = norm_measure(row, c.d, c.bias != NULL, c.eps);
    if (t < c.n && !stopped(c))
        for (uint32_t i = threadIdx.x % 16; i < c.d; i += 16)
            store_value(c, &c.out[t * c.out_stride + i],
                        norm_value(f, row[i], c.weight, c.bias, i));
}

/* One block for each row: all threads copy it to shared memory (if it fits), one warp sums it, all
 * write. A warp has 32 columns at a time. */
static __global__ void __launch_bounds__(WIDE_THREADS) norm_wide(norm_call c)
{
    CUDA_SHARED(float, staged);
    __shared__ norm_factors factors;
    const float *row = c.x + blockIdx.x * c.x_stride;
    float *out = c.out + blockIdx.x * c.out_stride;

    cuda_await_previous();
    if (c.d <= WIDE_SHARED_MOST) {
#pragma unroll 4
        for (uint32_t i = threadIdx.x; i < c.d; i += WIDE_THREADS)
            staged[i] = row[i];
        row = staged;
        __syncthreads();
    }
    if (threadIdx.x < 32) {
        norm_factors f = norm_measure(row, c.d, c.bias != NULL, c.eps);
        if (threadIdx.x == 0)
            factors = f;
    }
    __syncthreads();
    bool stop = stopped(c);
    uint32_t lane = threadIdx.x % 32;
    for (uint32_t first = threadIdx.x - lane; first < c.d; first += WIDE_THREADS) {
        uint32_t i = first + lane;
        float value = i < c.d ? norm_value(factors, row[i], c.weight, c.bias, i) : 0;
        if (i < c.d && !stop)
            store_value(c, &out[i], value);
        if (c.quantized.q != NULL)
            quantize_32(c.quantized, blockIdx.x, first / 32, value);
    }
}

static void launch_wide(struct device_stream *s, const norm_call &c)
{
    CUDA_LAUNCH_EARLY(norm_wide, c.n, WIDE_THREADS,
                      c.d <= WIDE_SHARED_MOST ? c.d * sizeof(float) : 0, s, c);
}

static void launch(struct device_stream *s, const norm_call &c)
{
    uint32_t rows_a_block = NARROW_THREADS / 16;

    if (c.n == 0)
        return;
    if (c.d <= NARROW_MOST && c.n >= 2)
        CUDA_LAUNCH_EARLY(norm_narrow, (c.n + rows_a_block - 1) / rows_a_block, NARROW_THREADS, 0,
                          s, c);
    else
        launch_wide(s, c);
    cuda_check(s, "norm");
}

void cuda_norm(struct device_stream *s, const float *x, size_t x_stride, const float *weight,
               const float *bias, float eps, uint32_t n, uint32_t d, float *out, size_t out_stride)
{
    launch(s, {x, x_stride, weight, bias, eps, n, d, out, out_stride, {}, false, 1, NULL});
}

void cuda_norm_add(struct device_stream *s, const float *x, const float *weight, const float *bias,
                   float eps, uint32_t n, uint32_t d, float by, float *rows)
{
    launch(s, {x, d, weight, bias, eps, n, d, rows, d, {}, true, by, s->guard});
}

void cuda_norm_quantize(struct device_stream *s, const float *x, size_t x_stride,
                        const float *weight, const float *bias, float eps, float *out,
                        size_t out_stride, const struct device_activations *a)
{
    norm_call c = {x,   x_stride,   weight, bias,  eps, a->n_tokens, a->cols,
                   out, out_stride, *a,     false, 1,   NULL};

    if (a->n_tokens == 0)
        return;
    launch_wide(s, c);
    cuda_check(s, "norm_quantize");
}
