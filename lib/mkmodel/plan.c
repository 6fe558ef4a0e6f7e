/* Options, checked and completed; see plan.h. */
#include "mkmodel/plan.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

void mkmodel_defaults(struct mkmodel_options *o)
{
    *o = (struct mkmodel_options){
        .arch = "qwen3moe",
        .type = "Q8_0",
        .pre = "qwen2",
        .layers = 4,
        .hidden = 256,
        .heads = 8,
        .kv_heads = 4,
        .head_dim = 0,
        .experts = 16,
        .top_k = 4,
        .expert_width = 256,
        .gate = "",
        .vocab = 4096,
        .ctx = 4096,
        .seed = 1,
        .split = 1,
        .threads = 0,
    };
}

/* ---- options ---- */

static const struct {
    const char *name;
    enum tensor_type type;
    bool mixed;
    uint32_t file_type; /* the numbers that llama.cpp gives these mixtures in general.file_type */
} types[] = {
    {"F32", TENSOR_F32, false, 0},          {"F16", TENSOR_F16, false, 1},
    {"BF16", TENSOR_BF16, false, 32},       {"Q4_0", TENSOR_Q4_0, false, 2},
    {"Q8_0", TENSOR_Q8_0, false, 7},        {"Q4_K", TENSOR_Q4_K, false, 14},
    {"Q5_K", TENSOR_Q5_K, false, 16},       {"Q6_K", TENSOR_Q6_K, false, 18},
    {"Q4_1", TENSOR_Q4_1, false, 3},        {"Q5_0", TENSOR_Q5_0, false, 8},
    {"Q5_1", TENSOR_Q5_1, false, 9},        {"Q2_K", TENSOR_Q2_K, false, 21},
    {"Q3_K", TENSOR_Q3_K, false, 11},       {"IQ4_NL", TENSOR_IQ4_NL, false, 25},
    {"IQ4_XS", TENSOR_IQ4_XS, false, 30},   {"MXFP4", TENSOR_MXFP4, false, 38},
    {"NVFP4", TENSOR_NVFP4, false, 39},     {"IQ3_S", TENSOR_IQ3_S, false, 26},
    {"IQ3_XXS", TENSOR_IQ3_XXS, false, 23}, {"IQ2_S", TENSOR_IQ2_S, false, 28},
    {"IQ2_XS", TENSOR_IQ2_XS, false, 20},   {"IQ2_XXS", TENSOR_IQ2_XXS, false, 19},
    {"IQ1_S", TENSOR_IQ1_S, false, 24},     {"IQ1_M", TENSOR_IQ1_M, false, 31},
    {"Q4_K_M", TENSOR_Q4_K, true, 15},      {"Q5_K_M", TENSOR_Q5_K, true, 17},
};

static enum error_code choose_type(struct plan *p, struct error *e)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcasecmp(types[i].name, p->options.type) == 0) {
            p->type = types[i].type;
            p->mixed = types[i].mixed;
            p->file_type = types[i].file_type;
            return ERROR_OK;
        }
    return error_set(
        e, ERROR_USAGE,
        "--type %s: unknown, expected F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, "
        "Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, IQ3_S, IQ3_XXS, IQ2_S, IQ2_XS, IQ2_XXS, IQ1_S, "
        "IQ1_M, MXFP4, NVFP4, Q4_K_M or Q5_K_M",
        p->options.type);
}

static enum error_code choose_arch(struct plan *p, struct error *e)
{
    p->arch = mkmodel_arch_find(p->options.arch);
    if (p->arch)
        return ERROR_OK;
    return error_set(e, ERROR_USAGE,
                     "--arch %s: unknown, expected llama, qwen2moe, qwen3moe, olmoe, deepseek, "
                     "deepseek2, phimoe, gpt-oss, glm4moe, minimax-m2, dots1, qwen3vlmoe, "
                     "bailingmoe2, ernie4_5-moe, hunyuan-moe, exaone-moe, glm-dsa, "
                     "deepseek32, qwen35moe, qwen3next, lfm2moe, gemma4, laguna, step35, "
                     "mimo2, afmoe, cohere2moe, hy_v3 or nemotron_h_moe",
                     p->options.arch);
}

