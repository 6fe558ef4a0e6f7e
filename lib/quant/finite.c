/* Looking for numbers that are not finite; see finite.h. */
#include "quant/finite.h"

#include "quant/quant.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define HALF_EXPONENT 0x7c00u
#define BF16_EXPONENT 0x7f80u
#define F32_EXPONENT  0x7f800000u
#define MXFP4_LARGE   253 /* the least exponent whose scale, 2^125, times 12 overflows */
#define VALUES_A_LOOK 256 /* plain numbers are looked at so many at a time */

/* Where a block has its scales, in half precision, at these offsets. n_scales 0: the type has none,
 * or is not in the table. */
struct scales {
    uint8_t n_scales, at[2];
};

static struct scales scales_of(enum tensor_type type)
{
    switch ((int)type) {
    case TENSOR_Q4_0:
    case TENSOR_Q5_0:
    case TENSOR_Q8_0:
    case TENSOR_IQ4_NL:
    case TENSOR_IQ4_XS:
        return (struct scales){1, {0}};
    case TENSOR_Q4_1:
    case TENSOR_Q5_1:
    case TENSOR_Q4_K:
    case TENSOR_Q5_K:
        return (struct scales){2, {0, 2}};
    case TENSOR_Q2_K:
        return (struct scales){2, {80, 82}};
    case TENSOR_Q3_K:
        return (struct scales){1, {108}};
    case TENSOR_Q6_K:
        return (struct scales){1, {208}};
    default:
        return (struct scales){0};
    }
}

static size_t find_scale(const uint8_t *blocks, size_t n, size_t block_bytes, struct scales s)
{
    for (size_t i = 0; i < n; i++)
        for (unsigned k = 0; k < s.n_scales; k++) {
            uint16_t half;
            memcpy(&half, blocks + i * block_bytes + s.at[k], sizeof half);
            if ((half & HALF_EXPONENT) == HALF_EXPONENT)
                return i;
        }
    return n;
}

static bool is_plain_finite(enum tensor_type type, const uint8_t *values, size_t n)
{
    unsigned found = 0;
    for (size_t i = 0; i < n; i++) { /* without a branch, so that it becomes vector code */
        uint32_t word;
        uint16_t half;
        if (type == TENSOR_F32) {
            memcpy(&word, values + i * sizeof word, sizeof word);
            found |= (word & F32_EXPONENT) == F32_EXPONENT;
        } else {
            uint32_t exponent = type == TENSOR_BF16 ? BF16_EXPONENT : HALF_EXPONENT;
            memcpy(&half, values + i * sizeof half, sizeof half);
            found |= (half & exponent) == exponent;
        }
    }
    return !found;
}

static size_t find_plain(enum tensor_type type, const uint8_t *values, size_t n, size_t bytes)
{
    for (size_t i = 0; i < n; i += VALUES_A_LOOK) {
        size_t end = n - i < VALUES_A_LOOK ? n : i + VALUES_A_LOOK;
        if (is_plain_finite(type, values + i * bytes, end - i))
            continue;
        while (is_plain_finite(type, values + i * bytes, 1))
            i++;
        return i;
    }
    return n;
}

/* By the definition of the type. */
static size_t find_value(enum tensor_type type, const uint8_t *blocks, size_t n,
                         const struct tensor_type_info *info)
{
    float values[256];
    if (info->block_values > sizeof values / sizeof *values)
        abort(); /* a bug: no type of the list has longer blocks */
    for (size_t i = 0; i < n; i++) {
        quant_dequantize(type, blocks + i * info->block_bytes, values, info->block_values);
        for (uint32_t k = 0; k < info->block_values; k++)
            if (!isfinite(values[k]))
                return i;
    }
    return n;
}

/* The scale is a power of two, and finite; times a quant of at most 12 it may not be. */
static size_t find_mxfp4(const uint8_t *blocks, size_t n, const struct tensor_type_info *info)
{
    for (size_t i = 0; i < n; i++) {
        const uint8_t *block = blocks + i * info->block_bytes;
        if (block[0] >= MXFP4_LARGE && find_value(TENSOR_MXFP4, block, 1, info) == 0)
            return i;
    }
    return n;
}

size_t quant_find_not_finite(enum tensor_type type, const void *blocks, size_t n_blocks)
{
    const struct tensor_type_info *info = tensor_type_info(type);
    struct scales s = scales_of(type);
    if (s.n_scales)
        return find_scale(blocks, n_blocks, info->block_bytes, s);
    if (type == TENSOR_F32 || type == TENSOR_F16 || type == TENSOR_BF16)
        return find_plain(type, blocks, n_blocks, info->block_bytes);
    if (type == TENSOR_MXFP4)
        return find_mxfp4(blocks, n_blocks, info);
    return find_value(type, blocks, n_blocks, info);
}
