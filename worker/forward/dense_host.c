/* The dense part on this process's threads; see dense.h. An operation is done when its call
 * returns. */
#include "dense_host_internal.h"

#include "base/checked.h"
#include "worker/experts/experts.h"
#include "model/router.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* For fewer floats the calling thread is faster without the others. */
#define SHARED_FLOATS 32768

static void host_free(struct dense *d)
{
    struct dense_host *h = dense_host_of(d);
    dense_host_free_states(h);
    while (h->n_buffers)
        free(h->buffers[--h->n_buffers]);
    attention_free(h->attention);
    kv_cache_free(&h->kv);
    free(h->shapes);
    free(h);
}

static void *host_allocate(struct dense *d, size_t bytes)
{
    struct dense_host *h = dense_host_of(d);
    size_t whole = round_up(bytes ? bytes : 1, 64);
    void *memory = h->n_buffers < DENSE_HOST_BUFFERS ? aligned_alloc(64, whole) : NULL;
    if (!memory)
        return NULL;
    memset(memory, 0, whole);
    h->buffers[h->n_buffers++] = memory;
    return memory;
}

static bool host_allocate_shared(struct dense *d, size_t bytes, struct mirrored_values *out)
{
    out->own = out->host = host_allocate(d, bytes);
    return out->own != NULL;
}

static void host_fetch(struct dense *d, const struct mirrored_values *v, size_t bytes)
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
                       const float *cos_sin, const struct row_groups *groups)
{
    struct dense_host *h = dense_host_of(d);
    exec_set_groups(h->exec, groups);
    d->batch = batch;
    d->n = n;
    h->cos_sin = cos_sin;
}

static bool host_put_page(struct dense *d, uint32_t slot, struct kv_place place, uint8_t *page,
                          uint32_t filled)
{
    (void)filled;
    kv_cache_pages(&dense_host_of(d)->kv, slot, place.group)[place.index] = page;
    return true;
}

static void host_save_page(struct dense *d, uint32_t slot, struct kv_place place)
{
    (void)d, (void)slot, (void)place;
}

static void host_pass_pages(struct dense *d, uint32_t slot, uint32_t first, uint32_t end)
{
    (void)end;
    for (uint32_t group = 1; group < d->kv.n_groups; group++) {
        uint8_t **pages = kv_cache_pages(&dense_host_of(d)->kv, slot, group);
        for (uint32_t i = first; i > 0 && pages[i - 1]; i--)
            pages[i - 1] = NULL;
    }
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
    const struct kv_cache *c = &dense_host_of(d)->kv;
    for (uint32_t group = 0; group < c->n_groups; group++)
        memset(kv_cache_pages(c, slot, group), 0, c->pages_a_slot * sizeof *c->pages);
}

/* ---- Rows ---- */

/* For work of some operations a float, `width` floats a row. */
static void each_short_row(struct dense_host *h, pool_work *work, void *job, uint32_t width)
{
    dense_host_share_rows(h, work, job, (uint64_t)h->base.n * width >= SHARED_FLOATS);
}

static void host_embed(struct dense *d, const struct matrix *m, float *out)
{
    for (uint32_t t = 0; t < d->n; t++)
        tile_unpack_row(m, d->batch[t].token, out + (size_t)t * m->cols);
}

struct norm_job {
    const struct dense_host *h;
    const struct norm_weights *norm;
    float eps;
    uint32_t width;
    const float *in; /* [n][width] */
    float *out;      /* [n][width] */
};

static void norm_row(void *arg, unsigned thread, uint32_t t)
{
    const struct norm_job *job = arg;
    const struct kernels *k = job->h->kernels;
    size_t width = job->width, at = t * width;
    (void)thread;
    const float *bias = job->norm->centred ? job->h->zeros : job->norm->bias;
    if (bias)
        k->layer_norm(job->in + at, job->norm->weight, bias, job->eps, width, job->out + at);
    else
        k->rms_norm(job->in + at, job->norm->weight, job->eps, width, job->out + at);
}

