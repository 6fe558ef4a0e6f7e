/* BF16 products by AMX (tdpbf16ps); see bf16.h.
 *
 * 16 rows by 32 columns of a matrix's tile row (tile.c) are 1 KB of memory in the layout of AMX's
 * second operand. The first one is a panel of up to 16 tokens by the same columns. Two tile rows
 * and two panels make four products of the operands that were loaded: their sums are four of the
 * eight tile registers, over all columns. A panel is packed in this order: 32 columns of each of
 * its tokens, then the next 32.
 *
 * Matrices without whole 32 columns are left to bf16_vector. */
#include "kernels/bf16_builds.h"
#include "kernels/builds.h"
#include "kernels/tile_layout.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    PANEL = 16,
    STEP = 32,                         /* columns */
    STEP_BYTES = TILE_ROWS * 2 * STEP, /* of a tile row */
    ARCH_REQ_XCOMP_PERM = 0x1023,      /* asm/prctl.h of Linux 5.16 */
    XFEATURE_XTILEDATA = 18
};

/* The tile registers: sums of (panel, tile row), panels, tile rows. The intrinsics paste their
 * numbers. */
#define SUM_00  0
#define SUM_01  1
#define SUM_10  2
#define SUM_11  3
#define PANEL_0 4
#define PANEL_1 5
#define ROWS_0  6
#define ROWS_1  7

bool bf16_amx_allowed(void)
{
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

static bool has_whole_steps(uint32_t cols)
{
    return cols % STEP == 0;
}

static void pack_token(const float *x, uint32_t cols, uint8_t *out, size_t step)
{
    for (uint32_t col = 0; col < cols; col += STEP, out += step)
        _mm512_storeu_si512(out, (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + col + 16),
                                                              _mm512_loadu_ps(x + col)));
}

static void pack(const struct activations *a, const uint32_t *tokens, uint32_t n, uint32_t *packed)
{
    struct panels p = panels_of(n, PANEL);
    uint8_t *out = (uint8_t *)packed;
    if (!has_whole_steps(a->cols)) {
        bf16_vector.pack(a, tokens, n, packed);
        return;
    }
    for (uint32_t panel = 0, token = 0; panel < p.count; panel++) {
        uint32_t size = panel_size(&p, panel);
        for (uint32_t i = 0; i < size; i++, token++)
            pack_token(a->x + (size_t)act_token(tokens, token) * a->x_stride, a->cols,
                       out + (size_t)i * 2 * STEP, (size_t)size * 2 * STEP);
        out += (size_t)size * 2 * a->cols;
    }
}

/* What ldtilecfg reads. */
struct tile_shapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};
_Static_assert(sizeof(struct tile_shapes) == 64, "as the instruction reads it");

/* Shapes for two panels of so many tokens. */
static void set_shapes(uint32_t size_0, uint32_t size_1)
{
    const uint8_t rows[8] = {(uint8_t)size_0, (uint8_t)size_0, (uint8_t)size_1, (uint8_t)size_1,
                             (uint8_t)size_0, (uint8_t)size_1, TILE_ROWS,       TILE_ROWS};
    struct tile_shapes shapes = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        shapes.row_bytes[i] = 2 * STEP;
        shapes.rows[i] = rows[i];
    }
    __asm__ volatile("" : : "m"(shapes)); /* GCC 12 takes the intrinsic to read 8 bytes */
    _tile_loadconfig(&shapes);
}

/* Up to two panels by up to two tile rows. */
struct block {
    const uint8_t *w[2], *x[2];
    uint32_t sizes[2]; /* tokens of each panel; 0: none */
    uint32_t n_steps;
    size_t ahead; /* bytes to the tile rows to prefetch; 0: none */
};

/* The sums of panel p and tile row r: [p][r][token][row]. */
typedef float block_sums[2][2][PANEL][TILE_ROWS];

