/* Gated DeltaNet of all builds; ops.inc.c includes this file after attend.inc.c. kernels.h has the
 * definition. Each of its sums has one order, so neither the number of positions of a call nor the
 * number of sums in registers changes a bit.
 *
 * All positions of a call that are in one chunk multiply S at once. One position alone reads S once
 * and writes none of it. The last position of a chunk adds the chunk's updates to S.
 *
 * Registers hold the sums of DELTA_ROWS rows with DELTA_VECTORS * 16 columns.
 *
 * A head's state, with k_dim and v_dim rounded up to 16; the padding is 0:
 *     [blocks][k_dim][width]   S, in blocks of 64 columns; the last one may be narrower
 *     [DELTA_CHUNK][k_dim]     the chunk's keys
 *     [DELTA_CHUNK][v_dim]     the chunk's updates u
 *     [DELTA_CHUNK]            g(t, s) of the last position t
 *     [16]                     its g(t), first */
#include "kernels/kernels.h"

enum {
    DELTA_COLUMNS = 64, /* of a block: with 128 rows it fits the first cache */
    DELTA_AHEAD = 16,   /* rows of a block that are fetched ahead of their use */
};

/* A position's key and query, where one position is computed alone, and the most sums in
 * registers. */
#define DELTA_PAIR (DELTA_ROWS < 2 ? 1 : 2)
#define DELTA_SUMS (DELTA_ROWS * DELTA_VECTORS)

/* A product of decays below this is 0. Subnormal numbers are slow on some CPUs. */
#define DELTA_LEAST 0x1p-100f

/* The positions of one call that are in one chunk. */
struct delta_chunk {
    uint32_t k_dim, v_dim, k_floats, v_floats; /* floats: rounded up to 16 */
    uint32_t first, n; /* the first of the positions, from the chunk's begin, and their number */
    bool one;          /* nothing of the state is in the caches yet */
    const struct delta_rows *in;
    float *s, *keys, *updates, *decays; /* the parts of the state */
    const float *rows[2 * DELTA_CHUNK]; /* each position's key, then its query; padded */
    float queries[DELTA_CHUNK * DELTA_KEY_MOST];
    float factors[2 * DELTA_CHUNK][16]; /* of the updates: -g(t, s) k_t.k_s, then g(t, s) q_t.k_s */
    float carry[DELTA_CHUNK];           /* g(t) */
};

/* n is at most 16. */
static inline vf load_some(const float *p, uint32_t n)
{
    return n < 16 ? load_part(p, n, 0) : vf_load(p);
}

static inline void store_some(float *p, uint32_t n, vf a)
{
    if (n < 16)
        store_part(p, n, a);
    else
        vf_store(p, a);
}

/* ---- Keys, queries, decays ---- */

static void place_rows(struct delta_chunk *c)
{
    for (uint32_t i = 0; i < c->n; i++) {
        float *key = c->keys + (size_t)(c->first + i) * c->k_floats;
        float *query = c->queries + (size_t)i * c->k_floats;
        size_t at = i * c->in->stride;
        read_row(TENSOR_F32, (const uint8_t *)(c->in->k + at), c->k_dim, key);
        read_row(TENSOR_F32, (const uint8_t *)(c->in->q + at), c->k_dim, query);
        c->rows[2 * i] = key;
        c->rows[2 * i + 1] = query;
    }
}

/* factors[row...] = the dot products of Q rows and the chunk's keys; those of keys that come later
 * have no meaning. */
LANES void multiply_delta_keys(struct delta_chunk *c, uint32_t row, const int Q)
{
    struct float_rows keys = {(const uint8_t *)c->keys, c->k_floats * sizeof(float)};
    vf folded[4][ATTEND_ROWS];

    UNROLL for (uint32_t g = 0; g < 4; g++)
        multiply_keys(c->rows + row, keys, c->first + c->n - 1, g, c->k_floats, 0, Q, folded[g]);
    UNROLL for (int t = 0; t < Q; t++)
        vf_store(c->factors[row + (uint32_t)t],
                 vf_fold_4_of_4(folded[0][t], folded[1][t], folded[2][t], folded[3][t]));
}

static void multiply_own_keys(struct delta_chunk *c)
{
    uint32_t row = 0;

    for (; row + ATTEND_ROWS <= 2 * c->n; row += ATTEND_ROWS)
        multiply_delta_keys(c, row, ATTEND_ROWS);
    for (; row < 2 * c->n; row++)
        multiply_delta_keys(c, row, 1);
}

