/* Gated DeltaNet (kernels/kernels.h), in three launches:
 *
 *     place    each head of a row: the convolution of its q, k and v, the norms of q and k; the
 *              decay and the rate of each value head
 *     step     the states of the value heads, DELTA_CHUNK positions at a time
 *     finish   each value head of a row: norm, gate, quantising; what the next call needs of the
 *              chunk under way and of the convolution
 *
 * A block of `step` has 32 columns of a value head, whose S lies in shared memory while it goes
 * through the rows of a run. So S is read once a run, and written once if a chunk ends in it. The
 * blocks of a head share the chunk's keys and decays: `step` only reads those of the state, and
 * `finish` writes them. */
#include "device/cuda/dependent.cuh"
#include "device/cuda/norm.cuh"
#include "device/cuda/ops.h"
#include "device/cuda/quantize.cuh"
#include "device/cuda/recurrent.cuh"
#include "kernels/decay.h"

enum {
    WARPS = 4,
    THREADS = WARPS * 32,
    COLUMNS = 32,           /* of a block of `step` */
    STATE_COLUMNS = 64,     /* of a block of S in the state (kernels/delta.inc.c) */
    ROWS = 2 * DELTA_CHUNK, /* a chunk's keys, then its queries */
    ROW_STRIDE = ROWS + 4,  /* in shared memory: whole float4, and few bank conflicts */
    WARP_ROWS = ROWS / WARPS,
};
#define DELTA_LEAST 0x1p-100f /* a product of decays below this is 0 */

struct delta_call {
    device_recurrent r;
    device_delta d;
    size_t head_floats;           /* delta_state_floats */
    device_activations quantized; /* q NULL: none */
    const uint32_t *guard;
};

static __device__ __forceinline__ uint32_t whole_16(uint32_t n)
{
    return (n + 15) / 16 * 16;
}

static __device__ __forceinline__ uint32_t channels_of(const device_delta &d)
{
    return 2 * d.k_heads * d.k_dim + d.v_heads * d.v_dim;
}

static __device__ __forceinline__ bool stopped(const delta_call &c)
{
    return c.guard != NULL && *c.guard != 0;
}

/* A value head's state (kernels/delta.inc.c has its parts), behind the convolution's. */
struct head_state {
    float *s, *keys, *updates, *decays, *carry;
    uint32_t k_floats, v_floats;
};

static __device__ __forceinline__ head_state state_of(const delta_call &c, uint32_t slot,
                                                      uint32_t head)
{
    const device_delta &d = c.d;
    head_state h;

    h.k_floats = whole_16(d.k_dim);
    h.v_floats = whole_16(d.v_dim);
    h.s = recurrent_state(c.r, slot) + (size_t)(d.taps - 1) * channels_of(d) + head * c.head_floats;
    h.keys = h.s + (size_t)h.k_floats * h.v_floats;
    h.updates = h.keys + DELTA_CHUNK * h.k_floats;
    h.decays = h.updates + DELTA_CHUNK * h.v_floats;
    h.carry = h.decays + DELTA_CHUNK;
    return h;
}

/* The key head of a value head. */
static __device__ __forceinline__ uint32_t key_head(const device_delta &d, uint32_t head)
{
    return d.grouped ? head / (d.v_heads / d.k_heads) : head % d.k_heads;
}

static __device__ __forceinline__ float decayed(float product, float decay)
{
    product *= decay;
    return product < DELTA_LEAST ? 0 : product;
}

/* ---- Place ---- */

struct delta_input {
    const float *qkv;
    uint32_t channels;
    __device__ __forceinline__ float operator()(uint32_t t, uint32_t channel) const
    {
        return qkv[(size_t)t * channels + channel];
    }
};

