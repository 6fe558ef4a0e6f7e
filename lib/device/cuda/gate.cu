/* A layer's gate: the router's product, the choice of experts, and the table of their work.
 *
 * For few rows all of it is one launch. A block takes 16 rows of the router by 256 columns, which
 * is the definition's unit (kernels/kernels.h), and stages them in shared memory in one go: the
 * router is small, and more blocks than that would only wait. A half-warp then sums a token of the
 * batch. The block that is done last adds the units' sums in order, routes the rows, a warp each,
 * and makes the table.
 *
 * For more rows, and for routers of quantised weights, each step is a launch of its own. */
#include "device/cuda/gate.h"
#include "device/cuda/choose.cuh"
#include "device/cuda/dependent.cuh"
#include "device/cuda/ops.h"
#include "device/cuda/router.cuh"
#include "device/cuda/tensor_core.cuh"
#include "device/cuda/tiles.cuh"

enum {
    THREADS = 128,
    ROWS_MOST = THREADS / 16, /* of a batch in one launch: a half-warp each */
    COLUMNS = 256,
    COUNTER_BYTES = 256, /* of the scratch; the sums follow */
};

struct gate_call {
    const uint8_t *tiles, *other_tiles; /* other: device_gate.other, NULL: none */
    uint64_t row_bytes;
    uint32_t cols, tile_rows, groups, n;
    const float *x;
    size_t x_stride;
    const float *bias;
    float *other_out;
    route_call route;
    uint32_t route_bytes; /* of shared memory, for a row */
    uint32_t warps;       /* that route rows */
    choose_call choose;
    uint32_t *done; /* blocks that are; 0 before and after */
    float *sums;    /* [n][groups][tile rows, the other's too][TILE_ROWS] */
};

static __device__ __forceinline__ float *sums_at(const gate_call &c, uint32_t t, uint32_t group,
                                                 uint32_t tile)
{
    uint32_t tiles = c.tile_rows + (c.other_tiles != NULL);
    return c.sums + (((size_t)t * c.groups + group) * tiles + tile) * TILE_ROWS;
}

/* The block's unit of weights, as they are in the tile. */
template <class T>
static __device__ __forceinline__ void stage_weights(const gate_call &c, uint32_t tile,
                                                     uint32_t group, uint8_t *weights)
{
    const uint8_t *from = tile < c.tile_rows ? c.tiles + tile * c.row_bytes : c.other_tiles;
    uint32_t first = group * tiles_256<T>::BYTES;
    uint32_t bytes = min((uint32_t)tiles_256<T>::BYTES, (uint32_t)(c.row_bytes - first));

    for (uint32_t i = threadIdx.x * 16; i < bytes; i += THREADS * 16)
        tensor_copy<16>(weights + i, from + first + i);
}

/* The unit's sums of every token. inputs: [ROWS_MOST][COLUMNS]. */
template <class T>
static __device__ __forceinline__ void sum_unit(const gate_call &c, uint32_t tile, uint32_t group,
                                                const uint8_t *weights, float *inputs)
{
    uint32_t columns = min((uint32_t)COLUMNS, c.cols - group * COLUMNS), row = threadIdx.x % 16;
    uint32_t t = threadIdx.x / 16;
    float *x = inputs + t * COLUMNS, acc = 0;

    if (t < c.n)
        for (uint32_t i = row; i < columns; i += 16)
            x[i] = c.x[t * c.x_stride + group * COLUMNS + i];
    tensor_copy_wait_all();
    __syncthreads();
    if (t >= c.n)
        return;
#pragma unroll 16
    for (uint32_t i = 0; i < columns; i++)
        acc = __fmaf_rn(T::read(weights, i, row), x[i], acc);
    sums_at(c, t, group, tile)[row] = acc;
}

/* Row r of tile row `tile` for token t: its units' sums in order. They come from other blocks, so
 * not through the first-level cache. */
static __device__ __forceinline__ float add_units(const gate_call &c, uint32_t t, uint32_t tile,
                                                  uint32_t r)
{
    float sum = __ldcg(&sums_at(c, t, 0, tile)[r]);

    for (uint32_t group = 1; group < c.groups; group++)
        sum += __ldcg(&sums_at(c, t, group, tile)[r]);
    return sum;
}

/* True in the block that is done last, in all its threads. */
static __device__ __forceinline__ bool is_last(uint32_t *done)
{
    __shared__ bool last;

    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(done, 1u) == gridDim.x - 1;
        if (last)
            *done = 0;
    }
    __syncthreads();
    __threadfence();
    return last;
}

/* Blocks: tile rows, those of the router and then the other's, by groups of columns. */
template <class T>
static __global__ void __launch_bounds__(THREADS) gate_kernel(const __grid_constant__ gate_call c)
{
    CUDA_SHARED(uint8_t, shared);
    __shared__ choose_shared choosing;
    uint32_t tile = blockIdx.x / c.groups, group = blockIdx.x % c.groups;
    uint32_t n_experts = c.route.r.n_experts;

    stage_weights<T>(c, tile, group, shared);
    cuda_await_previous();
    sum_unit<T>(c, tile, group, shared, (float *)(shared + tiles_256<T>::BYTES));
    if (!is_last(c.done))
        return;
    for (uint32_t i = threadIdx.x; i < c.n * n_experts; i += THREADS) {
        uint32_t t = i / n_experts, e = i % n_experts;
        float logit = add_units(c, t, e / TILE_ROWS, e % TILE_ROWS);
        c.route.logits[i] = c.bias != NULL ? logit + c.bias[e] : logit;
    }
    if (c.other_tiles != NULL && threadIdx.x < c.n)
        c.other_out[threadIdx.x] = add_units(c, threadIdx.x, c.tile_rows, 0);
    __syncthreads();
    uint32_t warp = threadIdx.x / 32;
    for (uint32_t t = warp; t < c.n && warp < c.warps; t += c.warps)
        route_one(c.route, t, (float *)(shared + warp * c.route_bytes));
    __syncthreads();
    if (c.choose.n_choices > 0)
        choose(c.choose, choosing);
}

