/* Half precision and cuBLAS. */
#include "check.h"

#include "device/cuda/launch.h"

#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <math.h>
#include <stdint.h>
#include <string.h>
#include <vector>

/* ---- conversions, against the definition in doubles ---- */

static double value_of_half(unsigned bits, int mantissa_bits, int exponent_bits)
{
    int exponent = (int)(bits >> mantissa_bits & ((1u << exponent_bits) - 1)),
        bias = (1 << (exponent_bits - 1)) - 1;
    double mantissa = ldexp(bits & ((1u << mantissa_bits) - 1), -mantissa_bits);
    double sign = bits >> 15 ? -1 : 1;
    if (exponent == (1 << exponent_bits) - 1)
        return mantissa != 0 ? NAN : sign * INFINITY;
    return sign *
           (exponent == 0 ? ldexp(mantissa, 1 - bias) : ldexp(1 + mantissa, exponent - bias));
}

static __global__ void widen(float *f16, float *bf16)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    f16[i] = __half2float(__ushort_as_half((unsigned short)i));
    bf16[i] = __bfloat162float(__ushort_as_bfloat16((unsigned short)i));
}

static __global__ void narrow(const float *x, unsigned short *f16, unsigned short *bf16)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    f16[i] = __half_as_ushort(__float2half_rn(x[i]));
    bf16[i] = __bfloat16_as_ushort(__float2bfloat16_rn(x[i]));
}

template <class T> static T *device_memory(size_t n)
{
    T *p;
    OK(cudaMalloc(&p, n * sizeof *p));
    return p;
}

template <class T> static void get(std::vector<T> *to, const T *from)
{
    OK(cudaMemcpy(to->data(), from, to->size() * sizeof(T), cudaMemcpyDeviceToHost));
}

static bool same(double a, double b)
{
    return isnan(a) ? isnan(b) : a == b && signbit(a) == signbit(b);
}

static void test_every_half()
{
    enum { N = 1 << 16 };
    float *f16 = device_memory<float>(N), *bf16 = device_memory<float>(N);
    std::vector<float> halves(N), bf16s(N);
    CUDA_LAUNCH(widen, N / 256, 256, 0, 0, f16, bf16);
    get(&halves, f16);
    get(&bf16s, bf16);
    for (unsigned i = 0; i < N; i++) {
        CHECK(same(halves[i], value_of_half(i, 10, 5)));
        CHECK(same(bf16s[i], value_of_half(i, 7, 8)));
    }
}

/* The nearest of the format's values; of two the one with the even mantissa: by search among all.
 */
static unsigned nearest(double x, int mantissa_bits, int exponent_bits)
{
    unsigned infinity = ((1u << exponent_bits) - 1) << mantissa_bits, low = 0, high = infinity;
    double size = fabs(x);
    while (high - low > 1) { /* value(low) <= size < value(high) */
        unsigned middle = (low + high) / 2;
        *(value_of_half(middle, mantissa_bits, exponent_bits) <= size ? &low : &high) = middle;
    }
    double below = value_of_half(low, mantissa_bits, exponent_bits);
    /* Infinity takes the values that would round to the next number beyond the largest. */
    double above = high == infinity
                       ? 2 * below - value_of_half(low - 1, mantissa_bits, exponent_bits)
                       : value_of_half(high, mantissa_bits, exponent_bits);
    bool up = size - below > above - size || (size - below == above - size && (low & 1));
    return (up ? high : low) | (signbit(x) ? 0x8000u : 0);
}

