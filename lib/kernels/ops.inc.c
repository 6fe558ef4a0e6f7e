/* The dense float32 operations of all builds. Included after the build's lanes_*.h, so that each
 * build compiles the same steps on its own 16 lanes. The last part of fewer than 16 elements is
 * padded with values that do not change the result. */
#include "kernels/kernels.h"

#include <float.h>
#include <math.h>

/* Adding 1.5 * 2^23 leaves x, rounded to nearest even, in the low bits of the sum (|x| < 2^22). */
#define ROUNDING 12582912.0f

static inline vf load_part(const float *p, size_t n, float padding)
{
    float lanes[16];

    for (size_t l = 0; l < 16; l++)
        lanes[l] = l < n ? p[l] : padding;
    return vf_load(lanes);
}

static inline void store_part(float *p, size_t n, vf a)
{
    float lanes[16];

    vf_store(lanes, a);
    memcpy(p, lanes, n * sizeof *p);
}

/* exp(x) = 2^n p(r): n = round(x / ln 2), r = x - n ln 2 in two steps, p a polynomial of
 * degree 6 (Chebyshev nodes; within 1.1e-8 of e^r) in Horner form. 2^n is applied in two factors,
 * so results overflow to infinity and underflow through the subnormals as multiplication does. The
 * clamp keeps n small; outside of it the result is 0 or infinity already. A NaN passes through the
 * clamp (see vf_max) and the rest. */
static inline vf vf_exp(vf x)
{
    const vf magic = vf_set1(ROUNDING);
    vf clamped = vf_max(vf_set1(-150.0f), vf_min(vf_set1(130.0f), x));
    vf shifted = vf_add(vf_mul(clamped, vf_set1(0x1.715476p+0f)), magic);
    vf n = vf_sub(shifted, magic);
    vi power = vi_sub(vf_bits(shifted), vf_bits(magic));
    vf r = vf_fma(n, vf_set1(-0x1.62e400p-1f), clamped);
    vf p;
    vi power_1, power_2;

    r = vf_fma(n, vf_set1(-0x1.7f7d1cp-20f), r);
    p = vf_set1(0x1.6d110ap-10f);
    p = vf_fma(p, r, vf_set1(0x1.120b6ep-7f));
    p = vf_fma(p, r, vf_set1(0x1.55551ap-5f));
    p = vf_fma(p, r, vf_set1(0x1.5554dcp-3f));
    p = vf_fma(p, r, vf_set1(0.5f));
    p = vf_fma(p, r, vf_set1(1.0f));
    p = vf_fma(p, r, vf_set1(1.0f));
    power_1 = vi_half(power);
    power_2 = vi_sub(power, power_1);
    p = vf_mul(p, vi_floats(vi_shift_left_23(vi_add(power_1, vi_set1(127)))));
    return vf_mul(p, vi_floats(vi_shift_left_23(vi_add(power_2, vi_set1(127)))));
}

/* d and 1 / d of a block with this largest |x|, given by its bits: they order like the values, with
 * infinities and NaNs above every number. If the block is too small for a finite 1 / d, it is zero.
 * If it is not finite, it is all NaN, so that an earlier fault shows in the result. */
static inline float block_scale(int32_t max_bits, float *inverse)
{
    float max, d;

    memcpy(&max, &max_bits, sizeof max);
    *inverse = 0;
    if (max_bits >= 0x7f800000)
        return NAN;
    d = max / 127.0f;
    if (!(d > 0) || 1.0f / d > FLT_MAX)
        return 0;
    *inverse = 1.0f / d;
    return d;
}