static __device__ void place_rates(const device_delta &d, uint32_t t, uint32_t head)
{
    uint32_t group = d.v_heads / d.k_heads;
    size_t at = (size_t)t * d.v_heads + head;
    size_t pair = (size_t)t * 2 * d.v_heads + head / group * 2 * group + head % group;
    float beta = d.alpha != NULL ? d.beta[at] : d.beta[pair];
    float alpha = d.alpha != NULL ? d.alpha[at] : d.beta[pair + group];
    float *rates = d.rates + (size_t)t * 2 * d.v_heads;

    rates[head] = decay_of(d.a[head], alpha, d.dt[head]);
    rates[d.v_heads + head] = 1.0f / (1.0f + cuda_exp(-beta));
}

/* A row in x; in y, a warp each: its heads of q, k and v, then 32 value heads' rates. */
static __global__ void __launch_bounds__(THREADS) delta_place(const __grid_constant__ delta_call c)
{
    CUDA_SHARED(float, shared);
    const device_recurrent &r = c.r;
    const device_delta &d = c.d;
    uint32_t warp = blockIdx.y * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t t = r.first + blockIdx.x, channels = channels_of(d), heads = 2 * d.k_heads;

    cuda_await_previous();
    if (warp >= heads + d.v_heads) {
        uint32_t head = (warp - heads - d.v_heads) * 32 + lane;
        if (head < d.v_heads)
            place_rates(d, t, head);
        return;
    }
    uint32_t dim = warp < heads ? d.k_dim : d.v_dim;
    uint32_t first = warp < heads ? warp * dim : heads * d.k_dim + (warp - heads) * dim;
    uint32_t before = recurrent_rows_before(r, t, d.taps - 1);
    const float *past = recurrent_state(r, r.rows[t].slot);
    float *head = shared + threadIdx.x / 32 * max(d.k_dim, d.v_dim);
    float *out = d.placed + (size_t)t * channels + first;
    for (uint32_t i = lane; i < dim; i += 32) {
        float sum = 0;
        for (uint32_t j = 0; j < d.taps; j++)
            sum = __fmaf_rn(d.conv[(size_t)(first + i) * d.taps + j],
                            recurrent_input(r, t, before, d.taps - 1 - j, d.taps, past, channels,
                                            first + i, delta_input{d.qkv, channels}),
                            sum);
        head[i] = sum / (1.0f + cuda_exp(-sum));
    }
    __syncwarp();
    norm_factors f = {0, 1};
    float scale = warp < d.k_heads ? d.q_scale : d.k_scale;
    if (warp < heads)
        f = norm_measure(head, dim, false, d.l2_eps);
    for (uint32_t i = lane; i < dim; i += 32)
        out[i] = warp < heads ? head[i] * f.scale * scale : head[i];
}

/* ---- Step ---- */

/* The positions of a run that are in one chunk: rows [t, t + n), from the chunk's position `first`
 * on. */
struct chunk_part {
    uint32_t t, first, n;
};

/* Shared memory of a block beside S and the rows. */
struct step_scratch {
    float sums[ROWS][COLUMNS]; /* r of the chunk's positions, then p */
    float updates[DELTA_CHUNK][COLUMNS];
    float factors[ROWS][DELTA_CHUNK]; /* of the updates, to u and to o of each position */
    float carry[DELTA_CHUNK], decays[DELTA_CHUNK];
};

/* Where S has the value of row 0 and a column; *stride: to the next row. */
static __device__ __forceinline__ size_t state_column(const head_state &h, uint32_t column,
                                                      uint32_t *stride)
{
    uint32_t block = column / STATE_COLUMNS * STATE_COLUMNS;

    *stride = min((uint32_t)STATE_COLUMNS, h.v_floats - block);
    return (size_t)block * h.k_floats + (column - block);
}

/* s [k_dim][COLUMNS]: zeros before the first chunk's end, which the state does not have. */
static __device__ __forceinline__ void load_state(const delta_call &c, const head_state &h,
                                                  uint32_t position, uint32_t column, float *s)
{
    uint32_t lane = threadIdx.x % 32, stride = 0;
    bool there = position >= DELTA_CHUNK && column < h.v_floats;
    const float *from = h.s + (there ? state_column(h, column, &stride) : 0);

#pragma unroll 16
    for (uint32_t i = threadIdx.x / 32; i < c.d.k_dim; i += WARPS)
        s[i * COLUMNS + lane] = there ? from[(size_t)i * stride] : 0;
}

