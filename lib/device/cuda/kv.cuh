/* Addresses of keys and values in the paged cache (struct device_kv), reading and writing them. */
#ifndef MOED_DEVICE_CUDA_KV_CUH
#define MOED_DEVICE_CUDA_KV_CUH

#include "device/cuda/dependent.cuh"
#include "device/cuda/scalar.cuh"
#include "device/module.h"

enum kv_part { KV_KEYS, KV_VALUES };

/* The keys, or values, in the page with `position` of a slot: the address of the page's
 * first position. */
static __device__ __forceinline__ uint8_t *kv_page(const device_kv &kv, uint32_t slot,
                                                   uint32_t position, kv_part part)
{
    uint64_t page = kv.pages[(size_t)slot * kv.pages_a_slot + position / DEVICE_PAGE];
    bool behind = part == KV_VALUES && kv.rows > 1;

    return (uint8_t *)page + kv.offset + (behind ? (size_t)DEVICE_PAGE * kv.key_bytes : 0);
}

/* Types of cached values: float, uint16_t (a half), kv_quant (of Q8_0). */
struct kv_quant {
    int8_t value;
};

/* One head's keys, or values, of a page. */
struct kv_rows {
    const uint8_t *first;   /* of the first position; those that follow are kv_width of their type
                               further */
    const uint16_t *scales; /* Q8_0; those that follow are kv_width / 32 further */
};

/* Values of a position's row. */
static __device__ __forceinline__ uint32_t kv_width(const device_kv &kv, kv_part part)
{
    return part == KV_KEYS ? kv.key_values : kv.value_values;
}

/* Where a page has its scales. */
static __device__ __forceinline__ uint16_t *kv_scales(const device_kv &kv, uint8_t *page,
                                                      kv_part part)
{
    return (uint16_t *)(page + (size_t)DEVICE_PAGE * kv_width(kv, part));
}

/* first: of the head's values in a row. */
template <class T>
static __device__ __forceinline__ kv_rows kv_head_rows(const device_kv &kv, uint32_t slot,
                                                       uint32_t position, kv_part part,
                                                       uint32_t first)
{
    uint8_t *page = kv_page(kv, slot, position, part);

    return {page + first * sizeof(T), kv_scales(kv, page, part) + first / 32};
}

template <class T>
static __device__ __forceinline__ const T *kv_row(const device_kv &kv, const kv_rows &rows,
                                                  kv_part part, uint32_t i)
{
    return (const T *)rows.first + i * kv_width(kv, part);
}

/* Four adjacent values as stored in the cache, and as exactly equal floats. */
template <class T> struct kv_four;

template <> struct kv_four<float> {
    float4 values;
};

template <> struct kv_four<uint16_t> {
    uint2 halves;
};

template <> struct kv_four<kv_quant> {
    uint32_t quants;
    uint16_t scale;
};

/* Values at to at + 3 of position i, aligned to 4 values. */
template <class T>
static __device__ __forceinline__ kv_four<T> kv_load(const device_kv &kv, const kv_rows &rows,
                                                     kv_part part, uint32_t i, uint32_t at)
{
    const T *p = kv_row<T>(kv, rows, part, i) + at;

    if constexpr (sizeof(T) == 1)
        return {cuda_read((const uint32_t *)p),
                cuda_read(rows.scales + i * (kv_width(kv, part) / 32) + at / 32)};
    else if constexpr (sizeof(T) == 2)
        return {cuda_read((const uint2 *)p)};
    else
        return {cuda_read((const float4 *)p)};
}

static __device__ __forceinline__ float4 kv_floats(const kv_four<float> &four)
{
    return four.values;
}

static __device__ __forceinline__ float4 kv_floats(const kv_four<uint16_t> &four)
{
    uint2 h = four.halves;

    return make_float4(cuda_half_to_float((uint16_t)h.x), cuda_half_to_float((uint16_t)(h.x >> 16)),
                       cuda_half_to_float((uint16_t)h.y),
                       cuda_half_to_float((uint16_t)(h.y >> 16)));
}

static __device__ __forceinline__ float4 kv_floats(const kv_four<kv_quant> &four)
{
    uint32_t q = four.quants;
    float d = cuda_half_to_float(four.scale);

    return make_float4(d * (float)(int8_t)q, d * (float)(int8_t)(q >> 8),
                       d * (float)(int8_t)(q >> 16), d * (float)(int8_t)(q >> 24));
}

static __device__ __forceinline__ float kv_float(float value)
{
    return value;
}

static __device__ __forceinline__ float kv_float(uint16_t half)
{
    return cuda_half_to_float(half);
}

/* Values i to i + 3 of the n at p, of any alignment; zero beyond the last. */
template <class T>
static __device__ __forceinline__ float4 kv_quad(const T *p, uint32_t i, uint32_t n)
{
    return make_float4(i < n ? kv_float(p[i]) : 0, i + 1 < n ? kv_float(p[i + 1]) : 0,
                       i + 2 < n ? kv_float(p[i + 2]) : 0, i + 3 < n ? kv_float(p[i + 3]) : 0);
}

/* As above, of position i, as floats; quants are always aligned, and fill whole blocks. */
template <class T>
static __device__ __forceinline__ float4 kv_some(const device_kv &kv, const kv_rows &rows,
                                                 kv_part part, uint32_t i, uint32_t at, uint32_t n)
{
    if constexpr (sizeof(T) == 1)
        return at < n ? kv_floats(kv_load<T>(kv, rows, part, i, at)) : make_float4(0, 0, 0, 0);
    else
        return kv_quad(kv_row<T>(kv, rows, part, i), at, n);
}

/* A warp has 32 values next to each other, a whole block: write_q8_0 of kernels/attend.inc.c. */
static __device__ __forceinline__ void kv_put_quant(const device_kv &kv, uint8_t *page,
                                                    kv_part part, size_t at, float value)
{
    int max_bits = __float_as_int(value) & 0x7fffffff;

#pragma unroll
    for (int width = 16; width > 0; width /= 2)
        max_bits = max(max_bits, __shfl_xor_sync(0xffffffffu, max_bits, width));
    float inverse, d = cuda_block_scale(max_bits, &inverse);
    ((int8_t *)page)[at] = (int8_t)cuda_quant(value, inverse);
    if (at % 32 == 0)
        kv_scales(kv, page, part)[at / 32] = cuda_float_to_half(d);
}

/* Writes a value. at: counted from the page's first one. */
static __device__ __forceinline__ void kv_put(const device_kv &kv, uint8_t *page, kv_part part,
                                              size_t at, float value)
{
    if (kv.type == TENSOR_Q8_0)
        kv_put_quant(kv, page, part, at, value);
    else if (kv.type == TENSOR_F16)
        ((uint16_t *)page)[at] = cuda_float_to_half(value);
    else
        ((float *)page)[at] = value;
}

#endif
