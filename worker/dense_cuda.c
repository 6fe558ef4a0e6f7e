/* The dense part on a CUDA device; see dense.h.
 *
 * Everything is queued on the worker's one stream, in the order of the calls. What the device reads of host memory goes
 * through pinned memory of ours: the batch's tables once a step, the rest through `staged`, which is free again after each
 * wait. The KV cache lies in pages that slots reserve (kv_pages.h); where those of a slot are goes to the device with the first
 * batch after. */
#include "cuda_device.h"
#include "dense.h"
#include "experts.h"
#include "experts_alone.h"
#include "layer_graphs.h"
#include "kv_pages.h"

#include "base/checked.h"
#include "base/log.h"
#include "device/worker_room.h"
#include "model/kv_type.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BUFFERS = 64 };
#define BUFFER_ALIGN 256u
/* So many rows, of the batch and of a matrix, make a product through BLAS worth its preparations. A guess: only hardware can
 * say where it pays (bench-device measures both ways). */
enum { MANY_ROWS = 32 };

struct kv_slot {
    uint32_t n_pages; /* reserved */
    bool changed;     /* since the last batch */
};

struct dense_cuda {
    struct dense base;
    struct cuda_device *cuda;
    const struct device_module *module; /* these three are cuda's */
    struct device *device;
    struct device_stream *stream;
    struct device_kv kv;
    struct kv_pages *pages;
    uint64_t *slot_pages;      /* [n_slots][kv.pages_a_slot] */
    struct kv_slot *slots;     /* [n_slots] */
    struct dense_values table; /* slot_pages as kv.pages has it */
    uint32_t n_slots, context;
    uint32_t most_positions; /* of the batch, or somewhat more */
    struct layer_graphs *graphs;
    struct device_activations inputs[EXEC_SLOTS]; /* prepared */
    void *input_memory[EXEC_SLOTS];
    void *heads_scratch, *attend_scratch;
    void *many_scratch; /* of products through BLAS; NULL: there are none */
    struct device_blas blas; /* what it takes */
    bool many;               /* of this batch */
    float *logits;           /* [logits_rows][vocab] */
    uint32_t logits_rows;    /* that are there at once */
    uint32_t *largest;       /* on the device [2][logits_rows][DEVICE_LARGEST]: values, places */
    uint32_t *largest_host;  /* in host memory, of all rows of a batch: part by part of so many rows */
    uint32_t *tokens; /* [max_tokens], in host memory: embed's */
    struct dense_values rows, angles; /* struct device_row [max_tokens]; float [max_tokens][rope dims] */
    struct dense_values staged;
    size_t staged_bytes, staged_used;
    void *buffers[MOST_BUFFERS], *pinned[MOST_BUFFERS];
    unsigned n_buffers, n_pinned;
    struct error failed; /* the last allocation that did */
};

static struct dense_cuda *cuda_of(struct dense *d)
{
    return (struct dense_cuda *)d;
}

/* ---- Memory ---- */

static void cuda_free(struct dense *d)
{
    struct dense_cuda *c = cuda_of(d);
    struct error e;
    c->module->finish(c->stream, &e); /* nothing that it reads is freed before */
    layer_graphs_free(c->graphs);
    kv_pages_free(c->pages);
    free(c->slot_pages);
    free(c->slots);
    while (c->n_buffers)
        c->module->release(c->device, c->buffers[--c->n_buffers]);
    while (c->n_pinned)
        c->module->release_pinned(c->device, c->pinned[--c->n_pinned]);
    free(c->tokens);
    free(c);
}

static void *cuda_allocate(struct dense *d, size_t bytes)
{
    struct dense_cuda *c = cuda_of(d);
    void *memory;
    if (c->n_buffers == MOST_BUFFERS) {
        error_set(&c->failed, ERROR_MEMORY, "too many buffers");
        return NULL;
    }
    if (cuda_device_allocate(c->cuda, CUDA_SCRATCH, bytes, &memory, &c->failed))
        return NULL;
    c->buffers[c->n_buffers++] = memory;
    c->module->fill(c->stream, memory, 0, bytes);
    return memory;
}

