/* What kernels of recurrent layers share: the states of slots, the rows that step them, and the
 * causal convolution (kernels/kernels.h). */
#ifndef MOED_DEVICE_CUDA_RECURRENT_CUH
#define MOED_DEVICE_CUDA_RECURRENT_CUH

#include "device/cuda/scalar.cuh"
#include "device/module.h"
#include "kernels/kernels.h"

static __device__ __forceinline__ float *recurrent_state(const device_recurrent &r, uint32_t slot)
{
    return r.states + slot * r.slot_floats;
}

/* The rows of the call that belong to a run: [begin, end). */
struct recurrent_piece {
    uint32_t begin, end;
};

static __device__ __forceinline__ recurrent_piece recurrent_run(const device_recurrent &r,
                                                                uint32_t run)
{
    device_run all = r.runs[run];
    recurrent_piece p = {max(all.first, r.first), min(all.first + all.n, r.first + r.n)};
    return p;
}

/* True: row t - back is one of the call, and of the slot of row t. */
static __device__ __forceinline__ bool recurrent_has(const device_recurrent &r, uint32_t t,
                                                     uint32_t back)
{
    return t >= r.first + back && r.rows[t - back].slot == r.rows[t].slot;
}

static __device__ __forceinline__ bool recurrent_is_last(const device_recurrent &r, uint32_t t)
{
    return t + 1 == r.first + r.n || r.rows[t + 1].slot != r.rows[t].slot;
}

/* The rows of row t's run in the call before it, up to `most` (at most 31). All lanes of the warp
 * call it. */
static __device__ __forceinline__ uint32_t recurrent_rows_before(const device_recurrent &r,
                                                                 uint32_t t, uint32_t most)
{
    uint32_t lane = threadIdx.x % 32;
    bool there = lane >= 1 && lane <= most && recurrent_has(r, t, lane);
    return __popc(__ballot_sync(0xffffffffu, there));
}

/* The input that channel has `back` positions before row t, of which `before` are rows of the call.
 * past: of the row's slot, [taps - 1][width]. input: a function of row and channel. */
template <class F>
static __device__ __forceinline__ float
recurrent_input(const device_recurrent &r, uint32_t t, uint32_t before, uint32_t back,
                uint32_t taps, const float *past, size_t width, uint32_t channel, F input)
{
    if (back <= before)
        return input(t - back, channel);
    if (back > r.rows[t].position)
        return 0;
    return past[(size_t)(taps - 1 - (back - before)) * width + channel];
}

/* Leaves the inputs of a channel that positions after row t, its run's last, will need. */
template <class F>
static __device__ __forceinline__ void
recurrent_keep_inputs(const device_recurrent &r, uint32_t t, uint32_t before, uint32_t taps,
                      float *past, size_t width, uint32_t channel, F input)
{
    for (uint32_t i = 0; i + 1 < taps; i++) {
        uint32_t back = taps - 2 - i;
        past[i * width + channel] =
            recurrent_input(r, t, before, back, taps, past, width, channel, input);
    }
}

#endif
