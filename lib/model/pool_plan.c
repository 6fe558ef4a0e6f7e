/* Planning the host pool; see pool_plan.h. */
#include "model/pool_plan.h"

#include "base/checked.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* State of planning: the first error stops it. */
struct planner {
    const struct gguf *g;
    const struct model_params *params;
    struct pool_plan *plan;
    struct error *e;
    enum error_code failed;
    uint32_t capacity; /* of plan->tensors */
    uint64_t offset;   /* next free byte of the pool */
};

static const struct gguf_tensor *require(struct planner *p, const char *name, uint64_t rows,
                                         uint64_t cols, uint64_t experts)
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
    if (t->ne[0] != cols || t->ne[1] != rows || t->ne[2] != experts || t->ne[3] != 1) {
        p->failed = error_set(p->e, ERROR_FORMAT,
                              "%s: tensor '%s' has shape %" PRIu64 " x %" PRIu64 " x %" PRIu64
                              ": expected %" PRIu64 " x %" PRIu64 " x %" PRIu64,
                              gguf_path(p->g, t->file), name, t->ne[0], t->ne[1], t->ne[2], cols,
                              rows, experts);
        return NULL;
    }
    const struct tensor_type_info *type = tensor_type_info(t->type);
    if (!type->computes) {
        p->failed = error_set(p->e, ERROR_UNSUPPORTED,
                              "%s: tensor '%s' has type %s, which moed does not compute with",
                              gguf_path(p->g, t->file), name, type->name);
        return NULL;
    }
    return t;
}

static uint64_t take(struct planner *p, uint64_t bytes)
{
    uint64_t at = p->offset;
    p->offset = at + round_up(bytes, TILE_ALIGN);
    return at;
}

static void add(struct planner *p, const struct gguf_tensor *t, enum pool_tensor_form form,
                uint32_t rows, uint32_t cols)
{
    struct pool_header *h = &p->plan->header;
    if (h->n_tensors == p->capacity) { /* sized for the architecture in pool_plan_new */
        p->failed = error_set(p->e, ERROR_INTERNAL, "pool plan: too many dense tensors");
        return;
    }
    struct pool_tensor *entry = &p->plan->tensors[h->n_tensors];
    if (strlen(t->name) >= sizeof entry->name) {
        p->failed = error_set(p->e, ERROR_FORMAT, "tensor name '%s' is too long", t->name);
        return;
    }
    *entry = (struct pool_tensor){.form = form, .rows = rows, .cols = cols};
    memcpy(entry->name, t->name, strlen(t->name));
    entry->type = form == POOL_VECTOR ? TENSOR_F32 : t->type;
    entry->bytes = form == POOL_VECTOR ? rows * sizeof(float) : tile_matrix_bytes(t->type, rows, cols);
    p->plan->sources[h->n_tensors++] = t;
    h->dense_bytes += entry->bytes;
    h->parameters += (uint64_t)rows * cols;
}

static void add_matrix(struct planner *p, const char *name, uint32_t rows, uint32_t cols)
{
    const struct gguf_tensor *t = require(p, name, rows, cols, 1);
    if (t)
        add(p, t, POOL_MATRIX, rows, cols);
}

/* A one-dimensional tensor of any float type. */
static void add_vector(struct planner *p, const char *name, uint32_t rows, bool optional)
{
    if (p->failed || (optional && !gguf_tensor_find(p->g, name)))
        return;
    const struct gguf_tensor *t = require(p, name, 1, rows, 1);
    if (!t)
        return;
    if (tensor_type_info(t->type)->block_values != 1) {
        p->failed = error_set(p->e, ERROR_UNSUPPORTED,
                              "%s: tensor '%s' has type %s: expected F32, F16 or BF16 for a vector",
                              gguf_path(p->g, t->file), name, tensor_type_info(t->type)->name);
        return;
    }
    add(p, t, POOL_VECTOR, rows, 1);
}

