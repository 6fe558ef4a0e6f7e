/* Planning the host pool; see pool_plan.h. Which tensors there are stands in plan_tensors.c. */
#include "model/planner.h"

#include "base/checked.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool planner_has(const struct planner *p, const char *name)
{
    return gguf_tensor_find(p->g, name) != NULL;
}

const struct gguf_tensor *planner_require(struct planner *p, const char *name, uint64_t rows,
                                          uint64_t cols, uint64_t planes)
{
    if (p->failed)
        return NULL;
    const struct gguf_tensor *t = gguf_tensor_find(p->g, name);
    if (!t) {
        p->failed = error_set(p->e, ERROR_NOT_FOUND,
                              "%s: tensor '%s' is missing (architecture %s needs it)",
                              gguf_path(p->g, 0), name, p->params->arch->name);
        return NULL;
    }
    if (t->ne[0] != cols || t->ne[1] != rows || t->ne[2] != planes || t->ne[3] != 1) {
        p->failed = error_set(p->e, ERROR_FORMAT,
                              "%s: tensor '%s' has shape %" PRIu64 " x %" PRIu64 " x %" PRIu64
                              ": expected %" PRIu64 " x %" PRIu64 " x %" PRIu64,
                              gguf_path(p->g, t->file), name, t->ne[0], t->ne[1], t->ne[2], cols,
                              rows, planes);
        return NULL;
    }
    const struct tensor_type_info *type = tensor_type_info(t->type);
    if (!type->computes) {
        p->failed = error_set(p->e, ERROR_UNSUPPORTED,
                              "%s: tensor '%s' has type %s, which moed does not compute with",
                              gguf_path(p->g, t->file), name, type->name);
        return NULL;
    }
    p->used[t - gguf_tensor_at(p->g, 0)] = true;
    return t;
}

static uint64_t take(struct planner *p, uint64_t bytes)
{
    uint64_t at = p->offset;
    p->offset = at + round_up(bytes, TILE_ALIGN);
    return at;
}

static void add(struct planner *p, const char *name, const struct pool_source *source,
                const struct pool_tensor *shape)
{
    struct pool_header *h = &p->plan->header;
    if (h->n_tensors == p->capacity) { /* sized for the architecture in pool_plan_new */
        p->failed = error_set(p->e, ERROR_INTERNAL, "pool plan: too many dense tensors");
        return;
    }
    struct pool_tensor *entry = &p->plan->tensors[h->n_tensors];
    if (strlen(name) >= sizeof entry->name) {
        p->failed = error_set(p->e, ERROR_FORMAT, "tensor name '%s' is too long", name);
        return;
    }
    uint64_t values = (uint64_t)shape->rows * shape->cols * shape->planes;
    *entry = *shape;
    memcpy(entry->name, name, strlen(name));
    entry->bytes = shape->form == POOL_VECTOR
                       ? values * sizeof(float)
                       : shape->planes * tile_matrix_bytes((enum tensor_type)shape->type,
                                                           shape->rows, shape->cols);
    p->plan->sources[h->n_tensors++] = *source;
    h->dense_bytes += entry->bytes;
    h->parameters += values;
}

void planner_add_part(struct planner *p, const char *name, const struct pool_source *source,
                      uint32_t rows, uint32_t cols, uint32_t planes)
{
    if (p->failed || !source->tensor)
        return;
    struct pool_tensor shape = {.form = POOL_MATRIX, .rows = rows, .cols = cols, .planes = planes};
    shape.type = source->transposed ? TENSOR_F32 : source->tensor->type;
    add(p, name, source, &shape);
}

void planner_add_matrix(struct planner *p, const char *name, uint32_t rows, uint32_t cols,
                        uint32_t planes)
{
    struct pool_source source = {planner_require(p, name, rows, cols, planes), 0, rows, false};
    planner_add_part(p, name, &source, rows, cols, planes);
}

