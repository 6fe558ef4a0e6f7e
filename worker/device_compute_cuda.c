/* Computing experts in the kernels of a device module; see device_compute.h.
 *
 * One stream does everything in order: the tokens' values go up from pinned memory and are quantised, once a layer's input;
 * then for each run the kernels, and the rows come down to pinned memory, where the caller finds them. The rows stay on the
 * device too, for a later run of the same layer to go on with their sums. A run ends with the stream's end: that is what lets
 * the worker leave its epoch. */
#include "base/log.h"
#include "device/module.h"
#include "device/worker_room.h"
#include "device_compute_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { STORED_MOST = 256 };

struct cuda_compute {
    struct device_compute base;
    const struct device_module *module;
    struct device *device;
    struct device_stream *stream;
    struct device_facts facts;
    void *arena; /* imported */
    /* host memory, pinned */
    float *values; /* [max_tokens][d_model] */
    /* device memory */
    float *device_values; /* [max_tokens][d_model] */
    void *activations;    /* of as many */
    float *device_rows;   /* [max_rows][d_model] */
    void *scratch;
    void *stored[STORED_MOST];
    uint32_t n_stored;

    struct device_expert_task *tasks; /* [n_experts] */
    uint32_t layer;
    struct device_segments layout; /* of it */
    struct device_activations input;
    const float *input_values; /* not NULL: still to be brought there */
};

static void cuda_drop(struct device_compute *base)
{
    struct cuda_compute *c = (struct cuda_compute *)base;
    while (c->n_stored)
        c->module->release(c->device, c->stored[--c->n_stored]);
}

static void cuda_free(struct device_compute *base)
{
    struct cuda_compute *c = (struct cuda_compute *)base;
    if (c->device) {
        cuda_drop(base);
        c->module->stream_free(c->stream);
        c->module->release(c->device, c->scratch);
        c->module->release(c->device, c->device_rows);
        c->module->release(c->device, c->activations);
        c->module->release(c->device, c->device_values);
        c->module->release_pinned(c->device, c->values);
        c->module->release_pinned(c->device, base->rows);
        c->module->close_imported(c->device, c->arena);
        c->module->close(c->device);
    }
    free(c->tasks);
    free(c);
}

static void cuda_input(struct device_compute *base, uint32_t layer, const float *values,
                       uint32_t n_tokens)
{
    struct cuda_compute *c = (struct cuda_compute *)base;
    c->layer = layer;
    c->layout = device_segments_of(&base->memory->map, layer);
    c->input.n_tokens = n_tokens;
    c->input_values = values;
}

static void bring_input(struct cuda_compute *c)
{
    uint32_t d = c->layout.d_model, n = c->input.n_tokens;
    size_t bytes = (size_t)n * d * sizeof(float);
    bool quantize = exec_quantizes((enum tensor_type)c->layout.gate_type) ||
                    exec_quantizes((enum tensor_type)c->layout.up_type);
    memcpy(c->values, c->input_values, bytes); /* nothing reads it: the run before has ended */
    c->module->upload(c->stream, c->device_values, c->values, bytes);
    c->module->ops.activations_bind(&c->input, c->activations, d, n, c->device_values, d, quantize);
    if (quantize)
        c->module->ops.quantize(c->stream, &c->input);
    c->input_values = NULL;
}

/* The rows of the tasks, those that lie side by side at once. */
static void fetch_rows(struct cuda_compute *c, const struct device_expert_task *tasks,
                       uint32_t n_tasks)
{
    size_t d = c->layout.d_model;
    for (uint32_t i = 0, next; i < n_tasks; i = next) {
        uint32_t first = tasks[i].first_row, end = first + tasks[i].n_tokens;
        for (next = i + 1; next < n_tasks && tasks[next].first_row == end; next++)
            end += tasks[next].n_tokens;
        c->module->download(c->stream, c->base.rows + first * d, c->device_rows + first * d,
                            (end - first) * d * sizeof(float));
    }
}