static __device__ __forceinline__ void store_state(const delta_call &c, const head_state &h,
                                                   uint32_t column, const float *s)
{
    uint32_t lane = threadIdx.x % 32, stride;

    if (column >= h.v_floats)
        return;
    float *to = h.s + state_column(h, column, &stride);
    for (uint32_t i = threadIdx.x / 32; i < c.d.k_dim; i += WARPS)
        to[(size_t)i * stride] = s[i * COLUMNS + lane];
}

/* rows [k_dim][ROW_STRIDE]: the keys of the chunk up to the part's end, the queries of the part. */
static __device__ __forceinline__ void load_rows(const delta_call &c, const head_state &h,
                                                 const chunk_part &p, uint32_t key, float *rows)
{
    const device_delta &d = c.d;
    uint32_t channels = channels_of(d);

    for (uint32_t s = threadIdx.x / 32; s < p.first + p.n; s += WARPS) {
        const float *q = d.placed + (size_t)(p.t + s - p.first) * channels + (size_t)key * d.k_dim;
        const float *k = s < p.first ? h.keys + s * h.k_floats : q + (size_t)d.k_heads * d.k_dim;
        for (uint32_t i = threadIdx.x % 32; i < d.k_dim; i += 32) {
            rows[i * ROW_STRIDE + s] = k[i];
            if (s >= p.first)
                rows[i * ROW_STRIDE + DELTA_CHUNK + s] = q[i];
        }
    }
}

/* R adjacent values of shared memory: one, or whole float4. */
template <int R> static __device__ __forceinline__ void load_values(const float *from, float out[R])
{
    if (R == 1)
        out[0] = *from;
#pragma unroll
    for (int k = 0; k + 4 <= R; k += 4) {
        float4 v = *(const float4 *)(from + k);
        out[k] = v.x;
        out[k + 1] = v.y;
        out[k + 2] = v.z;
        out[k + 3] = v.w;
    }
}

/* sums[first...] = R adjacent rows times S; a lane a column. */
template <int R>
static __device__ __forceinline__ void
multiply_rows(const float *rows, const float *s, uint32_t k_dim, uint32_t first, step_scratch &x)
{
    uint32_t lane = threadIdx.x % 32;
    float sums[R] = {};

#pragma unroll 4
    for (uint32_t i = 0; i < k_dim; i++) {
        float value = s[i * COLUMNS + lane], x_i[R];
        load_values<R>(rows + i * ROW_STRIDE + first, x_i);
#pragma unroll
        for (int k = 0; k < R; k++)
            sums[k] = __fmaf_rn(x_i[k], value, sums[k]);
    }
#pragma unroll
    for (int k = 0; k < R; k++)
        x.sums[first + k][lane] = sums[k];
}

/* factors[row][s] = row . key s: 16 partial sums, a half-warp for each of the part's rows and keys
 * before it, and a query's own. */
static __device__ __forceinline__ void multiply_keys(const chunk_part &p, const float *rows,
                                                     uint32_t k_dim, step_scratch &x)
{
    uint32_t lane = threadIdx.x % 16, end = p.first + p.n;

    for (uint32_t i = threadIdx.x / 32; i < 2 * p.n; i += WARPS) {
        uint32_t at = p.first + i / 2, row = i % 2 * DELTA_CHUNK + at;
        for (uint32_t s0 = 0; s0 <= at; s0 += 2) {
            uint32_t s = min(s0 + threadIdx.x % 32 / 16, end - 1);
            float sum = 0;
            for (uint32_t k = lane; k < k_dim; k += 16)
                sum = __fmaf_rn(rows[k * ROW_STRIDE + row], rows[k * ROW_STRIDE + s], sum);
            sum = cuda_fold_add(sum);
            if (lane == 0)
                x.factors[row][s] = sum;
        }
    }
}

