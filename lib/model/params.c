/* Reading hyper-parameters; see params.h. */
#include "model/params.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* No model comes near these; a file beyond them is broken or hostile. */
enum {
    MAX_LAYERS = 1024,
    MAX_WIDTH = 1 << 18,
    MAX_HEADS = 1024,
    MAX_HEAD_DIM = 4096,
    MAX_EXPERTS = 4096,
    MAX_VOCAB = 1 << 22,
    MAX_CONTEXT = 1 << 28,
};

/* One reading of a file: keys are prefixed with the architecture's name. */
struct reader {
    const struct gguf *g;
    const char *arch;
    struct error *e;
    enum error_code failed; /* the first error; later reads do nothing */
};

static void key_of(const struct reader *r, const char *suffix, char out[96])
{
    snprintf(out, 96, "%s.%s", r->arch, suffix);
}

static uint32_t check_range(struct reader *r, const char *key, uint32_t value, uint32_t max)
{
    if (!r->failed && (value == 0 || value > max))
        r->failed = error_set(r->e, ERROR_FORMAT, "%s: key '%s' is %" PRIu32 ": expected 1 to %" PRIu32,
                              gguf_path(r->g, 0), key, value, max);
    return value;
}

static uint32_t read_u32(struct reader *r, const char *suffix, uint32_t max)
{
    char key[96];
    key_of(r, suffix, key);
    uint32_t value = 0;
    if (!r->failed)
        r->failed = gguf_get_u32(r->g, key, &value, r->e);
    return check_range(r, key, value, max);
}

static uint32_t read_u32_or(struct reader *r, const char *suffix, uint32_t absent, uint32_t max)
{
    char key[96];
    key_of(r, suffix, key);
    uint32_t value = 0;
    if (!r->failed)
        r->failed = gguf_get_u32_or(r->g, key, absent, &value, r->e);
    return check_range(r, key, value, max);
}

static float read_f32_or(struct reader *r, const char *suffix, float absent, float min, float max)
{
    char key[96];
    key_of(r, suffix, key);
    float value = absent;
    if (!r->failed)
        r->failed = gguf_get_f32_or(r->g, key, absent, &value, r->e);
    if (!r->failed && !(value >= min && value <= max))
        r->failed = error_set(r->e, ERROR_FORMAT, "%s: key '%s' is %g: expected %g to %g",
                              gguf_path(r->g, 0), key, (double)value, (double)min, (double)max);
    return value;
}

static enum error_code read_architecture(const struct gguf *g, struct model_params *p,
                                         struct error *e)
{
    struct gguf_string name;
    enum error_code code = gguf_get_string(g, "general.architecture", &name, e);
    if (code)
        return code;
    p->arch = architecture_find(name.data, name.len);
    if (!p->arch)
        return error_set(e, ERROR_UNSUPPORTED, "%s: architecture '%.*s' is not supported; moed runs %s",
                         gguf_path(g, 0), (int)(name.len < 40 ? name.len : 40), name.data,
                         architecture_names());
    return ERROR_OK;
}

