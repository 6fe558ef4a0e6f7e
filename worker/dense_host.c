/* The dense part on this process's threads; see dense.h. Everything is done when its call returns. */
#include "dense.h"

#include "base/checked.h"
#include "exec/attention.h"
#include "experts.h"
#include "kv_cache.h"
#include "model/router.h"

#include <stdlib.h>
#include <string.h>

/* Less is done sooner by the caller alone: rows with much to do, floats of rows with little. */
#define SHARED_ROWS   4
#define SHARED_FLOATS 32768
#define MOST_BUFFERS 48

struct dense_host {
    struct dense base;
    struct exec *exec;
    const struct kernels *kernels;
    struct kv_cache kv;
    struct attention *attention;
    struct attention_row *rows; /* [max_tokens] */
    const float *cos_sin;       /* of the batch */
    unsigned n_threads;
    float *sums;              /* [threads][d_model]: combine's */
    void **heads_activations; /* [threads]: multiply_heads' */
    void *buffers[MOST_BUFFERS];
    unsigned n_buffers;
};

static struct dense_host *host_of(struct dense *d)
{
    return (struct dense_host *)d;
}

static void host_free(struct dense *d)
{
    struct dense_host *h = host_of(d);
    while (h->n_buffers)
        free(h->buffers[--h->n_buffers]);
    attention_free(h->attention);
    kv_cache_free(&h->kv);
    free(h);
}

static void *host_allocate(struct dense *d, size_t bytes)
{
    struct dense_host *h = host_of(d);
    size_t whole = round_up(bytes ? bytes : 1, 64);
    void *memory = h->n_buffers < MOST_BUFFERS ? aligned_alloc(64, whole) : NULL;
    if (!memory)
        return NULL;
    memset(memory, 0, whole);
    h->buffers[h->n_buffers++] = memory;
    return memory;
}

static bool host_allocate_shared(struct dense *d, size_t bytes, struct dense_values *out)
{
    out->own = out->host = host_allocate(d, bytes);
    return out->own != NULL;
}

static void host_fetch(struct dense *d, const struct dense_values *v, size_t bytes)
{
    (void)d, (void)v, (void)bytes;
}

static enum error_code host_wait(struct dense *d, struct error *e)
{
    (void)d, (void)e;
    return ERROR_OK;
}

static const void *host_bring(struct dense *d, const void *host, size_t bytes)
{
    (void)d, (void)bytes;
    return host;
}

static void host_begin(struct dense *d, const struct batch_token *batch, uint32_t n,
                       const float *cos_sin, bool one_request)
{
    struct dense_host *h = host_of(d);
    exec_allow_blas(h->exec, one_request);
    d->batch = batch;
    d->n = n;
    h->cos_sin = cos_sin;
}

/* All positions of all slots are reserved, in address space. */
static enum dense_room host_reserve(struct dense *d, uint32_t slot, uint32_t positions)
{
    (void)d, (void)slot, (void)positions;
    return ROOM_NOW;
}

static void host_kv_resize(struct dense *d, uint64_t bytes)
{
    (void)d, (void)bytes;
}

static struct dense_kv_use host_kv_use(const struct dense *d)
{
    (void)d;
    return (struct dense_kv_use){0};
}

static void host_release_slot(struct dense *d, uint32_t slot)
{
    kv_cache_release(&host_of(d)->kv, slot);
}

/* ---- Rows ---- */

/* One thing to do for each row of the batch, or each head. */
struct host_job {
    struct dense_host *h;
    const struct layer_weights *w;
    uint32_t layer;
    float *q, *k;
    const float *v, *in, *up;
    float *out;
    const struct norm_weights *norm;
    float eps;
    uint32_t width; /* of the rows of in, up and out */
    /* multiply_heads */
    const struct head_matrices *heads;
    uint32_t in_head, out_head;
    /* combine */
    const struct experts *experts;
    const float *down_bias, *weights, *shared;
    const uint32_t *selected;
    /* route */
    const float *selection_bias;
    float *logits, *chosen_weights;
    uint32_t *chosen;
};

