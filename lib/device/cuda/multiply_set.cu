/* Several products in one launch: a block finds its product, and computes it as product.cuh does.
 * For two families of types: with more types in one kernel the compiler spills registers. */
#include "device/cuda/product.cuh"

/* case_(type, tiles) for each type of a family. */
#define QUANTIZED_TYPES(case_)                                                                     \
    case_(TENSOR_Q8_0, tiles_q8_0) case_(TENSOR_Q3_K, tiles_q3_k) case_(TENSOR_Q4_K, tiles_q4_k)   \
        case_(TENSOR_Q5_K, tiles_q5_k) case_(TENSOR_Q6_K, tiles_q6_k)
#define FLOAT_TYPES(case_)                                                                         \
    case_(TENSOR_F32, tiles_f32) case_(TENSOR_F16, tiles_f16) case_(TENSOR_BF16, tiles_bf16)

/* The product of a block. */
static __device__ __forceinline__ uint32_t find_product(const struct product_set &set)
{
    uint32_t i = 0;

    while (i + 1 < set.n && blockIdx.x >= set.first[i + 1])
        i++;
    return i;
}

#define RUN(type, tiles)                                                                           \
    case type:                                                                                     \
        product_run<tiles, N>(set.of[i], blockIdx.x - set.first[i], shared);                       \
        break;

template <uint32_t N>
static __global__ void __launch_bounds__(PRODUCT_THREADS, product_resident<tiles_q8_0, N>::BLOCKS)
    quantized_products(const __grid_constant__ struct product_set set)
{
    CUDA_SHARED(uint8_t, shared);
    uint32_t i = find_product(set);

    switch (set.type[i]) {
        QUANTIZED_TYPES(RUN)
    default:
        cuda_await_previous();
    }
}

template <uint32_t N>
static __global__ void __launch_bounds__(PRODUCT_THREADS, product_resident<tiles_f32, N>::BLOCKS)
    float_products(const __grid_constant__ struct product_set set)
{
    CUDA_SHARED(uint8_t, shared);
    uint32_t i = find_product(set);

    switch (set.type[i]) {
        FLOAT_TYPES(RUN)
    default:
        cuda_await_previous();
    }
}
#undef RUN

enum product_family product_family_of(uint32_t type)
{
    switch (type) {
#define TAKES(type, tiles) case type:
        QUANTIZED_TYPES(TAKES)
        return PRODUCT_QUANTIZED;
        FLOAT_TYPES(TAKES)
        return PRODUCT_FLOATS;
#undef TAKES
    default:
        return PRODUCT_ALONE;
    }
}

static struct product_grid grid_of(uint32_t type, struct product *p)
{
    switch (type) {
#define GRID(type, tiles)                                                                          \
    case type:                                                                                     \
        return product_grid_of<tiles>(p, PRODUCT_THREADS);
        QUANTIZED_TYPES(GRID)
        FLOAT_TYPES(GRID)
#undef GRID
    default:
        return product_grid{};
    }
}

void product_set_launch(struct device_stream *s, struct product_set *set)
{
    bool floats = set->family == PRODUCT_FLOATS;
    uint64_t blocks = 0;
    size_t shared_bytes = 0;
    uint32_t tokens = 1;

    for (uint32_t i = 0; i < set->n; i++) {
        struct product_grid g = grid_of(set->type[i], &set->of[i]);
        set->first[i] = (uint32_t)blocks;
        blocks += g.blocks;
        shared_bytes = max(shared_bytes, g.places + g.sums);
        tokens = max(tokens, set->of[i].tokens_a_block);
    }
    if (blocks > INT32_MAX) {
        cuda_refuse(s->device, "products of too many blocks", __FILE__, __LINE__);
        return;
    }
#define LAUNCH(kernel)                                                                             \
    CUDA_LAUNCH_EARLY(kernel, (unsigned)blocks, PRODUCT_THREADS, shared_bytes, s, *set)
    if (tokens == 1 && floats)
        LAUNCH(float_products<1>);
    else if (tokens == 1)
        LAUNCH(quantized_products<1>);
    else if (floats)
        LAUNCH(float_products<PRODUCT_TOKENS>);
    else
        LAUNCH(quantized_products<PRODUCT_TOKENS>);
#undef LAUNCH
    cuda_check(s, "products");
}
