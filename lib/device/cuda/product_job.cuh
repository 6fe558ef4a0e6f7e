/* What one block of threads of a product does (product.h): which matrix, and which tokens. */
#ifndef MOED_DEVICE_CUDA_PRODUCT_JOB_CUH
#define MOED_DEVICE_CUDA_PRODUCT_JOB_CUH

#include "device/cuda/product.h"
#include "device/cuda/tiles.cuh"

/* The work of one block of threads; the same for all its threads. */
struct product_job {
    const uint8_t *segment;       /* the beginning of the first part's segment or matrix */
    const uint8_t *const *places; /* TASKS: of the parts' segments */
    uint32_t n_parts, n_tokens;
    const uint32_t *tokens;  /* rows of `in`; NULL: */
    uint32_t row, part_rows; /* first row of `in`, and how many from one part to the next */
    int64_t x_shift;
    float *out;       /* of the first token */
    uint32_t out_row; /* where results are quantised: the first token's */
    bool add;
};

/* The beginning of a part's segment or matrix. */
static __device__ __forceinline__ const uint8_t *
product_part(const struct product &p, const struct product_job &j, uint32_t part)
{
    return j.places ? j.places[part] : j.segment + part * p.part_bytes;
}

/* The sum of one row of a part, times the row's factor where T has them. */
template <class T>
static __device__ __forceinline__ float product_times_factor(const struct product &p,
                                                             const struct product_job &j,
                                                             uint32_t part, uint32_t row, float sum)
{
    if constexpr (T::ROW_FACTORS) {
        const uint8_t *tile_row =
            product_part(p, j, part) + p.offset + row / TILE_ROWS * p.row_bytes;
        return sum * tiles_row_factor<T>(tile_row, p.row_bytes, row % TILE_ROWS);
    }
    return sum;
}

static __device__ __forceinline__ struct product_job product_plane(const struct product &p,
                                                                   uint32_t index)
{
    uint32_t chunks = (p.n + p.tokens_a_block - 1) / p.tokens_a_block;
    uint32_t plane = index / chunks, first = index % chunks * p.tokens_a_block;
    struct product_job j = {};

    j.segment = p.tiles + plane * p.plane_bytes;
    j.n_parts = p.part_bytes ? 2 : 1;
    j.n_tokens = min(p.n - first, p.tokens_a_block);
    j.row = plane * p.n + first;
    j.x_shift = (int64_t)plane * ((int64_t)p.in_plane - (int64_t)(p.n * p.x_stride));
    j.out = p.out + plane * p.out_plane + first * p.out_stride;
    j.out_row = j.row;
    j.add = p.accumulate;
    return j;
}

static __device__ __forceinline__ struct product_job product_segment(const struct product &p,
                                                                     uint32_t index)
{
    const struct product_item item = p.items[index / p.n_segments];
    uint32_t segment = index % p.n_segments;
    struct product_job j = {};

    if (segment >= item.n_segments)
        return j;
    j.segment = p.places[item.place + segment];
    j.n_parts = p.part_bytes ? 2 : 1;
    j.n_tokens = item.n_tokens;
    j.tokens = p.tokens + item.token;
    j.out_row = item.hidden_row + segment * item.task_tokens;
    j.out = p.out + (size_t)j.out_row * p.out_stride;
    return j;
}

static __device__ __forceinline__ struct product_job product_task(const struct product &p,
                                                                  uint32_t index)
{
    const struct product_item item = p.items[index];
    struct product_job j = {};

    j.places = p.places + item.place;
    j.n_parts = item.n_segments;
    j.n_tokens = item.n_tokens;
    j.row = item.hidden_row;
    j.part_rows = item.task_tokens;
    j.out = p.out + (size_t)item.out_row * p.out_stride;
    j.add = item.continues;
    return j;
}

static __device__ __forceinline__ struct product_job product_job_of(const struct product &p,
                                                                    uint32_t index)
{
    return p.work == PRODUCT_PLANES     ? product_plane(p, index)
           : p.work == PRODUCT_SEGMENTS ? product_segment(p, index)
                                        : product_task(p, index);
}

#endif
