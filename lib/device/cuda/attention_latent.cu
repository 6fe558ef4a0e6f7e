/* Latent attention of many rows by tensor cores: all heads share a key of up to 576 dimensions a
 * position, whose first ones, up to 512, are the value. See attention_many.cuh.
 *
 * Four warps share 16 queries. A block of threads has 32, and two steps of 32 positions in shared
 * memory: the next one is on its way while this one is computed. */
#include "device/cuda/attention_many.cuh"
#include "device/cuda/stream.h"

enum {
    KEYS = 576, /* DeepSeek-V2's and V3's, and their relatives' */
    VALUES = 512,
    PARTS = 4,
    THREADS = 256,
    QUERIES = THREADS / 32 / PARTS * WARP_QUERIES,
    STEP = 32,
};

struct latent_tile {
    uint16_t rows[2][STEP][KEYS + PAD]; /* of two steps */
    float4 parts[STEP / 8 * THREADS];   /* of put_parts */
};

/* Grid: as of attend_many_tile. */
template <class T>
static __global__ void __launch_bounds__(THREADS, 1) attend_latent_tile(attend_call c)
{
#if TENSOR_CORE_BF16
    CUDA_SHARED(latent_tile, sh);
    uint32_t t = c.end_row - 1 - blockIdx.x;
    lane_queries<KEYS / PARTS, VALUES / PARTS> l;
    step_scores<STEP> scores;

    if (!begins_tile(c, t))
        return;
    tile g = find_tile(c, t);
    uint32_t first = g.seen.first / STEP * STEP;
    load_step<T, KEYS, STEP, THREADS>(c, g, first, KV_KEYS, sh->rows[0]);
    begin_queries<PARTS>(c, g, &l);
    for (uint32_t now = 0; first < g.seen.end; first += STEP, now = 1 - now) {
        tensor_copy_wait<0>();
        __syncthreads(); /* the step is there, and the one before is no longer needed */
        load_step<T, KEYS, STEP, THREADS>(c, g, first + STEP, KV_KEYS, sh->rows[1 - now]);
        make_scores<KEYS>(l, sh->rows[now], &scores);
        put_parts<PARTS, THREADS>(scores, sh->parts);
        __syncthreads();
        add_parts<PARTS, THREADS>(sh->parts, &scores);
        make_shares(first, 0, &l, &scores);
        make_shares(first, 1, &l, &scores);
        add_values<KEYS>(scores, sh->rows[now], &l);
    }
    store_queries(c, l);
#endif
}

template <class T> static void launch(struct device_stream *s, const attend_call &c)
{
    dim3 grid(c.end_row - c.first_row, c.tiles_a_kv_head);

    if (!allow_shared(s->device, attend_latent_tile<T>, sizeof(latent_tile)))
        return;
    CUDA_LAUNCH(attend_latent_tile<T>, grid, THREADS, sizeof(latent_tile), cuda_stream(s), c);
    cuda_check(s, "attend_latent");
}

void attend_latent(struct device_stream *s, const attend_call &c)
{
    if (c.kv.type == TENSOR_Q8_0)
        launch<kv_quant>(s, c);
    else
        launch<uint16_t>(s, c);
}

uint32_t attend_latent_queries(const struct device *d, const attend_call &c)
{
    bool fits = d->bf16 && sizeof(latent_tile) <= d->block_shared_bytes_optin;

    return fits && c.n_kv_heads == 1 && c.k_dim <= KEYS && c.v_dim <= VALUES && c.v_dim <= c.k_dim
               ? QUERIES
               : 0;
}
