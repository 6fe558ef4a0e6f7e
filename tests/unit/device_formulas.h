/* A device module whose needs of memory are formulas to be worked out by hand, and a small pool. */
#ifndef MOED_TESTS_DEVICE_FORMULAS_H
#define MOED_TESTS_DEVICE_FORMULAS_H

#include "device/worker_memory.h"
#include "model/kv_type.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define MIB (1ull << 20)

static inline size_t activations_bytes(uint32_t cols, uint32_t n_tokens)
{
    return (size_t)cols * n_tokens;
}

static inline size_t experts_scratch_bytes(const struct device_segments *layout,
                                           uint32_t n_segments, uint32_t n_task_rows)
{
    return (size_t)layout->width * n_task_rows + n_segments;
}

static size_t chosen_factor = 100;

static inline size_t chosen_bytes(uint32_t n, uint32_t n_used, uint32_t n_segments)
{
    return (size_t)n * n_used * n_segments * chosen_factor;
}

static inline size_t multiply_many_scratch_bytes(const struct matrix *m, uint32_t n_planes,
                                                 uint32_t n)
{
    return n_planes * ((size_t)m->rows * m->cols + n);
}

static inline size_t attend_scratch_bytes(uint32_t n, uint32_t n_heads, uint32_t v_dim,
                                          uint32_t most_positions)
{
    return (size_t)n * n_heads * (most_positions / 64) + v_dim;
}

static inline size_t gate_scratch_bytes(uint32_t n_experts, uint32_t cols)
{
    return (size_t)n_experts * cols;
}

static inline size_t largest_scratch_bytes(uint32_t n, uint32_t vocab, uint32_t k)
{
    return (size_t)n * k * ((vocab + 99) / 100);
}

static const struct device_module module = {.name = "formulas",
                                            .ops.activations_bytes = activations_bytes,
                                            .ops.experts_scratch_bytes = experts_scratch_bytes,
                                            .ops.chosen_bytes = chosen_bytes,
                                            .ops.multiply_many_scratch_bytes =
                                                multiply_many_scratch_bytes,
                                            .ops.attend_scratch_bytes = attend_scratch_bytes,
                                            .ops.gate_scratch_bytes = gate_scratch_bytes,
                                            .ops.largest_scratch_bytes = largest_scratch_bytes};

/* Two layers, the first without experts; an expert's two segments of 1000 bytes are 16 wide. */
static struct pool_slabs slabs[2] = {
    {0}, {.n_experts = 8, .n_segments = 2, .segment_width = 16, .segment_bytes = 1000}};
/* Dense weights from 4096 to 4096 + 64 + 5 MiB. */
static struct pool_tensor tensors[3] = {{.name = "blk.0.attn_q.weight",
                                         .form = POOL_MATRIX,
                                         .planes = 1,
                                         .rows = 8,
                                         .cols = 32,
                                         .offset = 4096,
                                         .bytes = 60},
                                        {.name = "blk.1.attn_k_b.weight",
                                         .form = POOL_MATRIX,
                                         .planes = 4,
                                         .rows = 20,
                                         .cols = 96,
                                         .offset = 4160,
                                         .bytes = 2 * MIB},
                                        {.name = "output.weight",
                                         .form = POOL_MATRIX,
                                         .planes = 1,
                                         .rows = 100,
                                         .cols = 32,
                                         .offset = 4160 + 2 * MIB,
                                         .bytes = 3 * MIB}};
static struct pool_header header = {.n_layers = 2, .n_tensors = 3, .expert_bytes = 16000};

static inline struct pool_map sample_map(void)
{
    struct pool_map map = {.header = &header, .tensors = tensors, .slabs = slabs};
    map.params = (struct model_params){.arch = architecture_find("llama", 5),
                                       .n_layers = 2,
                                       .d_model = 32,
                                       .rope.dims = 8,
                                       .router = {.n_experts = 8, .n_used = 2},
                                       .d_expert = 32,
                                       .n_dense = 1,
                                       .d_dense = 48,
                                       .vocab = 100,
                                       .context_trained = 2048};
    for (int i = 0; i < 2; i++)
        map.params.layers[i] = (struct layer_params){
            .n_heads = 4, .n_kv_heads = 2, .q_dim = 8, .o_dim = 8, .k_dim = 8, .v_dim = 8};
    map.params.layers[0].feed_forward = FEED_FORWARD_DENSE;
    return map;
}

static inline void set_heads(struct pool_map *map, uint32_t n_kv_heads, uint32_t k_dim,
                             uint32_t v_dim)
{
    for (int i = 0; i < 2; i++) {
        map->params.layers[i].n_kv_heads = n_kv_heads;
        map->params.layers[i].k_dim = k_dim;
        map->params.layers[i].v_dim = v_dim;
    }
}

#endif
