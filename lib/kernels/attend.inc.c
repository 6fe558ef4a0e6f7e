/* Attention over the KV cache; kernels.h has the definition. ops.inc.c includes this file in each
 * build.
 *
 * The code reads a block of 256 positions from memory once for all queries of the call. First 16
 * keys at a time meet every query; then, with the block's weights known, 32 values at a time. Rows
 * that the lanes cannot read directly (halves, quants, a length that is no multiple of 16) are
 * first converted to floats in scratch, where all queries read them.
 *
 * Registers hold the sums of ATTEND_ROWS queries with ATTEND_KEYS keys, then with ATTEND_VECTORS *
 * 16 values. */
#include <string.h>

#if !defined(UNROLL) /* the portable build leaves its loops to the compiler */
#define UNROLL
#define LANES static inline
#endif

enum { KEYS_AT_ONCE = 16, VALUES_AT_ONCE = 32 };

/* The parts of attend_block's scratch. Rows are padded with zeros to a multiple of 16. */
struct attend_memory {
    float *scores; /* [ATTEND_QUERIES][ATTEND_BLOCK]: scores, then weights */
    float *rows;   /* [VALUES_AT_ONCE][the longer of keys and values] */
    float *q;      /* [ATTEND_QUERIES][k_dim], if k_dim is no multiple of 16 */
};

static size_t whole_vectors(uint32_t n)
{
    return ((size_t)n + 15) / 16 * 16;
}

static size_t attend_scratch(uint32_t k_dim, uint32_t v_dim)
{
    size_t k = whole_vectors(k_dim), v = whole_vectors(v_dim);

    return sizeof(float) * (ATTEND_QUERIES * (ATTEND_BLOCK + k) + VALUES_AT_ONCE * (k > v ? k : v));
}

static struct attend_memory divide_scratch(void *scratch, uint32_t k_dim)
{
    struct attend_memory m = {.scores = scratch};

    m.q = m.scores + ATTEND_QUERIES * ATTEND_BLOCK;
    m.rows = m.q + ATTEND_QUERIES * whole_vectors(k_dim);
    return m;
}

/* ---- Cached rows from and to floats ---- */

enum { Q8_BLOCK = 32, Q8_BYTES = 34 };

static void read_row(enum tensor_type type, const uint8_t *row, uint32_t n, float *out)
{
    uint32_t i = 0;

    switch (type) {
    case TENSOR_F16:
        for (; i + 16 <= n; i += 16)
            vf_store(out + i, vf_load_halves(row + 2 * i));
        for (; i < n; i++)
            out[i] = half_to_float(load_u16(row + 2 * i));
        break;
    case TENSOR_Q8_0:
        for (; i < n; i += Q8_BLOCK, row += Q8_BYTES) {
            vf d = vf_set1_half(row);
            vf_store(out + i, vf_mul(d, vf_load_int8(row + 2)));
            vf_store(out + i + 16, vf_mul(d, vf_load_int8(row + 18)));
        }
        break;
    default:
        memcpy(out, row, n * sizeof *out);
        i = n;
    }
    for (; i < whole_vectors(n); i++)
        out[i] = 0;
}

/* A block of 32. The scale is stored as a half; the quants are of x / d before that rounding. */
static void write_q8_0(const float *x, uint8_t *block)
{
    const vf magic = vf_set1(ROUNDING);
    vi sign = vi_set1(0x7fffffff);
    vi max = vi_max(vi_and(vf_bits(vf_load(x)), sign), vi_and(vf_bits(vf_load(x + 16)), sign));
    float inverse, d = block_scale(vi_fold_max(max), &inverse);

    store_u16(block, float_to_half(d));
    for (int i = 0; i < 32; i += 16) {
        vf scaled = vf_add(vf_mul(vf_load(x + i), vf_set1(inverse)), magic);
        if (inverse != 0) /* else the block is zero, or d is NaN */
            vi_store_int8((int8_t *)block + 2 + i, vi_sub(vf_bits(scaled), vf_bits(magic)));
        else
            memset(block + 2 + i, 0, 16);
    }
}