static void read_name(const struct gguf *g, struct model_params *p)
{
    struct gguf_string name;
    const char *path = gguf_path(g, 0);
    const char *slash = strrchr(path, '/');
    snprintf(p->name, sizeof p->name, "%s", slash ? slash + 1 : path);
    if (gguf_find(g, "general.name") && gguf_get_string(g, "general.name", &name, NULL) == ERROR_OK &&
        name.len > 0)
        snprintf(p->name, sizeof p->name, "%.*s", (int)(name.len < 90 ? name.len : 90), name.data);
    for (char *c = p->name; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
}

static void read_attention(struct reader *r, struct model_params *p)
{
    p->n_heads = read_u32(r, "attention.head_count", MAX_HEADS);
    p->n_kv_heads = read_u32_or(r, "attention.head_count_kv", p->n_heads, MAX_HEADS);
    if (r->failed)
        return;
    if (p->n_heads % p->n_kv_heads) {
        r->failed = error_set(r->e, ERROR_FORMAT,
                              "%s: %" PRIu32 " attention heads cannot share %" PRIu32
                              " key-value heads evenly ('%s.attention.head_count_kv')",
                              gguf_path(r->g, 0), p->n_heads, p->n_kv_heads, r->arch);
        return;
    }
    uint32_t head_dim = p->d_model / p->n_heads;
    p->k_dim = read_u32_or(r, "attention.key_length", head_dim, MAX_HEAD_DIM);
    p->v_dim = read_u32_or(r, "attention.value_length", head_dim, MAX_HEAD_DIM);
    p->rope_dims = read_u32_or(r, "rope.dimension_count", p->k_dim, MAX_HEAD_DIM);
    if (!r->failed && (p->rope_dims > p->k_dim || p->rope_dims % 2))
        r->failed = error_set(r->e, ERROR_FORMAT,
                              "%s: key '%s.rope.dimension_count' is %" PRIu32
                              ": expected an even number up to the head's %" PRIu32,
                              gguf_path(r->g, 0), r->arch, p->rope_dims, p->k_dim);
}

static void read_rope_scaling(struct reader *r, struct model_params *p)
{
    p->rope_base = read_f32_or(r, "rope.freq_base", 10000.0f, 1.0f, 1e12f);
    p->rope_scale = 1.0f;
    char key[96];
    key_of(r, "rope.scaling.type", key);
    struct gguf_string type = {"none", 4};
    if (!r->failed && gguf_find(r->g, key))
        r->failed = gguf_get_string(r->g, key, &type, r->e);
    if (r->failed || (type.len == 4 && memcmp(type.data, "none", 4) == 0))
        return;
    if (type.len == 6 && memcmp(type.data, "linear", 6) == 0) {
        p->rope_scale = 1.0f / read_f32_or(r, "rope.scaling.factor", 1.0f, 1e-3f, 1e6f);
        return;
    }
    r->failed = error_set(r->e, ERROR_UNSUPPORTED,
                          "%s: rope scaling '%.*s' (key '%s') is not supported; moed runs none, linear",
                          gguf_path(r->g, 0), (int)(type.len < 20 ? type.len : 20), type.data, key);
}

static void read_experts(struct reader *r, struct model_params *p)
{
    char key[96];
    key_of(r, "expert_count", key);
    if (!r->failed && !gguf_find(r->g, key))
        r->failed = error_set(r->e, ERROR_UNSUPPORTED,
                              "%s: no key '%s': a dense model; moed runs Mixture-of-Experts models",
                              gguf_path(r->g, 0), key);
    p->n_experts = read_u32(r, "expert_count", MAX_EXPERTS);
    p->n_used = read_u32(r, "expert_used_count", MAX_EXPERTS);
    if (!r->failed && p->n_used > p->n_experts)
        r->failed = error_set(r->e, ERROR_FORMAT,
                              "%s: key '%s.expert_used_count' is %" PRIu32
                              ": more than the %" PRIu32 " experts there are",
                              gguf_path(r->g, 0), r->arch, p->n_used, p->n_experts);
    if (r->failed)
        return;
    key_of(r, p->arch->expert_width_key ? p->arch->expert_width_key : "feed_forward_length", key);
    if (gguf_find(r->g, key))
        p->d_expert = read_u32(r, key + strlen(r->arch) + 1, MAX_WIDTH);
    else /* older qwen2moe files give the width of all activated experts together */
        p->d_expert = read_u32(r, "feed_forward_length", MAX_WIDTH) / p->n_used;
    if (p->arch->shared_count_key) {
        uint32_t n_shared = read_u32(r, p->arch->shared_count_key, MAX_EXPERTS);
        p->d_shared = check_range(r, p->arch->shared_count_key, n_shared * p->d_expert, MAX_WIDTH);
    } else if (p->arch->shared_expert)
        p->d_shared = read_u32_or(r, "expert_shared_feed_forward_length",
                                  p->d_expert * p->n_used, MAX_WIDTH);
    p->weights_scale = read_f32_or(r, "expert_weights_scale", 1.0f, 0.0f, 1e6f);
    if (p->weights_scale == 0.0f) /* the converters' way to say none */
        p->weights_scale = 1.0f;
}

/* What the router can do in other models and moed does not: refused, rather than computed wrongly. */
static void refuse_other_routers(struct reader *r, const struct model_params *p)
{
    static const struct {
        const char *suffix, *what;
        uint32_t absent, most;
    } known[] = {{"expert_gating_func", "a gate other than softmax", 1, 1},
                 {"expert_group_count", "groups of experts", 1, 1}};
    char key[96];
    for (int i = 0; i < 2; i++) {
        uint32_t value = 0;
        key_of(r, known[i].suffix, key);
        if (!r->failed)
            r->failed = gguf_get_u32_or(r->g, key, known[i].absent, &value, r->e);
        if (!r->failed && value > known[i].most)
            r->failed = error_set(r->e, ERROR_UNSUPPORTED,
                                  "%s: key '%s' is %" PRIu32 ": moed does not compute %s",
                                  gguf_path(r->g, 0), key, value, known[i].what);
    }
    bool renormalise = p->arch->renormalise;
    key_of(r, "expert_weights_norm", key);
    if (!r->failed)
        r->failed = gguf_get_bool_or(r->g, key, renormalise, &renormalise, r->e);
    if (!r->failed && renormalise != p->arch->renormalise)
        r->failed = error_set(r->e, ERROR_UNSUPPORTED,
                              "%s: key '%s' is %s, which moed does not compute for architecture %s",
                              gguf_path(r->g, 0), key, renormalise ? "true" : "false",
                              p->arch->name);
}

static void read_leading_dense(struct reader *r, struct model_params *p)
{
    char key[96];
    key_of(r, "leading_dense_block_count", key);
    if (r->failed || !p->arch->leading_dense)
        return;
    r->failed = gguf_get_u32_or(r->g, key, 0, &p->n_dense, r->e);
    if (!r->failed && p->n_dense >= p->n_layers)
        r->failed = error_set(r->e, ERROR_FORMAT,
                              "%s: key '%s' is %" PRIu32 ": expected less than the %" PRIu32
                              " layers there are",
                              gguf_path(r->g, 0), key, p->n_dense, p->n_layers);
    if (p->n_dense)
        p->d_dense = read_u32(r, "feed_forward_length", MAX_WIDTH);
}

/* The vocabulary's size is that of the embedding: files pad it beyond their token list. */
static void read_vocab(struct reader *r, struct model_params *p)
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
    struct reader r = {.g = g, .arch = p.arch->name, .e = e};
    read_name(g, &p);
    p.n_layers = read_u32(&r, "block_count", MAX_LAYERS);
    p.d_model = read_u32(&r, "embedding_length", MAX_WIDTH);
    p.context_trained = read_u32(&r, "context_length", MAX_CONTEXT);
    read_attention(&r, &p);
    read_rope_scaling(&r, &p);
    p.rms_eps = read_f32_or(&r, "attention.layer_norm_rms_epsilon", 1e-6f, 0.0f, 1.0f);
    read_experts(&r, &p);
    refuse_other_routers(&r, &p);
    read_leading_dense(&r, &p);
    read_vocab(&r, &p);
    if (r.failed)
        return r.failed;
    *out = p;
    return ERROR_OK;
}
