/* multiply() of the vector builds: included after lanes_avx2.h or lanes_avx512.h.
 *
 * A rows function computes R tile rows (of 16 rows) for T tokens over all columns; R and T are constants
 * in each of its instances, so the sums stay in registers. Weights are loaded and unpacked once for the T
 * tokens. The order of the float operations is that of the definition (portable.c); integers are exact in
 * any order.
 *
 * One token is a matter of reading: R tile rows are read side by side, as far apart as the work allows,
 * for several streams keep the hardware's prefetchers busier than one (by a third to a half). R is 4, or 2
 * for the types of 256 columns a tile, whose code is too long for more.
 *
 * Several tokens read one tile row after the other, and ask for every line of the next one meanwhile: the hardware's
 * prefetchers alone do not keep up with them, and a single line that was left out is waited for. More than TOKENS_MAX
 * tokens find the tile row in the first cache from the second time on.
 */
#include "kernels/builds.h"
#include "quant/quant.h"

#include <stdlib.h>

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
#define EACH_TOKEN UNROLL for (int t = 0; t < T; t++)
#define EACH_ROW   UNROLL for (int r = 0; r < R; r++)
#define EACH_SUM   UNROLL for (int i = 0; i < R * T; i++)

/* Where the activations of up to TOKENS_MAX tokens begin. */
struct views {
    const int8_t *q[TOKENS_MAX];
    const float *d[TOKENS_MAX];
    const float *bias[TOKENS_MAX];
    const int16_t *minus_sum8[TOKENS_MAX];
    const float *x[TOKENS_MAX];
};

#include "kernels/tiles.inc.c"

typedef void tile_function(const uint8_t *tile, const struct views *v, size_t b, const int T,
                           vf *acc);
/* The tile rows from tile_row on, row_bytes apart: the sums of row r for token t to y[r * T + t]. Of several tokens, whose R
 * is 1, row_bytes is how far ahead lies what is read next; 0: nothing that is not in a cache. */
typedef void rows_function(const uint8_t *tile_row, size_t row_bytes, uint32_t cols,
                           const struct views *v, vf *y);

/* All tiles, the sums of 256 columns in order. */
LANES void rows_of_tiles(tile_function *add_tile, size_t tile_bytes, uint32_t tile_cols,
                         const uint8_t *tile, size_t row_bytes, uint32_t cols,
                         const struct views *v, const int R, const int T, vf *y)
{
    for (uint32_t col = 0; col < cols;) {
        uint32_t end = cols - col < 256 ? cols : col + 256;
        bool first = col == 0;
        vf acc[TOKENS_MAX];

        EACH_SUM acc[i] = vf_set1(0);
        for (; col < end; col += tile_cols, tile += tile_bytes) {
            for (size_t i = 0; T > 1 && i < tile_bytes; i += TILE_VECTOR)
                ask_for(tile + row_bytes + i);
            EACH_ROW add_tile(tile + (size_t)r * row_bytes, v, col / 32, T, acc + r * T);
        }
        EACH_SUM y[i] = first ? acc[i] : vf_add(y[i], acc[i]);
    }
}

/* Columns c and c + 1 of a tile row of floats that begins at p. */
struct two_columns {
    vf first, second;
};

LANES struct two_columns load_columns(enum tensor_type type, const uint8_t *p, uint32_t c,
                                      size_t ahead)
{
    size_t col_bytes = type == TENSOR_F32 ? 64 : 32;

    for (size_t i = 0; i < 2 * col_bytes; i += TILE_VECTOR)
        ask_for(p + c * col_bytes + i + ahead);
    if (type == TENSOR_BF16) {
        vi pair = vi_load(p + (size_t)c * 32);
        return (struct two_columns){vi_floats(vi_left_32(pair, 16)),
                                    vi_floats(vi_and(pair, vi_set1((int32_t)0xffff0000)))};
    }
    if (type == TENSOR_F16)
        return (struct two_columns){vf_load_halves(p + (size_t)c * 32),
                                    vf_load_halves(p + (size_t)c * 32 + 32)};
    return (struct two_columns){vf_load((const float *)(p + (size_t)c * 64)),
                                vf_load((const float *)(p + (size_t)c * 64 + 64))};
}

