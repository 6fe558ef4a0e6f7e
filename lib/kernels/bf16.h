/* Products of BF16 weights with many tokens by the CPU's instruction vdpbf16ps (AVX512_BF16), for
 * long prompts. The tokens' values are rounded to BF16; sums are float32. This is not the
 * definition of kernels.h: the instruction sums in its own order and treats subnormal numbers as
 * zeros. A token's result for a row depends only on that token and that row. */
#ifndef MOED_KERNELS_BF16_H
#define MOED_KERNELS_BF16_H

#include "kernels/kernels.h"

#include <stdbool.h>

/* True: this CPU has the instruction, and kernels_select has not chosen a narrower build. */
bool bf16_is_here(void);

/* Packs the inputs of n tokens in panels of a few tokens: at most 2 * cols + 2 bytes per token.
 * tokens: rows of a; NULL: the first n. */
void bf16_pack(const struct activations *a, const uint32_t *tokens, uint32_t n, uint32_t *packed);

/* y[i * y_stride + r] (+)= (W x_i)[r] for the rows r of the tile rows, as multiply of kernels.h. m
 * is BF16. */
void bf16_multiply(const struct matrix *m, uint32_t tile_first, uint32_t tile_count,
                   const uint32_t *packed, uint32_t n, float *y, size_t y_stride, bool accumulate);

#endif
