/* Reads hyper-parameters; see params.h. */
#include "model/params.h"
#include "model/key_reader.h"
#include "model/params_limits.h"
#include "model/router.h"
#include "kernels/kernels.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static enum error_code read_architecture(const struct gguf *g, struct model_params *p,
                                         struct error *e)
{
    struct gguf_string name;
    enum error_code code = gguf_get_string(g, "general.architecture", &name, e);
    if (code)
        return code;
    if (name.len == 4 && memcmp(name.data, "clip", 4) == 0)
        return error_set(e, ERROR_UNSUPPORTED,
                         "%s: an mmproj file, the image or audio part of a model: give the GGUF "
                         "file of the model's text part instead",
                         gguf_path(g, 0));
    p->arch = architecture_find(name.data, name.len);
    if (!p->arch)
        return error_set(e, ERROR_UNSUPPORTED,
                         "%s: architecture '%.*s' is not supported; moed runs %s", gguf_path(g, 0),
                         (int)(name.len < 40 ? name.len : 40), name.data, architecture_names());
    return ERROR_OK;
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

static const char kv_heads_suffix[] = "attention.head_count_kv";

/* A list by layer of 32-bit integers, for each layer one; NULL: the file has no such list. */
static const struct gguf_kv *find_list(const struct key_reader *r, const char *suffix,
                                       uint32_t n_layers)
{
    char key[KEY_BYTES];
    key_name(r, suffix, key);
    const struct gguf_kv *list = gguf_find(r->g, key);
    bool is_list = list && list->type == GGUF_ARRAY && list->count >= n_layers &&
                   (list->element_type == GGUF_I32 || list->element_type == GGUF_U32);
    return is_list ? list : NULL;
}

static uint32_t list_u32(const struct gguf_kv *list, uint32_t layer)
{
    uint32_t value;
    memcpy(&value, list->data + layer * sizeof value, sizeof value);
    return value;
}

/* The number of key-value heads of the first layer that has a window, or has none. */
static uint32_t list_kv_heads(const struct key_reader *r, const struct model_params *p,
                              bool windowed, uint32_t absent)
{
    const struct gguf_kv *list = find_list(r, kv_heads_suffix, p->n_layers);
    for (uint32_t i = 0; list && i < p->n_layers; i++)
        if ((p->layers[i].window > 0) == windowed)
            return list_u32(list, i);
    return absent;
}

/* A list by layer: 0 for the layers that are short convolutions, the same number for the others. */
static uint32_t read_kv_heads_list(struct key_reader *r, const struct model_params *p)
{
    const struct gguf_kv *list = find_list(r, kv_heads_suffix, p->n_layers);
    uint32_t heads = 0, differ = 0;
    for (uint32_t i = 0; i < p->n_layers && list; i++) {
        uint32_t n = list_u32(list, i);
        heads = heads ? heads : n;
        differ += n && n != heads;
    }
    if (!r->failed && (differ || !heads))
        r->failed = error_set(r->e, ERROR_FORMAT,
                              "%s: key '%s.%s': expected a list by layer of 0 and one other number "
                              "of heads",
                              gguf_path(r->g, 0), r->arch, kv_heads_suffix);
    return key_check(r, kv_heads_suffix, heads ? heads : 1, MAX_HEADS);
}

static uint32_t read_kv_heads(struct key_reader *r, const struct model_params *p, uint32_t n_heads)
{
    if (p->arch->short_convolutions)
        return read_kv_heads_list(r, p);
    if (p->arch->windowed_heads && find_list(r, kv_heads_suffix, p->n_layers))
        return n_heads; /* read_windowed_heads */
    return key_u32_or(r, kv_heads_suffix, n_heads, MAX_HEADS);
}

/* One KV head for each group of query heads. */
static void read_grouped_attention(struct key_reader *r, struct model_params *p,
                                   struct layer_params *l)
{
    l->n_kv_heads = read_kv_heads(r, p, l->n_heads);
    if (r->failed)
        return;
    uint32_t head_dim = p->d_model / l->n_heads;
    l->q_dim = l->k_dim = key_u32_or(r, "attention.key_length", head_dim, MAX_HEAD_DIM);
    l->o_dim = l->v_dim = key_u32_or(r, "attention.value_length", head_dim, MAX_HEAD_DIM);
    p->rope.dims = key_u32_or(r, "rope.dimension_count", l->k_dim, MAX_HEAD_DIM);
}

/* Files whose kv_b is split have keys for a head's own sizes; key_length is then the cached row's.
 */
static void read_latent_attention(struct key_reader *r, struct model_params *p,
                                  struct layer_params *l)
{
    bool split = key_exists(r, "attention.key_length_mla");
    l->n_kv_heads = 1;
    p->kv_rank = key_u32(r, "attention.kv_lora_rank", MAX_WIDTH);
    if (key_exists(r, "attention.q_lora_rank"))
        p->q_rank = key_u32(r, "attention.q_lora_rank", MAX_WIDTH);
    l->q_dim =
        key_u32(r, split ? "attention.key_length_mla" : "attention.key_length", MAX_HEAD_DIM);
    l->o_dim =
        key_u32(r, split ? "attention.value_length_mla" : "attention.value_length", MAX_HEAD_DIM);
    p->rope.dims = key_u32(r, "rope.dimension_count", MAX_HEAD_DIM);
    l->k_dim = p->kv_rank + p->rope.dims;
    l->v_dim = p->kv_rank;
    if (!r->failed && p->rope.dims >= l->q_dim)
        r->failed = error_set(r->e, ERROR_FORMAT,
                              "%s: key '%s.rope.dimension_count' is %" PRIu32
                              ": expected less than the head's %" PRIu32,
                              gguf_path(r->g, 0), r->arch, p->rope.dims, l->q_dim);
}

static void refuse_value(struct key_reader *r, const char *suffix, double value, const char *what)
{
    if (!r->failed)
        r->failed = error_set(r->e, ERROR_UNSUPPORTED,
                              "%s: key '%s.%s' is %.10g, %s, which moed does not compute for "
                              "architecture %s",
                              gguf_path(r->g, 0), r->arch, suffix, value, what, r->arch);
}

/* Which layers have a window: a list by layer in the file, or all but the last in each run of so
 * many layers, by the file's number or the architecture's row. */
static void read_window_pattern(struct key_reader *r, struct model_params *p, uint32_t window)
{
    static const char suffix[] = "attention.sliding_window_pattern";
    char key[KEY_BYTES];
    key_name(r, suffix, key);
    const struct gguf_kv *list = gguf_find(r->g, key);
    if (list && (list->type != GGUF_ARRAY || list->element_type != GGUF_BOOL))
        list = NULL;
    uint32_t period = list ? 1 : key_u32_or(r, suffix, p->arch->window_period, PARAMS_MAX_LAYERS);
    if (!r->failed && list && list->count < p->n_layers)
        r->failed = error_set(r->e, ERROR_FORMAT,
                              "%s: key '%s' has %" PRIu64 " values for %" PRIu32 " layers",
                              gguf_path(r->g, 0), key, list->count, p->n_layers);
    for (uint32_t i = 0; i < p->n_layers && !r->failed; i++) {
        bool windowed = list ? list->data[i] != 0 : i % period < period - 1;
        p->layers[i].window = windowed ? window : 0;
        p->layers[i].unrotated = p->arch->rope_windowed_only && !windowed;
    }
}

/* A window as long as the context has no effect: the model has no window. */
static void read_window(struct key_reader *r, struct model_params *p)
{
    static const char suffix[] = "attention.sliding_window";
    uint32_t window = 0;
    char key[KEY_BYTES];
    key_name(r, suffix, key);
    if (p->arch->window_period) {
        read_window_pattern(r, p, key_u32(r, suffix, MAX_CONTEXT));
        return;
    }
    r->failed = gguf_get_u32_or(r->g, key, 0, &window, r->e);
    if (window > 0 && window < p->context_trained)
        refuse_value(r, suffix, window, "less than the context: a window");
}

/* Which layers are linear attention: a list by layer in the file, or all but the last in each run
 * of full_attention_interval. */
static void read_delta_layers(struct key_reader *r, struct model_params *p)
{
    static const char suffix[] = "attention.recurrent_layers";
    char key[KEY_BYTES];
    key_name(r, suffix, key);
    const struct gguf_kv *list = gguf_find(r->g, key);
    uint32_t interval = key_u32_or(r, "full_attention_interval", 4, PARAMS_MAX_LAYERS);
    if (!r->failed && list &&
        (list->type != GGUF_ARRAY || list->element_type != GGUF_BOOL || list->count < p->n_layers))
        r->failed = error_set(r->e, ERROR_FORMAT,
                              "%s: key '%s': expected a list of booleans, one for each of the "
                              "%" PRIu32 " layers",
                              gguf_path(r->g, 0), key, p->n_layers);
    for (uint32_t i = 0; i < p->n_layers && !r->failed; i++)
        if (list ? list->data[i] != 0 : (i + 1) % interval != 0)
            p->layers[i] = (struct layer_params){.kind = LAYER_DELTA_NET};
}

/* The keys are named as a state space model's. */
static void read_delta(struct key_reader *r, struct model_params *p)
{
    struct delta_params *d = &p->delta;
    if (r->failed || !p->arch->delta_layers)
        return;
    d->taps = key_u32(r, "ssm.conv_kernel", MAX_TAPS);
    d->k_dim = key_u32(r, "ssm.state_size", DELTA_KEY_MOST);
    d->k_heads = key_u32(r, "ssm.group_count", MAX_HEADS);
    d->v_heads = key_u32(r, "ssm.time_step_rank", MAX_HEADS);
    uint32_t inner = key_u32(r, "ssm.inner_size", MAX_WIDTH);
    if (!r->failed && (inner % d->v_heads || d->v_heads % d->k_heads || d->taps < 2 ||
                       inner / d->v_heads > MAX_HEAD_DIM))
        r->failed = error_set(r->e, ERROR_FORMAT,
                              "%s: %" PRIu32 " key heads, %" PRIu32 " value heads, an inner size "
                              "of %" PRIu32 " and %" PRIu32 " taps make no linear attention "
                              "(keys '%s.ssm.*')",
                              gguf_path(r->g, 0), d->k_heads, d->v_heads, inner, d->taps, r->arch);
    if (r->failed)
        return;
    d->v_dim = inner / d->v_heads;
    read_delta_layers(r, p);
}

static void read_short_convolutions(struct key_reader *r, struct model_params *p)
{
    static const char suffix[] = "shortconv.l_cache";
    if (r->failed || !p->arch->short_convolutions)
        return;
    const struct gguf_kv *list = find_list(r, kv_heads_suffix, p->n_layers);
    uint32_t taps = key_u32(r, suffix, MAX_TAPS);
    p->delta.taps = key_check(r, suffix, taps < 2 ? 0 : taps, MAX_TAPS);
    for (uint32_t i = 0; i < p->n_layers && list; i++)
        if (list_u32(list, i) == 0)
            p->layers[i] = (struct layer_params){.kind = LAYER_SHORT_CONVOLUTION};
}

static void check_attention(struct key_reader *r, const struct model_params *p)
{
    if (!r->failed && params_count_kind(p, LAYER_ATTENTION) == 0)
        r->failed = error_set(r->e, ERROR_UNSUPPORTED,
                              "%s: no layer has attention: moed does not run such a model",
                              gguf_path(r->g, 0));
}

static void check_heads(struct key_reader *r, const struct layer_params *l)
{
    if (!r->failed && l->n_heads % l->n_kv_heads)
        r->failed = error_set(r->e, ERROR_FORMAT,
                              "%s: %" PRIu32 " attention heads cannot share %" PRIu32
                              " key-value heads evenly ('%s.attention.head_count_kv')",
                              gguf_path(r->g, 0), l->n_heads, l->n_kv_heads, r->arch);
}

static void check_rope_dims(struct key_reader *r, const char *suffix, uint32_t dims, uint32_t head)
{
    if (!r->failed && (dims > head || dims % 2))
        r->failed = error_set(r->e, ERROR_FORMAT,
                              "%s: key '%s.%s' is %" PRIu32
                              ": expected an even number up to the head's %" PRIu32,
                              gguf_path(r->g, 0), r->arch, suffix, dims, head);
}

/* The list by layer of key-value heads, where the file has one: one number for the layers with a
 * window, one for the others. */
static void check_kv_heads_list(struct key_reader *r, const struct model_params *p)
{
    const struct gguf_kv *list = find_list(r, kv_heads_suffix, p->n_layers);
    for (uint32_t i = 0; list && i < p->n_layers && !r->failed; i++)
        if (list_u32(list, i) != p->layers[i].n_kv_heads)
            r->failed = error_set(r->e, ERROR_FORMAT,
                                  "%s: key '%s.%s': layer %" PRIu32 " has %" PRIu32
                                  " key-value heads, other layers like it %" PRIu32,
                                  gguf_path(r->g, 0), r->arch, kv_heads_suffix, i,
                                  list_u32(list, i), p->layers[i].n_kv_heads);
}

/* Heads and rotation of the layers with a window. l: of the other layers. */
static void read_windowed_heads(struct key_reader *r, struct model_params *p,
                                const struct layer_params *l)
{
    static const char rope_suffix[] = "rope.dimension_count_swa";
    struct layer_params whole = *l, windowed = *l;
    windowed.k_dim = windowed.q_dim =
        key_u32_or(r, "attention.key_length_swa", l->k_dim, MAX_HEAD_DIM);
    windowed.v_dim = windowed.o_dim =
        key_u32_or(r, "attention.value_length_swa", l->v_dim, MAX_HEAD_DIM);
    whole.n_kv_heads =
        key_check(r, kv_heads_suffix, list_kv_heads(r, p, false, l->n_kv_heads), MAX_HEADS);
    windowed.n_kv_heads =
        key_check(r, kv_heads_suffix, list_kv_heads(r, p, true, l->n_kv_heads), MAX_HEADS);
    check_heads(r, &whole);
    check_heads(r, &windowed);
    p->windowed_rope.dims = key_u32_or(r, rope_suffix, windowed.k_dim, MAX_HEAD_DIM);
    check_rope_dims(r, rope_suffix, p->windowed_rope.dims, windowed.q_dim);
    for (uint32_t i = 0; i < p->n_layers && !r->failed; i++) {
        uint32_t window = p->layers[i].window;
        p->layers[i] = window ? windowed : whole;
        p->layers[i].window = window;
    }
    check_kv_heads_list(r, p);
}

static void read_attention(struct key_reader *r, struct model_params *p)
{
    struct layer_params l = {.n_heads = key_u32(r, "attention.head_count", MAX_HEADS)};
    if (r->failed)
        return;
    if (p->arch->attention == ATTENTION_LATENT)
        read_latent_attention(r, p, &l);
    else
        read_grouped_attention(r, p, &l);
    check_heads(r, &l);
    check_rope_dims(r, "rope.dimension_count", p->rope.dims, l.q_dim);
    if (r->failed)
        return;
    for (uint32_t i = 0; i < p->n_layers; i++)
        p->layers[i] = l;
    p->attention_scale = p->arch->unscaled_attention ? 1.0f : 1.0f / sqrtf((float)l.q_dim);
    if (p->arch->indexer)
        p->context_most = key_u32(r, "attention.indexer.top_k", MAX_CONTEXT);
    read_window(r, p);
    if (!r->failed && p->arch->windowed_heads)
        read_windowed_heads(r, p, &l);
}

/* Files without the length mean the original context. */
static void read_temperature(struct key_reader *r, struct model_params *p)
{
    static const char suffix[] = "attention.temperature_scale";
    p->temperature_scale = key_f32_or(r, suffix, 0, 0, 100);
    if (p->temperature_scale == 0)
        return;
    if (p->arch->attention != ATTENTION_LATENT)
        refuse_value(r, suffix, (double)p->temperature_scale,
                     "queries that grow with the position");
    p->temperature_length =
        key_u32_or(r, "attention.temperature_length", p->rope.original_context, MAX_CONTEXT);
}

static const char *linear_factor_key(const struct key_reader *r)
{
    static const char early[] = "rope.scale_linear"; /* files of 2023 */
    return key_exists(r, early) ? early : "rope.scaling.factor";
}

static enum rope_scaling scaling_of_name(struct key_reader *r)
{
    static const char *const names[] = {[ROPE_SCALING_NONE] = "none",
                                        [ROPE_SCALING_LINEAR] = "linear",
                                        [ROPE_SCALING_YARN] = "yarn",
                                        [ROPE_SCALING_LONG] = "longrope"};
    struct gguf_string type = {"none", 4};
    char key[KEY_BYTES];
    if (key_exists(r, linear_factor_key(r)))
        type = (struct gguf_string){"linear", 6}; /* the default */
    key_name(r, "rope.scaling.type", key);
    if (gguf_find(r->g, key) && (r->failed = gguf_get_string(r->g, key, &type, r->e)))
        return ROPE_SCALING_NONE;
    for (int i = 0; i < 4; i++)
        if (type.len == strlen(names[i]) && memcmp(type.data, names[i], type.len) == 0)
            return (enum rope_scaling)i;
    r->failed = error_set(r->e, ERROR_UNSUPPORTED,
                          "%s: rope scaling '%.*s' (key '%s') is not supported; moed runs none, "
                          "linear, yarn, longrope",
                          gguf_path(r->g, 0), (int)(type.len < 20 ? type.len : 20), type.data, key);
    return ROPE_SCALING_NONE;
}

/* The cosines grow with the logarithm of the factor, unless the model scales its attention instead.
 * yarn_log_multiplier marks such a model: a tenth of the original's mscale_all_dim. In all of these
 * models mscale equals mscale_all_dim, and the two cancel. */
static void read_yarn(struct key_reader *r, struct model_params *p)
{
    p->rope.factor = key_f32_or(r, "rope.scaling.factor", 1.0f, 1.0f, 1e6f);
    p->rope.beta_fast = key_f32_or(r, "rope.scaling.yarn_beta_fast", 32.0f, 1e-3f, 1e6f);
    p->rope.beta_slow = key_f32_or(r, "rope.scaling.yarn_beta_slow", 1.0f, 1e-3f, 1e6f);
    float log_multiplier = key_f32_or(r, "rope.scaling.yarn_log_multiplier", 0.0f, -10.0f, 10.0f);
    float log_factor = logf(p->rope.factor);
    p->rope.magnitude = log_multiplier != 0 ? 1.0f : 1.0f + 0.1f * log_factor;
    float scale = 1.0f + log_multiplier * log_factor;
    p->attention_scale *= scale * scale;
}

/* The rotation of layers with a window is never scaled. */
static void read_windowed_rope(struct key_reader *r, struct model_params *p)
{
    p->windowed_rope.base = key_f32_or(r, "rope.freq_base_swa", 10000.0f, 1.001f, 1e12f);
    p->windowed_rope.factor = p->windowed_rope.magnitude = 1.0f;
}

static void read_rope(struct key_reader *r, struct model_params *p)
{
    if (p->arch->windowed_heads)
        read_windowed_rope(r, p);
    /* yarn divides by its logarithm */
    p->rope.base = key_f32_or(r, "rope.freq_base", 10000.0f, 1.001f, 1e12f);
    p->rope.factor = p->rope.magnitude = 1.0f;
    if (r->failed)
        return;
    p->rope.scaling = scaling_of_name(r);
    if (gguf_tensor_find(r->g, "rope_factors_long.weight")) /* such files may lack the key */
        p->rope.scaling = ROPE_SCALING_LONG;
    p->rope.original_context =
        key_u32_or(r, "rope.scaling.original_context_length", p->context_trained, MAX_CONTEXT);
    if (p->rope.scaling == ROPE_SCALING_LINEAR)
        p->rope.factor = key_f32_or(r, linear_factor_key(r), 1.0f, 1e-3f, 1e6f);
    else if (p->rope.scaling == ROPE_SCALING_YARN)
        read_yarn(r, p);
    else if (p->rope.scaling == ROPE_SCALING_LONG)
        p->rope.magnitude = p->arch->rope_magnitude > 0
                                ? p->arch->rope_magnitude
                                : key_f32_or(r, "rope.scaling.attn_factor", 1.0f, 1e-3f, 1e3f);
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
        p->d_expert = key_u32(r, width, MAX_WIDTH);
    else /* older qwen2moe files give the width of all activated experts together */
        p->d_expert =
            key_check(r, "feed_forward_length",
                      key_u32(r, "feed_forward_length", MAX_WIDTH) / router->n_used, MAX_WIDTH);
    if (p->arch->shared_expert_normed)
        p->d_shared = key_u32(r, "feed_forward_length", MAX_WIDTH);
    else if (p->arch->shared_count_key) {
        p->d_shared = read_shared_count(r, p->arch->shared_count_key) * p->d_expert;
        if (p->d_shared)
            key_check(r, p->arch->shared_count_key, p->d_shared, MAX_WIDTH);
    } else if (p->arch->shared_expert)
        p->d_shared = key_u32_or(r, "expert_shared_feed_forward_length",
                                 p->d_expert * router->n_used, MAX_WIDTH);
    router->scale = key_f32_or(r, "expert_weights_scale", 1.0f, 0.0f, 1e6f);
    if (router->scale == 0.0f) /* the converters' way to say none */
        router->scale = 1.0f;
}

static void read_groups(struct key_reader *r, struct router_params *router, bool allowed)
{
    router->n_groups = key_u32(r, "expert_group_count", ROUTER_MAX_GROUPS);
    if (router->n_groups > 1 && !allowed)
        refuse_value(r, "expert_group_count", router->n_groups, "groups of experts");
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
    router->renormalise = key_bool_or(r, "expert_weights_norm", p->arch->renormalise);
    if (!p->arch->router_keys && router->renormalise != p->arch->renormalise)
        refuse_value(r, "expert_weights_norm", router->renormalise, "another normalisation");
    if (!r->failed && key_exists(r, "expert_gating_func")) {
        uint32_t id = key_u32(r, "expert_gating_func", UINT32_MAX), i = 0;
        while (i < 3 && gates[i].id != id)
            i++;
        if (i < 3 && (p->arch->router_keys || gates[i].kind == p->arch->router))
            router->kind = gates[i].kind;
        else
            refuse_value(r, "expert_gating_func", id, "another gate");
    }
    if (!r->failed && key_exists(r, "expert_group_count"))
        read_groups(r, router, p->arch->router_keys);
}

/* Refuses features of other architectures. A key at 0 or at its neutral value asks for nothing. */
static void refuse_features(struct key_reader *r, const struct model_params *p)
{
    static const struct {
        const char *suffix;
        float neutral;
        bool longrope; /* longrope models may have it */
    } features[] = {
        {"attention.clamp_kqv", 0, false},
        {"attention.max_alibi_bias", 0, false},
        {"attention.scale", 0, false},
        {"attn_logit_softcapping", 0, false},
        {"logit_scale", 1, false},
        {"embedding_scale", 1, false},
        {"residual_scale", 1, false},
        {"expert_group_scale", 1, false},
        {"rope.scaling.attn_factor", 1, true},
    };
    for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
        if (features[i].longrope && p->rope.scaling == ROPE_SCALING_LONG)
            continue;
        float value = key_f32_or(r, features[i].suffix, 0, -INFINITY, INFINITY);
        if (value != 0 && value != features[i].neutral)
            refuse_value(r, features[i].suffix, (double)value, "a feature");
    }
}

