/* The dense part on a CUDA device; see dense.h.
 *
 * The worker has one stream: every operation is queued on it in the order of the calls. Host memory
 * reaches the device through pinned memory of the dense part: the batch's tables once a step,
 * everything else through `staged`, which is free again after each wait. The KV cache lies in pages
 * that slots reserve (kv_pages.h). The addresses of a slot's pages go to the device with the
 * slot's next batch. */
#include "dense_cuda_internal.h"

#include "base/arrays.h"
#include "base/checked.h"
#include "model/kv_type.h"
#include "worker/experts/device_only.h"
#include "worker/experts/experts.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void cuda_free(struct dense *d)
{
    struct dense_cuda *c = dense_cuda_of(d);
    struct error e;
    c->module->finish(c->stream, &e); /* the device reads the buffers until then */
    layer_graphs_free(c->graphs);
    kv_pages_free(c->pages);
    dense_cuda_free_states(c);
    while (c->n_buffers)
        c->module->release(c->device, c->buffers[--c->n_buffers]);
    while (c->n_pinned)
        c->module->release_pinned(c->device, c->pinned[--c->n_pinned]);
    free(c->tables);
    free(c);
}

/* ---- The batch ---- */

static void upload(struct dense_cuda *c, const struct mirrored_values *v, size_t bytes)
{
    c->module->upload(c->stream, v->own, v->host, bytes);
}

static void upload_query_scales(struct dense_cuda *c)
{
    const struct dense *d = &c->base;
    float *scales = c->query_scales.host;
    for (uint32_t t = 0; t < d->n; t++)
        scales[t] = params_query_scale(d->params, d->batch[t].position);
    upload(c, &c->query_scales, d->n * sizeof *scales);
}

static void cuda_begin(struct dense *d, const struct batch_token *batch, uint32_t n,
                       const float *cos_sin, const struct row_groups *groups)
{
    struct dense_cuda *c = dense_cuda_of(d);
    struct device_row *rows = c->rows.host;
    size_t angles = (size_t)n * params_angles(d->params) * sizeof *cos_sin;
    c->groups = *groups;
    d->batch = batch;
    d->n = n;
    c->most_positions = 0;
    for (uint32_t t = 0; t < n; t++) {
        c->tokens[t] = batch[t].token;
        rows[t] = (struct device_row){batch[t].slot, batch[t].position};
        assert(batch[t].position / DEVICE_PAGE < c->slots[batch[t].slot].end);
        if (batch[t].position + 1 > c->most_positions)
            c->most_positions = batch[t].position + 1;
    }
    c->kept = dense_cuda_begin_states(c) && n <= WORKER_DEVICE_ONLY_TOKENS && groups->n == 0;
    if (c->kept) /* so that its layers' graphs serve for a while */
        c->most_positions = layer_graphs_positions(c->most_positions, c->context);
    memcpy(c->angles.host, cos_sin, angles);
    dense_cuda_upload_pages(c);
    upload(c, &c->rows, n * sizeof *rows);
    upload(c, &c->angles, angles);
    if (d->params->temperature_scale > 0)
        upload_query_scales(c);
}

/* ---- Rows ---- */

static void cuda_embed(struct dense *d, const struct matrix *m, float *out)
{
    struct dense_cuda *c = dense_cuda_of(d);
    c->module->ops.embed(c->stream, m, c->tokens, d->n, out);
}

static void cuda_norm(struct dense *d, const float *x, const struct norm_weights *w, float eps,
                      uint32_t width, float *out)
{
    struct dense_cuda *c = dense_cuda_of(d);
    c->module->ops.norm(c->stream, x, width, w->weight, dense_cuda_bias(c, w), eps, d->n, width,
                        out, width);
}

static void cuda_norm_add(struct dense *d, float *x, const struct norm_weights *w, float eps,
                          uint32_t width, float by, float *rows)
{
    struct dense_cuda *c = dense_cuda_of(d);
    c->module->ops.norm_add(c->stream, x, w->weight, dense_cuda_bias(c, w), eps, d->n, width, by,
                            rows);
}