/* An empty name: the architecture's own gate. */
static enum error_code choose_gate(struct plan *p, struct error *e)
{
    bool own = !*p->options.gate;
    p->sigmoid = own ? p->arch->sigmoid : strcmp(p->options.gate, "sigmoid") == 0;
    if (!own && !p->sigmoid && strcmp(p->options.gate, "softmax") != 0)
        return error_set(e, ERROR_USAGE, "--gate %s: unknown, expected softmax or sigmoid",
                         p->options.gate);
    return ERROR_OK;
}

/* Refuses options of other architectures, which would have no effect. */
static enum error_code check_arch_has(const struct plan *p, struct error *e)
{
    const struct mkmodel_options *o = &p->options;
    const struct {
        const char *option;
        bool given, has;
    } rows[] = {
        {"--dense-layers", o->dense_layers, p->arch->dense_layers},
        {"--dense-width", o->dense_width, p->arch->dense_layers},
        {"--q-rank", o->q_rank, p->arch->latent},
        {"--kv-rank", o->kv_rank, p->arch->latent},
        {"--rope-dim", o->rope_dim, p->arch->latent},
        {"--gate sigmoid", p->sigmoid, p->arch->router_keys || p->arch->sigmoid},
        {"--gate softmax", !p->sigmoid, !p->arch->sigmoid},
        {"--groups", o->groups, p->arch->router_keys},
        {"--groups-used", o->groups_used, p->arch->router_keys},
        {"--window", o->window, p->arch->window},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].given && !rows[i].has)
            return error_set(e, ERROR_USAGE, "%s: a model of architecture %s has no such thing",
                             rows[i].option, p->arch->name);
    return ERROR_OK;
}

