/* multiply() of the vector builds: included after lanes_avx2.h or lanes_avx512.h.
 *
 * A row function computes 16 rows for T tokens over all columns; T is a constant in each of its
 * instances, so the sums stay in registers. Weights are loaded and unpacked once for the T tokens.
 * The order of the float operations is that of the definition (portable.c); integers are exact in
 * any order.
 */
#include "kernels/builds.h"

#include <stdlib.h>

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
#define EACH_TOKEN UNROLL for (int t = 0; t < T; t++)

/* Where the activations of up to TOKENS_MAX tokens begin. */
struct views {
    const int8_t *q[TOKENS_MAX];
    const float *d[TOKENS_MAX];
    const float *bias[TOKENS_MAX];
    const int16_t *minus_sum8[TOKENS_MAX];
    const float *x[TOKENS_MAX];
};

/* One token reads every weight once, from memory. The hardware's prefetchers stop at page borders,
 * so each vector asks for the one this far ahead; past the end of the matrix that is harmless. */
enum { PREFETCH_AHEAD = 2048 };

LANES vi load_quants(const uint8_t *p, const int T)
{
    if (T == 1)
        __builtin_prefetch(p + PREFETCH_AHEAD);
    return vi_load(p);
}

/* The groups 2v and 2v + 1 of a vector of nibbles. */
LANES vi even_group(vi nibbles)
{
    return vi_and(nibbles, vi_set1_byte(0x0f));
}

LANES vi odd_group(vi nibbles)
{
    return vi_and(vi_right_16(nibbles, 4), vi_set1_byte(0x0f));
}

/* acc = fmaf(p, w, acc), p = fmaf(i1, d_x1, i0 * d_x0). */
LANES vf add_products(vf acc, vf i0, vf i1, const float d_x[2], vf w)
{
    return vf_fma(vf_fma(i1, vf_set1(d_x[1]), vf_mul(i0, vf_set1(d_x[0]))), w, acc);
}

/* Two groups, the columns from col: their products into the sums. */
LANES void add_groups(dots *sum, vi even, vi odd, const struct views *v, size_t col, const int T)
{
    EACH_TOKEN
    {
        sum[t] = dots_add(sum[t], even, activations_load(v->q[t] + col));
        sum[t] = dots_add(sum[t], odd, activations_load(v->q[t] + col + 4));
    }
}

/* The *_16 functions: the integer sums of 16 columns from col, as floats, to i[t]. */
LANES void q8_16(const uint8_t *quants, const struct views *v, size_t col, const int T, vf *i)
{
    vi sum[TOKENS_MAX];

    EACH_TOKEN sum[t] = q8_start(v->minus_sum8[t] + col / 8);
    UNROLL for (unsigned g = 0; g < 4; g++)
    {
        vi w = load_quants(quants + g * TILE_VECTOR, T);
        vi w_unsigned = q8_unsigned(w);
        EACH_TOKEN sum[t] = q8_add(sum[t], w_unsigned, w, activations_load(v->q[t] + col + 4 * g));
    }
    EACH_TOKEN i[t] = vf_from_ints(sum[t]);
}

LANES void q4_16(const uint8_t *quants, int offset, const struct views *v, size_t col, const int T,
                 vf *i)
{
    dots sum[TOKENS_MAX];

    EACH_TOKEN sum[t] = dots_start(v->minus_sum8[t] + col / 8, offset);
    UNROLL for (unsigned n = 0; n < 2; n++)
    {
        vi w = load_quants(quants + n * TILE_VECTOR, T);
        add_groups(sum, even_group(w), odd_group(w), v, col + 8 * n, T);
    }
    EACH_TOKEN i[t] = dots_float(sum[t]);
}

/* Bit g of each byte as bit 4. */
LANES vi fifth_bit(vi high, int g)
{
    vi moved = g < 4 ? vi_left_16(high, 4 - g) : vi_right_16(high, g - 4);
    return vi_and(moved, vi_set1_byte(0x10));
}

/* first: which group of the 32 columns these begin with, 0 or 4. */
LANES void q5_16(const uint8_t *nibbles, vi high, int first, const struct views *v, size_t col,
                 const int T, vf *i)
{
    dots sum[TOKENS_MAX];

    EACH_TOKEN sum[t] = dots_start(v->minus_sum8[t] + col / 8, 0);
    UNROLL for (int g = 0; g < 4; g += 2)
    {
        vi w = load_quants(nibbles + g / 2 * TILE_VECTOR, T);
        vi even = vi_or(even_group(w), fifth_bit(high, first + g));
        vi odd = vi_or(odd_group(w), fifth_bit(high, first + g + 1));
        add_groups(sum, even, odd, v, col + 4 * (size_t)g, T);
    }
    EACH_TOKEN i[t] = dots_float(sum[t]);
}