static float decayed(float product, float decay)
{
    product *= decay;
    return product < DELTA_LEAST ? 0 : product;
}

static void weigh_by_decays(struct delta_chunk *c)
{
    float *g = c->decays, *carry = g + DELTA_CHUNK;

    if (c->first == 0)
        *carry = 1;
    for (uint32_t i = 0; i < c->n; i++) {
        float decay = c->in->decay[i * c->in->rate_stride];
        c->carry[i] = *carry = decayed(*carry, decay);
        for (uint32_t s = 0; s < c->first + i; s++)
            g[s] = decayed(g[s], decay);
        g[c->first + i] = 1;
        vf weights = vf_load(g);
        float *factors = c->factors[2 * i];
        vf_store(factors, vf_mul(vf_negate(weights), vf_load(factors)));
        vf_store(factors + 16, vf_mul(weights, vf_load(factors + 16)));
    }
}

/* ---- A block of columns ---- */

struct delta_block {
    float *s;                      /* [k_dim][width] */
    uint32_t first, width;         /* columns of the head */
    float (*sums)[DELTA_COLUMNS];  /* [2 * n]: r and p of each position */
    float (*faded)[DELTA_COLUMNS]; /* [DELTA_CHUNK]: g(t, s) u_s */
};

/* sums[row...] = R rows times V vectors of S. ahead: the values of a row of S that are fetched
 * ahead. */
LANES void multiply_state(const struct delta_chunk *c, const struct delta_block *b, uint32_t row,
                          uint32_t column, uint32_t ahead, const int R, const int V)
{
    const float *s = b->s + column, *rows[DELTA_ROWS];
    vf sums[DELTA_SUMS];

    UNROLL for (int r = 0; r < R; r++) rows[r] = c->rows[row + (uint32_t)r];
    UNROLL for (int i = 0; i < R * V; i++) sums[i] = vf_set1(0);
    for (uint32_t i = 0, n = c->k_dim; i < n; i++, s += b->width) {
        vf values[DELTA_SUMS];
        for (uint32_t line = 0; line < ahead; line += 16)
            __builtin_prefetch(s + DELTA_AHEAD * b->width + line, 0);
        UNROLL for (int v = 0; v < V; v++) values[v] = vf_load(s + 16 * v);
        UNROLL for (int r = 0; r < R; r++)
        {
            vf x = vf_set1(rows[r][i]);
            UNROLL for (int v = 0; v < V; v++) sums[r * V + v] =
                vf_fma(x, values[v], sums[r * V + v]);
        }
    }
    UNROLL for (int i = 0; i < R * V; i++)
        vf_store(b->sums[row + (uint32_t)(i / V)] + column + 16 * (i % V), sums[i]);
}

/* As many rows as fill groups of R. Returns the first of the others. */
LANES uint32_t multiply_rows(const struct delta_chunk *c, const struct delta_block *b, uint32_t row,
                             const int R, const int V)
{
    uint32_t end = row + (2 * c->n - row) / R * R, ahead = c->one ? b->width : 0, j = 0;

    for (; j + 16 * V <= b->width; j += 16 * V)
        for (uint32_t i = row; i < end; i += R, ahead = 0)
            multiply_state(c, b, i, j, ahead, R, V);
    for (; j < b->width; j += 16)
        for (uint32_t i = row; i < end; i += R, ahead = 0)
            multiply_state(c, b, i, j, ahead, R, 1);
    return end;
}

/* The number of rows is even. */
static void multiply_block(const struct delta_chunk *c, const struct delta_block *b)
{
    uint32_t row = 0;

    if (!c->one)
        row = multiply_rows(c, b, 0, DELTA_ROWS, DELTA_VECTORS);
    multiply_rows(c, b, row, DELTA_PAIR, DELTA_PAIR_VECTORS);
}

