/* bench-instructions KERNELS: multiplies one matrix of each type with one token and with eight.
 * Each product is one call of measured(), announced by a line "TYPE TOKENS BYTES".
 * bench/instructions.sh runs the program under valgrind, which counts the instructions within
 * measured().
 */
#include "kernels/kernels.h"
#include "quant/quant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 768, COLS = 2048, MAX_TOKENS = 8 };

/* valgrind finds it by name, so it is not static. */
__attribute__((noinline)) void measured(const struct matrix *m, const struct activations *a,
                                        float *y);

void measured(const struct matrix *m, const struct activations *a, float *y)
{
    kernels_get()->multiply(m, 0, tile_row_count(m->rows), a, NULL, a->n_tokens, y, m->rows, false);
}

/* One tile row of random values, quantised, and copies of it. */
static void fill(uint8_t *tiles, enum tensor_type type, uint8_t *file, float *values)
{
    size_t stride = quant_row_bytes(type, COLS), row_bytes = tile_row_bytes(type, COLS);
    for (uint32_t r = 0; r < TILE_ROWS; r++) {
        for (uint32_t c = 0; c < COLS; c++)
            values[c] = (float)(rand() % 2001 - 1000) * 3e-5f;
        quant_quantize(type, values, file + r * stride, COLS);
    }
    tile_pack(type, COLS, TILE_ROWS, file, stride, tiles);
    for (uint32_t t = 1; t < tile_row_count(ROWS); t++)
        memcpy(tiles + t * row_bytes, tiles, row_bytes);
}

int main(int argc, char **argv)
{
    static const enum tensor_type types[] = {
        TENSOR_F32,     TENSOR_F16,   TENSOR_BF16,   TENSOR_Q8_0,    TENSOR_Q4_0,   TENSOR_Q4_1,
        TENSOR_Q5_0,    TENSOR_Q5_1,  TENSOR_IQ4_NL, TENSOR_MXFP4,   TENSOR_NVFP4,  TENSOR_Q2_K,
        TENSOR_Q3_K,    TENSOR_Q4_K,  TENSOR_Q5_K,   TENSOR_Q6_K,    TENSOR_IQ4_XS, TENSOR_IQ3_S,
        TENSOR_IQ3_XXS, TENSOR_IQ2_S, TENSOR_IQ2_XS, TENSOR_IQ2_XXS, TENSOR_IQ1_S,  TENSOR_IQ1_M};
    static float x[MAX_TOKENS * COLS], y[MAX_TOKENS * ROWS], values[COLS];
    uint8_t *tiles = aligned_alloc(TILE_ALIGN, tile_matrix_bytes(TENSOR_F32, ROWS, COLS));
    uint8_t *file = malloc((size_t)TILE_ROWS * COLS * sizeof(float));
    void *memory = aligned_alloc(TILE_ALIGN, act_bytes(COLS, MAX_TOKENS));
    if (!tiles || !file || !memory || argc != 2 || !kernels_select(argv[1])) {
        fprintf(stderr, "bench-instructions: this CPU or build does not have these kernels\n");
        return 1;
    }
    for (int i = 0; i < MAX_TOKENS * COLS; i++)
        x[i] = (float)(rand() % 2001 - 1000) * 1e-3f;
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        struct matrix m = {types[t], ROWS, COLS, tiles};
        fill(tiles, types[t], file, values);
        for (uint32_t tokens = 1; tokens <= MAX_TOKENS; tokens += MAX_TOKENS - 1) {
            struct activations a;
            act_bind(&a, memory, COLS, tokens, x, COLS);
            kernels_get()->quantize(&a, 0, tokens);
            printf("%s %u %zu\n", tensor_type_info(types[t])->name, tokens,
                   tile_matrix_bytes(types[t], ROWS, COLS));
            measured(&m, &a, y);
        }
    }
    free(memory);
    free(file);
    free(tiles);
    return 0;
}