/* Of Gemma 4's dense models: keys and values that layers share, embeddings by layer. */
static void refuse_dense_gemma(struct key_reader *r)
{
    static const char *const suffixes[] = {"attention.shared_kv_layers",
                                           "embedding_length_per_layer_input"};
    for (int i = 0; i < 2 && !r->failed; i++) {
        char key[KEY_BYTES];
        uint32_t value;
        key_name(r, suffixes[i], key);
        r->failed = gguf_get_u32_or(r->g, key, 0, &value, r->e);
        if (!r->failed && value)
            refuse_value(r, suffixes[i], value, "a feature");
    }
}

static void read_logit_cap(struct key_reader *r, struct model_params *p)
{
    static const char suffix[] = "final_logit_softcapping";
    p->logit_cap = key_f32_or(r, suffix, 0, 0, 1e6f);
    if (p->logit_cap > 0 && !p->arch->logit_cap)
        refuse_value(r, suffix, (double)p->logit_cap, "a feature");
}

/* ERNIE's files: every so many layers after the dense ones have experts. All published models have
 * 1. */
static void check_layer_step(struct key_reader *r)
{
    static const char suffix[] = "interleave_moe_layer_step";
    uint32_t step = key_u32_or(r, suffix, 1, PARAMS_MAX_LAYERS);
    if (step > 1)
        refuse_value(r, suffix, step, "dense layers between those with experts");
}

