/* The arithmetic of moed on a CPU. Each function has one definition, its portable build. The builds
 * for AVX2 and AVX-512 give the same bits. The first call chooses a build by the CPU.
 *
 * A token's result depends only on its own x: not on the batch, the thread or the machine.
 *
 * y = W x, one row
 *
 * acc starts at 0 for each 256 columns; y = ((acc_0 + acc_1) + acc_2) + ...
 *
 * Float types:
 *     acc = fmaf((float)w, x, acc), column by column
 *
 * Quantised types quantise x once, in blocks of 16:
 *     d_x = max|x| / 127
 *     q   = x * (1 / d_x), rounded to nearest even, int8
 *     If d_x = 0 or is so small that 1 / d_x overflows: d_x = 0, q = 0.
 *     An infinity or NaN in the block: d_x = NaN, so that the fault shows in y.
 * The halves of each 32 columns have scales d_x0, d_x1 and sums of q sum_q0, sum_q1:
 *     bias = fmaf((float)sum_q1, d_x1, (float)sum_q0 * d_x0)
 * i0, i1: the exact integer sums of the products of quants in each half. A quant is
 *     Q4_0, Q5_0, Q3_K, Q6_K:   the stored quant minus the type's offset
 *     IQ4_NL, IQ4_XS, MXFP4:    the value of the type's table
 *     IQ2, IQ3:                 the signed level of its point in the codebook (quant/grids.h)
 *     IQ1:                      8 times the level, plus or minus 1
 *     and for Q2_K, Q3_K, Q6_K, IQ2_S, IQ2_XS, IQ1_M: times the scale of its 16 columns
 *     NVFP4:                    as MXFP4; (float)i0 and (float)i1 times the scales of the halves,
 *                               which is exact, take their place, and w = 1; at last y times the
 *                               row's factor (tile.h), before anything is added to it
 * For each block of 32 columns in order:
 *     p   = fmaf((float)i1, d_x1, (float)i0 * d_x0)
 *     acc = fmaf(p, w, acc)     w = d; Q4_K, Q5_K, IQ4_XS: w = d * (float)scale
 *                               IQ2_XXS, IQ1_S: w = d / 8 * (float)scale; IQ3_XXS: d / 4;
 *                               IQ3_S: d; IQ2_S, IQ2_XS, IQ1_M: w = d / 8
 *                               scale of these types: twice the stored one and 1
 *     Q4_1, Q5_1, then:  acc = fmaf(m, bias, acc)
 *     Q4_K, Q5_K, then:  acc = fmaf(-(dmin * (float)min), bias, acc)
 *     Q2_K, then:        acc = fmaf(fmaf((float)j1, d_x1, (float)j0 * d_x0), dmin, acc)
 *                        with the integers j0 = -min_0 * sum_q0, j1 = -min_1 * sum_q1, because its
 *                        minima are for 16 columns
 *
 * Attention, one query q over its positions
 *
 * The positions are cut at absolute multiples of 256. Within a block, in order of j:
 *     s_j = scale * (q . k_j)     16 partial sums, element i by fmaf into sum i mod 16, folded
 *     m   = max s_j
 *     p_j = exp(s_j - m)
 *     l   = sum p_j               16 partial sums, the block's i-th position of the query (from 0)
 *                                 added to sum i mod 16, folded
 *     o   = sum p_j v_j           each element by fmaf(p_j, v_j, o) from 0
 * Folded: sum i + sum i + 8 for i < 8, then the same with 4, 2, 1.
 * The first block gives M = m, L = l, O = o. Each next block, with M' = max(M, m),
 * a = exp(M - M'), c = exp(m - M'):
 *     L = fmaf(L, a, l * c), O = fmaf(O, a, o * c), M = M'
 * A sink, one more logit that has no value, comes last, with M' = max(M, sink), a = exp(M - M'):
 *     L = fmaf(L, a, exp(sink - M')), O = O * a
 * The result is O / L. Different threads may compute different blocks.
 * The kernels read cached halves and quants exactly (d * q of Q8_0 is exact in float32); the
 * arithmetic is the same. With a NaN or an infinity the result may be any NaN.
 *
 * Gated DeltaNet (Yang et al., "Gated Delta Networks", 2024), one value head
 *
 * The recurrence S = d_t (I - beta_t k_t k_t^T) S + beta_t k_t v_t^T, o_t = S^T q_t, with q_t, k_t
 * [k_dim], v_t [v_dim], is computed from the state S [k_dim][v_dim] before a chunk of DELTA_CHUNK
 * positions, at absolute multiples; S is 0 before position 0. For position t of a chunk, s <= t of
 * the same chunk, and each column j, sums in order of i and of s:
 *     g(t)    = d_0 d_1 ... d_t, g(t, s) = d_(s+1) ... d_t, multiplied in this order; below 2^-100: 0
 *     r_tj    = sum_i k_ti S_ij     fmaf(k_ti, S_ij, r_tj) from 0
 *     p_tj    = sum_i q_ti S_ij     the same
 *     a_ts    = -g(t, s) * (k_t . k_s), b_ts = g(t, s) * (q_t . k_s)     products as attention's
 *     u_tj    = beta_t * (v_tj - g(t) * r_tj + sum_(s<t) a_ts u_sj)      fmaf(a_ts, u_sj, ...)
 *     o_tj    = g(t) * p_tj + sum_(s<=t) b_ts u_sj                       fmaf(b_ts, u_sj, ...)
 * d_t = exp(a * softplus(alpha_t + dt)) is computed in float64 (kernels/decay.h).
 * After the chunk's last position t:
 *     S_ij    = g(t) * S_ij + sum_s k_si * (g(t, s) * u_sj)              fmaf(k_si, ..., ...)
 * So a position's bits do not depend on how many positions a call computes.
 *
 * Mamba2 (Dao, Gu, "Transformers are SSMs", 2024), one head: the state S [k_dim][v_dim], which is 0
 * before position 0, the inputs x_t [v_dim], B_t and C_t [k_dim], the step dt_t > 0, A < 0, D:
 *     d_t  = exp(A * dt_t)          in float64 (kernels/decay.h)
 *     S_ij = fmaf(B_ti, dt_t * x_tj, d_t * S_ij)
 *     y_tj = sum_i C_ti S_ij        fmaf(C_ti, S_ij, y_tj) in order of i, from 0
 *     o_tj = fmaf(D, x_tj, y_tj)
 *
 * Causal convolution of one channel, then silu or not, w[taps - 1] being the tap of the newest
 * input x_t; inputs before position 0 are 0:
 *     y_t = sum_j w[j] * x_(t - taps + 1 + j)   fmaf in order of j, from the bias or 0 */
