/* Packs rows of the file's blocks into tiles and back, block by block (packing.h). */
#include "kernels/tile.h"

#include "base/checked.h"
#include "kernels/packing.h"
#include "kernels/tile_layout.h"
#include "quant/quant.h"

#include <assert.h>
#include <stdlib.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tiles and GGUF are little endian");

#define BLOCK_BYTES_MAX 210

/* BF16, 16 x 2: word r = columns 2k (low half) and 2k + 1 (high half) of row r; the missing second
 * column of an odd last pair is zero. The pair is the block of this packer. */
static const struct packing {
    unsigned block_bytes, block_cols, tile_bytes;
    unsigned at_once; /* blocks per call of pack; of small blocks a cache line's worth */
    pack_block *pack;
    unpack_block *unpack;
} packings[] = {
    [TENSOR_F32] = {4, 1, 64, 16, pack_f32, unpack_f32},
    [TENSOR_F16] = {2, 1, 32, 32, pack_f16, unpack_f16},
    [TENSOR_BF16] = {4, 2, 64, 16, pack_f32, unpack_f32},
    [TENSOR_Q8_0] = {34, 32, Q8_0_TILE, 1, pack_q8_0, unpack_q8_0},
    [TENSOR_Q4_0] = {18, 32, Q4_0_TILE, 1, pack_q4_0, unpack_q4_0},
    [TENSOR_Q4_1] = {20, 32, Q4_1_TILE, 1, pack_q4_1, unpack_q4_1},
    [TENSOR_Q5_0] = {22, 32, Q5_0_TILE, 1, pack_q5_0, unpack_q5_0},
    [TENSOR_Q5_1] = {24, 32, Q5_1_TILE, 1, pack_q5_1, unpack_q5_1},
    [TENSOR_Q2_K] = {84, 256, Q2_K_TILE, 1, pack_q2_k, unpack_q2_k},
    [TENSOR_Q3_K] = {110, 256, Q3_K_TILE, 1, pack_q3_k, unpack_q3_k},
    [TENSOR_Q4_K] = {144, 256, Q4_K_TILE, 1, pack_q4_k, unpack_q4_k},
    [TENSOR_Q5_K] = {176, 256, Q5_K_TILE, 1, pack_q5_k, unpack_q5_k},
    [TENSOR_Q6_K] = {210, 256, Q6_K_TILE, 1, pack_q6_k, unpack_q6_k},
    [TENSOR_IQ4_NL] = {18, 32, Q4_0_TILE, 1, pack_q4_0, unpack_q4_0},
    [TENSOR_IQ4_XS] = {136, 256, IQ4_XS_TILE, 1, pack_iq4_xs, unpack_iq4_xs},
    [TENSOR_MXFP4] = {17, 32, MXFP4_TILE, 1, pack_mxfp4, unpack_mxfp4},
    [TENSOR_NVFP4] = {36, 64, 2 * NVFP4_TILE, 1, pack_nvfp4, unpack_nvfp4},
    [TENSOR_IQ3_S] = {110, 256, IQ3_S_TILE, 1, pack_iq3_s, unpack_iq3_s},
    [TENSOR_IQ3_XXS] = {98, 256, IQ3_XXS_TILE, 1, pack_iq3_xxs, unpack_iq3_xxs},
    [TENSOR_IQ2_S] = {82, 256, IQ2_S_TILE, 1, pack_iq2_s, unpack_iq2_s},
    [TENSOR_IQ2_XS] = {74, 256, IQ2_XS_TILE, 1, pack_iq2_xs, unpack_iq2_xs},
    [TENSOR_IQ2_XXS] = {66, 256, IQ2_XXS_TILE, 1, pack_iq2_xxs, unpack_iq2_xxs},
    [TENSOR_IQ1_S] = {50, 256, IQ1_S_TILE, 1, pack_iq1_s, unpack_iq1_s},
    [TENSOR_IQ1_M] = {56, 256, IQ1_M_TILE, 1, pack_iq1_m, unpack_iq1_m},
};

static const struct packing *packing_of(enum tensor_type type)
{
    size_t index = (size_t)type;

    /* Our bug: opening a model refuses types that moed does not compute with. */
    if (index >= sizeof packings / sizeof packings[0] || packings[index].pack == NULL)
        abort();
    return &packings[index];
}

static size_t factors_bytes(enum tensor_type type)
{
    return tile_has_factors(type) ? TILE_VECTOR : 0;
}

size_t tile_row_bytes(enum tensor_type type, uint32_t cols)
{
    const struct packing *p = packing_of(type);
    size_t tiles = ((size_t)cols + p->block_cols - 1) / p->block_cols;

    return round_up(tiles * p->tile_bytes, TILE_ALIGN) + factors_bytes(type);
}