static void host_norm(struct dense *d, const float *x, const struct norm_weights *w, float eps,
                      uint32_t width, float *out)
{
    struct dense_host *h = dense_host_of(d);
    each_short_row(h, norm_row, &(struct norm_job){h, w, eps, width, x, out}, width);
}

static void add_bias(struct dense *d, const float *bias, float *rows, uint32_t width)
{
    for (size_t t = 0; bias && t < d->n; t++)
        dense_host_of(d)->kernels->add(bias, rows + t * width, width);
}

struct gated_job {
    const struct dense_host *h;
    struct gating gating;
    uint32_t width;
    const float *gate, *up; /* [n][width] */
    float *out;             /* [n][width] */
};

static void gated_row(void *arg, unsigned thread, uint32_t t)
{
    const struct gated_job *job = arg;
    size_t at = (size_t)t * job->width;
    (void)thread;
    job->h->kernels->gated(job->gating, job->gate + at, job->up + at, job->out + at, job->width);
}

static void host_scale(struct dense *d, float by, float *rows, uint32_t width)
{
    for (size_t i = 0; i < (size_t)d->n * width; i++)
        rows[i] *= by;
}

static void host_clear(struct dense *d, float *rows, uint32_t width)
{
    memset(rows, 0, (size_t)d->n * width * sizeof *rows);
}

static void host_norm_add(struct dense *d, float *x, const struct norm_weights *w, float eps,
                          uint32_t width, float by, float *rows)
{
    host_norm(d, x, w, eps, width, x);
    dense_host_of(d)->kernels->add(x, rows, (size_t)d->n * width);
    if (by != 1)
        host_scale(d, by, rows, width);
}

static void scale_by_sigmoid(struct dense *d, const float *by, float *rows, uint32_t width)
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
    struct dense_host *h = dense_host_of(d);
    return h->prepared[slot] = exec_prepare(h->exec, slot, x, cols, d->n, cols, quantize);
}

static const void *host_prepared(struct dense *d, unsigned slot, const float *x, uint32_t cols,
                                 bool quantize)
{
    (void)x;
    (void)cols;
    (void)quantize;
    return dense_host_of(d)->prepared[slot];
}

static const void *host_norm_prepare(struct dense *d, unsigned slot, const float *x,
                                     const struct norm_weights *w, float eps, uint32_t width,
                                     float *out, bool quantize)
{
    host_norm(d, x, w, eps, width, out);
    return host_prepare(d, slot, out, width, quantize);
}

static void host_multiply(struct dense *d, const struct matrix *m, const void *input, float *y,
                          bool accumulate)
{
    exec_multiply(dense_host_of(d)->exec, m, input, y, m->rows, accumulate);
}

static void host_multiply_several(struct dense *d, const struct dense_product *products, unsigned n,
                                  const void *input)
{
    struct exec *x = dense_host_of(d)->exec;
    struct exec_product to[DENSE_PRODUCTS];
    unsigned n_to = 0;
    assert(n <= DENSE_PRODUCTS);
    for (unsigned i = 0; i < n; i++) {
        const struct dense_product *p = &products[i];
        if (p->defined)
            exec_multiply_defined(x, p->m, input, p->y, p->m->rows, p->accumulate);
        else
            to[n_to++] = (struct exec_product){p->m, p->y, p->m->rows, p->accumulate};
    }
    if (n_to)
        exec_multiply_several(x, to, n_to, input);
    for (unsigned i = 0; i < n; i++)
        add_bias(d, products[i].bias, products[i].y, products[i].m->rows);
}

static const void *host_multiply_gated(struct dense *d, unsigned slot, struct gating g,
                                       const struct matrix *gate, const struct matrix *up,
                                       const void *input, float *h, float *up_values, bool quantize)
{
    const struct dense_product products[] = {{up, up_values, false, NULL, false},
                                             {gate, h, false, NULL, false}};
    bool gated = gate->tiles != NULL;
    struct gated_job job = {dense_host_of(d), g, up->rows, gated ? h : up_values, up_values, h};
    host_multiply_several(d, products, gated ? 2 : 1, input);
    each_short_row(dense_host_of(d), gated_row, &job, up->rows);
    return host_prepare(d, slot, h, up->rows, quantize);
}

