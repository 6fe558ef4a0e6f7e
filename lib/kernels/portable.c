/* The portable build: the definition of the arithmetic, in plain C. It reads weights one row and 32
 * columns at a time, in the words of kernels.h, and shares with the vector builds nothing of
 * multiply.
 */
#include "kernels/builds.h"
#include "kernels/lanes_portable.h"
#include "kernels/tile_layout.h"
#include "quant/quant.h"

#include <stdlib.h>

static void multiply(const struct matrix *m, uint32_t tile_first, uint32_t tile_count,
                     const struct activations *a, const uint32_t *tokens, uint32_t n_tokens,
                     float *y, size_t y_stride, bool accumulate);

#include "kernels/ops.inc.c"

const struct kernels kernels_portable = KERNELS_TABLE;

float kernels_exp(float x)
{
    float lanes[16];

    vf_store(lanes, vf_exp(vf_set1(x)));
    return lanes[0];
}

/* 32 columns of one row: w = d * scale * scale_16[c / 16] * (quants[c] - offset) - dmin * min. A
 * type has a minimum or an offset, not both. */
struct block32 {
    float d, dmin;
    int scale, scale_16[2], min, offset;
    uint8_t quants[32];
};

static void read_nibbles(const uint8_t *p, unsigned row, uint8_t quants[32])
{
    for (unsigned g = 0; g < 8; g++)
        store_u32(quants + 4 * g, tile_nibbles(p, g, row));
}

/* Bits `bits` wide of groups [0, n), packed in one word a row of the vector at p, to bits 4 and up.
 */
static void read_high_bits(const uint8_t *p, unsigned row, unsigned bits, unsigned n,
                           uint8_t *quants)
{
    uint32_t mask = bits == 1 ? 0x01010101 : 0x03030303;

    for (unsigned g = 0; g < n; g++) {
        uint32_t high = (tile_word(p, 0, row) >> (bits * g)) & mask;
        store_u32(quants + 4 * g, load_u32(quants + 4 * g) | high << 4);
    }
}

static void read_k_scales(const uint8_t *tile, unsigned row, unsigned sub, struct block32 *b)
{
    uint8_t packed[12], scale, min;

    for (unsigned k = 0; k < 3; k++)
        store_u32(packed + 4 * k, tile_word(tile + K_SCALES, k, row));
    quant_k_scale_min(packed, sub, &scale, &min);
    b->dmin = half_to_float(load_u16(tile + K_MINS + 2 * row));
    b->scale = scale;
    b->min = min;
}

/* Columns [col, col + 32) of one row of a tile row. */
static void read_block(enum tensor_type type, const uint8_t *tile_row, unsigned row, uint32_t col,
                       struct block32 *b)
{
    unsigned sub = col % 256 / 32;
    const uint8_t *tile, *quants;

    *b = (struct block32){.scale = 1, .scale_16 = {1, 1}};
    switch (type) {
    case TENSOR_Q8_0:
        tile = tile_row + (size_t)(col / 32) * Q8_0_TILE;
        for (unsigned g = 0; g < 8; g++) /* int8 w = uint8 (w + 128) - 128 */
            store_u32(b->quants + 4 * g, tile_word(tile + Q8_0_QUANTS, g, row) ^ 0x80808080);
        b->offset = 128;
        break;
    case TENSOR_Q4_0:
        tile = tile_row + (size_t)(col / 32) * Q4_0_TILE;
        read_nibbles(tile + Q4_0_QUANTS, row, b->quants);
        b->offset = 8;
        break;
    case TENSOR_Q4_K:
        tile = tile_row + (size_t)(col / 256) * Q4_K_TILE;
        read_k_scales(tile, row, sub, b);
        read_nibbles(tile + K_QUANTS + sub * Q4_K_SUB, row, b->quants);
        break;
    case TENSOR_Q5_K:
        tile = tile_row + (size_t)(col / 256) * Q5_K_TILE;
        quants = tile + K_QUANTS + sub * Q5_K_SUB;
        read_k_scales(tile, row, sub, b);
        read_nibbles(quants, row, b->quants);
        read_high_bits(quants + 4 * TILE_VECTOR, row, 1, 8, b->quants);
        break;
    case TENSOR_Q6_K:
        tile = tile_row + (size_t)(col / 256) * Q6_K_TILE;
        quants = tile + Q6_K_QUANTS + sub * Q6_K_SUB;
        for (unsigned h = 0; h < 2; h++) {
            unsigned i = 2 * sub + h; /* which of the 16 scales */
            const uint8_t *scales = tile + Q6_K_SCALES + i / 4 * TILE_VECTOR + 4 * row;
            b->scale_16[h] = (int8_t)scales[i % 4];
        }
        read_nibbles(quants, row, b->quants);
        read_high_bits(quants + 4 * TILE_VECTOR, row, 2, 4, b->quants);
        read_high_bits(quants + 5 * TILE_VECTOR, row, 2, 4, b->quants + 16);
        b->offset = 32;
        break;
    default: /* refused when the model was opened */
        abort();
    }
    b->d = half_to_float(load_u16(tile + 2 * row));
}