/* 16 columns; returns the sum of q. */
static inline int32_t quantize_16(const float *x, int8_t *q, float *d, int16_t minus_sum8[2])
{
    const vf magic = vf_set1(ROUNDING);
    vf values = vf_load(x);
    int16_t sum8[2];
    float inverse;
    vi quants;

    *d = block_scale(vi_fold_max(vi_and(vf_bits(values), vi_set1(0x7fffffff))), &inverse);
    if (inverse == 0) {
        memset(q, 0, 16);
        minus_sum8[0] = minus_sum8[1] = 0;
        return 0;
    }
    quants = vf_bits(vf_add(vf_mul(values, vf_set1(inverse)), magic));
    quants = vi_sub(quants, vf_bits(magic));
    vi_store_int8(q, quants);
    vi_fold_pairs(quants, sum8);
    minus_sum8[0] = (int16_t)-sum8[0];
    minus_sum8[1] = (int16_t)-sum8[1];
    return sum8[0] + sum8[1];
}

static void quantize_block(const float *x, int8_t *q, float d[2], float *bias,
                           int16_t minus_sum8[4])
{
    float sum_0 = (float)quantize_16(x, q, &d[0], minus_sum8);
    float sum_1 = (float)quantize_16(x + 16, q + 16, &d[1], minus_sum8 + 2);

    *bias = fmaf(sum_1, d[1], sum_0 * d[0]);
}

static void quantize(struct activations *a, uint32_t first, uint32_t count)
{
    uint32_t blocks = act_blocks(a->cols);

    for (uint32_t t = first; t < first + count; t++) {
        const float *x = a->x + t * a->x_stride;
        int8_t *q = a->q + t * act_q_stride(a->cols);
        size_t row = (size_t)t * blocks;

        for (uint32_t b = 0; b < blocks; b++, row++) {
            const float *values = x + 32 * b;
            float last[32] = {0};

            if (a->cols - 32 * b < 32) {
                memcpy(last, values, (a->cols - 32 * b) * sizeof *x);
                values = last;
            }
            quantize_block(values, q + 32 * b, a->d + 2 * row, a->bias + row,
                           a->minus_sum8 + 4 * row);
        }
    }
}

static inline vf vf_negate(vf x)
{
    return vf_sub(vf_set1(-0.0f), x);
}

static inline vf vf_silu(vf x)
{
    vf one = vf_set1(1.0f);

    return vf_div(x, vf_add(one, vf_exp(vf_negate(x))));
}

static inline vf vf_swiglu_clamped(vf gate, vf up)
{
    vf limit = vf_set1(7.0f), one = vf_set1(1.0f);
    vf g = vf_negate(vf_max(vf_negate(limit), vf_negate(gate)));
    vf u = vf_negate(vf_max(vf_negate(limit), vf_negate(vf_max(vf_negate(limit), up))));
    vf swish = vf_div(g, vf_add(one, vf_exp(vf_mul(vf_set1(-1.702f), g))));

    return vf_mul(swish, vf_add(u, one));
}

/* -2 t = x (a + b x^2), a = -sqrt(8 / pi), b = 0.044715 a. */
static inline vf vf_gelu(vf x)
{
    vf inner = vf_fma(vf_mul(x, x), vf_set1(-0x1.2444f2p-4f), vf_set1(-0x1.988454p+0f));

    return vf_div(x, vf_add(vf_set1(1.0f), vf_exp(vf_mul(x, inner))));
}

/* x, at most `limit`. The order of operands decides what NaN gives (see vf_max). */
static inline vf vf_at_most(vf limit, vf x)
{
    return vf_negate(vf_max(vf_negate(limit), vf_negate(x)));
}

static inline vf vf_silu_limited(vf gate, vf up, float most)
{
    vf limit = vf_set1(most);

    return vf_mul(vf_at_most(limit, vf_silu(gate)),
                  vf_at_most(limit, vf_max(vf_negate(limit), up)));
}

/* ln(1 + y), y from 0 to 1: 2 artanh(s), s = y / (2 + y), by its series to s^15. */
static inline vf vf_log1p(vf y)
{
    vf s = vf_div(y, vf_add(vf_set1(2.0f), y)), s2 = vf_mul(s, s), p = vf_set1(2.0f / 15);

    p = vf_fma(p, s2, vf_set1(2.0f / 13));
    p = vf_fma(p, s2, vf_set1(2.0f / 11));
    p = vf_fma(p, s2, vf_set1(2.0f / 9));
    p = vf_fma(p, s2, vf_set1(2.0f / 7));
    p = vf_fma(p, s2, vf_set1(2.0f / 5));
    p = vf_fma(p, s2, vf_set1(2.0f / 3));
    p = vf_fma(p, s2, vf_set1(2.0f));
    return vf_mul(p, s);
}

