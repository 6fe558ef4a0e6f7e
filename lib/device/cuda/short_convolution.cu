/* Gated short convolutions of recurrent layers; a thread takes a channel of a row. The inputs of
 * the convolution are b * x. Two launches: the second leaves the state, which all of the first
 * reads. */
#include "device/cuda/dependent.cuh"
#include "device/cuda/ops.h"
#include "device/cuda/recurrent.cuh"

enum { THREADS = 256 };

struct convolution_call {
    device_recurrent r;
    device_short_convolution c;
    const uint32_t *guard;
};

/* b * x of a row. */
struct convolution_input {
    const device_short_convolution &c;
    __device__ __forceinline__ float operator()(uint32_t t, uint32_t channel) const
    {
        const float *row = c.in + (size_t)t * 3 * c.width + channel;
        return row[0] * row[2 * (size_t)c.width];
    }
};

/* A row in x, channels in y. */
static __global__ void __launch_bounds__(THREADS)
    short_convolve(const __grid_constant__ convolution_call call)
{
    const device_recurrent &r = call.r;
    const device_short_convolution &c = call.c;
    uint32_t t = r.first + blockIdx.x, channel = blockIdx.y * THREADS + threadIdx.x;

    cuda_await_previous();
    uint32_t before = recurrent_rows_before(r, t, c.taps - 1);
    if (channel >= c.width)
        return;
    const float *past = recurrent_state(r, r.rows[t].slot);
    float sum = 0;
    for (uint32_t i = 0; i < c.taps; i++)
        sum = __fmaf_rn(c.weights[(size_t)channel * c.taps + i],
                        recurrent_input(r, t, before, c.taps - 1 - i, c.taps, past, c.width,
                                        channel, convolution_input{c}),
                        sum);
    c.out[(size_t)t * c.width + channel] = sum * c.in[((size_t)t * 3 + 1) * c.width + channel];
}

/* A run in x, channels in y. */
static __global__ void __launch_bounds__(THREADS)
    short_convolution_keep(const __grid_constant__ convolution_call call)
{
    const device_recurrent &r = call.r;
    const device_short_convolution &c = call.c;
    uint32_t channel = blockIdx.y * THREADS + threadIdx.x;

    cuda_await_previous();
    recurrent_piece p = recurrent_run(r, blockIdx.x);
    if (p.begin >= p.end || (call.guard != NULL && *call.guard != 0))
        return;
    uint32_t before = recurrent_rows_before(r, p.end - 1, c.taps - 1);
    if (channel < c.width)
        recurrent_keep_inputs(r, p.end - 1, before, c.taps,
                              recurrent_state(r, r.rows[p.begin].slot), c.width, channel,
                              convolution_input{c});
}

void cuda_short_convolution(struct device_stream *s, const struct device_recurrent *r,
                            const struct device_short_convolution *c)
{
    convolution_call call = {*r, *c, s->guard};
    unsigned parts = (c->width + THREADS - 1) / THREADS;

    if (r->n == 0)
        return;
    CUDA_LAUNCH_EARLY(short_convolve, dim3(r->n, parts), THREADS, 0, s, call);
    cuda_check(s, "short_convolution");
    CUDA_LAUNCH_EARLY(short_convolution_keep, dim3(r->n_runs, parts), THREADS, 0, s, call);
    cuda_check(s, "short_convolution");
}
