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
    const struct batch_token *b = &f->batch[t];
    size_t nk = p->n_kv_heads * p->k_dim, nv = p->n_kv_heads * p->v_dim;
    size_t at = (size_t)b->position * f->kv->row_values;
    memcpy(kv_cache_keys(f->kv, job->layer, b->slot) + at, f->k + t * nk, nk * sizeof(float));
    memcpy(kv_cache_values(f->kv, job->layer, b->slot) + at, f->v + t * nv, nv * sizeof(float));
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

/* One head of one row over all positions up to its own that its layer's window reaches. */
static void attend_head(void *arg, unsigned thread, uint32_t chunk)
{
    const struct attention_job *job = arg;
    struct forward *f = job->f;
    const struct model_params *p = f->params;
    const struct layer_weights *w = &f->weights->layers[job->layer];
    bool latent = p->arch->attention == ATTENTION_LATENT;
    uint32_t t = chunk / p->n_heads, head = chunk % p->n_heads;
    uint32_t kv_head = head / (p->n_heads / p->n_kv_heads);
    const struct batch_token *b = &f->batch[t];
    uint32_t window = params_window(p, job->layer), n = b->position + 1;
    size_t first = window && n > window ? (size_t)(n - window) * f->kv->row_values : 0;
    n = window && n > window ? window : n;
    const float *keys =
        kv_cache_keys(f->kv, job->layer, b->slot) + first + (size_t)kv_head * p->k_dim;
    const float *values =
        kv_cache_values(f->kv, job->layer, b->slot) + first + (size_t)kv_head * p->v_dim;
    f->kernels->attend((latent ? f->latent.absorbed : f->q) + (size_t)chunk * p->k_dim, keys,
                       values, f->kv->row_values, n, p->k_dim, p->v_dim, p->attention_scale,
                       w->sinks ? &w->sinks[head] : NULL,
                       f->scores + thread * ((size_t)f->kv->context + 1),
                       (latent ? f->latent.context : f->attended) + (size_t)chunk * p->v_dim);
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
    exec_each(f->exec, attend_head, &(struct attention_job){f, layer}, f->n * p->n_heads);
    if (latent)
        latent_expand(f, w);
    uint32_t width = p->n_heads * p->o_dim;
    const struct activations *a =
        exec_prepare(f->exec, 0, f->attended, width, f->n, width, weights_quantize(&w->o));
    exec_multiply(f->exec, &w->o, a, f->x, p->d_model, true);
    forward_add_bias(f, f->x, w->o_bias, p->d_model);
}
