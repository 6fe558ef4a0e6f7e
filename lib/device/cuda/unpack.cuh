/* Weights as float32, with the arithmetic of quant/dequantize.c. */
#ifndef MOED_DEVICE_CUDA_UNPACK_CUH
#define MOED_DEVICE_CUDA_UNPACK_CUH

#include "device/cuda/tiles.cuh"
#include "device/cuda/tiles_iq.cuh"

#include <stdlib.h>

/* 32 columns of a row: the sub-th of the 256 that the tile, or the tiles of 32 columns from there,
 * have. The terms are those of dequantize.c, (d * scale) * q - dmin * min. factor: the row's
 * (tiles_row_factor). */
template <class T>
static __device__ __forceinline__ void unpack_block(const uint8_t *tile, uint32_t sub, uint32_t row,
                                                    float factor, float *out)
{
    uint32_t words[T::WORDS];
    struct tile_block b;

    /* A tile of 32 columns has its scales before its quants; one of 256, for all 8 blocks. */
    T::read_quants(tile, sub, row, words);
    T::decode(T::read_scales(T::COLUMNS == 32 ? tile + sub * T::BYTES : tile, row), words, sub, &b);
#pragma unroll
    for (int g = 0; g < 8; g++) {
        float w = T::SCALES_16 ? b.w * (float)b.scale[g / 4] : T::FACTORS ? b.factor[g / 4] : b.w;
        float c = T::MINIMUM == 16 ? -(b.c * (float)b.min[g / 4]) : b.c;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            float value = w * (float)(tile_signed_byte((uint32_t)b.q[g], k) - T::OFFSET);
            out[4 * g + k] = T::MINIMUM != 0 ? value + c : T::ROW_FACTORS ? value * factor : value;
        }
    }
}

/* Calls work(tiles) with the type's struct of tiles.cuh. */
template <class Work> static inline void tiles_of_type(enum tensor_type type, Work work)
{
    switch (type) {
    case TENSOR_F32:
        return work(tiles_f32{});
    case TENSOR_F16:
        return work(tiles_f16{});
    case TENSOR_BF16:
        return work(tiles_bf16{});
    case TENSOR_Q8_0:
        return work(tiles_q8_0{});
    case TENSOR_Q4_0:
        return work(tiles_q4_0{});
    case TENSOR_Q4_1:
        return work(tiles_q4_1{});
    case TENSOR_Q5_0:
        return work(tiles_q5_0{});
    case TENSOR_Q5_1:
        return work(tiles_q5_1{});
    case TENSOR_IQ4_NL:
        return work(tiles_iq4_nl{});
    case TENSOR_MXFP4:
        return work(tiles_mxfp4{});
    case TENSOR_NVFP4:
        return work(tiles_nvfp4{});
    case TENSOR_Q2_K:
        return work(tiles_q2_k{});
    case TENSOR_Q3_K:
        return work(tiles_q3_k{});
    case TENSOR_Q4_K:
        return work(tiles_q4_k{});
    case TENSOR_Q5_K:
        return work(tiles_q5_k{});
    case TENSOR_Q6_K:
        return work(tiles_q6_k{});
    case TENSOR_IQ4_XS:
        return work(tiles_iq4_xs{});
    case TENSOR_IQ3_S:
        return work(tiles_iq3_s{});
    case TENSOR_IQ3_XXS:
        return work(tiles_iq3_xxs{});
    case TENSOR_IQ2_S:
        return work(tiles_iq2_s{});
    case TENSOR_IQ2_XS:
        return work(tiles_iq2_xs{});
    case TENSOR_IQ2_XXS:
        return work(tiles_iq2_xxs{});
    case TENSOR_IQ1_S:
        return work(tiles_iq1_s{});
    case TENSOR_IQ1_M:
        return work(tiles_iq1_m{});
    default:
        abort(); /* refused when the model was opened: our bug */
    }
}

#endif