static void kv_write(enum tensor_type type, const float *x, uint32_t n, void *row)
{
    uint8_t *to = row;
    uint32_t i = 0;

    switch (type) {
    case TENSOR_F16:
        for (; i + 16 <= n; i += 16)
            vf_store_halves(to + 2 * i, vf_load(x + i));
        for (; i < n; i++)
            store_u16(to + 2 * i, float_to_half(x[i]));
        break;
    case TENSOR_Q8_0:
        for (; i < n; i += Q8_BLOCK, to += Q8_BYTES)
            write_q8_0(x + i, to);
        break;
    default:
        memcpy(row, x, n * sizeof *x);
    }
}

/* Rows as floats, `stride` bytes apart. */
struct float_rows {
    const uint8_t *first;
    size_t stride;
};

LANES const float *float_row(struct float_rows rows, uint32_t i)
{
    return (const float *)(const void *)(rows.first + i * rows.stride);
}

static bool readable(enum tensor_type type, uint32_t dim)
{
    return type == TENSOR_F32 && dim % 16 == 0;
}

/* n rows of floats: in the cache itself, or converted at `to`. */
static struct float_rows read_rows(enum tensor_type type, const uint8_t *row, size_t stride,
                                   uint32_t n, uint32_t dim, float *to)
{
    size_t floats = whole_vectors(dim);

    if (readable(type, dim))
        return (struct float_rows){row, stride};
    for (uint32_t i = 0; i < n; i++) {
        for (size_t byte = 0; byte < stride; byte += 64)
            __builtin_prefetch(row + (i + n) * stride + byte, 0, 2);
        read_row(type, row + i * stride, dim, to + i * floats);
    }
    return (struct float_rows){(const uint8_t *)to, floats * sizeof *to};
}

/* ---- Queries times keys ---- */

/* The products of Q queries with the keys of group g: keys g, g + 4, g + 8 and g + 12 of 16, folded
 * to four sums each. Rows beyond `last` are read as row `last`. ahead: bytes from a key to the one
 * to prefetch; 0: no prefetch. */
LANES void multiply_keys(const float *const *q, struct float_rows keys, uint32_t last, uint32_t g,
                         uint32_t dim, size_t ahead, const int Q, vf *folded)
{
    vf sums[ATTEND_ROWS][4];

    UNROLL for (int p = 0; p < 4; p += ATTEND_KEYS)
    {
        const float *k[ATTEND_KEYS];
        vf s[ATTEND_ROWS * ATTEND_KEYS];

        UNROLL for (int i = 0; i < ATTEND_KEYS; i++)
        {
            uint32_t row = g + 4 * (uint32_t)(p + i);
            k[i] = float_row(keys, row < last ? row : last);
        }
        UNROLL for (int i = 0; i < Q * ATTEND_KEYS; i++) s[i] = vf_set1(0);
        for (uint32_t c = 0; c < dim; c += 16) {
            vf key[ATTEND_KEYS];
            UNROLL for (int i = 0; i < ATTEND_KEYS; i++)
            {
                key[i] = vf_load(k[i] + c);
                if (ahead != 0)
                    __builtin_prefetch((const uint8_t *)(k[i] + c) + ahead, 0, 2);
            }
            UNROLL for (int t = 0; t < Q; t++)
            {
                vf query = vf_load(q[t] + c);
                UNROLL for (int i = 0; i < ATTEND_KEYS; i++) s[t * ATTEND_KEYS + i] =
                    vf_fma(query, key[i], s[t * ATTEND_KEYS + i]);
            }
        }
        UNROLL for (int t = 0; t < Q; t++) UNROLL for (int i = 0; i < ATTEND_KEYS; i++)
            sums[t][p + i] = s[t * ATTEND_KEYS + i];
    }
    UNROLL for (int t = 0; t < Q; t++) folded[t] =
        vf_fold_4(sums[t][0], sums[t][1], sums[t][2], sums[t][3]);
}

/* scores[t * ATTEND_BLOCK + i] of Q queries and 16 keys. */
LANES void score_16(const float *const *q, struct float_rows keys, uint32_t last, uint32_t dim,
                    size_t ahead, float scale, const int Q, float *scores)
{
    vf folded[4][ATTEND_ROWS];

    UNROLL for (uint32_t g = 0; g < 4; g++)
        multiply_keys(q, keys, last, g, dim, ahead, Q, folded[g]);
    UNROLL for (int t = 0; t < Q; t++)
        vf_store(scores + t * ATTEND_BLOCK,
                 vf_mul(vf_fold_4_of_4(folded[0][t], folded[1][t], folded[2][t], folded[3][t]),
                        vf_set1(scale)));
}

