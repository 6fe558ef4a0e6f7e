/* Where the paged cache (struct device_kv) has a position's keys and values, and reading them. */
#ifndef MOED_DEVICE_CUDA_KV_CUH
#define MOED_DEVICE_CUDA_KV_CUH

#include "device/cuda/scalar.cuh"
#include "device/module.h"

enum kv_part { KV_KEYS, KV_VALUES };

/* A part of the first position of the page that has `position` of a slot; those that follow lie row_bytes apart. */
static __device__ __forceinline__ uint8_t *kv_page(const device_kv &kv, uint32_t layer,
                                                   uint32_t slot, uint32_t position, kv_part part)
{
    uint32_t page = kv.pages[(size_t)slot * kv.pages_a_slot + position / DEVICE_PAGE];
    size_t place = ((size_t)layer * kv.n_pages + page) * kv.rows + (kv.rows == 1 ? 0 : part);

    return (uint8_t *)kv.memory + place * DEVICE_PAGE * kv.row_bytes;
}

static __device__ __forceinline__ float kv_float(float value)
{
    return value;
}

static __device__ __forceinline__ float kv_float(uint16_t half)
{
    return cuda_half_to_float(half);
}

/* Aligned to 4 values. */
static __device__ __forceinline__ float4 kv_load_4(const float *p)
{
    return __ldg((const float4 *)p);
}

static __device__ __forceinline__ float4 kv_load_4(const uint16_t *p)
{
    uint2 halves = __ldg((const uint2 *)p);

    return make_float4(
        cuda_half_to_float((uint16_t)halves.x), cuda_half_to_float((uint16_t)(halves.x >> 16)),
        cuda_half_to_float((uint16_t)halves.y), cuda_half_to_float((uint16_t)(halves.y >> 16)));
}

/* Values i to i + 3 of the n at p; zero beyond. */
template <class T>
static __device__ __forceinline__ float4 kv_quad(const T *p, uint32_t i, uint32_t n)
{
    return make_float4(i < n ? kv_float(p[i]) : 0, i + 1 < n ? kv_float(p[i + 1]) : 0,
                       i + 2 < n ? kv_float(p[i + 2]) : 0, i + 3 < n ? kv_float(p[i + 3]) : 0);
}

#endif
