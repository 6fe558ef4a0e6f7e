/* The architectures; see arch.h. Independent of lib/model's table, so that tests compare two
 * statements of the same facts. */
#include "mkmodel/arch.h"

#include <stddef.h>
#include <string.h>

/* DeepSeek-V3's feed-forward layers. */
#define V3_EXPERTS                                                                                 \
    .dense_layers = true, .shared_expert = true, .weights_scale = true, .router_keys = true,       \
    .sigmoid = true, .expert_width = true

/* Qwen3-Next and its successors. */
#define DELTA                                                                                      \
    .ffn_norm = "post_attention_norm", .qk_norm = true, .delta = true, .quarter_rope = true,       \
    .shared_expert = true, .shared_gate = true, .shared_width = true, .expert_width = true

static const struct mkmodel_arch table[] = {
    {.name = "llama", .ffn_norm = "ffn_norm"},
    {.name = "qwen2moe",
     .ffn_norm = "ffn_norm",
     .qkv_bias = true,
     .shared_expert = true,
     .shared_gate = true,
     .shared_width = true,
     .expert_width = true},
    {.name = "qwen3moe", .ffn_norm = "ffn_norm", .qk_norm = true, .expert_width = true},
    {.name = "olmoe", .ffn_norm = "ffn_norm", .qk_norm_whole = true},
    {.name = "deepseek",
     .ffn_norm = "ffn_norm",
     .dense_layers = true,
     .shared_expert = true,
     .weights_scale = true,
     .expert_width = true},
    {.name = "deepseek2",
     .ffn_norm = "ffn_norm",
     .latent = true,
     .dense_layers = true,
     .shared_expert = true,
     .weights_scale = true,
     .router_keys = true,
     .expert_width = true,
     .yarn = true},
    {.name = "glm-dsa", .ffn_norm = "ffn_norm", .latent = true, .indexer = true, V3_EXPERTS},
    {.name = "deepseek32",
     .ffn_norm = "ffn_norm",
     .latent = true,
     .indexer = true,
     V3_EXPERTS,
     .yarn = true},
    {.name = "phimoe",
     .ffn_norm = "ffn_norm",
     .qkv_bias = true,
     .attention_bias = true,
     .norm_bias = true,
     .logits_bias = true,
     .rotary_factors = true},
    {.name = "gpt-oss",
     .ffn_norm = "post_attention_norm",
     .sinks = true,
     .window = true,
     .qkv_bias = true,
     .attention_bias = true,
     .router_bias = true,
     .expert_bias = true,
     .expert_width = true,
     .yarn = true},
    {.name = "glm4moe",
     .ffn_norm = "post_attention_norm",
     .qk_norm = true,
     .half_rope = true,
     .qkv_bias = true,
     V3_EXPERTS},
    {.name = "minimax-m2",
     .ffn_norm = "ffn_norm",
     .qk_norm_whole = true,
     .half_rope = true,
     .sigmoid = true,
     .gating_key = true,
     .expert_width = true},
    {.name = "dots1", .ffn_norm = "ffn_norm", .qk_norm = true, V3_EXPERTS},
    {.name = "qwen3vlmoe",
     .ffn_norm = "ffn_norm",
     .qk_norm = true,
     .deepstack = true,
     .expert_width = true},
    {.name = "bailingmoe2",
     .ffn_norm = "ffn_norm",
     .qk_norm = true,
     .fused_qkv = true,
     .half_rope = true,
     V3_EXPERTS},
    {.name = "ernie4_5-moe",
     .ffn_norm = "ffn_norm",
     .dense_layers = true,
     .shared_expert = true,
     .selection_bias = true,
     .layer_step = true,
     .expert_width = true},
    {.name = "hunyuan-moe",
     .ffn_norm = "ffn_norm",
     .qk_norm = true,
     .shared_expert = true,
     .shared_width = true,
     .expert_width = true},
    {.name = "exaone-moe", .ffn_norm = "ffn_norm", .qk_norm = true, .window = true, V3_EXPERTS},
    {.name = "qwen35moe", DELTA},
    {.name = "qwen3next", .delta_grouped = true, DELTA},
    {.name = "gemma4",
     .ffn_norm = "ffn_norm",
     .qk_norm = true,
     .window = true,
     .gemma = true,
     .shared_expert = true,
     .shared_width = true,
     .expert_width = true},
    {.name = "lfm2moe",
     .ffn_norm = "ffn_norm",
     .qk_norm = true,
     .convolutions = true,
     .dense_layers = true,
     .sigmoid = true,
     .gating_key = true,
     .expert_width = true},
};

const struct mkmodel_arch *mkmodel_arch_find(const char *name)
{
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (strcmp(table[i].name, name) == 0)
            return &table[i];
    return NULL;
}
