/* The arithmetic of moed on a CPU. One definition (the portable build of each function), and builds
 * for AVX2 and AVX-512 that give the same bits, chosen once at start by what the CPU has.
 *
 * The definition of y = W x, one row:
 *   quantised types: x is quantised once to blocks of 16: d_x = max|x| / 127, q = round to nearest
 * even of x * (1 / d_x), int8 (d_x = 0, or so small that 1 / d_x overflows, gives d_x = 0 and q =
 * 0; an infinity or NaN in the block gives d_x = NaN, so that the fault shows in y). For each 32
 * columns, whose two halves have the scales d_x0 and d_x1 and sums of q sum_q0 and sum_q1,
 *     bias = fmaf((float)sum_q1, d_x1, (float)sum_q0 * d_x0).
 * For each block of 32 columns in order, the products of quants of each half are summed exactly as
 * integers i0 and i1: the quants less the type's offset (Q4_0, Q5_0, Q3_K, Q6_K) or the values of its
 * table (IQ4_NL, IQ4_XS, MXFP4), and for Q2_K, Q3_K and Q6_K times the scale of each 16 columns. Then
 *     p = fmaf((float)i1, d_x1, (float)i0 * d_x0)
 *     acc = fmaf(p, w, acc), w = d, or for Q4_K, Q5_K and IQ4_XS w = d * (float)scale
 *     for Q4_1 and Q5_1 then acc = fmaf(m, bias, acc)
 *     for Q4_K and Q5_K then acc = fmaf(-(dmin * (float)min), bias, acc)
 *     for Q2_K, whose minima are for 16 columns, then with the integers j0 = -min_0 * sum_q0 and
 *     j1 = -min_1 * sum_q1: acc = fmaf(fmaf((float)j1, d_x1, (float)j0 * d_x0), dmin, acc).
 *   float types: acc = fmaf((float)w, x, acc), column by column.
 * acc starts at 0 for each 256 columns; y = ((acc_0 + acc_1) + acc_2) + ... Each token's result
 * depends on nothing but its own x: not on the batch, the thread or the machine.
 *
 * The definition of attention, one query q over its positions. They are cut at absolute multiples of 256; within such a
 * block, in order of j,
 *     s_j = scale * (q . k_j): 16 partial sums, element i by fmaf into sum i mod 16, folded
 *     m = max s_j; p_j = exp(s_j - m)
 *     l = sum p_j: 16 partial sums, the block's i-th position of the query (from 0) added to sum i mod 16, folded
 *     o = sum p_j v_j: each element by fmaf(p_j, v_j, o) from 0.
 * The first block gives M = m, L = l, O = o. Each next one, with M' = max(M, m), a = exp(M - M'), c = exp(m - M'):
 *     L = fmaf(L, a, l * c), O = fmaf(O, a, o * c), M = M'.
 * A sink, one more logit that has no value, comes last: M' = max(M, sink), a = exp(M - M'),
 *     L = fmaf(L, a, exp(sink - M')), O = O * a.
 * The result is O / L. Blocks may so be computed by different threads. Folded: sum i + sum i + 8 for i < 8, then 4, 2, 1.
 * Cached halves and quants are read exactly (d * q of Q8_0 is exact in float32), the arithmetic is the same. Where a NaN
 * or an infinity takes part, the result may be any NaN.
 */
#ifndef MOED_KERNELS_KERNELS_H
#define MOED_KERNELS_KERNELS_H

#include "kernels/tile.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Activations of n_tokens tokens, ready to be multiplied. Borrowed memory: the caller provides
 * act_bytes(cols, n_tokens) bytes, TILE_ALIGN aligned, and act_bind cuts them up. cols is a
 * multiple of 32 where the weights are quantised; else any. */
struct activations {
    uint32_t n_tokens, cols;
    const float *x;  /* [n_tokens][x_stride] float32; borrowed from the caller */
    size_t x_stride; /* in floats */
    int8_t *q;       /* [n_tokens][cols rounded up to 64] */
    float *d;        /* [n_tokens][blocks of 16], as many as fill blocks of 32 */
    float *bias;     /* [n_tokens][blocks of 32]: the sum of 32 q * d */
    /* [n_tokens][blocks of 16][2]: minus the sum of the q in columns 0 and 1 of every 4, and in 2
     * and 3: times the type's offset, this is what the sums of vector builds begin with. */
    int16_t *minus_sum8;
};
size_t act_bytes(uint32_t cols, uint32_t n_tokens);
void act_bind(struct activations *a, void *memory, uint32_t cols, uint32_t n_tokens, const float *x,
              size_t x_stride);

enum activation {
    ACTIVATION_SILU,           /* silu(g) * u; silu(x) = x / (1 + exp(-x)) with kernels' own exp */
    ACTIVATION_SWIGLU_CLAMPED, /* g' / (1 + exp(-1.702 g')) * (u' + 1), g' = min(g, 7), u' = u within -7..7 */
};

/* The keys and values of one KV head of one request, position j at j strides. Borrowed. Latent attention's values are
 * the first part of its keys. type: F32, F16 or Q8_0, whose dimensions are multiples of 32. */
struct kv_head {
    enum tensor_type type;
    uint32_t k_dim, v_dim;
    const void *keys, *values;
    size_t key_stride, value_stride; /* in bytes */
};