static void read_leading_dense(struct key_reader *r, struct model_params *p)
{
    char key[KEY_BYTES];
    key_name(r, "leading_dense_block_count", key);
    if (r->failed || !p->arch->leading_dense)
        return;
    r->failed = gguf_get_u32_or(r->g, key, 0, &p->n_dense, r->e);
    if (!r->failed && p->n_dense >= p->n_layers)
        r->failed = error_set(r->e, ERROR_FORMAT,
                              "%s: key '%s' is %" PRIu32 ": expected less than the %" PRIu32
                              " layers there are",
                              gguf_path(r->g, 0), key, p->n_dense, p->n_layers);
    if (p->n_dense)
        p->d_dense = key_u32(r, "feed_forward_length", MAX_WIDTH);
    for (uint32_t i = 0; i < p->n_dense && !r->failed; i++)
        p->layers[i].feed_forward = FEED_FORWARD_DENSE;
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
    if (!r->failed && further >= p->n_layers)
        r->failed = error_set(r->e, ERROR_FORMAT,
                              "%s: key '%s' is %" PRIu32 ": expected less than the %" PRIu32
                              " layers there are",
                              gguf_path(r->g, 0), key, further, p->n_layers);
    else
        p->n_layers -= further;
    p->n_further = further;
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
    else if (t->ne[1] == 0 || t->ne[1] > MAX_VOCAB)
        r->failed = error_set(r->e, ERROR_FORMAT,
                              "%s: tensor 'token_embd.weight' has %" PRIu64
                              " rows: expected 1 to %d tokens",
                              gguf_path(r->g, 0), t->ne[1], MAX_VOCAB);
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
    p.d_model = key_u32(&r, "embedding_length", MAX_WIDTH);
    p.context_trained = key_u32(&r, "context_length", MAX_CONTEXT);
    read_attention(&r, &p);
    read_delta(&r, &p);
    read_short_convolutions(&r, &p);
    check_attention(&r, &p);
    read_rope(&r, &p);
    read_temperature(&r, &p);
    p.norm_eps = key_f32_or(&r,
                            key_exists(&r, "attention.layer_norm_epsilon")
                                ? "attention.layer_norm_epsilon"
                                : "attention.layer_norm_rms_epsilon",
                            1e-6f, 0.0f, 1.0f);
    read_experts(&r, &p);
    read_router(&r, &p);
    read_leading_dense(&r, &p);
    check_layer_step(&r);
    refuse_features(&r, &p);
    refuse_dense_gemma(&r);
    read_logit_cap(&r, &p);
    read_vocab(&r, &p);
    if (r.failed)
        return r.failed;
    *out = p;
    return ERROR_OK;
}

