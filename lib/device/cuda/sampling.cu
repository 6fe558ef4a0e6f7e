/* The largest logits of a row, in order.
 *
 * Every logit becomes a unique number (the value's order in the upper bits, the place's in the
 * lower), so there are no ties. One block takes a row, in two passes. In the first, each thread
 * finds the largest of its share; at least k logits reach the k-th largest of those. The second
 * pass collects the logits that reach this bound, little more than k, and a sort puts them in
 * order. If a row has too many of them (only a crafted row does), they are found one by one. */
#include "device/cuda/stream.h"
#include "device/cuda/ops.h"
#include "device/cuda/scalar.cuh"

#include <math.h>

enum { THREADS = 512, CANDIDATES = 2048 };

typedef unsigned long long order; /* larger: before */

/* A NaN counts as minus infinity, as in the sampler; -0 as 0. */
static __device__ __forceinline__ order order_of(float logit, uint32_t place)
{
    uint32_t bits = __float_as_uint(isnan(logit) ? -INFINITY : logit + 0.0f);

    bits = bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
    return (order)bits << 32 | (0xffffffffu - place);
}

static __device__ __forceinline__ uint32_t place_of(order o)
{
    return 0xffffffffu - (uint32_t)o;
}

/* Sort n values (a power of two), the largest first: Batcher's bitonic network. */
static __device__ void sort(order *values, uint32_t n)
{
    for (uint32_t run = 2; run <= n; run *= 2)
        for (uint32_t apart = run / 2; apart > 0; apart /= 2) {
            for (uint32_t i = threadIdx.x; i < n / 2; i += THREADS) {
                uint32_t low = i / apart * 2 * apart + i % apart, high = low + apart;
                order a = values[low], b = values[high];
                if ((a < b) == ((low & run) == 0)) {
                    values[low] = b;
                    values[high] = a;
                }
            }
            __syncthreads();
        }
}

/* The largest of this thread's share of a row that is below `below`; 0: none. */
static __device__ order largest_of_share(const float *row, uint32_t vocab, order below)
{
    order most = 0;

#pragma unroll 8
    for (uint32_t i = threadIdx.x; i < vocab; i += THREADS) {
        order o = order_of(row[i], i);
        if (o < below && o > most)
            most = o;
    }
    return most;
}

/* Puts the logits that reach the bound into `candidates`. Returns their number, which may exceed
 * the size of `candidates`. */
static __device__ uint32_t collect(const float *row, uint32_t vocab, order bound, order *candidates,
                                   unsigned *count)
{
    if (threadIdx.x == 0)
        *count = 0;
    __syncthreads();
#pragma unroll 8
    for (uint32_t i = threadIdx.x; i < vocab; i += THREADS) {
        order o = order_of(row[i], i);
        if (o >= bound) {
            unsigned at = atomicAdd(count, 1u);
            if (at < CANDIDATES)
                candidates[at] = o;
        }
    }
    __syncthreads();
    return *count;
}

/* The largest of all threads' values. */
static __device__ order largest_of_block(order o, order *of_warp)
{
    for (int width = 16; width > 0; width /= 2) {
        order other = __shfl_xor_sync(0xffffffffu, o, width);
        o = o > other ? o : other;
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = o;
    __syncthreads();
    for (int i = 0; i < THREADS / 32; i++)
        o = o > of_warp[i] ? o : of_warp[i];
    return o;
}

static __global__ void __launch_bounds__(THREADS)
    largest_of_row(const float *logits, uint32_t vocab, uint32_t k, float *values, uint32_t *places)
{
    __shared__ order found[CANDIDATES];
    __shared__ unsigned count;
    const float *row = logits + (size_t)blockIdx.x * vocab;

    values += (size_t)blockIdx.x * k;
    places += (size_t)blockIdx.x * k;
    found[threadIdx.x] = largest_of_share(row, vocab, ~(order)0);
    __syncthreads();
    sort(found, THREADS);
    order bound = found[k - 1];
    __syncthreads();
    uint32_t n = collect(row, vocab, bound, found, &count), sorted = 1;
    if (n <= CANDIDATES) {
        while (sorted < n || sorted < k)
            sorted *= 2;
        for (uint32_t i = n + threadIdx.x; i < sorted; i += THREADS)
            found[i] = 0;
        __syncthreads();
        sort(found, sorted);
    } else {
        order last = ~(order)0;
        for (uint32_t rank = 0; rank < k; rank++) {
            last = largest_of_block(largest_of_share(row, vocab, last),
                                    found + CANDIDATES - THREADS / 32);
            if (threadIdx.x == 0)
                found[rank] = last;
        }
        __syncthreads();
    }
    for (uint32_t rank = threadIdx.x; rank < k; rank += THREADS) {
        uint32_t place = place_of(found[rank]);
        float logit = place < vocab ? row[place] : -INFINITY; /* fewer than k: no place */
        places[rank] = place;
        values[rank] = isnan(logit) ? -INFINITY : logit;
    }
}

void cuda_largest(struct device_stream *s, const float *logits, uint32_t n, uint32_t vocab,
                  uint32_t k, float *values, uint32_t *places)
{
    if (n == 0 || k == 0)
        return;
    CUDA_LAUNCH(largest_of_row, n, THREADS, 0, cuda_stream(s), logits, vocab, k, values, places);
    cuda_check(s, "largest");
}