/* acc and what these 32 columns add to it. */
static float add_block(const struct block32 *b, const int8_t *q, const float d_x[2], float bias,
                       float acc)
{
    int sum[2] = {0, 0};
    float p;

    for (unsigned h = 0; h < 2; h++) {
        for (unsigned c = 16 * h; c < 16 * h + 16; c++)
            sum[h] += (b->quants[c] - b->offset) * q[c];
        sum[h] *= b->scale_16[h];
    }
    p = fmaf((float)sum[1], d_x[1], (float)sum[0] * d_x[0]);
    acc = fmaf(p, b->d * (float)b->scale, acc);
    return b->offset != 0 ? acc : fmaf(-(b->dmin * (float)b->min), bias, acc);
}

static float read_float(enum tensor_type type, const uint8_t *tile_row, unsigned row, uint32_t col)
{
    float f;

    switch (type) {
    case TENSOR_F32:
        memcpy(&f, tile_row + (size_t)col * 64 + 4 * row, sizeof f);
        return f;
    case TENSOR_F16:
        return half_to_float(load_u16(tile_row + (size_t)col * 32 + 2 * row));
    default:
        return bf16_to_float(load_u16(tile_row + (size_t)(col / 2) * 64 + 4 * row + 2 * (col % 2)));
    }
}

/* The weights of 256 columns of one row are decoded once and applied to CHUNK tokens. */
enum { CHUNK = 16 };

static void row_float(const struct matrix *m, const uint8_t *tile_row, unsigned row,
                      const struct activations *a, const uint32_t *tokens, uint32_t n, float *sums)
{
    for (uint32_t first = 0; first < m->cols; first += 256) {
        uint32_t count = m->cols - first < 256 ? m->cols - first : 256;
        float w[256];

        for (uint32_t c = 0; c < count; c++)
            w[c] = read_float(m->type, tile_row, row, first + c);
        for (uint32_t i = 0; i < n; i++) {
            const float *x = a->x + tokens[i] * a->x_stride + first;
            float acc = 0;
            for (uint32_t c = 0; c < count; c++)
                acc = fmaf(w[c], x[c], acc);
            sums[i] = first == 0 ? acc : sums[i] + acc;
        }
    }
}

static void row_quantized(const struct matrix *m, const uint8_t *tile_row, unsigned row,
                          const struct activations *a, const uint32_t *tokens, uint32_t n,
                          float *sums)
{
    for (uint32_t first = 0; first < m->cols; first += 256) {
        uint32_t blocks = (m->cols - first < 256 ? m->cols - first : 256) / 32;
        struct block32 b[8];

        for (uint32_t k = 0; k < blocks; k++)
            read_block(m->type, tile_row, row, first + 32 * k, &b[k]);
        for (uint32_t i = 0; i < n; i++) {
            const int8_t *q = a->q + tokens[i] * act_q_stride(a->cols) + first;
            size_t block = (size_t)tokens[i] * act_blocks(a->cols) + first / 32;
            const float *d = a->d + 2 * block, *bias = a->bias + block;
            float acc = 0;
            for (uint32_t k = 0; k < blocks; k++)
                acc = add_block(&b[k], q + 32 * k, d + 2 * k, bias[k], acc);
            sums[i] = first == 0 ? acc : sums[i] + acc;
        }
    }
}

static void multiply(const struct matrix *m, uint32_t tile_first, uint32_t tile_count,
                     const struct activations *a, const uint32_t *tokens, uint32_t n_tokens,
                     float *y, size_t y_stride, bool accumulate)
{
    bool is_float = m->type == TENSOR_F32 || m->type == TENSOR_F16 || m->type == TENSOR_BF16;
    size_t row_bytes = tile_row_bytes(m->type, m->cols);
    uint32_t row_end = (tile_first + tile_count) * TILE_ROWS;

    if (row_end > m->rows)
        row_end = m->rows;
    for (uint32_t row = tile_first * TILE_ROWS; row < row_end; row++) {
        const uint8_t *tile_row = (const uint8_t *)m->tiles + row / TILE_ROWS * row_bytes;

        for (uint32_t i = 0; i < n_tokens; i += CHUNK) {
            uint32_t n = n_tokens - i < CHUNK ? n_tokens - i : CHUNK;
            uint32_t chunk[CHUNK];
            float sums[CHUNK] = {0};

            for (uint32_t k = 0; k < n; k++)
                chunk[k] = act_token(tokens, i + k);
            (is_float ? row_float : row_quantized)(m, tile_row, row % TILE_ROWS, a, chunk, n, sums);
            for (uint32_t k = 0; k < n; k++) {
                float *out = y + (i + k) * y_stride + row;
                *out = accumulate ? *out + sums[k] : sums[k];
            }
        }
    }
}