enum error_code params_check_context(const struct model_params *p, uint64_t context,
                                     struct error *e)
{
    if (!p->context_most || context <= p->context_most)
        return ERROR_OK;
    return error_set(e, ERROR_UNSUPPORTED,
                     "--ctx %" PRIu64 ": moed computes this model up to %" PRIu32
                     " tokens, because it does not run the indexer that chooses among more: give "
                     "--ctx %" PRIu32 " or less",
                     context, p->context_most, p->context_most);
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

struct params_most params_most(const struct model_params *p)
{
    struct params_most most = {0};
    for (const struct layer_params *l = p->layers; l < p->layers + p->n_layers; l++) {
        most.heads = larger(most.heads, l->n_heads);
        most.k_dim = larger(most.k_dim, l->k_dim);
        most.v_dim = larger(most.v_dim, l->v_dim);
        most.q = larger(most.q, l->n_heads * l->q_dim);
        most.k = larger(most.k, l->n_kv_heads * l->k_dim);
        most.v = larger(most.v, l->n_kv_heads * l->v_dim);
        most.attended = larger(most.attended, l->n_heads * l->o_dim);
    }
    return most;
}

uint32_t params_count_kind(const struct model_params *p, enum layer_kind kind)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_layers; i++)
        n += p->layers[i].kind == kind;
    return n;
}