static enum error_code check_ranges(const struct mkmodel_options *o, struct error *e)
{
    const struct {
        const char *option;
        uint32_t value, low, high;
    } ranges[] = {
        {"--layers", o->layers, 1, MKMODEL_MOST_LAYERS},
        {"--hidden", o->hidden, 1, 1 << 17},
        {"--heads", o->heads, 1, 4096},
        {"--kv-heads", o->kv_heads, 1, 4096},
        {"--head-dim", o->head_dim, 2, 4096},
        {"--experts", o->experts, 1, 65536},
        {"--top-k", o->top_k, 1, 65536},
        {"--expert-width", o->expert_width, 1, 1 << 20},
        {"--shared-width", o->shared_width, 1, 1 << 20},
        {"--dense-width", o->dense_width, 1, 1 << 24},
        {"--q-rank", o->q_rank, 0, 1 << 17},
        {"--kv-rank", o->kv_rank, 1, 1 << 17},
        {"--rope-dim", o->rope_dim, 2, 4096},
        {"--groups", o->groups, 0, 256},
        {"--window", o->window, 1, 1 << 30},
        {"--vocab", o->vocab, 259, 1000000}, /* 256 bytes and 3 special tokens */
        {"--ctx", o->ctx, 1, 1 << 30},
        {"--split", o->split, 1, 1000},
        {"--threads", o->threads, 0, 1024},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        if (ranges[i].value < ranges[i].low || ranges[i].value > ranges[i].high)
            return error_set(e, ERROR_USAGE, "%s %u: out of range, expected %u to %u",
                             ranges[i].option, ranges[i].value, ranges[i].low, ranges[i].high);
    return ERROR_OK;
}

/* Replaces zeros by their defaults. */
static enum error_code fill_in(struct plan *p, struct error *e)
{
    struct mkmodel_options *o = &p->options;
    if (o->head_dim == 0 && o->heads != 0) {
        if (o->hidden % o->heads != 0)
            return error_set(e, ERROR_USAGE,
                             "--hidden %u is no multiple of --heads %u: change one or give "
                             "--head-dim",
                             o->hidden, o->heads);
        o->head_dim = o->hidden / o->heads;
    }
    if (o->shared_width == 0)
        o->shared_width = o->expert_width;
    if (o->dense_layers == 0)
        o->dense_layers = p->arch->dense_layers && o->layers > 1;
    if (o->dense_width == 0)
        o->dense_width = o->expert_width * (o->top_k < 16 ? o->top_k : 16);
    if (o->kv_rank == 0)
        o->kv_rank = 4 * o->head_dim;
    if (o->q_rank == 0 && p->arch->indexer)
        o->q_rank = o->kv_rank;
    if (o->rope_dim == 0)
        o->rope_dim = o->head_dim / 2 + o->head_dim / 2 % 2; /* pairs */
    if (o->groups && o->groups_used == 0)
        o->groups_used = (o->groups + 1) / 2;
    if (o->window == 0)
        o->window = 128;
    return ERROR_OK;
}

static enum error_code check_groups(const struct mkmodel_options *o, struct error *e)
{
    if (o->groups == 0)
        return o->groups_used ? error_set(e, ERROR_USAGE, "--groups-used %u: give --groups too",
                                          o->groups_used)
                              : ERROR_OK;
    if (o->experts % o->groups != 0 || o->experts / o->groups < 2)
        return error_set(
            e, ERROR_USAGE,
            "--groups %u: expected groups of equal size, two of the %u --experts or more",
            o->groups, o->experts);
    if (o->groups_used > o->groups || o->groups_used * (o->experts / o->groups) < o->top_k)
        return error_set(e, ERROR_USAGE,
                         "--groups-used %u: expected up to %u, with --top-k %u experts or more",
                         o->groups_used, o->groups, o->top_k);
    return ERROR_OK;
}

static enum error_code check_options(struct plan *p, struct error *e)
{
    struct mkmodel_options *o = &p->options;
    enum error_code code = check_arch_has(p, e);
    if (code == ERROR_OK)
        code = fill_in(p, e);
    if (code == ERROR_OK)
        code = check_ranges(o, e);
    if (code != ERROR_OK)
        return code;
    if (o->head_dim % 2 != 0 && !p->arch->latent)
        return error_set(e, ERROR_USAGE,
                         "--head-dim %u: odd, but rotary positions turn pairs of values",
                         o->head_dim);
    if (o->rope_dim % 2 != 0)
        return error_set(e, ERROR_USAGE,
                         "--rope-dim %u: odd, but rotary positions turn pairs of values",
                         o->rope_dim);
    if (o->heads % o->kv_heads != 0)
        return error_set(e, ERROR_USAGE, "--heads %u is no multiple of --kv-heads %u", o->heads,
                         o->kv_heads);
    if (o->top_k > o->experts)
        return error_set(e, ERROR_USAGE, "--top-k %u: more than --experts %u", o->top_k,
                         o->experts);
    if (p->arch->mamba2 && mkmodel_first_block(p, o->layers) > MKMODEL_MOST_LAYERS)
        return error_set(e, ERROR_USAGE, "--layers %u: more than %d blocks", o->layers,
                         MKMODEL_MOST_LAYERS);
    if (o->dense_layers >= o->layers)
        return error_set(e, ERROR_USAGE, "--dense-layers %u: expected less than --layers %u",
                         o->dense_layers, o->layers);
    if (p->arch->shared_expert && !p->arch->shared_width && o->shared_width % o->expert_width != 0)
        return error_set(e, ERROR_USAGE, "--shared-width %u is no multiple of --expert-width %u",
                         o->shared_width, o->expert_width);
    return check_groups(o, e);
}

/* ---- the plan ---- */

enum error_code plan_init(struct plan *p, const struct mkmodel_options *o, struct error *e)
{
    *p = (struct plan){.options = *o};
    enum error_code code = choose_arch(p, e);
    if (code == ERROR_OK)
        code = choose_type(p, e);
    if (code == ERROR_OK)
        code = choose_gate(p, e);
    if (code == ERROR_OK)
        code = check_options(p, e);
    return code;
}

void plan_fini(struct plan *p)
{
    free(p->tensors);
    p->tensors = NULL;
}
