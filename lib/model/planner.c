/* Checks the tensors of a model file and adds them to the plan; see planner.h. */
#include "model/planner.h"

#include <inttypes.h>
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

static void add(struct planner *p, const char *name, const struct pool_source *source,
                const struct pool_tensor *shape)
{
    struct pool_header *h = &p->plan->header;
    if (h->n_tensors == p->capacity) { /* pool_plan_new sizes it for the architecture */
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
    struct pool_source source = {.tensor = planner_require(p, name, rows, cols, planes),
                                 .plane_rows = rows};
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