const struct gguf_tensor *planner_require_vectors(struct planner *p, const char *name,
                                                  uint64_t values, uint64_t vectors)
{
    const struct gguf_tensor *t = planner_require(p, name, vectors, values, 1);
    if (!t || tensor_type_info(t->type)->block_values == 1)
        return t;
    p->failed = error_set(p->e, ERROR_UNSUPPORTED,
                          "%s: tensor '%s' has type %s: expected F32, F16 or BF16 for a vector",
                          gguf_path(p->g, t->file), name, tensor_type_info(t->type)->name);
    return NULL;
}

void planner_add_vector_part(struct planner *p, const char *name, const struct pool_source *source,
                             uint32_t values)
{
    struct pool_tensor shape = {
        .form = POOL_VECTOR, .type = TENSOR_F32, .rows = 1, .cols = values, .planes = 1};
    if (!p->failed && source->tensor)
        add(p, name, source, &shape);
}

void planner_add_vectors(struct planner *p, const char *name, uint32_t values, uint32_t vectors,
                         bool optional)
{
    if (p->failed || (optional && !planner_has(p, name)))
        return;
    struct pool_source source = {.tensor = planner_require_vectors(p, name, values, vectors)};
    struct pool_tensor shape = {
        .form = POOL_VECTOR, .type = TENSOR_F32, .rows = vectors, .cols = values, .planes = 1};
    if (source.tensor)
        add(p, name, &source, &shape);
}

/* Sort the tensor table by name (with its sources) so that attachers can search it. */
static void sort_tensors(struct pool_plan *plan)
{
    for (uint32_t i = 1; i < plan->header.n_tensors; i++) {
        struct pool_tensor entry = plan->tensors[i];
        struct pool_source source = plan->sources[i];
        uint32_t j = i;
        for (; j > 0 && strcmp(plan->tensors[j - 1].name, entry.name) > 0; j--) {
            plan->tensors[j] = plan->tensors[j - 1];
            plan->sources[j] = plan->sources[j - 1];
        }
        plan->tensors[j] = entry;
        plan->sources[j] = source;
    }
}

static void assign_offsets(struct planner *p)
{
    struct pool_header *h = &p->plan->header;
    size_t metadata_bytes;
    gguf_metadata(p->g, &metadata_bytes);
    take(p, sizeof *h);
    h->tensors_offset = take(p, h->n_tensors * sizeof(struct pool_tensor));
    h->slabs_offset = take(p, h->n_layers * sizeof(struct pool_slabs));
    h->metadata_bytes = metadata_bytes;
    h->metadata_offset = take(p, metadata_bytes);
    for (uint32_t i = 0; i < h->n_tensors; i++)
        p->plan->tensors[i].offset = take(p, p->plan->tensors[i].bytes);
    for (uint32_t i = 0; i < h->n_layers; i++) {
        p->offset =
            round_up(p->offset, 4096); /* slabs are what is copied to devices: whole pages */
        p->plan->slabs[i].offset =
            take(p, p->plan->slabs[i].slab_bytes * p->plan->slabs[i].n_experts);
    }
    h->bytes = round_up(p->offset, 4096);
}

static bool allocate(struct pool_plan *plan, uint32_t n_tensors, uint32_t n_layers)
{
    plan->tensors = calloc(n_tensors, sizeof *plan->tensors);
    plan->sources = calloc(n_tensors, sizeof *plan->sources);
    plan->slabs = calloc(n_layers, sizeof *plan->slabs);
    plan->experts = calloc(n_layers, sizeof *plan->experts);
    return plan->tensors && plan->sources && plan->slabs && plan->experts;
}

enum error_code pool_plan_new(const struct gguf *g, struct pool_plan *out, struct error *e)
{
    return pool_plan_new_cut(g, POOL_SEGMENT_BYTES, out, e);
}

