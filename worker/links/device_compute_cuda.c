/* Computes experts in the kernels of a device module; see device_compute.h.
 *
 * One stream does everything in order. Once for each layer's input, unless the dense part has
 * prepared it on the device: the tokens' values are uploaded from pinned memory, and quantised. For
 * each run: the kernels, then the wanted rows are downloaded to pinned memory. The rows stay on the
 * device too: a later run of the layer continues their sums, and the dense part reads them. A run
 * is over when the stream is done; only then may the worker leave its epoch.
 *
 * The stream must be done with `values` before the next input overwrites them. So a caller that
 * queues a wait for a flag also settles. */
#include "cuda_device.h"
#include "device/worker_memory.h"
#include "device_compute_internal.h"

#include <stdlib.h>
#include <string.h>

enum { STORED_MOST = 256 };
/* device_compute_store leaves this much free: streams and the driver's kernels allocate device
 * memory when they are first used. */
#define STORE_LEAVES (2ull * DEVICE_STREAM_BYTES)

struct cuda_compute {
    struct device_compute base;
    struct cuda_device *cuda;
    const struct device_module *module; /* these three are cuda's */
    struct device *device;
    struct device_stream *stream;
    /* host memory, pinned */
    float *values; /* [max_tokens][d_model] */
    /* device memory */
    float *device_values; /* [max_tokens][d_model] */
    void *activations;    /* of max_tokens rows */
    void *scratch;
    void *stored[STORED_MOST];
    uint32_t n_stored;

    struct device_expert_task *tasks; /* [max_rows], for each task's runs of tokens */
    uint32_t layer;
    struct device_segments layout; /* of layer */
    struct device_activations input;
    const float *input_values; /* not NULL: not prepared yet */
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
    struct error e;
    c->module->finish(c->stream, &e); /* the device reads the buffers until then */
    cuda_drop(base);
    c->module->release(c->device, c->scratch);
    c->module->release(c->device, base->own_rows);
    c->module->release(c->device, c->activations);
    c->module->release(c->device, c->device_values);
    c->module->release_pinned(c->device, c->values);
    c->module->release_pinned(c->device, base->rows);
    free(c->tasks);
    free(c);
}

static void cuda_input(struct device_compute *base, uint32_t layer, const float *values,
                       const void *prepared, uint32_t n_tokens)
{
    struct cuda_compute *c = (struct cuda_compute *)base;
    c->layer = layer;
    c->layout = device_segments_of(&base->memory->map, layer);
    c->input_values = prepared ? NULL : values;
    if (prepared)
        c->input = *(const struct device_activations *)prepared;
    else
        c->input.n_tokens = n_tokens;
}

static void bring_input(struct cuda_compute *c)
{
    uint32_t d = c->layout.d_model, n = c->input.n_tokens;
    size_t bytes = (size_t)n * d * sizeof(float);
    bool quantize = exec_experts_quantize(&c->base.memory->map.slabs[c->layer]);
    memcpy(c->values, c->input_values, bytes); /* nothing reads c->values: the last run has ended */
    c->module->upload(c->stream, c->device_values, c->values, bytes);
    c->module->ops.activations_bind(&c->input, c->activations, d, n, c->device_values, d, quantize);
    if (quantize)
        c->module->ops.quantize(c->stream, &c->input);
    c->input_values = NULL;
}

static void download_rows(struct cuda_compute *c, uint32_t first, uint32_t n)
{
    size_t d = c->layout.d_model;
    c->module->download(c->stream, c->base.rows + first * d, c->base.own_rows + first * d,
                        n * d * sizeof(float));
}

static uint32_t first_row_of(const struct cuda_compute *c, const struct expert_task *t)
{
    return (uint32_t)((size_t)(t->out - c->base.rows) / c->layout.d_model);
}

/* Downloads the rows of tasks with fetch[i]; adjacent rows in one copy. */
static void fetch_rows(struct cuda_compute *c, const struct expert_task *tasks, const bool *fetch,
                       uint32_t n_tasks)
{
    for (uint32_t i = 0, next; i < n_tasks; i = next) {
        uint32_t first = first_row_of(c, &tasks[i]), end = first + tasks[i].n_tokens;
        next = i + 1;
        if (!fetch[i])
            continue;
        for (; next < n_tasks && fetch[next] && first_row_of(c, &tasks[next]) == end; next++)
            end += tasks[next].n_tokens;
        download_rows(c, first, end - first);
    }
}

/* A task's tokens, cut where a group of rows begins or ends. Returns how many tasks of the device
 * it became. */
static uint32_t cut_task(const struct cuda_compute *c, const struct row_groups *groups,
                         const struct expert_task *t, struct device_expert_task *to)
{
    uint32_t n = 0;
    for (uint32_t at = 0; at < t->n_tokens; n++) {
        struct row_run run = row_groups_run(groups, t->tokens, t->n_tokens, at);
        to[n] = (struct device_expert_task){.n_segments = t->n_segments,
                                            .n_tokens = run.n,
                                            .places = (const void *const *)t->places,
                                            .tokens = t->tokens + at,
                                            .first_row = first_row_of(c, t) + at,
                                            .continues = t->output == EXPERT_CONTINUE,
                                            .rounds = run.grouped};
        at += run.n;
    }
    return n;
}

static bool quantized(const struct device_segments *l)
{
    return exec_quantizes((enum tensor_type)l->gate_type) &&
           exec_quantizes((enum tensor_type)l->up_type) &&
           exec_quantizes((enum tensor_type)l->down_type);
}

