/* 16 lanes in plain C: the definition of each step of lanes_avx2.h and lanes_avx512.h.
 *
 * vf: 16 float32. vi: 16 int32. max and min are "a > b ? a : b" and "a < b ? a : b": with a NaN on
 * either side the result is b.
 */
#ifndef MOED_KERNELS_LANES_PORTABLE_H
#define MOED_KERNELS_LANES_PORTABLE_H

#include "kernels/tile_layout.h"
#include "quant/quant.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LANES_NAME "portable"

/* See attend.inc.c. */
#define ATTEND_ROWS    1
#define ATTEND_KEYS    4
#define ATTEND_VECTORS 1
/* See delta.inc.c. */
#define DELTA_ROWS         1
#define DELTA_VECTORS      1
#define DELTA_PAIR_VECTORS 1

typedef struct {
    float f[16];
} vf;

typedef struct {
    int32_t i[16];
} vi;

#define LANES_OP(type, name, params, field, expression)                                            \
    static inline type name params                                                                 \
    {                                                                                              \
        type r;                                                                                    \
        for (int l = 0; l < 16; l++)                                                               \
            r.field[l] = (expression);                                                             \
        return r;                                                                                  \
    }

LANES_OP(vf, vf_set1, (float x), f, x)
LANES_OP(vf, vf_add, (vf a, vf b), f, a.f[l] + b.f[l])
LANES_OP(vf, vf_sub, (vf a, vf b), f, a.f[l] - b.f[l])
LANES_OP(vf, vf_mul, (vf a, vf b), f, a.f[l] * b.f[l])
LANES_OP(vf, vf_div, (vf a, vf b), f, a.f[l] / b.f[l])
LANES_OP(vf, vf_fma, (vf a, vf b, vf c), f, fmaf(a.f[l], b.f[l], c.f[l]))
LANES_OP(vf, vf_max, (vf a, vf b), f, a.f[l] > b.f[l] ? a.f[l] : b.f[l])
LANES_OP(vf, vf_min, (vf a, vf b), f, a.f[l] < b.f[l] ? a.f[l] : b.f[l])

LANES_OP(vi, vi_set1, (int32_t x), i, x)
LANES_OP(vi, vi_and, (vi a, vi b), i, a.i[l] & b.i[l])
LANES_OP(vi, vi_add, (vi a, vi b), i, (int32_t)((uint32_t)a.i[l] + (uint32_t)b.i[l]))
LANES_OP(vi, vi_sub, (vi a, vi b), i, (int32_t)((uint32_t)a.i[l] - (uint32_t)b.i[l]))
LANES_OP(vi, vi_max, (vi a, vi b), i, a.i[l] > b.i[l] ? a.i[l] : b.i[l])
/* Arithmetic shift right by 1: gcc and clang define >> of a negative number so. */
LANES_OP(vi, vi_half, (vi a), i, a.i[l] >> 1)
LANES_OP(vi, vi_shift_left_23, (vi a), i, (int32_t)((uint32_t)a.i[l] << 23))
/* Logical: zeros come in. */
LANES_OP(vi, vi_right_32, (vi a, int n), i, (int32_t)((uint32_t)a.i[l] >> n))
/* 0 in lanes below `least`. */
LANES_OP(vi, vi_at_least, (vi a, int32_t least), i, a.i[l] >= least ? a.i[l] : 0)
/* Rounds to nearest even, within int32. Adding and subtracting 1.5 * 2^52 rounds a double so. */
LANES_OP(vi, vf_to_ints, (vf a), i, (int32_t)((double)a.f[l] + 0x1.8p52 - 0x1.8p52))

static inline vf vf_load(const float *p)
{
    vf r;
    memcpy(&r, p, sizeof r);
    return r;
}

static inline void vf_store(float *p, vf a)
{
    memcpy(p, &a, sizeof a);
}

static inline void vi_store(int32_t *p, vi a)
{
    memcpy(p, &a, sizeof a);
}

/* 16 halves as float32, and back, rounded to nearest even. */
static inline vf vf_load_halves(const uint8_t *p)
{
    vf r;
    for (int l = 0; l < 16; l++)
        r.f[l] = half_to_float(load_u16(p + 2 * l));
    return r;
}

static inline void vf_store_halves(uint8_t *p, vf a)
{
    for (int l = 0; l < 16; l++)
        store_u16(p + 2 * l, float_to_half(a.f[l]));
}

/* The half at p in every lane. */
static inline vf vf_set1_half(const uint8_t *p)
{
    return vf_set1(half_to_float(load_u16(p)));
}

/* 16 int8 as float32. */
static inline vf vf_load_int8(const uint8_t *p)
{
    vf r;
    for (int l = 0; l < 16; l++)
        r.f[l] = (float)(int8_t)p[l];
    return r;
}

/* The bits of one as the other. */
static inline vi vf_bits(vf a)
{
    vi r;
    memcpy(&r, &a, sizeof r);
    return r;
}

static inline vf vi_floats(vi a)
{
    vf r;
    memcpy(&r, &a, sizeof r);
    return r;
}

/* Sum of the lanes, lane l + lane l + 8 first, then 4, 2, 1. */
static inline float vf_fold_add(vf a)
{
    for (int width = 8; width > 0; width /= 2)
        for (int l = 0; l < width; l++)
            a.f[l] = a.f[l] + a.f[l + width];
    return a.f[0];
}

/* Four vectors folded 8, 4: lanes 4 p to 4 p + 3 are the four sums of the p-th. */
static inline vf vf_fold_4(vf a, vf b, vf c, vf d)
{
    const vf v[4] = {a, b, c, d};
    vf r;
    for (int l = 0; l < 16; l++) {
        const float *f = v[l / 4].f + l % 4;
        r.f[l] = (f[0] + f[8]) + (f[4] + f[12]);
    }
    return r;
}

/* Four of those folded 2, 1: lane 4 p + g is the sum of the p-th vector of the g-th. */
static inline vf vf_fold_4_of_4(vf a, vf b, vf c, vf d)
{
    const vf v[4] = {a, b, c, d};
    vf r;
    for (int l = 0; l < 16; l++) {
        const float *f = v[l % 4].f + l / 4 * 4;
        r.f[l] = (f[0] + f[2]) + (f[1] + f[3]);
    }
    return r;
}

static inline float vf_fold_max(vf a)
{
    for (int width = 8; width > 0; width /= 2)
        for (int l = 0; l < width; l++)
            a.f[l] = a.f[l] > a.f[l + width] ? a.f[l] : a.f[l + width];
    return a.f[0];
}

/* The sum of lanes 0 and 1 of every 4, and that of lanes 2 and 3, both within int16. */
static inline void vi_fold_pairs(vi a, int16_t sums[2])
{
    int32_t sum[2] = {0, 0};
    for (int l = 0; l < 16; l++)
        sum[l % 4 / 2] += a.i[l];
    sums[0] = (int16_t)sum[0];
    sums[1] = (int16_t)sum[1];
}

static inline int32_t vi_fold_max(vi a)
{
    int32_t max = a.i[0];
    for (int l = 1; l < 16; l++)
        max = a.i[l] > max ? a.i[l] : max;
    return max;
}

/* The lanes, each within int8, to 16 bytes. */
static inline void vi_store_int8(int8_t *p, vi a)
{
    for (int l = 0; l < 16; l++)
        p[l] = (int8_t)a.i[l];
}

#undef LANES_OP

#endif
