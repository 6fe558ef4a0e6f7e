/* Seeded noise: the generator xoshiro256++ (Blackman and Vigna, "Scrambled linear pseudorandom
 * number generators"), seeded through splitmix64. One stream a row of a tensor, so rows can be made
 * in any order by any thread. */
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

/* n values of a bell-shaped distribution (the sum of four uniform ones: no tails beyond 3.5
 * standard deviations) with this mean and standard deviation. */
void random_bell(struct random *r, float mean, float deviation, float *out, size_t n);

#endif