static void cuda_scale(struct dense *d, float by, float *rows, uint32_t width)
{
    struct dense_cuda *c = dense_cuda_of(d);
    c->module->ops.scale(c->stream, by, rows, rows, (size_t)d->n * width);
}

static void cuda_copy_rows(struct dense *d, const float *rows, float *to, uint32_t width)
{
    struct dense_cuda *c = dense_cuda_of(d);
    c->module->ops.scale(c->stream, 1, rows, to, (size_t)d->n * width);
}

static void cuda_clear(struct dense *d, float *rows, uint32_t width)
{
    struct dense_cuda *c = dense_cuda_of(d);
    c->module->fill(c->stream, rows, 0, (size_t)d->n * width * sizeof *rows);
}

/* ---- Layers as graphs ---- */

static bool cuda_again(struct dense *d, enum dense_graph kind, uint32_t layer, uint32_t n_layers)
{
    struct dense_cuda *c = dense_cuda_of(d);
    const struct layer_graphs_key key = {kind, d->n, c->most_positions};
    return c->kept && layer_graphs_again(c->graphs, key, layer, n_layers);
}

static bool cuda_keep(struct dense *d)
{
    return layer_graphs_keep(dense_cuda_of(d)->graphs);
}

/* ---- Around the experts ---- */

static struct device_router router_of(const struct router_params *p)
{
    return (struct device_router){.kind = (uint32_t)p->kind,
                                  .n_experts = p->n_experts,
                                  .n_used = p->n_used,
                                  .n_groups = p->n_groups,
                                  .n_groups_used = p->n_groups_used,
                                  .renormalise = p->renormalise,
                                  .scale = p->scale,
                                  .weight_sum_eps = p->weight_sum_eps,
                                  .weight_sum_least = p->weight_sum_least};
}

static void cuda_gate(struct dense *d, const struct dense_gate *g)
{
    struct dense_cuda *c = dense_cuda_of(d);
    const struct layer_weights *w = g->w;
    const struct device_gate gate = {.router_weights = g->router,
                                     .bias = w->router_bias,
                                     .router = router_of(&d->params->router),
                                     .selection_bias = w->selection_bias,
                                     .expert_scales = w->expert_scales,
                                     .logits = g->logits,
                                     .selected = g->selected,
                                     .weights = g->weights,
                                     .other = g->shared_by ? &w->shared_gate_input : NULL,
                                     .other_out = g->shared_by,
                                     .choice = g->choice,
                                     .scratch = c->gate_scratch};
    c->module->ops.gate(c->stream, &gate, g->in);
}

static void cuda_shared(struct dense *d, unsigned slot, struct gating g,
                        const struct layer_weights *w, float *h, float *up_values, float *out,
                        struct device_shared *shared)
{
    struct dense_cuda *c = dense_cuda_of(d);
    *shared = (struct device_shared){.gate = &w->shared_gate,
                                     .up = &w->shared_up,
                                     .down = &w->shared_down,
                                     .gating = {(uint32_t)g.activation, g.limit},
                                     .out = out,
                                     .hidden = *dense_cuda_bind(c, slot, h, w->shared_gate.rows,
                                                                weights_quantize(&w->shared_down)),
                                     .up_values = up_values};
}

static void cuda_combine(struct dense *d, const struct experts *experts, const float *down_bias,
                         const float *weights, const uint32_t *selected, float *shared,
                         const float *shared_by, float *x)
{
    struct dense_cuda *c = dense_cuda_of(d);
    uint32_t n_used = d->params->router.n_used;
    const uint32_t *row_of = experts_own_row_of(experts);
    if (!row_of)
        row_of =
            dense_cuda_bring(d, experts_row_of(experts), (size_t)d->n * n_used * sizeof *row_of);
    c->module->ops.combine(c->stream, experts_device_rows(experts), row_of, weights, selected,
                           n_used, down_bias, shared, shared_by, x, d->n, d->params->d_model);
}

