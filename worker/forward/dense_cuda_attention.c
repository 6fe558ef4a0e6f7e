/* Attention on a CUDA device, and its KV cache: which pages each slot has; see dense.h and
 * kv_pages.h. */
#include "dense_cuda_internal.h"

#include "device/worker_memory.h"

#include <assert.h>
#include <string.h>

/* ---- The KV cache ---- */

bool dense_cuda_make_kv(struct dense_cuda *c, enum tensor_type type, uint64_t bytes)
{
    const struct model_params *p = c->base.params;
    uint32_t n = c->pages_a_slot * c->n_slots;
    uint64_t offset = 0;
    c->page_bytes = worker_memory_page(p, type);
    if (!dense_cuda_allocate_shared(&c->base, n * sizeof *c->slot_pages, &c->table) ||
        kv_pages_new(c->cuda, c->page_bytes, n, bytes, &c->pages, &c->failed))
        return false;
    for (uint32_t i = 0; i < p->n_layers; i++) {
        c->kv[i] = (struct device_kv){.type = (uint32_t)type,
                                      .rows = params_cache_rows(p),
                                      .row_values = p->layers[i].n_kv_heads * p->layers[i].k_dim,
                                      .row_bytes = (uint32_t)worker_memory_row(p, i, type),
                                      .pages = c->table.own,
                                      .offset = offset,
                                      .pages_a_slot = c->pages_a_slot};
        offset += worker_memory_layer(p, i, type);
    }
    return true;
}

/* The device may have the page still when a request with the same slot puts another: queued
 * operations that read it come first in the stream. */
bool dense_cuda_put_page(struct dense *d, uint32_t slot, uint32_t index, uint8_t *page,
                         uint32_t filled)
{
    struct dense_cuda *c = dense_cuda_of(d);
    struct kv_slot *s = &c->slots[slot];
    size_t at = (size_t)slot * c->pages_a_slot + index;
    assert(index <= s->n_pages && index < c->pages_a_slot);
    if (index == s->n_pages) {
        if (!kv_pages_reserve(c->pages, 1, &c->slot_pages[at]))
            return false;
        if (filled)
            c->module->upload(c->stream, (void *)(uintptr_t)c->slot_pages[at], page, c->page_bytes);
        *s = (struct kv_slot){index + 1, true};
    }
    c->slot_hosts[at] = page;
    return true;
}

void dense_cuda_save_page(struct dense *d, uint32_t slot, uint32_t index)
{
    struct dense_cuda *c = dense_cuda_of(d);
    size_t at = (size_t)slot * c->pages_a_slot + index;
    c->module->download(c->stream, c->slot_hosts[at], (void *)(uintptr_t)c->slot_pages[at],
                        c->page_bytes);
}

void dense_cuda_release_slot(struct dense *d, uint32_t slot)
{
    struct dense_cuda *c = dense_cuda_of(d);
    kv_pages_release(c->pages, c->slot_pages + (size_t)slot * c->pages_a_slot,
                     c->slots[slot].n_pages);
    c->slots[slot] = (struct kv_slot){0, false};
}

void dense_cuda_kv_resize(struct dense *d, uint64_t bytes)
{
    kv_pages_resize(dense_cuda_of(d)->pages, bytes);
}

struct dense_kv_use dense_cuda_kv_use(const struct dense *d)
{
    struct kv_pages_use use = kv_pages_use(((const struct dense_cuda *)d)->pages);
    return (struct dense_kv_use){.bytes = use.bytes,
                                 .pages_reserved = use.reserved,
                                 .pages_free = use.free,
                                 .pages_most = use.most};
}

void dense_cuda_upload_pages(struct dense_cuda *c)
{
    for (uint32_t slot = 0; slot < c->n_slots; slot++) {
        size_t first = (size_t)slot * c->pages_a_slot,
               bytes = c->slots[slot].n_pages * sizeof *c->slot_pages;
        uint64_t *host = (uint64_t *)c->table.host + first, *own = (uint64_t *)c->table.own + first;
        if (!c->slots[slot].changed)
            continue;
        c->slots[slot].changed = false;
        memcpy(host, c->slot_pages + first, bytes);
        c->module->upload(c->stream, own, host, bytes);
    }
}

