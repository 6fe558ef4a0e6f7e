/* bf16, the upper half of a float: the format of matrices in trained predictors. */
#ifndef MOED_TRAIN_HALF_H
#define MOED_TRAIN_HALF_H

#include <stdint.h>
#include <string.h>

/* Rounds to nearest even. */
static inline uint16_t half_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float half_value(float x)
{
    uint32_t bits = (uint32_t)half_of(x) << 16;
    memcpy(&x, &bits, sizeof x);
    return x;
}

#endif
