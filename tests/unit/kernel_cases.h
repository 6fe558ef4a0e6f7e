/* Random and extreme weights and activations for the tests of tiles and kernels. */
#ifndef MOED_TESTS_KERNEL_CASES_H
#define MOED_TESTS_KERNEL_CASES_H

#include "kernels/kernels.h"
#include "quant/quant.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const enum tensor_type computed_types[] = {
    TENSOR_F32,     TENSOR_F16,    TENSOR_BF16,   TENSOR_Q8_0,    TENSOR_Q4_0,  TENSOR_Q4_1,
    TENSOR_Q5_0,    TENSOR_Q5_1,   TENSOR_Q2_K,   TENSOR_Q3_K,    TENSOR_Q4_K,  TENSOR_Q5_K,
    TENSOR_Q6_K,    TENSOR_IQ4_NL, TENSOR_IQ4_XS, TENSOR_MXFP4,   TENSOR_NVFP4, TENSOR_IQ3_S,
    TENSOR_IQ3_XXS, TENSOR_IQ2_S,  TENSOR_IQ2_XS, TENSOR_IQ2_XXS, TENSOR_IQ1_S, TENSOR_IQ1_M,
};
enum { N_COMPUTED_TYPES = sizeof computed_types / sizeof computed_types[0] };

static inline uint64_t random_u64(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state * 0x2545f4914f6cdd1dull;
}

/* Within (-1, 1). */
static inline float random_float(uint64_t *state)
{
    return (float)((int32_t)(random_u64(state) >> 40) - (1 << 23)) / (float)(1 << 23);
}

enum weights {
    WEIGHTS_USUAL,     /* scales around 0.01, every pattern of quants */
    WEIGHTS_EXTREME,   /* scales zero, subnormal, largest, negative */
    WEIGHTS_SATURATED, /* every byte of the quants and sub-block scales 0xff, 0x80 or 0x7f */
    N_WEIGHTS
};

static inline uint16_t random_half(uint64_t *state, enum weights kind)
{
    static const uint16_t extreme[] = {0x0000, 0x8000, 0x0001, 0x83ff,
                                       0x7bff, 0xfbff, 0x0400, 0x3c00};

    if (kind == WEIGHTS_EXTREME)
        return extreme[random_u64(state) % (sizeof extreme / sizeof extreme[0])];
    return float_to_half(random_float(state) * 0.02f);
}

static inline float random_weight(uint64_t *state, enum weights kind)
{
    static const float extreme[] = {0, -0.0f, 1e-45f, -1e-39f, 6e4f, -6e4f, 1e-7f, 1};

    if (kind == WEIGHTS_EXTREME)
        return extreme[random_u64(state) % (sizeof extreme / sizeof extreme[0])];
    return random_float(state);
}

static inline uint8_t random_exponent(uint64_t *state, enum weights kind)
{
    static const uint8_t extreme[] = {0, 1, 2, 3, 100, 127, 150, 190};

    if (kind == WEIGHTS_EXTREME)
        return extreme[random_u64(state) % sizeof extreme];
    return (uint8_t)(118 + random_u64(state) % 6);
}

/* Where the block has its d, and whether dmin or m follows. */
static inline unsigned d_offset(enum tensor_type type, bool *min_follows)
{
    *min_follows = type == TENSOR_Q4_1 || type == TENSOR_Q5_1 || type == TENSOR_Q2_K ||
                   type == TENSOR_Q4_K || type == TENSOR_Q5_K;
    return type == TENSOR_Q2_K ? 80 : type == TENSOR_Q3_K ? 108 : type == TENSOR_Q6_K ? 208 : 0;
}

/* The quants are any bytes; the halves of the block, which must be finite, stand where the format
 * has them. */
static inline void random_block(enum tensor_type type, enum weights kind, uint64_t *state,
                                uint8_t *block)
{
    static const uint8_t saturated[] = {0xff, 0x80, 0x7f, 0x00};
    uint32_t bytes = tensor_type_info(type)->block_bytes;
    uint8_t same = saturated[random_u64(state) % 4];
    uint16_t d = random_half(state, kind), dmin = random_half(state, kind);
    bool min_follows;
    unsigned offset = d_offset(type, &min_follows);

    for (uint32_t i = 0; i < bytes; i++)
        block[i] = kind == WEIGHTS_SATURATED ? same : (uint8_t)(random_u64(state) >> 32);
    if (type == TENSOR_MXFP4) {
        block[0] = random_exponent(state, kind);
        return;
    }
    if (type == TENSOR_IQ1_M) { /* d is the upper 4 bits of four words */
        for (unsigned k = 0; k < 4; k++)
            block[49 + 2 * k] = (uint8_t)((block[49 + 2 * k] & 15) | (d >> 4 * k & 15) << 4);
        return;
    }
    memcpy(block + offset, &d, 2);
    if (min_follows)
        memcpy(block + offset + 2, &dmin, 2);
}