static void share_rows(pool_work *work, struct host_job *job, bool share)
{
    struct dense_host *h = job->h;
    if (share)
        exec_each(h->exec, work, job, h->base.n);
    else
        for (uint32_t t = 0; t < h->base.n; t++)
            work(job, 0, t);
}

static void each_row(pool_work *work, struct host_job *job)
{
    share_rows(work, job, job->h->base.n >= SHARED_ROWS);
}

/* Where a row of so many floats is soon done. */
static void each_short_row(pool_work *work, struct host_job *job, uint32_t width)
{
    share_rows(work, job, (uint64_t)job->h->base.n * width >= SHARED_FLOATS);
}

static void host_embed(struct dense *d, const struct matrix *m, float *out)
{
    for (uint32_t t = 0; t < d->n; t++)
        tile_unpack_row(m, d->batch[t].token, out + (size_t)t * m->cols);
}

static void norm_row(void *arg, unsigned thread, uint32_t t)
{
    const struct host_job *job = arg;
    const struct kernels *k = job->h->kernels;
    size_t width = job->width, at = t * width;
    (void)thread;
    if (job->norm->bias)
        k->layer_norm(job->in + at, job->norm->weight, job->norm->bias, job->eps, width, job->out + at);
    else
        k->rms_norm(job->in + at, job->norm->weight, job->eps, width, job->out + at);
}

static void host_norm(struct dense *d, const float *x, const struct norm_weights *w, float eps,
                      uint32_t width, float *out)
{
    struct host_job job = {.h = host_of(d), .in = x, .out = out, .norm = w, .eps = eps, .width = width};
    each_short_row(norm_row, &job, width);
}

static void host_add_bias(struct dense *d, const float *bias, float *rows, uint32_t width)
{
    for (size_t t = 0; bias && t < d->n; t++)
        host_of(d)->kernels->add(bias, rows + t * width, width);
}

static void gated_row(void *arg, unsigned thread, uint32_t t)
{
    const struct host_job *job = arg;
    size_t at = (size_t)t * job->width;
    (void)thread;
    job->h->kernels->gated(job->h->base.params->arch->activation, job->in + at, job->up + at,
                           job->out + at, job->width);
}

static void host_gated(struct dense *d, const float *gate, const float *up, uint32_t width,
                       float *h)
{
    struct host_job job = {.h = host_of(d), .in = gate, .up = up, .out = h, .width = width};
    each_short_row(gated_row, &job, width);
}

static void host_scale_by_sigmoid(struct dense *d, const float *by, float *rows, uint32_t width)
{
    for (size_t t = 0; t < d->n; t++) {
        float scale = 1.0f / (1.0f + kernels_exp(-by[t]));
        for (uint32_t i = 0; i < width; i++)
            rows[t * width + i] *= scale;
    }
}

/* ---- Products ---- */

static const void *host_prepare(struct dense *d, unsigned slot, const float *x, uint32_t cols,
                                bool quantize)
{
    return exec_prepare(host_of(d)->exec, slot, x, cols, d->n, cols, quantize);
}

static void host_multiply(struct dense *d, const struct matrix *m, const void *input, float *y,
                          bool accumulate)
{
    exec_multiply(host_of(d)->exec, m, input, y, m->rows, accumulate);
}

static void host_multiply_several(struct dense *d, const struct exec_product *products, unsigned n,
                                  const void *input)
{
    exec_multiply_several(host_of(d)->exec, products, n, input);
}

static void host_multiply_router(struct dense *d, const struct matrix *m, const void *input,
                                 float *y)
{
    exec_multiply_unrounded(host_of(d)->exec, m, input, y, m->rows, false);
}

static void multiply_head(void *arg, unsigned thread, uint32_t head)
{
    const struct host_job *job = arg;
    struct dense_host *h = job->h;
    size_t n_heads = h->base.params->n_heads;
    struct matrix plane = job->heads->first;
    plane.tiles = (const uint8_t *)plane.tiles + head * job->heads->bytes;
    struct activations a;
    act_bind(&a, h->heads_activations[thread], plane.cols, h->base.n,
             job->in + (size_t)head * job->in_head, n_heads * job->in_head);
    if (weights_quantize(&plane))
        h->kernels->quantize(&a, 0, h->base.n);
    h->kernels->multiply(&plane, 0, tile_row_count(plane.rows), &a, NULL, h->base.n,
                         job->out + (size_t)head * job->out_head, n_heads * job->out_head, false);
}

