/* Writing the cache of keys and values. */
#include "device/cuda/internal.h"
#include "device/cuda/kv.cuh"
#include "device/cuda/ops.h"

enum { THREADS = 256 };

static __device__ __forceinline__ void put(uint8_t *row, bool half, uint32_t i, float value)
{
    if (half)
        ((uint16_t *)row)[i] = cuda_float_to_half(value);
    else
        ((float *)row)[i] = value;
}

/* A row in x, its values in y; keys, then values, in z. */
static __global__ void store_rows(device_kv kv, uint32_t layer, const device_row *rows,
                                  const float *keys, const float *values)
{
    kv_part part = blockIdx.z == 0 ? KV_KEYS : KV_VALUES;
    uint32_t i = blockIdx.y * THREADS + threadIdx.x;
    device_row row = rows[blockIdx.x];
    const float *from = (part == KV_KEYS ? keys : values) + (size_t)blockIdx.x * kv.row_values;

    if (i < kv.row_values)
        put(kv_page(kv, layer, row.slot, row.position, part) +
                (size_t)(row.position % DEVICE_PAGE) * kv.row_bytes,
            kv.type == TENSOR_F16, i, from[i]);
}

void cuda_kv_store(struct device_stream *s, const struct device_kv *kv, uint32_t layer,
                   const struct device_row *rows, uint32_t n, const float *keys,
                   const float *values)
{
    if (n == 0)
        return;
    CUDA_LAUNCH(store_rows,
                dim3(n, (kv->row_values + THREADS - 1) / THREADS, values != NULL ? 2 : 1), THREADS,
                0, cuda_stream(s), *kv, layer, rows, keys, values);
    cuda_check(s, "kv_store");
}
