/* One value at a time: the definition's functions (kernels/ops.inc.c, lanes_portable.h) in the same
 * steps, for kernels. */
#ifndef MOED_DEVICE_CUDA_SCALAR_CUH
#define MOED_DEVICE_CUDA_SCALAR_CUH

#include "device/cuda/launch.h"

#include <float.h>
#include <stdint.h>

#ifdef MOED_CUSIM
extern "C" {
#include "quant/quant.h"
}
#endif

/* With a NaN on either side the result is b, as vf_max and vf_min. */
static __device__ __forceinline__ float cuda_max(float a, float b)
{
    return a > b ? a : b;
}

static __device__ __forceinline__ float cuda_min(float a, float b)
{
    return a < b ? a : b;
}

/* kernels_exp; what the steps are stands at vf_exp. */
static __device__ __forceinline__ float cuda_exp(float x)
{
    const float rounding = 12582912.0f; /* 1.5 * 2^23 */
    float clamped = cuda_max(-150.0f, cuda_min(130.0f, x));
    float shifted = clamped * 0x1.715476p+0f + rounding;
    float n = shifted - rounding;
    int power = __float_as_int(shifted) - __float_as_int(rounding);
    int power_1 = power >> 1, power_2 = power - power_1;
    float r = __fmaf_rn(n, -0x1.62e400p-1f, clamped);
    float p = 0x1.6d110ap-10f;

    r = __fmaf_rn(n, -0x1.7f7d1cp-20f, r);
    p = __fmaf_rn(p, r, 0x1.120b6ep-7f);
    p = __fmaf_rn(p, r, 0x1.55551ap-5f);
    p = __fmaf_rn(p, r, 0x1.5554dcp-3f);
    p = __fmaf_rn(p, r, 0.5f);
    p = __fmaf_rn(p, r, 1.0f);
    p = __fmaf_rn(p, r, 1.0f);
    /* By unsigned numbers: with a NaN the power is anything. */
    p = p * __int_as_float((int)(((unsigned)power_1 + 127u) << 23));
    return p * __int_as_float((int)(((unsigned)power_2 + 127u) << 23));
}

/* max(x, 0) + ln(1 + exp(-|x|)): vf_softplus, whose series is vf_log1p's. */
static __device__ __forceinline__ float cuda_softplus(float x)
{
    float above = cuda_max(0.0f, x), below = cuda_min(0.0f, x), y = cuda_exp(below - above);
    float s = y / (2.0f + y), s2 = s * s, p = 2.0f / 15;

    p = __fmaf_rn(p, s2, 2.0f / 13);
    p = __fmaf_rn(p, s2, 2.0f / 11);
    p = __fmaf_rn(p, s2, 2.0f / 9);
    p = __fmaf_rn(p, s2, 2.0f / 7);
    p = __fmaf_rn(p, s2, 2.0f / 5);
    p = __fmaf_rn(p, s2, 2.0f / 3);
    p = __fmaf_rn(p, s2, 2.0f);
    return above + p * s;
}

/* enum activation of kernels/kernels.h: ACTIVATION_SILU, ACTIVATION_GELU, ACTIVATION_RELU_SQUARED,
 * else ACTIVATION_SWIGLU_CLAMPED. */
static __device__ __forceinline__ float cuda_gated(unsigned activation, float limit, float gate,
                                                   float up)
{
    if (activation == 0) {
        float silu = gate / (1.0f + cuda_exp(-gate));
        if (limit > 0) {
            silu = -cuda_max(-limit, -silu);
            up = -cuda_max(-limit, -cuda_max(-limit, up));
        }
        return silu * up;
    }
    if (activation == 2) {
        float inner = __fmaf_rn(gate * gate, -0x1.2444f2p-4f, -0x1.988454p+0f);
        return gate / (1.0f + cuda_exp(gate * inner)) * up;
    }
    if (activation == 5) {
        up = cuda_max(0.0f, up);
        return up * up;
    }
    float g = -cuda_max(-7.0f, -gate);
    float u = -cuda_max(-7.0f, -cuda_max(-7.0f, up));
    return g / (1.0f + cuda_exp(-1.702f * g)) * (u + 1.0f);
}

/* block_scale of kernels/ops.inc.c. */
static __device__ __forceinline__ float cuda_block_scale(int max_bits, float *inverse)
{
    *inverse = 0;
    if (max_bits >= 0x7f800000)
        return __int_as_float(0x7fc00000);
    float d = __int_as_float(max_bits) / 127.0f;
    if (!(d > 0) || 1.0f / d > FLT_MAX)
        return 0;
    *inverse = 1.0f / d;
    return d;
}

/* x by the block's 1 / d, to nearest even; 0 where that is 0. */
static __device__ __forceinline__ int cuda_quant(float x, float inverse)
{
    const float rounding = 12582912.0f; /* 1.5 * 2^23 */

    return inverse != 0 ? __float_as_int(x * inverse + rounding) - __float_as_int(rounding) : 0;
}

/* Exact. */
static __device__ __forceinline__ float cuda_half_to_float(uint16_t bits)
{
#ifdef MOED_CUSIM
    return half_to_float(bits);
#else
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(bits));
    return f;
#endif
}

/* To nearest even. */
static __device__ __forceinline__ uint16_t cuda_float_to_half(float f)
{
#ifdef MOED_CUSIM
    return float_to_half(f);
#else
    uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(f));
    return bits;
#endif
}

static __device__ __forceinline__ float cuda_bf16_to_float(uint32_t bits)
{
    return __int_as_float((int)(bits << 16));
}

/* To nearest even; a NaN stays one. */
static __device__ __forceinline__ uint16_t cuda_float_to_bf16(float f)
{
    uint32_t bits = (uint32_t)__float_as_int(f);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

/* A hint: these 128 bytes of device memory will be read soon. */
static __device__ __forceinline__ void cuda_prefetch(const void *p)
{
#ifndef MOED_CUSIM
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
#endif
}

/* The 16 partial sums of a half-warp's lanes, folded 8, 4, 2, 1, as vf_fold_add; every lane has the
 * sum. All 32 lanes of the warp are here. */
static __device__ __forceinline__ float cuda_fold_add(float sum)
{
#pragma unroll
    for (int width = 8; width > 0; width /= 2)
        sum = sum + __shfl_xor_sync(0xffffffffu, sum, width);
    return sum;
}

static __device__ __forceinline__ float cuda_fold_max(float max)
{
#pragma unroll
    for (int width = 8; width > 0; width /= 2)
        max = cuda_max(max, __shfl_xor_sync(0xffffffffu, max, width));
    return max;
}

#endif
