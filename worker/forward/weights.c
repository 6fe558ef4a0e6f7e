/* Binding the dense weights; see weights.h. */
#include "weights.h"

#include "exec/exec.h"
#include "kernels/bf16.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct binder {
    const struct pool_map *map;
    const uint8_t *base; /* offsets count from here */
    uint32_t block;      /* of the file, whose tensors are bound */
    struct error *e;
    enum error_code failed;
    char name[64];
};

static const struct pool_tensor *find(struct binder *b, const char *name, bool optional,
                                      enum pool_tensor_form form, uint32_t rows, uint32_t cols,
                                      uint32_t planes)
{
    if (b->failed)
        return NULL;
    const struct pool_tensor *t = pool_map_find(b->map, name);
    if (!t && optional)
        return NULL;
    if (!t || t->form != form || t->rows != rows || t->cols != cols || t->planes != planes) {
        b->failed = error_set(b->e, ERROR_PROTOCOL,
                              "host pool: tensor '%s' of %" PRIu32 " x %" PRIu32 " is not there",
                              name, rows, cols);
        return NULL;
    }
    return t;
}

static struct head_matrices head_matrices(struct binder *b, const char *name, uint32_t rows,
                                          uint32_t cols, uint32_t heads)
{
    const struct pool_tensor *t = find(b, name, false, POOL_MATRIX, rows, cols, heads);
    if (!t)
        return (struct head_matrices){0};
    return (struct head_matrices){
        {(enum tensor_type)t->type, rows, cols, b->base + t->offset}, t->bytes / heads, heads};
}

static struct matrix matrix(struct binder *b, const char *name, bool optional, uint32_t rows,
                            uint32_t cols)
{
    const struct pool_tensor *t = find(b, name, optional, POOL_MATRIX, rows, cols, 1);
    if (!t)
        return (struct matrix){0};
    return (struct matrix){(enum tensor_type)t->type, rows, cols, b->base + t->offset};
}

static const float *vectors(struct binder *b, const char *name, bool optional, uint32_t count,
                            uint32_t values)
{
    const struct pool_tensor *t = find(b, name, optional, POOL_VECTOR, count, values, 1);
    return t ? (const float *)(b->base + t->offset) : NULL;
}

static const float *vector(struct binder *b, const char *name, bool optional, uint32_t values)
{
    return vectors(b, name, optional, 1, values);
}

/* The name of a tensor of the block, in a buffer that the next call overwrites. */
static const char *name_in(struct binder *b, const char *part, const char *suffix)
{
    snprintf(b->name, sizeof b->name, "blk.%" PRIu32 ".%s.%s", b->block, part, suffix);
    return b->name;
}

/* The same of a tensor without a suffix, or whose part has it. */
static const char *unsuffixed_in(struct binder *b, const char *part)
{
    snprintf(b->name, sizeof b->name, "blk.%" PRIu32 ".%s", b->block, part);
    return b->name;
}

#define WEIGHT(part) name_in(b, part, "weight")
#define BIAS(part)   name_in(b, part, "bias")
#define SCALE(part)  name_in(b, part, "scale")

static struct norm_weights norm(struct binder *b, const char *part, uint32_t values)
{
    struct norm_weights w = {.weight = vector(b, WEIGHT(part), false, values)};
    if (b->map->params.arch->norm == NORM_LAYER)
        w.bias = vector(b, BIAS(part), false, values);
    else
        w.centred = b->map->params.norm == NORM_LAYER;
    return w;
}

