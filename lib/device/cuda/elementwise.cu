/* Operations on single elements, one thread for each, in the order of steps of kernels/ops.inc.c,
 * rope_apply and worker/forward/dense_host.c. */
#include "device/cuda/dependent.cuh"
#include "device/cuda/ops.h"
#include "device/cuda/scalar.cuh"
#include "kernels/kernels.h"

enum { THREADS = 256 };

/* Elements of a block of threads, in the y direction; rows are in x. */
static unsigned parts(size_t elements)
{
    return (unsigned)((elements + THREADS - 1) / THREADS);
}

static __device__ __forceinline__ uint32_t element(void)
{
    return blockIdx.y * THREADS + threadIdx.x;
}

static __device__ __forceinline__ bool stopped(const uint32_t *guard)
{
    return guard != NULL && *guard != 0;
}

static __global__ void add_rows(const float *add, size_t add_stride, float *rows, size_t stride,
                                uint32_t d, const uint32_t *guard)
{
    uint32_t i = element();

    cuda_await_previous();
    if (i < d && !stopped(guard)) {
        float *y = rows + blockIdx.x * stride + i;
        *y = *y + add[blockIdx.x * add_stride + i];
    }
}

void cuda_add(struct device_stream *s, const float *add, size_t add_stride, float *rows,
              size_t stride, uint32_t n, uint32_t d)
{
    if (n == 0 || d == 0)
        return;
    CUDA_LAUNCH_EARLY(add_rows, dim3(n, parts(d)), THREADS, 0, s, add, add_stride, rows, stride, d,
                      s->guard);
    cuda_check(s, "add");
}

static __global__ void gate_elements(uint32_t activation, float limit, const float *gate,
                                     const float *up, float *h, size_t n)
{
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;

    cuda_await_previous();
    if (i < n)
        h[i] = cuda_gated(activation, limit, gate[i], up[i]);
}

void cuda_gated(struct device_stream *s, uint32_t activation, float limit, const float *gate,
                const float *up, float *h, size_t n)
{
    if (n == 0)
        return;
    CUDA_LAUNCH_EARLY(gate_elements, parts(n), THREADS, 0, s, activation, limit, gate, up, h, n);
    cuda_check(s, "gated");
}

static __global__ void gate_by_sigmoid(const float *gate, float *rows, size_t n)
{
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;

    cuda_await_previous();
    if (i < n)
        rows[i] = rows[i] / (1.0f + cuda_exp(-gate[i]));
}

void cuda_gate_by_sigmoid(struct device_stream *s, const float *gate, float *rows, size_t n)
{
    if (n == 0)
        return;
    CUDA_LAUNCH_EARLY(gate_by_sigmoid, parts(n), THREADS, 0, s, gate, rows, n);
    cuda_check(s, "gate_by_sigmoid");
}

struct parts_call {
    uint32_t activation;
    const float *gate;
    float *rows;
    uint32_t n_gates, width;
};

static __device__ __forceinline__ float part_factor(uint32_t activation, float gate, float value)
{
    if (activation == ACTIVATION_SOFTPLUS)
        return cuda_softplus(gate) * value;
    return value / (1.0f + cuda_exp(-gate));
}

/* A row in x, its values in y. A value that has a gate of its own is the gated one; a part's factor
 * is that of 1. */
static __global__ void gate_row_parts(parts_call c)
{
    uint32_t i = element();

    cuda_await_previous();
    if (i >= c.n_gates * c.width)
        return;
    float gate = c.gate[(size_t)blockIdx.x * c.n_gates + i / c.width];
    float *value = c.rows + (size_t)blockIdx.x * c.n_gates * c.width + i;
    *value = c.width == 1 ? part_factor(c.activation, gate, *value)
                          : *value * part_factor(c.activation, gate, 1.0f);
}

