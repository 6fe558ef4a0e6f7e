/* Attention of a layer; see forward_internal.h.
 *
 * Latent attention (MLA): the cache holds for each position one compressed row of kv_rank values
 * and the rotated part of the key, both shared by all heads. A head's key and value would be k_b
 * and v_b times the compressed row. Instead q is multiplied by k_b once (absorbed), and the sum of
 * compressed rows by v_b once, so nothing is expanded for each cached position. */
#include "forward_internal.h"

static void project_grouped(struct forward *f, uint32_t layer)
{
    const struct layer_weights *w = &f->weights->layers[layer];
    bool quantize = weights_quantize(&w->q) || weights_quantize(&w->k) || weights_quantize(&w->v) ||
                    weights_quantize(&w->output_gate);
    const void *in = forward_norm(f, &w->attn_norm, quantize);
    bool gated = f->params->arch->query_gate;
    float *q = gated ? f->q_and_gate : f->q;
    struct dense_product products[DENSE_PRODUCTS] = {{&w->q, q, false, w->q_bias, false},
                                                     {&w->k, f->k, false, w->k_bias, false}};
    unsigned n = 2;
    if (w->v.tiles)
        products[n++] = (struct dense_product){&w->v, f->v, false, w->v_bias, false};
    if (w->output_gate.tiles)
        products[n++] = (struct dense_product){&w->output_gate, f->query_gate, false, NULL, false};
    f->ops->multiply_several(f->dense, products, n, in);
    if (gated)
        f->ops->split_gate(f->dense, layer, q, f->q, f->query_gate);
    f->ops->place_heads(f->dense, layer, w, f->q, f->k, f->v);
}

static void project_latent(struct forward *f, uint32_t layer)
{
    const struct model_params *p = f->params;
    const struct layer_params *l = &p->layers[layer];
    const struct layer_weights *w = &f->weights->layers[layer];
    const struct matrix *first = w->q_a.tiles ? &w->q_a : &w->q;
    bool quantize = weights_quantize(first) || weights_quantize(&w->kv_a);
    const void *in = forward_norm(f, &w->attn_norm, quantize);
    float *low = f->latent.q_low;
    const struct dense_product products[] = {
        {&w->kv_a, f->k, false, NULL, false},
        {first, w->q_a.tiles ? low : f->q, false, NULL, false}};
    f->ops->multiply_several(f->dense, products, 2, in);
    if (w->q_a.tiles) {
        const struct norm_weights norm = {.weight = w->q_a_norm};
        in = f->ops->norm_prepare(f->dense, 0, low, &norm, LATENT_NORM_EPS, p->q_rank, low,
                                  weights_quantize(&w->q_b));
        f->ops->multiply(f->dense, &w->q_b, in, f->q, false);
    }
    f->ops->place_latent(f->dense, layer, w, f->k, f->q, f->latent.absorbed);
    f->ops->multiply_heads(f->dense, &w->k_b, f->q, l->q_dim, f->latent.absorbed, l->k_dim);
}

/* Attention whose result has a gate for each of its parts, or a factor. */
static const void *attend_scaled(struct forward *f, uint32_t layer, bool quantize)
{
    const struct model_params *p = f->params;
    const struct layer_params *l = &p->layers[layer];
    const struct layer_weights *w = &f->weights->layers[layer];
    uint32_t values = l->n_heads * l->o_dim, n_gates = w->output_gate.rows;
    f->ops->attend(f->dense, layer, f->q, w->sinks, f->attended);
    if (w->output_gate.tiles) {
        struct gating by = {p->arch->output_gate == OUTPUT_GATE_SOFTPLUS ? ACTIVATION_SOFTPLUS
                                                                         : ACTIVATION_SIGMOID,
                            0};
        f->ops->gate_parts(f->dense, by, f->query_gate, f->attended, n_gates, values / n_gates);
    }
    if (p->value_scale != 1)
        f->ops->scale(f->dense, p->value_scale, f->attended, values);
    return f->ops->prepare(f->dense, 0, f->attended, values, quantize);
}

/* What attend_prepare takes: sigmoids of a gate for each value that attention gives. */
static bool gates_values(const struct forward *f, uint32_t layer)
{
    const struct model_params *p = f->params;
    const struct layer_params *l = &p->layers[layer];
    uint32_t gates = f->weights->layers[layer].output_gate.rows;
    return p->arch->query_gate || (p->arch->output_gate == OUTPUT_GATE_SIGMOID &&
                                   gates == l->n_heads * l->o_dim && p->value_scale == 1);
}

/* Attention of a layer, prepared for its output matrix. */
static const void *attend(struct forward *f, uint32_t layer)
{
    const struct model_params *p = f->params;
    const struct layer_params *l = &p->layers[layer];
    const struct layer_weights *w = &f->weights->layers[layer];
    bool quantize = weights_quantize(&w->o);
    if (p->arch->attention != ATTENTION_LATENT) {
        project_grouped(f, layer);
        bool gated = gates_values(f, layer);
        if (!gated && (w->output_gate.tiles || p->value_scale != 1))
            return attend_scaled(f, layer, quantize);
        return f->ops->attend_prepare(f->dense, 0, layer, f->q, w->sinks,
                                      gated ? f->query_gate : NULL, f->attended, quantize);
    }
    project_latent(f, layer);
    f->ops->attend(f->dense, layer, f->latent.absorbed, w->sinks, f->latent.context);
    f->ops->multiply_heads(f->dense, &w->v_b, f->latent.context, p->kv_rank, f->attended, l->o_dim);
    return f->ops->prepare(f->dense, 0, f->attended, l->n_heads * l->o_dim, quantize);
}

void forward_attention(struct forward *f, uint32_t layer)
{
    const struct model_params *p = f->params;
    const struct layer_weights *w = &f->weights->layers[layer];
    const void *in = attend(f, layer);
    bool normed = w->attn_post_norm.weight != NULL;
    float *out = normed ? f->added : f->x.own;
    const struct dense_product product = {&w->o, out, !normed, w->o_bias, false};
    f->ops->multiply_several(f->dense, &product, 1, in);
    if (normed)
        f->ops->norm_add(f->dense, out, &w->attn_post_norm, p->norm_eps, p->d_model, 1, f->x.own);
}