static void bind_grouped(struct binder *b, uint32_t layer, struct layer_weights *w)
{
    const struct model_params *p = &b->map->params;
    const struct layer_params *l = &p->layers[layer];
    uint32_t q_rows = l->n_heads * l->k_dim, k_rows = l->n_kv_heads * l->k_dim;
    uint32_t q_outputs = p->arch->query_gate ? 2 * q_rows : q_rows;
    uint32_t v_rows = l->n_kv_heads * l->v_dim;
    if (p->arch->qk_norm || p->arch->qk_norm_whole) {
        bool whole = p->arch->qk_norm_whole, optional = p->arch->qk_norm_optional;
        w->q_norm = vector(b, WEIGHT("attn_q_norm"), optional, whole ? q_rows : l->k_dim);
        w->k_norm = vector(b, WEIGHT("attn_k_norm"), optional, whole ? k_rows : l->k_dim);
    }
    w->q = matrix(b, WEIGHT("attn_q"), false, q_outputs, p->d_model);
    w->k = matrix(b, WEIGHT("attn_k"), false, k_rows, p->d_model);
    w->v = matrix(b, WEIGHT("attn_v"), p->arch->value_norm && l->window == 0, v_rows, p->d_model);
    w->q_bias = vector(b, BIAS("attn_q"), true, q_outputs);
    w->k_bias = vector(b, BIAS("attn_k"), true, k_rows);
    w->v_bias = vector(b, BIAS("attn_v"), true, v_rows);
}

static void bind_latent(struct binder *b, uint32_t layer, struct layer_weights *w)
{
    const struct model_params *p = &b->map->params;
    const struct layer_params *l = &p->layers[layer];
    uint32_t q_rows = l->n_heads * l->q_dim;
    if (p->q_rank) {
        w->q_a = matrix(b, WEIGHT("attn_q_a"), false, p->q_rank, p->d_model);
        w->q_a_norm = vector(b, WEIGHT("attn_q_a_norm"), false, p->q_rank);
        w->q_b = matrix(b, WEIGHT("attn_q_b"), false, q_rows, p->q_rank);
    } else
        w->q = matrix(b, WEIGHT("attn_q"), false, q_rows, p->d_model);
    w->kv_a = matrix(b, WEIGHT("attn_kv_a_mqa"), false, l->k_dim, p->d_model);
    w->kv_a_norm = vector(b, WEIGHT("attn_kv_a_norm"), false, p->kv_rank);
    w->k_b = head_matrices(b, WEIGHT("attn_k_b"), p->kv_rank, l->q_dim - p->rope.dims, l->n_heads);
    w->v_b = head_matrices(b, WEIGHT("attn_v_b"), l->o_dim, p->kv_rank, l->n_heads);
}

static void bind_delta(struct binder *b, struct layer_weights *w)
{
    const struct model_params *p = &b->map->params;
    const struct delta_params *d = &p->delta;
    struct delta_weights *to = &w->delta;
    uint32_t channels = params_convolved(p), values = d->v_heads * d->v_dim;
    w->attn_norm = norm(b, "attn_norm", p->d_model);
    to->in = matrix(b, WEIGHT("ssm_in"), true, channels + values, p->d_model);
    if (!to->in.tiles) {
        to->qkv = matrix(b, WEIGHT("attn_qkv"), false, channels, p->d_model);
        to->z = matrix(b, WEIGHT("attn_gate"), false, values, p->d_model);
    }
    if (p->arch->delta_grouped)
        to->ba = matrix(b, WEIGHT("ssm_ba"), false, 2 * d->v_heads, p->d_model);
    else {
        to->beta = matrix(b, WEIGHT("ssm_beta"), false, d->v_heads, p->d_model);
        to->alpha = matrix(b, WEIGHT("ssm_alpha"), false, d->v_heads, p->d_model);
    }
    to->conv = vectors(b, WEIGHT("ssm_conv1d"), false, channels, d->taps);
    to->dt = vector(b, BIAS("ssm_dt"), false, d->v_heads);
    to->a = vector(b, unsuffixed_in(b, "ssm_a"), false, d->v_heads);
    to->norm = vector(b, WEIGHT("ssm_norm"), false, d->v_dim);
    w->o = matrix(b, WEIGHT("ssm_out"), false, p->d_model, values);
}