static enum error_code cuda_run(struct device_compute *base, const struct expert_task *tasks,
                                uint32_t n_tasks, struct error *e)
{
    struct cuda_compute *c = (struct cuda_compute *)base;
    if (c->input_values)
        bring_input(c);
    for (uint32_t i = 0; i < n_tasks; i++) {
        const struct expert_task *t = &tasks[i];
        c->tasks[i] = (struct device_expert_task){
            .n_segments = t->n_segments,
            .n_tokens = t->n_tokens,
            .places = (const void *const *)t->places,
            .tokens = t->tokens,
            .first_row = (uint32_t)((size_t)(t->out - base->rows) / c->layout.d_model),
            .continues = t->output == EXPERT_CONTINUE};
    }
    c->module->ops.experts(c->stream, &c->layout, &c->input, c->tasks, n_tasks, c->device_rows,
                           c->scratch);
    fetch_rows(c, c->tasks, n_tasks);
    return c->module->finish(c->stream, e);
}

static const uint8_t *cuda_store(struct device_compute *base, const void *from, size_t bytes)
{
    struct cuda_compute *c = (struct cuda_compute *)base;
    void *memory;
    struct error e;
    if (c->n_stored == STORED_MOST || c->module->allocate(c->device, bytes, &memory, &e))
        return NULL;
    c->stored[c->n_stored++] = memory;
    c->module->upload(c->stream, memory, from, bytes);
    return c->module->finish(c->stream, &e) ? NULL : memory;
}

/* Of the layer that needs most. */
static size_t scratch_bytes(const struct cuda_compute *c)
{
    const struct pool_map *map = &c->base.memory->map;
    size_t most = 0;
    for (uint32_t layer = 0; layer < map->params.n_layers; layer++) {
        const struct pool_slabs *s = &map->slabs[layer];
        if (!s->n_experts)
            continue;
        struct device_segments layout = device_segments_of(map, layer);
        size_t bytes = c->module->ops.experts_scratch_bytes(&layout, s->n_experts * s->n_segments,
                                                            c->base.max_rows * s->n_segments);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static enum error_code make_buffers(struct cuda_compute *c, struct error *e)
{
    const struct device_module *m = c->module;
    uint32_t tokens = c->base.max_tokens, d = c->base.memory->map.params.d_model;
    size_t values = (size_t)tokens * d * sizeof(float);
    size_t rows = (size_t)c->base.max_rows * d * sizeof(float);
    enum error_code code = m->allocate_pinned(c->device, values, (void **)&c->values, e);
    if (!code)
        code = m->allocate_pinned(c->device, rows, (void **)&c->base.rows, e);
    if (!code)
        code = m->allocate(c->device, values, (void **)&c->device_values, e);
    if (!code)
        code = m->allocate(c->device, rows, (void **)&c->device_rows, e);
    if (!code)
        code = m->allocate(c->device, m->ops.activations_bytes(d, tokens), &c->activations, e);
    if (!code)
        code = m->allocate(c->device, scratch_bytes(c), &c->scratch, e);
    return code;
}

static enum error_code open_all(struct cuda_compute *c, unsigned ordinal, struct error *e)
{
    const struct memory_client *memory = c->base.memory;
    enum error_code code = device_module_load("cuda", &c->module, e);
    if (!code)
        code = c->module->open(ordinal, &c->device, e);
    if (!code)
        code = c->module->import_memory(c->device, &memory->arena_handle, &c->arena, e);
    if (!code)
        code = c->module->stream_new(c->device, &c->stream, e);
    if (!code)
        code = make_buffers(c, e);
    if (code)
        return code;
    c->module->facts(c->device, &c->facts);
    c->base.name = c->facts.name;
    c->base.arena = (const uint8_t *)c->arena + memory->slots_offset;
    log_info("experts are computed on %s (%s), %.2f GB of it are memd's", c->facts.name,
             c->facts.version, (double)memory->arena_bytes * 1e-9);
    return ERROR_OK;
}

enum error_code device_compute_cuda_new(const struct device_compute *base, unsigned ordinal,
                                        struct device_compute **out, struct error *e)
{
    static const struct device_compute_kind kind = {cuda_free, cuda_input, cuda_run, cuda_store,
                                                    cuda_drop};
    struct cuda_compute *c = calloc(1, sizeof *c);
    if (!c)
        return error_set(e, ERROR_MEMORY, "no memory for the device's tables");
    c->base = *base;
    c->base.kind = &kind;
    c->tasks = calloc(base->memory->map.params.router.n_experts, sizeof *c->tasks);
    enum error_code code = c->tasks
                               ? open_all(c, ordinal, e)
                               : error_set(e, ERROR_MEMORY, "no memory for the device's tables");
    if (code) {
        cuda_free(&c->base);
        return code;
    }
    *out = &c->base;
    return ERROR_OK;
}