/* max(x, 0) + ln(1 + exp(-|x|)). */
static inline vf vf_softplus(vf x)
{
    vf above = vf_max(vf_set1(0.0f), x), below = vf_min(vf_set1(0.0f), x);

    return vf_add(above, vf_log1p(vf_exp(vf_sub(below, above))));
}

static inline vf vf_gated(struct gating g, vf gate, vf up)
{
    switch (g.activation) {
    case ACTIVATION_SILU:
        if (g.limit > 0)
            return vf_silu_limited(gate, up, g.limit);
        return vf_mul(vf_silu(gate), up);
    case ACTIVATION_SWIGLU_CLAMPED:
        return vf_swiglu_clamped(gate, up);
    case ACTIVATION_GELU:
        return vf_mul(vf_gelu(gate), up);
    case ACTIVATION_SOFTPLUS:
        return vf_mul(vf_softplus(gate), up);
    case ACTIVATION_RELU_SQUARED:
        up = vf_max(vf_set1(0.0f), up);
        return vf_mul(up, up);
    case ACTIVATION_SIGMOID:
        break;
    }
    return vf_div(up, vf_add(vf_set1(1.0f), vf_exp(vf_negate(gate))));
}

static void gated(struct gating g, const float *gate, const float *up, float *h, size_t n)
{
    size_t i = 0;

    for (; i + 16 <= n; i += 16)
        vf_store(h + i, vf_gated(g, vf_load(gate + i), vf_load(up + i)));
    if (i < n)
        store_part(h + i, n - i,
                   vf_gated(g, load_part(gate + i, n - i, 0), load_part(up + i, n - i, 0)));
}

/* tanh(y) = 1 - 2 / (1 + exp(2 y)). */
static inline vf vf_soft_cap(vf cap, vf twice_inverse, vf x)
{
    vf one = vf_set1(1.0f);
    vf below = vf_div(vf_set1(2.0f), vf_add(one, vf_exp(vf_mul(x, twice_inverse))));

    return vf_mul(cap, vf_sub(one, below));
}

static void soft_cap(float cap, float *x, size_t n)
{
    vf most = vf_set1(cap), twice_inverse = vf_set1(2.0f / cap);
    size_t i = 0;

    for (; i + 16 <= n; i += 16)
        vf_store(x + i, vf_soft_cap(most, twice_inverse, vf_load(x + i)));
    if (i < n)
        store_part(x + i, n - i, vf_soft_cap(most, twice_inverse, load_part(x + i, n - i, 0)));
}

static void rms_norm(const float *x, const float *w, float eps, size_t n, float *out)
{
    vf squares = vf_set1(0);
    vf scale;
    size_t i;

    for (i = 0; i + 16 <= n; i += 16) {
        vf v = vf_load(x + i);
        squares = vf_fma(v, v, squares);
    }
    if (i < n) {
        vf v = load_part(x + i, n - i, 0);
        squares = vf_fma(v, v, squares);
    }
    scale = vf_set1(1.0f / sqrtf(vf_fold_add(squares) / (float)n + eps));
    for (i = 0; i + 16 <= n; i += 16) {
        vf v = vf_mul(vf_load(x + i), scale);
        vf_store(out + i, w != NULL ? vf_mul(v, vf_load(w + i)) : v);
    }
    if (i < n) {
        vf v = vf_mul(load_part(x + i, n - i, 0), scale);
        store_part(out + i, n - i, w != NULL ? vf_mul(v, load_part(w + i, n - i, 0)) : v);
    }
}

