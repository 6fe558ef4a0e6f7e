/* The language of kernels: the host computes every expected value in another way. */
#include "check.h"

#include "device/cuda/launch.h"

#include <string.h>
#include <sys/wait.h>
#include <vector>

/* n words of device memory: filled with 0, and read back. */
template <class T> static T *device_words(size_t n)
{
    T *p = nullptr;
    OK(cudaMalloc(&p, n * sizeof *p));
    OK(cudaMemset(p, 0, n * sizeof *p));
    return p;
}

template <class T> static std::vector<T> words_of(const T *p, size_t n)
{
    std::vector<T> host(n);
    OK(cudaDeviceSynchronize());
    OK(cudaMemcpy(host.data(), p, n * sizeof *p, cudaMemcpyDeviceToHost));
    return host;
}

/* ---- the indices of a thread ---- */

static __global__ void write_place(unsigned *out)
{
    unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    unsigned n = blockDim.x * blockDim.y * blockDim.z;
    out[block * n + thread] +=
        1 + block * 1000 + threadIdx.x + 10 * threadIdx.y + 100 * threadIdx.z;
}

static void test_every_thread_runs_once()
{
    unsigned *out = device_words<unsigned>(2 * 3 * 4 * 5 * 6 * 7);
    CUDA_LAUNCH(write_place, dim3(2, 3, 4), dim3(5, 6, 7), 0, 0, out);
    OK(cudaGetLastError());
    std::vector<unsigned> host = words_of(out, 2 * 3 * 4 * 5 * 6 * 7);
    for (unsigned block = 0; block < 24; block++)
        for (unsigned t = 0; t < 210; t++)
            CHECK_EQUAL(host[block * 210 + t],
                        1 + block * 1000 + t % 5 + 10 * (t / 5 % 6) + 100 * (t / 30));
}

/* ---- barriers and shared memory ---- */

