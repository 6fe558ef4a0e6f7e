/* Rows of a matrix as float32: tile_unpack_row, with the arithmetic of quant/dequantize.c. */
#include "device/cuda/stream.h"
#include "device/cuda/ops.h"
#include "device/cuda/unpack.cuh"

enum { THREADS = 128 };

struct embed_call {
    const uint8_t *tiles;
    uint64_t row_bytes;
    uint32_t cols, n;
    const uint32_t *rows; /* [n] */
    float *out;
};

/* 32 columns of a row a thread. */
template <class T>
static __global__ void __launch_bounds__(THREADS) embed_kernel(const struct embed_call c)
{
    uint32_t col = (blockIdx.x * THREADS + threadIdx.x) * (T::QUANTIZED ? 32 : 1);

    if (col >= c.cols)
        return;
    for (uint32_t i = blockIdx.y; i < c.n; i += gridDim.y) {
        uint32_t row = c.rows[i];
        const uint8_t *tile = c.tiles + row / TILE_ROWS * c.row_bytes;
        float *out = c.out + (size_t)i * c.cols + col;
        if constexpr (T::QUANTIZED)
            unpack_block<T>(tile + (size_t)(col / 256) * tiles_256<T>::BYTES, col % 256 / 32,
                            row % TILE_ROWS,
                            tiles_row_factor<T>(tile, c.row_bytes, row % TILE_ROWS), out);
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

void cuda_embed(struct device_stream *s, const struct matrix *m, const uint32_t *tokens, uint32_t n,
                float *out)
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
    tiles_of_type(m->type, [&](auto tiles) { embed<decltype(tiles)>(s, c); });
}