#ifndef MOED_KERNELS_KERNELS_H
#define MOED_KERNELS_KERNELS_H

#include "kernels/tile.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Activations of n_tokens tokens, ready for multiply. The caller provides act_bytes(cols, n_tokens)
 * bytes, TILE_ALIGN aligned; act_bind divides them among the arrays. cols is a multiple of 32 for
 * quantised weights, else any. */
struct activations {
    uint32_t n_tokens, cols;
    const float *x;  /* [n_tokens][x_stride] float32; borrowed from the caller */
    size_t x_stride; /* in floats */
    int8_t *q;       /* [n_tokens][cols rounded up to 64] */
    float *d;        /* [n_tokens][blocks of 16], as many as fill blocks of 32 */
    float *bias;     /* [n_tokens][blocks of 32]: the sum of 32 q * d */
    /* [n_tokens][blocks of 16][2]: minus the sum of the q in columns 0 and 1 of every 4, and in
     * columns 2 and 3. Times the type's offset, they are the start of the vector builds' sums. */
    int16_t *minus_sum8;
};
size_t act_bytes(uint32_t cols, uint32_t n_tokens);
void act_bind(struct activations *a, void *memory, uint32_t cols, uint32_t n_tokens, const float *x,
              size_t x_stride);

enum activation {
    ACTIVATION_SILU,           /* silu(g) * u; silu(x) = x / (1 + exp(-x)) with kernels' own exp */
    ACTIVATION_SWIGLU_CLAMPED, /* g' / (1 + exp(-1.702 g')) * (u' + 1), g' = min(g, 7), u' = u
                                  clamped to -7..7 */
    ACTIVATION_GELU, /* gelu(g) * u; gelu(x) = x / (1 + exp(-2 t)), t = sqrt(2 / pi) (x + 0.044715
                        x^3): the form with tanh (arXiv 1606.08415, section 2) */
    ACTIVATION_SIGMOID,  /* u / (1 + exp(-g)): a gate of attention's output; no model's experts */
    ACTIVATION_SOFTPLUS, /* ln(1 + exp(g)) * u: the same */
    ACTIVATION_RELU_SQUARED, /* max(u, 0)^2: no gate */
};
static inline bool activation_has_gate(enum activation a)
{
    return a != ACTIVATION_RELU_SQUARED;
}

