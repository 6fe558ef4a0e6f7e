/* Attention of many rows by tensor cores, where keys and values are rows of their own; see
 * attention_many.cuh.
 *
 * Keys and values come through shared memory by cp.async: the next step's keys while the shares and
 * values of this one are computed, its values while the next one's scores are. */
#include "device/cuda/attention_many.cuh"
#include "device/cuda/stream.h"

/* Of heads of at most DIM dimensions. Up to 128 a warp has all of them, and two blocks of threads
 * share a multiprocessor. Beyond, a part has 128, and a block has the multiprocessor to itself:
 * 8 warps as well. 512: steps of 32, which leave shared memory for the keys and values. */
template <int DIM> struct many_shape {
    static const int PARTS = DIM <= 128 ? 1 : DIM / 128, PART = DIM / PARTS;
    static const int THREADS = PARTS == 1 ? 128 : 256, BLOCKS = PARTS == 1 ? 2 : 1;
    static const int QUERIES = THREADS / 32 / PARTS * WARP_QUERIES;
    static const int STEP = DIM <= 256 ? 64 : 32;
};

/* A step's keys and values. */
template <int DIM> struct step_tile {
    uint16_t keys[many_shape<DIM>::STEP][DIM + PAD], values[many_shape<DIM>::STEP][DIM + PAD];
};

/* Of put_parts; behind the tile. */
template <int DIM> static constexpr size_t parts_bytes()
{
    using S = many_shape<DIM>;
    return S::PARTS == 1 ? 0 : S::STEP / 8 * S::THREADS * sizeof(float4);
}

/* Grid: rows, the last first, because they have the most positions; tiles of heads. */
template <class T, int DIM>
static __global__ void __launch_bounds__(many_shape<DIM>::THREADS, many_shape<DIM>::BLOCKS)
    attend_many_tile(attend_call c)
{
    using S = many_shape<DIM>;
#if TENSOR_CORE_CODE
    if constexpr (S::PARTS > 1 && !TENSOR_CORE_BF16)
        return; /* before compute capability 8.0 a block has no memory for it */
    CUDA_SHARED(step_tile<DIM>, sh);
    float4 *parts = (float4 *)(sh + 1);
    uint32_t t = c.end_row - 1 - blockIdx.x;
    lane_queries<S::PART, S::PART> l;
    step_scores<S::STEP> scores;

    if (!begins_tile(c, t))
        return;
    tile g = find_tile(c, t);
    uint32_t first = g.seen.first / S::STEP * S::STEP;
    load_step<T, DIM, S::STEP, S::THREADS>(c, g, first, KV_KEYS, sh->keys);
    load_step<T, DIM, S::STEP, S::THREADS>(c, g, first, KV_VALUES, sh->values);
    begin_queries<S::PARTS>(c, g, &l);
    for (; first < g.seen.end; first += S::STEP) {
        tensor_copy_wait<1>();
        __syncthreads();
        make_scores<DIM>(l, sh->keys, &scores);
        put_parts<S::PARTS, S::THREADS>(scores, parts);
        __syncthreads();
        load_step<T, DIM, S::STEP, S::THREADS>(c, g, first + S::STEP, KV_KEYS, sh->keys);
        add_parts<S::PARTS, S::THREADS>(parts, &scores);
        make_shares(first, 0, &l, &scores);
        make_shares(first, 1, &l, &scores);
        tensor_copy_wait<1>();
        __syncthreads();
        add_values<DIM>(scores, sh->values, &l);
        __syncthreads();
        load_step<T, DIM, S::STEP, S::THREADS>(c, g, first + S::STEP, KV_VALUES, sh->values);
    }
    tensor_copy_wait_all();
    store_queries(c, l);
#endif
}

template <class T, int DIM> static void launch(struct device_stream *s, const attend_call &c)
{
    dim3 grid(c.end_row - c.first_row, c.n_kv_heads * c.tiles_a_kv_head);
    size_t bytes = sizeof(step_tile<DIM>) + parts_bytes<DIM>();

    if (!allow_shared(s->device, attend_many_tile<T, DIM>, bytes))
        return;
    CUDA_LAUNCH((attend_many_tile<T, DIM>), grid, many_shape<DIM>::THREADS, bytes, cuda_stream(s),
                c);
    cuda_check(s, "attend_many");
}

template <class T> static void launch_of(struct device_stream *s, const attend_call &c)
{
    uint32_t dim = max(c.k_dim, c.v_dim);

    if (dim <= 64)
        launch<T, 64>(s, c);
    else if (dim <= 128)
        launch<T, 128>(s, c);
    else if (dim <= 256)
        launch<T, 256>(s, c);
    else
        launch<T, 512>(s, c);
}

void attend_many(struct device_stream *s, const attend_call &c)
{
    if (c.kv.type == TENSOR_Q8_0)
        launch_of<kv_quant>(s, c);
    else
        launch_of<uint16_t>(s, c);
}

template <int DIM> static uint32_t queries_of(const struct device *d)
{
    bool fits =
        many_shape<DIM>::PARTS == 1 ||
        (d->bf16 && sizeof(step_tile<DIM>) + parts_bytes<DIM>() <= d->block_shared_bytes_optin);

    return fits ? many_shape<DIM>::QUERIES : 0;
}

uint32_t attend_many_queries(const struct device *d, const attend_call &c)
{
    uint32_t dim = max(c.k_dim, c.v_dim);

    if (dim <= 128)
        return queries_of<128>(d);
    if (dim <= 256)
        return queries_of<256>(d);
    return dim <= 512 ? queries_of<512>(d) : 0;
}
