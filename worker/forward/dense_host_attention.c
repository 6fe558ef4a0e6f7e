/* Attention on this process's threads; see dense.h. */
#include "dense_host_internal.h"

#include <string.h>

enum error_code dense_host_make_attention(struct dense_host *h, struct error *e)
{
    const struct model_params *p = h->base.params;
    const struct params_most most = params_most(p);
    for (uint32_t i = 0; i < p->n_layers; i++) {
        const struct layer_params *l = &p->layers[i];
        const struct kv_cache_layer *kv = &h->kv.layers[i];
        h->shapes[i] = (struct attention_shape){.type = h->kv.type,
                                                .n_heads = l->n_heads,
                                                .n_kv_heads = l->n_kv_heads,
                                                .k_dim = l->k_dim,
                                                .v_dim = l->v_dim,
                                                .scale = p->attention_scale,
                                                .key_stride = kv->key_bytes,
                                                .value_stride = kv_cache_value_stride(kv),
                                                .values_offset = kv->values_offset,
                                                .head_stride = kv->head_bytes,
                                                .layer_offset = kv->offset};
    }
    return attention_new(exec_pool(h->exec), most.heads, most.k_dim, most.v_dim, h->base.max_tokens,
                         &h->attention, e);
}

/* Norms and rotates, where the layer does, all heads of row t of q or k. */
static void norm_and_rotate(const struct dense_host *h, uint32_t layer, float *heads,
                            uint32_t n_heads, const float *norm, uint32_t t)
{
    const struct model_params *p = h->base.params;
    uint32_t k_dim = p->layers[layer].k_dim;
    const struct rope_params *rope = params_rope(p, layer);
    const float *cos_sin = h->cos_sin + (size_t)t * rope->dims;
    bool by_head = norm && p->arch->qk_norm, after = p->arch->qk_norm_after_rope;
    bool rotates = !p->layers[layer].unrotated;
    if (rope != &p->rope) /* its angles come after the other's */
        cos_sin += (size_t)h->base.n * p->rope.dims;
    if (norm && p->arch->qk_norm_whole)
        h->kernels->rms_norm(heads, norm, p->norm_eps, (size_t)n_heads * k_dim, heads);
    for (uint32_t i = 0; i < n_heads; i++) {
        float *head = heads + (size_t)i * k_dim;
        if (by_head && !after)
            h->kernels->rms_norm(head, norm, p->norm_eps, k_dim, head);
        if (rotates)
            rope_apply(head, rope->dims, cos_sin, p->arch->rope_neox);
        if (by_head && after)
            h->kernels->rms_norm(head, norm, p->norm_eps, k_dim, head);
    }
}

/* Writes row t's keys and values of all KV heads into the cache. values NULL: they are the keys'
 * first part. */
static void cache_row(const struct dense_host *h, uint32_t layer, uint32_t t, const float *keys,
                      const float *values)
{
    const struct layer_params *l = &h->base.params->layers[layer];
    const struct kv_cache_layer *kv = &h->kv.layers[layer];
    const struct batch_token *b = &h->base.batch[t];
    uint8_t *page = kv_cache_pages(&h->kv, b->slot, kv->group)[b->position / KV_PAGE] + kv->offset;
    uint8_t *k = page + b->position % KV_PAGE * kv->key_bytes;
    uint8_t *v = page + kv->values_offset + b->position % KV_PAGE * kv->value_bytes;
    for (uint32_t head = 0; head < l->n_kv_heads; head++) {
        h->kernels->kv_write(h->kv.type, keys + (size_t)head * l->k_dim, l->k_dim,
                             k + head * kv->head_bytes);
        if (values)
            h->kernels->kv_write(h->kv.type, values + (size_t)head * l->v_dim, l->v_dim,
                                 v + head * kv->head_bytes);
    }
}

struct heads_job {
    const struct dense_host *h;
    uint32_t layer;
    const struct layer_weights *w;
    float *q, *k, *v; /* [n][n_heads][k_dim], [n][n_kv_heads][k_dim], [n][n_kv_heads][v_dim] */
};