/* Multiplies the factors by the decays; lanes 0 to 15 of a warp have a key each. */
static __device__ __forceinline__ void weigh_factors(const delta_call &c, const head_state &h,
                                                     const chunk_part &p, uint32_t head, bool begun,
                                                     step_scratch &x)
{
    uint32_t s = threadIdx.x;

    if (s >= DELTA_CHUNK)
        return;
    /* those of the state belong to the chunk that the call finds under way */
    float weight = begun && s < p.first ? h.decays[s] : 0;
    float carry = begun && p.first > 0 ? *h.carry : 1;
    for (uint32_t i = 0; i < p.n; i++) {
        uint32_t at = p.first + i;
        float decay = c.d.rates[(size_t)(p.t + i) * 2 * c.d.v_heads + head];
        carry = decayed(carry, decay);
        weight = s < at ? decayed(weight, decay) : s == at ? 1.0f : 0.0f;
        if (s == 0)
            x.carry[at] = carry;
        if (s < at)
            x.factors[at][s] = -weight * x.factors[at][s];
        if (s <= at)
            x.factors[DELTA_CHUNK + at][s] = weight * x.factors[DELTA_CHUNK + at][s];
    }
    x.decays[s] = weight;
}

/* The updates of the part, by one warp: each needs those before it. */
static __device__ __forceinline__ void make_updates(const delta_call &c, const chunk_part &p,
                                                    uint32_t head, uint32_t column, step_scratch &x)
{
    const device_delta &d = c.d;
    uint32_t lane = threadIdx.x, channels = channels_of(d);
    const float *values = d.placed + 2 * (size_t)d.k_heads * d.k_dim + (size_t)head * d.v_dim;

    for (uint32_t i = 0; i < p.n; i++) {
        uint32_t at = p.first + i;
        size_t t = p.t + i;
        float v = column < d.v_dim ? values[t * channels + column] : 0;
        float u = v - x.carry[at] * x.sums[at][lane];
        for (uint32_t s = 0; s < at; s++)
            u = __fmaf_rn(x.factors[at][s], x.updates[s][lane], u);
        x.updates[at][lane] = d.rates[(t * 2 + 1) * d.v_heads + head] * u;
    }
}

static __device__ __forceinline__ void make_outputs(const delta_call &c, const chunk_part &p,
                                                    uint32_t head, uint32_t column,
                                                    const step_scratch &x)
{
    const device_delta &d = c.d;
    uint32_t lane = threadIdx.x % 32;

    for (uint32_t i = threadIdx.x / 32; i < p.n; i += WARPS) {
        uint32_t at = p.first + i, row = DELTA_CHUNK + at;
        float o = x.carry[at] * x.sums[row][lane];
        for (uint32_t s = 0; s <= at; s++)
            o = __fmaf_rn(x.factors[row][s], x.updates[s][lane], o);
        if (column < d.v_dim)
            d.out[((size_t)(p.t + i) * d.v_heads + head) * d.v_dim + column] = o;
    }
}

/* S = g(t) S + the sum of k_s g(t, s) u_s, of a whole chunk. */
static __device__ __forceinline__ void update_state(const float *rows, uint32_t k_dim,
                                                    const step_scratch &x, float *s)
{
    uint32_t lane = threadIdx.x % 32;
    float faded[DELTA_CHUNK], carry = x.carry[DELTA_CHUNK - 1];

#pragma unroll
    for (int k = 0; k < DELTA_CHUNK; k++)
        faded[k] = x.decays[k] * x.updates[k][lane];
    for (uint32_t i = threadIdx.x / 32; i < k_dim; i += WARPS) {
        float sum = carry * s[i * COLUMNS + lane], keys[DELTA_CHUNK];
        load_values<DELTA_CHUNK>(rows + i * ROW_STRIDE, keys);
#pragma unroll
        for (int k = 0; k < DELTA_CHUNK; k++)
            sum = __fmaf_rn(keys[k], faded[k], sum);
        s[i * COLUMNS + lane] = sum;
    }
}

