/* The architectures; see arch.h. Kept apart from lib/model's table, so that tests compare two statements of
 * the same facts. */
#include "mkmodel/arch.h"

#include <stddef.h>
#include <string.h>

static const struct mkmodel_arch table[] = {
    {.name = "llama", .ffn_norm = "ffn_norm"},
    {.name = "qwen2moe",
     .ffn_norm = "ffn_norm",
     .qkv_bias = true,
     .shared_expert = true,
     .shared_gate = true,
     .expert_width = true},
    {.name = "qwen3moe", .ffn_norm = "ffn_norm", .qk_norm = true, .expert_width = true},
    {.name = "olmoe", .ffn_norm = "ffn_norm", .qk_norm_whole = true},
    {.name = "deepseek",
     .ffn_norm = "ffn_norm",
     .dense_layers = true,
     .shared_expert = true,
     .expert_width = true},
    {.name = "deepseek2",
     .ffn_norm = "ffn_norm",
     .latent = true,
     .dense_layers = true,
     .shared_expert = true,
     .router_keys = true,
     .expert_width = true,
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
     .qkv_bias = true,
     .attention_bias = true,
     .router_bias = true,
     .expert_bias = true,
     .expert_width = true,
     .yarn = true},
};

const struct mkmodel_arch *mkmodel_arch_find(const char *name)
{
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (strcmp(table[i].name, name) == 0)
            return &table[i];
    return NULL;
}