static void host_multiply_heads(struct dense *d, const struct head_matrices *m, const float *in,
                                uint32_t in_head, float *out, uint32_t out_head)
{
    struct dense_host *h = host_of(d);
    struct host_job job = {
        .h = h, .heads = m, .in = in, .in_head = in_head, .out = out, .out_head = out_head};
    exec_each(h->exec, multiply_head, &job, d->params->n_heads);
}

static enum error_code host_logits(struct dense *d, const struct matrix *m, const float *bias,
                                   const float *hidden, uint32_t n, bool one_request,
                                   float *logits, struct error *e)
{
    struct dense_host *h = host_of(d);
    (void)e;
    exec_allow_blas(h->exec, one_request); /* until the next batch begins */
    const struct activations *a =
        exec_prepare(h->exec, 0, hidden, m->cols, n, m->cols, weights_quantize(m));
    exec_multiply(h->exec, m, a, logits, m->rows, false);
    for (uint32_t t = 0; bias && t < n; t++)
        h->kernels->add(bias, logits + (size_t)t * m->rows, m->rows);
    return ERROR_OK;
}

/* ---- Attention ---- */

/* The norm (if the model has one) and the rotation of all heads of one row of q or k. */
static void norm_and_rotate(const struct dense_host *h, float *heads, uint32_t n_heads,
                            const float *norm, uint32_t t)
{
    const struct model_params *p = h->base.params;
    if (norm && p->arch->qk_norm_whole)
        h->kernels->rms_norm(heads, norm, p->norm_eps, (size_t)n_heads * p->k_dim, heads);
    for (uint32_t i = 0; i < n_heads; i++) {
        float *head = heads + (size_t)i * p->k_dim;
        if (norm && p->arch->qk_norm)
            h->kernels->rms_norm(head, norm, p->norm_eps, p->k_dim, head);
        rope_apply(head, p->rope.dims, h->cos_sin + (size_t)t * p->rope.dims, p->arch->rope_neox);
    }
}

/* Row t's keys and values of all KV heads. values NULL: they are the keys' first part. */
static void cache_row(const struct dense_host *h, uint32_t layer, uint32_t t, const float *keys,
                      const float *values)
{
    const struct model_params *p = h->base.params;
    const struct kv_cache *kv = &h->kv;
    const struct batch_token *b = &h->base.batch[t];
    uint8_t *k = kv_cache_keys(kv, layer, b->slot) + b->position * kv->key_bytes;
    uint8_t *v = kv_cache_values(kv, layer, b->slot) + b->position * kv->value_bytes;
    for (uint32_t head = 0; head < p->n_kv_heads; head++) {
        h->kernels->kv_write(kv->type, keys + (size_t)head * p->k_dim, p->k_dim,
                             k + head * kv->head_bytes);
        if (values)
            h->kernels->kv_write(kv->type, values + (size_t)head * p->v_dim, p->v_dim,
                                 v + head * kv->head_bytes);
    }
}

static void place_token(void *arg, unsigned thread, uint32_t t)
{
    const struct host_job *job = arg;
    const struct model_params *p = job->h->base.params;
    float *k = job->k + (size_t)t * p->n_kv_heads * p->k_dim;
    (void)thread;
    norm_and_rotate(job->h, job->q + (size_t)t * p->n_heads * p->k_dim, p->n_heads, job->w->q_norm,
                    t);
    norm_and_rotate(job->h, k, p->n_kv_heads, job->w->k_norm, t);
    cache_row(job->h, job->layer, t, k, job->v + (size_t)t * p->n_kv_heads * p->v_dim);
}

static void host_place_heads(struct dense *d, uint32_t layer, const struct layer_weights *w,
                             float *q, float *k, const float *v)
{
    each_row(place_token,
             &(struct host_job){.h = host_of(d), .w = w, .layer = layer, .q = q, .k = k, .v = v});
}