static void plan_attention(struct planner *p, const char *blk)
{
    const struct model_params *m = p->params;
    char name[64];
    const struct {
        const char *part;
        uint32_t rows;
    } projections[] = {{"attn_q", m->n_heads * m->k_dim},
                       {"attn_k", m->n_kv_heads * m->k_dim},
                       {"attn_v", m->n_kv_heads * m->v_dim}};
    snprintf(name, sizeof name, "%s.attn_norm.weight", blk);
    add_vector(p, name, m->d_model, false);
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s.%s.weight", blk, projections[i].part);
        add_matrix(p, name, projections[i].rows, m->d_model);
        snprintf(name, sizeof name, "%s.%s.bias", blk, projections[i].part);
        add_vector(p, name, projections[i].rows, true);
    }
    snprintf(name, sizeof name, "%s.attn_output.weight", blk);
    add_matrix(p, name, m->d_model, m->n_heads * m->v_dim);
    if (m->arch->qk_norm || m->arch->qk_norm_whole) {
        bool whole = m->arch->qk_norm_whole;
        snprintf(name, sizeof name, "%s.attn_q_norm.weight", blk);
        add_vector(p, name, whole ? projections[0].rows : m->k_dim, false);
        snprintf(name, sizeof name, "%s.attn_k_norm.weight", blk);
        add_vector(p, name, whole ? projections[1].rows : m->k_dim, false);
    }
}

/* The gate of the shared expert is a vector in the file; it multiplies, so it becomes a matrix of one row
 * like any other product. */
static void plan_shared_expert(struct planner *p, const char *blk)
{
    const struct model_params *m = p->params;
    char name[64];
    snprintf(name, sizeof name, "%s.ffn_gate_shexp.weight", blk);
    add_matrix(p, name, m->d_shared, m->d_model);
    snprintf(name, sizeof name, "%s.ffn_up_shexp.weight", blk);
    add_matrix(p, name, m->d_shared, m->d_model);
    snprintf(name, sizeof name, "%s.ffn_down_shexp.weight", blk);
    add_matrix(p, name, m->d_model, m->d_shared);
    if (m->arch->shared_expert_gate) {
        snprintf(name, sizeof name, "%s.ffn_gate_inp_shexp.weight", blk);
        add_matrix(p, name, 1, m->d_model);
    }
}

/* An expert is cut so that a segment has at most this many bytes, where its width allows. */
#define SEGMENT_TARGET_BYTES (2u << 20)

/* Segments a slab: the fewest that keep a segment small; each a whole number of quantisation blocks of the
 * down matrix (cut by columns) and of tile rows of gate and up (cut by rows). */
static uint32_t choose_segments(uint32_t width, uint64_t expert_bytes, uint32_t block)
{
    uint32_t granule = block > TILE_ROWS ? block : TILE_ROWS;
    uint32_t best = 1;
    for (uint32_t n = 1; n <= POOL_MAX_SEGMENTS; n++) {
        if (n > 1 && (width % n || (width / n) % granule))
            continue;
        best = n;
        if (expert_bytes / n <= SEGMENT_TARGET_BYTES)
            break;
    }
    return best;
}

static void plan_experts(struct planner *p, uint32_t layer, const char *blk)
{
    const struct model_params *m = p->params;
    struct pool_plan *plan = p->plan;
    char name[64];
    snprintf(name, sizeof name, "%s.ffn_gate_inp.weight", blk);
    add_matrix(p, name, m->n_experts, m->d_model);
    snprintf(name, sizeof name, "%s.ffn_gate_exps.weight", blk);
    plan->gate[layer] = require(p, name, m->d_expert, m->d_model, m->n_experts);
    snprintf(name, sizeof name, "%s.ffn_up_exps.weight", blk);
    plan->up[layer] = require(p, name, m->d_expert, m->d_model, m->n_experts);
    snprintf(name, sizeof name, "%s.ffn_down_exps.weight", blk);
    plan->down[layer] = require(p, name, m->d_model, m->d_expert, m->n_experts);
    if (p->failed)
        return;
    struct pool_slabs *s = &plan->slabs[layer];
    s->gate_type = plan->gate[layer]->type;
    s->up_type = plan->up[layer]->type;
    s->down_type = plan->down[layer]->type;
    s->n_experts = m->n_experts;
    s->d_model = m->d_model;
    uint64_t expert_bytes =
        (plan->gate[layer]->bytes + plan->up[layer]->bytes + plan->down[layer]->bytes) /
        m->n_experts;
    s->n_segments = choose_segments(m->d_expert, expert_bytes,
                                    tensor_type_info(s->down_type)->block_values);
    s->segment_width = m->d_expert / s->n_segments;
    s->up_offset = tile_matrix_bytes(plan->gate[layer]->type, s->segment_width, m->d_model);
    s->down_offset =
        s->up_offset + tile_matrix_bytes(plan->up[layer]->type, s->segment_width, m->d_model);
    s->segment_bytes =
        s->down_offset + tile_matrix_bytes(plan->down[layer]->type, m->d_model, s->segment_width);
    s->slab_bytes = s->segment_bytes * s->n_segments;
    plan->header.expert_bytes += s->slab_bytes * m->n_experts;
    plan->header.parameters += 3ull * m->n_experts * m->d_expert * m->d_model;
}