/* two_panels, two_rows: constants. */
static inline __attribute__((always_inline)) void
multiply_block(const struct block *b, const bool two_panels, const bool two_rows, block_sums sums)
{
    const uint8_t *w0 = b->w[0], *w1 = b->w[1], *x0 = b->x[0], *x1 = b->x[1];
    _tile_zero(SUM_00);
    _tile_zero(SUM_01);
    _tile_zero(SUM_10);
    _tile_zero(SUM_11);
    for (uint32_t i = 0; i < b->n_steps; i++) {
        for (uint32_t line = 0; b->ahead && line < STEP_BYTES; line += 64) {
            __builtin_prefetch(w0 + b->ahead + line, 0, 2);
            __builtin_prefetch(w1 + b->ahead + line, 0, 2);
        }
        _tile_loadd(ROWS_0, w0, TILE_VECTOR);
        _tile_loadd(PANEL_0, x0, TILE_VECTOR);
        _tile_dpbf16ps(SUM_00, PANEL_0, ROWS_0);
        if (two_rows) {
            _tile_loadd(ROWS_1, w1, TILE_VECTOR);
            _tile_dpbf16ps(SUM_01, PANEL_0, ROWS_1);
        }
        if (two_panels) {
            _tile_loadd(PANEL_1, x1, TILE_VECTOR);
            _tile_dpbf16ps(SUM_10, PANEL_1, ROWS_0);
        }
        if (two_panels && two_rows)
            _tile_dpbf16ps(SUM_11, PANEL_1, ROWS_1);
        w0 += STEP_BYTES;
        w1 += STEP_BYTES;
        x0 += (size_t)b->sizes[0] * 2 * STEP;
        x1 += (size_t)b->sizes[1] * 2 * STEP;
    }
    _tile_stored(SUM_00, sums[0][0], TILE_VECTOR);
    _tile_stored(SUM_01, sums[0][1], TILE_VECTOR);
    _tile_stored(SUM_10, sums[1][0], TILE_VECTOR);
    _tile_stored(SUM_11, sums[1][1], TILE_VECTOR);
}

static void multiply_any(const struct block *b, bool two_rows, block_sums sums)
{
    bool two_panels = b->sizes[1] > 0;
    if (two_panels && two_rows)
        multiply_block(b, true, true, sums);
    else if (two_panels)
        multiply_block(b, true, false, sums);
    else if (two_rows)
        multiply_block(b, false, true, sums);
    else
        multiply_block(b, false, false, sums);
}

/* Writes the sums of a block to y, that of its first token and first row. */
static void put_block(const struct block *b, block_sums sums, const struct bf16_rows *rows,
                      float *y, size_t y_stride, bool accumulate)
{
    for (int p = 0; p < 2; p++)
        for (uint32_t i = 0; i < b->sizes[p]; i++, y += y_stride)
            for (uint32_t r = 0; r < 2; r++)
                bf16_put(y, r, rows, _mm512_load_ps(sums[p][r][i]), accumulate);
}

static void multiply(const struct matrix *m, uint32_t tile_first, uint32_t tile_count,
                     const uint32_t *packed, uint32_t n, float *y, size_t y_stride, bool accumulate)
{
    struct panels p = panels_of(n, PANEL);
    size_t row_bytes = tile_row_bytes(m->type, m->cols);
    _Alignas(64) block_sums sums;
    uint32_t shapes[2] = {0, 0};
    if (!has_whole_steps(m->cols)) {
        bf16_vector.multiply(m, tile_first, tile_count, packed, n, y, y_stride, accumulate);
        return;
    }
    for (uint32_t tile = tile_first; tile < tile_first + tile_count; tile += 2) {
        struct bf16_rows rows = bf16_rows_of(m, tile, tile_first + tile_count);
        struct block b = {.n_steps = m->cols / STEP};
        const uint8_t *x = (const uint8_t *)packed;
        float *at = y + (size_t)tile * TILE_ROWS;
        b.w[0] = (const uint8_t *)m->tiles + tile * row_bytes;
        b.w[1] = b.w[0] + row_bytes;
        for (uint32_t panel = 0; panel < p.count; panel += 2) {
            for (uint32_t i = 0; i < 2; i++) {
                b.sizes[i] = panel + i < p.count ? panel_size(&p, panel + i) : 0;
                b.x[i] = x;
                x += (size_t)b.sizes[i] * 2 * m->cols;
            }
            if (b.sizes[0] != shapes[0] || b.sizes[1] != shapes[1])
                set_shapes(b.sizes[0], b.sizes[1] > 0 ? b.sizes[1] : b.sizes[0]);
            memcpy(shapes, b.sizes, sizeof shapes);
            b.ahead = panel == 0 ? 2 * row_bytes : 0;
            multiply_any(&b, rows.mask[1] != 0, sums);
            put_block(&b, sums, &rows, at, y_stride, accumulate);
            at += (b.sizes[0] + b.sizes[1]) * y_stride;
        }
    }
    _tile_release();
}

const struct bf16_build bf16_amx = {"tdpbf16ps", pack, multiply};

#else
typedef int bf16_amx_is_for_x86_64; /* a file must not be empty */
#endif