static void layer_norm(const float *x, const float *w, const float *b, float eps, size_t n,
                       float *out)
{
    vf sum = vf_set1(0), squares = vf_set1(0);
    vf mean, scale;
    float center;
    size_t i;

    for (i = 0; i + 16 <= n; i += 16)
        sum = vf_add(sum, vf_load(x + i));
    if (i < n)
        sum = vf_add(sum, load_part(x + i, n - i, 0));
    center = vf_fold_add(sum) / (float)n;
    mean = vf_set1(center);
    for (i = 0; i + 16 <= n; i += 16) {
        vf v = vf_sub(vf_load(x + i), mean);
        squares = vf_fma(v, v, squares);
    }
    if (i < n) {
        vf v = vf_sub(load_part(x + i, n - i, center), mean);
        squares = vf_fma(v, v, squares);
    }
    scale = vf_set1(1.0f / sqrtf(vf_fold_add(squares) / (float)n + eps));
    for (i = 0; i + 16 <= n; i += 16) {
        vf v = vf_mul(vf_sub(vf_load(x + i), mean), scale);
        vf_store(out + i, vf_fma(v, vf_load(w + i), vf_load(b + i)));
    }
    if (i < n) {
        vf v = vf_mul(vf_sub(load_part(x + i, n - i, 0), mean), scale);
        store_part(out + i, n - i,
                   vf_fma(v, load_part(w + i, n - i, 0), load_part(b + i, n - i, 0)));
    }
}

/* Replaces x by exp(x - the largest of x) and returns the sum. */
static float exponentials(float *x, size_t n, float *largest)
{
    vf max = vf_set1(-INFINITY), sum = vf_set1(0), top;
    size_t i;

    for (i = 0; i + 16 <= n; i += 16)
        max = vf_max(max, vf_load(x + i));
    if (i < n)
        max = vf_max(max, load_part(x + i, n - i, -INFINITY));
    *largest = vf_fold_max(max);
    top = vf_set1(*largest);
    for (i = 0; i + 16 <= n; i += 16) {
        vf e = vf_exp(vf_sub(vf_load(x + i), top));
        vf_store(x + i, e);
        sum = vf_add(sum, e);
    }
    if (i < n) {
        vf e = vf_exp(vf_sub(load_part(x + i, n - i, -INFINITY), top));
        store_part(x + i, n - i, e);
        sum = vf_add(sum, e);
    }
    return vf_fold_add(sum);
}

static float exponential(float x)
{
    float lanes[16];

    vf_store(lanes, vf_exp(vf_set1(x)));
    return lanes[0];
}

static inline vf vf_sigmoid(vf x)
{
    vf one = vf_set1(1.0f);

    return vf_div(one, vf_add(one, vf_exp(vf_negate(x))));
}

static void sigmoid(float *x, size_t n)
{
    size_t i;

    for (i = 0; i + 16 <= n; i += 16)
        vf_store(x + i, vf_sigmoid(vf_load(x + i)));
    if (i < n)
        store_part(x + i, n - i, vf_sigmoid(load_part(x + i, n - i, 0)));
}

static void softmax(float *x, size_t n)
{
    float largest;
    vf inverse = vf_set1(1.0f / exponentials(x, n, &largest));
    size_t i;

    for (i = 0; i + 16 <= n; i += 16)
        vf_store(x + i, vf_mul(vf_load(x + i), inverse));
    if (i < n)
        store_part(x + i, n - i, vf_mul(load_part(x + i, n - i, 0), inverse));
}

static float exp_sum(const float *x, float top, size_t n)
{
    vf sum = vf_set1(0), most = vf_set1(top);
    size_t i;

    for (i = 0; i + 16 <= n; i += 16)
        sum = vf_add(sum, vf_exp(vf_sub(vf_load(x + i), most)));
    if (i < n)
        sum = vf_add(sum, vf_exp(vf_sub(load_part(x + i, n - i, -INFINITY), most)));
    return vf_fold_add(sum);
}

static inline vi vf_weights(vf x, float top, float scale, int32_t least)
{
    vf e = vf_exp(vf_mul(vf_sub(x, vf_set1(top)), vf_set1(scale)));

    /* the maximum of a NaN and 0 is 0 */
    return vi_at_least(vf_to_ints(vf_mul(vf_max(e, vf_set1(0)), vf_set1(WEIGH_ONE))), least);
}

