/* Routing for kernels: converts gate logits to experts and weights, step by step as model/router.c.
 * One warp takes a row: its lanes share the work for each expert; one lane computes what is defined
 * as a chain. */
#ifndef MOED_DEVICE_CUDA_ROUTER_CUH
#define MOED_DEVICE_CUDA_ROUTER_CUH

#include "device/cuda/scalar.cuh"
#include "device/module.h"
#include "model/architecture.h"

#include <math.h>

enum { LANES = 32 };
#define ALL_LANES 0xffffffffu
#define NO_CHOICE 0xffffffffu

/* As in router.c. */
#define SPARSE_MIXER_REACH 0.02f

struct route_call {
    device_router r;
    float *logits;
    const float *selection_bias;
    const float *expert_scales; /* NULL: none */
    uint32_t *selected;
    float *weights;
};

static __device__ __forceinline__ uint32_t route_lane(void)
{
    return threadIdx.x % LANES;
}

/* Values of which some are taken. */
struct choice {
    float *value;
    uint8_t *taken; /* [n] */
    uint32_t n;
};

static __device__ __forceinline__ void take_none(const choice &c)
{
    for (uint32_t i = route_lane(); i < c.n; i += LANES)
        c.taken[i] = 0;
    __syncwarp();
}

/* The largest value that is not taken; of equal values the first. If the first value that is not
 * taken is NaN, the NaN: no value is larger. */
static __device__ uint32_t take_largest(const choice &c)
{
    uint32_t first = NO_CHOICE, best = NO_CHOICE;
    float value = 0;

    for (uint32_t i = route_lane(); i < c.n; i += LANES) {
        if (c.taken[i])
            continue;
        if (first == NO_CHOICE)
            first = i;
        if (!isnan(c.value[i]) && (best == NO_CHOICE || c.value[i] > value)) {
            best = i;
            value = c.value[i];
        }
    }
    for (int width = LANES / 2; width > 0; width /= 2) {
        uint32_t other_first = __shfl_xor_sync(ALL_LANES, first, width);
        uint32_t other = __shfl_xor_sync(ALL_LANES, best, width);
        float other_value = __shfl_xor_sync(ALL_LANES, value, width);
        first = min(first, other_first);
        if (other != NO_CHOICE &&
            (best == NO_CHOICE || other_value > value || (other_value == value && other < best))) {
            best = other;
            value = other_value;
        }
    }
    if (best == NO_CHOICE || isnan(c.value[first]))
        best = first;
    __syncwarp();
    if (route_lane() == 0)
        c.taken[best] = 1;
    __syncwarp();
    return best;
}

/* As softmax of kernels/ops.inc.c; in place, shared or global memory. */
static __device__ void softmax(float *x, uint32_t n)
{
    uint32_t lane = threadIdx.x % 16;
    float top = -INFINITY, sum = 0;

    for (uint32_t i = lane; i < n; i += 16)
        top = cuda_max(top, x[i]);
    top = cuda_fold_max(top);
    __syncwarp();
    for (uint32_t i = route_lane(); i < n; i += LANES)
        x[i] = cuda_exp(x[i] - top);
    __syncwarp();
    for (uint32_t i = lane; i < n; i += 16)
        sum = sum + x[i];
    float inverse = 1.0f / cuda_fold_add(sum);
    __syncwarp();
    for (uint32_t i = route_lane(); i < n; i += LANES)
        x[i] = x[i] * inverse;
    __syncwarp();
}

/* A group's score: its largest value, or the sum of its two largest. */
static __device__ float group_score(const float *value, uint32_t n, bool two)
{
    float first = -INFINITY, second = -INFINITY;

    for (uint32_t i = 0; i < n; i++) {
        if (value[i] > first) {
            second = first;
            first = value[i];
        } else if (value[i] > second)
            second = value[i];
    }
    return two && n > 1 ? first + second : first;
}

/* Selection values of groups that are not among the best become minus infinity. groups: [n_groups].
 */
static __device__ void keep_best_groups(const device_router &r, float *selection,
                                        const choice &groups)
{
    uint32_t size = r.n_experts / r.n_groups;

    for (uint32_t g = route_lane(); g < r.n_groups; g += LANES)
        groups.value[g] = group_score(selection + g * size, size, r.kind == ROUTER_SIGMOID);
    take_none(groups);
    for (uint32_t rank = 0; rank < r.n_groups_used; rank++)
        take_largest(groups);
    for (uint32_t i = route_lane(); i < r.n_groups * size; i += LANES)
        if (!groups.taken[i / size])
            selection[i] = -INFINITY;
    __syncwarp();
}

/* For each rank the largest logit that is left, weighed against those near it. near: [n_experts],
 * scratch. */