static void *allocate_pinned(struct dense_cuda *c, size_t bytes)
{
    void *memory;
    bytes = round_up(bytes ? bytes : 1, BUFFER_ALIGN);
    if (c->n_pinned == MOST_BUFFERS) {
        error_set(&c->failed, ERROR_MEMORY, "too many buffers");
        return NULL;
    }
    if (c->module->allocate_pinned(c->device, bytes, &memory, &c->failed))
        return NULL;
    memset(memory, 0, bytes);
    c->pinned[c->n_pinned++] = memory;
    return memory;
}

static bool cuda_allocate_shared(struct dense *d, size_t bytes, struct dense_values *out)
{
    out->own = cuda_allocate(d, bytes);
    out->host = allocate_pinned(cuda_of(d), bytes);
    return out->own && out->host;
}

static void cuda_fetch(struct dense *d, const struct dense_values *v, size_t bytes)
{
    struct dense_cuda *c = cuda_of(d);
    c->module->download(c->stream, v->host, v->own, bytes);
}

static enum error_code cuda_wait(struct dense *d, struct error *e)
{
    struct dense_cuda *c = cuda_of(d);
    c->staged_used = 0;
    return c->module->finish(c->stream, e);
}

static const void *cuda_bring(struct dense *d, const void *host, size_t bytes)
{
    struct dense_cuda *c = cuda_of(d);
    size_t whole = round_up(bytes, BUFFER_ALIGN);
    struct error e;
    assert(whole <= c->staged_bytes);
    if (c->staged_bytes - c->staged_used < whole)
        cuda_wait(d, &e); /* an error is met again by the next wait */
    uint8_t *at = (uint8_t *)c->staged.host + c->staged_used;
    uint8_t *to = (uint8_t *)c->staged.own + c->staged_used;
    memcpy(at, host, bytes);
    c->module->upload(c->stream, to, at, bytes);
    c->staged_used += whole;
    return to;
}

static void upload(struct dense_cuda *c, const struct dense_values *v, size_t bytes)
{
    c->module->upload(c->stream, v->own, v->host, bytes);
}

/* ---- The batch ---- */

/* Of the slots whose pages are others than at the last batch. */
static void upload_pages(struct dense_cuda *c)
{
    for (uint32_t slot = 0; slot < c->n_slots; slot++) {
        size_t first = (size_t)slot * c->kv.pages_a_slot, bytes = c->slots[slot].n_pages * sizeof *c->slot_pages;
        uint64_t *host = (uint64_t *)c->table.host + first, *own = (uint64_t *)c->table.own + first;
        if (!c->slots[slot].changed)
            continue;
        c->slots[slot].changed = false;
        memcpy(host, c->slot_pages + first, bytes);
        c->module->upload(c->stream, own, host, bytes);
    }
}

static void cuda_begin(struct dense *d, const struct batch_token *batch, uint32_t n,
                       const float *cos_sin, bool one_request)
{
    struct dense_cuda *c = cuda_of(d);
    struct device_row *rows = c->rows.host;
    size_t angles = (size_t)n * d->params->rope.dims * sizeof *cos_sin;
    c->many = one_request && n >= MANY_ROWS && c->many_scratch;
    d->batch = batch;
    d->n = n;
    c->most_positions = 0;
    for (uint32_t t = 0; t < n; t++) {
        c->tokens[t] = batch[t].token;
        rows[t] = (struct device_row){batch[t].slot, batch[t].position};
        assert(batch[t].position / DEVICE_PAGE < c->slots[batch[t].slot].n_pages);
        if (batch[t].position + 1 > c->most_positions)
            c->most_positions = batch[t].position + 1;
    }
    if (n <= WORKER_ALONE_TOKENS) /* the graphs of its layers serve a while */
        c->most_positions = layer_graphs_positions(c->most_positions, c->context);
    memcpy(c->angles.host, cos_sin, angles);
    upload_pages(c);
    upload(c, &c->rows, n * sizeof *rows);
    upload(c, &c->angles, angles);
}

/* ---- The KV cache ---- */

