/* Matrix instructions and cp.async, against sums by plain loops: fragments are filled and read as
 * the tables of the PTX manual say, element by element. */
#include "check.h"

#include "device/cuda/tensor_core.cuh"

#include <limits.h>
#include <string.h>

enum { M = 16, N = 8, K = 16 };

struct matrices {
    int8_t a[M][K], b[K][N];
    int c[M][N], d[M][N];
};

/* The manual's groupID and threadID_in_group, and its rows and columns of a_i, b_i and c_i. */
static __global__ void multiply(struct matrices *m)
{
    int group = (int)threadIdx.x >> 2, thread = (int)threadIdx.x % 4, c[4], d[4];
    uint32_t a[2] = {}, b = 0;
    for (int i = 0; i < 8; i++) {
        int row = i < 4 ? group : group + 8, col = thread * 4 + (i & 3);
        a[i / 4] |= (uint32_t)(uint8_t)m->a[row][col] << 8 * (i % 4);
    }
    for (int i = 0; i < 4; i++)
        b |= (uint32_t)(uint8_t)m->b[thread * 4 + i][group] << 8 * i;
    for (int i = 0; i < 4; i++)
        c[i] = m->c[i < 2 ? group : group + 8][thread * 2 + (i & 1)];
    tensor_multiply_s8(a, b, c, d);
    for (int i = 0; i < 4; i++)
        m->d[i < 2 ? group : group + 8][thread * 2 + (i & 1)] = d[i];
}

static void check_multiply(bool extreme)
{
    struct matrices host, *device;
    uint32_t state = 12345;
    auto next = [&] { return (state = state * 1664525u + 1013904223u) >> 24; };
    for (int i = 0; i < M * K; i++)
        (&host.a[0][0])[i] = extreme ? -128 : (int8_t)next();
    for (int i = 0; i < K * N; i++)
        (&host.b[0][0])[i] = extreme ? (i % 3 ? -128 : 127) : (int8_t)next();
    for (int i = 0; i < M * N; i++)
        (&host.c[0][0])[i] = extreme ? INT_MAX - i : (int)next() - 128;
    OK(cudaMalloc(&device, sizeof *device));
    OK(cudaMemcpy(device, &host, sizeof host, cudaMemcpyHostToDevice));
    CUDA_LAUNCH(multiply, 1, 32, 0, 0, device);
    OK(cudaMemcpy(&host, device, sizeof host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            long long sum = host.c[i][j];
            for (int k = 0; k < K; k++)
                sum += host.a[i][k] * host.b[k][j];
            CHECK_EQUAL(host.d[i][j], (int)(unsigned)sum); /* it wraps */
        }
}

static void test_multiply()
{
    check_multiply(false);
    check_multiply(true);
}

struct half_matrices {
    uint16_t a[M][K], b[K][N];
    float d[M][N];
};

/* The manual's a_i: row group where i is 0, 1, 4 or 5; column + 8 from i = 4 on. b_i: row + 8 from
 * i = 2 on. */
static __global__ void multiply_halves(struct half_matrices *m, bool bf16)
{
    int group = (int)threadIdx.x >> 2, thread = (int)threadIdx.x % 4;
    uint32_t a[4] = {}, b[2] = {};
    float d[4];
    for (int i = 0; i < 8; i++) {
        bool upper = i == 0 || i == 1 || i == 4 || i == 5;
        int row = upper ? group : group + 8, col = thread * 2 + (i & 1) + (i >= 4 ? 8 : 0);
        a[i / 2] |= (uint32_t)m->a[row][col] << 16 * (i % 2);
    }
    for (int i = 0; i < 4; i++)
        b[i / 2] |= (uint32_t)m->b[thread * 2 + (i & 1) + (i >= 2 ? 8 : 0)][group] << 16 * (i % 2);
    for (int i = 0; i < 4; i++)
        d[i] = m->d[i < 2 ? group : group + 8][thread * 2 + (i & 1)];
    if (bf16)
        tensor_multiply_bf16(a, b[0], b[1], d);
    else
        tensor_multiply_f16(a, b[0], b[1], d);
    for (int i = 0; i < 4; i++)
        m->d[i < 2 ? group : group + 8][thread * 2 + (i & 1)] = d[i];
}

/* An integer of at most 1024 as a half. */
static uint16_t half_of(int n)
{
    int size = n < 0 ? -n : n, exponent = 0;
    while (size >> (exponent + 1))
        exponent++;
    unsigned bits =
        size ? (unsigned)(exponent + 15) << 10 | ((unsigned)size << (10 - exponent) & 1023u) : 0;
    return (uint16_t)(bits | (n < 0 ? 0x8000u : 0u));
}

/* An integer of at most 256 as BF16. */
static uint16_t bf16_of(int n)
{
    float value = (float)n;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16);
}

