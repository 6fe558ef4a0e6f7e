/* Random numbers for property tests: the same for the same random_state, which the test sets. */
#ifndef MOED_TESTS_RANDOM_NUMBERS_H
#define MOED_TESTS_RANDOM_NUMBERS_H

#include <stdint.h>

static uint64_t random_state;

/* splitmix64 */
static inline uint64_t random_u64(void)
{
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline uint32_t below(uint32_t n)
{
    return (uint32_t)(random_u64() % n);
}

static inline double between(double from, double to)
{
    return from + (to - from) * (double)(random_u64() >> 11) * 0x1p-53;
}

#endif
