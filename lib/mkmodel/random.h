/* Seeded noise: the generator xoshiro256++ (Blackman and Vigna, "Scrambled linear pseudorandom
 * number generators"), seeded by splitmix64. Each row of a tensor has a stream of its own, so any
 * thread can make rows in any order. */
#ifndef MOED_MKMODEL_RANDOM_H
#define MOED_MKMODEL_RANDOM_H

#include <stddef.h>
#include <stdint.h>

struct random {
    uint64_t state[4];
};

/* The stream of (seed, name, row). */
void random_seed(struct random *r, uint64_t seed, const char *name, uint64_t row);

uint64_t random_bits(struct random *r);

/* n values of a bell-shaped distribution with this mean and standard deviation: the sum of four
 * uniform values, without tails beyond 3.5 standard deviations. */
void random_bell(struct random *r, float mean, float deviation, float *out, size_t n);

#endif
