/* The product kernels keep their accesses to shared memory apart by barriers: cusim ends the
 * process at a race. Their numbers are test_cuda_multiply's and test_cuda_experts' matter. */
#include "check.h"

#include "device/cuda/product.cuh"

#include <vector>

/* Device memory of any bits; all are valid weights, activations and scales. */
static uint8_t *any_bits(size_t bytes)
{
    std::vector<uint8_t> host(bytes);
    uint8_t *p;
    uint32_t state = 1;
    for (uint8_t &byte : host)
        byte = (uint8_t)((state = state * 1664525u + 1013904223u) >> 24);
    OK(cudaMalloc(&p, bytes));
    OK(cudaMemcpy(p, host.data(), bytes, cudaMemcpyHostToDevice));
    return p;
}

template <class T> static struct product product_of(uint32_t rows, uint32_t cols, uint32_t n)
{
    struct product p = {};
    p.work = PRODUCT_PLANES;
    p.rows = rows;
    p.cols = cols;
    p.row_bytes = tiles_row_bytes<T>(cols);
    p.tiles = any_bits(p.row_bytes * tile_row_count(rows));
    p.q = (const int8_t *)any_bits((size_t)n * (cols + 63) / 64 * 64);
    p.d = (const float *)any_bits((size_t)n * (cols / 16) * sizeof *p.d);
    p.bias = (const float *)any_bits((size_t)n * (cols / 32) * sizeof *p.bias);
    p.sum = (const int32_t *)any_bits((size_t)n * (cols / 16) * sizeof *p.sum);
    p.out = (float *)any_bits((size_t)n * rows * sizeof *p.out);
    p.out_stride = rows;
    p.n_planes = 1;
    p.n = n;
    return p;
}

template <class T, int WIDTH> static void check_mma()
{
    typedef mma_shape<T, WIDTH> S;
    enum { ROWS = S::ROWS + 7, COLS = T::COLUMNS == 256 ? 512 : 288, N = S::TOKENS + 17 };
    struct product p = product_of<T>(ROWS, COLS, N);
    p.tokens_a_block = S::TOKENS;
    p.n_blocks = 2;
    CUDA_LAUNCH((product_mma_kernel<T, WIDTH>), 4, S::THREADS, sizeof(typename S::shared), 0, p);
    OK(cudaDeviceSynchronize());
}

/* Of each form of scales, and both widths. */
static void test_tensor_cores()
{
    check_mma<tiles_q8_0, 1>();
    check_mma<tiles_q8_0, 2>();
    check_mma<tiles_q4_k, 1>();
    check_mma<tiles_q4_k, 2>();
    check_mma<tiles_q2_k, 2>();
    check_mma<tiles_q6_k, 1>();
}

/* Eight tokens a block, and one. */
template <class T, uint32_t N> static void check_dp4a()
{
    enum { ROWS = 40, COLS = 512 };
    struct product p = product_of<T>(ROWS, COLS, N);
    product_shape(&p, 2);
    unsigned threads = (p.halves * p.n_tiles + 1) / 2 * 32;
    size_t bytes = threads / TILE_ROWS * product_stage<T>::PLACE +
                   (size_t)p.n_tiles * 2 * N * PRODUCT_ROW_BYTES;
    CUDA_LAUNCH((product_kernel<T, N>), p.n_blocks, threads, bytes, 0, p);
    OK(cudaDeviceSynchronize());
}

static void test_dp4a()
{
    check_dp4a<tiles_q4_k, 1>();
    check_dp4a<tiles_q8_0, 8>();
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        {"tensor cores", test_tensor_cores},
        {"dp4a", test_dp4a},
    };
    return run_tests(tests, sizeof tests / sizeof *tests, argc, argv);
}