/* ---- Attention ---- */

void dense_cuda_place_heads(struct dense *d, uint32_t layer, const struct layer_weights *w,
                            float *q, float *k, float *v)
{
    struct dense_cuda *c = dense_cuda_of(d);
    const struct model_params *p = d->params;
    const struct layer_params *l = &p->layers[layer];
    const struct device_ops *ops = &c->module->ops;
    uint32_t n = d->n, q_row = l->n_heads * l->k_dim, k_row = l->n_kv_heads * l->k_dim;
    bool by_head = p->arch->qk_norm;
    if (w->q_norm && p->arch->qk_norm_whole)
        ops->norm(c->stream, q, q_row, w->q_norm, NULL, p->norm_eps, n, q_row, q, q_row);
    if (w->k_norm && p->arch->qk_norm_whole)
        ops->norm(c->stream, k, k_row, w->k_norm, NULL, p->norm_eps, n, k_row, k, k_row);
    const struct device_heads h = {.q = q,
                                   .k = k,
                                   .v = v,
                                   .n_heads = l->n_heads,
                                   .n_kv_heads = l->n_kv_heads,
                                   .k_dim = l->k_dim,
                                   .v_dim = l->v_dim,
                                   .q_norm = by_head ? w->q_norm : NULL,
                                   .k_norm = by_head ? w->k_norm : NULL,
                                   .norm_after = p->arch->qk_norm_after_rope,
                                   .eps = p->norm_eps,
                                   .cos_sin = c->angles.own,
                                   .dims = l->unrotated ? 0 : p->rope.dims,
                                   .neox = p->arch->rope_neox};
    ops->place_heads(c->stream, &c->kv[layer], c->rows.own, n, &h);
}

void dense_cuda_place_latent(struct dense *d, uint32_t layer, const struct layer_weights *w,
                             float *row, float *q, float *absorbed)
{
    struct dense_cuda *c = dense_cuda_of(d);
    const struct model_params *p = d->params;
    const struct layer_params *l = &p->layers[layer];
    const struct device_latent latent = {.row = row,
                                         .q = q,
                                         .absorbed = absorbed,
                                         .n_heads = l->n_heads,
                                         .rank = p->kv_rank,
                                         .q_dim = l->q_dim,
                                         .dims = p->rope.dims,
                                         .norm = w->kv_a_norm,
                                         .eps = LATENT_NORM_EPS,
                                         .query_scales =
                                             p->temperature_scale > 0 ? c->query_scales.own : NULL,
                                         .cos_sin = c->angles.own,
                                         .neox = p->arch->rope_neox};
    c->module->ops.place_latent(c->stream, &c->kv[layer], c->rows.own, d->n, &latent);
}

static void attend(struct dense_cuda *c, uint32_t layer, const float *q, const float *sinks,
                   const float *gate, float *out, const struct device_activations *quantized)
{
    const struct model_params *p = c->base.params;
    const struct layer_params *l = &p->layers[layer];
    const struct device_attention a = {.n_heads = l->n_heads,
                                       .n_kv_heads = l->n_kv_heads,
                                       .k_dim = l->k_dim,
                                       .v_dim = l->v_dim,
                                       .scale = p->attention_scale,
                                       .window = l->window,
                                       .sinks = sinks,
                                       .gate = gate};
    c->module->ops.attend(c->stream, &c->kv[layer], c->rows.own, c->base.n, c->most_positions, q,
                          &a, out, quantized, c->attend_scratch);
}

void dense_cuda_attend(struct dense *d, uint32_t layer, const float *q, const float *sinks,
                       float *out)
{
    attend(dense_cuda_of(d), layer, q, sinks, NULL, out, NULL);
}

const void *dense_cuda_attend_prepare(struct dense *d, unsigned slot, uint32_t layer,
                                      const float *q, const float *sinks, const float *gate,
                                      float *out, bool quantize)
{
    struct dense_cuda *c = dense_cuda_of(d);
    const struct layer_params *l = &d->params->layers[layer];
    struct device_activations *a = dense_cuda_bind(c, slot, out, l->n_heads * l->o_dim, quantize);
    attend(c, layer, q, sinks, gate, out, quantize ? a : NULL);
    return a;
}
