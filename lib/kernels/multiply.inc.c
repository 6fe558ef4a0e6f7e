/* multiply() of the vector builds. Included after lanes_avx2.h or lanes_avx512.h.
 *
 * A rows function computes R tile rows (of 16 rows) for T tokens over all columns. R and T are
 * constants in each instance, so that the sums stay in registers. It loads and unpacks weights once
 * for the T tokens. The float operations are in the definition's order (portable.c); integers are
 * exact in any order.
 *
 * One token: the speed is that of reading memory. The code reads R tile rows in parallel, as far
 * apart as the work allows, because several streams keep the hardware's prefetchers busier than
 * one, by a third to a half. R is 4, or 2 for types with 256 columns per tile, whose code is too
 * long.
 *
 * Several tokens: the code reads one tile row after the other and prefetches every line of the next
 * one, because the hardware's prefetchers cannot keep up and a single missing line stalls it. More
 * than TOKENS_MAX tokens find the tile row in the first-level cache from the second round on. A
 * group that lacks a few tokens repeats its last one, where that is faster than smaller groups. */
#include "kernels/builds.h"
#include "kernels/unroll.h"
#include "quant/grids.h"
#include "quant/quant.h"

#include <stdlib.h>
#include <string.h>

#define EACH_TOKEN UNROLL for (int t = 0; t < T; t++)
#define EACH_ROW   UNROLL for (int r = 0; r < R; r++)
#define EACH_SUM   UNROLL for (int i = 0; i < R * T; i++)

#include "kernels/views.inc.c"
#include "kernels/tiles.inc.c"
#include "kernels/tiles_iq.inc.c"

typedef void tile_function(const uint8_t *tile, const struct views *v, size_t b, const int T,
                           vf *acc);
/* Multiplies R tile rows from tile_row on, row_bytes apart. The sums of row r for token t go to
 * y[r * T + t]. For several tokens, whose R is 1, row_bytes is the distance to the tile row to
 * prefetch; 0: no prefetch. */
typedef void rows_function(const uint8_t *tile_row, size_t row_bytes, uint32_t cols,
                           const struct views *v, vf *y);

/* All tiles; adds the sums of 256 columns in order. */
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
BY_ROWS_4(TILE_INSTANCE, nvfp4, NVFP4_TILE, 32)
BY_ROWS_4(FLOAT_INSTANCE, f32, TENSOR_F32, 1)
BY_ROWS_4(FLOAT_INSTANCE, f16, TENSOR_F16, 1)
BY_ROWS_4(FLOAT_INSTANCE, bf16, TENSOR_BF16, 1)
BY_ROWS_2(TILE_INSTANCE, q2_k, Q2_K_TILE, 256)
BY_ROWS_2(TILE_INSTANCE, q3_k, Q3_K_TILE, 256)
BY_ROWS_2(TILE_INSTANCE, q4_k, Q4_K_TILE, 256)
BY_ROWS_2(TILE_INSTANCE, q5_k, Q5_K_TILE, 256)
BY_ROWS_2(TILE_INSTANCE, q6_k, Q6_K_TILE, 256)
BY_ROWS_2(TILE_INSTANCE, iq4_xs, IQ4_XS_TILE, 256)

/* The types with codebooks: one token; several multiply decoded tiles. */
#define ONE_TOKEN(name, tile_bytes)                                                                \
    TILE_INSTANCE(name, tile_bytes, 256, 1, 1) TILE_INSTANCE(name, tile_bytes, 256, 2, 1)
ONE_TOKEN(iq3_s, IQ3_S_TILE)
ONE_TOKEN(iq3_xxs, IQ3_XXS_TILE)
ONE_TOKEN(iq2_s, IQ2_S_TILE)
ONE_TOKEN(iq2_xs, IQ2_XS_TILE)
ONE_TOKEN(iq2_xxs, IQ2_XXS_TILE)
ONE_TOKEN(iq1_s, IQ1_S_TILE)
ONE_TOKEN(iq1_m, IQ1_M_TILE)

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
    [TENSOR_NVFP4] = TOKENS_TABLE(nvfp4),   [TENSOR_IQ3_S] = {iq3_s_1_1},
    [TENSOR_IQ3_XXS] = {iq3_xxs_1_1},       [TENSOR_IQ2_S] = {iq2_s_1_1},
    [TENSOR_IQ2_XS] = {iq2_xs_1_1},         [TENSOR_IQ2_XXS] = {iq2_xxs_1_1},
    [TENSOR_IQ1_S] = {iq1_s_1_1},           [TENSOR_IQ1_M] = {iq1_m_1_1},
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
    [TENSOR_NVFP4] = {nvfp4_2_1, nvfp4_4_1},    [TENSOR_IQ3_S] = {iq3_s_2_1, NULL},
    [TENSOR_IQ3_XXS] = {iq3_xxs_2_1, NULL},     [TENSOR_IQ2_S] = {iq2_s_2_1, NULL},
    [TENSOR_IQ2_XS] = {iq2_xs_2_1, NULL},       [TENSOR_IQ2_XXS] = {iq2_xxs_2_1, NULL},
    [TENSOR_IQ1_S] = {iq1_s_2_1, NULL},         [TENSOR_IQ1_M] = {iq1_m_2_1, NULL},
};