static void place_latent_row(void *arg, unsigned thread, uint32_t t)
{
    const struct host_job *job = arg;
    const struct dense_host *h = job->h;
    const struct model_params *p = h->base.params;
    uint32_t dims = p->rope.dims;
    const float *cos_sin = h->cos_sin + (size_t)t * dims;
    float *row = job->k + (size_t)t * p->k_dim;
    (void)thread;
    h->kernels->rms_norm(row, job->w->kv_a_norm, LATENT_NORM_EPS, p->kv_rank, row);
    rope_apply(row + p->kv_rank, dims, cos_sin, p->arch->rope_neox);
    for (uint32_t head = 0; head < p->n_heads; head++) {
        size_t at = (size_t)t * p->n_heads + head;
        float *rotated = job->out + at * p->k_dim + p->kv_rank;
        memcpy(rotated, job->in + (at + 1) * p->q_dim - dims, dims * sizeof *rotated);
        rope_apply(rotated, dims, cos_sin, p->arch->rope_neox);
    }
    cache_row(h, job->layer, t, row, NULL);
}

static void host_place_latent(struct dense *d, uint32_t layer, const struct layer_weights *w,
                              float *row, const float *q, float *absorbed)
{
    struct host_job job = {
        .h = host_of(d), .w = w, .layer = layer, .k = row, .in = q, .out = absorbed};
    exec_each(job.h->exec, place_latent_row, &job, d->n);
}

static void host_attend(struct dense *d, uint32_t layer, const float *q, const float *sinks,
                        float *out)
{
    struct dense_host *h = host_of(d);
    uint32_t window = params_window(d->params, layer);
    for (uint32_t t = 0; t < d->n; t++) {
        const struct batch_token *b = &d->batch[t];
        uint32_t end = b->position + 1;
        h->rows[t] = (struct attention_row){.keys = kv_cache_keys(&h->kv, layer, b->slot),
                                            .values = kv_cache_values(&h->kv, layer, b->slot),
                                            .first = window && end > window ? end - window : 0,
                                            .end = end};
    }
    attention_run(h->attention, h->rows, d->n, q, sinks, out);
}

/* ---- Around the experts ---- */

static void route_row(void *arg, unsigned thread, uint32_t t)
{
    const struct host_job *job = arg;
    const struct router_params *r = &job->h->base.params->router;
    (void)thread;
    router_select(r, job->logits + (size_t)t * r->n_experts, job->selection_bias,
                  job->chosen + (size_t)t * r->n_used, job->chosen_weights + (size_t)t * r->n_used);
}

static void host_route(struct dense *d, const float *selection_bias, float *logits,
                       uint32_t *selected, float *weights)
{
    struct host_job job = {.h = host_of(d),
                           .selection_bias = selection_bias,
                           .logits = logits,
                           .chosen = selected,
                           .chosen_weights = weights};
    each_short_row(route_row, &job, 8 * d->params->router.n_experts); /* choosing costs more than adding */
}

static void combine_token(void *arg, unsigned thread, uint32_t t)
{
    const struct host_job *job = arg;
    const struct kernels *kernels = job->h->kernels;
    size_t d = job->h->base.params->d_model;
    uint32_t n_used = job->h->base.params->router.n_used;
    float *sum = job->h->sums + thread * d;
    memset(sum, 0, d * sizeof *sum);
    for (uint32_t k = 0; k < n_used; k++) {
        float weight = job->weights[t * n_used + k];
        kernels->axpy(weight, experts_row(job->experts, t, k), sum, d);
        if (job->down_bias)
            kernels->axpy(weight, job->down_bias + job->selected[t * n_used + k] * d, sum, d);
    }
    if (job->shared)
        kernels->add(job->shared + t * d, sum, d);
    kernels->add(sum, job->out + t * d, d);
}

static void host_combine(struct dense *d, const struct experts *experts, const float *down_bias,
                         const float *weights, const uint32_t *selected, const float *shared,
                         float *x)
{
    each_row(combine_token, &(struct host_job){.h = host_of(d),
                                               .experts = experts,
                                               .down_bias = down_bias,
                                               .weights = weights,
                                               .selected = selected,
                                               .shared = shared,
                                               .out = x});
}