static void bind_short_convolution(struct binder *b, struct layer_weights *w)
{
    const struct model_params *p = &b->map->params;
    w->attn_norm = norm(b, "attn_norm", p->d_model);
    w->convolution.in = matrix(b, WEIGHT("shortconv.in_proj"), false, 3 * p->d_model, p->d_model);
    w->convolution.taps = vectors(b, WEIGHT("shortconv.conv"), false, p->d_model, p->delta.taps);
    w->o = matrix(b, WEIGHT("shortconv.out_proj"), false, p->d_model, p->d_model);
}

static void bind_mamba2(struct binder *b, struct layer_weights *w)
{
    const struct model_params *p = &b->map->params;
    const struct delta_params *d = &p->delta;
    struct mamba2_weights *to = &w->mamba2;
    uint32_t channels = params_convolved(p), values = d->v_heads * d->v_dim;
    to->input_norm = norm(b, "attn_norm", p->d_model);
    to->z = matrix(b, name_in(b, "ssm_in", "z"), false, values, p->d_model);
    to->xbc = matrix(b, name_in(b, "ssm_in", "xbc"), false, channels, p->d_model);
    to->dt = matrix(b, name_in(b, "ssm_in", "dt"), false, d->v_heads, p->d_model);
    to->conv = vectors(b, WEIGHT("ssm_conv1d"), false, channels, d->taps);
    to->conv_bias = vector(b, BIAS("ssm_conv1d"), false, channels);
    to->dt_bias = vector(b, BIAS("ssm_dt"), false, d->v_heads);
    to->a = vectors(b, unsuffixed_in(b, "ssm_a"), false, d->v_heads, 1);
    to->skip = vectors(b, unsuffixed_in(b, "ssm_d"), false, d->v_heads, 1);
    to->norm = vectors(b, WEIGHT("ssm_norm"), false, d->k_heads, values / d->k_heads);
    to->out = matrix(b, WEIGHT("ssm_out"), false, p->d_model, values);
}

static void bind_output_gate(struct binder *b, uint32_t layer, struct layer_weights *w)
{
    const struct model_params *p = &b->map->params;
    const struct layer_params *l = &p->layers[layer];
    const struct pool_tensor *t = pool_map_find(b->map, WEIGHT("attn_gate"));
    uint32_t rows = t && t->rows != l->n_heads ? l->n_heads * l->o_dim : l->n_heads;
    w->output_gate =
        matrix(b, WEIGHT("attn_gate"), p->arch->output_gate_optional, rows, p->d_model);
}

static void bind_attention(struct binder *b, uint32_t layer, struct layer_weights *w)
{
    const struct model_params *p = &b->map->params;
    const struct layer_params *l = &p->layers[layer];
    w->attn_norm = norm(b, "attn_norm", p->d_model);
    if (p->arch->attention == ATTENTION_LATENT)
        bind_latent(b, layer, w);
    else
        bind_grouped(b, layer, w);
    w->o = matrix(b, WEIGHT("attn_output"), false, p->d_model, l->n_heads * l->o_dim);
    w->o_bias = vector(b, BIAS("attn_output"), true, p->d_model);
    if (p->arch->attention_sinks)
        w->sinks = vector(b, WEIGHT("attn_sinks"), p->arch->sinks_optional, l->n_heads);
    if (p->arch->output_gate)
        bind_output_gate(b, layer, w);
}

