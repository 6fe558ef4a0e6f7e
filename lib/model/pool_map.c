/* Attaches to the host pool; see pool_map.h. memd has written and sealed the map. The check guards
 * against processes of different builds. */
#include "model/pool_map.h"

#include "base/checked.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static bool inside(uint64_t offset, uint64_t bytes, uint64_t total)
{
    return offset <= total && bytes <= total - offset && offset % 8 == 0;
}

static enum error_code nonsense(struct error *e, const char *what)
{
    return error_set(e, ERROR_PROTOCOL, "host pool: %s lies outside the pool or is not valid",
                     what);
}

static enum error_code check_header(const struct pool_header *h, size_t bytes, struct error *e)
{
    if (bytes < sizeof *h || h->magic != POOL_MAGIC)
        return error_set(e, ERROR_PROTOCOL, "host pool: no pool header found");
    if (h->layout_version != POOL_LAYOUT_VERSION || h->params_bytes != sizeof(struct model_params))
        return error_set(
            e, ERROR_VERSION,
            "host pool: layout version %u, this program knows %u: restart the deployment "
            "so that all its processes are of one build",
            h->layout_version, POOL_LAYOUT_VERSION);
    if (h->bytes > bytes || !inside(h->metadata_offset, h->metadata_bytes, h->bytes))
        return nonsense(e, "the metadata");
    if (!inside(h->tensors_offset, h->n_tensors * sizeof(struct pool_tensor), h->bytes))
        return nonsense(e, "the tensor table");
    if (!inside(h->slabs_offset, h->n_layers * sizeof(struct pool_slabs), h->bytes) ||
        h->n_layers != h->params.n_layers || h->n_layers > PARAMS_MAX_LAYERS || h->tiered > 1)
        return nonsense(e, "the slab table");
    return ERROR_OK;
}

static enum error_code check_tensor(const struct pool_header *h, const struct pool_tensor *t,
                                    struct error *e)
{
    const struct tensor_type_info *type = tensor_type_info(t->type);
    bool sane = type && type->computes && memchr(t->name, 0, sizeof t->name) &&
                t->offset % TILE_ALIGN == 0 && inside(t->offset, t->bytes, h->bytes);
    if (sane && t->form == POOL_VECTOR)
        sane = t->type == TENSOR_F32 && t->bytes / sizeof(float) >= (uint64_t)t->rows * t->cols;
    else if (sane)
        sane =
            t->form == POOL_MATRIX && t->planes > 0 &&
            t->bytes / t->planes >= tile_matrix_bytes((enum tensor_type)t->type, t->rows, t->cols);
    return sane ? ERROR_OK : nonsense(e, "a dense tensor");
}

static enum error_code check_slabs(const struct pool_header *h, uint32_t layer,
                                   const struct pool_slabs *s, struct error *e)
{
    if (h->params.layers[layer].feed_forward == FEED_FORWARD_DENSE)
        return s->n_experts == 0 ? ERROR_OK : nonsense(e, "a dense layer's slabs");
    uint64_t bytes = h->tiered ? 0 : s->slab_bytes * s->n_experts; /* in the pool */
    bool sane = s->n_experts == h->params.router.n_experts && s->d_model == h->params.d_model &&
                s->n_segments >= 1 && s->n_segments <= POOL_MAX_SEGMENTS && s->segment_width >= 1 &&
                tensor_type_info(s->gate_type) && tensor_type_info(s->up_type) &&
                tensor_type_info(s->down_type) && s->offset % TILE_ALIGN == 0 &&
                s->slab_bytes == s->n_segments * s->segment_bytes &&
                inside(s->offset, bytes, h->bytes) && (!h->tiered || s->offset == 0) &&
                s->up_offset < s->segment_bytes && s->down_offset < s->segment_bytes &&
                s->bias_offset < s->segment_bytes;
    return sane ? ERROR_OK : nonsense(e, "a layer's slabs");
}

uint64_t pool_map_segments(const struct pool_map *map)
{
    uint64_t segments = 0;
    for (uint32_t i = 0; i < map->params.n_layers; i++)
        segments += (uint64_t)map->slabs[i].n_experts * map->slabs[i].n_segments;
    return segments;
}

uint32_t pool_map_most_segments(const struct pool_map *map)
{
    uint32_t most = 1;
    for (uint32_t i = 0; i < map->params.n_layers; i++)
        if (map->slabs[i].n_experts && map->slabs[i].n_segments > most)
            most = map->slabs[i].n_segments;
    return most;
}