/* The types whose tiles are decoded for several tokens. narrow: see group_store. */
static const struct decoding {
    void (*decode_tile)(const uint8_t *tile, struct decoded *d);
    bool by_16, narrow;
} decodings[N_TYPES] = {
    [TENSOR_IQ3_S] = {iq3_s_decode_tile, false, true},
    [TENSOR_IQ3_XXS] = {iq3_xxs_decode_tile, false, true},
    [TENSOR_IQ2_S] = {iq2_s_decode_tile, true, false},
    [TENSOR_IQ2_XS] = {iq2_xs_decode_tile, true, false},
    [TENSOR_IQ2_XXS] = {iq2_xxs_decode_tile, false, false},
    [TENSOR_IQ1_S] = {iq1_s_decode_tile, false, true},
    [TENSOR_IQ1_M] = {iq1_m_decode_tile, true, true},
};

/* Writes n of the 16 sums to one token's outputs. */
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

/* The sums of a tile row times the factors of its rows. */
static vf times_factors(const struct matrix *m, const uint8_t *tile_row, size_t row_bytes, vf sums)
{
    if (!tile_has_factors(m->type))
        return sums;
    return vf_mul(sums, vf_load((const float *)(tile_row + row_bytes - TILE_VECTOR)));
}

static uint32_t rows_in(const struct matrix *m, uint32_t tile)
{
    return m->rows - tile * TILE_ROWS < TILE_ROWS ? m->rows - tile * TILE_ROWS : TILE_ROWS;
}

/* One token: R consecutive streams of `count` tile rows, from `tile` on. Returns the first tile row
 * after them. */
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
            vf times =
                times_factors(m, (const uint8_t *)m->tiles + row * row_bytes, row_bytes, sums[r]);
            store_rows(y + (size_t)row * TILE_ROWS, rows_in(m, row), times, accumulate);
        }
    }
    return tile + R * count;
}

/* One token, the index-th: as many tile rows as possible in 4 streams, the rest in 2 streams, then
 * in 1. */
static void multiply_one(const struct matrix *m, uint32_t tile, uint32_t end,
                         const struct activations *a, const uint32_t *tokens, uint32_t index,
                         float *y, bool accumulate)
{
    rows_function *const *rows = by_rows[m->type];
    struct views v;

    views_of(a, tokens, index, 1, 1, &v);
    if (rows[1] != NULL)
        tile = multiply_streams(rows[1], m, tile, 4, (end - tile) / 4, &v, y, accumulate);
    tile = multiply_streams(rows[0], m, tile, 2, (end - tile) / 2, &v, y, accumulate);
    multiply_streams(by_tokens[m->type][0], m, tile, 1, end - tile, &v, y, accumulate);
}

#define DECODED_INSTANCE(name, by_16, narrow, T)                                                   \
    static void name##_##T(const struct decoded *d, const struct views *v, size_t b, vf *acc)      \
    {                                                                                              \
        add_decoded(d, by_16, narrow, v, b, T, acc);                                               \
    }
#define DECODED_UP_TO_4(name, by_16, narrow)                                                       \
    DECODED_INSTANCE(name, by_16, narrow, 1)                                                       \
    DECODED_INSTANCE(name, by_16, narrow, 2) DECODED_INSTANCE(name, by_16, narrow, 4)
#if TOKENS_MAX == 8
#define DECODED_BY_TOKENS(name, by_16, narrow)                                                     \
    DECODED_UP_TO_4(name, by_16, narrow) DECODED_INSTANCE(name, by_16, narrow, 8)
#define DECODED_TABLE(name)                                                                        \
    {                                                                                              \
        name##_1, name##_2, name##_4, name##_8                                                     \
    }