static void cuda_queue(struct device_compute *base, const struct expert_task *tasks,
                       const bool *fetch, uint32_t n_tasks)
{
    struct cuda_compute *c = (struct cuda_compute *)base;
    if (c->input_values)
        bring_input(c);
    struct row_groups groups = {0};
    if (!quantized(&c->layout)) /* else no product rounds otherwise */
        groups = exec_groups(base->own);
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_tasks; i++)
        n += cut_task(c, &groups, &tasks[i], c->tasks + n);
    c->module->ops.experts(c->stream, &c->layout, &c->input, c->tasks, n, base->own_rows,
                           c->scratch);
    fetch_rows(c, tasks, fetch, n_tasks);
}

static void cuda_await(struct device_compute *base, uint32_t slot, uint32_t number)
{
    struct cuda_compute *c = (struct cuda_compute *)base;
    c->module->await(c->stream, c->cuda->flags + slot, number);
}

static void cuda_chosen(struct device_compute *base, const struct device_choice *choice,
                        const void *in, struct device_shared *shared)
{
    struct cuda_compute *c = (struct cuda_compute *)base;
    c->module->ops.experts_chosen(c->stream, choice, in, base->own_rows, c->scratch, shared);
}

static enum error_code cuda_fetch(struct device_compute *base, uint32_t first, uint32_t n,
                                  struct error *e)
{
    struct cuda_compute *c = (struct cuda_compute *)base;
    download_rows(c, first, n);
    return c->module->finish(c->stream, e);
}

static void cuda_give(struct device_compute *base, uint32_t first, uint32_t n)
{
    struct cuda_compute *c = (struct cuda_compute *)base;
    size_t d = c->layout.d_model;
    c->module->upload(c->stream, base->own_rows + first * d, base->rows + first * d,
                      n * d * sizeof(float));
}

static enum error_code cuda_settle(struct device_compute *base, struct error *e)
{
    struct cuda_compute *c = (struct cuda_compute *)base;
    return c->module->finish(c->stream, e);
}

static const uint8_t *cuda_store(struct device_compute *base, const void *from, size_t bytes)
{
    struct cuda_compute *c = (struct cuda_compute *)base;
    void *memory;
    struct error e;
    struct device_facts now;
    c->module->facts(c->device, &now);
    if (c->n_stored && now.free_bytes < bytes + STORE_LEAVES)
        return NULL;
    if (c->n_stored == STORED_MOST || c->module->allocate(c->device, bytes, &memory, &e))
        return NULL;
    c->stored[c->n_stored++] = memory;
    c->module->upload(c->stream, memory, from, bytes);
    return c->module->finish(c->stream, &e) ? NULL : memory;
}

static enum error_code cuda_import(struct device_compute *base,
                                   const uint8_t handle[DEVICE_HANDLE_BYTES], size_t bytes,
                                   struct device_import *out, struct error *e)
{
    struct cuda_compute *c = (struct cuda_compute *)base;
    struct device_handle name;
    void *memory;
    (void)bytes; /* the handle includes it */
    memcpy(name.bytes, handle, sizeof name.bytes);
    enum error_code code = c->module->import_memory(c->device, &name, &memory, e);
    if (!code)
        out->slots = memory;
    return code;
}

/* Waits first: queued work may still read the extent. */
static void cuda_close(struct device_compute *base, struct device_import *imported)
{
    struct cuda_compute *c = (struct cuda_compute *)base;
    struct error e;
    if (c->module->finish(c->stream, &e) ==
        ERROR_OK) /* else the device is lost, and the next run returns that */
        c->module->close_imported(c->device, (void *)(uintptr_t)imported->slots);
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
        code = cuda_device_allocate(c->cuda, CUDA_SCRATCH, values, (void **)&c->device_values, e);
    if (!code)
        code = cuda_device_allocate(c->cuda, CUDA_SCRATCH, rows, (void **)&c->base.own_rows, e);
    if (!code)
        code = cuda_device_allocate(c->cuda, CUDA_SCRATCH, m->ops.activations_bytes(d, tokens),
                                    &c->activations, e);
    if (!code)
        code = cuda_device_allocate(
            c->cuda, CUDA_SCRATCH, worker_memory_experts(m, &c->base.memory->map, c->base.max_rows),
            &c->scratch, e);
    return code;
}

enum error_code device_compute_cuda_new(const struct device_compute *base, struct cuda_device *cuda,
                                        struct device_compute **out, struct error *e)
{
    static const struct device_compute_kind kind = {
        .free = cuda_free,
        .input = cuda_input,
        .queue = cuda_queue,
        .await = cuda_await,
        .chosen = cuda_chosen,
        .fetch = cuda_fetch,
        .give = cuda_give,
        .settle = cuda_settle,
        .store = cuda_store,
        .drop = cuda_drop,
        .import = cuda_import,
        .close = cuda_close,
    };
    struct cuda_compute *c = calloc(1, sizeof *c);
    if (!c)
        return error_set(e, ERROR_MEMORY, "no memory for the device's tables");
    c->base = *base;
    c->base.kind = &kind;
    c->base.name = cuda->facts.name;
    c->base.arena = cuda->arena;
    c->base.awaits = cuda->flags != NULL;
    c->cuda = cuda;
    c->module = cuda->module;
    c->device = cuda->device;
    c->stream = cuda->stream;
    c->tasks = calloc(base->max_rows, sizeof *c->tasks);
    enum error_code code = c->tasks
                               ? make_buffers(c, e)
                               : error_set(e, ERROR_MEMORY, "no memory for the device's tables");
    if (code) {
        cuda_free(&c->base);
        return code;
    }
    *out = &c->base;
    return ERROR_OK;
}