/* Bits 2g and 2g + 1 of each byte as bits 4 and 5; g is 0-3. */
LANES vi sixth_bits(vi high, int g)
{
    vi moved = g < 2 ? vi_left_16(high, 4 - 2 * g) : vi_right_16(high, 2 * g - 4);
    return vi_and(moved, vi_set1_byte(0x30));
}

LANES void q6_16(const uint8_t *nibbles, const uint8_t *high_bits, factor scale,
                 const struct views *v, size_t col, const int T, vf *i)
{
    vi high = load_quants(high_bits, T);
    dots sum[TOKENS_MAX];

    EACH_TOKEN sum[t] = dots_start(v->minus_sum8[t] + col / 8, 32);
    UNROLL for (int g = 0; g < 4; g += 2)
    {
        vi w = load_quants(nibbles + g / 2 * TILE_VECTOR, T);
        vi even = vi_or(even_group(w), sixth_bits(high, g));
        vi odd = vi_or(odd_group(w), sixth_bits(high, g + 1));
        add_groups(sum, even, odd, v, col + 4 * (size_t)g, T);
    }
    EACH_TOKEN i[t] = dots_scaled(sum[t], scale);
}

/* One tile each: adds the tile's columns, which begin at block b of 32, to acc[t]. */
LANES void q8_0_tile(const uint8_t *tile, const struct views *v, size_t b, const int T, vf *acc)
{
    vf i0[TOKENS_MAX], i1[TOKENS_MAX], d;

    q8_16(tile + Q8_0_QUANTS, v, 32 * b, T, i0);
    q8_16(tile + Q8_0_QUANTS + 4 * TILE_VECTOR, v, 32 * b + 16, T, i1);
    d = vf_load_halves(tile);
    EACH_TOKEN acc[t] = add_products(acc[t], i0[t], i1[t], v->d[t] + 2 * b, d);
}

LANES void q4_0_tile(const uint8_t *tile, const struct views *v, size_t b, const int T, vf *acc)
{
    vf i0[TOKENS_MAX], i1[TOKENS_MAX], d;

    q4_16(tile + Q4_0_QUANTS, 8, v, 32 * b, T, i0);
    q4_16(tile + Q4_0_QUANTS + 2 * TILE_VECTOR, 8, v, 32 * b + 16, T, i1);
    d = vf_load_halves(tile);
    EACH_TOKEN acc[t] = add_products(acc[t], i0[t], i1[t], v->d[t] + 2 * b, d);
}

/* The scales and minima of Q4_K and Q5_K, a byte each in the words of a row: [0] of sub-blocks 0-3,
 * [1] of 4-7, whose upper two bits the file keeps in the bytes of the first four. */
struct k_scales {
    vf d, dmin;
    vi scale[2], min[2];
};

LANES struct k_scales k_scales_load(const uint8_t *tile)
{
    const uint8_t *p = tile + K_SCALES;
    vi s = vi_load(p), m = vi_load(p + TILE_VECTOR), low = vi_load(p + 2 * TILE_VECTOR);
    vi six = vi_set1_byte(0x3f), four = vi_set1_byte(0x0f), high = vi_set1_byte(0x30);

    return (struct k_scales){
        .d = vf_load_halves(tile),
        .dmin = vf_load_halves(tile + K_MINS),
        .scale = {vi_and(s, six), vi_or(vi_and(low, four), vi_and(vi_right_16(s, 2), high))},
        .min = {vi_and(m, six),
                vi_or(vi_and(vi_right_16(low, 4), four), vi_and(vi_right_16(m, 2), high))},
    };
}

/* The columns of sub-block `sub`, block b of the activations, met its scale and minimum. */
LANES void add_k_products(const struct k_scales *s, int sub, const struct views *v, size_t b,
                          const int T, const vf *i0, const vf *i1, vf *acc)
{
    vf scale = vf_mul(s->d, byte_float(s->scale[sub / 4], sub % 4));
    vf min = vf_mul(s->dmin, byte_float(s->min[sub / 4], sub % 4));

    EACH_TOKEN
    {
        acc[t] = add_products(acc[t], i0[t], i1[t], v->d[t] + 2 * b, scale);
        acc[t] = vf_fnma(min, vf_set1(v->bias[t][b]), acc[t]);
    }
}

LANES void q4_k_tile(const uint8_t *tile, const struct views *v, size_t b, const int T, vf *acc)
{
    struct k_scales s = k_scales_load(tile);
    const uint8_t *quants = tile + K_QUANTS;

    for (int sub = 0; sub < 8; sub++, b++, quants += Q4_K_SUB) {
        vf i0[TOKENS_MAX], i1[TOKENS_MAX];

        q4_16(quants, 0, v, 32 * b, T, i0);
        q4_16(quants + 2 * TILE_VECTOR, 0, v, 32 * b + 16, T, i1);
        add_k_products(&s, sub, v, b, T, i0, i1, acc);
    }
}

