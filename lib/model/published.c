/* Values that early files of published models lack; see published.h. */
#include "model/published.h"

#include <stddef.h>
#include <string.h>

const char *published_key(unsigned i)
{
    static const char *const keys[] = {"expert_gating_func",          "expert_group_count",
                                       "expert_group_used_count",     "rope.scaling.yarn_beta_fast",
                                       "rope.scaling.yarn_beta_slow", "attention.value_scale",
                                       "attention.temperature_scale"};
    _Static_assert(1 << (sizeof keys / sizeof keys[0]) == PUBLISHED_ALL + 1, "a name for each");
    return i < sizeof keys / sizeof keys[0] ? keys[i] : NULL;
}

const struct published_groups *published_groups(const struct model_params *p)
{
    static const struct {
        enum router_kind kind;
        uint32_t n_experts, d_model;
        struct published_groups groups;
    } models[] = {
        {ROUTER_SOFTMAX, 160, 5120, {8, 3}}, /* DeepSeek-V2, V2.5, Coder-V2 */
        {ROUTER_SIGMOID, 256, 7168, {8, 4}}, /* DeepSeek-V3, V3.1, R1 */
    };
    const struct router_params *r = &p->router;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        if (p->arch->attention == ATTENTION_LATENT && models[i].kind == r->kind &&
            models[i].n_experts == r->n_experts && models[i].d_model == p->d_model &&
            r->n_used <=
                models[i].groups.n_groups_used * (r->n_experts / models[i].groups.n_groups))
            return &models[i].groups;
    return NULL;
}

/* Kimi-K2.5 and later, whose files have the keys, have other values at the same sizes. */
static bool is_later_kimi(const char *name)
{
    for (const char *at = name; (at = strcasestr(at, "k2.")) != NULL; at++)
        if (at[3] >= '0' && at[3] <= '9') /* and no file's extension */
            return true;
    return false;
}

float published_value_scale(const struct model_params *p)
{
    bool is_pro = p->router.n_experts == 384; /* MiMo-V2.5-Pro */
    return p->arch->value_scale > 0 && is_pro ? 0.612f : p->arch->value_scale;
}

bool published_exact_ramp(const struct model_params *p)
{
    const struct rope_params *r = &p->rope;
    return strcmp(p->arch->name, "gpt-oss") == 0 && p->d_model == 2880 && r->dims == 64 &&
           r->base == 150000 && r->factor == 32 && r->original_context == 4096;
}

const struct published_ramp *published_ramp(const struct model_params *p)
{
    static const struct {
        uint32_t n_experts, original_context;
        float factor;
        struct published_ramp ramp;
    } models[] = {
        {384, 4096, 32, {1, 1}}, /* Kimi-K2-Instruct, Base */
        {384, 4096, 64, {1, 1}}, /* Kimi-K2-Instruct-0905, Thinking */
    };
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        if (p->arch->attention == ATTENTION_LATENT && p->router.n_experts == models[i].n_experts &&
            p->rope.original_context == models[i].original_context &&
            p->rope.factor == models[i].factor && !is_later_kimi(p->name))
            return &models[i].ramp;
    return NULL;
}