const struct layer_params *params_attention(const struct model_params *p)
{
    const struct layer_params *l = p->layers, *last = p->layers + p->n_layers - 1;
    while (l < last && l->kind != LAYER_ATTENTION)
        l++;
    return l;
}

const struct layer_params *params_uneven(const struct model_params *p)
{
    for (uint32_t i = 0; i < p->n_layers && !p->kv_rank; i++)
        if (p->layers[i].k_dim != p->layers[i].v_dim)
            return &p->layers[i];
    return NULL;
}

struct params_windows params_windows(const struct model_params *p)
{
    struct params_windows w = {0};
    for (uint32_t i = 0; i < p->n_layers; i++) {
        w.layers += p->layers[i].window > 0;
        w.largest = p->layers[i].window > w.largest ? p->layers[i].window : w.largest;
    }
    return w;
}

const struct rope_params *params_rope(const struct model_params *p, uint32_t layer)
{
    return p->windowed_rope.dims && p->layers[layer].window ? &p->windowed_rope : &p->rope;
}

uint32_t params_angles(const struct model_params *p)
{
    return p->rope.dims + p->windowed_rope.dims;
}

const char *params_host_dense(const struct model_params *p)
{
    if (params_recurrent_layers(p))
        return "recurrent layers";
    return p->windowed_rope.dims ? "layers with other heads and another rotation" : NULL;
}