void cuda_gate_parts(struct device_stream *s, uint32_t activation, const float *gate, float *rows,
                     uint32_t n, uint32_t n_gates, uint32_t width)
{
    const parts_call c = {activation, gate, rows, n_gates, width};

    if (n == 0 || n_gates == 0)
        return;
    CUDA_LAUNCH_EARLY(gate_row_parts, dim3(n, parts((size_t)n_gates * width)), THREADS, 0, s, c);
    cuda_check(s, "gate_parts");
}

static __global__ void scale_values(float by, const float *from, float *to, size_t n,
                                    const uint32_t *guard)
{
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;

    cuda_await_previous();
    if (i < n && !stopped(guard))
        to[i] = from[i] * by;
}

void cuda_scale(struct device_stream *s, float by, const float *from, float *to, size_t n)
{
    if (n == 0)
        return;
    CUDA_LAUNCH_EARLY(scale_values, parts(n), THREADS, 0, s, by, from, to, n, s->guard);
    cuda_check(s, "scale");
}

struct split_call {
    const float *from;
    uint32_t part; /* values of a part */
    device_split to;
};

/* A row in x, its values in y. */
static __global__ void split_rows(const __grid_constant__ split_call c)
{
    uint32_t i = element(), row = c.part * c.to.n_parts;

    cuda_await_previous();
    if (i >= row)
        return;
    uint32_t part = i / c.part, at = i % c.part, k = 0;
    for (; at >= c.to.to[k].width; k++)
        at -= c.to.to[k].width;
    c.to.to[k].at[blockIdx.x * c.to.to[k].stride + (size_t)part * c.to.to[k].width + at] =
        c.from[(size_t)blockIdx.x * row + i];
}

void cuda_split(struct device_stream *s, const float *from, uint32_t n,
                const struct device_split *to)
{
    split_call c = {from, 0, *to};

    for (uint32_t k = 0; k < to->n_to; k++)
        c.part += to->to[k].width;
    if (n == 0 || c.part == 0)
        return;
    CUDA_LAUNCH_EARLY(split_rows, dim3(n, parts((size_t)c.part * to->n_parts)), THREADS, 0, s, c);
    cuda_check(s, "split");
}

struct combine_call {
    const float *rows;
    const uint32_t *row_of;
    const float *weights;
    const uint32_t *selected;
    uint32_t n_used;
    const float *down_bias, *shared, *shared_by;
    float *x;
    uint32_t d;
    const uint32_t *guard;
};

static __global__ void combine_rows(combine_call c)
{
    uint32_t i = element();
    size_t at = (size_t)blockIdx.x * c.d + i, first = (size_t)blockIdx.x * c.n_used;
    float sum = 0;

    cuda_await_previous();
    if (i >= c.d || stopped(c.guard))
        return;
#pragma unroll 4
    for (uint32_t k = 0; k < c.n_used; k++) {
        float weight = c.weights[first + k];
        sum = __fmaf_rn(weight, c.rows[(size_t)c.row_of[first + k] * c.d + i], sum);
        if (c.down_bias != NULL)
            sum = __fmaf_rn(weight, c.down_bias[(size_t)c.selected[first + k] * c.d + i], sum);
    }
    if (c.shared != NULL) {
        float shared = c.shared[at];
        if (c.shared_by != NULL)
            shared *= 1.0f / (1.0f + cuda_exp(-c.shared_by[blockIdx.x]));
        sum = sum + shared;
    }
    c.x[at] = c.x[at] + sum;
}

void cuda_combine(struct device_stream *s, const float *rows, const uint32_t *row_of,
                  const float *weights, const uint32_t *selected, uint32_t n_used,
                  const float *down_bias, const float *shared, const float *shared_by, float *x,
                  uint32_t n, uint32_t d)
{
    combine_call c = {rows,   row_of,    weights, selected, n_used,  down_bias,
                      shared, shared_by, x,       d,        s->guard};

    if (n == 0 || d == 0)
        return;
    CUDA_LAUNCH_EARLY(combine_rows, dim3(n, parts(d)), THREADS, 0, s, c);
    cuda_check(s, "combine");
}
