/* The builds of the kernels and the layout of struct activations. Private to lib/kernels. */
#ifndef MOED_KERNELS_BUILDS_H
#define MOED_KERNELS_BUILDS_H

#include "kernels/kernels.h"

extern const struct kernels kernels_portable;
#if defined(__x86_64__)
extern const struct kernels kernels_avx2;
extern const struct kernels kernels_avx2_vnni;
extern const struct kernels kernels_avx512;
#endif

/* kernels_lacking of a CPU with these. */
bool kernels_lacking_text(bool avx2, bool fma, bool f16c, char out[KERNELS_LACKING_BYTES]);

/* Blocks of 32 columns. */
static inline uint32_t act_blocks(uint32_t cols)
{
    return (cols + 31) / 32;
}

static inline size_t act_q_stride(uint32_t cols)
{
    return ((size_t)cols + 63) / 64 * 64;
}

/* The token that row i of y belongs to. */
static inline uint32_t act_token(const uint32_t *tokens, uint32_t i)
{
    return tokens != NULL ? tokens[i] : i;
}

#endif