static enum dense_room cuda_reserve(struct dense *d, uint32_t slot, uint32_t positions)
{
    struct dense_cuda *c = cuda_of(d);
    struct kv_slot *s = &c->slots[slot];
    uint32_t n = (positions + DEVICE_PAGE - 1) / DEVICE_PAGE;
    assert(s->n_pages == 0 && n <= c->kv.pages_a_slot);
    if (n > kv_pages_use(c->pages).most)
        return ROOM_NEVER;
    if (!kv_pages_reserve(c->pages, n, c->slot_pages + (size_t)slot * c->kv.pages_a_slot))
        return ROOM_LATER;
    *s = (struct kv_slot){n, true};
    return ROOM_NOW;
}

static void cuda_release_slot(struct dense *d, uint32_t slot)
{
    struct dense_cuda *c = cuda_of(d);
    kv_pages_release(c->pages, c->slot_pages + (size_t)slot * c->kv.pages_a_slot, c->slots[slot].n_pages);
    c->slots[slot] = (struct kv_slot){0, false};
}

static void cuda_kv_resize(struct dense *d, uint64_t bytes)
{
    kv_pages_resize(cuda_of(d)->pages, bytes);
}

static struct dense_kv_use cuda_kv_use(const struct dense *d)
{
    struct kv_pages_use use = kv_pages_use(((const struct dense_cuda *)d)->pages);
    return (struct dense_kv_use){.bytes = use.bytes,
                                 .pages_reserved = use.reserved,
                                 .pages_free = use.free,
                                 .most_positions = (uint64_t)use.most * DEVICE_PAGE};
}

/* ---- Rows ---- */

static void cuda_embed(struct dense *d, const struct matrix *m, float *out)
{
    struct dense_cuda *c = cuda_of(d);
    c->module->ops.embed(c->stream, m, c->tokens, d->n, out);
}

static void cuda_norm(struct dense *d, const float *x, const struct norm_weights *w, float eps,
                      uint32_t width, float *out)
{
    struct dense_cuda *c = cuda_of(d);
    c->module->ops.norm(c->stream, x, width, w->weight, w->bias, eps, d->n, width, out, width);
}

static void cuda_add_bias(struct dense *d, const float *bias, float *rows, uint32_t width)
{
    struct dense_cuda *c = cuda_of(d);
    if (bias)
        c->module->ops.add(c->stream, bias, 0, rows, width, d->n, width);
}

static void cuda_gated(struct dense *d, const float *gate, const float *up, uint32_t width,
                       float *h)
{
    struct dense_cuda *c = cuda_of(d);
    c->module->ops.gated(c->stream, (uint32_t)d->params->arch->activation, gate, up, h,
                         (size_t)d->n * width);
}

static void cuda_scale_by_sigmoid(struct dense *d, const float *by, float *rows, uint32_t width)
{
    struct dense_cuda *c = cuda_of(d);
    c->module->ops.scale_by_sigmoid(c->stream, by, rows, d->n, width);
}

/* ---- Products ---- */

static const void *prepare_rows(struct dense_cuda *c, unsigned slot, const float *x, uint32_t cols,
                                uint32_t n, bool quantize)
{
    struct device_activations *a = &c->inputs[slot];
    c->module->ops.activations_bind(a, c->input_memory[slot], cols, n, x, cols, quantize);
    if (quantize)
        c->module->ops.quantize(c->stream, a);
    return a;
}

static const void *cuda_prepare(struct dense *d, unsigned slot, const float *x, uint32_t cols,
                                bool quantize)
{
    return prepare_rows(cuda_of(d), slot, x, cols, d->n, quantize);
}

/* Whether weights of that type, so many rows of them, go through BLAS. */
static bool takes(const struct dense_cuda *c, const struct matrix *m, uint32_t rows)
{
    return rows >= MANY_ROWS && device_blas_takes(&c->blas, m->type);
}

static void cuda_multiply(struct dense *d, const struct matrix *m, const void *input, float *y,
                          bool accumulate)
{
    struct dense_cuda *c = cuda_of(d);
    const struct device_activations *a = input;
    if (c->many && takes(c, m, m->rows))
        c->module->ops.multiply_many(c->stream, m, a->x, a->x_stride, a->n_tokens, y, m->rows,
                                     accumulate, c->many_scratch);
    else
        c->module->ops.multiply(c->stream, m, a, y, m->rows, accumulate);
}

