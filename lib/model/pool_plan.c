/* Plans the host pool; see pool_plan.h. plan_tensors.c lists the tensors. */
#include "model/planner.h"

#include "base/arrays.h"
#include "base/checked.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t take(struct planner *p, uint64_t bytes)
{
    uint64_t at = p->offset;
    p->offset = at + round_up(bytes, TILE_ALIGN);
    return at;
}

/* Sorts the tensor table and its sources by name, for pool_map_find's binary search. */
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
        p->offset = round_up(p->offset, 4096); /* copies to devices want whole pages */
        p->plan->slabs[i].offset =
            take(p, p->plan->slabs[i].slab_bytes * p->plan->slabs[i].n_experts);
    }
    h->bytes = round_up(p->offset, 4096);
}

static bool allocate(struct pool_plan *plan, uint32_t n_tensors, uint32_t n_layers)
{
    plan->memory = ARRAYS_NEW(ARRAY(plan->tensors, n_tensors), ARRAY(plan->sources, n_tensors),
                              ARRAY(plan->slabs, n_layers), ARRAY(plan->experts, n_layers));
    return plan->memory != NULL;
}

enum error_code pool_plan_new(const struct gguf *g, struct pool_plan *out, struct error *e)
{
    return pool_plan_new_cut(g, POOL_SEGMENT_BYTES, out, e);
}

enum error_code pool_plan_new_cut(const struct gguf *g, uint64_t segment_bytes,
                                  struct pool_plan *out, struct error *e)
{
    struct model_params params;
    enum error_code code = model_params_read(g, &params, e);
    return code ? code : pool_plan_new_from(g, &params, segment_bytes, out, e);
}

enum error_code pool_plan_new_from(const struct gguf *g, const struct model_params *from,
                                   uint64_t segment_bytes, struct pool_plan *out, struct error *e)
{
    struct pool_plan plan = {0};
    struct pool_header *h = &plan.header;
    struct model_params params = h->params = *from;
    h->magic = POOL_MAGIC;
    h->layout_version = POOL_LAYOUT_VERSION;
    h->params_bytes = sizeof h->params;
    h->n_layers = params.n_layers;
    h->params.arch = NULL; /* no pointers in shared memory */
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
    plan_factors(&p);
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
    free(p->memory);
    free(p->factors);
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

enum error_code pool_plan_write(const struct pool_plan *p, const struct gguf *g,
                                uint64_t generation, uint8_t *pool, struct error *e)
{
    const struct pool_header *h = &p->header;
    memcpy(pool, h, sizeof *h);
    ((struct pool_header *)pool)->generation = generation;
    memcpy(pool + h->tensors_offset, p->tensors, h->n_tensors * sizeof *p->tensors);
    memcpy(pool + h->slabs_offset, p->slabs, h->n_layers * sizeof *p->slabs);
    return gguf_read_metadata(g, pool + h->metadata_offset, e);
}
