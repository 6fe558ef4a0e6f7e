/* Reads hyper-parameters; see params.h. */
#include "params_internal.h"

#include "model/published.h"
#include "model/router.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Refuses files that lie beside a model: files of these types, and clip, the architecture of an
 * mmproj file that does not say its type. */
static enum error_code refuse_other_files(const struct gguf *g, struct error *e)
{
    static const char mmproj[] = "an mmproj file, the image or audio part of a model: give the "
                                 "GGUF file of the model's text part instead";
    static const struct {
        const char *key, *value, *what;
    } files[] = {
        {"general.architecture", "clip", mmproj},
        {"general.type", "mmproj", mmproj},
        {"general.type", "adapter",
         "a LoRA adapter, which changes a model's weights and is none: moed does not use adapters; "
         "give the GGUF file of a model into which it is merged"},
        {"general.type", "imatrix",
         "an importance matrix, which serves to quantise a model: give the model's own GGUF file"},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        if (gguf_key_is(g, files[i].key, files[i].value))
            return error_set(e, ERROR_UNSUPPORTED, "%s: %s", gguf_path(g, 0), files[i].what);
    return ERROR_OK;
}

/* Refuses an architecture that moed does not know. */
static enum error_code refuse_architecture(const struct gguf *g, const struct gguf_string *name,
                                           struct error *e)
{
    char known[400], key[80];
    int len = name->len < 40 ? (int)name->len : 40;
    if (len == 6 && memcmp(name->data, "gptoss", 6) == 0)
        return error_set(
            e, ERROR_UNSUPPORTED,
            "%s: Ollama's own form of gpt-oss: take a file in llama.cpp's form, of the "
            "architecture 'gpt-oss'",
            gguf_path(g, 0));
    snprintf(key, sizeof key, "%.*s.expert_count", len, name->data);
    if (!gguf_find(g, key))
        return error_set(e, ERROR_UNSUPPORTED,
                         "%s: a dense model ('%.*s'): moed runs Mixture-of-Experts models",
                         gguf_path(g, 0), len, name->data);
    architecture_names(known, sizeof known);
    return error_set(e, ERROR_UNSUPPORTED, "%s: architecture '%.*s' is not supported; moed runs %s",
                     gguf_path(g, 0), len, name->data, known);
}

static enum error_code read_architecture(const struct gguf *g, struct model_params *p,
                                         struct error *e)
{
    struct gguf_string name = {NULL, 0};
    enum error_code code = refuse_other_files(g, e);
    if (!code)
        code = gguf_get_string(g, "general.architecture", &name, e);
    if (code)
        return code;
    p->arch = architecture_find(name.data, name.len);
    if (p->arch)
        return ERROR_OK;
    return refuse_architecture(g, &name, e);
}

static void read_name(const struct gguf *g, struct model_params *p)
{
    struct gguf_string name;
    const char *path = gguf_path(g, 0);
    const char *slash = strrchr(path, '/');
    snprintf(p->name, sizeof p->name, "%s", slash ? slash + 1 : path);
    if (gguf_find(g, "general.name") &&
        gguf_get_string(g, "general.name", &name, NULL) == ERROR_OK && name.len > 0)
        snprintf(p->name, sizeof p->name, "%.*s", (int)(name.len < 90 ? name.len : 90), name.data);
    for (char *c = p->name; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
}

/* 0: the model has no shared expert. */
static uint32_t read_shared_count(struct key_reader *r, const char *suffix)
{
    char key[KEY_BYTES];
    uint32_t count = 0;
    key_name(r, suffix, key);
    if (!r->failed)
        r->failed = gguf_get_u32(r->g, key, &count, r->e);
    return count ? key_check(r, suffix, count, ROUTER_MAX_EXPERTS) : 0;
}

static void read_experts(struct key_reader *r, struct model_params *p)
{
    struct router_params *router = &p->router;
    if (!r->failed && !key_exists(r, "expert_count"))
        r->failed = error_set(
            r->e, ERROR_UNSUPPORTED,
            "%s: no key '%s.expert_count': a dense model; moed runs Mixture-of-Experts models",
            gguf_path(r->g, 0), r->arch);
    static const char early[] = "blk.0.ffn_gate.0.weight";
    if (!r->failed && gguf_tensor_find(r->g, early))
        r->failed = error_set(r->e, ERROR_UNSUPPORTED,
                              "%s: an early file with a tensor for each expert ('%s'): download a "
                              "newer file of the model, or convert it again",
                              gguf_path(r->g, 0), early);
    router->n_experts = key_u32(r, "expert_count", ROUTER_MAX_EXPERTS);
    router->n_used = key_u32(r, "expert_used_count", ROUTER_MAX_EXPERTS);
    if (!r->failed && router->n_used > router->n_experts)
        r->failed = error_set(r->e, ERROR_FORMAT,
                              "%s: key '%s.expert_used_count' is %" PRIu32
                              ": more than the %" PRIu32 " experts there are",
                              gguf_path(r->g, 0), r->arch, router->n_used, router->n_experts);
    if (r->failed)
        return;
    const char *width =
        p->arch->expert_width_key ? p->arch->expert_width_key : "feed_forward_length";
    if (key_exists(r, width))
        p->d_expert = key_u32(r, width, PARAMS_MAX_WIDTH);
    else /* older qwen2moe files give the width of all activated experts together */
        p->d_expert = key_check(
            r, "feed_forward_length",
            key_u32(r, "feed_forward_length", PARAMS_MAX_WIDTH) / router->n_used, PARAMS_MAX_WIDTH);
    if (p->arch->shared_expert_normed)
        p->d_shared = key_u32(r, "feed_forward_length", PARAMS_MAX_WIDTH);
    else if (p->arch->shared_count_key) {
        p->d_shared = read_shared_count(r, p->arch->shared_count_key) * p->d_expert;
        if (p->d_shared)
            key_check(r, p->arch->shared_count_key, p->d_shared, PARAMS_MAX_WIDTH);
    } else if (p->arch->shared_expert)
        p->d_shared = key_u32_or(r, "expert_shared_feed_forward_length",
                                 p->d_expert * router->n_used, PARAMS_MAX_WIDTH);
    router->scale = key_f32_or(r, "expert_weights_scale", 1.0f, 0.0f, 1e6f);
    if (router->scale == 0.0f) /* the converters' way to say none */
        router->scale = 1.0f;
    if (p->arch->shared_average && p->d_shared)
        router->scale *= 0.5f; /* and the forward pass halves the shared expert */
}

static uint32_t count_without_router(const struct gguf *g, uint32_t n_layers)
{
    char name[64];
    for (uint32_t i = 0; i < n_layers; i++) {
        snprintf(name, sizeof name, "blk.%" PRIu32 ".ffn_gate_inp.weight", i);
        if (gguf_tensor_find(g, name))
            return i;
    }
    return n_layers;
}

static void read_groups(struct key_reader *r, struct router_params *router, bool allowed)
{
    router->n_groups = key_u32(r, "expert_group_count", ROUTER_MAX_GROUPS);
    if (router->n_groups > 1 && !allowed)
        params_refuse_value(r, "expert_group_count", router->n_groups, "groups of experts");
    router->n_groups_used =
        key_u32_or(r, "expert_group_used_count", router->n_groups, ROUTER_MAX_GROUPS);
    if (r->failed)
        return;
    uint32_t size = router->n_experts / router->n_groups;
    if (router->n_experts % router->n_groups || router->n_groups_used > router->n_groups ||
        router->n_groups_used * size < router->n_used)
        r->failed =
            error_set(r->e, ERROR_FORMAT,
                      "%s: %" PRIu32 " experts cannot be chosen from %" PRIu32 " of %" PRIu32
                      " groups of the layer's %" PRIu32 " ('%s.expert_group_used_count')",
                      gguf_path(r->g, 0), router->n_used, router->n_groups_used, router->n_groups,
                      router->n_experts, r->arch);
    if (router->n_groups_used == router->n_groups)
        router->n_groups = router->n_groups_used = 0;
}

/* The published model's groups, where the file has no keys for them. */
static void find_groups(struct model_params *p)
{
    const struct published_groups *groups = published_groups(p);
    if (!groups)
        return;
    p->router.n_groups = groups->n_groups;
    p->router.n_groups_used = groups->n_groups_used;
    p->published |= PUBLISHED_GROUPS | PUBLISHED_GROUPS_USED;
}

/* Whether the first layer with a router has a bias for the choice alone. */
static bool has_selection_bias(const struct key_reader *r, const struct model_params *p)
{
    const char *bias = architecture_selection_bias(p->arch);
    char name[64];
    uint32_t layer = count_without_router(r->g, p->n_layers);
    snprintf(name, sizeof name, "blk.%" PRIu32 ".%s", layer, bias ? bias : "");
    return bias && gguf_tensor_find(r->g, name);
}

/* Early files of GLM-4.7-Flash lack the key of their sigmoid. With latent attention only models
 * with a sigmoid have the bias. */
static void find_gate(struct key_reader *r, struct model_params *p)
{
    if (p->arch->attention != ATTENTION_LATENT || p->router.kind != ROUTER_SOFTMAX ||
        !has_selection_bias(r, p))
        return;
    p->router.kind = ROUTER_SIGMOID;
    p->published |= PUBLISHED_GATE;
}

/* Files of every architecture may have these keys. moed refuses a router that differs from the
 * architecture's row, because it would compute it wrongly. */
static void read_router(struct key_reader *r, struct model_params *p)
{
    static const struct {
        uint32_t id;
        enum router_kind kind;
    } gates[] = {{1, ROUTER_SOFTMAX}, {2, ROUTER_SIGMOID}, {3, ROUTER_SOFTMAX_SELECTED}};
    struct router_params *router = &p->router;
    router->kind = p->arch->router;
    router->weight_sum_eps = p->arch->weight_sum_eps;
    router->weight_sum_least = p->arch->weight_sum_least;
    router->renormalise = key_bool_or(r, "expert_weights_norm", p->arch->renormalise);
    if (!p->arch->router_keys && router->renormalise != p->arch->renormalise)
        params_refuse_value(r, "expert_weights_norm", router->renormalise, "another normalisation");
    if (!r->failed && key_exists(r, "expert_gating_func")) {
        uint32_t id = key_u32(r, "expert_gating_func", UINT32_MAX), i = 0;
        while (i < 3 && gates[i].id != id)
            i++;
        if (i < 3 && (p->arch->router_keys || gates[i].kind == p->arch->router))
            router->kind = gates[i].kind;
        else
            params_refuse_value(r, "expert_gating_func", id, "another gate");
    } else if (!r->failed)
        find_gate(r, p);
    if (!r->failed && key_exists(r, "expert_group_count"))
        read_groups(r, router, p->arch->router_keys);
    else if (!r->failed)
        find_groups(p);
}

static void read_logits(struct key_reader *r, struct model_params *p)
{
    static const char cap[] = "final_logit_softcapping";
    p->logit_cap = key_f32_or(r, cap, 0, 0, 1e6f);
    if (p->logit_cap > 0 && !p->arch->logit_cap)
        params_refuse_value(r, cap, (double)p->logit_cap, "a feature");
    p->logit_scale = p->arch->logit_scale ? key_f32_or(r, "logit_scale", 1.0f, 1e-6f, 1e6f) : 1.0f;
}

/* Files may have both keys, as the published configurations do: the original then takes RMS norms.
 */
static void read_norm(struct key_reader *r, struct model_params *p)
{
    static const char rms[] = "attention.layer_norm_rms_epsilon",
                      layer[] = "attention.layer_norm_epsilon";
    bool is_layer = key_exists(r, layer) && !key_exists(r, rms);
    p->norm = p->arch->norm_by_key && is_layer ? NORM_LAYER : p->arch->norm;
    p->norm_eps = key_f32_or(r, is_layer ? layer : rms, 1e-6f, 0.0f, 1.0f);
}

/* Limits of silu(gate) and up: a list by layer, or one number for all layers. */
struct limits {
    struct params_list list;
    float all;
};

static struct limits find_limits(struct key_reader *r, const char *suffix, uint32_t n_layers)
{
    char key[KEY_BYTES];
    struct limits l = {.list = params_find_list(r, suffix, n_layers)};
    key_name(r, suffix, key);
    const struct gguf_kv *kv = gguf_find(r->g, key);
    if (kv && kv->type != GGUF_ARRAY)
        l.all = key_f32_or(r, suffix, 0, -INFINITY, INFINITY);
    else if (kv && !l.list.kv && !r->failed)
        r->failed = error_set(r->e, ERROR_FORMAT,
                              "%s: key '%s': expected a number, or a list of numbers, one for each "
                              "of the %" PRIu32 " layers",
                              gguf_path(r->g, 0), key, n_layers);
    return l;
}

static float limit_of(struct key_reader *r, const struct model_params *p, const char *suffix,
                      struct limits l, uint32_t layer)
{
    float limit = l.list.kv ? params_list_f32(l.list, layer) : l.all;
    if (limit != 0 && !p->arch->activation_limits)
        params_refuse_value(r, suffix, (double)limit, "a limit of activations");
    else if (!r->failed && !(limit >= 0 && limit < 1e30f))
        r->failed =
            error_set(r->e, ERROR_FORMAT, "%s: key '%s.%s': no limit of layer %" PRIu32 ": %g",
                      gguf_path(r->g, 0), r->arch, suffix, layer, (double)limit);
    return limit;
}

static void read_limits(struct key_reader *r, struct model_params *p)
{
    static const char routed[] = "swiglu_clamp_exp", other[] = "swiglu_clamp_shexp";
    struct limits experts = find_limits(r, routed, p->n_layers);
    struct limits shared = find_limits(r, other, p->n_layers);
    for (uint32_t i = 0; i < p->n_layers && !r->failed; i++) {
        p->layers[i].expert_limit = limit_of(r, p, routed, experts, i);
        p->layers[i].shared_limit = limit_of(r, p, other, shared, i);
    }
}

static void read_leading_dense(struct key_reader *r, struct model_params *p)
{
    char key[KEY_BYTES];
    key_name(r, "leading_dense_block_count", key);
    if (r->failed || !(p->arch->leading_dense || p->arch->dense_by_tensors))
        return;
    if (p->arch->dense_by_tensors)
        p->n_dense = count_without_router(r->g, p->n_layers);
    else
        r->failed = gguf_get_u32_or(r->g, key, 0, &p->n_dense, r->e);
    if (!r->failed && p->n_dense >= p->n_layers)
        r->failed = error_set(r->e, ERROR_FORMAT,
                              "%s: key '%s' is %" PRIu32 ": expected less than the %" PRIu32
                              " layers there are",
                              gguf_path(r->g, 0), key, p->n_dense, p->n_layers);
    if (p->n_dense)
        p->d_dense = key_u32(r, "feed_forward_length", PARAMS_MAX_WIDTH);
    for (uint32_t i = 0; i < p->n_dense && !r->failed; i++)
        p->layers[i].feed_forward = FEED_FORWARD_DENSE;
}

/* A file without the trunk, for runtimes that draft with these layers. trunk: the keys count other
 * layers, too. */
static bool is_draft(const struct gguf *g, bool trunk)
{
    if (trunk && gguf_tensor_find(g, "blk.0.attn_norm.weight"))
        return false;
    for (uint64_t i = 0; i < gguf_tensor_count(g); i++)
        if (strstr(gguf_tensor_at(g, i)->name, ".nextn."))
            return true;
    return false;
}

/* block_count includes the layers after the trunk that predict further tokens (DeepSeek-V3). moed
 * does not run them. */
static void read_layers(struct key_reader *r, struct model_params *p)
{
    uint32_t further = 0;
    char key[KEY_BYTES];
    p->n_layers = key_u32(r, "block_count", PARAMS_MAX_LAYERS);
    key_name(r, "nextn_predict_layers", key);
    if (!r->failed)
        r->failed = gguf_get_u32_or(r->g, key, 0, &further, r->e);
    if (!r->failed && further > 0 && is_draft(r->g, further < p->n_layers))
        r->failed = error_set(r->e, ERROR_UNSUPPORTED,
                              "%s: it has only the layers of a model that predict further tokens "
                              "(MTP): give the GGUF file of the model itself",
                              gguf_path(r->g, 0));
    if (!r->failed && further >= p->n_layers)
        r->failed = error_set(r->e, ERROR_FORMAT,
                              "%s: key '%s' is %" PRIu32 ": expected less than the %" PRIu32
                              " layers there are",
                              gguf_path(r->g, 0), key, further, p->n_layers);
    else
        p->n_layers -= further;
    p->n_further = further;
    p->n_blocks = p->n_layers;
    params_read_blocks(r, p);
}

/* The embedding gives the vocabulary's size: files pad it beyond their token list. */
static void read_vocab(struct key_reader *r, struct model_params *p)
{
    const struct gguf_tensor *t = gguf_tensor_find(r->g, "token_embd.weight");
    if (r->failed)
        return;
    if (!t)
        r->failed = error_set(r->e, ERROR_NOT_FOUND, "%s: tensor 'token_embd.weight' is missing",
                              gguf_path(r->g, 0));
    else if (t->ne[1] == 0 || t->ne[1] > PARAMS_MAX_VOCAB)
        r->failed = error_set(r->e, ERROR_FORMAT,
                              "%s: tensor 'token_embd.weight' has %" PRIu64
                              " rows: expected 1 to %d tokens",
                              gguf_path(r->g, 0), t->ne[1], PARAMS_MAX_VOCAB);
    else
        p->vocab = (uint32_t)t->ne[1];
}

enum error_code model_params_read(const struct gguf *g, struct model_params *out, struct error *e)
{
    struct model_params p = {0};
    enum error_code code = read_architecture(g, &p, e);
    if (code)
        return code;
    struct key_reader r = {.g = g, .arch = p.arch->name, .e = e};
    read_name(g, &p);
    read_layers(&r, &p);
    p.d_model = key_u32(&r, "embedding_length", PARAMS_MAX_WIDTH);
    p.context_trained = key_u32(&r, "context_length", PARAMS_MAX_CONTEXT);
    params_read_attention(&r, &p);
    params_number_blocks(&r, &p);
    read_experts(&r, &p);
    read_router(&r, &p);
    params_read_value_scale(&r, &p);
    params_read_rope(&r, &p);
    read_norm(&r, &p);
    read_leading_dense(&r, &p);
    params_choose_rotated(&r, &p);
    read_limits(&r, &p);
    params_refuse_features(&r, &p);
    read_logits(&r, &p);
    read_vocab(&r, &p);
    if (r.failed)
        return r.failed;
    *out = p;
    return ERROR_OK;
}