static void cuda_multiply_several(struct dense *d, const struct exec_product *products, unsigned n,
                                  const void *input)
{
    for (unsigned i = 0; i < n; i++)
        cuda_multiply(d, products[i].m, input, products[i].y, products[i].accumulate);
}

static void cuda_multiply_router(struct dense *d, const struct matrix *m, const void *input,
                                 float *y)
{
    struct dense_cuda *c = cuda_of(d);
    c->module->ops.multiply(c->stream, m, input, y, m->rows, false);
}

static void cuda_multiply_heads(struct dense *d, const struct head_matrices *m, const float *in,
                                uint32_t in_head, float *out, uint32_t out_head)
{
    struct dense_cuda *c = cuda_of(d);
    uint32_t n_heads = d->params->n_heads;
    bool many = c->many && takes(c, &m->first, n_heads * m->first.rows);
    const struct device_ops *ops = &c->module->ops;
    (many ? ops->multiply_many_planes : ops->multiply_planes)(
        c->stream, &m->first, m->bytes, n_heads, d->n, in, (size_t)n_heads * in_head, in_head, out,
        (size_t)n_heads * out_head, out_head, many ? c->many_scratch : c->heads_scratch);
}

/* c->logits: of the first rows of hidden, as many as there is room for; how many. */
static uint32_t make_logits(struct dense_cuda *c, const struct matrix *m, const float *bias, const float *hidden,
                            uint32_t n, bool one_request)
{
    const struct device_ops *ops = &c->module->ops;
    n = n < c->logits_rows ? n : c->logits_rows;
    if (one_request && n >= MANY_ROWS && c->many_scratch && takes(c, m, m->rows))
        ops->multiply_many(c->stream, m, hidden, m->cols, n, c->logits, m->rows, false,
                           c->many_scratch);
    else
        ops->multiply(c->stream, m, prepare_rows(c, 0, hidden, m->cols, n, weights_quantize(m)),
                      c->logits, m->rows, false);
    if (bias)
        ops->add(c->stream, bias, 0, c->logits, m->rows, n, m->rows);
    return n;
}

static enum error_code cuda_largest(struct dense *d, const struct matrix *m, const float *bias, const float *hidden,
                                    uint32_t n, uint32_t k, float *values, uint32_t *places, struct error *e)
{
    struct dense_cuda *c = cuda_of(d);
    size_t word = sizeof(uint32_t);
    for (uint32_t done = 0, part; done < n; done += part) {
        part = make_logits(c, m, bias, hidden + (size_t)done * m->cols, n - done, false);
        c->module->ops.largest(c->stream, c->logits, part, m->rows, k, (float *)c->largest,
                               c->largest + (size_t)part * k);
        c->module->download(c->stream, c->largest_host + (size_t)done * 2 * k, c->largest, 2 * part * k * word);
    }
    enum error_code code = cuda_wait(d, e);
    for (uint32_t done = 0, part; done < n && !code; done += part) {
        const uint32_t *from = c->largest_host + (size_t)done * 2 * k;
        part = n - done < c->logits_rows ? n - done : c->logits_rows;
        memcpy(values + (size_t)done * k, from, part * k * word);
        memcpy(places + (size_t)done * k, from + (size_t)part * k, part * k * word);
    }
    return code;
}

static enum error_code cuda_logits(struct dense *d, const struct matrix *m, const float *bias,
                                   const float *hidden, uint32_t n, bool one_request,
                                   float *logits, struct error *e)
{
    struct dense_cuda *c = cuda_of(d);
    for (uint32_t done = 0, part; done < n; done += part) {
        part = make_logits(c, m, bias, hidden + (size_t)done * m->cols, n - done, one_request);
        c->module->download(c->stream, logits + (size_t)done * m->rows, c->logits,
                            (size_t)part * m->rows * sizeof *logits);
    }
    return cuda_wait(d, e);
}

/* ---- Attention ---- */

