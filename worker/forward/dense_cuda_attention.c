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

static void norm_heads(struct dense_cuda *c, float *heads, uint32_t n_heads, uint32_t k_dim,
                       const float *norm)
{
    c->module->ops.norm(c->stream, heads, k_dim, norm, NULL, c->base.params->norm_eps,
                        c->base.n * n_heads, k_dim, heads, k_dim);
}

/* Norms and rotates, where the layer does, the heads of every row. */
static void norm_and_rotate(struct dense_cuda *c, uint32_t layer, float *heads, uint32_t n_heads,
                            const float *norm)
{
    const struct model_params *p = c->base.params;
    const struct device_ops *ops = &c->module->ops;
    uint32_t n = c->base.n, k_dim = p->layers[layer].k_dim, width = n_heads * k_dim;
    bool by_head = norm && p->arch->qk_norm, after = p->arch->qk_norm_after_rope;
    if (norm && p->arch->qk_norm_whole)
        ops->norm(c->stream, heads, width, norm, NULL, p->norm_eps, n, width, heads, width);
    if (by_head && !after)
        norm_heads(c, heads, n_heads, k_dim, norm);
    if (p->rope.dims && !p->layers[layer].unrotated)
        ops->rotate(c->stream, heads, width, k_dim, n, n_heads, c->angles.own, p->rope.dims,
                    p->arch->rope_neox);
    if (by_head && after)
        norm_heads(c, heads, n_heads, k_dim, norm);
}

void dense_cuda_place_heads(struct dense *d, uint32_t layer, const struct layer_weights *w,
                            float *q, float *k, float *v)
{
    struct dense_cuda *c = dense_cuda_of(d);
    const struct layer_params *l = &d->params->layers[layer];
    norm_and_rotate(c, layer, q, l->n_heads, w->q_norm);
    norm_and_rotate(c, layer, k, l->n_kv_heads, w->k_norm);
    c->module->ops.kv_store(c->stream, &c->kv[layer], c->rows.own, d->n, k, v);
}

void dense_cuda_place_latent(struct dense *d, uint32_t layer, const struct layer_weights *w,
                             float *row, float *q, float *absorbed)
{
    struct dense_cuda *c = dense_cuda_of(d);
    const struct model_params *p = d->params;
    const struct layer_params *l = &p->layers[layer];
    const struct device_ops *ops = &c->module->ops;
    const float *angles = c->angles.own;
    uint32_t n = d->n, dims = p->rope.dims;
    size_t q_row = (size_t)l->n_heads * l->q_dim, k_row = (size_t)l->n_heads * l->k_dim;
    float *rotated = absorbed + p->kv_rank;
    ops->norm(c->stream, row, l->k_dim, w->kv_a_norm, NULL, LATENT_NORM_EPS, n, p->kv_rank, row,
              l->k_dim);
    ops->rotate(c->stream, row + p->kv_rank, l->k_dim, l->k_dim, n, 1, angles, dims,
                p->arch->rope_neox);
    if (p->temperature_scale > 0)
        ops->scale(c->stream, c->query_scales.own, q, n, l->n_heads * l->q_dim);
    ops->scatter(c->stream, q + l->q_dim - dims, q_row, l->q_dim, rotated, k_row, l->k_dim, n,
                 l->n_heads, dims);
    ops->rotate(c->stream, rotated, k_row, l->k_dim, n, l->n_heads, angles, dims,
                p->arch->rope_neox);
    ops->kv_store(c->stream, &c->kv[layer], c->rows.own, n, row, NULL);
}

void dense_cuda_attend(struct dense *d, uint32_t layer, const float *q, const float *sinks,
                       float *out)
{
    struct dense_cuda *c = dense_cuda_of(d);
    const struct model_params *p = d->params;
    const struct layer_params *l = &p->layers[layer];
    c->module->ops.attend(c->stream, &c->kv[layer], c->rows.own, d->n, c->most_positions, q,
                          l->n_heads, l->n_kv_heads, l->k_dim, l->v_dim, p->attention_scale,
                          l->window, sinks, out, c->attend_scratch);
}
