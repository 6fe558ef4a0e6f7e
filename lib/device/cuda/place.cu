/* From the products of q, k and v to attention, in one launch: norm and rotation of each head, and
 * the cache. A warp takes a head of a row; the head lies in shared memory in between. The steps are
 * those of rms_norm, rope_apply and kv_write, in the order of dense_host_place_heads and
 * dense_host_place_latent (worker/forward/dense_host_attention.c). */
#include "device/cuda/dependent.cuh"
#include "device/cuda/kv.cuh"
#include "device/cuda/norm.cuh"
#include "device/cuda/ops.h"

enum { WARPS = 4, THREADS = WARPS * 32 };

/* The warp's place in shared memory, of `stride` floats. */
static __device__ __forceinline__ float *head_place(float *shared, uint32_t stride)
{
    return shared + threadIdx.x / 32 * stride;
}

/* All lanes of the warp call what follows; a head is there for all of them afterwards. */
static __device__ __forceinline__ void load_head(const float *from, uint32_t dim, float *head)
{
    for (uint32_t i = threadIdx.x % 32; i < dim; i += 32)
        head[i] = from[i];
    __syncwarp();
}

static __device__ __forceinline__ void norm_head(float *head, uint32_t dim, const float *weight,
                                                 float eps)
{
    norm_factors f = norm_measure(head, dim, false, eps);

    __syncwarp();
    for (uint32_t i = threadIdx.x % 32; i < dim; i += 32)
        head[i] = norm_value(f, head[i], weight, NULL, i);
    __syncwarp();
}

/* turns: of the row. */
static __device__ __forceinline__ void rotate_head(float *head, uint32_t half, const float *turns,
                                                   bool neox)
{
    for (uint32_t i = threadIdx.x % 32; i < half; i += 32) {
        float *a = head + (neox ? i : 2 * i), *b = neox ? a + half : a + 1;
        float x = *a, y = *b, cos = turns[i], sin = turns[half + i];
        *a = x * cos - y * sin;
        *b = x * sin + y * cos;
    }
    __syncwarp();
}

/* first: of the head's values in a cached row. */
static __device__ __forceinline__ void store_head(const device_kv &kv, device_row row, kv_part part,
                                                  uint32_t first, uint32_t dim, const float *head)
{
    uint8_t *page = kv_page(kv, row.slot, row.position, part);
    size_t at = (size_t)(row.position % DEVICE_PAGE) * kv_width(kv, part) + first;

    for (uint32_t i = threadIdx.x % 32; i < dim; i += 32)
        kv_put(kv, page, part, at + i, head[i]);
}

/* ---- Grouped attention ---- */

struct place_call {
    device_heads h;
    device_kv kv;
    const device_row *rows;
};

static __device__ __forceinline__ void norm_and_rotate(const device_heads &h, float *head,
                                                       const float *norm, uint32_t t)
{
    if (norm != NULL && !h.norm_after)
        norm_head(head, h.k_dim, norm, h.eps);
    if (h.dims > 1)
        rotate_head(head, h.dims / 2, h.cos_sin + (size_t)t * (h.dims / 2 * 2), h.neox);
    if (norm != NULL && h.norm_after)
        norm_head(head, h.k_dim, norm, h.eps);
}

