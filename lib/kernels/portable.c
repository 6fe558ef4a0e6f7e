/* The portable build: the definition of the arithmetic, in plain C. It reads weights one row and 32
 * columns at a time, with the names of kernels.h. Its multiply shares no code with the vector
 * builds. */
#include "kernels/builds.h"
#include "kernels/lanes_portable.h"
#include "kernels/portable_iq.h"
#include "kernels/tile_layout.h"
#include "quant/quant.h"

#include <stdlib.h>

static void multiply(const struct matrix *m, uint32_t tile_first, uint32_t tile_count,
                     const struct activations *a, const uint32_t *tokens, uint32_t n_tokens,
                     float *y, size_t y_stride, bool accumulate);

#include "kernels/ops.inc.c"

const struct kernels kernels_portable = KERNELS_TABLE;

/* 32 columns of one row, with the names of kernels.h: the weights' part. */
struct block32 {
    int8_t quants[32]; /* the type's offset subtracted, or its table's values */
    float scale_16[2]; /* of each half, a factor of the integers; the product is exact */
    float w;
    enum { NO_MINIMUM, MINIMUM_32, MINIMUM_16 } minimum;
    float c;       /* MINIMUM_32: times bias */
    int min_16[2]; /* MINIMUM_16 */
    float dmin;
};

static void read_nibbles(const uint8_t *p, unsigned row, int8_t quants[32])
{
    for (unsigned g = 0; g < 8; g++)
        store_u32(quants + 4 * g, tile_nibbles(p, g, row));
}

/* Reads fields of `bits` bits of groups [0, n), packed in one word per row of the vector at p, to
 * bits 4 and up. */
static void read_high_bits(const uint8_t *p, unsigned row, unsigned bits, unsigned n,
                           int8_t *quants)
{
    uint32_t mask = bits == 1 ? 0x01010101 : 0x03030303;

    for (unsigned g = 0; g < n; g++) {
        uint32_t high = (tile_word(p, 0, row) >> (bits * g)) & mask;
        store_u32(quants + 4 * g, load_u32(quants + 4 * g) | high << 4);
    }
}

static void subtract_offset(struct block32 *b, int offset)
{
    for (unsigned c = 0; c < 32; c++)
        b->quants[c] = (int8_t)(b->quants[c] - offset);
}

static void look_up(struct block32 *b, const int8_t values[16])
{
    for (unsigned c = 0; c < 32; c++)
        b->quants[c] = values[b->quants[c]];
}

static float read_half(const uint8_t *halves, unsigned row)
{
    return half_to_float(load_u16(halves + 2 * row));
}

/* Words [0, n) of the vectors at p: the row's bytes in the file's order. */
static void read_words(const uint8_t *p, unsigned row, unsigned n, uint8_t *bytes)
{
    for (unsigned k = 0; k < n; k++)
        store_u32(bytes + 4 * k, tile_word(p, k, row));
}

/* The types with blocks of 32 columns. */
static void read_block_32(enum tensor_type type, const uint8_t *tile, unsigned row,
                          struct block32 *b)
{
    b->w = type == TENSOR_MXFP4 ? quant_mxfp4_scale(tile[row]) : read_half(tile, row);
    switch (type) {
    case TENSOR_Q8_0:
        read_words(tile + Q8_0_QUANTS, row, 8, (uint8_t *)b->quants);
        break;
    case TENSOR_Q4_0:
        read_nibbles(tile + Q4_0_QUANTS, row, b->quants);
        subtract_offset(b, 8);
        break;
    case TENSOR_IQ4_NL:
        read_nibbles(tile + Q4_0_QUANTS, row, b->quants);
        look_up(b, quant_iq4_values);
        break;
    case TENSOR_MXFP4:
        read_nibbles(tile + MXFP4_QUANTS, row, b->quants);
        look_up(b, quant_mxfp4_values);
        break;
    case TENSOR_Q5_0:
        read_nibbles(tile + Q5_0_QUANTS, row, b->quants);
        read_high_bits(tile + Q5_0_QUANTS + 4 * TILE_VECTOR, row, 1, 8, b->quants);
        subtract_offset(b, 16);
        break;
    case TENSOR_Q4_1:
        read_nibbles(tile + Q4_1_QUANTS, row, b->quants);
        b->minimum = MINIMUM_32;
        b->c = read_half(tile + TILE_HALVES, row);
        break;
    case TENSOR_Q5_1:
        read_nibbles(tile + Q5_1_QUANTS, row, b->quants);
        read_high_bits(tile + Q5_1_QUANTS + 4 * TILE_VECTOR, row, 1, 8, b->quants);
        b->minimum = MINIMUM_32;
        b->c = read_half(tile + TILE_HALVES, row);
        break;
    default: /* opening a model refuses other types */
        abort();
    }
}