/* The last of an odd number of columns. */
LANES vf load_column(enum tensor_type type, const uint8_t *p, uint32_t c)
{
    if (type == TENSOR_BF16)
        return vi_floats(vi_left_32(vi_load(p + (size_t)c * 32), 16));
    if (type == TENSOR_F16)
        return vf_load_halves(p + (size_t)c * 32);
    return vf_load((const float *)(p + (size_t)c * 64));
}

LANES void rows_of_floats(enum tensor_type type, const uint8_t *p, size_t row_bytes, uint32_t cols,
                          const struct views *v, const int R, const int T, vf *y)
{
    for (uint32_t col = 0; col < cols;) {
        uint32_t end = cols - col < 256 ? cols : col + 256;
        bool first = col == 0;
        vf acc[TOKENS_MAX];

        EACH_SUM acc[i] = vf_set1(0);
        for (; col + 2 <= end; col += 2) {
            EACH_ROW
            {
                struct two_columns w = load_columns(type, p + (size_t)r * row_bytes, col,
                                                    T == 1 ? READ_AHEAD : row_bytes);
                vf *sum = acc + r * T;
                EACH_TOKEN sum[t] = vf_fma(w.first, vf_set1(v->x[t][col]), sum[t]);
                EACH_TOKEN sum[t] = vf_fma(w.second, vf_set1(v->x[t][col + 1]), sum[t]);
            }
        }
        if (col < end) {
            EACH_ROW
            {
                vf w = load_column(type, p + (size_t)r * row_bytes, col);
                EACH_TOKEN acc[r * T + t] = vf_fma(w, vf_set1(v->x[t][col]), acc[r * T + t]);
            }
            col++;
        }
        EACH_SUM y[i] = first ? acc[i] : vf_add(y[i], acc[i]);
    }
}

/* The instances: NAME_R_T. */
#define TILE_INSTANCE(name, tile_bytes, tile_cols, R, T)                                           \
    static void name##_##R##_##T(const uint8_t *tile_row, size_t row_bytes, uint32_t cols,         \
                                 const struct views *v, vf *y)                                     \
    {                                                                                              \
        rows_of_tiles(name##_tile, tile_bytes, tile_cols, tile_row, row_bytes, cols, v, R, T, y);  \
    }
#define FLOAT_INSTANCE(name, type, unused, R, T)                                                   \
    static void name##_##R##_##T(const uint8_t *tile_row, size_t row_bytes, uint32_t cols,         \
                                 const struct views *v, vf *y)                                     \
    {                                                                                              \
        rows_of_floats(type, tile_row, row_bytes, cols, v, R, T, y);                               \
    }
#if TOKENS_MAX == 8
#define BY_TOKENS(kind, name, a, b)                                                                \
    kind(name, a, b, 1, 1) kind(name, a, b, 1, 2) kind(name, a, b, 1, 4) kind(name, a, b, 1, 8)
#define TOKENS_TABLE(name)                                                                         \
    {                                                                                              \
        name##_1_1, name##_1_2, name##_1_4, name##_1_8                                             \
    }
#else
#define BY_TOKENS(kind, name, a, b)                                                                \
    kind(name, a, b, 1, 1) kind(name, a, b, 1, 2) kind(name, a, b, 1, 4)
#define TOKENS_TABLE(name)                                                                         \
    {                                                                                              \
        name##_1_1, name##_1_2, name##_1_4                                                         \
    }
#endif
#define BY_ROWS_2(kind, name, a, b) BY_TOKENS(kind, name, a, b) kind(name, a, b, 2, 1)
#define BY_ROWS_4(kind, name, a, b) BY_ROWS_2(kind, name, a, b) kind(name, a, b, 4, 1)