/* ---- Making it ---- */

static bool make_tables(struct dense_cuda *c)
{
    c->pages_a_slot = (c->context + DEVICE_PAGE - 1) / DEVICE_PAGE;
    size_t slots = (size_t)c->base.kv.n_groups * c->n_slots, pages = slots * c->pages_a_slot;
    c->graphs = layer_graphs_new(c->module, c->stream, c->base.params->n_layers);
    c->tables = ARRAYS_NEW(ARRAY(c->slot_pages, pages), ARRAY(c->slot_hosts, pages),
                           ARRAY(c->kv, c->base.params->n_layers), ARRAY(c->slots, slots),
                           ARRAY(c->tokens, c->base.max_tokens));
    for (size_t i = 0; c->tables && i < slots; i++)
        c->slots[i].changed = UINT32_MAX;
    return c->graphs && c->tables;
}

static bool make_scratch(struct dense_cuda *c)
{
    const struct model_params *p = c->base.params;
    const struct params_most heads = params_most(p);
    const struct device_ops *ops = &c->module->ops;
    struct dense *d = &c->base;
    uint32_t n = d->max_tokens, most = n > c->logits_rows ? n : c->logits_rows;
    for (unsigned i = 0; i < EXEC_SLOTS; i++)
        if (!(c->input_memory[i] =
                  dense_cuda_allocate(d, ops->activations_bytes(params_widest_input(p), most))))
            return false;
    if (p->kv_rank)
        c->heads_scratch =
            dense_cuda_allocate(d, ops->activations_bytes(params_head_input(p), n * heads.heads));
    c->attend_scratch = dense_cuda_allocate(d, worker_memory_attend(c->module, p, n, c->context));
    c->zeros = dense_cuda_allocate(d, p->d_model * sizeof *c->zeros);
    c->logits = dense_cuda_allocate(d, (size_t)c->logits_rows * p->vocab * sizeof(float));
    c->gate_scratch =
        dense_cuda_allocate(d, ops->gate_scratch_bytes(p->router.n_experts, p->d_model));
    c->largest_scratch = dense_cuda_allocate(
        d, ops->largest_scratch_bytes(c->logits_rows, p->vocab, DEVICE_LARGEST));
    c->largest =
        dense_cuda_allocate(d, (size_t)2 * c->logits_rows * DEVICE_LARGEST * sizeof *c->largest);
    c->largest_host =
        dense_cuda_allocate_pinned(c, (size_t)2 * n * DEVICE_LARGEST * sizeof *c->largest_host);
    /* between two waits the host brings rows of tokens' values, and a layer's table of rows */
    size_t values = (size_t)most * p->d_model * sizeof(float);
    c->staged_bytes = round_up(values, DENSE_CUDA_ALIGN) +
                      round_up(n * p->router.n_used * sizeof(uint32_t), DENSE_CUDA_ALIGN);
    return c->attend_scratch && c->zeros && c->gate_scratch && c->largest_scratch && c->logits &&
           c->largest && c->largest_host && (!p->kv_rank || c->heads_scratch) &&
           dense_cuda_allocate_shared(d, n * sizeof(struct device_row), &c->rows) &&
           dense_cuda_allocate_shared(d, (size_t)n * params_angles(p) * sizeof(float),
                                      &c->angles) &&
           dense_cuda_allocate_shared(d, n * sizeof(float), &c->query_scales) &&
           dense_cuda_allocate_shared(d, c->staged_bytes, &c->staged);
}