/* ---- Steps of their own ---- */

static __global__ void route_rows(route_call c)
{
    CUDA_SHARED(float, row);

    cuda_await_previous();
    route_one(c, blockIdx.x, row);
}

static void launch_route(struct device_stream *s, const route_call &c, uint32_t n)
{
    CUDA_LAUNCH_EARLY(route_rows, n, LANES, route_shared_bytes(c.r), s, c);
    cuda_check(s, "route");
}

static __global__ void __launch_bounds__(DEVICE_CHOSEN)
    choose_kernel(const __grid_constant__ choose_call c)
{
    __shared__ choose_shared shared;

    cuda_await_previous();
    choose(c, shared);
}

static void launch_choose(struct device_stream *s, const choose_call &c)
{
    CUDA_LAUNCH_EARLY(choose_kernel, 1, (c.n_choices + 31) / 32 * 32, 0, s, c);
    cuda_check(s, "choose");
}

void cuda_choose(struct device_stream *s, const struct device_choice *choice,
                 const uint32_t *selected, uint32_t n)
{
    choose_call c;

    if (n > 0 && choose_call_of(s, choice, selected, n, &c))
        launch_choose(s, c);
}

static route_call route_call_of(const struct device_gate *g)
{
    return {g->router, g->logits, g->selection_bias, g->expert_scales, g->selected, g->weights};
}

void cuda_route(struct device_stream *s, const struct device_gate *g, uint32_t n)
{
    if (n > 0)
        launch_route(s, route_call_of(g), n);
}

static void run_steps(struct device_stream *s, const struct device_gate *g,
                      const struct device_activations *in)
{
    struct device_product products[] = {
        {g->router_weights, g->logits, g->router.n_experts, false, g->bias},
        {g->other, g->other_out, 1, false, NULL}};

    cuda_multiply_several(s, products, g->other ? 2 : 1, in);
    launch_route(s, route_call_of(g), in->n_tokens);
    if (g->choice)
        cuda_choose(s, g->choice, g->selected, in->n_tokens);
}

/* ---- One launch ---- */

template <class T> static void launch_gate(struct device_stream *s, gate_call *c, uint32_t most)
{
    uint32_t tiles = c->tile_rows + (c->other_tiles != NULL);
    uint32_t bytes = tiles_256<T>::BYTES + ROWS_MOST * COLUMNS * (uint32_t)sizeof(float);
    uint32_t warps = min((uint32_t)THREADS / 32, most / c->route_bytes);

    c->row_bytes = tiles_row_bytes<T>(c->cols);
    c->warps = warps;
    bytes = max(bytes, warps * c->route_bytes);
    CUDA_LAUNCH_EARLY(gate_kernel<T>, tiles * c->groups, THREADS, bytes, s, *c);
    cuda_check(s, "gate");
}

static bool is_float(enum tensor_type type)
{
    return type == TENSOR_F32 || type == TENSOR_F16 || type == TENSOR_BF16;
}

static uint32_t groups_of(const struct matrix *m)
{
    return (m->cols + COLUMNS - 1) / COLUMNS;
}

size_t cuda_gate_scratch_bytes(uint32_t n_experts, uint32_t cols)
{
    size_t tiles = (n_experts + TILE_ROWS - 1) / TILE_ROWS + 1, groups = (cols + 255) / 256;
    return COUNTER_BYTES + ROWS_MOST * groups * tiles * TILE_ROWS * sizeof(float);
}

void cuda_gate(struct device_stream *s, const struct device_gate *g,
               const struct device_activations *in)
{
    /* of a block's 48 KiB, beside the table of choices */
    const uint32_t shared_most = (48u << 10) - sizeof(choose_shared) - 64;
    const struct matrix *m = g->router_weights;
    gate_call c = {};

    c.route = route_call_of(g);
    c.route_bytes = route_shared_bytes(g->router);
    if (in->n_tokens == 0)
        return;
    if (!is_float(m->type) || (g->other && g->other->type != m->type) || in->n_tokens > ROWS_MOST ||
        c.route_bytes > shared_most) {
        run_steps(s, g, in);
        return;
    }
    c.tiles = (const uint8_t *)m->tiles;
    c.cols = m->cols;
    c.tile_rows = tile_row_count(m->rows);
    c.groups = groups_of(m);
    c.n = in->n_tokens;
    c.x = in->x;
    c.x_stride = in->x_stride;
    c.bias = g->bias;
    if (g->other) {
        c.other_tiles = (const uint8_t *)g->other->tiles;
        c.other_out = g->other_out;
    }
    c.done = (uint32_t *)g->scratch;
    c.sums = (float *)((uint8_t *)g->scratch + COUNTER_BYTES);
    if (g->choice && !choose_call_of(s, g->choice, g->selected, c.n, &c.choose))
        return;
    (m->type == TENSOR_F32   ? launch_gate<tiles_f32>
     : m->type == TENSOR_F16 ? launch_gate<tiles_f16>
                             : launch_gate<tiles_bf16>)(s, &c, shared_most);
}
