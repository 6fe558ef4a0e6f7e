/* The decay of a gated DeltaNet or Mamba2 head, exp(a * softplus(x)), in float64 and in steps of
 * which each is rounded once: libm's functions differ between machines, and from those of a GPU.
 * The error is less than 2^-48.
 *
 * Plain C, C++ and CUDA. */
#ifndef MOED_KERNELS_DECAY_H
#define MOED_KERNELS_DECAY_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__CUDACC__)
#define DECAY_FUNCTION static __device__ inline
#else
#define DECAY_FUNCTION static inline
#endif

/* 2^n, n from -1022 to 1023. */
DECAY_FUNCTION double decay_power(int64_t n)
{
    uint64_t bits = (uint64_t)(n + 1023) << 52;
    double power;

    memcpy(&power, &bits, sizeof power);
    return power;
}

/* exp(x), beyond -700 and 700 that of these: 2^n exp(r), |r| <= ln 2 / 2, by its series to r^13. */
DECAY_FUNCTION double decay_exp(double x)
{
    const double rounding = 0x1.8p52, log2_e = 0x1.71547652b82fep+0;
    double clamped = x > 700 ? 700 : x < -700 ? -700 : x;
    double n = (clamped * log2_e + rounding) - rounding;
    double r = fma(n, -0x1.abc9e3b39803fp-56, fma(n, -0x1.62e42fefa39efp-1, clamped));
    double p = 1.0 / 6227020800;

    if (x != x)
        return x;
    p = fma(p, r, 1.0 / 479001600);
    p = fma(p, r, 1.0 / 39916800);
    p = fma(p, r, 1.0 / 3628800);
    p = fma(p, r, 1.0 / 362880);
    p = fma(p, r, 1.0 / 40320);
    p = fma(p, r, 1.0 / 5040);
    p = fma(p, r, 1.0 / 720);
    p = fma(p, r, 1.0 / 120);
    p = fma(p, r, 1.0 / 24);
    p = fma(p, r, 1.0 / 6);
    p = fma(p, r, 0.5);
    p = fma(p, r, 1.0);
    p = fma(p, r, 1.0);
    return p * decay_power((int64_t)n);
}

/* ln(1 + y), y from 0 to 1: 2 artanh(s), s = y / (2 + y), by its series to s^27. */
DECAY_FUNCTION double decay_log1p(double y)
{
    double s = y / (2 + y), s2 = s * s, p = 2.0 / 27;

    p = fma(p, s2, 2.0 / 25);
    p = fma(p, s2, 2.0 / 23);
    p = fma(p, s2, 2.0 / 21);
    p = fma(p, s2, 2.0 / 19);
    p = fma(p, s2, 2.0 / 17);
    p = fma(p, s2, 2.0 / 15);
    p = fma(p, s2, 2.0 / 13);
    p = fma(p, s2, 2.0 / 11);
    p = fma(p, s2, 2.0 / 9);
    p = fma(p, s2, 2.0 / 7);
    p = fma(p, s2, 2.0 / 5);
    p = fma(p, s2, 2.0 / 3);
    p = fma(p, s2, 2.0);
    return p * s;
}

/* softplus(alpha + dt). */
DECAY_FUNCTION double decay_step(float alpha, float dt)
{
    double x = (double)alpha + (double)dt, above = x > 0 ? x : 0;

    return above + decay_log1p(decay_exp(x > 0 ? -x : x));
}

/* exp(a * softplus(alpha + dt)). */
DECAY_FUNCTION float decay_of(float a, float alpha, float dt)
{
    return (float)decay_exp((double)a * decay_step(alpha, dt));
}

#endif