static void read_k_scales(const uint8_t *tile, unsigned row, unsigned sub, struct block32 *b)
{
    uint8_t packed[12], scale, min;

    read_words(tile + K_SCALES, row, 3, packed);
    quant_k_scale_min(packed, sub, &scale, &min);
    b->w = read_half(tile, row) * (float)scale;
    b->minimum = MINIMUM_32;
    b->c = -(read_half(tile + K_MINS, row) * (float)min);
}

static void read_q2_k(const uint8_t *tile, unsigned row, unsigned sub, struct block32 *b)
{
    uint8_t scales[16];

    read_words(tile + Q2_K_SCALES, row, 4, scales);
    b->w = read_half(tile, row);
    b->minimum = MINIMUM_16;
    b->dmin = read_half(tile + K_MINS, row);
    for (unsigned h = 0; h < 2; h++) {
        b->scale_16[h] = (float)(scales[2 * sub + h] & 15);
        b->min_16[h] = scales[2 * sub + h] >> 4;
    }
    for (unsigned g = 0; g < 8; g++) {
        const uint8_t *quants = tile + Q2_K_QUANTS + sub * Q2_K_SUB;
        store_u32(b->quants + 4 * g, tile_word(quants, g / 4, row) >> (2 * (g % 4)) & 0x03030303);
    }
}

static void read_q3_k(const uint8_t *tile, unsigned row, unsigned sub, struct block32 *b)
{
    uint8_t scales[12];

    read_words(tile + Q3_K_SCALES, row, 3, scales);
    b->w = read_half(tile, row);
    for (unsigned h = 0; h < 2; h++)
        b->scale_16[h] = (float)quant_q3_k_scale(scales, 2 * sub + h);
    for (unsigned g = 0; g < 8; g++)
        store_u32(b->quants + 4 * g, tile_3_bits(tile + Q3_K_QUANTS + sub * Q3_K_SUB, g, row));
    subtract_offset(b, 4);
}

static void read_q6_k(const uint8_t *tile, unsigned row, unsigned sub, struct block32 *b)
{
    const uint8_t *quants = tile + Q6_K_QUANTS + sub * Q6_K_SUB;
    uint8_t scales[16];

    read_words(tile + Q6_K_SCALES, row, 4, scales);
    b->w = read_half(tile, row);
    for (unsigned h = 0; h < 2; h++)
        b->scale_16[h] = (float)(int8_t)scales[2 * sub + h];
    read_nibbles(quants, row, b->quants);
    read_high_bits(quants + 4 * TILE_VECTOR, row, 2, 4, b->quants);
    read_high_bits(quants + 5 * TILE_VECTOR, row, 2, 4, b->quants + 16);
    subtract_offset(b, 32);
}

static void read_iq4_xs(const uint8_t *tile, unsigned row, unsigned sub, struct block32 *b)
{
    uint16_t high = load_u16(tile + IQ4_XS_HIGH + 2 * row);

    b->w = read_half(tile, row) * (float)quant_iq4_xs_scale(tile + IQ4_XS_LOW + 4 * row, high, sub);
    read_nibbles(tile + IQ4_XS_QUANTS + sub * Q4_K_SUB, row, b->quants);
    look_up(b, quant_iq4_values);
}

/* Types with codebooks. Where 32 columns have one scale, it is a part of w. */

static float odd(unsigned scale)
{
    return (float)(2 * scale + 1);
}

static void read_iq3_s(const uint8_t *tile, unsigned row, unsigned sub, struct block32 *b)
{
    const uint8_t *p = tile + IQ3_S_QUANTS + sub * IQ3_SUB;
    uint32_t signs = tile_word(p, 2, row);

    b->w = read_half(tile, row) * odd(tile_word(tile + IQ3_S_SCALES, 0, row) >> 4 * sub & 15);
    for (unsigned k = 0; k < 8; k++) {
        unsigned high = tile_high(tile + IQ3_S_HIGH, row, sub, 4, 8, 1, k);
        unsigned index = index_byte(tile_word(p, k / 4, row), k % 4) | high << 8;
        put_point(quant_grid_iq3_s()[index], signs, 4 * k, 4, b->quants);
    }
}