static __global__ void sum_tree(const float *in, float *out, unsigned n)
{
    __shared__ float partial[256];
    float sum = 0;
    for (unsigned i = threadIdx.x; i < n; i += blockDim.x)
        sum += in[blockIdx.x * n + i];
    partial[threadIdx.x] = sum;
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            partial[threadIdx.x] += partial[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = partial[0];
}

static __global__ void reverse(unsigned *data)
{
    CUDA_SHARED(unsigned, words);
    words[threadIdx.x] = data[blockIdx.x * blockDim.x + threadIdx.x];
    __syncthreads();
    data[blockIdx.x * blockDim.x + threadIdx.x] = words[blockDim.x - 1 - threadIdx.x];
}

static void test_barriers_and_shared_memory()
{
    enum { N = 1000, BLOCKS = 7 };
    std::vector<float> host(N * BLOCKS);
    for (unsigned i = 0; i < N * BLOCKS; i++)
        host[i] = (float)(i % 17); /* sums are exact */
    float *in = device_words<float>(host.size()), *out = device_words<float>(BLOCKS);
    OK(cudaMemcpy(in, host.data(), host.size() * sizeof(float), cudaMemcpyHostToDevice));
    CUDA_LAUNCH(sum_tree, BLOCKS, 256, 0, 0, in, out, N);
    std::vector<float> sums = words_of(out, BLOCKS);
    for (unsigned b = 0; b < BLOCKS; b++) {
        float sum = 0;
        for (unsigned i = 0; i < N; i++)
            sum += host[b * N + i];
        CHECK_EQUAL(sums[b], sum);
    }
}

static void test_dynamic_shared_memory()
{
    enum { N = 1024, BLOCKS = 3 };
    std::vector<unsigned> host(N * BLOCKS);
    for (unsigned i = 0; i < host.size(); i++)
        host[i] = i * 7;
    unsigned *data = device_words<unsigned>(host.size());
    OK(cudaMemcpy(data, host.data(), host.size() * 4, cudaMemcpyHostToDevice));
    CUDA_LAUNCH(reverse, BLOCKS, N, N * sizeof(unsigned), 0, data);
    std::vector<unsigned> back = words_of(data, host.size());
    for (unsigned b = 0; b < BLOCKS; b++)
        for (unsigned i = 0; i < N; i++)
            CHECK_EQUAL(back[b * N + i], host[b * N + N - 1 - i]);
}

static __global__ void count_block(int *out)
{
    int odd = threadIdx.x & 1, big = threadIdx.x >= 60;
    int n = __syncthreads_count(odd);
    int any = __syncthreads_or(big), none = __syncthreads_or(0);
    int all = __syncthreads_and(threadIdx.x < 100), some = __syncthreads_and(big);
    int *mine = out + threadIdx.x * 5;
    mine[0] = n, mine[1] = any != 0, mine[2] = none != 0, mine[3] = all != 0, mine[4] = some != 0;
}

static void test_counting_barriers()
{
    int *out = device_words<int>(64 * 5);
    CUDA_LAUNCH(count_block, 1, 64, 0, 0, out);
    std::vector<int> host = words_of(out, 64 * 5);
    const int expected[5] = {32, 1, 0, 1, 0};
    for (unsigned i = 0; i < 64 * 5; i++)
        CHECK_EQUAL(host[i], expected[i % 5]);
}

/* ---- warps ---- */

template <int WIDTH> static __global__ void shuffle_all(int *out, float *sum)
{
    int lane = (int)threadIdx.x % 32, value = 100 + (int)threadIdx.x;
    int *mine = out + threadIdx.x * 4;
    mine[0] = __shfl_sync(0xffffffffu, value, lane + 3, WIDTH);
    mine[1] = __shfl_up_sync(0xffffffffu, value, 2, WIDTH);
    mine[2] = __shfl_down_sync(0xffffffffu, value, 5, WIDTH);
    mine[3] = __shfl_xor_sync(0xffffffffu, value, 6, WIDTH);
    float x = (float)value;
    for (int step = WIDTH / 2; step > 0; step /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, step, WIDTH);
    sum[threadIdx.x] = x;
}

template <int WIDTH> static void check_shuffles()
{
    int *out = device_words<int>(64 * 4);
    float *sum = device_words<float>(64);
    CUDA_LAUNCH((shuffle_all<WIDTH>), 1, 64, 0, 0, out, sum);
    std::vector<int> host = words_of(out, 64 * 4);
    std::vector<float> sums = words_of(sum, 64);
    for (int t = 0; t < 64; t++) {
        int lane = t % 32, base = t / WIDTH * WIDTH, in = lane % WIDTH;
        float expected = 0;
        for (int i = 0; i < WIDTH; i++)
            expected += (float)(100 + base + i);
        CHECK_EQUAL(host[t * 4], 100 + base + (lane + 3) % WIDTH);
        CHECK_EQUAL(host[t * 4 + 1], 100 + (in >= 2 ? t - 2 : t));
        CHECK_EQUAL(host[t * 4 + 2], 100 + (in + 5 < WIDTH ? t + 5 : t));
        CHECK_EQUAL(host[t * 4 + 3],
                    100 + ((lane ^ 6) / WIDTH > lane / WIDTH ? t : t / 32 * 32 + (lane ^ 6)));
        CHECK_EQUAL(sums[t], expected);
    }
}

static void test_shuffles()
{
    check_shuffles<32>();
    check_shuffles<16>();
    check_shuffles<8>();
    check_shuffles<4>();
}

static __global__ void vote(unsigned *out)
{
    unsigned lane = threadIdx.x % 32;
    unsigned *mine = out + threadIdx.x * 6;
    mine[0] = __ballot_sync(0xffffffffu, lane % 3 == 0);
    mine[1] = (unsigned)__any_sync(0xffffffffu, lane == 31) != 0;
    mine[2] = (unsigned)__all_sync(0xffffffffu, lane < 32) != 0;
    mine[3] = (unsigned)__all_sync(0xffffffffu, lane != 7) != 0;
    /* Two halves, each with an operation of its own. */
    if (lane < 16)
        mine[4] = __ballot_sync(0x0000ffffu, lane & 1);
    else
        mine[4] = __shfl_sync(0xffff0000u, lane, 20);
    __syncwarp();
    unsigned long long wide = __shfl_sync(0xffffffffu, (unsigned long long)lane << 40, 9);
    mine[5] = (unsigned)(wide >> 40);
}

static void test_votes()
{
    unsigned *out = device_words<unsigned>(64 * 6);
    CUDA_LAUNCH(vote, 1, 64, 0, 0, out);
    std::vector<unsigned> host = words_of(out, 64 * 6);
    for (unsigned t = 0; t < 64; t++) {
        const unsigned expected[6] = {0x49249249, 1, 1, 0, t % 32 < 16 ? 0xaaaau : 20, 9};
        for (unsigned i = 0; i < 6; i++)
            CHECK_EQUAL(host[t * 6 + i], expected[i]);
    }
}

/* ---- arithmetic ---- */

struct arithmetic {
    int dp4a, dp4a_wraps, rounded[5], popc, ffs, clz;
    unsigned dp4a_unsigned, perm, brev;
    float fma, product, root;
};

static __global__ void compute(struct arithmetic *out, const float *x)
{
    out->dp4a = __dp4a((int)0x80ff017f, (int)0x807f02ff, 1000);
    out->dp4a_wraps = __dp4a(0x7f7f7f7f, 0x7f7f7f7f, 0x7fffffff);
    out->dp4a_unsigned = __dp4a(0x80ff017fu, 0x807f02ffu, 1u);
    for (int i = 0; i < 5; i++)
        out->rounded[i] = __float2int_rn(x[i]);
    out->popc = __popc(0xf0f00001u);
    out->ffs = __ffs(0x50);
    out->clz = __clz(0x00010000);
    out->perm = __byte_perm(0x33221100u, 0x77665584u, 0x4c71u);
    out->brev = __brev(0x80000002u);
    out->fma = __fmaf_rn(x[5], x[5], -1.0f);
    out->product = __fadd_rn(__fmul_rn(x[5], x[5]), -1.0f);
    out->root = __fsqrt_rn(x[6]);
}

static void test_arithmetic()
{
    /* 1 + 2^-12: its square is 1 + 2^-11 + 2^-24, which a float cannot hold: the last bit is lost
     * unless fused. */
    const float x[7] = {0.5f, 1.5f, -2.5f, 3e9f, 2.6f, 1.000244140625f, 2.0f};
    float *in = device_words<float>(7);
    struct arithmetic *out = device_words<struct arithmetic>(1);
    OK(cudaMemcpy(in, x, sizeof x, cudaMemcpyHostToDevice));
    CUDA_LAUNCH(compute, 1, 1, 0, 0, out, in);
    struct arithmetic a = words_of(out, 1)[0];
    CHECK_EQUAL(a.dp4a, 1000 + -128 * -128 + -1 * 127 + 1 * 2 + 127 * -1);
    CHECK_EQUAL(a.dp4a_wraps, -2147483648.0 + 4 * 127 * 127 - 1);
    CHECK_EQUAL(a.dp4a_unsigned, 1 + 128 * 128 + 255 * 127 + 1 * 2 + 127 * 255);
    const int rounded[5] = {0, 2, -2, 2147483647, 3};
    for (int i = 0; i < 5; i++)
        CHECK_EQUAL(a.rounded[i], rounded[i]);
    CHECK_EQUAL(a.popc, 9);
    CHECK_EQUAL(a.ffs, 5);
    CHECK_EQUAL(a.clz, 15);
    CHECK_EQUAL(a.perm, 0x84ff7711u); /* byte 4, the sign of byte 4, byte 7, byte 1 */
    CHECK_EQUAL(a.brev, 0x40000001u);
    CHECK(a.fma == ldexpf(1, -11) + ldexpf(1, -24));
    CHECK(a.product == ldexpf(1, -11));
    CHECK(a.root == 1.41421354f);
}

static __global__ void count_up(unsigned *counters, float *sum, int *extremes)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&counters[i % 3], 1u);
    atomicAdd(sum, 0.5f);
    atomicMax(&extremes[0], (int)i - 100);
    atomicMin(&extremes[1], (int)i - 100);
    atomicExch(&counters[3], 7u);
    if (atomicCAS(&counters[4], 0u, i + 1) == 0)
        atomicAdd(&counters[5], 1u);
}

