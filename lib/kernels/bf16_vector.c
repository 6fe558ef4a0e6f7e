/* BF16 products by vdpbf16ps (AVX512_BF16); see bf16.h.
 *
 * A tile of BF16 (tile.c), 16 rows of two columns, is an operand of vdpbf16ps without conversion.
 * The code multiplies two tiles, of adjacent tile rows, by the same two columns of up to 12 tokens,
 * broadcast to all lanes: 24 sums in registers, over all columns. A panel holds up to 12 tokens:
 * two columns of each token, then the next two, so that the code reads it in order. */
#include "kernels/bf16_builds.h"
#include "kernels/builds.h"

#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)

#include <immintrin.h>

enum { PANEL = 12 };

static inline uint32_t pairs_of(uint32_t cols)
{
    return (cols + 1) / 2;
}

/* Writes columns 2k and 2k + 1 of one token to out[k * step]. */
static void pack_token(const float *x, uint32_t cols, uint32_t *out, uint32_t step)
{
    uint32_t pairs[16];
    for (uint32_t first = 0; first < cols; first += 32) {
        uint32_t n = cols - first < 32 ? cols - first : 32;
        __mmask32 there = n == 32 ? 0xffffffffu : (1u << n) - 1;
        __m512 low = _mm512_maskz_loadu_ps((__mmask16)there, x + first);
        __m512 high = _mm512_maskz_loadu_ps((__mmask16)(there >> 16), x + first + 16);
        _mm512_storeu_si512(pairs, (__m512i)_mm512_cvtne2ps_pbh(high, low));
        for (uint32_t k = 0; k < (n + 1) / 2; k++)
            out[(size_t)(first / 2 + k) * step] = pairs[k];
    }
}

static void pack(const struct activations *a, const uint32_t *tokens, uint32_t n, uint32_t *packed)
{
    struct panels p = panels_of(n, PANEL);
    for (uint32_t panel = 0, token = 0; panel < p.count; panel++) {
        uint32_t size = panel_size(&p, panel);
        for (uint32_t i = 0; i < size; i++, token++)
            pack_token(a->x + (size_t)act_token(tokens, token) * a->x_stride, a->cols, packed + i,
                       size);
        packed += (size_t)pairs_of(a->cols) * size;
    }
}

struct out {
    float *at; /* of the first token, the first row */
    size_t stride;
    struct bf16_rows rows;
    bool accumulate;
};

/* n tokens, a constant; two tile rows, or one. */
static inline __attribute__((always_inline)) void run_panel(const uint8_t *const w[2],
                                                            uint32_t n_tiles, uint32_t pairs,
                                                            const uint32_t *x, uint32_t n,
                                                            const struct out *o)
{
    __m512 sum[2][PANEL];
#pragma GCC unroll 12
    for (uint32_t i = 0; i < n; i++)
        sum[0][i] = sum[1][i] = _mm512_setzero_ps();
    for (uint32_t k = 0; k < pairs; k++, x += n) {
        __m512bh w0 = (__m512bh)_mm512_load_si512(w[0] + (size_t)k * 64);
        __m512bh w1 = n_tiles > 1 ? (__m512bh)_mm512_load_si512(w[1] + (size_t)k * 64) : w0;
#pragma GCC unroll 12
        for (uint32_t i = 0; i < n; i++) {
            __m512bh both = (__m512bh)_mm512_set1_epi32((int)x[i]);
            sum[0][i] = _mm512_dpbf16_ps(sum[0][i], w0, both);
            if (n_tiles > 1)
                sum[1][i] = _mm512_dpbf16_ps(sum[1][i], w1, both);
        }
    }
#pragma GCC unroll 12
    for (uint32_t i = 0; i < n; i++) {
        float *at = o->at + i * o->stride;
        bf16_put(at, 0, &o->rows, sum[0][i], o->accumulate);
        if (n_tiles > 1)
            bf16_put(at, 1, &o->rows, sum[1][i], o->accumulate);
    }
}

#define SIZE(n)                                                                                    \
    case n:                                                                                        \
        if (n_tiles > 1)                                                                           \
            run_panel(w, 2, pairs, x, n, o);                                                       \
        else                                                                                       \
            run_panel(w, 1, pairs, x, n, o);                                                       \
        break

static void run_size(const uint8_t *const w[2], uint32_t n_tiles, uint32_t pairs, const uint32_t *x,
                     uint32_t n, const struct out *o)
{
    switch (n) {
        SIZE(1);
        SIZE(2);
        SIZE(3);
        SIZE(4);
        SIZE(5);
        SIZE(6);
        SIZE(7);
        SIZE(8);
        SIZE(9);
        SIZE(10);
        SIZE(11);
        SIZE(12);
    default:
        abort();
    }
}

static void multiply(const struct matrix *m, uint32_t tile_first, uint32_t tile_count,
                     const uint32_t *packed, uint32_t n, float *y, size_t y_stride, bool accumulate)
{
    struct panels p = panels_of(n, PANEL);
    uint32_t pairs = pairs_of(m->cols);
    size_t row_bytes = tile_row_bytes(m->type, m->cols);
    for (uint32_t tile = tile_first; tile < tile_first + tile_count; tile += 2) {
        const uint8_t *first = (const uint8_t *)m->tiles + tile * row_bytes;
        const uint8_t *const w[2] = {first, first + row_bytes};
        struct out o = {y + (size_t)tile * TILE_ROWS, y_stride,
                        bf16_rows_of(m, tile, tile_first + tile_count), accumulate};
        uint32_t n_tiles = o.rows.mask[1] ? 2 : 1;
        const uint32_t *x = packed;
        for (uint32_t panel = 0; panel < p.count; panel++) {
            uint32_t size = panel_size(&p, panel);
            run_size(w, n_tiles, pairs, x, size, &o);
            x += (size_t)pairs * size;
            o.at += size * y_stride;
        }
    }
}

const struct bf16_build bf16_vector = {"vdpbf16ps", pack, multiply};

#else
typedef int bf16_vector_is_for_x86_64; /* a file must not be empty */
#endif
