/* Rows of a matrix as float32: tile_unpack_row, with the arithmetic of quant/dequantize.c. */
#include "device/cuda/internal.h"
#include "device/cuda/ops.h"
#include "device/cuda/tiles.cuh"

#include <stdlib.h>

enum { THREADS = 128 };

struct embed_call {
    const uint8_t *tiles;
    uint64_t row_bytes;
    uint32_t cols, n;
    const uint32_t *rows; /* [n] */
    float *out;
};

/* 32 columns of a row a thread. The terms are those of dequantize.c, (d * scale) * q - dmin * min. */
template <class T>
static __device__ __forceinline__ void embed_block(const uint8_t *tile, uint32_t sub, uint32_t row, float *out)
{
    uint32_t words[T::WORDS];
    struct tile_block b;

    /* A tile of 32 columns has its scales before its quants; one of 256, for all 8 blocks. */
    T::read_quants(tile, sub, row, words);
    T::decode(T::read_scales(T::COLUMNS == 32 ? tile + sub * T::BYTES : tile, row), words, sub, &b);
#pragma unroll
    for (int g = 0; g < 8; g++) {
        float w = T::SCALES_16 ? b.w * (float)b.scale[g / 4] : b.w;
        float c = T::MINIMUM == 16 ? -(b.c * (float)b.min[g / 4]) : b.c;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            float value = w * (float)(tile_signed_byte((uint32_t)b.q[g], k) - T::OFFSET);
            out[4 * g + k] = T::MINIMUM != 0 ? value + c : value;
        }
    }
}

template <class T> static __global__ void __launch_bounds__(THREADS) embed_kernel(const struct embed_call c)
{
    uint32_t col = (blockIdx.x * THREADS + threadIdx.x) * (T::QUANTIZED ? 32 : 1);

    if (col >= c.cols)
        return;
    for (uint32_t i = blockIdx.y; i < c.n; i += gridDim.y) {
        uint32_t row = c.rows[i];
        const uint8_t *tile = c.tiles + row / TILE_ROWS * c.row_bytes;
        float *out = c.out + (size_t)i * c.cols + col;
        if constexpr (T::QUANTIZED)
            embed_block<T>(tile + (size_t)(col / 256) * tiles_256<T>::BYTES, col % 256 / 32, row % TILE_ROWS, out);
        else
            *out = T::read(tile, col, row % TILE_ROWS);
    }
}

template <class T> static void embed(struct device_stream *s, struct embed_call c)
{
    uint32_t threads = T::QUANTIZED ? (c.cols + 31) / 32 : c.cols;
    dim3 grid((threads + THREADS - 1) / THREADS, c.n < 65535 ? c.n : 65535);

    c.row_bytes = tiles_row_bytes<T>(c.cols);
    CUDA_LAUNCH(embed_kernel<T>, grid, THREADS, 0, cuda_stream(s), c);
    cuda_check(s, "embed");
}

static void embed_type(struct device_stream *s, enum tensor_type type, const struct embed_call &c)
{
    switch (type) {
    case TENSOR_F32:
        return embed<tiles_f32>(s, c);
    case TENSOR_F16:
        return embed<tiles_f16>(s, c);
    case TENSOR_BF16:
        return embed<tiles_bf16>(s, c);
    case TENSOR_Q8_0:
        return embed<tiles_q8_0>(s, c);
    case TENSOR_Q4_0:
        return embed<tiles_q4_0>(s, c);
    case TENSOR_Q4_1:
        return embed<tiles_q4_1>(s, c);
    case TENSOR_Q5_0:
        return embed<tiles_q5_0>(s, c);
    case TENSOR_Q5_1:
        return embed<tiles_q5_1>(s, c);
    case TENSOR_IQ4_NL:
        return embed<tiles_iq4_nl>(s, c);
    case TENSOR_MXFP4:
        return embed<tiles_mxfp4>(s, c);
    case TENSOR_Q2_K:
        return embed<tiles_q2_k>(s, c);
    case TENSOR_Q3_K:
        return embed<tiles_q3_k>(s, c);
    case TENSOR_Q4_K:
        return embed<tiles_q4_k>(s, c);
    case TENSOR_Q5_K:
        return embed<tiles_q5_k>(s, c);
    case TENSOR_Q6_K:
        return embed<tiles_q6_k>(s, c);
    case TENSOR_IQ4_XS:
        return embed<tiles_iq4_xs>(s, c);
    default:
        abort(); /* refused when the model was opened: our bug */
    }
}

void cuda_embed(struct device_stream *s, const struct matrix *m, const uint32_t *tokens, uint32_t n, float *out)
{
    struct embed_call c = {};

    if (n == 0)
        return;
    c.rows = (const uint32_t *)cuda_stage(s, tokens, n * sizeof *tokens);
    if (!c.rows)
        return;
    c.tiles = (const uint8_t *)m->tiles;
    c.cols = m->cols;
    c.n = n;
    c.out = out;
    embed_type(s, m->type, c);
}