static void test_atomics()
{
    unsigned *counters = device_words<unsigned>(6);
    float *sum = device_words<float>(1);
    int *extremes = device_words<int>(2);
    CUDA_LAUNCH(count_up, 10, 96, 0, 0, counters, sum, extremes);
    std::vector<unsigned> n = words_of(counters, 6);
    for (int i = 0; i < 3; i++)
        CHECK_EQUAL(n[i], 320);
    CHECK_EQUAL(n[3], 7);
    CHECK(n[4] >= 1 && n[4] <= 960);
    CHECK_EQUAL(n[5], 1);
    CHECK_EQUAL(words_of(sum, 1)[0], 480);
    CHECK_EQUAL(words_of(extremes, 2)[0], 859);
    CHECK_EQUAL(words_of(extremes, 2)[1], -100);
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        {"every thread runs once", test_every_thread_runs_once},
        {"barriers and shared memory", test_barriers_and_shared_memory},
        {"dynamic shared memory", test_dynamic_shared_memory},
        {"counting barriers", test_counting_barriers},
        {"shuffles", test_shuffles},
        {"votes", test_votes},
        {"arithmetic", test_arithmetic},
        {"atomics", test_atomics},
    };
    return run_tests(tests, sizeof tests / sizeof *tests, argc, argv);
}
