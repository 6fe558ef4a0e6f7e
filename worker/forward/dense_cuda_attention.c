/* Attention on a CUDA device, and its KV cache: which pages each slot has; see dense.h and
 * kv_pages.h. */
#include "dense_cuda_internal.h"

#include "model/kv_type.h"

#include <assert.h>
#include <string.h>

/* ---- The KV cache ---- */

bool dense_cuda_make_kv(struct dense_cuda *c, enum tensor_type type, uint64_t bytes)
{
    const struct model_params *p = c->base.params;
    const struct kv_layout *kv = &c->base.kv;
    uint32_t group_pages = c->pages_a_slot * c->n_slots;
    size_t table = (size_t)kv->n_groups * group_pages * sizeof *c->slot_pages;
    uint64_t n = c->kv_requests * kv_layout_pages(kv, c->context, c->base.max_tokens);
    if (!dense_cuda_allocate_shared(&c->base, table, &c->table) ||
        kv_pages_new(c->cuda, kv->page_bytes, (uint32_t)n, bytes, &c->pages, &c->failed))
        return false;
    bool values = params_cache_rows(p) > 1;
    for (uint32_t i = 0; i < p->n_layers; i++) {
        const struct layer_params *l = &p->layers[i];
        const struct kv_layer_place *place = &kv->layers[i];
        const uint64_t *pages = c->table.own;
        c->kv[i] = (struct device_kv){
            .type = (uint32_t)type,
            .rows = params_cache_rows(p),
            .key_values = l->n_kv_heads * l->k_dim,
            .value_values = values ? l->n_kv_heads * l->v_dim : l->n_kv_heads * l->k_dim,
            .key_bytes = (uint32_t)(l->n_kv_heads * kv_key_bytes(p, i, type)),
            .pages = pages + (size_t)place->group * group_pages,
            .offset = place->offset,
            .pages_a_slot = c->pages_a_slot};
    }
    return true;
}

static struct kv_slot *slot_of(struct dense_cuda *c, uint32_t slot, uint32_t group)
{
    return &c->slots[(size_t)group * c->n_slots + slot];
}

/* The first of a slot's pages of a group, in slot_pages and slot_hosts. */
static size_t pages_of(const struct dense_cuda *c, uint32_t slot, uint32_t group)
{
    return ((size_t)group * c->n_slots + slot) * c->pages_a_slot;
}

static void note_change(struct kv_slot *s, uint32_t index)
{
    s->changed = index < s->changed ? index : s->changed;
}

/* The device may have the page still when a request with the same slot puts another: queued
 * operations that read it come first in the stream. */
bool dense_cuda_put_page(struct dense *d, uint32_t slot, struct kv_place place, uint8_t *page,
                         uint32_t filled)
{
    struct dense_cuda *c = dense_cuda_of(d);
    struct kv_slot *s = slot_of(c, slot, place.group);
    size_t at = pages_of(c, slot, place.group) + place.index;
    if (place.group > 0 && s->first == s->end)
        s->first = s->end = place.index;
    assert(place.index >= s->first && place.index <= s->end && place.index < c->pages_a_slot);
    if (place.index == s->end) {
        if (!kv_pages_reserve(c->pages, 1, &c->slot_pages[at]))
            return false;
        if (filled)
            c->module->upload(c->stream, (void *)(uintptr_t)c->slot_pages[at], page,
                              d->kv.page_bytes);
        s->end++;
        note_change(s, place.index);
    }
    c->slot_hosts[at] = page;
    return true;
}

void dense_cuda_save_page(struct dense *d, uint32_t slot, struct kv_place place)
{
    struct dense_cuda *c = dense_cuda_of(d);
    size_t at = pages_of(c, slot, place.group) + place.index;
    c->module->download(c->stream, c->slot_hosts[at], (void *)(uintptr_t)c->slot_pages[at],
                        d->kv.page_bytes);
}

void dense_cuda_pass_pages(struct dense *d, uint32_t slot, uint32_t first, uint32_t end)
{
    struct dense_cuda *c = dense_cuda_of(d);
    for (uint32_t group = 1; group < d->kv.n_groups; group++) {
        struct kv_slot *s = slot_of(c, slot, group);
        uint64_t *pages = c->slot_pages + pages_of(c, slot, group);
        for (; s->first < first && s->first < s->end; s->first++) {
            if (s->end < end) {
                note_change(s, s->end);
                pages[s->end++] = pages[s->first];
            } else
                kv_pages_release(c->pages, &pages[s->first], 1);
            pages[s->first] = 0;
        }
    }
}

void dense_cuda_release_slot(struct dense *d, uint32_t slot)
{
    struct dense_cuda *c = dense_cuda_of(d);
    for (uint32_t group = 0; group < d->kv.n_groups; group++) {
        struct kv_slot *s = slot_of(c, slot, group);
        kv_pages_release(c->pages, c->slot_pages + pages_of(c, slot, group) + s->first,
                         s->end - s->first);
        *s = (struct kv_slot){.changed = UINT32_MAX};
    }
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
                                 .pages_most = use.most,
                                 .lacks_memory = use.lacks_memory};
}