struct gating {
    enum activation activation;
    /* ACTIVATION_SILU: silu(g) is at most, and u within minus and plus, this; 0: no limit */
    float limit;
};

enum {
    KV_PAGE = 64, /* positions of a page of the KV cache */
};

/* The keys and values of one KV head of one request, in pages of KV_PAGE positions. Position j is
 * in pages[j / KV_PAGE]: its key at keys_offset + j % KV_PAGE key strides, its value at
 * values_offset + as many value strides. Borrowed; a page whose positions no query attends to may
 * be NULL. With latent attention the values are the first part of the keys. type: F32, F16, or
 * Q8_0 with dimensions that are multiples of 32. */
struct kv_head {
    enum tensor_type type;
    uint32_t k_dim, v_dim;
    const uint8_t *const *pages;
    size_t keys_offset, values_offset; /* in a page, in bytes */
    size_t key_stride, value_stride;
};

enum {
    ATTEND_BLOCK = 256,  /* positions of a block, at absolute multiples */
    ATTEND_QUERIES = 64, /* the most queries that share the reading of a block */
};

/* One query head of one row, and the positions [first, end) that it attends to. */
struct attend_query {
    const float *q; /* [k_dim] */
    uint32_t first, end;
};

/* A query's result over some positions: the largest score, the sum of the weights exp(score - max),
 * and the weighted sum of the values. sum 0: no position yet. */
struct attend_part {
    float max, sum;
    float *values; /* attend_block writes v_dim rounded up to 16; the others read and write v_dim */
};

enum {
    DELTA_CHUNK = 16,
    DELTA_KEY_MOST = 512,           /* the largest k_dim */
    DELTA_KEY_MOST_ON_DEVICE = 128, /* of the CUDA kernel: a part of S lies in shared memory */
};

/* One head's rows of adjacent positions, with strides in floats. */
struct delta_rows {
    const float *q, *k, *v; /* [n][stride]: k_dim, k_dim and v_dim values */
    size_t stride;
    const float *decay, *beta; /* [n][rate_stride], one value each; decay: d, from 0 to 1 */
    size_t rate_stride;
    float *out; /* [n][out_stride]: v_dim values; not the memory of v */
    size_t out_stride;
};

/* The floats of one head's state: S, and the keys, updates and decays of the chunk under way. */
static inline size_t delta_state_floats(uint32_t k_dim, uint32_t v_dim)
{
    size_t k = ((size_t)k_dim + 15) / 16 * 16, v = ((size_t)v_dim + 15) / 16 * 16;

    return k * v + DELTA_CHUNK * (k + v) + DELTA_CHUNK + 16;
}

