/* Products of BF16 weights with many tokens by the CPU's own instruction for them (AVX512_BF16, vdpbf16ps), for long prompts: the
 * tokens' values are rounded to BF16 as the weights are, sums are float32. Not the definition of kernels.h: sums are in the
 * instruction's own order, and it takes subnormal numbers as zeros. A row of a token depends on nothing but that token and
 * that row of the matrix. */
#ifndef MOED_KERNELS_BF16_H
#define MOED_KERNELS_BF16_H

#include "kernels/kernels.h"

#include <stdbool.h>

/* Whether this CPU has it, and the kernels in use are not narrower ones on purpose (kernels_select). */
bool bf16_is_here(void);

/* The inputs of n tokens, in panels of a few: at most 2 * cols + 2 bytes for each. tokens: rows of a, or NULL: the first n. */
void bf16_pack(const struct activations *a, const uint32_t *tokens, uint32_t n, uint32_t *packed);

/* y[i * y_stride + r] (+)= (W x_i)[r] for the rows r of some of m's tile rows, as kernels.h's multiply has them. m is BF16. */
void bf16_multiply(const struct matrix *m, uint32_t tile_first, uint32_t tile_count, const uint32_t *packed, uint32_t n,
                   float *y, size_t y_stride, bool accumulate);

#endif