static enum error_code make_all(struct dense_cuda *c, const struct dense_options *options,
                                struct error *e)
{
    const struct model_params *p = c->base.params;
    enum error_code code = kv_type_check(p, options->kv_type, e);
    if (code)
        return code;
    kv_layout_make(p, options->kv_type, &c->base.kv);
    if (!make_tables(c))
        return error_set(e, ERROR_MEMORY, "no memory for the dense part's tables");
    if (dense_cuda_make_kv(c, options->kv_type, options->kv_bytes) && make_scratch(c) &&
        dense_cuda_make_states(c))
        return ERROR_OK;
    return error_set(e, ERROR_MEMORY,
                     "the dense part with a KV cache of %" PRIu32 " tokens does not fit: %s",
                     c->context, c->failed.text);
}

enum error_code dense_cuda_new(const struct dense_options *options, struct cuda_device *cuda,
                               struct dense **out, struct error *e)
{
    static const struct dense_ops ops = {.free = cuda_free,
                                         .allocate = dense_cuda_allocate,
                                         .allocate_shared = dense_cuda_allocate_shared,
                                         .fetch = dense_cuda_fetch,
                                         .wait = dense_cuda_wait,
                                         .bring = dense_cuda_bring,
                                         .begin = cuda_begin,
                                         .end = dense_cuda_end,
                                         .put_page = dense_cuda_put_page,
                                         .save_page = dense_cuda_save_page,
                                         .pass_pages = dense_cuda_pass_pages,
                                         .release_slot = dense_cuda_release_slot,
                                         .kv_resize = dense_cuda_kv_resize,
                                         .kv_use = dense_cuda_kv_use,
                                         .embed = cuda_embed,
                                         .norm = cuda_norm,
                                         .norm_add = cuda_norm_add,
                                         .prepare = dense_cuda_prepare,
                                         .prepared = dense_cuda_prepared,
                                         .norm_prepare = dense_cuda_norm_prepare,
                                         .multiply = dense_cuda_multiply,
                                         .multiply_several = dense_cuda_multiply_several,
                                         .multiply_gated = dense_cuda_multiply_gated,
                                         .multiply_heads = dense_cuda_multiply_heads,
                                         .place_heads = dense_cuda_place_heads,
                                         .place_latent = dense_cuda_place_latent,
                                         .attend = dense_cuda_attend,
                                         .attend_prepare = dense_cuda_attend_prepare,
                                         .split_gate = dense_cuda_split_gate,
                                         .gate_parts = dense_cuda_gate_parts,
                                         .split_delta = dense_cuda_split_delta,
                                         .delta_prepare = dense_cuda_delta_prepare,
                                         .short_convolution = dense_cuda_short_convolution,
                                         .save_state = dense_cuda_save_state,
                                         .load_state = dense_cuda_load_state,
                                         .scale = cuda_scale,
                                         .copy_rows = cuda_copy_rows,
                                         .clear = cuda_clear,
                                         .gate = cuda_gate,
                                         .shared = cuda_shared,
                                         .again = cuda_again,
                                         .keep = cuda_keep,
                                         .combine = cuda_combine,
                                         .logits = dense_cuda_logits,
                                         .largest = dense_cuda_largest};
    const char *host_only = params_host_dense(&options->map->params);
    if (host_only) /* memd keeps such a dense part on the host */
        return error_set(e, ERROR_UNSUPPORTED, "a device does not compute %s: use dense=host",
                         host_only);
    struct dense_cuda *c = calloc(1, sizeof *c);
    if (!c)
        return error_set(e, ERROR_MEMORY, "no memory for the dense part's tables");
    c->base = (struct dense){
        .ops = &ops, .params = &options->map->params, .max_tokens = options->max_tokens};
    c->cuda = cuda;
    c->module = cuda->module;
    c->device = cuda->device;
    c->stream = cuda->stream;
    c->n_slots = options->n_slots;
    c->context = options->context;
    c->kv_requests = options->kv_requests;
    c->logits_rows = worker_logits_rows(options->blas);
    enum error_code code = make_all(c, options, e);
    if (code) {
        cuda_free(&c->base);
        return code;
    }
    if (options->blas)
        dense_cuda_load_blas(c, options->map);
    *out = &c->base;
    return ERROR_OK;
}