/* All threads call it; begun: the chunk is the one that the call finds under way. */
static __device__ void step_chunk(const delta_call &c, const head_state &h, const chunk_part &p,
                                  uint32_t head, uint32_t column, bool begun, float *s, float *rows,
                                  step_scratch &x)
{
    uint32_t k_dim = c.d.k_dim, warp = threadIdx.x / 32;

    load_rows(c, h, p, key_head(c.d, head), rows);
    __syncthreads();
    if (p.n == 1) {
        if (warp % 2 == 0)
            multiply_rows<1>(rows, s, k_dim, warp / 2 * DELTA_CHUNK + p.first, x);
    } else
        multiply_rows<WARP_ROWS>(rows, s, k_dim, warp * WARP_ROWS, x);
    multiply_keys(p, rows, k_dim, x);
    __syncthreads();
    weigh_factors(c, h, p, head, begun, x);
    __syncthreads();
    if (warp == 0)
        make_updates(c, p, head, column, x);
    __syncthreads();
    make_outputs(c, p, head, column, x);
    if (p.first + p.n == DELTA_CHUNK)
        update_state(rows, k_dim, x, s);
    __syncthreads();
}

/* Columns of a value head in x, a run in y. */
static __global__ void __launch_bounds__(THREADS) delta_step(const __grid_constant__ delta_call c)
{
    CUDA_SHARED(float, s);
    __shared__ step_scratch x;
    const device_recurrent &r = c.r;
    const device_delta &d = c.d;
    uint32_t blocks = (d.v_dim + COLUMNS - 1) / COLUMNS, head = blockIdx.x / blocks;
    uint32_t column = blockIdx.x % blocks * COLUMNS + threadIdx.x % 32;
    float *rows = s + d.k_dim * COLUMNS;

    cuda_await_previous();
    recurrent_piece piece = recurrent_run(r, blockIdx.y);
    if (piece.begin >= piece.end)
        return;
    uint32_t position = r.rows[piece.begin].position, first = position % DELTA_CHUNK;
    head_state h = state_of(c, r.rows[piece.begin].slot, head);
    chunk_part p = {piece.begin, first, 0};
    load_state(c, h, position, column, s);
    for (uint32_t i = threadIdx.x; i < d.k_dim * ROW_STRIDE; i += THREADS)
        rows[i] = 0;
    for (uint32_t k = threadIdx.x / 32; k < first; k += WARPS)
        x.updates[k][threadIdx.x % 32] =
            column < h.v_floats ? h.updates[k * h.v_floats + column] : 0;
    __syncthreads();
    for (; p.t < piece.end; p.t += p.n, p.first = 0) {
        p.n = min(piece.end - p.t, DELTA_CHUNK - p.first);
        step_chunk(c, h, p, head, column, p.t == piece.begin, s, rows, x);
    }
    if (stopped(c))
        return;
    if (first + (piece.end - piece.begin) >= DELTA_CHUNK)
        store_state(c, h, column, s);
    uint32_t end = position + (piece.end - piece.begin) - 1, last = end % DELTA_CHUNK;
    bool begun = position / DELTA_CHUNK == end / DELTA_CHUNK; /* the state has the chunk's others */
    for (uint32_t k = (begun ? first : 0) + threadIdx.x / 32; k <= last; k += WARPS)
        if (column < d.v_dim)
            h.updates[k * h.v_floats + column] = x.updates[k][threadIdx.x % 32];
}

/* ---- Finish ---- */

/* What the next call needs of the chunk that ends, or goes on, with row t, its run's last. Of the
 * chunk, `rows` rows before t are of this call. A warp a value head. */
static __device__ void keep_chunk(const delta_call &c, uint32_t t, uint32_t rows, uint32_t head)
{
    const device_delta &d = c.d;
    uint32_t lane = threadIdx.x % 32, last = c.r.rows[t].position % DELTA_CHUNK;
    head_state h = state_of(c, c.r.rows[t].slot, head);
    uint32_t first = last - rows;
    const float *keys = d.placed + (size_t)(d.k_heads + key_head(d, head)) * d.k_dim;

    for (uint32_t at = first; at <= last; at++) {
        const float *key = keys + (size_t)(t - (last - at)) * channels_of(d);
        for (uint32_t i = lane; i < d.k_dim; i += 32)
            h.keys[at * h.k_floats + i] = key[i];
    }
    float weight = lane < first ? h.decays[lane] : 0, carry = first > 0 ? *h.carry : 1;
    for (uint32_t at = first; at <= last; at++) {
        float decay = d.rates[(size_t)(t - (last - at)) * 2 * d.v_heads + head];
        carry = decayed(carry, decay);
        weight = lane < at ? decayed(weight, decay) : lane == at ? 1.0f : 0.0f;
    }
    __syncwarp();
    if (lane < DELTA_CHUNK)
        h.decays[lane] = weight;
    if (lane == 0)
        *h.carry = carry;
}

