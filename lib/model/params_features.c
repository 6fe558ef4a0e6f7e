/* Refuses keys that say that a model computes something else than its architecture's row; see
 * params_internal.h. A key at 0 or at its neutral value asks for nothing. */
#include "params_internal.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Where the architecture or the file's rotation has the feature, it is read elsewhere. */
static bool is_computed(const struct model_params *p, const char *suffix)
{
    if (strcmp(suffix, "logit_scale") == 0)
        return p->arch->logit_scale;
    if (strcmp(suffix, "attention.value_scale") == 0)
        return p->arch->value_scale > 0;
    return strcmp(suffix, "rope.scaling.attn_factor") == 0 && p->rope.scaling == ROPE_SCALING_LONG;
}

static void refuse_number(struct key_reader *r, const char *suffix, float neutral, const char *what)
{
    float value = key_f32_or(r, suffix, 0, -INFINITY, INFINITY);
    if (value != 0 && value != neutral)
        params_refuse_value(r, suffix, (double)value, what);
}

/* 0: there is no such key, or an error. */
static uint32_t read_count(struct key_reader *r, const char *suffix)
{
    char key[KEY_BYTES];
    uint32_t value = 0;
    key_name(r, suffix, key);
    if (!r->failed)
        r->failed = gguf_get_u32_or(r->g, key, 0, &value, r->e);
    return r->failed ? 0 : value;
}

static void refuse_numbers(struct key_reader *r, const struct model_params *p)
{
    static const struct {
        const char *suffix;
        float neutral;
    } features[] = {
        {"attention.clamp_kqv", 0},      {"attention.max_alibi_bias", 0},
        {"attention.scale", 0},          {"attention.value_scale", 1},
        {"attention.output_scale", 1},   {"attn_logit_softcapping", 0},
        {"router_logit_softcapping", 0}, {"logit_scale", 1},
        {"embedding_scale", 1},          {"residual_scale", 1},
        {"expert_group_scale", 1},       {"rope.scaling.attn_factor", 1},
        {"rope.scaling.alpha", 1},
    };
    for (size_t i = 0; i < sizeof features / sizeof *features; i++)
        if (!is_computed(p, features[i].suffix))
            refuse_number(r, features[i].suffix, features[i].neutral, "a feature");
}

/* Of Gemma 4's dense models: keys and values that layers share, embeddings by layer. Of
 * Nemotron-3-Super: experts between matrices that narrow and widen their vectors. Several streams
 * of residuals. Of ERNIE, Step-3.5 and others, whose published models have 1: every so many layers
 * after the dense ones have experts. */
static void refuse_counts(struct key_reader *r)
{
    static const char between[] = "dense layers between those with experts";
    static const struct {
        const char *suffix;
        uint32_t neutral;
        const char *what;
    } counts[] = {
        {"attention.shared_kv_layers", 0, "a feature"},
        {"embedding_length_per_layer_input", 0, "a feature"},
        {"moe_latent_size", 0, "a feature"},
        {"hyper_connection.count", 1, "a feature"},
        {"interleave_moe_layer_step", 1, between},
        {"moe_every_n_layers", 1, between},
    };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        uint32_t value = read_count(r, counts[i].suffix);
        if (value > counts[i].neutral)
            params_refuse_value(r, counts[i].suffix, value, counts[i].what);
    }
}

/* How much of YaRN's ramp is taken: all of it where there is one. Below 0: the key says nothing. */
static void refuse_part_of_ramp(struct key_reader *r, const struct model_params *p)
{
    static const char suffix[] = "rope.scaling.yarn_ext_factor";
    float whole = p->rope.scaling == ROPE_SCALING_YARN ? 1 : 0;
    float value = key_f32_or(r, suffix, whole, -INFINITY, INFINITY);
    if (value >= 0 && value != whole)
        params_refuse_value(r, suffix, (double)value, "another share of YaRN");
}

static void refuse_other_attention(struct key_reader *r)
{
    static const char causal[] = "attention.causal";
    if (!key_bool_or(r, causal, true))
        params_refuse_value(r, causal, 0, "attention to later positions");
}