BY_ROWS_4(TILE_INSTANCE, q8_0, Q8_0_TILE, 32)
BY_ROWS_4(TILE_INSTANCE, q4_0, Q4_0_TILE, 32)
BY_ROWS_4(TILE_INSTANCE, q4_1, Q4_1_TILE, 32)
BY_ROWS_4(TILE_INSTANCE, q5_0, Q5_0_TILE, 32)
BY_ROWS_4(TILE_INSTANCE, q5_1, Q5_1_TILE, 32)
BY_ROWS_4(TILE_INSTANCE, iq4_nl, Q4_0_TILE, 32)
BY_ROWS_4(TILE_INSTANCE, mxfp4, MXFP4_TILE, 32)
BY_ROWS_4(FLOAT_INSTANCE, f32, TENSOR_F32, 1)
BY_ROWS_4(FLOAT_INSTANCE, f16, TENSOR_F16, 1)
BY_ROWS_4(FLOAT_INSTANCE, bf16, TENSOR_BF16, 1)
BY_ROWS_2(TILE_INSTANCE, q2_k, Q2_K_TILE, 256)
BY_ROWS_2(TILE_INSTANCE, q3_k, Q3_K_TILE, 256)
BY_ROWS_2(TILE_INSTANCE, q4_k, Q4_K_TILE, 256)
BY_ROWS_2(TILE_INSTANCE, q5_k, Q5_K_TILE, 256)
BY_ROWS_2(TILE_INSTANCE, q6_k, Q6_K_TILE, 256)
BY_ROWS_2(TILE_INSTANCE, iq4_xs, IQ4_XS_TILE, 256)

/* [type][log2 T], one tile row. */
static rows_function *const by_tokens[][4] = {
    [TENSOR_F32] = TOKENS_TABLE(f32),       [TENSOR_F16] = TOKENS_TABLE(f16),
    [TENSOR_BF16] = TOKENS_TABLE(bf16),     [TENSOR_Q8_0] = TOKENS_TABLE(q8_0),
    [TENSOR_Q4_0] = TOKENS_TABLE(q4_0),     [TENSOR_Q4_1] = TOKENS_TABLE(q4_1),
    [TENSOR_Q5_0] = TOKENS_TABLE(q5_0),     [TENSOR_Q5_1] = TOKENS_TABLE(q5_1),
    [TENSOR_Q2_K] = TOKENS_TABLE(q2_k),     [TENSOR_Q3_K] = TOKENS_TABLE(q3_k),
    [TENSOR_Q4_K] = TOKENS_TABLE(q4_k),     [TENSOR_Q5_K] = TOKENS_TABLE(q5_k),
    [TENSOR_Q6_K] = TOKENS_TABLE(q6_k),     [TENSOR_IQ4_NL] = TOKENS_TABLE(iq4_nl),
    [TENSOR_IQ4_XS] = TOKENS_TABLE(iq4_xs), [TENSOR_MXFP4] = TOKENS_TABLE(mxfp4),
};

/* [type][log2 R - 1], one token; those of 256 columns a tile have no 4. */
enum { N_TYPES = sizeof by_tokens / sizeof by_tokens[0] };
static rows_function *const by_rows[N_TYPES][2] = {
    [TENSOR_F32] = {f32_2_1, f32_4_1},          [TENSOR_F16] = {f16_2_1, f16_4_1},
    [TENSOR_BF16] = {bf16_2_1, bf16_4_1},       [TENSOR_Q8_0] = {q8_0_2_1, q8_0_4_1},
    [TENSOR_Q4_0] = {q4_0_2_1, q4_0_4_1},       [TENSOR_Q4_1] = {q4_1_2_1, q4_1_4_1},
    [TENSOR_Q5_0] = {q5_0_2_1, q5_0_4_1},       [TENSOR_Q5_1] = {q5_1_2_1, q5_1_4_1},
    [TENSOR_IQ4_NL] = {iq4_nl_2_1, iq4_nl_4_1}, [TENSOR_MXFP4] = {mxfp4_2_1, mxfp4_4_1},
    [TENSOR_Q2_K] = {q2_k_2_1, NULL},           [TENSOR_Q3_K] = {q3_k_2_1, NULL},
    [TENSOR_Q4_K] = {q4_k_2_1, NULL},           [TENSOR_Q5_K] = {q5_k_2_1, NULL},
    [TENSOR_Q6_K] = {q6_k_2_1, NULL},           [TENSOR_IQ4_XS] = {iq4_xs_2_1, NULL},
};