static void bind_shared_expert(struct binder *b, struct layer_weights *w)
{
    const struct model_params *p = &b->map->params;
    bool normed = p->arch->shared_expert_normed;
    if (activation_has_gate(p->arch->activation))
        w->shared_gate = matrix(b, WEIGHT(normed ? "ffn_gate" : "ffn_gate_shexp"), false,
                                p->d_shared, p->d_model);
    w->shared_up =
        matrix(b, WEIGHT(normed ? "ffn_up" : "ffn_up_shexp"), false, p->d_shared, p->d_model);
    w->shared_down =
        matrix(b, WEIGHT(normed ? "ffn_down" : "ffn_down_shexp"), false, p->d_model, p->d_shared);
    if (p->arch->shared_expert_gate)
        w->shared_gate_input = matrix(b, WEIGHT("ffn_gate_inp_shexp"), false, 1, p->d_model);
    if (!normed)
        return;
    w->shared_norm = norm(b, p->arch->shared_norm, p->d_model);
    w->shared_post_norm = norm(b, "post_ffw_norm_1", p->d_model);
    w->experts_post_norm = norm(b, "post_ffw_norm_2", p->d_model);
}

static void bind_post_norms(struct binder *b, struct layer_weights *w)
{
    uint32_t d_model = b->map->params.d_model;
    w->attn_post_norm = norm(b, "post_attention_norm", d_model);
    w->ffn_post_norm = norm(b, "post_ffw_norm", d_model);
    w->output_scale = 1;
    if (!b->map->params.arch->output_scale)
        return;
    const struct pool_tensor *t =
        find(b, WEIGHT("layer_output_scale"), false, POOL_VECTOR, 1, 1, 1);
    if (t)
        memcpy(&w->output_scale, b->map->base + t->offset, sizeof w->output_scale);
}

/* What mixes the positions. */
static void bind_mixer(struct binder *b, uint32_t layer, struct layer_weights *w)
{
    const struct layer_params *l = &b->map->params.layers[layer];
    b->block = l->blocks.recurrent;
    if (params_is_mamba2(l))
        bind_mamba2(b, w);
    else if (l->kind == LAYER_DELTA_NET)
        bind_delta(b, w);
    else if (l->kind == LAYER_SHORT_CONVOLUTION)
        bind_short_convolution(b, w);
    b->block = l->blocks.attention;
    if (params_attends(l))
        bind_attention(b, layer, w);
}

static void bind_layer(struct binder *b, uint32_t layer, struct layer_weights *w)
{
    const struct model_params *p = &b->map->params;
    bind_mixer(b, layer, w);
    b->block = p->layers[layer].blocks.feed_forward;
    if (!p->arch->parallel)
        w->ffn_norm = norm(b, p->arch->ffn_norm ? p->arch->ffn_norm : "ffn_norm", p->d_model);
    if (p->arch->post_norms)
        bind_post_norms(b, w);
    if (p->layers[layer].feed_forward == FEED_FORWARD_DENSE) {
        w->dense_gate = matrix(b, WEIGHT("ffn_gate"), false, p->d_dense, p->d_model);
        w->dense_up = matrix(b, WEIGHT("ffn_up"), false, p->d_dense, p->d_model);
        w->dense_down = matrix(b, WEIGHT("ffn_down"), false, p->d_model, p->d_dense);
        return;
    }
    uint32_t n_experts = p->router.n_experts;
    w->router = w->prediction_router =
        matrix(b, WEIGHT("ffn_gate_inp"), false, n_experts, p->d_model);
    w->router_bias = vector(b, BIAS("ffn_gate_inp"), true, n_experts);
    if (architecture_selection_bias(p->arch))
        w->selection_bias =
            vector(b, unsuffixed_in(b, architecture_selection_bias(p->arch)), true, n_experts);
    if (p->arch->biases & BIAS_EXPERTS)
        w->down_bias = vectors(b, BIAS("ffn_down_exps"), false, n_experts, p->d_model);
    if (p->arch->router_norm)
        w->router_scale = vector(b, SCALE("ffn_gate_inp"), false, p->d_model);
    if (p->arch->expert_scales)
        w->expert_scales = vector(b, SCALE("ffn_down_exps"), false, n_experts);
    if (p->d_shared)
        bind_shared_expert(b, w);
}