static void test_rounding_to_half()
{
    std::vector<float> x;
    for (unsigned i = 0; i < 0x7c00;
         i++) { /* each half, the middle between it and the next, and the neighbours of that */
        float a = (float)value_of_half(i, 10, 5),
              b = (float)(i == 0x7bff ? 65536 : value_of_half(i + 1, 10, 5));
        float middle = a + (b - a) / 2;
        for (float f : {a, middle, nextafterf(middle, 0), nextafterf(middle, INFINITY), -middle})
            x.push_back(f);
    }
    uint32_t state = 1;
    while (x.size() % 256 != 0 || x.size() < 300000) { /* any bits */
        float f;
        state = state * 1664525u + 1013904223u;
        memcpy(&f, &state, sizeof f);
        x.push_back(isfinite(f) ? f : 1e30f);
    }
    float *in = device_memory<float>(x.size());
    unsigned short *f16 = device_memory<unsigned short>(x.size()),
                   *bf16 = device_memory<unsigned short>(x.size());
    std::vector<unsigned short> halves(x.size()), bf16s(x.size());
    OK(cudaMemcpy(in, x.data(), x.size() * sizeof(float), cudaMemcpyHostToDevice));
    CUDA_LAUNCH(narrow, (unsigned)(x.size() / 256), 256, 0, 0, in, f16, bf16);
    get(&halves, f16);
    get(&bf16s, bf16);
    for (size_t i = 0; i < x.size(); i++) {
        CHECK_EQUAL(halves[i], nearest(x[i], 10, 5));
        CHECK_EQUAL(bf16s[i], nearest(x[i], 7, 8));
    }
}

/* ---- cuBLAS ---- */

static unsigned short half_of(float x)
{
    return (unsigned short)nearest(x, 10, 5);
}

/* C = 2 op(A) op(B) + 3 C of small whole numbers, exact in every format; leading dimensions larger
 * than the matrices. */
static void check_product(cublasOperation_t op_a, cublasOperation_t op_b, bool halves)
{
    enum { M = 5, COLUMNS = 4, K = 7, LD = 9 };
    const float alpha = 2, beta = 3;
    std::vector<float> a(LD * LD), b(LD * LD), c(LD * LD), got(LD * LD);
    std::vector<unsigned short> a16(LD * LD), b16(LD * LD);
    for (int i = 0; i < LD * LD; i++) {
        a[i] = (float)(i * 7 % 11 - 5), b[i] = (float)(i * 5 % 13 - 6), c[i] = (float)(i % 4);
        a16[i] = half_of(a[i]), b16[i] = half_of(b[i]);
    }
    size_t bytes = LD * LD * (halves ? 2 : 4);
    void *da = device_memory<char>(bytes), *db = device_memory<char>(bytes);
    float *dc = device_memory<float>(LD * LD);
    OK(cudaMemcpy(da, halves ? (void *)a16.data() : a.data(), bytes, cudaMemcpyHostToDevice));
    OK(cudaMemcpy(db, halves ? (void *)b16.data() : b.data(), bytes, cudaMemcpyHostToDevice));
    OK(cudaMemcpy(dc, c.data(), c.size() * 4, cudaMemcpyHostToDevice));
    cublasHandle_t handle;
    cudaStream_t s;
    cudaDataType type = halves ? CUDA_R_16F : CUDA_R_32F;
    OK(cudaStreamCreate(&s));
    CHECK(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS);
    CHECK(cublasSetStream(handle, s) == CUBLAS_STATUS_SUCCESS);
    CHECK(cublasSetMathMode(handle, CUBLAS_PEDANTIC_MATH) == CUBLAS_STATUS_SUCCESS);
    CHECK(cublasGemmEx(handle, op_a, op_b, M, COLUMNS, K, &alpha, da, type, LD, db, type, LD, &beta,
                       dc, CUDA_R_32F, LD, CUBLAS_COMPUTE_32F,
                       CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_SUCCESS);
    OK(cudaStreamSynchronize(s));
    get(&got, dc);
    for (int j = 0; j < LD; j++)
        for (int i = 0; i < LD; i++) {
            float sum = 0;
            for (int k = 0; k < K; k++)
                sum += a[op_a == CUBLAS_OP_N ? k * LD + i : i * LD + k] *
                       b[op_b == CUBLAS_OP_N ? j * LD + k : k * LD + j];
            CHECK_EQUAL(got[j * LD + i],
                        i < M && j < COLUMNS ? 2 * sum + 3 * c[j * LD + i] : c[j * LD + i]);
        }
    CHECK(cublasDestroy(handle) == CUBLAS_STATUS_SUCCESS);
}

static void test_products()
{
    for (int i = 0; i < 8; i++)
        check_product(i & 1 ? CUBLAS_OP_T : CUBLAS_OP_N, i & 2 ? CUBLAS_OP_T : CUBLAS_OP_N,
                      (i & 4) != 0);
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        {"every half", test_every_half},
        {"rounding to half", test_rounding_to_half},
        {"products", test_products},
    };
    return run_tests(tests, sizeof tests / sizeof *tests, argc, argv);
}
