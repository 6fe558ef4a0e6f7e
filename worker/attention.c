/* Attention of a layer over the KV cache; see forward_internal.h. Latent attention's projections stand in
 * attention_latent.c. */
#include "forward_internal.h"

#include <math.h>
#include <string.h>

void forward_add_bias(const struct forward *f, float *rows, const float *bias, size_t n)
{
    for (uint32_t t = 0; bias && t < f->n; t++)
        f->kernels->add(bias, rows + t * n, n);
}

static void project(struct forward *f, const struct layer_weights *w)
{
    const struct model_params *p = f->params;
    uint32_t nq = p->n_heads * p->k_dim, nk = p->n_kv_heads * p->k_dim;
    uint32_t nv = p->n_kv_heads * p->v_dim;
    bool quantize = weights_quantize(&w->q) || weights_quantize(&w->k) || weights_quantize(&w->v);
    const struct activations *a =
        exec_prepare(f->exec, 0, f->h, p->d_model, f->n, p->d_model, quantize);
    exec_multiply(f->exec, &w->q, a, f->q, nq, false);
    exec_multiply(f->exec, &w->k, a, f->k, nk, false);
    exec_multiply(f->exec, &w->v, a, f->v, nv, false);
    forward_add_bias(f, f->q, w->q_bias, nq);
    forward_add_bias(f, f->k, w->k_bias, nk);
    forward_add_bias(f, f->v, w->v_bias, nv);
}

/* The norm (if the model has one) and the rotation of all heads of one row of q or k. */
static void norm_and_rotate(const struct forward *f, float *heads, uint32_t n_heads,
                            const float *norm, uint32_t t)
{
    const struct model_params *p = f->params;
    if (norm && p->arch->qk_norm_whole)
        f->kernels->rms_norm(heads, norm, p->norm_eps, (size_t)n_heads * p->k_dim, heads);
    for (uint32_t i = 0; i < n_heads; i++) {
        float *head = heads + (size_t)i * p->k_dim;
        if (norm && p->arch->qk_norm)
            f->kernels->rms_norm(head, norm, p->norm_eps, p->k_dim, head);
        rope_apply(head, p->rope.dims, f->rope + (size_t)t * p->rope.dims, p->arch->rope_neox);
    }
}

struct attention_job {
    struct forward *f;
    uint32_t layer;
};

void forward_cache_row(struct forward *f, uint32_t layer, uint32_t t, const float *keys,
                       const float *values)
{
    const struct model_params *p = f->params;
    const struct kv_cache *kv = f->kv;
    const struct batch_token *b = &f->batch[t];
    uint8_t *k = kv_cache_keys(kv, layer, b->slot) + b->position * kv->key_bytes;
    uint8_t *v = kv_cache_values(kv, layer, b->slot) + b->position * kv->value_bytes;
    for (uint32_t head = 0; head < p->n_kv_heads; head++) {
        f->kernels->kv_write(kv->type, keys + (size_t)head * p->k_dim, p->k_dim,
                             k + head * kv->head_bytes);
        if (values)
            f->kernels->kv_write(kv->type, values + (size_t)head * p->v_dim, p->v_dim,
                                 v + head * kv->head_bytes);
    }
}

/* Row t's heads, normed and rotated; its keys and values into the cache. */
static void place_token(void *arg, unsigned thread, uint32_t t)
{
    const struct attention_job *job = arg;
    struct forward *f = job->f;
    const struct model_params *p = f->params;
    const struct layer_weights *w = &f->weights->layers[job->layer];
    (void)thread;
    norm_and_rotate(f, f->q + (size_t)t * p->n_heads * p->k_dim, p->n_heads, w->q_norm, t);
    norm_and_rotate(f, f->k + (size_t)t * p->n_kv_heads * p->k_dim, p->n_kv_heads, w->k_norm, t);
    forward_cache_row(f, job->layer, t, f->k + (size_t)t * p->n_kv_heads * p->k_dim,
                      f->v + (size_t)t * p->n_kv_heads * p->v_dim);
}

static void project_grouped(struct forward *f, uint32_t layer)
{
    struct attention_job job = {f, layer};
    project(f, &f->weights->layers[layer]);
    if (f->n < 4)
        for (uint32_t t = 0; t < f->n; t++)
            place_token(&job, 0, t);
    else
        exec_each(f->exec, place_token, &job, f->n);
}

/* All heads of all rows over the positions up to each row's own that the layer's window reaches. */
static void attend(struct forward *f, uint32_t layer, const float *q, float *out)
{
    uint32_t window = params_window(f->params, layer);
    for (uint32_t t = 0; t < f->n; t++) {
        const struct batch_token *b = &f->batch[t];
        uint32_t end = b->position + 1;
        f->rows[t] = (struct attention_row){.keys = kv_cache_keys(f->kv, layer, b->slot),
                                            .values = kv_cache_values(f->kv, layer, b->slot),
                                            .first = window && end > window ? end - window : 0,
                                            .end = end};
    }
    attention_run(f->attention, f->rows, f->n, q, f->weights->layers[layer].sinks, out);
}

void forward_attention(struct forward *f, uint32_t layer)
{
    const struct model_params *p = f->params;
    const struct layer_weights *w = &f->weights->layers[layer];
    bool latent = p->arch->attention == ATTENTION_LATENT;
    if (latent)
        latent_project(f, layer);
    else
        project_grouped(f, layer);
    attend(f, layer, latent ? f->latent.absorbed : f->q, latent ? f->latent.context : f->attended);
    if (latent)
        latent_expand(f, w);
    uint32_t width = p->n_heads * p->o_dim;
    const struct activations *a =
        exec_prepare(f->exec, 0, f->attended, width, f->n, width, weights_quantize(&w->o));
    exec_multiply(f->exec, &w->o, a, f->x, p->d_model, true);
    forward_add_bias(f, f->x, w->o_bias, p->d_model);
}
