/* The architecture table; see architecture.h. */
#include "model/architecture.h"

#include <string.h>

static const struct architecture architectures[] = {
    {
        .name = "llama",
        .models = "Mixtral-8x7B, Mixtral-8x22B",
        .renormalise = true,
        .tied_output = true,
    },
    {
        .name = "qwen2moe",
        .models = "Qwen1.5-MoE-A2.7B, Qwen2-57B-A14B",
        .rope_neox = true,
        .shared_expert = true,
        .shared_expert_gate = true,
        .expert_width_key = "expert_feed_forward_length",
    },
    {
        .name = "qwen3moe",
        .models = "Qwen3-30B-A3B, Qwen3-235B-A22B",
        .rope_neox = true,
        .qk_norm = true,
        .renormalise = true,
        .tied_output = true,
        .expert_width_key = "expert_feed_forward_length",
    },
    {
        .name = "olmoe",
        .models = "OLMoE-1B-7B",
        .rope_neox = true,
        .qk_norm_whole = true,
    },
    {
        .name = "deepseek",
        .models = "DeepSeek-MoE-16B",
        .leading_dense = true,
        .shared_expert = true,
        .tied_output = true,
        .expert_width_key = "expert_feed_forward_length",
        .shared_count_key = "expert_shared_count",
    },
};

const struct architecture *architecture_find(const char *name, unsigned long len)
{
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++)
        if (strlen(architectures[i].name) == len && memcmp(architectures[i].name, name, len) == 0)
            return &architectures[i];
    return NULL;
}

const char *architecture_names(void)
{
    return "llama (with experts), qwen2moe, qwen3moe, olmoe, deepseek";
}