#else
#define DECODED_BY_TOKENS(name, by_16, narrow) DECODED_UP_TO_4(name, by_16, narrow)
#define DECODED_TABLE(name)                                                                        \
    {                                                                                              \
        name##_1, name##_2, name##_4                                                               \
    }
#endif
DECODED_BY_TOKENS(wide, false, false)
DECODED_BY_TOKENS(narrow, false, true)
DECODED_BY_TOKENS(wide_by_16, true, false)
DECODED_BY_TOKENS(narrow_by_16, true, true)
typedef void decoded_function(const struct decoded *d, const struct views *v, size_t b, vf *acc);
/* [by_16][narrow][log2 T] */
static decoded_function *const decoded_by_tokens[2][2][4] = {
    {DECODED_TABLE(wide), DECODED_TABLE(narrow)},
    {DECODED_TABLE(wide_by_16), DECODED_TABLE(narrow_by_16)},
};

/* A call of multiply(). */
struct product {
    const struct matrix *m;
    uint32_t tile_first, tile_count;
    const struct activations *a;
    const uint32_t *tokens;
    uint32_t n_tokens;
    float *y;
    size_t y_stride;
    bool accumulate;
};

/* The most tokens that multiply a tile row before the next one. */
enum { BATCH_TOKENS = 64, LOG2_TOKENS_MAX = TOKENS_MAX == 8 ? 3 : 2 };

/* Some of a batch's tokens: as many as log2 says, or fewer in the last group, which repeats its
 * last one. */
struct token_group {
    int log2;
    struct views views;
};

/* has_single: one more token, of float weights, is in no group. */
struct batch {
    uint32_t first, n_tokens, n_groups;
    bool has_single;
    struct token_group groups[BATCH_TOKENS / 2 + 1];
};

/* Memory for packed tokens. */
struct packing {
    struct packed_block *blocks;
    uint32_t n_blocks;
};

static bool is_quantized(const struct matrix *m)
{
    return tensor_type_info(m->type)->block_values > 1;
}

/* True: a group of `size` tokens that repeats the last of n, size / 2 < n < size, takes less time
 * than smaller groups (bench/results/kernels.md). */
static bool is_filled(enum tensor_type type, uint32_t n, uint32_t size)
{
    switch (type) {
    case TENSOR_F32:
    case TENSOR_F16:
    case TENSOR_BF16:
        return true;
    case TENSOR_Q8_0:
    case TENSOR_Q5_K:
    case TENSOR_Q6_K:
    case TENSOR_IQ4_NL:
    case TENSOR_IQ4_XS:
    case TENSOR_NVFP4:
        return TOKENS_MAX == 8 && n == size - 1;
    default:
        return false;
    }
}

/* The next group of n tokens that are left. */
static int group_log2(enum tensor_type type, uint32_t n, int most)
{
    int log2 = most;

    while (1u << log2 > n)
        log2--;
    return log2 < most && n > 1u << log2 && is_filled(type, n, 2u << log2) ? log2 + 1 : log2;
}

/* A batch of tokens from `first` on. It takes TOKENS_MAX of them at a time, or half as many where
 * they would have to be packed and there is no memory. */
static void batch_begin(struct batch *b, const struct product *p, uint32_t first,
                        struct packing memory)
{
    uint32_t n = p->n_tokens - first, blocks = act_blocks(p->m->cols);
    bool needs_packing = MOED_PACKS_VIEWS && is_quantized(p->m);
    bool has_memory = memory.n_blocks >= blocks;

    if (n > BATCH_TOKENS)
        n = BATCH_TOKENS;
    if (needs_packing && has_memory && n > memory.n_blocks / blocks * PACKED_TOKENS)
        n = memory.n_blocks / blocks * PACKED_TOKENS;
    b->first = first;
    b->n_groups = 0;
    b->has_single = !is_quantized(p->m) && n % TOKENS_MAX == 1;
    n -= b->has_single;
    b->n_tokens = n;
    for (uint32_t i = 0; i < n; b->n_groups++) {
        struct token_group *g = &b->groups[b->n_groups];
        g->log2 = group_log2(p->m->type, n - i, LOG2_TOKENS_MAX - (needs_packing && !has_memory));
        views_of(p->a, p->tokens, first + i, 1u << g->log2, n - i, &g->views);
        if (needs_packing && 1 << g->log2 == PACKED_TOKENS) {
            pack_views(&g->views, blocks, p->m->type, memory.blocks);
            memory.blocks += blocks;
        }
        i += 1u << g->log2;
    }
}

