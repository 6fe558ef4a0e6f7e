/* Reads the keys of rotations; see params_internal.h. */
#include "params_internal.h"

#include "model/published.h"

#include <inttypes.h>
#include <math.h>

/* Files without the length mean the original context. */
static void read_temperature(struct key_reader *r, struct model_params *p)
{
    static const char suffix[] = "attention.temperature_scale";
    p->temperature_scale = key_f32_or(r, suffix, p->arch->temperature_scale, 0, 100);
    if (p->arch->temperature_scale > 0 && !key_exists(r, suffix))
        p->published |= PUBLISHED_TEMPERATURE;
    if (p->temperature_scale == 0)
        return;
    if (p->arch->attention != ATTENTION_LATENT)
        params_refuse_value(r, suffix, (double)p->temperature_scale,
                            "queries that grow with the position");
    p->temperature_length =
        key_u32_or(r, "attention.temperature_length", p->rope.original_context, PARAMS_MAX_CONTEXT);
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
        if (gguf_string_is(type, names[i]))
            return (enum rope_scaling)i;
    r->failed = error_set(r->e, ERROR_UNSUPPORTED,
                          "%s: rope scaling '%.*s' (key '%s') is not supported; moed runs none, "
                          "linear, yarn, longrope",
                          gguf_path(r->g, 0), (int)(type.len < 20 ? type.len : 20), type.data, key);
    return ROPE_SCALING_NONE;
}

/* Where the ramp begins and ends; see struct rope_params. */
static void read_ramp(struct key_reader *r, struct model_params *p)
{
    static const char fast[] = "rope.scaling.yarn_beta_fast",
                      slow[] = "rope.scaling.yarn_beta_slow";
    const struct published_ramp *known = published_ramp(p);
    p->rope.exact_ramp = published_exact_ramp(p);
    p->rope.beta_fast = key_f32_or(r, fast, known ? known->beta_fast : 32.0f, 1e-3f, 1e6f);
    p->rope.beta_slow = key_f32_or(r, slow, known ? known->beta_slow : 1.0f, 1e-3f, 1e6f);
    if (known && !key_exists(r, fast))
        p->published |= PUBLISHED_BETA_FAST;
    if (known && !key_exists(r, slow))
        p->published |= PUBLISHED_BETA_SLOW;
}

/* The cosines grow by the file's factor of attention, or else with the logarithm of the factor,
 * unless the model scales its attention instead. yarn_log_multiplier marks such a model: a tenth of
 * the original's mscale_all_dim. In all of these models mscale equals mscale_all_dim, and the two
 * cancel. */
static void read_yarn(struct key_reader *r, struct model_params *p)
{
    p->rope.factor = key_f32_or(r, "rope.scaling.factor", 1.0f, 1.0f, 1e6f);
    read_ramp(r, p);
    float log_multiplier = key_f32_or(r, "rope.scaling.yarn_log_multiplier", 0.0f, -10.0f, 10.0f);
    float log_factor = logf(p->rope.factor);
    p->rope.magnitude =
        key_f32_or(r, "rope.scaling.yarn_attn_factor", 1.0f + 0.1f * log_factor, 1e-3f, 1e3f);
    if (log_multiplier != 0)
        p->rope.magnitude = 1.0f;
    float scale = 1.0f + log_multiplier * log_factor;
    p->attention_scale *= scale * scale;
}

/* The rotation of layers with a window is never scaled. */
static void read_windowed_rope(struct key_reader *r, struct model_params *p)
{
    float absent = p->arch->windowed_heads ? 10000.0f : p->rope.base;
    p->windowed_rope.base = key_f32_or(r, "rope.freq_base_swa", absent, 1.001f, 1e12f);
    p->windowed_rope.factor = p->windowed_rope.magnitude = 1.0f;
}

void params_read_rope(struct key_reader *r, struct model_params *p)
{
    static const char windowed[] = "rope.freq_base_swa";
    bool others_rotate = !p->arch->rope_windowed_only || p->arch->rope_dense;
    const char *suffix = !others_rotate && key_exists(r, windowed) ? windowed : "rope.freq_base";
    /* yarn divides by its logarithm */
    p->rope.base = key_f32_or(r, suffix, 10000.0f, 1.001f, 1e12f);
    if (p->arch->windowed_rope)
        read_windowed_rope(r, p);
    p->rope.factor = p->rope.magnitude = 1.0f;
    if (r->failed)
        return;
    p->rope.scaling = scaling_of_name(r);
    if (gguf_tensor_find(r->g, "rope_factors_long.weight")) /* such files may lack the key */
        p->rope.scaling = ROPE_SCALING_LONG;
    p->rope.original_context = key_u32_or(r, "rope.scaling.original_context_length",
                                          p->context_trained, PARAMS_MAX_CONTEXT);
    if (p->rope.scaling == ROPE_SCALING_LINEAR)
        p->rope.factor = key_f32_or(r, linear_factor_key(r), 1.0f, 1e-3f, 1e6f);
    else if (p->rope.scaling == ROPE_SCALING_YARN)
        read_yarn(r, p);
    else if (p->rope.scaling == ROPE_SCALING_LONG)
        p->rope.magnitude = p->arch->rope_magnitude > 0
                                ? p->arch->rope_magnitude
                                : key_f32_or(r, "rope.scaling.attn_factor", 1.0f, 1e-3f, 1e3f);
    read_temperature(r, p);
}