/* rows x cols in the file's layout; owned by the caller. */
static inline uint8_t *random_rows(enum tensor_type type, uint32_t rows, uint32_t cols,
                                   enum weights kind, uint64_t seed)
{
    const struct tensor_type_info *info = tensor_type_info(type);
    size_t n = (size_t)rows * (cols / info->block_values);
    uint8_t *file = malloc(n * info->block_bytes);
    uint64_t state = seed * 2 + 1;

    assert(file != NULL);
    for (size_t i = 0; i < n; i++) {
        uint8_t *block = file + i * info->block_bytes;

        if (info->block_values == 1) {
            float f = random_weight(&state, kind);
            uint16_t h = type == TENSOR_F16 ? float_to_half(f) : float_to_bf16(f);
            memcpy(block, type == TENSOR_F32 ? (void *)&f : (void *)&h, info->block_bytes);
        } else {
            random_block(type, kind, &state, block);
        }
    }
    return file;
}

/* The factor of a row of tiles_of's tiles; 1 for types without factors. */
static inline float case_factor(enum tensor_type type, uint32_t row)
{
    static const float factors[] = {0.3f, 0x1.234568p-13f, -1.7f, 1, 29.1f};

    return tile_has_factors(type) ? factors[row / TILE_ROWS % 5] : 1;
}

/* A row of the file as float32, times its factor in tiles_of's tiles. */
static inline void case_row(enum tensor_type type, uint32_t row, const uint8_t *file_row,
                            float *out, uint32_t cols)
{
    quant_dequantize(type, file_row, out, cols);
    for (uint32_t c = 0; c < cols; c++)
        out[c] *= case_factor(type, row);
}

/* The file's rows as tiles, those of each tile row with a factor of their own. matrix.tiles is
 * owned by the caller. */
static inline struct matrix tiles_of(enum tensor_type type, uint32_t rows, uint32_t cols,
                                     const uint8_t *file)
{
    size_t stride = quant_row_bytes(type, cols), row_bytes = tile_row_bytes(type, cols);
    uint8_t *tiles = aligned_alloc(TILE_ALIGN, tile_matrix_bytes(type, rows, cols));

    assert(tiles != NULL);
    memset(tiles, 0xa5, tile_matrix_bytes(type, rows, cols));
    for (uint32_t t = 0; t < tile_row_count(rows); t++) {
        uint32_t n = rows - t * TILE_ROWS < TILE_ROWS ? rows - t * TILE_ROWS : TILE_ROWS;
        tile_pack(type, cols, n, file + t * TILE_ROWS * stride, stride, tiles + t * row_bytes);
        if (tile_has_factors(type))
            tile_set_factor(type, cols, case_factor(type, t * TILE_ROWS), tiles + t * row_bytes);
    }
    return (struct matrix){.type = type, .rows = rows, .cols = cols, .tiles = tiles};
}

/* Multiplies a matrix's factors, where it has some, so that they differ from another's. */
static inline void multiply_factors(const struct matrix *m, float by)
{
    for (uint32_t t = 0; tile_has_factors(m->type) && t < tile_row_count(m->rows); t++)
        tile_set_factor(m->type, m->cols, by * case_factor(m->type, t * TILE_ROWS),
                        (uint8_t *)m->tiles + t * tile_row_bytes(m->type, m->cols));
}

enum inputs {
    INPUTS_USUAL,
    INPUTS_EXTREME, /* zeros, subnormals, huge values, blocks of one large value */
    INPUTS_FULL,    /* every quant is +127 or -127 */
    N_INPUTS
};

static inline float random_input(uint64_t *state, enum inputs kind, uint32_t column)
{
    float f = random_float(state);

    if (kind == INPUTS_FULL)
        return f < 0 ? -3.0f : 3.0f;
    if (kind == INPUTS_EXTREME) {
        static const float scales[] = {0, 1e-44f, 1e-38f, 1e-36f, 1e30f, 1, 1e-20f, 1e3f};
        return f * scales[(column / 16 + *state % 2) % 8];
    }
    return f;
}

/* Activations of some tokens; a guard of 16 columns follows each row of x. */
struct inputs_of {
    struct activations a;
    float *x;
    void *memory;
};

static inline struct inputs_of make_inputs(const struct kernels *k, uint32_t cols,
                                           uint32_t n_tokens, enum inputs kind, uint64_t seed)
{
    struct inputs_of in;
    uint64_t state = seed * 2 + 1;
    size_t stride = cols + 16;

    in.x = malloc(n_tokens * stride * sizeof *in.x);
    for (uint32_t t = 0; t < n_tokens; t++)
        for (uint32_t c = 0; c < stride; c++)
            in.x[t * stride + c] = random_input(&state, kind, c);
    in.memory = aligned_alloc(TILE_ALIGN, act_bytes(cols, n_tokens));
    act_bind(&in.a, in.memory, cols, n_tokens, in.x, stride);
    k->quantize(&in.a, 0, n_tokens);
    return in;
}

static inline void free_inputs(struct inputs_of *in)
{
    free(in->memory);
    free(in->x);
}

#endif