enum {
    ATTEND_BLOCK = 256,  /* positions, at absolute multiples */
    ATTEND_QUERIES = 32, /* that share the reading of a block */
};

/* One query head of one row, and the positions [first, end) that it attends to. */
struct attend_query {
    const float *q; /* [k_dim] */
    uint32_t first, end;
};

/* What a query has of some positions: the largest score, the sum of the weights exp(score - max), and the values summed
 * by weight. sum 0: no position yet. */
struct attend_part {
    float max, sum;
    float *values; /* attend_block writes v_dim rounded up to 16; the others read and write v_dim */
};

enum {
    WEIGH_ONE = 1 << 30,
    WEIGH_MOST = 1 << 16,
};

/* The functions of one build. */
struct kernels {
    const char *name; /* "portable", "avx2", "avx512" */

    /* Quantise tokens [first, first + count) of a. */
    void (*quantize)(struct activations *a, uint32_t first, uint32_t count);

    /* y[t][16 * tile + r] for the tile rows [tile_first, tile_first + tile_count) of m and the
     * tokens tokens[0..n_tokens) of a (indices; NULL: 0..n_tokens). Row i of y belongs to
     * tokens[i]. Writes rows below m->rows only. accumulate: y += (one float add after the row's
     * sum). */
    void (*multiply)(const struct matrix *m, uint32_t tile_first, uint32_t tile_count,
                     const struct activations *a, const uint32_t *tokens, uint32_t n_tokens,
                     float *y, size_t y_stride, bool accumulate);

    /* h[i] from gate[i] and up[i], as enum activation says. */
    void (*gated)(enum activation act, const float *gate, const float *up, float *h, size_t n);

    /* out[i] = x[i] * scale * w[i], scale = 1 / sqrt(mean(x^2) + eps); 16 partial sums by i mod 16,
     * folded 8, 4, 2, 1. w NULL: 1. out may be x. */
    void (*rms_norm)(const float *x, const float *w, float eps, size_t n, float *out);

    /* out[i] = (x[i] - mean) * scale * w[i] + b[i], scale = 1 / sqrt(mean((x - mean)^2) + eps); sums as above,
     * the last step fused. out may be x. */
    void (*layer_norm)(const float *x, const float *w, const float *b, float eps, size_t n,
                       float *out);

    /* Numerically stable softmax in place (max subtracted, own exp, 16 partial sums as above). */
    void (*softmax)(float *x, size_t n);

    /* w[i] = exp(scale * (x[i] - top)) in units of 1 / WEIGH_ONE, to the nearest and of two the even one; 0 where that is no
     * number, or less than `least`. top is at least the largest of x. n is at most WEIGH_MOST. Returns the sum of w. */
    uint64_t (*weigh)(const float *x, float top, float scale, int32_t least, size_t n, int32_t *w);

    /* y[i] = fmaf(a, x[i], y[i]). */
    void (*axpy)(float a, const float *x, float *y, size_t n);
    /* y[i] += x[i]. */
    void (*add)(const float *x, float *y, size_t n);

    /* Pairs (a[i], b[i]) turned: a' = a cos - b sin, b' = a sin + b cos, each product rounded. n of all four. */
    void (*rotate)(float *a, float *b, const float *cosines, const float *sines, uint32_t n);

    /* n values of one head to a row of the KV cache: F32 as they are, F16 rounded to nearest even, Q8_0 (n a multiple
     * of 32) with d = max|x| / 127 of each 32, q = x * (1 / d) rounded to nearest even, d then stored as a half. */
    void (*kv_write)(enum tensor_type type, const float *x, uint32_t n, void *row);

    /* Attention, in three steps: the positions of each block, blocks together in their order, the division. */
    /* Bytes that attend_block needs; 64 bytes aligned. */
    size_t (*attend_scratch)(uint32_t k_dim, uint32_t v_dim);
    /* Positions 256 * block to 256 * block + 255, as far as they are among a query's, for up to ATTEND_QUERIES queries
     * of one KV head. parts[i] (max, sum and what values points at) is overwritten; sum 0: the query has none of them. */
    void (*attend_block)(const struct kv_head *kv, uint32_t block, float scale,
                         const struct attend_query *queries, uint32_t n, void *scratch,
                         struct attend_part *parts);
    /* The next block's part to those before it. */
    void (*attend_merge)(struct attend_part *to, const struct attend_part *from, uint32_t v_dim);
    /* After the last one: the sink, or NULL, and the division: values is the result. */
    void (*attend_finish)(struct attend_part *part, const float *sink, uint32_t v_dim);
};

/* Chosen at the first call by the CPU, or by kernels_select. Never NULL. */
const struct kernels *kernels_get(void);
/* "portable", "avx2", "avx512" or "auto"; false when this CPU or build lacks it. Not while others
 * compute: at start. */
bool kernels_select(const char *name);
/* NULL-terminated names that this CPU can run, best first. */
const char *const *kernels_available(void);

/* The definition's exp: correctly ordered steps that every build repeats. */
float kernels_exp(float x);

/* Rotate in place the first rope_dims of one head. cos_sin: [2][rope_dims / 2] for this position, the cosines first.
 * neox: pairs (i, i + rope_dims / 2); else (2i, 2i + 1). */
void rope_apply(float *head, uint32_t rope_dims, const float *cos_sin, bool neox);

#endif