LANES void q5_k_tile(const uint8_t *tile, const struct views *v, size_t b, const int T, vf *acc)
{
    struct k_scales s = k_scales_load(tile);
    const uint8_t *quants = tile + K_QUANTS;

    for (int sub = 0; sub < 8; sub++, b++, quants += Q5_K_SUB) {
        vi high = load_quants(quants + 4 * TILE_VECTOR, T);
        vf i0[TOKENS_MAX], i1[TOKENS_MAX];

        q5_16(quants, high, 0, v, 32 * b, T, i0);
        q5_16(quants + 2 * TILE_VECTOR, high, 4, v, 32 * b + 16, T, i1);
        add_k_products(&s, sub, v, b, T, i0, i1, acc);
    }
}

LANES void q6_k_tile(const uint8_t *tile, const struct views *v, size_t b, const int T, vf *acc)
{
    vf d = vf_load_halves(tile);
    const uint8_t *quants = tile + Q6_K_QUANTS;

    for (int sub = 0; sub < 8; sub++, b++, quants += Q6_K_SUB) {
        vi scales = vi_load(tile + Q6_K_SCALES + sub / 2 * TILE_VECTOR);
        factor scale_0 = factor_signed(scales, 2 * (sub % 2));
        factor scale_1 = factor_signed(scales, 2 * (sub % 2) + 1);
        vf i0[TOKENS_MAX], i1[TOKENS_MAX];

        q6_16(quants, quants + 4 * TILE_VECTOR, scale_0, v, 32 * b, T, i0);
        q6_16(quants + 2 * TILE_VECTOR, quants + 5 * TILE_VECTOR, scale_1, v, 32 * b + 16, T, i1);
        EACH_TOKEN acc[t] = add_products(acc[t], i0[t], i1[t], v->d[t] + 2 * b, d);
    }
}

/* All tiles of a tile row: the sums of 256 columns in order. */
typedef void tile_function(const uint8_t *tile, const struct views *v, size_t b, const int T,
                           vf *acc);
typedef void row_function(const uint8_t *tile_row, uint32_t cols, const struct views *v, vf *y);

LANES void row_of_tiles(tile_function *add_tile, size_t tile_bytes, uint32_t tile_cols,
                        const uint8_t *tile, uint32_t cols, const struct views *v, const int T,
                        vf *y)
{
    for (uint32_t col = 0; col < cols;) {
        uint32_t end = cols - col < 256 ? cols : col + 256;
        bool first = col == 0;
        vf acc[TOKENS_MAX];

        EACH_TOKEN acc[t] = vf_set1(0);
        for (; col < end; col += tile_cols, tile += tile_bytes)
            add_tile(tile, v, col / 32, T, acc);
        EACH_TOKEN y[t] = first ? acc[t] : vf_add(y[t], acc[t]);
    }
}

/* Columns c and c + 1 of a tile row of floats that begins at p. */
struct two_columns {
    vf first, second;
};

LANES struct two_columns load_columns(enum tensor_type type, const uint8_t *p, uint32_t c)
{
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

/* Two sums of 256 columns at once: a single chain of fused multiply-adds would be as slow as their
 * latency. */
LANES void add_512(enum tensor_type type, const uint8_t *p, const float *x, uint32_t col, vf acc[2])
{
    acc[0] = acc[1] = vf_set1(0);
    for (uint32_t c = col; c < col + 256; c += 2) {
        struct two_columns w = load_columns(type, p, c), u = load_columns(type, p, c + 256);
        acc[0] = vf_fma(w.first, vf_set1(x[c]), acc[0]);
        acc[1] = vf_fma(u.first, vf_set1(x[c + 256]), acc[1]);
        acc[0] = vf_fma(w.second, vf_set1(x[c + 1]), acc[0]);
        acc[1] = vf_fma(u.second, vf_set1(x[c + 257]), acc[1]);
    }
}

LANES void row_of_floats(enum tensor_type type, const uint8_t *p, uint32_t cols,
                         const struct views *v, const int T, vf *y)
{
    uint32_t col = 0;

    EACH_TOKEN y[t] = vf_set1(0);
    for (; T == 1 && cols - col >= 512; col += 512) {
        vf acc[2];
        add_512(type, p, v->x[0], col, acc);
        y[0] = vf_add(col == 0 ? acc[0] : vf_add(y[0], acc[0]), acc[1]);
    }
    while (col < cols) {
        uint32_t end = cols - col < 256 ? cols : col + 256;
        bool first = col == 0;
        vf acc[TOKENS_MAX];

        EACH_TOKEN acc[t] = vf_set1(0);
        for (; col + 2 <= end; col += 2) {
            struct two_columns w = load_columns(type, p, col);
            EACH_TOKEN acc[t] = vf_fma(w.first, vf_set1(v->x[t][col]), acc[t]);
            EACH_TOKEN acc[t] = vf_fma(w.second, vf_set1(v->x[t][col + 1]), acc[t]);
        }
        if (col < end) {
            vf w = load_column(type, p, col);
            EACH_TOKEN acc[t] = vf_fma(w, vf_set1(v->x[t][col]), acc[t]);
            col++;
        }
        EACH_TOKEN y[t] = first ? acc[t] : vf_add(y[t], acc[t]);
    }
}

/* The instances, by type and T. */
#define TILE_ROW_FUNCTION(name, tile_bytes, tile_cols, T)                                          \
    static void name##_row_##T(const uint8_t *tile_row, uint32_t cols, const struct views *v,      \
                               vf *y)                                                              \
    {                                                                                              \
        row_of_tiles(name##_tile, tile_bytes, tile_cols, tile_row, cols, v, T, y);                 \
    }
#define FLOAT_ROW_FUNCTION(name, type, unused, T)                                                  \
    static void name##_row_##T(const uint8_t *tile_row, uint32_t cols, const struct views *v,      \
                               vf *y)                                                              \
    {                                                                                              \
        row_of_floats(type, tile_row, cols, v, T, y);                                              \
    }