size_t tile_matrix_bytes(enum tensor_type type, uint32_t rows, uint32_t cols)
{
    return tile_row_bytes(type, cols) * tile_row_count(rows);
}

/* Packs `tiles` tile columns of 16 rows: a few columns of all rows at a time, so that they stay in
 * the first-level cache. */
static void pack_rows(const struct packing *p, uint32_t tiles, const uint8_t *rows, size_t stride,
                      uint8_t *out)
{
    for (uint32_t t = 0; t < tiles; t += p->at_once) {
        uint32_t n = tiles - t < p->at_once ? tiles - t : p->at_once;
        for (unsigned quad = 0; quad < TILE_ROWS / 4; quad++)
            p->pack(rows + 4 * quad * stride + (size_t)t * p->block_bytes, stride, quad, n,
                    out + (size_t)t * p->tile_bytes);
    }
}

/* Packs fewer than 16 rows; the others are zeros. */
static void pack_few_rows(const struct packing *p, uint32_t tiles, uint32_t n_rows,
                          const uint8_t *rows, size_t stride, uint8_t *out)
{
    uint8_t blocks[TILE_ROWS * BLOCK_BYTES_MAX] = {0};
    for (uint32_t t = 0; t < tiles; t++) {
        for (uint32_t r = 0; r < n_rows; r++)
            memcpy(blocks + r * p->block_bytes, rows + r * stride + (size_t)t * p->block_bytes,
                   p->block_bytes);
        pack_rows(p, 1, blocks, p->block_bytes, out + (size_t)t * p->tile_bytes);
    }
}

void tile_pack(enum tensor_type type, uint32_t cols, uint32_t n_rows, const void *rows_in,
               size_t stride, void *tile_row)
{
    const struct packing *p = packing_of(type);
    uint32_t tiles = cols / p->block_cols;
    size_t bytes = tile_row_bytes(type, cols) - factors_bytes(type);
    size_t done = (size_t)tiles * p->tile_bytes;
    uint8_t *out = tile_row;

    assert(n_rows >= 1 && n_rows <= TILE_ROWS);
    if (n_rows < TILE_ROWS)
        pack_few_rows(p, tiles, n_rows, rows_in, stride, out);
    else
        pack_rows(p, tiles, rows_in, stride, out);
    memset(out + done, 0, bytes - done);
    if (tiles * p->block_cols < cols) { /* BF16 only: half a pair */
        for (uint32_t r = 0; r < n_rows; r++)
            memcpy(out + done + 4 * r,
                   (const uint8_t *)rows_in + r * stride + (size_t)tiles * p->block_bytes, 2);
    }
    if (tile_has_factors(type))
        tile_set_factor(type, cols, 1, tile_row);
}

void tile_set_factor(enum tensor_type type, uint32_t cols, float factor, void *tile_row)
{
    uint8_t *factors = (uint8_t *)tile_row + tile_row_bytes(type, cols) - TILE_VECTOR;

    assert(tile_has_factors(type));
    for (uint32_t r = 0; r < TILE_ROWS; r++)
        memcpy(factors + 4 * r, &factor, sizeof factor);
}

void tile_unpack_row(const struct matrix *m, uint32_t row, float *out)
{
    const struct packing *p = packing_of(m->type);
    size_t row_bytes = tile_row_bytes(m->type, m->cols);
    const uint8_t *tile_row = (const uint8_t *)m->tiles + row_bytes * (row / TILE_ROWS);
    const uint8_t *tile = tile_row;
    /* Rebuild as many blocks as fit, so that lib/quant converts runs of blocks. */
    uint8_t blocks[16 * BLOCK_BYTES_MAX];
    uint32_t chunk = (uint32_t)(sizeof blocks / p->block_bytes) * p->block_cols;

    assert(row < m->rows);
    for (uint32_t col = 0; col < m->cols; col += chunk) {
        uint32_t n = m->cols - col < chunk ? m->cols - col : chunk;
        uint8_t *block = blocks;

        for (uint32_t c = 0; c < n; c += p->block_cols) {
            p->unpack(tile, row % TILE_ROWS, block);
            block += p->block_bytes;
            tile += p->tile_bytes;
        }
        quant_dequantize(m->type, blocks, out + col, n);
    }
    if (tile_has_factors(m->type)) {
        float factor = tile_factor(tile_row, row_bytes, row % TILE_ROWS);
        for (uint32_t col = 0; col < m->cols; col++)
            out[col] *= factor;
    }
}

void tile_unpack_rows(const struct matrix *m, uint32_t first, uint32_t count, float *out)
{
    for (uint32_t i = 0; i < count; i++)
        tile_unpack_row(m, first + i, out + (size_t)i * m->cols);
}