struct heads_job {
    struct dense_host *h;
    const struct head_matrices *heads;
    const float *in; /* [n][n_heads][in_head] */
    uint32_t in_head;
    float *out; /* [n][n_heads][out_head] */
    uint32_t out_head;
};

static void multiply_head(void *arg, unsigned thread, uint32_t head)
{
    const struct heads_job *job = arg;
    struct dense_host *h = job->h;
    size_t n_heads = job->heads->n;
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
    struct dense_host *h = dense_host_of(d);
    struct heads_job job = {h, m, in, in_head, out, out_head};
    exec_each(h->exec, multiply_head, &job, m->n);
}

static enum error_code host_logits(struct dense *d, const struct matrix *m, const float *bias,
                                   const float *hidden, uint32_t n, bool bulk, float *logits,
                                   struct error *e)
{
    struct dense_host *h = dense_host_of(d);
    (void)e;
    const struct row_groups all = {&(struct row_group){0, n}, bulk};
    exec_set_groups(h->exec, &all); /* holds until the next batch begins */
    const struct activations *a =
        exec_prepare(h->exec, 0, hidden, m->cols, n, m->cols, weights_quantize(m));
    exec_multiply(h->exec, m, a, logits, m->rows, false);
    for (uint32_t t = 0; bias && t < n; t++)
        h->kernels->add(bias, logits + (size_t)t * m->rows, m->rows);
    return ERROR_OK;
}

static const void *host_attend_prepare(struct dense *d, unsigned slot, uint32_t layer,
                                       const float *q, const float *sinks, const float *gate,
                                       float *out, bool quantize)
{
    const struct layer_params *l = &d->params->layers[layer];
    uint32_t width = l->n_heads * l->o_dim;
    dense_host_attend(d, layer, q, sinks, out);
    if (gate)
        dense_host_gate_by_sigmoid(d, gate, out, width);
    return host_prepare(d, slot, out, width, quantize);
}

static const void *host_delta_prepare(struct dense *d, unsigned slot, uint32_t layer,
                                      const struct layer_weights *w, const struct delta_inputs *in,
                                      float *out, bool quantize)
{
    dense_host_delta(d, layer, w, in, out);
    return host_prepare(d, slot, out, w->o.cols, quantize);
}

static const void *host_mamba2_prepare(struct dense *d, unsigned slot, uint32_t layer,
                                       const struct layer_weights *w,
                                       const struct mamba2_inputs *in, float *out, bool quantize)
{
    dense_host_mamba2(d, layer, w, in, out);
    return host_prepare(d, slot, out, w->mamba2.out.cols, quantize);
}

/* ---- Around the experts ---- */

struct route_job {
    const struct dense_host *h;
    const float *selection_bias;
    float *logits;
    uint32_t *selected;
    float *weights;
};

static void route_row(void *arg, unsigned thread, uint32_t t)
{
    const struct route_job *job = arg;
    const struct router_params *r = &job->h->base.params->router;
    (void)thread;
    router_select(r, job->logits + (size_t)t * r->n_experts, job->selection_bias,
                  job->selected + (size_t)t * r->n_used, job->weights + (size_t)t * r->n_used);
}

static void host_gate(struct dense *d, const struct dense_gate *g)
{
    struct dense_host *h = dense_host_of(d);
    const struct layer_weights *w = g->w;
    struct route_job job = {h, w->selection_bias, g->logits, g->selected, g->weights};
    exec_multiply_defined(h->exec, g->router, g->in, g->logits, g->router->rows, false);
    add_bias(d, w->router_bias, g->logits, g->router->rows);
    each_short_row(
        h, route_row, &job,
        8 * d->params->router.n_experts); /* choosing costs more than adding: 8 times, about */
    for (size_t i = 0; w->expert_scales && i < (size_t)d->n * d->params->router.n_used; i++)
        g->weights[i] *= w->expert_scales[g->selected[i]];
    if (g->shared_by)
        exec_multiply_defined(h->exec, &w->shared_gate_input, g->in, g->shared_by, 1, false);
}