/* Heads of every row, normed where the model does, and rotated. */
static void norm_and_rotate(struct dense_cuda *c, float *heads, uint32_t n_heads, const float *norm)
{
    const struct model_params *p = c->base.params;
    const struct device_ops *ops = &c->module->ops;
    uint32_t n = c->base.n, width = n_heads * p->k_dim;
    if (norm && p->arch->qk_norm_whole)
        ops->norm(c->stream, heads, width, norm, NULL, p->norm_eps, n, width, heads, width);
    if (norm && p->arch->qk_norm)
        ops->norm(c->stream, heads, p->k_dim, norm, NULL, p->norm_eps, n * n_heads, p->k_dim, heads,
                  p->k_dim);
    if (p->rope.dims)
        ops->rotate(c->stream, heads, width, p->k_dim, n, n_heads, c->angles.own,
                    p->rope.dims, p->arch->rope_neox);
}

static void cuda_place_heads(struct dense *d, uint32_t layer, const struct layer_weights *w,
                             float *q, float *k, const float *v)
{
    struct dense_cuda *c = cuda_of(d);
    norm_and_rotate(c, q, d->params->n_heads, w->q_norm);
    norm_and_rotate(c, k, d->params->n_kv_heads, w->k_norm);
    c->module->ops.kv_store(c->stream, &c->kv, layer, c->rows.own, d->n,
                            k, v);
}

static void cuda_place_latent(struct dense *d, uint32_t layer, const struct layer_weights *w,
                              float *row, const float *q, float *absorbed)
{
    struct dense_cuda *c = cuda_of(d);
    const struct model_params *p = d->params;
    const struct device_ops *ops = &c->module->ops;
    const float *angles = c->angles.own;
    uint32_t n = d->n, dims = p->rope.dims;
    size_t q_row = (size_t)p->n_heads * p->q_dim, k_row = (size_t)p->n_heads * p->k_dim;
    float *rotated = absorbed + p->kv_rank;
    ops->norm(c->stream, row, p->k_dim, w->kv_a_norm, NULL, LATENT_NORM_EPS, n, p->kv_rank, row,
              p->k_dim);
    ops->rotate(c->stream, row + p->kv_rank, p->k_dim, p->k_dim, n, 1, angles, dims,
                p->arch->rope_neox);
    ops->scatter(c->stream, q + p->q_dim - dims, q_row, p->q_dim, rotated, k_row, p->k_dim, n,
                 p->n_heads, dims);
    ops->rotate(c->stream, rotated, k_row, p->k_dim, n, p->n_heads, angles, dims,
                p->arch->rope_neox);
    ops->kv_store(c->stream, &c->kv, layer, c->rows.own, n, row, NULL);
}

static void cuda_attend(struct dense *d, uint32_t layer, const float *q, const float *sinks,
                        float *out)
{
    struct dense_cuda *c = cuda_of(d);
    const struct model_params *p = d->params;
    c->module->ops.attend(c->stream, &c->kv, layer, c->rows.own, d->n,
                          c->most_positions, q, p->n_heads, p->n_kv_heads, p->k_dim, p->v_dim,
                          p->attention_scale, params_window(p, layer), sinks, out,
                          c->attend_scratch);
}

/* ---- Layers that are queued again ---- */

static bool cuda_again(struct dense *d, uint32_t layer)
{
    struct dense_cuda *c = cuda_of(d);
    return layer_graphs_again(c->graphs, layer, d->n, c->most_positions);
}

static bool cuda_keep(struct dense *d)
{
    return layer_graphs_keep(cuda_of(d)->graphs);
}

/* ---- Around the experts ---- */

static void cuda_route(struct dense *d, const float *selection_bias, float *logits,
                       uint32_t *selected, float *weights)
{
    struct dense_cuda *c = cuda_of(d);
    const struct router_params *p = &d->params->router;
    const struct device_router r = {.kind = (uint32_t)p->kind,
                                    .n_experts = p->n_experts,
                                    .n_used = p->n_used,
                                    .n_groups = p->n_groups,
                                    .n_groups_used = p->n_groups_used,
                                    .renormalise = p->renormalise,
                                    .scale = p->scale};
    c->module->ops.route(c->stream, &r, logits, selection_bias, d->n, selected, weights);
}