static void views_of(const struct activations *a, const uint32_t *tokens, uint32_t first,
                     uint32_t count, struct views *v)
{
    size_t blocks = act_blocks(a->cols);

    for (uint32_t i = 0; i < count; i++) {
        size_t token = act_token(tokens, first + i);

        v->q[i] = a->q + token * act_q_stride(a->cols);
        v->d[i] = a->d + token * 2 * blocks;
        v->bias[i] = a->bias + token * blocks;
        v->minus_sum8[i] = a->minus_sum8 + token * 4 * blocks;
        v->x[i] = a->x + token * a->x_stride;
    }
}

/* n rows of the 16 sums to one token's outputs. */
static void store_rows(float *y, uint32_t n, vf sums, bool accumulate)
{
    float lanes[16];

    if (n == 16) {
        vf_store(y, accumulate ? vf_add(vf_load(y), sums) : sums);
        return;
    }
    vf_store(lanes, sums);
    for (uint32_t r = 0; r < n; r++)
        y[r] = accumulate ? y[r] + lanes[r] : lanes[r];
}

static uint32_t rows_in(const struct matrix *m, uint32_t tile)
{
    return m->rows - tile * TILE_ROWS < TILE_ROWS ? m->rows - tile * TILE_ROWS : TILE_ROWS;
}

/* One token: tile rows from `tile` on in R streams of `count` tile rows, one after the other. Returns the
 * first tile row after them. */
static uint32_t multiply_streams(rows_function *multiply_rows, const struct matrix *m,
                                 uint32_t tile, uint32_t R, uint32_t count, const struct views *v,
                                 float *y, bool accumulate)
{
    size_t row_bytes = tile_row_bytes(m->type, m->cols);

    for (uint32_t i = tile; i < tile + count; i++) {
        vf sums[4];

        multiply_rows((const uint8_t *)m->tiles + i * row_bytes, count * row_bytes, m->cols, v,
                      sums);
        for (uint32_t r = 0; r < R; r++) {
            uint32_t row = i + r * count;
            store_rows(y + (size_t)row * TILE_ROWS, rows_in(m, row), sums[r], accumulate);
        }
    }
    return tile + R * count;
}

/* One token: as many tile rows as there are in 4 streams, the remaining ones in 2 and alone. */
static void multiply_one(const struct matrix *m, uint32_t tile, uint32_t end,
                         const struct activations *a, const uint32_t *tokens, float *y,
                         bool accumulate)
{
    rows_function *const *rows = by_rows[m->type];
    struct views v;

    views_of(a, tokens, 0, 1, &v);
    if (rows[1] != NULL)
        tile = multiply_streams(rows[1], m, tile, 4, (end - tile) / 4, &v, y, accumulate);
    tile = multiply_streams(rows[0], m, tile, 2, (end - tile) / 2, &v, y, accumulate);
    multiply_streams(by_tokens[m->type][0], m, tile, 1, end - tile, &v, y, accumulate);
}

static void multiply(const struct matrix *m, uint32_t tile_first, uint32_t tile_count,
                     const struct activations *a, const uint32_t *tokens, uint32_t n_tokens,
                     float *y, size_t y_stride, bool accumulate)
{
    size_t row_bytes = tile_row_bytes(m->type, m->cols);

    if (n_tokens == 1) {
        multiply_one(m, tile_first, tile_first + tile_count, a, tokens, y, accumulate);
        return;
    }
    for (uint32_t tile = tile_first; tile < tile_first + tile_count; tile++) {
        const uint8_t *tile_row = (const uint8_t *)m->tiles + tile * row_bytes;

        for (uint32_t i = 0; i < n_tokens;) {
            int log2 = TOKENS_MAX == 8 ? 3 : 2;
            struct views v;
            vf sums[TOKENS_MAX];

            while (1u << log2 > n_tokens - i)
                log2--;
            views_of(a, tokens, i, 1u << log2, &v);
            by_tokens[m->type][log2](tile_row, i == 0 ? row_bytes : 0, m->cols, &v, sums);
            for (int t = 0; t < 1 << log2; t++, i++)
                store_rows(y + i * y_stride + (size_t)tile * TILE_ROWS, rows_in(m, tile), sums[t],
                           accumulate);
        }
    }
}