/* Lanes of 32 bits hold the sums of the weights' lower and upper halves of WEIGH_MOST / 16 of them.
 */
static uint64_t weigh(const float *x, float top, float scale, int32_t least, size_t n, int32_t *w)
{
    vi low = vi_set1(0), high = vi_set1(0), lower = vi_set1(0xffff), v;
    int32_t sums[2][16], last[16];
    uint64_t sum = 0;
    size_t i;

    for (i = 0; i + 16 <= n; i += 16) {
        v = vf_weights(vf_load(x + i), top, scale, least);
        vi_store(w + i, v);
        low = vi_add(low, vi_and(v, lower));
        high = vi_add(high, vi_right_32(v, 16));
    }
    if (i < n) {
        v = vf_weights(load_part(x + i, n - i, -INFINITY), top, scale, least);
        vi_store(last, v);
        memcpy(w + i, last, (n - i) * sizeof *w);
        low = vi_add(low, vi_and(v, lower));
        high = vi_add(high, vi_right_32(v, 16));
    }
    vi_store(sums[0], low);
    vi_store(sums[1], high);
    for (int l = 0; l < 16; l++)
        sum += (uint64_t)sums[0][l] + ((uint64_t)sums[1][l] << 16);
    return sum;
}

static void axpy(float a, const float *x, float *y, size_t n)
{
    vf va = vf_set1(a);
    size_t i = 0;

    for (; i + 16 <= n; i += 16)
        vf_store(y + i, vf_fma(va, vf_load(x + i), vf_load(y + i)));
    if (i < n)
        store_part(y + i, n - i,
                   vf_fma(va, load_part(x + i, n - i, 0), load_part(y + i, n - i, 0)));
}

static void add(const float *x, float *y, size_t n)
{
    size_t i = 0;

    for (; i + 16 <= n; i += 16)
        vf_store(y + i, vf_add(vf_load(y + i), vf_load(x + i)));
    if (i < n)
        store_part(y + i, n - i, vf_add(load_part(y + i, n - i, 0), load_part(x + i, n - i, 0)));
}

static void rotate(float *a, float *b, const float *cosines, const float *sines, uint32_t n)
{
    uint32_t i = 0;

    for (; i + 16 <= n; i += 16) {
        vf x = vf_load(a + i), y = vf_load(b + i), c = vf_load(cosines + i), s = vf_load(sines + i);

        vf_store(a + i, vf_sub(vf_mul(x, c), vf_mul(y, s)));
        vf_store(b + i, vf_add(vf_mul(x, s), vf_mul(y, c)));
    }
    if (i < n) {
        vf x = load_part(a + i, n - i, 0), y = load_part(b + i, n - i, 0);
        vf c = load_part(cosines + i, n - i, 0), s = load_part(sines + i, n - i, 0);

        store_part(a + i, n - i, vf_sub(vf_mul(x, c), vf_mul(y, s)));
        store_part(b + i, n - i, vf_add(vf_mul(x, s), vf_mul(y, c)));
    }
}

#include "kernels/attend.inc.c"
#include "kernels/delta.inc.c"
#include "kernels/mamba2.inc.c"

#define KERNELS_TABLE                                                                              \
    {                                                                                              \
        .name = LANES_NAME, .quantize = quantize, .multiply = multiply, .gated = gated,            \
        .soft_cap = soft_cap, .rms_norm = rms_norm, .layer_norm = layer_norm,                      \
        .exponential = exponential, .sigmoid = sigmoid, .softmax = softmax, .exp_sum = exp_sum,    \
        .weigh = weigh, .axpy = axpy, .add = add, .rotate = rotate, .kv_write = kv_write,          \
        .attend_scratch = attend_scratch, .attend_block = attend_block,                            \
        .attend_merge = attend_merge, .attend_finish = attend_finish, .delta = delta,              \
        .mamba2 = mamba2, .convolve = convolve,                                                    \
    }
