/* Seeded noise: splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
 * generators"). */
#ifndef MOED_TRAIN_NOISE_H
#define MOED_TRAIN_NOISE_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

struct noise {
    uint64_t state;
};

static inline uint64_t noise_u64(struct noise *r)
{
    uint64_t z = r->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* The stream of a seed for a purpose. */
static inline struct noise noise_of(uint64_t seed, uint64_t what, uint64_t which)
{
    struct noise r = {seed};
    r.state = noise_u64(&r) ^ what;
    r.state = noise_u64(&r) ^ which;
    r.state = noise_u64(&r);
    return r;
}

/* In [0, 1). */
static inline float noise_uniform(struct noise *r)
{
    return (float)(noise_u64(r) >> 40) * 0x1p-24f;
}

/* Below n. Ignores the bias of at most 2^-32 n. */
static inline uint32_t noise_below(struct noise *r, uint32_t n)
{
    return (uint32_t)(((noise_u64(r) >> 32) * n) >> 32);
}

/* Mean 0, standard deviation 1 (Box and Muller). */
static inline float noise_normal(struct noise *r)
{
    float u = 1 - noise_uniform(r), v = noise_uniform(r);
    return sqrtf(-2 * logf(u)) * cosf(6.2831853f * v);
}

/* A random order of 0 to n - 1 (Fisher and Yates). */
static inline void noise_shuffle(struct noise *r, uint32_t n, uint32_t *order)
{
    for (uint32_t i = 0; i < n; i++)
        order[i] = i;
    for (uint32_t i = n; i > 1; i--) {
        uint32_t j = noise_below(r, i), keep = order[j];
        order[j] = order[i - 1];
        order[i - 1] = keep;
    }
}

#endif
