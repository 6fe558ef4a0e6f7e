/* The builds of bf16.h and what they share. Private to lib/kernels. */
#ifndef MOED_KERNELS_BF16_BUILDS_H
#define MOED_KERNELS_BF16_BUILDS_H

#include "kernels/bf16.h"

#if defined(__x86_64__)
extern const struct bf16_build bf16_vector;
extern const struct bf16_build bf16_amx;
/* Asks the kernel for this process's use of AMX's tiles. Whether it may. */
bool bf16_amx_allowed(void);
#endif

/* The panels of n tokens, each of at most `most`; their sizes differ by at most one. */
struct panels {
    uint32_t count, size, larger; /* the first `larger` panels have size + 1 tokens */
};

static inline struct panels panels_of(uint32_t n, uint32_t most)
{
    uint32_t count = (n + most - 1) / most;
    return (struct panels){count, n / count, n % count};
}

static inline uint32_t panel_size(const struct panels *p, uint32_t panel)
{
    return p->size + (panel < p->larger);
}

#if defined(__AVX512BF16__)
#include <immintrin.h>

/* Which rows of two tile rows are the matrix's; mask[1] 0: there is one tile row. */
struct bf16_rows {
    __mmask16 mask[2];
};

static inline __mmask16 bf16_rows_left(uint32_t rows, uint32_t tile_row)
{
    uint32_t left = rows - tile_row * TILE_ROWS;
    return (__mmask16)(left >= TILE_ROWS ? 0xffffu : (1u << left) - 1);
}

/* Of the tile rows `tile` and, before `end`, the next one. */
static inline struct bf16_rows bf16_rows_of(const struct matrix *m, uint32_t tile, uint32_t end)
{
    struct bf16_rows rows = {{bf16_rows_left(m->rows, tile), 0}};
    if (tile + 1 < end)
        rows.mask[1] = bf16_rows_left(m->rows, tile + 1);
    return rows;
}

/* Writes a token's sum of tile row 0 or 1 to its y. */
static inline __attribute__((always_inline)) void
bf16_put(float *y, uint32_t tile_row, const struct bf16_rows *rows, __m512 sum, bool accumulate)
{
    float *at = y + (size_t)tile_row * TILE_ROWS;
    if (accumulate)
        sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(rows->mask[tile_row], at));
    _mm512_mask_storeu_ps(at, rows->mask[tile_row], sum);
}
#endif

#endif
