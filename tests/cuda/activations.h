/* Quantised activations on the device, compared with the portable kernels'. */
#ifndef MOED_TESTS_CUDA_ACTIVATIONS_H
#define MOED_TESTS_CUDA_ACTIVATIONS_H

#include "on_device.h"

static inline size_t q_stride(uint32_t cols)
{
    return ((size_t)cols + 63) / 64 * 64;
}

/* biases: the device's are there too. */
static inline void check_quantized(const struct activations *a, const struct device_activations *d,
                                   bool biases)
{
    size_t blocks = (a->cols + 31) / 32, n = a->n_tokens * blocks;
    int8_t *q = malloc(a->n_tokens * q_stride(a->cols));
    float *scales = malloc(2 * n * sizeof *scales), *bias = malloc(n * sizeof *bias);
    int32_t *sums = malloc(2 * n * sizeof *sums);

    from_device(q, d->q, a->n_tokens * q_stride(a->cols));
    from_device(scales, d->d, 2 * n * sizeof *scales);
    from_device(sums, d->sum, 2 * n * sizeof *sums);
    for (uint32_t t = 0; t < a->n_tokens; t++)
        assert_memory_equal(q + t * q_stride(a->cols), a->q + t * q_stride(a->cols), 32 * blocks);
    assert_same_floats(scales, a->d, 2 * n, "d");
    for (size_t i = 0; i < 2 * n; i++)
        assert_int_equal(sums[i], -(a->minus_sum8[2 * i] + a->minus_sum8[2 * i + 1]));
    if (biases) {
        from_device(bias, d->bias, n * sizeof *bias);
        assert_same_floats(bias, a->bias, n, "bias");
    }
    free(q);
    free(scales);
    free(bias);
    free(sums);
}

/* x [d->n_tokens][cols]: what was quantised. */
static inline void check_activations(const struct kernels *kernels,
                                     const struct device_activations *d, const float *x,
                                     uint32_t cols)
{
    void *memory = aligned_alloc(TILE_ALIGN, (act_bytes(cols, d->n_tokens) + TILE_ALIGN - 1) /
                                                 TILE_ALIGN * TILE_ALIGN);
    struct activations a;

    assert_non_null(memory);
    act_bind(&a, memory, cols, d->n_tokens, x, cols);
    kernels->quantize(&a, 0, d->n_tokens);
    check_quantized(&a, d, d->bias != NULL);
    free(memory);
}

#endif