#if TOKENS_MAX == 8
#define ROW_FUNCTIONS(kind, name, a, b)                                                            \
    kind(name, a, b, 1) kind(name, a, b, 2) kind(name, a, b, 4) kind(name, a, b, 8)
#define ROW_TABLE(name)                                                                            \
    {                                                                                              \
        name##_row_1, name##_row_2, name##_row_4, name##_row_8                                     \
    }
#else
#define ROW_FUNCTIONS(kind, name, a, b) kind(name, a, b, 1) kind(name, a, b, 2) kind(name, a, b, 4)
#define ROW_TABLE(name)                                                                            \
    {                                                                                              \
        name##_row_1, name##_row_2, name##_row_4                                                   \
    }
#endif

ROW_FUNCTIONS(TILE_ROW_FUNCTION, q8_0, Q8_0_TILE, 32)
ROW_FUNCTIONS(TILE_ROW_FUNCTION, q4_0, Q4_0_TILE, 32)
ROW_FUNCTIONS(TILE_ROW_FUNCTION, q4_k, Q4_K_TILE, 256)
ROW_FUNCTIONS(TILE_ROW_FUNCTION, q5_k, Q5_K_TILE, 256)
ROW_FUNCTIONS(TILE_ROW_FUNCTION, q6_k, Q6_K_TILE, 256)
ROW_FUNCTIONS(FLOAT_ROW_FUNCTION, f32, TENSOR_F32, 1)
ROW_FUNCTIONS(FLOAT_ROW_FUNCTION, f16, TENSOR_F16, 1)
ROW_FUNCTIONS(FLOAT_ROW_FUNCTION, bf16, TENSOR_BF16, 1)

static row_function *const row_functions[][4] = {
    [TENSOR_F32] = ROW_TABLE(f32),   [TENSOR_F16] = ROW_TABLE(f16),
    [TENSOR_BF16] = ROW_TABLE(bf16), [TENSOR_Q8_0] = ROW_TABLE(q8_0),
    [TENSOR_Q4_0] = ROW_TABLE(q4_0), [TENSOR_Q4_K] = ROW_TABLE(q4_k),
    [TENSOR_Q5_K] = ROW_TABLE(q5_k), [TENSOR_Q6_K] = ROW_TABLE(q6_k),
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

static void multiply(const struct matrix *m, uint32_t tile_first, uint32_t tile_count,
                     const struct activations *a, const uint32_t *tokens, uint32_t n_tokens,
                     float *y, size_t y_stride, bool accumulate)
{
    row_function *const *by_tokens = row_functions[m->type];
    size_t row_bytes = tile_row_bytes(m->type, m->cols);

    for (uint32_t tile = tile_first; tile < tile_first + tile_count; tile++) {
        const uint8_t *tile_row = (const uint8_t *)m->tiles + tile * row_bytes;
        uint32_t n_rows = m->rows - tile * TILE_ROWS < TILE_ROWS ? m->rows - tile * TILE_ROWS : 16;

        for (uint32_t i = 0; i < n_tokens;) {
            int log2 = TOKENS_MAX == 8 ? 3 : 2;
            struct views v;
            vf sums[TOKENS_MAX];

            while (1u << log2 > n_tokens - i)
                log2--;
            views_of(a, tokens, i, 1u << log2, &v);
            by_tokens[log2](tile_row, m->cols, &v, sums);
            for (int t = 0; t < 1 << log2; t++, i++)
                store_rows(y + i * y_stride + (size_t)tile * TILE_ROWS, n_rows, sums[t],
                           accumulate);
        }
    }
}