/* A row in x; its heads in y: of q, of k, of v if the cache has values. */
static __global__ void __launch_bounds__(THREADS) place_kernel(const __grid_constant__ place_call c)
{
    CUDA_SHARED(float, shared);
    const device_heads &h = c.h;
    uint32_t warp = blockIdx.y * WARPS + threadIdx.x / 32, t = blockIdx.x;
    float *head = head_place(shared, max(h.k_dim, h.v_dim));

    cuda_await_previous();
    if (warp < h.n_heads) {
        float *q = h.q + ((size_t)t * h.n_heads + warp) * h.k_dim;
        load_head(q, h.k_dim, head);
        norm_and_rotate(h, head, h.q_norm, t);
        for (uint32_t i = threadIdx.x % 32; i < h.k_dim; i += 32)
            q[i] = head[i];
        return;
    }
    warp -= h.n_heads;
    if (warp < h.n_kv_heads) {
        load_head(h.k + ((size_t)t * h.n_kv_heads + warp) * h.k_dim, h.k_dim, head);
        norm_and_rotate(h, head, h.k_norm, t);
        store_head(c.kv, c.rows[t], KV_KEYS, warp * h.k_dim, h.k_dim, head);
        return;
    }
    warp -= h.n_kv_heads;
    if (warp < h.n_kv_heads && c.kv.rows > 1) {
        load_head((h.v != NULL ? h.v : h.k) + ((size_t)t * h.n_kv_heads + warp) * h.v_dim, h.v_dim,
                  head);
        if (h.value_norm)
            norm_head(head, h.v_dim, NULL, h.eps);
        store_head(c.kv, c.rows[t], KV_VALUES, warp * h.v_dim, h.v_dim, head);
    }
}

void cuda_place_heads(struct device_stream *s, const struct device_kv *kv,
                      const struct device_row *rows, uint32_t n, const struct device_heads *h)
{
    place_call c = {*h, *kv, rows};
    uint32_t warps = h->n_heads + kv->rows * h->n_kv_heads;

    if (n == 0)
        return;
    CUDA_LAUNCH_EARLY(place_kernel, dim3(n, (warps + WARPS - 1) / WARPS), THREADS,
                      WARPS * max(h->k_dim, h->v_dim) * sizeof(float), s, c);
    cuda_check(s, "place_heads");
}

/* ---- Latent attention ---- */

struct latent_call {
    device_latent l;
    device_kv kv;
    const device_row *rows;
};

/* A row in x; in y its heads of q, then the compressed row. */
static __global__ void __launch_bounds__(THREADS)
    place_latent_kernel(const __grid_constant__ latent_call c)
{
    CUDA_SHARED(float, shared);
    const device_latent &l = c.l;
    uint32_t warp = blockIdx.y * WARPS + threadIdx.x / 32, t = blockIdx.x, half = l.dims / 2;
    uint32_t k_dim = l.rank + l.dims, lane = threadIdx.x % 32;
    float *head = head_place(shared, k_dim);
    const float *turns = l.cos_sin + (size_t)t * l.dims;

    cuda_await_previous();
    if (warp < l.n_heads) {
        size_t at = (size_t)t * l.n_heads + warp;
        float *q = l.q + at * l.q_dim, *absorbed = l.absorbed + at * k_dim + l.rank;
        if (l.query_scales != NULL) {
            for (uint32_t i = lane; i < l.q_dim; i += 32)
                q[i] *= l.query_scales[t];
            __syncwarp();
        }
        load_head(q + l.q_dim - l.dims, l.dims, head);
        rotate_head(head, half, turns, l.neox);
        for (uint32_t i = lane; i < l.dims; i += 32)
            absorbed[i] = head[i];
    } else if (warp == l.n_heads) {
        load_head(l.row + (size_t)t * k_dim, k_dim, head);
        norm_head(head, l.rank, l.norm, l.eps);
        rotate_head(head + l.rank, half, turns, l.neox);
        store_head(c.kv, c.rows[t], KV_KEYS, 0, k_dim, head);
    }
}

void cuda_place_latent(struct device_stream *s, const struct device_kv *kv,
                       const struct device_row *rows, uint32_t n, const struct device_latent *l)
{
    latent_call c = {*l, *kv, rows};

    if (n == 0)
        return;
    CUDA_LAUNCH_EARLY(place_latent_kernel, dim3(n, (l->n_heads + WARPS) / WARPS), THREADS,
                      WARPS * (l->rank + l->dims) * sizeof(float), s, c);
    cuda_check(s, "place_latent");
}
