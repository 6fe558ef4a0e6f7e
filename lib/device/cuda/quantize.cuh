/* Quantising a block of 32 columns, for kernels: quantize_block of kernels/ops.inc.c. */
#ifndef MOED_DEVICE_CUDA_QUANTIZE_CUH
#define MOED_DEVICE_CUDA_QUANTIZE_CUH

#include "device/cuda/scalar.cuh"
#include "device/module.h"

/* The scale of 16 values, one a lane of a half-warp, and the sum of their quants. mask: of the
 * lanes that call. */
struct quantized_16 {
    float d;
    int q, sum; /* q: the lane's own */
};

static __device__ __forceinline__ quantized_16 quantize_16(unsigned mask, float x)
{
    quantized_16 out;
    int max_bits = __float_as_int(x) & 0x7fffffff;

#pragma unroll
    for (int width = 8; width > 0; width /= 2)
        max_bits = max(max_bits, __shfl_xor_sync(mask, max_bits, width));
    float inverse;
    out.d = cuda_block_scale(max_bits, &inverse);
    out.q = cuda_quant(x, inverse);
    out.sum = out.q;
#pragma unroll
    for (int width = 8; width > 0; width /= 2)
        out.sum += __shfl_xor_sync(mask, out.sum, width);
    return out;
}

/* Block `block` of 32 columns of a row of a; x: the lane's column, 0 beyond the last. All lanes of
 * the warp call it. */
static __device__ __forceinline__ void quantize_32(const device_activations &a, uint32_t row,
                                                   uint32_t block, float x)
{
    uint32_t lane = threadIdx.x % 32;
    size_t at = (size_t)row * ((a.cols + 31) / 32) + block;
    quantized_16 half = quantize_16(0xffffffffu, x);
    float d_1 = __shfl_sync(0xffffffffu, half.d, 16);
    float sum_1 = __shfl_sync(0xffffffffu, (float)half.sum, 16);

    a.q[(size_t)row * ((a.cols + 63) / 64 * 64) + block * 32 + lane] = (int8_t)half.q;
    if (lane % 16 == 0) {
        a.d[2 * at + lane / 16] = half.d;
        a.sum[2 * at + lane / 16] = half.sum;
    }
    if (lane == 0)
        a.bias[at] = __fmaf_rn(sum_1, d_1, (float)half.sum * half.d);
}

#endif