/* ---- Weights times values ---- */

/* out[t] += sum over n rows of weights[t][j] * row j, for Q queries and V vectors of the rows. */
LANES void weigh_vectors(const float *const *weights, struct float_rows rows, uint32_t n,
                         uint32_t column, size_t ahead, const int Q, const int V, float *const *out)
{
    vf sums[ATTEND_ROWS * ATTEND_VECTORS];

    UNROLL for (int i = 0; i < Q * V; i++) sums[i] = vf_load(out[i / V] + column + 16 * (i % V));
    for (uint32_t j = 0; j < n; j++) {
        const float *row = float_row(rows, j) + column;
        vf values[ATTEND_VECTORS];
        UNROLL for (int v = 0; v < V; v++)
        {
            values[v] = vf_load(row + 16 * v);
            if (ahead != 0)
                __builtin_prefetch((const uint8_t *)(row + 16 * v) + ahead, 0, 2);
        }
        UNROLL for (int t = 0; t < Q; t++)
        {
            vf weight = vf_set1(weights[t][j]);
            UNROLL for (int v = 0; v < V; v++) sums[t * V + v] =
                vf_fma(weight, values[v], sums[t * V + v]);
        }
    }
    UNROLL for (int i = 0; i < Q * V; i++) vf_store(out[i / V] + column + 16 * (i % V), sums[i]);
}

LANES void weigh_rows(const float *const *weights, struct float_rows rows, uint32_t n, uint32_t dim,
                      size_t ahead, const int Q, float *const *out)
{
    uint32_t c = 0;

    for (; c + 16 * ATTEND_VECTORS <= dim; c += 16 * ATTEND_VECTORS)
        weigh_vectors(weights, rows, n, c, ahead, Q, ATTEND_VECTORS, out);
    for (; c < dim; c += 16)
        weigh_vectors(weights, rows, n, c, ahead, Q, 1, out);
}

/* ---- The instances: NAME_Q, for Q up to ATTEND_ROWS ---- */

typedef void score_function(const float *const *q, struct float_rows keys, uint32_t last,
                            uint32_t dim, size_t ahead, float scale, float *scores);
typedef void weigh_function(const float *const *weights, struct float_rows rows, uint32_t n,
                            uint32_t dim, size_t ahead, float *const *out);

#define ATTEND_INSTANCE(Q)                                                                         \
    static void score_##Q(const float *const *q, struct float_rows keys, uint32_t last,            \
                          uint32_t dim, size_t ahead, float scale, float *scores)                  \
    {                                                                                              \
        if (ahead != 0)                                                                            \
            score_16(q, keys, last, dim, ahead, scale, Q, scores);                                 \
        else                                                                                       \
            score_16(q, keys, last, dim, 0, scale, Q, scores);                                     \
    }                                                                                              \
    static void weigh_##Q(const float *const *weights, struct float_rows rows, uint32_t n,         \
                          uint32_t dim, size_t ahead, float *const *out)                           \
    {                                                                                              \
        if (ahead != 0)                                                                            \
            weigh_rows(weights, rows, n, dim, ahead, Q, out);                                      \
        else                                                                                       \
            weigh_rows(weights, rows, n, dim, 0, Q, out);                                          \
    }

ATTEND_INSTANCE(1)
#if ATTEND_ROWS >= 2
ATTEND_INSTANCE(2)
#endif
#if ATTEND_ROWS >= 4
ATTEND_INSTANCE(3)
ATTEND_INSTANCE(4)
#endif

static score_function *const score_functions[ATTEND_ROWS] = {
    score_1,
#if ATTEND_ROWS >= 2
    score_2,
#endif
#if ATTEND_ROWS >= 4
    score_3,
    score_4,
#endif
};
static weigh_function *const weigh_functions[ATTEND_ROWS] = {
    weigh_1,
#if ATTEND_ROWS >= 2
    weigh_2,
#endif
#if ATTEND_ROWS >= 4
    weigh_3,
    weigh_4,
#endif
};

/* ---- A block ---- */

/* Positions of a block, counted from its first. */
struct range {
    uint32_t first, end;
};

static struct range range_meet(struct range a, struct range b)
{
    struct range r = {a.first > b.first ? a.first : b.first, a.end < b.end ? a.end : b.end};

    return r.first < r.end ? r : (struct range){0, 0};
}

