/* Products of BF16 weights with many tokens by a CPU's BF16 instructions, for long prompts. The
 * tokens' values are rounded to BF16; sums are float32. This is not the definition of kernels.h:
 * the instructions sum in their own order and treat subnormal numbers as zeros. A token's result
 * for a row depends only on that token and that row.
 *
 * AMX (tdpbf16ps) multiplies 16 tokens, 16 rows and 32 columns in 16 cycles, AVX512_BF16
 * (vdpbf16ps) one token, 16 rows and 2 columns. */
#ifndef MOED_KERNELS_BF16_H
#define MOED_KERNELS_BF16_H

#include "kernels/kernels.h"

#include <stdbool.h>

/* The most bytes of a token's packed inputs. */
#define BF16_PACKED_BYTES(cols) (2 * (size_t)(cols) + 2)

struct bf16_build {
    const char *instruction;
    /* Packs the inputs of n tokens in panels of a few tokens: at most BF16_PACKED_BYTES per token.
     * tokens: rows of a; NULL: the first n. */
    void (*pack)(const struct activations *a, const uint32_t *tokens, uint32_t n, uint32_t *packed);
    /* y[i * y_stride + r] (+)= (W x_i)[r] for the rows r of the tile rows, as multiply of
     * kernels.h. m is BF16. packed: by the same build. */
    void (*multiply)(const struct matrix *m, uint32_t tile_first, uint32_t tile_count,
                     const uint32_t *packed, uint32_t n, float *y, size_t y_stride,
                     bool accumulate);
};

/* The fastest that this CPU has; NULL: none, or kernels_select has chosen a narrower build. The
 * process's first call asks the kernel for AMX's registers, so a daemon calls it before it confines
 * its system calls; later ones have the same result. */
const struct bf16_build *bf16_get(void);

/* All that this CPU has, the fastest first; ends with NULL. */
const struct bf16_build *const *bf16_available(void);

#endif