/* Values are normed without weights. A layer without values takes k, before its norm. */
static void norm_values(const struct heads_job *job, const float *k, float *v)
{
    const struct model_params *p = job->h->base.params;
    const struct layer_params *l = &p->layers[job->layer];
    const float *from = job->w->v.tiles ? v : k;
    for (size_t i = 0; i < l->n_kv_heads; i++)
        job->h->kernels->rms_norm(from + i * l->v_dim, NULL, p->norm_eps, l->v_dim,
                                  v + i * l->v_dim);
}

static void place_token(void *arg, unsigned thread, uint32_t t)
{
    const struct heads_job *job = arg;
    const struct layer_params *l = &job->h->base.params->layers[job->layer];
    float *k = job->k + (size_t)t * l->n_kv_heads * l->k_dim;
    float *v = job->v + (size_t)t * l->n_kv_heads * l->v_dim;
    (void)thread;
    float *q = job->q + (size_t)t * l->n_heads * l->k_dim;
    if (job->h->base.params->arch->value_norm)
        norm_values(job, k, v);
    norm_and_rotate(job->h, job->layer, q, l->n_heads, job->w->q_norm, t);
    norm_and_rotate(job->h, job->layer, k, l->n_kv_heads, job->w->k_norm, t);
    cache_row(job->h, job->layer, t, k, v);
}

void dense_host_place_heads(struct dense *d, uint32_t layer, const struct layer_weights *w,
                            float *q, float *k, float *v)
{
    struct dense_host *h = dense_host_of(d);
    dense_host_each_row(h, place_token, &(struct heads_job){h, layer, w, q, k, v});
}

struct latent_job {
    const struct dense_host *h;
    uint32_t layer;
    const struct layer_weights *w;
    float *row;      /* [n][k_dim] */
    float *q;        /* [n][n_heads][q_dim] */
    float *absorbed; /* [n][n_heads][k_dim] */
};

static void scale_queries(const struct dense_host *h, uint32_t t, float *q, size_t n)
{
    float scale = params_query_scale(h->base.params, h->base.batch[t].position);
    for (size_t i = 0; i < n; i++)
        q[i] *= scale;
}

static void place_latent_row(void *arg, unsigned thread, uint32_t t)
{
    const struct latent_job *job = arg;
    const struct dense_host *h = job->h;
    const struct model_params *p = h->base.params;
    const struct layer_params *l = &p->layers[job->layer];
    uint32_t dims = p->rope.dims;
    const float *cos_sin = h->cos_sin + (size_t)t * dims;
    float *row = job->row + (size_t)t * l->k_dim;
    (void)thread;
    h->kernels->rms_norm(row, job->w->kv_a_norm, LATENT_NORM_EPS, p->kv_rank, row);
    rope_apply(row + p->kv_rank, dims, cos_sin, p->arch->rope_neox);
    if (p->temperature_scale > 0)
        scale_queries(h, t, job->q + (size_t)t * l->n_heads * l->q_dim,
                      (size_t)l->n_heads * l->q_dim);
    for (uint32_t head = 0; head < l->n_heads; head++) {
        size_t at = (size_t)t * l->n_heads + head;
        float *rotated = job->absorbed + at * l->k_dim + p->kv_rank;
        memcpy(rotated, job->q + (at + 1) * l->q_dim - dims, dims * sizeof *rotated);
        rope_apply(rotated, dims, cos_sin, p->arch->rope_neox);
    }
    cache_row(h, job->layer, t, row, NULL);
}

void dense_host_place_latent(struct dense *d, uint32_t layer, const struct layer_weights *w,
                             float *row, float *q, float *absorbed)
{
    struct dense_host *h = dense_host_of(d);
    exec_each(h->exec, place_latent_row, &(struct latent_job){h, layer, w, row, q, absorbed}, d->n);
}

void dense_host_attend(struct dense *d, uint32_t layer, const float *q, const float *sinks,
                       float *out)
{
    struct dense_host *h = dense_host_of(d);
    uint32_t window = d->params->layers[layer].window, group = h->kv.layers[layer].group;
    for (uint32_t t = 0; t < d->n; t++) {
        const struct batch_token *b = &d->batch[t];
        uint32_t end = b->position + 1;
        h->rows[t] = (struct attention_row){
            .pages = (const uint8_t *const *)kv_cache_pages(&h->kv, b->slot, group),
            .first = window && end > window ? end - window : 0,
            .end = end};
    }
    attention_run(h->attention, &h->shapes[layer], h->rows, d->n, q, sinks, out);
}
