/* Writing the cache of keys and values. */
#include "device/cuda/stream.h"
#include "device/cuda/kv.cuh"
#include "device/cuda/ops.h"

enum { THREADS = 256 };

/* A warp has 32 values next to each other, a whole block: write_q8_0 of kernels/attend.inc.c. */
static __device__ __forceinline__ void put_quant(const device_kv &kv, uint8_t *page, size_t at,
                                                 float value)
{
    int max_bits = __float_as_int(value) & 0x7fffffff;

#pragma unroll
    for (int width = 16; width > 0; width /= 2)
        max_bits = max(max_bits, __shfl_xor_sync(0xffffffffu, max_bits, width));
    float inverse, d = cuda_block_scale(max_bits, &inverse);
    ((int8_t *)page)[at] = (int8_t)cuda_quant(value, inverse);
    if (at % 32 == 0)
        kv_scales(kv, page)[at / 32] = cuda_float_to_half(d);
}

/* at: counted from the page's first value. */
static __device__ __forceinline__ void put(const device_kv &kv, uint8_t *page, size_t at,
                                           float value)
{
    if (kv.type == TENSOR_Q8_0)
        put_quant(kv, page, at, value);
    else if (kv.type == TENSOR_F16)
        ((uint16_t *)page)[at] = cuda_float_to_half(value);
    else
        ((float *)page)[at] = value;
}

/* A row in x, its values in y; keys, then values, in z. Of Q8_0 a row's are whole warps'. */
static __global__ void store_rows(device_kv kv, const device_row *rows, const float *keys,
                                  const float *values)
{
    kv_part part = blockIdx.z == 0 ? KV_KEYS : KV_VALUES;
    uint32_t i = blockIdx.y * THREADS + threadIdx.x;
    device_row row = rows[blockIdx.x];
    const float *from = (part == KV_KEYS ? keys : values) + (size_t)blockIdx.x * kv.row_values;

    if (i < kv.row_values)
        put(kv, kv_page(kv, row.slot, row.position, part),
            (size_t)(row.position % DEVICE_PAGE) * kv.row_values + i, from[i]);
}

void cuda_kv_store(struct device_stream *s, const struct device_kv *kv,
                   const struct device_row *rows, uint32_t n, const float *keys,
                   const float *values)
{
    if (n == 0)
        return;
    CUDA_LAUNCH(store_rows,
                dim3(n, (kv->row_values + THREADS - 1) / THREADS, values != NULL ? 2 : 1), THREADS,
                0, cuda_stream(s), *kv, rows, keys, values);
    cuda_check(s, "kv_store");
}