uint64_t pool_map_largest_segment(const struct pool_map *map)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < map->params.n_layers; i++)
        if (map->slabs[i].n_experts && map->slabs[i].segment_bytes > most)
            most = map->slabs[i].segment_bytes;
    return most;
}

struct pool_range pool_map_dense(const struct pool_map *map)
{
    uint64_t first = UINT64_MAX, end = 0;
    for (uint32_t i = 0; i < map->header->n_tensors; i++) {
        const struct pool_tensor *t = &map->tensors[i];
        first = t->offset < first ? t->offset : first;
        end = t->offset + t->bytes > end ? t->offset + t->bytes : end;
    }
    return end ? (struct pool_range){first, end - first} : (struct pool_range){0, 0};
}

static bool apart(const struct pool_range *r, uint64_t offset, uint64_t bytes)
{
    return bytes == 0 || r->bytes == 0 || offset + bytes <= r->offset ||
           r->offset + r->bytes <= offset;
}

/* Checks what pool_map_dense promises. The caller has checked that every tensor lies inside the
 * pool. Overlapping tensors can pass this check; they do no harm. */
static enum error_code check_dense(const struct pool_map *map, struct error *e)
{
    const struct pool_header *h = map->header;
    struct pool_range dense = pool_map_dense(map);
    uint64_t filled = 0;
    for (uint32_t i = 0; i < h->n_tensors; i++)
        filled += round_up(map->tensors[i].bytes, TILE_ALIGN);
    bool sane = dense.bytes <= filled && apart(&dense, 0, sizeof *h) &&
                apart(&dense, h->tensors_offset, h->n_tensors * sizeof *map->tensors) &&
                apart(&dense, h->slabs_offset, h->n_layers * sizeof *map->slabs) &&
                apart(&dense, h->metadata_offset, h->metadata_bytes);
    for (uint32_t i = 0; sane && i < h->n_layers && !h->tiered; i++)
        sane =
            apart(&dense, map->slabs[i].offset, map->slabs[i].slab_bytes * map->slabs[i].n_experts);
    return sane ? ERROR_OK : nonsense(e, "the part of the dense tensors");
}

enum error_code pool_map_attach(const void *base, size_t bytes, struct pool_map *out,
                                struct error *e)
{
    const struct pool_header *h = base;
    enum error_code code = check_header(h, bytes, e);
    if (code)
        return code;
    struct pool_map map = {.base = base, .header = h, .params = h->params};
    map.tensors = (const struct pool_tensor *)(map.base + h->tensors_offset);
    map.slabs = (const struct pool_slabs *)(map.base + h->slabs_offset);
    for (uint32_t i = 0; !code && i < h->n_tensors; i++)
        code = check_tensor(h, &map.tensors[i], e);
    for (uint32_t i = 0; !code && i < h->n_layers; i++)
        code = check_slabs(h, i, &map.slabs[i], e);
    if (!code)
        code = check_dense(&map, e);
    if (code)
        return code;
    map.params.arch = architecture_find(h->arch, strnlen(h->arch, sizeof h->arch));
    if (!map.params.arch)
        return nonsense(e, "the architecture's name");
    *out = map;
    return ERROR_OK;
}

static int by_name(const void *name, const void *tensor)
{
    return strcmp(name, ((const struct pool_tensor *)tensor)->name);
}

const struct pool_tensor *pool_map_find(const struct pool_map *map, const char *name)
{
    return bsearch(name, map->tensors, map->header->n_tensors, sizeof *map->tensors, by_name);
}

const uint8_t *pool_map_segment_place(const struct pool_map *map, uint32_t layer, uint32_t expert,
                                      uint32_t segment)
{
    const struct pool_slabs *s = &map->slabs[layer];
    return map->base + s->offset + expert * s->slab_bytes + segment * s->segment_bytes;
}

struct expert_segment pool_segment_at(const struct pool_slabs *s, const uint8_t *place)
{
    uint32_t width = s->segment_width, d = s->d_model;
    struct expert_segment out = {
        .gate = {(enum tensor_type)s->gate_type, width, d, s->up_offset ? place : NULL},
        .up = {(enum tensor_type)s->up_type, width, d, place + s->up_offset},
        .down = {(enum tensor_type)s->down_type, d, width, place + s->down_offset},
    };
    if (s->bias_offset) {
        out.gate_bias = (const float *)(place + s->bias_offset);
        out.up_bias = out.gate_bias + width;
    }
    return out;
}