static __device__ void sparse_mixer(const device_router &r, const choice &experts, float *near,
                                    uint32_t *selected, float *weights)
{
    take_none(experts);
    for (uint32_t rank = 0; rank < r.n_used; rank++) {
        /* Those that were taken before this rank do not count; the one that is taken now does. */
        uint32_t best = take_largest(experts);
        float top = experts.value[best];
        for (uint32_t i = route_lane(); i < r.n_experts; i += LANES) {
            float logit = experts.value[i], size = fabsf(logit) > top ? fabsf(logit) : top;
            bool counts =
                (i == best || !experts.taken[i]) && !((top - logit) / size > SPARSE_MIXER_REACH);
            near[i] = counts ? cuda_exp(logit - top) : -1.0f;
        }
        __syncwarp();
        if (route_lane() == 0) {
            float sum = 0;
            for (uint32_t i = 0; i < r.n_experts; i++)
                if (!(near[i] < 0))
                    sum = sum + near[i];
            selected[rank] = best;
            weights[rank] = 1.0f / sum;
        }
        __syncwarp();
    }
}

static __device__ void select_largest(const route_call &c, float *row, float *scratch,
                                      uint8_t *taken, uint32_t *selected)
{
    choice experts = {row, taken, c.r.n_experts};

    if (c.selection_bias != NULL || c.r.n_groups != 0) {
        experts.value = scratch;
        for (uint32_t i = route_lane(); i < c.r.n_experts; i += LANES)
            scratch[i] = row[i] + (c.selection_bias != NULL ? c.selection_bias[i] : 0);
        __syncwarp();
    }
    if (c.r.n_groups != 0)
        keep_best_groups(c.r, scratch, choice{scratch + c.r.n_experts, taken, c.r.n_groups});
    take_none(experts);
    for (uint32_t rank = 0; rank < c.r.n_used; rank++) {
        uint32_t best = take_largest(experts);
        if (route_lane() == 0)
            selected[rank] = best;
    }
    __syncwarp();
}

static __device__ void to_probabilities(const device_router &r, float *row)
{
    if (r.kind == ROUTER_SOFTMAX)
        softmax(row, r.n_experts);
    else if (r.kind == ROUTER_SIGMOID)
        for (uint32_t i = route_lane(); i < r.n_experts; i += LANES)
            row[i] = 1.0f / (1.0f + cuda_exp(-row[i]));
    __syncwarp();
}

static __device__ float divisor(const device_router &r, const float *weights)
{
    float sum = 0;

    for (uint32_t rank = 0; rank < r.n_used; rank++)
        sum = sum + weights[rank];
    sum = sum + r.weight_sum_eps;
    if (sum < r.weight_sum_least)
        sum = r.weight_sum_least;
    return sum == 0 ? 1 : sum;
}

static __device__ void finish_weights(const route_call &c, const uint32_t *selected, float *weights)
{
    const device_router &r = c.r;
    float by = r.renormalise ? divisor(r, weights) : 1;

    __syncwarp();
    for (uint32_t rank = route_lane(); rank < r.n_used; rank += LANES) {
        float weight = weights[rank] / by * r.scale;
        weights[rank] = c.expert_scales != NULL ? weight * c.expert_scales[selected[rank]] : weight;
    }
}

/* Of the memory that a warp needs to route a row: the row, as much scratch, the groups' scores,
 * what is taken. At most 4096 experts and 256 groups. */
static inline __host__ __device__ uint32_t route_shared_bytes(const device_router &r)
{
    return ((2 * r.n_experts + r.n_groups) * (uint32_t)sizeof(float) + r.n_experts + 15) / 16 * 16;
}

/* Row t, by one warp; row: route_shared_bytes of shared memory. */
static __device__ void route_one(const route_call &c, uint32_t t, float *row)
{
    const device_router &r = c.r;
    float *scratch = row + r.n_experts, *logits = c.logits + (size_t)t * r.n_experts;
    uint8_t *taken = (uint8_t *)(scratch + r.n_experts + r.n_groups);
    uint32_t *selected = c.selected + (size_t)t * r.n_used;
    float *weights = c.weights + (size_t)t * r.n_used;

    for (uint32_t i = route_lane(); i < r.n_experts; i += LANES)
        row[i] = logits[i];
    __syncwarp();
    if (r.kind == ROUTER_SPARSE_MIXER)
        sparse_mixer(r, choice{row, taken, r.n_experts}, scratch, selected, weights);
    else {
        bool by_logit = r.kind == ROUTER_SIGMOID && c.selection_bias == NULL && r.n_groups == 0;
        if (!by_logit)
            to_probabilities(r, row);
        select_largest(c, row, scratch, taken, selected);
        if (by_logit)
            to_probabilities(r, row);
        if (r.kind != ROUTER_SOFTMAX_SELECTED)
            for (uint32_t i = route_lane(); i < r.n_experts; i += LANES)
                logits[i] = row[i];
        for (uint32_t rank = route_lane(); rank < r.n_used; rank += LANES)
            weights[rank] = row[selected[rank]];
        __syncwarp();
        if (r.kind == ROUTER_SOFTMAX_SELECTED)
            softmax(weights, r.n_used);
    }
    finish_weights(c, selected, weights);
}

#endif