enum error_code pool_plan_new_cut(const struct gguf *g, uint64_t segment_bytes,
                                  struct pool_plan *out, struct error *e)
{
    struct pool_plan plan = {0};
    struct pool_header *h = &plan.header;
    enum error_code code = model_params_read(g, &h->params, e);
    if (code)
        return code;
    struct model_params params = h->params;
    h->magic = POOL_MAGIC;
    h->layout_version = POOL_LAYOUT_VERSION;
    h->params_bytes = sizeof h->params;
    h->n_layers = params.n_layers;
    h->params.arch = NULL; /* a pointer means nothing in another process */
    snprintf(h->arch, sizeof h->arch, "%s", params.arch->name);
    snprintf(h->path, sizeof h->path, "%s", gguf_path(g, 0));
    for (uint32_t i = 0; i < gguf_file_count(g); i++)
        h->file_bytes += gguf_file_bytes(g, i);

    struct planner p = {
        .g = g, .params = &params, .plan = &plan, .e = e, .segment_bytes = segment_bytes};
    p.capacity = 8 + 32 * params.n_layers; /* more than any architecture's dense tensors */
    p.used = calloc(gguf_tensor_count(g) + 1, sizeof *p.used);
    if (!p.used || !allocate(&plan, p.capacity, params.n_layers)) {
        free(p.used);
        pool_plan_free(&plan);
        return error_set(e, ERROR_MEMORY, "no memory for the plan of %u layers", params.n_layers);
    }
    plan_model(&p);
    plan_check_unused(&p);
    free(p.used);
    if (p.failed) {
        pool_plan_free(&plan);
        return p.failed;
    }
    sort_tensors(&plan);
    assign_offsets(&p);
    *out = plan;
    return ERROR_OK;
}

void pool_plan_free(struct pool_plan *p)
{
    free(p->tensors);
    free(p->sources);
    free(p->slabs);
    free(p->experts);
    *p = (struct pool_plan){0};
}

struct pool_map pool_plan_map(const struct pool_plan *p)
{
    const struct pool_header *h = &p->header;
    struct pool_map map = {
        .header = h, .tensors = p->tensors, .slabs = p->slabs, .params = h->params};
    map.params.arch = architecture_find(h->arch, strlen(h->arch));
    return map;
}

static const struct pool_tensor *find_tensor(const struct pool_plan *p, const char *name)
{
    for (uint32_t i = 0; i < p->header.n_tensors; i++)
        if (strcmp(p->tensors[i].name, name) == 0)
            return &p->tensors[i];
    return NULL;
}

uint64_t pool_plan_dense_token_bytes(const struct pool_plan *p)
{
    const struct pool_tensor *embedding = find_tensor(p, "token_embd.weight");
    uint64_t bytes = p->header.dense_bytes;
    if (embedding && find_tensor(p, "output.weight"))
        bytes -= embedding->bytes - embedding->bytes / p->header.params.vocab;
    return bytes;
}

uint64_t pool_plan_expert_token_bytes(const struct pool_plan *p)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < p->header.n_layers; i++)
        bytes += p->header.params.router.n_used * p->slabs[i].slab_bytes;
    return bytes;
}

void pool_plan_keep_dense(struct pool_plan *p)
{
    struct pool_header *h = &p->header;
    if (h->tiered || h->n_layers == 0)
        return;
    h->tiered = 1;
    h->bytes = p->slabs[0].offset; /* whole pages; slabs come last */
    for (uint32_t i = 0; i < h->n_layers; i++)
        p->slabs[i].offset = 0;
}

void pool_plan_write(const struct pool_plan *p, const struct gguf *g, uint64_t generation,
                     uint8_t *pool)
{
    const struct pool_header *h = &p->header;
    memcpy(pool, h, sizeof *h);
    ((struct pool_header *)pool)->generation = generation;
    memcpy(pool + h->tensors_offset, p->tensors, h->n_tensors * sizeof *p->tensors);
    memcpy(pool + h->slabs_offset, p->slabs, h->n_layers * sizeof *p->slabs);
    size_t metadata_bytes;
    const void *metadata = gguf_metadata(g, &metadata_bytes);
    memcpy(pool + h->metadata_offset, metadata, metadata_bytes);
}
