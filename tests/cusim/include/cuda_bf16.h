/* cusim: bfloat16 for storage: only conversions, no arithmetic. */
#ifndef CUSIM_CUDA_BF16_H
#define CUSIM_CUDA_BF16_H

#include "cuda_runtime.h"

#ifdef __cplusplus
typedef struct {
    unsigned short x;
} __nv_bfloat16_raw;

struct __nv_bfloat16 {
    unsigned short bits;
    __nv_bfloat16() = default;
    __nv_bfloat16(__nv_bfloat16_raw raw) : bits(raw.x) {}
    operator __nv_bfloat16_raw() const
    {
        return {bits};
    }
};
typedef __nv_bfloat16 nv_bfloat16;

static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits)
{
    return __nv_bfloat16(__nv_bfloat16_raw{bits});
}
static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 h)
{
    return h.bits;
}
static inline float __bfloat162float(__nv_bfloat16 h)
{
    return __uint_as_float((unsigned)h.bits << 16);
}
/* To nearest, halves to even. */
static inline __nv_bfloat16 __float2bfloat16_rn(float f)
{
    unsigned bits = __float_as_uint(f);
    if ((bits & 0x7fffffff) > 0x7f800000u)
        return __ushort_as_bfloat16(0x7fff);
    return __ushort_as_bfloat16((unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16));
}
static inline __nv_bfloat16 __float2bfloat16(float f)
{
    return __float2bfloat16_rn(f);
}
#endif

#endif