/* The updates and outputs of V vectors; the last one has `last` columns. */
LANES void finish_columns(const struct delta_chunk *c, const struct delta_block *b, uint32_t column,
                          uint32_t last, const int V)
{
    float *updates = c->updates + b->first + column;

    for (uint32_t i = 0; i < c->n; i++) {
        const float *v = c->in->v + i * c->in->stride + b->first + column;
        float *out = c->in->out + i * c->in->out_stride + b->first + column;
        float *own = updates + (size_t)(c->first + i) * c->v_floats;
        vf carry = vf_set1(c->carry[i]), beta = vf_set1(c->in->beta[i * c->in->rate_stride]);
        vf u[DELTA_PAIR_VECTORS], o[DELTA_PAIR_VECTORS],
            s_t = vf_set1(c->factors[2 * i + 1][c->first + i]);
        UNROLL for (int k = 0; k < V; k++)
        {
            vf r = vf_load(b->sums[2 * i] + column + 16 * k);
            u[k] = vf_sub(load_some(v + 16 * k, k + 1 == V ? last : 16), vf_mul(carry, r));
            o[k] = vf_mul(carry, vf_load(b->sums[2 * i + 1] + column + 16 * k));
        }
        for (uint32_t s = 0; s < c->first + i; s++) {
            vf to_u = vf_set1(c->factors[2 * i][s]), to_o = vf_set1(c->factors[2 * i + 1][s]);
            UNROLL for (int k = 0; k < V; k++)
            {
                vf earlier = vf_load(updates + (size_t)s * c->v_floats + 16 * k);
                u[k] = vf_fma(to_u, earlier, u[k]);
                o[k] = vf_fma(to_o, earlier, o[k]);
            }
        }
        UNROLL for (int k = 0; k < V; k++)
        {
            u[k] = vf_mul(beta, u[k]);
            vf_store(own + 16 * k, u[k]);
            store_some(out + 16 * k, k + 1 == V ? last : 16, vf_fma(s_t, u[k], o[k]));
        }
    }
}

static void finish_block(const struct delta_chunk *c, const struct delta_block *b)
{
    uint32_t j = 0, columns = c->v_dim - b->first < b->width ? c->v_dim - b->first : b->width;

    for (; j + 16 * DELTA_PAIR_VECTORS <= columns; j += 16 * DELTA_PAIR_VECTORS)
        finish_columns(c, b, j, 16, DELTA_PAIR_VECTORS);
    for (; j < columns; j += 16)
        finish_columns(c, b, j, columns - j < 16 ? columns - j : 16, 1);
}

/* R rows and V vectors of S = g(t) S + the sum of k_s g(t, s) u_s. */
LANES void update_state(const struct delta_chunk *c, const struct delta_block *b, uint32_t row,
                        uint32_t column, const int R, const int V)
{
    float *state = b->s + (size_t)row * b->width + column;
    vf carry = vf_set1(c->carry[c->n - 1]), sums[DELTA_SUMS];

    UNROLL for (int i = 0; i < R * V; i++) sums[i] =
        vf_mul(carry, vf_load(state + (size_t)(i / V) * b->width + 16 * (i % V)));
    for (uint32_t s = 0; s < DELTA_CHUNK; s++) {
        const float *key = c->keys + (size_t)s * c->k_floats + row;
        vf u[DELTA_VECTORS];
        UNROLL for (int v = 0; v < V; v++) u[v] = vf_load(b->faded[s] + column + 16 * v);
        UNROLL for (int r = 0; r < R; r++)
        {
            vf x = vf_set1(key[r]);
            UNROLL for (int v = 0; v < V; v++) sums[r * V + v] = vf_fma(x, u[v], sums[r * V + v]);
        }
    }
    UNROLL for (int i = 0; i < R * V; i++)
        vf_store(state + (size_t)(i / V) * b->width + 16 * (i % V), sums[i]);
}

LANES void update_columns(const struct delta_chunk *c, const struct delta_block *b, uint32_t column,
                          const int V)
{
    uint32_t row = 0;

    for (; row + DELTA_ROWS <= c->k_dim; row += DELTA_ROWS)
        update_state(c, b, row, column, DELTA_ROWS, V);
    for (; row < c->k_dim; row++)
        update_state(c, b, row, column, 1, V);
}

static void update_block(const struct delta_chunk *c, const struct delta_block *b)
{
    uint32_t j = 0;

    for (uint32_t s = 0; s < DELTA_CHUNK; s++)
        for (uint32_t i = 0; i < b->width; i += 16)
            vf_store(b->faded[s] + i,
                     vf_mul(vf_set1(c->decays[s]),
                            vf_load(c->updates + (size_t)s * c->v_floats + b->first + i)));
    for (; j + 16 * DELTA_VECTORS <= b->width; j += 16 * DELTA_VECTORS)
        update_columns(c, b, j, DELTA_VECTORS);
    for (; j < b->width; j += 16)
        update_columns(c, b, j, 1);
}

/* ---- A head ---- */