void dense_cuda_upload_pages(struct dense_cuda *c)
{
    size_t n_slots = (size_t)c->base.kv.n_groups * c->n_slots;
    for (size_t i = 0; i < n_slots; i++) {
        struct kv_slot *s = &c->slots[i];
        size_t first = i * c->pages_a_slot + s->changed;
        if (s->changed >= s->end)
            continue;
        size_t bytes = (s->end - s->changed) * sizeof *c->slot_pages;
        uint64_t *host = (uint64_t *)c->table.host + first, *own = (uint64_t *)c->table.own + first;
        s->changed = UINT32_MAX;
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
    const struct rope_params *rope = params_rope(p, layer);
    const float *cos_sin = c->angles.own;
    const struct device_ops *ops = &c->module->ops;
    uint32_t n = d->n, q_row = l->n_heads * l->k_dim, k_row = l->n_kv_heads * l->k_dim;
    bool by_head = p->arch->qk_norm;
    if (rope != &p->rope) /* its angles come after the other's */
        cos_sin += (size_t)n * p->rope.dims;
    if (w->q_norm && p->arch->qk_norm_whole)
        ops->norm(c->stream, q, q_row, w->q_norm, NULL, p->norm_eps, n, q_row, q, q_row);
    if (w->k_norm && p->arch->qk_norm_whole)
        ops->norm(c->stream, k, k_row, w->k_norm, NULL, p->norm_eps, n, k_row, k, k_row);
    const struct device_heads h = {.q = q,
                                   .k = k,
                                   .v = w->v.tiles ? v : NULL,
                                   .n_heads = l->n_heads,
                                   .n_kv_heads = l->n_kv_heads,
                                   .k_dim = l->k_dim,
                                   .v_dim = l->v_dim,
                                   .q_norm = by_head ? w->q_norm : NULL,
                                   .k_norm = by_head ? w->k_norm : NULL,
                                   .norm_after = p->arch->qk_norm_after_rope,
                                   .value_norm = p->arch->value_norm,
                                   .eps = p->norm_eps,
                                   .cos_sin = cos_sin,
                                   .dims = l->unrotated ? 0 : rope->dims,
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

/* How many rows from `at` on are all of groups that may round otherwise, or all of none. */
static uint32_t rows_alike(const struct dense_cuda *c, uint32_t at, bool *grouped)
{
    struct row_run run = row_groups_run(&c->groups, NULL, c->base.n, at);
    uint32_t n = run.n;
    *grouped = run.grouped;
    for (; at + n < c->base.n; n += run.n) {
        run = row_groups_run(&c->groups, NULL, c->base.n, at + n);
        if (run.grouped != *grouped)
            break;
    }
    return n;
}

static void attend_by_groups(struct dense_cuda *c, uint32_t layer, const float *q,
                             const struct device_attention *a, float *out,
                             const struct device_activations *quantized)
{
    const struct device_ops *ops = &c->module->ops;
    const struct device_row *rows = c->rows.own;
    struct device_attention only = *a;
    size_t q_row = (size_t)a->n_heads * a->k_dim, out_row = (size_t)a->n_heads * a->v_dim;
    bool grouped;
    only.gate = NULL;
    for (uint32_t at = 0, n; at < c->base.n; at += n) {
        n = rows_alike(c, at, &grouped);
        (grouped ? ops->attend_many : ops->attend)(c->stream, &c->kv[layer], rows + at, n,
                                                   c->most_positions, q + at * q_row, &only,
                                                   out + at * out_row, NULL, c->attend_scratch);
    }
    if (a->gate)
        ops->gate_by_sigmoid(c->stream, a->gate, out, c->base.n * out_row);
    if (quantized)
        ops->quantize(c->stream, quantized);
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
    const struct device_ops *ops = &c->module->ops;
    if (c->groups.n && c->base.rounds)
        attend_by_groups(c, layer, q, &a, out, quantized);
    else
        ops->attend(c->stream, &c->kv[layer], c->rows.own, c->base.n, c->most_positions, q, &a, out,
                    quantized, c->attend_scratch);
}

void dense_cuda_attend(struct dense *d, uint32_t layer, const float *q, const float *sinks,
                       float *out)
{
    attend(dense_cuda_of(d), layer, q, sinks, NULL, out, NULL);
}

void dense_cuda_gate_parts(struct dense *d, struct gating g, float *gate, float *rows,
                           uint32_t n_gates, uint32_t width)
{
    struct dense_cuda *c = dense_cuda_of(d);
    c->module->ops.gate_parts(c->stream, (uint32_t)g.activation, gate, rows, d->n, n_gates, width);
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