static void read_iq3_xxs(const uint8_t *tile, unsigned row, unsigned sub, struct block32 *b)
{
    const uint8_t *p = tile + IQ3_XXS_QUANTS + sub * IQ3_SUB;
    uint32_t word = tile_word(p, 2, row), signs = tile_even_signs(word);

    b->w = read_half(tile, row) * 0.25f * odd(word >> 28);
    for (unsigned k = 0; k < 8; k++)
        put_point(quant_grid_iq3_xxs()[index_byte(tile_word(p, k / 4, row), k % 4)], signs, 4 * k,
                  4, b->quants);
}

static void read_iq2_xxs(const uint8_t *tile, unsigned row, unsigned sub, struct block32 *b)
{
    const uint8_t *p = tile + IQ2_XXS_QUANTS + sub * IQ2_SUB;
    uint32_t indices = tile_word(p, 0, row), word = tile_word(p, 1, row);

    b->w = read_half(tile, row) * 0.125f * odd(word >> 28);
    for (unsigned k = 0; k < 4; k++)
        put_point(quant_grid_iq2_xxs[index_byte(indices, k)], tile_even_signs(word), 8 * k, 8,
                  b->quants);
}

/* IQ2_XS and IQ2_S: two nibbles of each byte. */
static void read_iq2_scales(const uint8_t *tile, const uint8_t *scales, unsigned row, unsigned sub,
                            struct block32 *b)
{
    unsigned both = index_byte(tile_word(scales, sub / 4, row), sub % 4);

    b->w = read_half(tile, row) * 0.125f;
    b->scale_16[0] = odd(both & 15);
    b->scale_16[1] = odd(both >> 4);
}

static void read_iq2_xs(const uint8_t *tile, unsigned row, unsigned sub, struct block32 *b)
{
    const uint8_t *p = tile + IQ2_XS_QUANTS + sub * IQ2_SUB;
    uint32_t indices = tile_word(p, 0, row), word = tile_word(p, 1, row);

    read_iq2_scales(tile, tile + IQ2_XS_SCALES, row, sub, b);
    for (unsigned k = 0; k < 4; k++) {
        unsigned index = index_byte(indices, k) | (word >> (28 + k) & 1) << 8;
        put_point(quant_grid_iq2_xs[index], tile_even_signs(word), 8 * k, 8, b->quants);
    }
}

static void read_iq2_s(const uint8_t *tile, unsigned row, unsigned sub, struct block32 *b)
{
    const uint8_t *p = tile + IQ2_S_QUANTS + sub * IQ2_SUB;
    uint32_t indices = tile_word(p, 0, row), signs = tile_word(p, 1, row);

    read_iq2_scales(tile, tile + IQ2_S_SCALES, row, sub, b);
    for (unsigned k = 0; k < 4; k++) {
        unsigned high = tile_high(tile + IQ2_S_HIGH, row, sub, 4, 4, 2, k);
        put_point(quant_grid_iq2_s[index_byte(indices, k) | high << 8], signs, 8 * k, 8, b->quants);
    }
}

static void read_iq1_s(const uint8_t *tile, unsigned row, unsigned sub, struct block32 *b)
{
    uint32_t indices = tile_word(tile + IQ1_S_QUANTS, sub, row);
    uint32_t word = tile_word(tile + IQ1_S_HIGH, sub / 2, row) >> 16 * (sub % 2);

    b->w = read_half(tile, row) * 0.125f * odd(word >> 12 & 7);
    for (unsigned k = 0; k < 4; k++) {
        unsigned high = tile_high(tile + IQ1_S_HIGH, row, sub, 2, 4, 3, k);
        put_iq1(index_byte(indices, k) | high << 8, word >> 15 & 1, b->quants + 8 * k);
    }
}

/* The fourth word of scales stands in the upper bits of the other three. */
static unsigned iq1_m_scales(const uint8_t *tile, unsigned row, unsigned k)
{
    const uint8_t *p = tile + IQ1_M_SCALES + 2 * row;

    if (k < 3)
        return load_u16(p + k * TILE_HALVES);
    return load_u16(p) >> 12 | load_u16(p + TILE_HALVES) >> 12 << 4 |
           load_u16(p + 2 * TILE_HALVES) >> 12 << 8;
}

static void read_iq1_m(const uint8_t *tile, unsigned row, unsigned sub, struct block32 *b)
{
    uint32_t indices = tile_word(tile + IQ1_M_QUANTS, sub, row);
    unsigned scales = iq1_m_scales(tile, row, sub / 2) >> 6 * (sub % 2);

    b->w = read_half(tile, row) * 0.125f;
    b->scale_16[0] = odd(scales & 7);
    b->scale_16[1] = odd(scales >> 3 & 7);
    for (unsigned k = 0; k < 4; k++) {
        unsigned high = tile_high(tile + IQ1_M_HIGH, row, sub, 2, 4, 4, k);
        put_iq1(index_byte(indices, k) | (high & 7) << 8, high >> 3, b->quants + 8 * k);
    }
}