static bool has_recurrent_block(const struct model_params *p, uint32_t block)
{
    for (uint32_t i = 0; i < p->n_layers; i++)
        if (params_is_recurrent(&p->layers[i]) && p->layers[i].blocks.recurrent == block)
            return true;
    return false;
}

/* Most architectures say in other ways which layers are recurrent, or have none. */
static void refuse_other_recurrent(struct key_reader *r, const struct model_params *p)
{
    struct params_list list = params_recurrent_list(r, p->n_blocks);
    for (uint32_t i = 0; i < p->n_blocks && list.kv && !r->failed; i++) {
        uint32_t value = params_list_u32(list, i) != 0;
        if (value != has_recurrent_block(p, i))
            params_refuse_value(r, "attention.recurrent_layers", value, "other recurrent layers");
    }
}

/* "gelu" of a file passes for the form with tanh, which moed computes: runtimes of such files mean
 * that one, and Gemma's first configurations called it so. llama.cpp's converter writes no such key
 * for gemma4. */
static void refuse_other_activation(struct key_reader *r, const struct model_params *p)
{
    static const struct {
        enum activation kind;
        const char *name;
    } names[] = {
        {ACTIVATION_SILU, "silu"},
        {ACTIVATION_SILU, "swish"},
        {ACTIVATION_SILU, "swiglu"},
        {ACTIVATION_SWIGLU_CLAMPED, "silu"},
        {ACTIVATION_SWIGLU_CLAMPED, "swish"},
        {ACTIVATION_SWIGLU_CLAMPED, "swiglu"},
        {ACTIVATION_GELU, "gelu"},
        {ACTIVATION_GELU, "gelu_pytorch_tanh"},
        {ACTIVATION_GELU, "geglu"},
        {ACTIVATION_RELU_SQUARED, "relu2"},
    };
    struct gguf_string name;
    char key[KEY_BYTES];
    key_name(r, "hidden_activation", key);
    if (r->failed || !gguf_find(r->g, key) ||
        (r->failed = gguf_get_string(r->g, key, &name, r->e)) != ERROR_OK)
        return;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].kind == p->arch->activation && gguf_string_is(name, names[i].name))
            return;
    r->failed = error_set(r->e, ERROR_UNSUPPORTED,
                          "%s: key '%s' is '%.*s', another activation, which moed does not compute "
                          "for architecture %s",
                          gguf_path(r->g, 0), key, (int)(name.len < 30 ? name.len : 30), name.data,
                          r->arch);
}

static void refuse_other_size(struct key_reader *r, const char *suffix, uint32_t size,
                              const char *what)
{
    uint32_t value = read_count(r, suffix);
    if (value && value != size)
        params_refuse_value(r, suffix, value, what);
}

/* Keys of the layers with a window, where the architecture has one size or rotation for all. */
static void refuse_windowed(struct key_reader *r, const struct model_params *p)
{
    static const char base[] = "rope.freq_base_swa",
                      heads[] = "other heads in layers with a window",
                      rotation[] = "another rotation in layers with a window";
    if (r->failed || !params_windows(p).layers)
        return;
    const struct layer_params *l = params_attention(p);
    if (!p->arch->windowed_heads) {
        refuse_other_size(r, "attention.key_length_swa", l->q_dim, heads);
        refuse_other_size(r, "attention.value_length_swa", l->o_dim, heads);
    }
    if (p->arch->windowed_rope)
        return;
    refuse_other_size(r, "rope.dimension_count_swa", p->rope.dims, rotation);
    refuse_number(r, base, p->rope.base, rotation);
}

void params_refuse_features(struct key_reader *r, const struct model_params *p)
{
    refuse_numbers(r, p);
    refuse_counts(r);
    refuse_part_of_ramp(r, p);
    refuse_other_attention(r);
    refuse_other_recurrent(r, p);
    refuse_other_activation(r, p);
    refuse_windowed(r, p);
}
