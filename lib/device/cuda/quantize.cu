/* Activations: their layout, and quantising them (quantize_16 and quantize_block of
 * kernels/ops.inc.c). */
#include "device/cuda/dependent.cuh"
#include "device/cuda/ops.h"
#include "device/cuda/quantize.cuh"
#include "device/cuda/quantize.h"

extern "C" {
#include "base/checked.h"
}

enum { THREADS = 256 };

struct sizes {
    size_t q, d, bias, sum; /* bytes, each a multiple of 64 */
};

static struct sizes sizes_of(uint32_t cols, uint32_t n_tokens)
{
    size_t blocks = ((size_t)cols + 31) / 32 * n_tokens;
    struct sizes s;

    s.q = (size_t)round_up(cols, 64) * n_tokens;
    s.d = (size_t)round_up(2 * sizeof(float) * blocks, TILE_ALIGN);
    s.bias = (size_t)round_up(sizeof(float) * blocks, TILE_ALIGN);
    s.sum = (size_t)round_up(2 * sizeof(int32_t) * blocks, TILE_ALIGN);
    return s;
}

size_t cuda_activations_bytes(uint32_t cols, uint32_t n_tokens)
{
    struct sizes s = sizes_of(cols, n_tokens);
    return s.q + s.d + s.bias + s.sum;
}

void cuda_activations_bind(struct device_activations *a, void *memory, uint32_t cols,
                           uint32_t n_tokens, const float *x, size_t x_stride, bool quantize)
{
    struct sizes s = sizes_of(cols, n_tokens);
    uint8_t *next = (uint8_t *)memory;

    *a = {};
    a->n_tokens = n_tokens;
    a->cols = cols;
    a->x = x;
    a->x_stride = x_stride;
    if (!quantize)
        return;
    a->q = (int8_t *)next;
    next += s.q;
    a->d = (float *)next;
    next += s.d;
    a->bias = (float *)next;
    next += s.bias;
    a->sum = (int32_t *)next;
}

/* A warp has 32 columns of one row, a column a lane. */
static __global__ void __launch_bounds__(THREADS)
    quantize_kernel(const struct device_activations a, uint32_t n, size_t plane)
{
    uint32_t blocks = (a.cols + 31) / 32, lane = threadIdx.x % 32;
    size_t at = (size_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;

    cuda_await_previous();
    if (at >= (size_t)blocks * a.n_tokens)
        return; /* the whole warp */
    uint32_t row = (uint32_t)(at / blocks), col = (uint32_t)(at % blocks) * 32 + lane;
    float x = col < a.cols ? a.x[row / n * plane + row % n * a.x_stride + col] : 0;

    quantize_32(a, row, (uint32_t)(at % blocks), x);
}

void quantize_planes(struct device_stream *s, const struct device_activations *a, uint32_t n,
                     size_t plane)
{
    uint64_t warps = (uint64_t)((a->cols + 31) / 32) * a->n_tokens;

    if (warps == 0)
        return;
    CUDA_LAUNCH_EARLY(quantize_kernel, (unsigned)((warps + THREADS / 32 - 1) / (THREADS / 32)),
                      THREADS, 0, s, *a, n, plane);
    cuda_check(s, "quantize");
}

void cuda_quantize(struct device_stream *s, const struct device_activations *a)
{
    quantize_planes(s, a, a->n_tokens, 0);
}