uint32_t params_recurrent_layers(const struct model_params *p)
{
    return p->n_layers - params_count_kind(p, LAYER_ATTENTION);
}

uint32_t params_convolved(const struct model_params *p)
{
    const struct delta_params *d = &p->delta;
    return d->v_heads ? 2 * d->k_heads * d->k_dim + d->v_heads * d->v_dim : p->d_model;
}

uint64_t params_layer_state_floats(const struct model_params *p)
{
    const struct delta_params *d = &p->delta;
    if (d->taps == 0)
        return 0;
    return (uint64_t)(d->taps - 1) * params_convolved(p) +
           (uint64_t)d->v_heads * delta_state_floats(d->k_dim, d->v_dim);
}

uint64_t params_state_bytes(const struct model_params *p)
{
    return params_recurrent_layers(p) * params_layer_state_floats(p) * sizeof(float);
}

float params_query_scale(const struct model_params *p, uint32_t position)
{
    if (p->temperature_scale == 0)
        return 1;
    return (float)(1 + (double)p->temperature_scale * log1p(position / p->temperature_length));
}

uint32_t params_cache_rows(const struct model_params *p)
{
    return p->kv_rank ? 1 : 2; /* arch is NULL in shared memory */
}

uint32_t params_widest_input(const struct model_params *p)
{
    uint32_t widths[] = {
        p->d_model, params_most(p).attended,          p->q_rank, p->d_shared, p->d_expert,
        p->d_dense, p->delta.v_heads * p->delta.v_dim};
    uint32_t most = 0;
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        most = larger(most, widths[i]);
    return most;
}

uint32_t params_head_input(const struct model_params *p)
{
    return larger(params_attention(p)->q_dim - p->rope.dims, p->kv_rank);
}
