/* cusim: half precision for storage: only conversions, no arithmetic. */
#ifndef CUSIM_CUDA_FP16_H
#define CUSIM_CUDA_FP16_H

#include "cuda_runtime.h"

#ifdef __cplusplus
typedef struct {
    unsigned short x;
} __half_raw;

struct __half {
    unsigned short bits;
    __half() = default;
    __half(__half_raw raw) : bits(raw.x) {}
    operator __half_raw() const
    {
        return {bits};
    }
};
typedef __half half;

static inline __half __ushort_as_half(unsigned short bits)
{
    return __half(__half_raw{bits});
}
static inline unsigned short __half_as_ushort(__half h)
{
    return h.bits;
}

/* Shifts exponent and mantissa to their place. A multiplication by 2^112 corrects the exponent's
 * bias; it is exact, for subnormals too. */
static inline float __half2float(__half h)
{
    unsigned magnitude = (unsigned)(h.bits & 0x7fff) << 13, sign = (unsigned)(h.bits & 0x8000)
                                                                   << 16;
    if (magnitude >= 0x0f800000u) /* infinity and NaN, quiet as a device makes it */
        return __uint_as_float(sign | 0x7f800000u | magnitude |
                               (magnitude > 0x0f800000u ? 0x00400000u : 0));
    return __uint_as_float(sign | __float_as_uint(__uint_as_float(magnitude) * 0x1p112f));
}

/* To nearest, halves to even. */
static inline __half __float2half_rn(float f)
{
    unsigned bits = __float_as_uint(f), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000u)
        return __ushort_as_half(0x7fff);
    if (magnitude >= 0x477ff000u) /* 65520, half way from the largest to the next */
        return __ushort_as_half((unsigned short)(sign | 0x7c00));
    if (magnitude <
        0x38800000u) { /* below 2^-14: adding 0.5 leaves units of 2^-24 in the lowest bits */
        float sum = __uint_as_float(magnitude) + 0.5f;
        return __ushort_as_half((unsigned short)(sign | (__float_as_uint(sum) - 0x3f000000u)));
    }
    magnitude += 0xfffu + (magnitude >> 13 & 1);
    return __ushort_as_half((unsigned short)(sign | (magnitude - 0x38000000u) >> 13));
}
static inline __half __float2half(float f)
{
    return __float2half_rn(f);
}
#endif

#endif
