/* The norm of a row, for kernels: rms_norm and layer_norm of kernels/ops.inc.c. */
#ifndef MOED_DEVICE_CUDA_NORM_CUH
#define MOED_DEVICE_CUDA_NORM_CUH

#include "device/cuda/scalar.cuh"

/* The value to subtract from a row's values, and the factor to multiply them by. */
struct norm_factors {
    float mean, scale;
};

/* Lane l of a half-warp has partial sum l; all lanes of the warp call it. centred: a layer norm.
 * row: device or shared memory. */
static __device__ __forceinline__ norm_factors norm_measure(const float *row, uint32_t d,
                                                            bool centred, float eps)
{
    uint32_t lane = threadIdx.x % 16;
    norm_factors f = {0, 0};
    float squares = 0;

    if (centred) {
        float sum = 0;
#pragma unroll 8
        for (uint32_t i = lane; i < d; i += 16)
            sum = sum + row[i];
        f.mean = cuda_fold_add(sum) / (float)d;
#pragma unroll 8
        for (uint32_t i = lane; i < d; i += 16) {
            float v = row[i] - f.mean;
            squares = __fmaf_rn(v, v, squares);
        }
    } else {
#pragma unroll 8
        for (uint32_t i = lane; i < d; i += 16)
            squares = __fmaf_rn(row[i], row[i], squares);
    }
    f.scale = 1.0f / sqrtf(cuda_fold_add(squares) / (float)d + eps);
    return f;
}

/* Value i of a row. weight NULL: 1; bias NULL: an RMS norm. */
static __device__ __forceinline__ float norm_value(norm_factors f, float x, const float *weights,
                                                   const float *bias, uint32_t i)
{
    float weight = weights != NULL ? weights[i] : 1.0f;

    if (bias != NULL)
        return __fmaf_rn((x - f.mean) * f.scale, weight, bias[i]);
    return x * f.scale * weight;
}

#endif
