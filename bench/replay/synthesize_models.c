/* Shapes of published models for synthetic traces; see synthesize.h.
 *
 * Layers, experts and widths are those of the models' config.json. dense: millions of weights that
 * a token reads in addition to the routed experts: attention, norms, gates, shared experts, dense
 * layers and the head. The embedding table does not count, because a token reads one row of it.
 * Types: Q4_0 (18 bytes for 32 weights) for all tensors. gpt-oss is as published: experts in MXFP4
 * (17 bytes for 32), the other tensors in Q8_0 (34 for 32). */
#include "bench/replay/synthesize.h"

#include "model/pool_plan.h"

#include <stdio.h>
#include <string.h>

enum { BLOCK = 32 };

static const struct model {
    const char *name, *title;
    uint32_t n_layers, n_dense, n_experts, n_used, d_model, d_expert;
    double dense;
    double expert_bits, dense_bits;
    bool renormalise;
} models[] = {
    {"mixtral", "Mixtral-8x7B", 32, 0, 8, 2, 4096, 14336, 1474, 4.5, 4.5, true},
    {"qwen3-30b", "Qwen3-30B-A3B", 48, 0, 128, 8, 2048, 768, 1230, 4.5, 4.5, true},
    {"qwen3-235b", "Qwen3-235B-A22B", 94, 0, 128, 8, 4096, 1536, 7373, 4.5, 4.5, true},
    {"deepseek-v2-lite", "DeepSeek-V2-Lite", 27, 1, 64, 6, 2048, 1408, 1101, 4.5, 4.5, false},
    {"deepseek-moe", "DeepSeek-MoE-16B", 28, 1, 64, 6, 2048, 1408, 1217, 4.5, 4.5, false},
    {"moonlight", "Moonlight-16B-A3B", 27, 1, 64, 6, 2048, 1408, 1230, 4.5, 4.5, true},
    {"qwen1.5-moe", "Qwen1.5-MoE-A2.7B", 24, 0, 60, 4, 2048, 1408, 1548, 4.5, 4.5, false},
    {"qwen2-57b", "Qwen2-57B-A14B", 28, 0, 64, 8, 3584, 2560, 7540, 4.5, 4.5, false},
    {"phi-3.5-moe", "Phi-3.5-MoE", 32, 0, 16, 2, 4096, 6400, 1475, 4.5, 4.5, true},
    {"olmoe", "OLMoE-1B-7B", 16, 0, 64, 8, 2048, 1024, 373, 4.5, 4.5, false},
    {"qwen3.6-35b", "Qwen3.6-35B-A3B", 40, 0, 256, 8, 2048, 512, 1940, 4.5, 4.5, true},
    {"gpt-oss-20b", "gpt-oss-20b", 24, 0, 32, 4, 2880, 2880, 1225, 4.25, 8.5, true},
    {"gpt-oss-120b", "gpt-oss-120b", 36, 0, 128, 4, 2880, 2880, 1547, 4.25, 8.5, true},
};
enum { N_MODELS = sizeof models / sizeof *models };

/* The number of segments, by memd's rule: the fewest that are small enough and have whole blocks.
 */
static uint32_t count_segments(const struct model *m, uint64_t expert_bytes)
{
    for (uint32_t n = 1; n <= 16; n++)
        if (m->d_expert % (n * BLOCK) == 0 && expert_bytes / n <= POOL_SEGMENT_BYTES)
            return n;
    for (uint32_t n = 16; n > 1; n--)
        if (m->d_expert % (n * BLOCK) == 0)
            return n;
    return 1;
}

static const struct model *find_model(const char *name)
{
    for (int i = 0; i < N_MODELS; i++)
        if (strcmp(models[i].name, name) == 0)
            return &models[i];
    return NULL;
}

bool synthesis_like(const char *name, struct synthesis *out)
{
    const struct model *m = find_model(name);
    if (!m)
        return false;
    uint64_t expert_bytes = (uint64_t)(3.0 * m->d_model * m->d_expert * m->expert_bits / 8);
    snprintf(out->model, sizeof out->model, "%s (synthetic)", m->title);
    out->n_layers = m->n_layers;
    out->first_layer = m->n_dense;
    out->n_experts = m->n_experts;
    out->n_used = m->n_used;
    out->n_segments = count_segments(m, expert_bytes);
    out->segment_bytes = expert_bytes / out->n_segments;
    out->dense_bytes = (uint64_t)(m->dense * 1e6 * m->dense_bits / 8);
    out->renormalise = m->renormalise;
    return true;
}

const char *synthesis_models(void)
{
    static char names[512];
    if (names[0])
        return names;
    for (int i = 0; i < N_MODELS; i++) {
        size_t at = strlen(names);
        snprintf(names + at, sizeof names - at, "%s%s", i ? ", " : "", models[i].name);
    }
    return names;
}
