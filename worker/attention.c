/* Attention of a layer over the KV cache; see forward_internal.h. */
#include "forward_internal.h"

#include <math.h>
#include <string.h>

static void add_bias(const struct forward *f, float *rows, const float *bias, size_t n)
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
    add_bias(f, f->q, w->q_bias, nq);
    add_bias(f, f->k, w->k_bias, nk);
    add_bias(f, f->v, w->v_bias, nv);
}

/* The norm (if the model has one) and the rotation of all heads of one row of q or k. */
static void norm_and_rotate(const struct forward *f, float *heads, uint32_t n_heads,
                            const float *norm, uint32_t t)
{
    const struct model_params *p = f->params;
    if (norm && p->arch->qk_norm_whole)
        f->kernels->rms_norm(heads, norm, p->rms_eps, (size_t)n_heads * p->k_dim, heads);
    for (uint32_t i = 0; i < n_heads; i++) {
        float *head = heads + (size_t)i * p->k_dim;
        if (norm && p->arch->qk_norm)
            f->kernels->rms_norm(head, norm, p->rms_eps, p->k_dim, head);
        rope_apply(head, p->rope_dims, f->rope + (size_t)t * p->rope_dims, p->arch->rope_neox);
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

/* One head of one row over all positions up to its own. */
static void attend_head(void *arg, unsigned thread, uint32_t chunk)
{
    const struct attention_job *job = arg;
    struct forward *f = job->f;
    const struct model_params *p = f->params;
    uint32_t t = chunk / p->n_heads, head = chunk % p->n_heads;
    uint32_t kv_head = head / (p->n_heads / p->n_kv_heads);
    const struct batch_token *b = &f->batch[t];
    const float *keys = kv_cache_keys(f->kv, job->layer, b->slot) + (size_t)kv_head * p->k_dim;
    const float *values = kv_cache_values(f->kv, job->layer, b->slot) + (size_t)kv_head * p->v_dim;
    f->kernels->attend(f->q + ((size_t)t * p->n_heads + head) * p->k_dim, keys, values,
                       f->kv->row_values, b->position + 1, p->k_dim, p->v_dim, 1.0f / sqrtf((float)p->k_dim), f->scores + (size_t)thread * f->kv->context,
                       f->attended + ((size_t)t * p->n_heads + head) * p->v_dim);
}

void forward_attention(struct forward *f, uint32_t layer)
{
    const struct model_params *p = f->params;
    const struct layer_weights *w = &f->weights->layers[layer];
    struct attention_job job = {f, layer};
    project(f, w);
    if (f->n < 4)
        for (uint32_t t = 0; t < f->n; t++)
            place_token(&job, 0, t);
    else
        exec_each(f->exec, place_token, &job, f->n);
    exec_each(f->exec, attend_head, &job, f->n * p->n_heads);
    uint32_t width = p->n_heads * p->v_dim;
    const struct activations *a =
        exec_prepare(f->exec, 0, f->attended, width, f->n, width, weights_quantize(&w->o));
    exec_multiply(f->exec, &w->o, a, f->x, p->d_model, true);
}