/* Two tiles a block. */
static void read_nvfp4(const uint8_t *block, unsigned row, unsigned half, struct block32 *b)
{
    const uint8_t *tile = block + half * NVFP4_TILE;

    b->w = 1;
    for (unsigned h = 0; h < 2; h++)
        b->scale_16[h] = quant_nvfp4_scale(tile[2 * row + h]);
    read_nibbles(tile + NVFP4_QUANTS, row, b->quants);
    look_up(b, quant_mxfp4_values);
}

/* Columns [col, col + 32) of one row of a tile row. */
static void read_block(enum tensor_type type, const uint8_t *tile_row, unsigned row, uint32_t col,
                       struct block32 *b)
{
    const struct tensor_type_info *info = tensor_type_info(type);
    size_t tile_bytes = (size_t)TILE_ROWS * info->block_bytes;
    const uint8_t *tile = tile_row + col / info->block_values * tile_bytes;
    unsigned sub = col % 256 / 32;

    *b = (struct block32){.scale_16 = {1, 1}};
    switch (type) {
    case TENSOR_Q2_K:
        read_q2_k(tile, row, sub, b);
        break;
    case TENSOR_Q3_K:
        read_q3_k(tile, row, sub, b);
        break;
    case TENSOR_Q4_K:
        read_k_scales(tile, row, sub, b);
        read_nibbles(tile + K_QUANTS + sub * Q4_K_SUB, row, b->quants);
        break;
    case TENSOR_Q5_K:
        read_k_scales(tile, row, sub, b);
        read_nibbles(tile + K_QUANTS + sub * Q5_K_SUB, row, b->quants);
        read_high_bits(tile + K_QUANTS + sub * Q5_K_SUB + 4 * TILE_VECTOR, row, 1, 8, b->quants);
        break;
    case TENSOR_Q6_K:
        read_q6_k(tile, row, sub, b);
        break;
    case TENSOR_IQ4_XS:
        read_iq4_xs(tile, row, sub, b);
        break;
    case TENSOR_NVFP4:
        read_nvfp4(tile, row, sub % 2, b);
        break;
    case TENSOR_IQ3_S:
        read_iq3_s(tile, row, sub, b);
        break;
    case TENSOR_IQ3_XXS:
        read_iq3_xxs(tile, row, sub, b);
        break;
    case TENSOR_IQ2_S:
        read_iq2_s(tile, row, sub, b);
        break;
    case TENSOR_IQ2_XS:
        read_iq2_xs(tile, row, sub, b);
        break;
    case TENSOR_IQ2_XXS:
        read_iq2_xxs(tile, row, sub, b);
        break;
    case TENSOR_IQ1_S:
        read_iq1_s(tile, row, sub, b);
        break;
    case TENSOR_IQ1_M:
        read_iq1_m(tile, row, sub, b);
        break;
    default:
        read_block_32(type, tile, row, b);
    }
}

/* Adds these 32 columns to acc. */
static float add_block(const struct block32 *b, const int8_t *q, const float d_x[2], float bias,
                       float acc)
{
    int i[2] = {0, 0}, j[2] = {0, 0};
    float scaled[2];

    for (unsigned h = 0; h < 2; h++) {
        for (unsigned c = 16 * h; c < 16 * h + 16; c++) {
            i[h] += b->quants[c] * q[c];
            j[h] -= q[c];
        }
        scaled[h] = (float)i[h] * b->scale_16[h] + 0.0f; /* 0 times a negative scale is 0 */
        j[h] *= b->min_16[h];
    }
    acc = fmaf(fmaf(scaled[1], d_x[1], scaled[0] * d_x[0]), b->w, acc);
    if (b->minimum == MINIMUM_32)
        acc = fmaf(b->c, bias, acc);
    if (b->minimum == MINIMUM_16)
        acc = fmaf(fmaf((float)j[1], d_x[1], (float)j[0] * d_x[0]), b->dmin, acc);
    return acc;
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
                float sum = sums[k];
                if (tile_has_factors(m->type))
                    sum *= tile_factor(tile_row, row_bytes, row % TILE_ROWS);
                *out = accumulate ? *out + sum : sum;
            }
        }
    }
}