static void plan_dense_ffn(struct planner *p, const char *blk)
{
    const struct model_params *m = p->params;
    char name[64];
    snprintf(name, sizeof name, "%s.ffn_gate.weight", blk);
    add_matrix(p, name, m->d_dense, m->d_model);
    snprintf(name, sizeof name, "%s.ffn_up.weight", blk);
    add_matrix(p, name, m->d_dense, m->d_model);
    snprintf(name, sizeof name, "%s.ffn_down.weight", blk);
    add_matrix(p, name, m->d_model, m->d_dense);
}

static void plan_layer(struct planner *p, uint32_t layer)
{
    char blk[24], name[64];
    snprintf(blk, sizeof blk, "blk.%" PRIu32, layer);
    plan_attention(p, blk);
    snprintf(name, sizeof name, "%s.ffn_norm.weight", blk);
    add_vector(p, name, p->params->d_model, false);
    if (layer < p->params->n_dense) {
        plan_dense_ffn(p, blk);
        return;
    }
    plan_experts(p, layer, blk);
    if (p->params->d_shared)
        plan_shared_expert(p, blk);
}

static void plan_ends(struct planner *p)
{
    const struct model_params *m = p->params;
    add_matrix(p, "token_embd.weight", m->vocab, m->d_model);
    add_vector(p, "output_norm.weight", m->d_model, false);
    if (gguf_tensor_find(p->g, "output.weight") || !m->arch->tied_output)
        add_matrix(p, "output.weight", m->vocab, m->d_model);
    add_vector(p, "rope_freqs.weight", m->rope_dims / 2, true);
}

/* Sort the tensor table by name (with its sources) so that attachers can search it. */
static void sort_tensors(struct pool_plan *plan)
{
    for (uint32_t i = 1; i < plan->header.n_tensors; i++) {
        struct pool_tensor entry = plan->tensors[i];
        const struct gguf_tensor *source = plan->sources[i];
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
        p->offset = round_up(p->offset, 4096); /* slabs are what is copied to devices: whole pages */
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
    plan->gate = calloc(n_layers, sizeof *plan->gate);
    plan->up = calloc(n_layers, sizeof *plan->up);
    plan->down = calloc(n_layers, sizeof *plan->down);
    return plan->tensors && plan->sources && plan->slabs && plan->gate && plan->up && plan->down;
}

enum error_code pool_plan_new(const struct gguf *g, struct pool_plan *out, struct error *e)
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

    struct planner p = {.g = g, .params = &params, .plan = &plan, .e = e};
    p.capacity = 4 + 18 * params.n_layers; /* more than any architecture's dense tensors */
    if (!allocate(&plan, p.capacity, params.n_layers)) {
        pool_plan_free(&plan);
        return error_set(e, ERROR_MEMORY, "no memory for the plan of %u layers", params.n_layers);
    }
    plan_ends(&p);
    for (uint32_t layer = 0; layer < params.n_layers && !p.failed; layer++)
        plan_layer(&p, layer);
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
    free(p->gate);
    free(p->up);
    free(p->down);
    *p = (struct pool_plan){0};
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