static void cuda_combine(struct dense *d, const struct experts *experts, const float *down_bias,
                         const float *weights, const uint32_t *selected, const float *shared,
                         float *x)
{
    struct dense_cuda *c = cuda_of(d);
    uint32_t n_used = d->params->router.n_used;
    const uint32_t *row_of = experts_own_row_of(experts);
    if (!row_of)
        row_of = cuda_bring(d, experts_row_of(experts), (size_t)d->n * n_used * sizeof *row_of);
    c->module->ops.combine(c->stream, experts_device_rows(experts), row_of, weights, selected,
                           n_used, down_bias, shared, x, d->n, d->params->d_model);
}

/* ---- */

static bool make_kv(struct dense_cuda *c, enum tensor_type type, uint64_t bytes)
{
    const struct model_params *p = c->base.params;
    uint32_t a_slot = (c->context + DEVICE_PAGE - 1) / DEVICE_PAGE, n = a_slot * c->n_slots;
    c->slot_pages = calloc(n, sizeof *c->slot_pages);
    c->slots = calloc(c->n_slots, sizeof *c->slots);
    if (!c->slot_pages || !c->slots ||
        !cuda_allocate_shared(&c->base, n * sizeof *c->slot_pages, &c->table) ||
        kv_pages_new(c->cuda, worker_room_page(p, type), n, bytes, &c->pages, &c->failed))
        return false;
    c->kv = (struct device_kv){.type = (uint32_t)type,
                               .rows = params_cache_rows(p),
                               .row_values = p->n_kv_heads * p->k_dim,
                               .row_bytes = (uint32_t)worker_room_row(p, type),
                               .pages = c->table.own,
                               .pages_a_slot = a_slot};
    return true;
}

static bool make_scratch(struct dense_cuda *c)
{
    const struct model_params *p = c->base.params;
    const struct device_ops *ops = &c->module->ops;
    struct dense *d = &c->base;
    uint32_t n = d->max_tokens, most = n > c->logits_rows ? n : c->logits_rows;
    for (unsigned i = 0; i < EXEC_SLOTS; i++)
        if (!(c->input_memory[i] = cuda_allocate(d, ops->activations_bytes(params_widest_input(p), most))))
            return false;
    if (p->kv_rank)
        c->heads_scratch =
            cuda_allocate(d, ops->activations_bytes(params_head_input(p), n * p->n_heads));
    c->attend_scratch =
        cuda_allocate(d, ops->attend_scratch_bytes(n, p->n_heads, p->v_dim, c->context));
    c->logits = cuda_allocate(d, (size_t)c->logits_rows * p->vocab * sizeof(float));
    c->largest = cuda_allocate(d, (size_t)2 * c->logits_rows * DEVICE_LARGEST * sizeof *c->largest);
    c->largest_host = allocate_pinned(c, (size_t)2 * n * DEVICE_LARGEST * sizeof *c->largest_host);
    c->tokens = calloc(n, sizeof *c->tokens);
    /* what is brought between two waits: rows of tokens' values, and a layer's table of rows */
    size_t values = (size_t)most * p->d_model * sizeof(float);
    c->staged_bytes = round_up(values, BUFFER_ALIGN) +
                      round_up(n * p->router.n_used * sizeof(uint32_t), BUFFER_ALIGN);
    return c->attend_scratch && c->logits && c->largest && c->largest_host && c->tokens && (!p->kv_rank || c->heads_scratch) &&
           cuda_allocate_shared(d, n * sizeof(struct device_row), &c->rows) &&
           cuda_allocate_shared(d, (size_t)n * p->rope.dims * sizeof(float), &c->angles) &&
           cuda_allocate_shared(d, c->staged_bytes, &c->staged);
}

static void say_what_is_refused(const struct device_blas *b)
{
    if (b->f32 && b->f16 && b->bf16)
        return;
    bool only_bf16 = b->f32 && b->f16;
    log_info("cuBLAS has no products of%s%s%s on this device: %s", b->f32 ? "" : " float32",
             b->f16 ? "" : " FP16", b->bf16 ? "" : " BF16",
             only_bf16 ? "weights of BF16 are multiplied as float32"
                       : "some weights are multiplied without it");
}