/* Integers, whose sums are exact in any order. */
static void check_multiply_halves(bool bf16)
{
    int most_a = bf16 ? 256 : 1024, most_b = bf16 ? 200 : 500;
    struct half_matrices host, *device;
    int a[M][K], b[K][N], c[M][N];
    uint32_t state = 54321;
    auto next = [&](int n) {
        return (int)((state = state * 1664525u + 1013904223u) >> 16) % (2 * n + 1) - n;
    };
    for (int i = 0; i < M * K; i++)
        (&host.a[0][0])[i] = (bf16 ? bf16_of : half_of)((&a[0][0])[i] = next(most_a));
    for (int i = 0; i < K * N; i++)
        (&host.b[0][0])[i] = (bf16 ? bf16_of : half_of)((&b[0][0])[i] = next(most_b));
    for (int i = 0; i < M * N; i++)
        (&host.d[0][0])[i] = (float)((&c[0][0])[i] = next(10000));
    OK(cudaMalloc(&device, sizeof *device));
    OK(cudaMemcpy(device, &host, sizeof host, cudaMemcpyHostToDevice));
    CUDA_LAUNCH(multiply_halves, 1, 32, 0, 0, device, bf16);
    OK(cudaMemcpy(&host, device, sizeof host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            int sum = c[i][j];
            for (int k = 0; k < K; k++)
                sum += a[i][k] * b[k][j];
            CHECK_EQUAL((int)host.d[i][j], sum);
        }
}

static void test_multiply_halves()
{
    check_multiply_halves(false);
}

static void test_multiply_bf16()
{
    check_multiply_halves(true);
}

/* Lane l gives row l, which is at the 16 bytes (7 * l) mod 32. */
static __global__ void load(uint32_t *out)
{
    CUDA_SHARED(uint8_t, shared);
    for (int i = 0; i < 16; i++)
        shared[threadIdx.x * 7 % 32 * 16 + i] = (uint8_t)(threadIdx.x * 16 + i);
    __syncthreads();
    tensor_load_4(shared + threadIdx.x * 7 % 32 * 16, out + threadIdx.x * 4);
}

static void test_load()
{
    uint32_t host[32][4], *device;
    OK(cudaMalloc(&device, sizeof host));
    CUDA_LAUNCH(load, 1, 32, 512, 0, device);
    OK(cudaMemcpy(host, device, sizeof host, cudaMemcpyDeviceToHost));
    for (unsigned lane = 0; lane < 32; lane++)
        for (unsigned matrix = 0; matrix < 4; matrix++)
            for (unsigned i = 0; i < 4; i++) {
                unsigned row = matrix * 8 + lane / 4, byte = lane % 4 * 4 + i;
                CHECK_EQUAL(host[lane][matrix] >> 8 * i & 255, (row * 16 + byte) & 255);
            }
}

/* Halves 8 * row + column, by rows of 16 bytes. */
static __global__ void load_transposed(uint32_t *out)
{
    CUDA_SHARED(uint16_t, shared);
    for (unsigned i = 0; i < 8; i++)
        shared[threadIdx.x * 8 + i] = (uint16_t)(threadIdx.x * 8 + i);
    __syncthreads();
    tensor_load_4_transposed(shared + threadIdx.x * 8, out + threadIdx.x * 4);
}

static void test_load_transposed()
{
    uint32_t host[32][4], *device;
    OK(cudaMalloc(&device, sizeof host));
    CUDA_LAUNCH(load_transposed, 1, 32, 512, 0, device);
    OK(cudaMemcpy(host, device, sizeof host, cudaMemcpyDeviceToHost));
    for (unsigned lane = 0; lane < 32; lane++)
        for (unsigned matrix = 0; matrix < 4; matrix++)
            for (unsigned i = 0; i < 2; i++) {
                unsigned row = matrix * 8 + lane % 4 * 2 + i, column = lane / 4;
                CHECK_EQUAL(host[lane][matrix] >> 16 * i & 0xffff, row * 8 + column);
            }
}

/* Three groups of a thread; what is there after each wait. */
static __global__ void copy(const uint32_t *from, uint32_t *out)
{
    CUDA_SHARED(uint32_t, words);
    uint32_t *to = words + threadIdx.x * 8;
    from += threadIdx.x * 8;
    tensor_copy<16>(to, from);
    tensor_copy_group();
    tensor_copy<8>(to + 4, from + 4);
    tensor_copy_group();
    tensor_copy<4>(to + 6, from + 6);
    for (unsigned step = 0; step < 3; step++) {
        if (step == 0)
            tensor_copy_wait<1>();
        else if (step == 1)
            tensor_copy_wait<0>();
        else
            tensor_copy_wait_all();
        for (unsigned i = 0; i < 7; i++)
            out[(step * 2 + threadIdx.x) * 7 + i] = to[i];
    }
}

static void test_copies_cusim()
{
    uint32_t host[3][2][7], values[16], *from, *out;
    for (unsigned i = 0; i < 16; i++)
        values[i] = i;
    OK(cudaMalloc(&from, sizeof values));
    OK(cudaMalloc(&out, sizeof host));
    OK(cudaMemcpy(from, values, sizeof values, cudaMemcpyHostToDevice));
    CUDA_LAUNCH(copy, 1, 2, 64, 0, from, out);
    OK(cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost));
    for (unsigned step = 0; step < 3; step++)
        for (unsigned t = 0; t < 2; t++)
            for (unsigned i = 0; i < 7; i++) {
                bool there = i < (step == 0 ? 4 : step == 1 ? 6 : 7);
                CHECK_EQUAL(host[step][t][i], there ? t * 8 + i : 0xffffffffu);
            }
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        {"multiply", test_multiply},
        {"load", test_load},
        {"load_transposed", test_load_transposed},
        {"multiply_halves", test_multiply_halves},
        {"multiply_bf16", test_multiply_bf16},
        {"copies_cusim", test_copies_cusim},
    };
    return run_tests(tests, sizeof tests / sizeof *tests, argc, argv);
}