/* One Mamba2 head's rows of adjacent positions, with strides in floats. */
struct mamba2_rows {
    const float *x, *b, *c; /* [n][stride]: v_dim, k_dim and k_dim values */
    size_t stride;
    const float *decay, *step; /* [n][rate_stride], one value each: d and dt */
    size_t rate_stride;
    float skip; /* D */
    float *out; /* [n][out_stride]: v_dim values; not the memory of x */
    size_t out_stride;
};

/* The floats of one head's state: S, whose rows are padded to whole vectors with zeros. */
static inline size_t mamba2_state_floats(uint32_t k_dim, uint32_t v_dim)
{
    return (size_t)k_dim * (((size_t)v_dim + 15) / 16 * 16);
}

enum { CONVOLVE_TAPS = 16 };

enum {
    WEIGH_ONE = 1 << 30,
    WEIGH_MOST = 1 << 16,
};

/* The functions of one build. */
struct kernels {
    const char *name; /* "portable", "avx2", "avx2-vnni", "avx512" */

    /* Quantises tokens [first, first + count) of a. */
    void (*quantize)(struct activations *a, uint32_t first, uint32_t count);

    /* y[t][16 * tile + r] for the tile rows [tile_first, tile_first + tile_count) of m and the
     * tokens with indices tokens[0..n_tokens) of a (NULL: 0..n_tokens). Row i of y belongs to
     * tokens[i]. Writes only rows below m->rows. accumulate: adds to y, by one float addition after
     * the row's sum and its factor. */
    void (*multiply)(const struct matrix *m, uint32_t tile_first, uint32_t tile_count,
                     const struct activations *a, const uint32_t *tokens, uint32_t n_tokens,
                     float *y, size_t y_stride, bool accumulate);

    /* h[i] from gate[i] and up[i], by enum activation. Without a gate: gate is any n values. */
    void (*gated)(struct gating g, const float *gate, const float *up, float *h, size_t n);

    /* x[i] = cap * tanh(x[i] / cap), within cap * 2^-22; a NaN stays one. */
    void (*soft_cap)(float cap, float *x, size_t n);

    /* out[i] = x[i] * scale * w[i], scale = 1 / sqrt(mean(x^2) + eps); 16 partial sums by i mod 16,
     * folded 8, 4, 2, 1. w NULL: 1. out may be x. */
    void (*rms_norm)(const float *x, const float *w, float eps, size_t n, float *out);

    /* out[i] = (x[i] - mean) * scale * w[i] + b[i], scale = 1 / sqrt(mean((x - mean)^2) + eps);
     * sums as above, the last step fused. out may be x. */
    void (*layer_norm)(const float *x, const float *w, const float *b, float eps, size_t n,
                       float *out);

    /* kernels_exp. */
    float (*exponential)(float x);

    /* x[i] = 1 / (1 + exp(-x[i])). */
    void (*sigmoid)(float *x, size_t n);

    /* Numerically stable softmax in place: subtracts the maximum; kernels' own exp; 16 partial sums
     * as above. */
    void (*softmax)(float *x, size_t n);

    /* The sum of exp(x[i] - top); 16 partial sums as above. */
    float (*exp_sum)(const float *x, float top, size_t n);

    /* w[i] = exp(scale * (x[i] - top)) in units of 1 / WEIGH_ONE, rounded to nearest even; 0 if
     * that is NaN or less than `least`. top is at least the largest of x. n is at most WEIGH_MOST.
     * Returns the sum of w. */
    uint64_t (*weigh)(const float *x, float top, float scale, int32_t least, size_t n, int32_t *w);

    /* y[i] = fmaf(a, x[i], y[i]). */
    void (*axpy)(float a, const float *x, float *y, size_t n);
    /* y[i] += x[i]. */
    void (*add)(const float *x, float *y, size_t n);