/* The range from the first to the last position of both; an empty range has none. */
static struct range range_span(struct range a, struct range b)
{
    if (a.first == a.end || b.first == b.end)
        return a.first == a.end ? b : a;
    return (struct range){a.first < b.first ? a.first : b.first, a.end > b.end ? a.end : b.end};
}

struct attend_call {
    const struct kv_head *kv;
    const uint8_t *const *pages; /* from the block's first position on */
    struct attend_memory memory;
    uint32_t n;
    const float *q[ATTEND_QUERIES];
    struct range ranges[ATTEND_QUERIES], all;
    struct attend_part *parts;
};

/* The number of queries from the t-th on, at most ATTEND_ROWS. */
static uint32_t rows_at(const struct attend_call *c, uint32_t t)
{
    return c->n - t < ATTEND_ROWS ? c->n - t : ATTEND_ROWS;
}

static void pad_queries(struct attend_call *c)
{
    uint32_t dim = c->kv->k_dim;

    for (uint32_t t = 0; t < c->n && dim % 16 != 0; t++) {
        float *padded = c->memory.q + t * whole_vectors(dim);
        read_row(TENSOR_F32, (const uint8_t *)c->q[t], dim, padded);
        c->q[t] = padded;
    }
}

/* The row of position j of the block. */
static const uint8_t *row_at(const uint8_t *const *pages, uint32_t j, size_t offset, size_t stride)
{
    return pages[j / KV_PAGE] + offset + j % KV_PAGE * stride;
}

/* Computes scores in groups of 16 positions, those that some query attends to. A score of a
 * position that its query does not attend to has no meaning. */
static void score_block(struct attend_call *c, float scale)
{
    const struct kv_head *kv = c->kv;
    uint32_t dim = (uint32_t)whole_vectors(kv->k_dim);

    for (uint32_t j = c->all.first / 16 * 16; j < c->all.end; j += KEYS_AT_ONCE) {
        uint32_t n = c->all.end - j < KEYS_AT_ONCE ? c->all.end - j : KEYS_AT_ONCE;
        struct float_rows keys =
            read_rows(kv->type, row_at(c->pages, j, kv->keys_offset, kv->key_stride),
                      kv->key_stride, n, kv->k_dim, c->memory.rows);
        size_t ahead = readable(kv->type, kv->k_dim) ? KEYS_AT_ONCE * kv->key_stride : 0;
        for (uint32_t t = 0; t < c->n; t += ATTEND_ROWS) {
            struct range wanted = {0, 0};
            for (uint32_t i = t; i < t + rows_at(c, t); i++)
                wanted = range_span(wanted, c->ranges[i]);
            if (range_meet(wanted, (struct range){j, j + n}).end == 0)
                continue;
            score_functions[rows_at(c, t) - 1](c->q + t, keys, n - 1, dim, ahead, scale,
                                               c->memory.scores + t * ATTEND_BLOCK + j);
            ahead = 0;
        }
    }
}

/* Adds the rows of positions `range` to the parts of n queries from the t-th on. `rows` holds the
 * positions `here`. */
static void weigh_range(const struct attend_call *c, struct float_rows rows, struct range here,
                        struct range range, uint32_t t, uint32_t n, size_t ahead)
{
    const float *weights[ATTEND_ROWS];
    float *out[ATTEND_ROWS];

    for (uint32_t i = 0; i < n; i++) {
        weights[i] = c->memory.scores + (t + i) * ATTEND_BLOCK + range.first;
        out[i] = c->parts[t + i].values;
    }
    rows.first += (range.first - here.first) * rows.stride;
    weigh_functions[n - 1](weights, rows, range.end - range.first,
                           (uint32_t)whole_vectors(c->kv->v_dim), ahead, out);
}

/* Processes the positions that all of these queries attend to together, and those before and after
 * them by query. */
static void weigh_group(const struct attend_call *c, struct float_rows rows, struct range here,
                        uint32_t t, uint32_t n, size_t ahead)
{
    struct range common = here;

    for (uint32_t i = t; i < t + n; i++)
        common = range_meet(common, c->ranges[i]);
    for (uint32_t i = t; i < t + n; i++) {
        struct range own = range_meet(here, c->ranges[i]);
        if (common.end != 0)
            own.end = common.first;
        if (own.first < own.end)
            weigh_range(c, rows, here, own, i, 1, 0);
    }
    if (common.end == 0)
        return;
    weigh_range(c, rows, here, common, t, n, ahead);
    for (uint32_t i = t; i < t + n; i++) {
        struct range own = range_meet(here, c->ranges[i]);
        own.first = common.end;
        if (own.first < own.end)
            weigh_range(c, rows, here, own, i, 1, 0);
    }
}