/* ---- */

static enum error_code make_attention(struct dense_host *h, struct error *e)
{
    const struct model_params *p = h->base.params;
    struct attention_shape shape = {.type = h->kv.type,
                                    .n_heads = p->n_heads,
                                    .n_kv_heads = p->n_kv_heads,
                                    .k_dim = p->k_dim,
                                    .v_dim = p->v_dim,
                                    .scale = p->attention_scale,
                                    .key_stride = h->kv.key_bytes,
                                    .value_stride = kv_cache_value_stride(&h->kv),
                                    .head_stride = h->kv.head_bytes};
    return attention_new(exec_pool(h->exec), &shape, h->base.max_tokens, &h->attention, e);
}

static bool allocate_scratch(struct dense_host *h)
{
    const struct model_params *p = h->base.params;
    uint32_t most = h->base.max_tokens;
    h->rows = host_allocate(&h->base, most * sizeof *h->rows);
    h->sums = host_allocate(&h->base, h->n_threads * sizeof(float) * p->d_model);
    if (!h->rows || !h->sums || !p->kv_rank)
        return h->rows && h->sums;
    size_t bytes = round_up(act_bytes(params_head_input(p), most), TILE_ALIGN);
    uint8_t *all = host_allocate(&h->base, h->n_threads * bytes);
    h->heads_activations = host_allocate(&h->base, h->n_threads * sizeof *h->heads_activations);
    if (!all || !h->heads_activations)
        return false;
    for (unsigned i = 0; i < h->n_threads; i++)
        h->heads_activations[i] = all + i * bytes;
    return true;
}

static enum error_code make_all(struct dense_host *h, const struct dense_options *options,
                                struct error *e)
{
    enum error_code code = kv_cache_new(&options->map->params, options->kv_type, options->n_slots,
                                        options->context, &h->kv, e);
    if (!code)
        code = make_attention(h, e);
    if (!code && !allocate_scratch(h))
        code = error_set(e, ERROR_MEMORY, "no memory for the scratch of %u tokens",
                         options->max_tokens);
    return code;
}

enum error_code dense_host_new(const struct dense_options *options, struct exec *exec,
                               struct dense **out, struct error *e)
{
    static const struct dense_ops ops = {.free = host_free,
                                         .allocate = host_allocate,
                                         .allocate_shared = host_allocate_shared,
                                         .fetch = host_fetch,
                                         .wait = host_wait,
                                         .bring = host_bring,
                                         .begin = host_begin,
                                         .reserve = host_reserve,
                                         .release_slot = host_release_slot,
                                         .kv_resize = host_kv_resize,
                                         .kv_use = host_kv_use,
                                         .embed = host_embed,
                                         .norm = host_norm,
                                         .prepare = host_prepare,
                                         .multiply = host_multiply,
                                         .multiply_several = host_multiply_several,
                                         .multiply_router = host_multiply_router,
                                         .multiply_heads = host_multiply_heads,
                                         .add_bias = host_add_bias,
                                         .place_heads = host_place_heads,
                                         .place_latent = host_place_latent,
                                         .attend = host_attend,
                                         .gated = host_gated,
                                         .scale_by_sigmoid = host_scale_by_sigmoid,
                                         .route = host_route,
                                         .combine = host_combine,
                                         .logits = host_logits};
    struct dense_host *h = calloc(1, sizeof *h);
    if (!h)
        return error_set(e, ERROR_MEMORY, "no memory for the dense part's tables");
    h->base = (struct dense){&ops, &options->map->params, options->max_tokens, NULL, 0};
    h->exec = exec;
    h->kernels = kernels_get();
    h->n_threads = pool_thread_count(exec_pool(exec));
    enum error_code code = make_all(h, options, e);
    if (code) {
        host_free(&h->base);
        return code;
    }
    *out = &h->base;
    return ERROR_OK;
}

void dense_free(struct dense *d)
{
    if (d)
        d->ops->free(d);
}