enum error_code weights_bind(const struct pool_map *map, const uint8_t *base,
                             struct model_weights *out, struct error *e)
{
    const struct model_params *p = &map->params;
    struct model_weights w = {.layers = calloc(p->n_layers, sizeof *w.layers)};
    struct binder b = {.map = map, .base = base, .e = e};
    if (!w.layers)
        return error_set(e, ERROR_MEMORY, "no memory for the table of weights");
    w.embedding = matrix(&b, "token_embd.weight", false, p->vocab, p->d_model);
    w.output = matrix(&b, "output.weight", p->arch->tied_output, p->vocab, p->d_model);
    if (!w.output.tiles)
        w.output = w.embedding;
    snprintf(b.name, sizeof b.name, "%s.weight",
             p->arch->output_norm ? p->arch->output_norm : "output_norm");
    w.output_norm.weight = vector(&b, b.name, false, p->d_model);
    if (p->arch->norm == NORM_LAYER)
        w.output_norm.bias = vector(&b, "output_norm.bias", false, p->d_model);
    else
        w.output_norm.centred = p->norm == NORM_LAYER;
    w.output_bias = vector(&b, "output.bias", true, p->vocab);
    for (uint32_t layer = 0; layer < p->n_layers; layer++)
        bind_layer(&b, layer, &w.layers[layer]);
    b.base = map->base; /* the host computes the angles */
    bool long_rope = p->rope.scaling == ROPE_SCALING_LONG;
    w.rope_factors = vector(&b, long_rope ? "rope_factors_short.weight" : "rope_freqs.weight",
                            !long_rope && !p->arch->windowed_heads,
                            p->arch->rope_half ? p->rope.dims : p->rope.dims / 2);
    if (long_rope)
        w.rope_long_factors = vector(&b, "rope_factors_long.weight", false, p->rope.dims / 2);
    if (b.failed) {
        weights_free(&w);
        return b.failed;
    }
    *out = w;
    return ERROR_OK;
}

void weights_free(struct model_weights *w)
{
    free(w->layers);
    free(w->prediction_tiles);
    w->layers = NULL;
    w->prediction_tiles = NULL;
}

bool weights_quantize(const struct matrix *m)
{
    return m->tiles && tensor_type_info(m->type)->block_values > 1;
}

/* True: the host's products with weights of this type are the definition's whatever the batch. */
static bool is_defined(enum tensor_type type)
{
    return type != TENSOR_BF16 || !bf16_get();
}

/* A device rounds the inputs of experts of BF16 and F16. */
static bool are_experts_defined(uint32_t type, bool device)
{
    return is_defined(type) && !(device && (type == TENSOR_BF16 || type == TENSOR_F16));
}

static bool is_slab_defined(const struct pool_slabs *s, bool device)
{
    return !s->n_experts ||
           (are_experts_defined(s->gate_type, device) && are_experts_defined(s->up_type, device) &&
            are_experts_defined(s->down_type, device));
}

bool weights_all_defined(const struct model_weights *w, const struct pool_map *map, bool device)
{
    for (uint32_t i = 0; i < map->params.n_layers; i++) {
        const struct layer_weights *l = &w->layers[i];
        const struct matrix *const all[] = {&l->q,           &l->k,           &l->v,
                                            &l->o,           &l->q_a,         &l->q_b,
                                            &l->kv_a,        &l->shared_gate, &l->shared_up,
                                            &l->shared_down, &l->dense_gate,  &l->dense_up,
                                            &l->dense_down,  &l->delta.qkv,   &l->delta.z,
                                            &l->delta.in,    &l->output_gate, &l->convolution.in,
                                            &l->mamba2.z,    &l->mamba2.xbc,  &l->mamba2.out};
        for (size_t k = 0; k < sizeof all / sizeof *all; k++)
            if (all[k]->tiles && !is_defined(all[k]->type))
                return false;
        if (!is_slab_defined(&map->slabs[i], device))
            return false;
    }
    return true;
}