/* One tile row of a type of `decodings`; sums[i] is of the batch's token i. */
static void multiply_decoded_row(const struct matrix *m, const uint8_t *tile, const struct batch *b,
                                 vf *sums)
{
    const struct decoding *type = &decodings[m->type];
    size_t tile_bytes = (size_t)TILE_ROWS * tensor_type_info(m->type)->block_bytes;
    struct decoded decoded;

    for (uint32_t col = 0; col < m->cols; col += 256, tile += tile_bytes) {
        vf *sum = sums;

        type->decode_tile(tile, &decoded);
        for (uint32_t g = 0; g < b->n_groups; g++) {
            int log2 = b->groups[g].log2;
            vf acc[TOKENS_MAX];

            for (int t = 0; t < 1 << log2; t++)
                acc[t] = vf_set1(0);
            decoded_by_tokens[type->by_16][type->narrow][log2](&decoded, &b->groups[g].views,
                                                               col / 32, acc);
            for (int t = 0; t < 1 << log2; t++, sum++)
                *sum = col == 0 ? acc[t] : vf_add(*sum, acc[t]);
        }
    }
}

/* The same for other types. The first group prefetches the row at row_bytes. */
static void multiply_row(const struct matrix *m, const uint8_t *tile, size_t row_bytes,
                         const struct batch *b, vf *sums)
{
    for (uint32_t i = 0; i < b->n_groups; i++) {
        const struct token_group *g = &b->groups[i];

        by_tokens[m->type][g->log2](tile, i == 0 ? row_bytes : 0, m->cols, &g->views, sums);
        sums += 1 << g->log2;
    }
}

static void multiply_batches(const struct product *p, struct packing memory)
{
    const struct matrix *m = p->m;
    size_t row_bytes = tile_row_bytes(m->type, m->cols);
    bool decodes = decodings[m->type].decode_tile != NULL;
    struct batch b;

    for (uint32_t first = 0; first < p->n_tokens; first += b.n_tokens + b.has_single) {
        uint32_t end = p->tile_first + p->tile_count;

        batch_begin(&b, p, first, memory);
        for (uint32_t tile = p->tile_first; tile < end; tile++) {
            const uint8_t *row = (const uint8_t *)m->tiles + tile * row_bytes;
            vf sums[BATCH_TOKENS];

            if (decodes)
                multiply_decoded_row(m, row, &b, sums);
            else
                multiply_row(m, row, row_bytes, &b, sums);
            for (uint32_t t = 0; t < b.n_tokens; t++)
                store_rows(p->y + (first + t) * p->y_stride + (size_t)tile * TILE_ROWS,
                           rows_in(m, tile), times_factors(m, row, row_bytes, sums[t]),
                           p->accumulate);
            uint32_t done = tile + 1 - p->tile_first; /* of those the last four are in the cache */
            if (b.has_single && (done % 4 == 0 || tile + 1 == end))
                multiply_one(m, tile - (done - 1) % 4, tile + 1, p->a, p->tokens,
                             first + b.n_tokens, p->y + (first + b.n_tokens) * p->y_stride,
                             p->accumulate);
        }
    }
}

/* Packing takes as long as multiplying one tile row. */
enum { PACKED_TILES = 4 };

static bool packs(const struct product *p)
{
    return MOED_PACKS_VIEWS && is_quantized(p->m) && p->tile_count >= PACKED_TILES &&
           1 << group_log2(p->m->type, p->n_tokens, LOG2_TOKENS_MAX) == PACKED_TOKENS;
}

/* A function of its own: only it needs so much of the stack. */
static __attribute__((noinline)) void multiply_packed(const struct product *p)
{
    /* AVX-512: 260 KB, 64 tokens of 2560 columns or 8 of 20480; AVX-VNNI: half as many tokens */
    struct packed_block blocks[640];

    multiply_batches(p, (struct packing){blocks, sizeof blocks / sizeof blocks[0]});
}

static void multiply(const struct matrix *m, uint32_t tile_first, uint32_t tile_count,
                     const struct activations *a, const uint32_t *tokens, uint32_t n_tokens,
                     float *y, size_t y_stride, bool accumulate)
{
    const struct product p = {m,        tile_first, tile_count, a,         tokens,
                              n_tokens, y,          y_stride,   accumulate};

    if (n_tokens == 1)
        multiply_one(m, tile_first, tile_first + tile_count, a, tokens, 0, y, accumulate);
    else if (packs(&p))
        multiply_packed(&p);
    else
        multiply_batches(&p, (struct packing){NULL, 0});
}
