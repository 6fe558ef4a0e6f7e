/* Overflow-checked arithmetic on sizes from untrusted input: false when the result does not fit. */
#ifndef MOED_BASE_CHECKED_H
#define MOED_BASE_CHECKED_H

#include <stdbool.h>
#include <stdint.h>

static inline bool checked_mul(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

static inline bool checked_add(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

/* Round up to a multiple of a power of two. The caller knows that x + multiple fits. */
static inline uint64_t round_up(uint64_t x, uint64_t multiple)
{
    return (x + multiple - 1) & ~(multiple - 1);
}

#endif