static void weigh_block(const struct attend_call *c)
{
    const struct kv_head *kv = c->kv;

    for (uint32_t j = c->all.first, n; j < c->all.end; j += n) {
        n = VALUES_AT_ONCE - j % VALUES_AT_ONCE; /* no group crosses the end of a page */
        n = c->all.end - j < n ? c->all.end - j : n;
        struct float_rows rows =
            read_rows(kv->type, row_at(c->pages, j, kv->values_offset, kv->value_stride),
                      kv->value_stride, n, kv->v_dim, c->memory.rows);
        size_t ahead = readable(kv->type, kv->v_dim) ? VALUES_AT_ONCE * kv->value_stride : 0;
        for (uint32_t t = 0; t < c->n; t += ATTEND_ROWS) {
            weigh_group(c, rows, (struct range){j, j + n}, t, rows_at(c, t), ahead);
            ahead = 0;
        }
    }
}

static void attend_block(const struct kv_head *kv, uint32_t block, float scale,
                         const struct attend_query *queries, uint32_t n, void *scratch,
                         struct attend_part *parts)
{
    uint32_t base = block * ATTEND_BLOCK;
    struct attend_call c = {.kv = kv,
                            .pages = kv->pages + base / KV_PAGE,
                            .memory = divide_scratch(scratch, kv->k_dim),
                            .n = n,
                            .parts = parts};

    for (uint32_t t = 0; t < n; t++) {
        struct range mine = range_meet((struct range){queries[t].first, queries[t].end},
                                       (struct range){base, base + ATTEND_BLOCK});
        if (mine.end != 0)
            mine = (struct range){mine.first - base, mine.end - base};
        c.q[t] = queries[t].q;
        c.ranges[t] = mine;
        c.all = range_span(c.all, mine);
        parts[t].sum = 0;
    }
    pad_queries(&c);
    score_block(&c, scale);
    for (uint32_t t = 0; t < n; t++) {
        struct range r = c.ranges[t];
        memset(parts[t].values, 0, whole_vectors(kv->v_dim) * sizeof(float));
        if (r.first < r.end)
            parts[t].sum = exponentials(c.memory.scores + t * ATTEND_BLOCK + r.first,
                                        r.end - r.first, &parts[t].max);
    }
    weigh_block(&c);
}

/* ---- Blocks together ---- */

static void attend_merge(struct attend_part *to, const struct attend_part *from, uint32_t v_dim)
{
    float max, a, c;
    uint32_t i = 0;

    if (from->sum == 0)
        return;
    if (to->sum == 0) {
        to->max = from->max;
        to->sum = from->sum;
        memcpy(to->values, from->values, v_dim * sizeof(float));
        return;
    }
    max = to->max > from->max ? to->max : from->max;
    a = exponential(to->max - max);
    c = exponential(from->max - max);
    to->max = max;
    to->sum = fmaf(to->sum, a, from->sum * c);
    for (; i + 16 <= v_dim; i += 16)
        vf_store(to->values + i, vf_fma(vf_load(to->values + i), vf_set1(a),
                                        vf_mul(vf_load(from->values + i), vf_set1(c))));
    for (; i < v_dim; i++)
        to->values[i] = fmaf(to->values[i], a, from->values[i] * c);
}

static void attend_finish(struct attend_part *part, const float *sink, uint32_t v_dim)
{
    float a = 1, max = part->max;
    uint32_t i = 0;

    if (sink != NULL) {
        max = max > *sink ? max : *sink;
        a = exponential(part->max - max);
        part->sum = fmaf(part->sum, a, exponential(*sink - max));
        part->max = max;
    }
    /* Without a sink the factor is 1. */
    for (; i + 16 <= v_dim; i += 16)
        vf_store(part->values + i,
                 vf_div(vf_mul(vf_load(part->values + i), vf_set1(a)), vf_set1(part->sum)));
    for (; i < v_dim; i++)
        part->values[i] = part->values[i] * a / part->sum;
}