static bool host_again(struct dense *d, enum dense_graph kind, uint32_t layer, uint32_t n_layers)
{
    (void)d;
    (void)kind;
    (void)layer;
    (void)n_layers;
    return false;
}

static bool host_keep(struct dense *d)
{
    (void)d;
    return true;
}

struct combine_job {
    const struct dense_host *h;
    const struct experts *experts;
    const float *down_bias, *weights;
    const uint32_t *selected;
    const float *shared;
    float *x;
};

static void combine_token(void *arg, unsigned thread, uint32_t t)
{
    const struct combine_job *job = arg;
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
    kernels->add(sum, job->x + t * d, d);
}

static void host_combine(struct dense *d, const struct experts *experts, const float *down_bias,
                         const float *weights, const uint32_t *selected, float *shared,
                         const float *shared_by, float *x)
{
    struct dense_host *h = dense_host_of(d);
    if (shared_by)
        scale_by_sigmoid(d, shared_by, shared, d->params->d_model);
    struct combine_job job = {h, experts, down_bias, weights, selected, shared, x};
    dense_host_each_row(h, combine_token, &job);
}

/* ---- Making it ---- */

static bool allocate_scratch(struct dense_host *h)
{
    const struct model_params *p = h->base.params;
    uint32_t most = h->base.max_tokens;
    h->rows = host_allocate(&h->base, most * sizeof *h->rows);
    h->sums = host_allocate(&h->base, h->n_threads * sizeof(float) * p->d_model);
    h->zeros = host_allocate(&h->base, sizeof(float) * p->d_model);
    if (!h->rows || !h->sums || !h->zeros || !p->kv_rank)
        return h->rows && h->sums && h->zeros;
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
    const struct model_params *p = &options->map->params;
    kv_layout_make(p, options->kv_type, &h->base.kv);
    enum error_code code = kv_cache_new(p, options->kv_type, &h->base.kv, options->n_slots,
                                        options->context, &h->kv, e);
    h->shapes = calloc(p->n_layers, sizeof *h->shapes);
    if (!code && !h->shapes)
        code = error_set(e, ERROR_MEMORY, "no memory for the table of layers");
    if (!code)
        code = dense_host_make_attention(h, e);
    if (!code)
        code = dense_host_make_states(h, options->n_slots, e);
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
                                         .put_page = host_put_page,
                                         .save_page = host_save_page,
                                         .pass_pages = host_pass_pages,
                                         .release_slot = host_release_slot,
                                         .kv_resize = host_kv_resize,
                                         .kv_use = host_kv_use,
                                         .embed = host_embed,
                                         .norm = host_norm,
                                         .norm_add = host_norm_add,
                                         .prepare = host_prepare,
                                         .prepared = host_prepared,
                                         .norm_prepare = host_norm_prepare,
                                         .multiply = host_multiply,
                                         .multiply_several = host_multiply_several,
                                         .multiply_gated = host_multiply_gated,
                                         .multiply_heads = host_multiply_heads,
                                         .place_heads = dense_host_place_heads,
                                         .place_latent = dense_host_place_latent,
                                         .attend = dense_host_attend,
                                         .attend_prepare = host_attend_prepare,
                                         .split_gate = dense_host_split_gate,
                                         .gate_parts = dense_host_gate_parts,
                                         .split_delta = dense_host_split_delta,
                                         .delta_prepare = host_delta_prepare,
                                         .mamba2_prepare = host_mamba2_prepare,
                                         .short_convolution = dense_host_short_convolution,
                                         .save_state = dense_host_save_state,
                                         .load_state = dense_host_load_state,
                                         .scale = host_scale,
                                         .clear = host_clear,
                                         .gate = host_gate,
                                         .again = host_again,
                                         .keep = host_keep,
                                         .combine = host_combine,
                                         .logits = host_logits};
    struct dense_host *h = calloc(1, sizeof *h);
    if (!h)
        return error_set(e, ERROR_MEMORY, "no memory for the dense part's tables");
    h->base = (struct dense){
        .ops = &ops, .params = &options->map->params, .max_tokens = options->max_tokens};
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