/* Norms and gates a value head of a row. */
static __device__ void finish_head(const delta_call &c, uint32_t t, uint32_t head)
{
    const device_delta &d = c.d;
    size_t at = ((size_t)t * d.v_heads + head) * d.v_dim;
    float *out = d.out + at;
    norm_factors f = norm_measure(out, d.v_dim, false, d.eps);
    uint32_t lane = threadIdx.x % 32;

    __syncwarp();
    for (uint32_t i0 = 0; i0 < d.v_dim; i0 += 32) {
        uint32_t i = i0 + lane;
        float value = 0;
        if (i < d.v_dim) {
            value =
                cuda_gated(ACTIVATION_SILU, 0, d.z[at + i], norm_value(f, out[i], d.norm, NULL, i));
            out[i] = value;
        }
        if (c.quantized.q != NULL)
            quantize_32(c.quantized, t, (head * d.v_dim + i0) / 32, value);
    }
}

/* A row in x, its value heads in y, a warp each. */
static __global__ void __launch_bounds__(THREADS) delta_finish(const __grid_constant__ delta_call c)
{
    const device_recurrent &r = c.r;
    const device_delta &d = c.d;
    uint32_t head = blockIdx.y * WARPS + threadIdx.x / 32, t = r.first + blockIdx.x;
    uint32_t channels = channels_of(d);

    cuda_await_previous();
    if (head >= d.v_heads)
        return;
    finish_head(c, t, head);
    if (!recurrent_is_last(r, t) || stopped(c))
        return;
    uint32_t before = recurrent_rows_before(r, t, CONVOLVE_TAPS - 1);
    keep_chunk(c, t, min(before, r.rows[t].position % DELTA_CHUNK), head);
    float *past = recurrent_state(r, r.rows[t].slot);
    for (uint32_t i = head * 32 + threadIdx.x % 32; i < channels; i += d.v_heads * 32)
        recurrent_keep_inputs(r, t, before, d.taps, past, channels, i,
                              delta_input{d.qkv, channels});
}

void cuda_delta(struct device_stream *s, const struct device_recurrent *r,
                const struct device_delta *d, const struct device_activations *quantized)
{
    delta_call c = {*r, *d, delta_state_floats(d->k_dim, d->v_dim), {}, s->guard};
    unsigned place = 2 * d->k_heads + d->v_heads + (d->v_heads + 31) / 32;
    unsigned columns = (d->v_dim + COLUMNS - 1) / COLUMNS;

    if (r->n == 0)
        return;
    if (quantized && d->v_dim % 32 == 0)
        c.quantized = *quantized;
    CUDA_LAUNCH_EARLY(delta_place, dim3(r->n, (place + WARPS - 1) / WARPS), THREADS,
                      WARPS * max(d->k_dim, d->v_dim) * sizeof(float), s, c);
    cuda_check(s, "delta_place");
    CUDA_LAUNCH_EARLY(delta_step, dim3(d->v_heads * columns, r->n_runs), THREADS,
                      d->k_dim * (COLUMNS + ROW_STRIDE) * sizeof(float), s, c);
    cuda_check(s, "delta_step");
    CUDA_LAUNCH_EARLY(delta_finish, dim3(r->n, (d->v_heads + WARPS - 1) / WARPS), THREADS, 0, s, c);
    cuda_check(s, "delta_finish");
    if (quantized && !c.quantized.q)
        cuda_quantize(s, quantized);
}
