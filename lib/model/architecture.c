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
    {
        .name = "deepseek2",
        .models = "DeepSeek-V2, V2-Lite, V3, R1, Kimi-K2, Moonlight-16B-A3B, GLM-4.7-Flash, "
                  "Mistral-Large-3",
        .attention = ATTENTION_LATENT,
        .router_keys = true,
        .leading_dense = true,
        .shared_expert = true,
        .tied_output = true,
        .expert_width_key = "expert_feed_forward_length",
        .shared_count_key = "expert_shared_count",
    },
    {
        .name = "phimoe",
        .models = "Phi-3.5-MoE",
        .norm = NORM_LAYER,
        .router = ROUTER_SPARSE_MIXER,
        .biases = BIAS_QKV | BIAS_ATTENTION_OUTPUT | BIAS_OUTPUT,
        .rope_neox = true,
        .rope_magnitude = 1.243163121016122f, /* the model's short_mscale and long_mscale */
    },
    {
        .name = "gpt-oss",
        .models = "gpt-oss-20b, gpt-oss-120b",
        .router = ROUTER_SOFTMAX_SELECTED,
        .activation = ACTIVATION_SWIGLU_CLAMPED,
        .biases = BIAS_QKV | BIAS_ATTENTION_OUTPUT | BIAS_ROUTER | BIAS_EXPERTS,
        .rope_neox = true,
        .attention_sinks = true,
        .window_period = 2,
        .ffn_norm = "post_attention_norm",
        .expert_width_key = "expert_feed_forward_length",
    },
    {
        .name = "glm4moe",
        .models = "GLM-4.5, 4.5-Air, 4.6, 4.7, Solar-Open-100B",
        .router = ROUTER_SIGMOID,
        .rope_neox = true,
        .qk_norm = true,
        .qk_norm_optional = true,
        .renormalise = true,
        .router_keys = true,
        .leading_dense = true,
        .shared_expert = true,
        .tied_output = true,
        .ffn_norm = "post_attention_norm",
        .expert_width_key = "expert_feed_forward_length",
        .shared_count_key = "expert_shared_count",
    },
    {
        .name = "minimax-m2",
        .models = "MiniMax-M2, M2.1, M2.5, M2.7",
        .router = ROUTER_SIGMOID,
        .rope_neox = true,
        .qk_norm_whole = true,
        .renormalise = true,
        .router_keys = true,
        .expert_width_key = "expert_feed_forward_length",
    },
    {
        .name = "dots1",
        .models = "dots.llm1",
        .router = ROUTER_SIGMOID,
        .rope_neox = true,
        .qk_norm = true,
        .router_keys = true,
        .leading_dense = true,
        .shared_expert = true,
        .expert_width_key = "expert_feed_forward_length",
        .shared_count_key = "expert_shared_count",
    },
    {
        .name = "qwen3vlmoe",
        .models = "Qwen3-VL-30B-A3B, Qwen3-VL-235B-A22B, text only",
        .rope_neox = true,
        .qk_norm = true,
        .renormalise = true,
        .tied_output = true,
        .expert_width_key = "expert_feed_forward_length",
    },
    {
        .name = "bailingmoe2",
        .models = "Ling-mini-2.0, Ling-flash-2.0, Ling-1T, Ring-mini-2.0, Ring-flash-2.0, Ring-1T",
        .router = ROUTER_SIGMOID,
        .rope_neox = true,
        .qk_norm = true,
        .renormalise = true,
        .router_keys = true,
        .leading_dense = true,
        .shared_expert = true,
        .expert_width_key = "expert_feed_forward_length",
        .shared_count_key = "expert_shared_count",
    },
    {
        .name = "ernie4_5-moe",
        .models = "ERNIE-4.5-21B-A3B, ERNIE-4.5-300B-A47B",
        .renormalise = true,
        .router_keys = true,
        .leading_dense = true,
        .shared_expert = true,
        .tied_output = true,
        .expert_width_key = "expert_feed_forward_length",
        .shared_count_key = "expert_shared_count",
    },
    {
        .name = "hunyuan-moe",
        .models = "Hunyuan-A13B",
        .rope_neox = true,
        .qk_norm = true,
        .qk_norm_after_rope = true,
        .renormalise = true,
        .shared_expert = true,
        .tied_output = true,
        .expert_width_key = "expert_feed_forward_length",
    },
    {
        .name = "exaone-moe",
        .models = "K-EXAONE-236B-A23B",
        .router = ROUTER_SIGMOID,
        .rope_neox = true,
        .rope_windowed_only = true,
        .qk_norm = true,
        .renormalise = true,
        .router_keys = true,
        .leading_dense = true,
        .shared_expert = true,
        .window_period = 4,
        .expert_width_key = "expert_feed_forward_length",
        .shared_count_key = "expert_shared_count",
    },
    {
        .name = "glm-dsa",
        .models = "GLM-5, 5.1, 5.2, up to 2048 tokens",
        .attention = ATTENTION_LATENT,
        .router = ROUTER_SIGMOID,
        .renormalise = true,
        .router_keys = true,
        .leading_dense = true,
        .shared_expert = true,
        .tied_output = true,
        .indexer = true,
        .expert_width_key = "expert_feed_forward_length",
        .shared_count_key = "expert_shared_count",
    },
    {
        .name = "deepseek32",
        .models = "DeepSeek-V3.2, up to 2048 tokens",
        .attention = ATTENTION_LATENT,
        .router = ROUTER_SIGMOID,
        .renormalise = true,
        .router_keys = true,
        .leading_dense = true,
        .shared_expert = true,
        .tied_output = true,
        .indexer = true,
        .expert_width_key = "expert_feed_forward_length",
        .shared_count_key = "expert_shared_count",
    },
};
enum { N_ARCHITECTURES = sizeof architectures / sizeof *architectures };

const struct architecture *architecture_find(const char *name, unsigned long len)
{
    for (unsigned i = 0; i < N_ARCHITECTURES; i++)
        if (strlen(architectures[i].name) == len && memcmp(architectures[i].name, name, len) == 0)
            return &architectures[i];
    return NULL;
}

const struct architecture *architecture_at(unsigned i)
{
    return i < N_ARCHITECTURES ? &architectures[i] : NULL;
}

const char *architecture_names(void)
{
    return "llama (with experts), qwen2moe, qwen3moe, olmoe, deepseek, deepseek2, mistral4, "
           "phimoe, gpt-oss, "
           "glm4moe, minimax-m2, dots1, qwen3vlmoe, bailingmoe2, ernie4_5-moe, hunyuan-moe, "
           "exaone-moe, glm-dsa, deepseek32";
}