/* What it needs for products through BLAS. Without it all is as it was, but slower. */
static void make_many(struct dense_cuda *c, const struct pool_map *map)
{
    struct error e;
    if (c->module->load_blas(c->device, &c->blas, &e)) {
        log_info("long prompts are computed without cuBLAS: %s", e.text);
        return;
    }
    say_what_is_refused(&c->blas);
    c->many_scratch = cuda_allocate(&c->base, worker_room_many(c->module, map, c->base.max_tokens));
    if (!c->many_scratch)
        log_warn("long prompts are computed without cuBLAS: %s", c->failed.text);
}

static enum error_code make_all(struct dense_cuda *c, const struct dense_options *options,
                                struct error *e)
{
    const struct model_params *p = c->base.params;
    enum error_code code = kv_type_check(p, options->kv_type, e);
    if (code)
        return code;
    if (!p->kv_rank && p->k_dim != p->v_dim)
        return error_set(e, ERROR_UNSUPPORTED,
                         "keys of %" PRIu32 " values and values of %" PRIu32
                         " do not go into a CUDA device's cache: give dense=host in --device",
                         p->k_dim, p->v_dim);
    c->graphs = layer_graphs_new(c->module, c->stream, p->n_layers);
    if (!c->graphs)
        return error_set(e, ERROR_MEMORY, "no memory for the dense part's tables");
    if (make_kv(c, options->kv_type, options->kv_bytes) && make_scratch(c))
        return ERROR_OK;
    return error_set(e, ERROR_MEMORY,
                     "no room on the device for %" PRIu32 " requests of %" PRIu32
                     " tokens: lower --ctx or --parallel, give a smaller vram=, or dense=host (%s)",
                     c->n_slots, c->context, c->failed.text);
}

enum error_code dense_cuda_new(const struct dense_options *options, struct cuda_device *cuda,
                               struct dense **out, struct error *e)
{
    static const struct dense_ops ops = {.free = cuda_free,
                                         .allocate = cuda_allocate,
                                         .allocate_shared = cuda_allocate_shared,
                                         .fetch = cuda_fetch,
                                         .wait = cuda_wait,
                                         .bring = cuda_bring,
                                         .begin = cuda_begin,
                                         .reserve = cuda_reserve,
                                         .release_slot = cuda_release_slot,
                                         .kv_resize = cuda_kv_resize,
                                         .kv_use = cuda_kv_use,
                                         .embed = cuda_embed,
                                         .norm = cuda_norm,
                                         .prepare = cuda_prepare,
                                         .multiply = cuda_multiply,
                                         .multiply_several = cuda_multiply_several,
                                         .multiply_router = cuda_multiply_router,
                                         .multiply_heads = cuda_multiply_heads,
                                         .add_bias = cuda_add_bias,
                                         .place_heads = cuda_place_heads,
                                         .place_latent = cuda_place_latent,
                                         .attend = cuda_attend,
                                         .gated = cuda_gated,
                                         .scale_by_sigmoid = cuda_scale_by_sigmoid,
                                         .route = cuda_route,
                                         .again = cuda_again,
                                         .keep = cuda_keep,
                                         .combine = cuda_combine,
                                         .logits = cuda_logits,
                                         .largest = cuda_largest};
    struct dense_cuda *c = calloc(1, sizeof *c);
    if (!c)
        return error_set(e, ERROR_MEMORY, "no memory for the dense part's tables");
    c->base = (struct dense){&ops, &options->map->params, options->max_tokens, NULL, 0};
    c->cuda = cuda;
    c->module = cuda->module;
    c->device = cuda->device;
    c->stream = cuda->stream;
    c->n_slots = options->n_slots;
    c->context = options->context;
    c->logits_rows = worker_logits_rows(options->blas);
    enum error_code code = make_all(c, options, e);
    if (code) {
        cuda_free(&c->base);
        return code;
    }
    if (options->blas)
        make_many(c, options->map);
    *out = &c->base;
    return ERROR_OK;
}