/* What comes after S is here when S has been read. */
static void fetch_chunk(const struct delta_chunk *c)
{
    for (uint32_t i = 0; i <= c->first * c->k_floats; i += 16)
        __builtin_prefetch(c->keys + i, 1);
    for (uint32_t i = 0; i <= c->first * c->v_floats; i += 16)
        __builtin_prefetch(c->updates + i, 1);
    __builtin_prefetch(c->decays, 1);
    __builtin_prefetch(c->decays + DELTA_CHUNK, 1);
}

static void step_chunk(struct delta_chunk *c)
{
    float sums[2 * DELTA_CHUNK][DELTA_COLUMNS], faded[DELTA_CHUNK][DELTA_COLUMNS];

    if (c->one)
        fetch_chunk(c);
    place_rows(c);
    for (uint32_t j = 0; j < c->v_floats; j += DELTA_COLUMNS) {
        uint32_t width = c->v_floats - j < DELTA_COLUMNS ? c->v_floats - j : DELTA_COLUMNS;
        struct delta_block b = {c->s + (size_t)j * c->k_floats, j, width, sums, faded};
        multiply_block(c, &b);
        if (j == 0) {
            multiply_own_keys(c);
            weigh_by_decays(c);
        }
        finish_block(c, &b);
        if (c->first + c->n == DELTA_CHUNK)
            update_block(c, &b);
    }
}

static void delta(float *state, uint32_t k_dim, uint32_t v_dim, uint32_t position,
                  const struct delta_rows *rows, uint32_t n)
{
    struct delta_rows in = *rows;
    struct delta_chunk c; /* large: only what is used is written */

    c.k_dim = k_dim;
    c.v_dim = v_dim;
    c.k_floats = (uint32_t)whole_vectors(k_dim);
    c.v_floats = (uint32_t)whole_vectors(v_dim);
    c.in = &in;
    c.one = n == 1;
    c.s = state;
    c.keys = c.s + (size_t)c.k_floats * c.v_floats;
    c.updates = c.keys + (size_t)DELTA_CHUNK * c.k_floats;
    c.decays = c.updates + (size_t)DELTA_CHUNK * c.v_floats;
    for (uint32_t done = 0; done < n; done += c.n) {
        c.first = (position + done) % DELTA_CHUNK;
        c.n = n - done < DELTA_CHUNK - c.first ? n - done : DELTA_CHUNK - c.first;
        step_chunk(&c);
        in.q += c.n * in.stride;
        in.k += c.n * in.stride;
        in.v += c.n * in.stride;
        in.decay += c.n * in.rate_stride;
        in.beta += c.n * in.rate_stride;
        in.out += c.n * in.out_stride;
    }
}

/* At most 16 channels. inputs: the last `taps` inputs, oldest first. */
static void convolve_lanes(const float *w, const float *bias, uint32_t taps, uint32_t n_lanes,
                           float *past, size_t past_stride, float *x, size_t stride, uint32_t n,
                           bool silu)
{
    vf start = bias != NULL ? load_some(bias, n_lanes) : vf_set1(0);
    vf weights[CONVOLVE_TAPS], inputs[CONVOLVE_TAPS];
    float lanes[16] = {0};

    for (uint32_t j = 0; j < taps; j++) {
        for (uint32_t l = 0; l < n_lanes; l++)
            lanes[l] = w[l * taps + j];
        weights[j] = vf_load(lanes);
    }
    for (uint32_t j = 0; j + 1 < taps; j++)
        inputs[j] = load_some(past + j * past_stride, n_lanes);
    for (uint32_t t = 0; t < n; t++) {
        vf sum = start;
        inputs[taps - 1] = load_some(x + t * stride, n_lanes);
        for (uint32_t j = 0; j < taps; j++)
            sum = vf_fma(weights[j], inputs[j], sum);
        store_some(x + t * stride, n_lanes, silu ? vf_silu(sum) : sum);
        for (uint32_t j = 0; j + 1 < taps; j++)
            inputs[j] = inputs[j + 1];
    }
    for (uint32_t j = 0; j + 1 < taps; j++)
        store_some(past + j * past_stride, n_lanes, inputs[j]);
}

static void convolve(const float *w, const float *bias, uint32_t taps, uint32_t n_channels,
                     float *past, size_t past_stride, float *x, size_t stride, uint32_t n,
                     bool silu)
{
    for (uint32_t c = 0; c < n_channels; c += 16)
        convolve_lanes(w + (size_t)c * taps, bias != NULL ? bias + c : NULL, taps,
                       n_channels - c < 16 ? n_channels - c : 16, past + c, past_stride, x + c,
                       stride, n, silu);
}