    /* Steps a gated DeltaNet head through n positions from `position` on. state: of
     * delta_state_floats, after the positions before; zeros before position 0. */
    void (*delta)(float *state, uint32_t k_dim, uint32_t v_dim, uint32_t position,
                  const struct delta_rows *rows, uint32_t n);
    /* Steps a Mamba2 head through n positions. state: of mamba2_state_floats, after the positions
     * before; zeros before position 0. */
    void (*mamba2)(float *state, uint32_t k_dim, uint32_t v_dim, const struct mamba2_rows *rows,
                   uint32_t n);
    /* The causal convolution of n_channels channels, and silu of it or not, in place: x [n][stride]
     * are adjacent positions. past [taps - 1][past_stride] has the inputs before them, oldest
     * first, and is set to those before the next position. w [n_channels][taps]; taps is at most
     * CONVOLVE_TAPS. bias [n_channels]; NULL: none. */
    void (*convolve)(const float *w, const float *bias, uint32_t taps, uint32_t n_channels,
                     float *past, size_t past_stride, float *x, size_t stride, uint32_t n,
                     bool silu);

    /* Rotates the pairs (a[i], b[i]): a' = a cos - b sin, b' = a sin + b cos, each product rounded.
     * All four arrays have n elements. */
    void (*rotate)(float *a, float *b, const float *cosines, const float *sines, uint32_t n);

    /* Writes n values of one head to a row of the KV cache. F32: unchanged. F16: rounded to nearest
     * even. Q8_0, n a multiple of 32: for each 32 values d = max|x| / 127 and q = x * (1 / d)
     * rounded to nearest even; then d is stored as a half. */
    void (*kv_write)(enum tensor_type type, const float *x, uint32_t n, void *row);

    /* Attention has three steps: compute each block, merge the blocks in order, divide. */
    /* Bytes of attend_block's scratch, which is 64 bytes aligned. */
    size_t (*attend_scratch)(uint32_t k_dim, uint32_t v_dim);
    /* Step 1: positions 256 * block to 256 * block + 255, those that a query attends to, for up to
     * ATTEND_QUERIES queries of one KV head. Overwrites parts[i]: max, sum and *values. sum 0: the
     * query attends to none of them. */
    void (*attend_block)(const struct kv_head *kv, uint32_t block, float scale,
                         const struct attend_query *queries, uint32_t n, void *scratch,
                         struct attend_part *parts);
    /* Step 2: merges the next block's part into those before it. */
    void (*attend_merge)(struct attend_part *to, const struct attend_part *from, uint32_t v_dim);
    /* Step 3, after the last block: the sink, if not NULL, and the division. The result is in
     * `values`. */
    void (*attend_finish)(struct attend_part *part, const float *sink, uint32_t v_dim);
};

/* The build in use: chosen by the CPU at the first call, or by kernels_select. Never NULL. */
const struct kernels *kernels_get(void);
/* Selects a build by its name, or "auto". False: this CPU or build lacks it. Call it at
 * start, before other threads compute. */
bool kernels_select(const char *name);
/* NULL-terminated names that this CPU can run, best first. */
const char *const *kernels_available(void);

/* True: an x86-64 CPU lacks what all its vector builds need, so that only the portable one runs.
 * out: what it lacks, and what that means. */
enum { KERNELS_LACKING_BYTES = 192 };
bool kernels_lacking(char out[KERNELS_LACKING_BYTES]);
/* Logs the build in use, and that as a warning. */
void kernels_log(void);

/* The definition's exp, by the build in use. Every build repeats its steps in the same order. */
float kernels_exp(float x);

/* Rotates the first rope_dims values of one head in place. cos_sin: [2][rope_dims / 2] for this
 * position, cosines first. neox: pairs (i, i + rope_dims / 2); else (2i, 2i + 1). */
void rope_apply(float *head, uint32_t rope_dims, const float *cos_sin, bool neox);

#endif
