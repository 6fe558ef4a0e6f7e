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
    const void *in = f->ops->prepare(f->dense, 0, f->h.own, f->params->d_model, quantize);
    bool gated = f->params->arch->query_gate;
    float *q = gated ? f->q_and_gate : f->q;
    const struct exec_product products[] = {{&w->q, q, w->q.rows, false},
                                            {&w->k, f->k, w->k.rows, false},
                                            {&w->v, f->v, w->v.rows, false}};
    f->ops->multiply_several(f->dense, products, w->v.tiles ? 3 : 2, in);
    if (w->output_gate.tiles)
        f->ops->multiply(f->dense, &w->output_gate, in, f->query_gate, false);
    f->ops->add_bias(f->dense, w->q_bias, q, w->q.rows);
    f->ops->add_bias(f->dense, w->k_bias, f->k, w->k.rows);
    f->ops->add_bias(f->dense, w->v_bias, f->v, w->v.rows);
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
    const void *in = f->ops->prepare(f->dense, 0, f->h.own, p->d_model, quantize);
    float *low = f->latent.q_low;
    const struct exec_product products[] = {{&w->kv_a, f->k, w->kv_a.rows, false},
                                            {first, w->q_a.tiles ? low : f->q, first->rows, false}};
    f->ops->multiply_several(f->dense, products, 2, in);
    if (w->q_a.tiles) {
        const struct norm_weights norm = {w->q_a_norm, NULL};
        f->ops->norm(f->dense, low, &norm, LATENT_NORM_EPS, p->q_rank, low);
        in = f->ops->prepare(f->dense, 0, low, p->q_rank, weights_quantize(&w->q_b));
        f->ops->multiply(f->dense, &w->q_b, in, f->q, false);
    }
    f->ops->place_latent(f->dense, layer, w, f->k, f->q, f->latent.absorbed);
    f->ops->multiply_heads(f->dense, &w->k_b, f->q, l->q_dim, f->latent.absorbed, l->k_dim);
}

/* Gates and scales what attention gives, where the layer does. */
static void gate_attended(struct forward *f, uint32_t layer)
{
    const struct model_params *p = f->params;
    const struct layer_params *l = &p->layers[layer];
    const struct matrix *gate = &f->weights->layers[layer].output_gate;
    uint32_t values = l->n_heads * l->o_dim;
    if (p->arch->query_gate)
        f->ops->gate_by_sigmoid(f->dense, f->query_gate, f->attended, values);
    if (gate->tiles) {
        struct gating by = {p->arch->output_gate == OUTPUT_GATE_SOFTPLUS ? ACTIVATION_SOFTPLUS
                                                                         : ACTIVATION_SIGMOID,
                            0};
        f->ops->gate_parts(f->dense, by, f->query_gate, f->attended, gate->rows,
                           values / gate->rows);
    }
    if (p->value_scale != 1)
        f->ops->scale(f->dense, p->value_scale, f->attended, values);
}

void forward_attention(struct forward *f, uint32_t layer)
{
    const struct model_params *p = f->params;
    const struct layer_params *l = &p->layers[layer];
    const struct layer_weights *w = &f->weights->layers[layer];
    if (p->arch->attention == ATTENTION_LATENT) {
        project_latent(f, layer);
        f->ops->attend(f->dense, layer, f->latent.absorbed, w->sinks, f->latent.context);
        f->ops->multiply_heads(f->dense, &w->v_b, f->latent.context, p->kv_rank, f->attended,
                               l->o_dim);
    } else {
        project_grouped(f, layer);
        f->ops->attend(f->dense, layer, f->q, w->sinks, f->attended);
        gate_attended(f, layer);
    }
    const void *in =
        f->ops->prepare(f->dense, 0, f->attended, l->n_heads * l->o_dim, weights_quantize(&w->o));
    bool normed = w->attn_post_norm.weight != NULL;
    float *out = normed ? f->added : f->x.own;
    f->ops->multiply(f->dense, &w->o, in, out, !normed);
    f->ops->add_bias(f->dense, w->o_bias, out, p->d_model);
    if (normed) {
        f->ops->norm(f->dense, out, &w->attn_post_norm, p->norm_eps, p->d_model, out);
        f->ops->add_rows(f->dense, out, f->x.own, p->d_model);
    }
}
