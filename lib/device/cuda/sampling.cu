/* The largest logits of a row, in order.
 *
 * Every logit becomes a unique number (the value's order in the upper bits, the place's in the
 * lower), so there are no ties. A block finds the k largest numbers of PART logits, and then one
 * block for each row the k largest of what those found. Both do it in two passes. In the first,
 * each thread finds the largest of its share; at least k numbers reach the k-th largest of those.
 * The second pass collects the numbers that reach this bound, little more than k, and a sort puts
 * them in order. If there are too many of them (only a crafted row has so many), they are found one
 * by one. */
#include "device/cuda/dependent.cuh"
#include "device/cuda/ops.h"
#include "device/cuda/scalar.cuh"

#include <math.h>

enum { THREADS = 512, CANDIDATES = 2048, PART = 8192 };

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

/* Numbers [0, n): of logits, or as they are. */
struct of_logits {
    const float *row; /* of all logits */
    uint32_t first, n;

    __device__ __forceinline__ order operator[](uint32_t i) const
    {
        return order_of(row[first + i], first + i);
    }
};

struct of_numbers {
    const order *numbers;
    uint32_t n;

    __device__ __forceinline__ order operator[](uint32_t i) const
    {
        return numbers[i];
    }
};

/* The largest of this thread's share that is below `below`; 0: none. */
template <class From> static __device__ order largest_of_share(const From &from, order below)
{
    order most = 0;

#pragma unroll 8
    for (uint32_t i = threadIdx.x; i < from.n; i += THREADS) {
        order o = from[i];
        if (o < below && o > most)
            most = o;
    }
    return most;
}

/* Puts the numbers that reach the bound into `candidates`. Returns how many there are, which may
 * exceed the size of `candidates`. */
template <class From>
static __device__ uint32_t collect(const From &from, order bound, order *candidates,
                                   unsigned *count)
{
    if (threadIdx.x == 0)
        *count = 0;
    __syncthreads();
#pragma unroll 8
    for (uint32_t i = threadIdx.x; i < from.n; i += THREADS) {
        order o = from[i];
        if (o >= bound && o > 0) {
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

struct largest_shared {
    order found[CANDIDATES];
    unsigned count;
};

/* Puts the k largest into sh.found, the largest first; 0 where there are fewer. */
template <class From>
static __device__ void find_largest(const From &from, uint32_t k, largest_shared &sh)
{
    order *found = sh.found;

    found[threadIdx.x] = largest_of_share(from, ~(order)0);
    __syncthreads();
    sort(found, THREADS);
    order bound = found[k - 1];
    __syncthreads();
    uint32_t n = collect(from, bound, found, &sh.count), sorted = 1;
    if (n <= CANDIDATES) {
        while (sorted < n || sorted < k)
            sorted *= 2;
        for (uint32_t i = n + threadIdx.x; i < sorted; i += THREADS)
            found[i] = 0;
        __syncthreads();
        sort(found, sorted);
        return;
    }
    order last = ~(order)0;
    for (uint32_t rank = 0; rank < k; rank++) {
        last = largest_of_block(largest_of_share(from, last), found + CANDIDATES - THREADS / 32);
        if (threadIdx.x == 0)
            found[rank] = last;
    }
    __syncthreads();
}

/* Parts in x, rows in y; numbers: [row][part][k]. */
static __global__ void __launch_bounds__(THREADS)
    largest_of_part(const float *logits, uint32_t vocab, uint32_t k, order *numbers)
{
    __shared__ largest_shared sh;
    uint32_t first = blockIdx.x * PART;
    of_logits from = {logits + (size_t)blockIdx.y * vocab, first,
                      min((uint32_t)PART, vocab - first)};

    cuda_await_previous();
    numbers += ((size_t)blockIdx.y * gridDim.x + blockIdx.x) * k;
    find_largest(from, k, sh);
    for (uint32_t rank = threadIdx.x; rank < k; rank += THREADS)
        numbers[rank] = sh.found[rank];
}

/* A row in x. */
static __global__ void __launch_bounds__(THREADS)
    largest_of_row(const order *numbers, uint32_t n_parts, const float *logits, uint32_t vocab,
                   uint32_t k, float *values, uint32_t *places)
{
    __shared__ largest_shared sh;
    const float *row = logits + (size_t)blockIdx.x * vocab;

    cuda_await_previous();
    find_largest(of_numbers{numbers + (size_t)blockIdx.x * n_parts * k, n_parts * k}, k, sh);
    values += (size_t)blockIdx.x * k;
    places += (size_t)blockIdx.x * k;
    for (uint32_t rank = threadIdx.x; rank < k; rank += THREADS) {
        uint32_t place = place_of(sh.found[rank]);
        float logit = place < vocab ? row[place] : -INFINITY; /* fewer than k: no place */
        places[rank] = place;
        values[rank] = isnan(logit) ? -INFINITY : logit;
    }
}

static uint32_t parts_of(uint32_t vocab)
{
    return (vocab + PART - 1) / PART;
}

size_t cuda_largest_scratch_bytes(uint32_t n, uint32_t vocab, uint32_t k)
{
    return (size_t)n * parts_of(vocab) * k * sizeof(order);
}

void cuda_largest(struct device_stream *s, const float *logits, uint32_t n, uint32_t vocab,
                  uint32_t k, float *values, uint32_t *places, void *scratch)
{
    uint32_t n_parts = parts_of(vocab);
    order *numbers = (order *)scratch;

    if (n == 0 || k == 0)
        return;
    CUDA_LAUNCH_EARLY(largest_of_part, dim3(n_parts, n), THREADS, 0, s, logits, vocab, k, numbers);
    cuda_check(s, "largest of parts");
    CUDA_LAUNCH_EARLY(largest_of_row, n, THREADS, 0, s, (const order *)numbers, n_parts, logits,
                      vocab, k, values, places);
    cuda_check(s, "largest");
}
