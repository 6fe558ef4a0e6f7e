/* Computing experts on the emulated device, on this process's threads; see device_compute.h. */
#include "device_compute_internal.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

struct emu_compute {
    struct device_compute base;
    double call_s;
    uint32_t layer;
    const struct activations *input;
};

static void emu_free(struct device_compute *c)
{
    free(c->rows);
    free((struct emu_compute *)c);
}

static void emu_input(struct device_compute *c, uint32_t layer, const float *values,
                      const void *prepared, uint32_t n_tokens)
{
    (void)prepared;
    struct emu_compute *m = (struct emu_compute *)c;
    uint32_t d_model = c->memory->map.params.d_model;
    bool quantize = exec_experts_quantize(&c->memory->map.slabs[layer]);
    m->layer = layer;
    m->input = exec_prepare(c->own, 1, values, d_model, n_tokens, d_model, quantize);
}

/* Takes the time of a call to a real device. Spins: the time is too short to sleep. */
static void spend(double seconds)
{
    uint64_t until = clock_ns() + (uint64_t)(seconds * 1e9);
    while (clock_ns() < until)
        ;
}

static void emu_queue(struct device_compute *c, const struct expert_task *tasks, const bool *fetch,
                      uint32_t n_tasks)
{
    struct emu_compute *m = (struct emu_compute *)c;
    (void)fetch; /* the rows are in host memory */
    if (m->call_s > 0)
        spend(m->call_s);
    exec_experts(c->own, &c->memory->map, m->layer, m->input, tasks, n_tasks);
}

static enum error_code emu_fetch(struct device_compute *c, uint32_t first, uint32_t n,
                                 struct error *e)
{
    (void)c, (void)first, (void)n, (void)e;
    return ERROR_OK;
}

static enum error_code emu_settle(struct device_compute *c, struct error *e)
{
    (void)c, (void)e;
    return ERROR_OK;
}

static void emu_give(struct device_compute *c, uint32_t first, uint32_t n)
{
    (void)c, (void)first, (void)n;
}

static const uint8_t *emu_store(struct device_compute *c, const void *from, size_t bytes)
{
    (void)c, (void)from, (void)bytes;
    return NULL;
}

static void emu_drop(struct device_compute *c)
{
    (void)c;
}

static enum error_code emu_import(struct device_compute *c,
                                  const uint8_t handle[DEVICE_HANDLE_BYTES], size_t bytes,
                                  struct device_import *out, struct error *e)
{
    const struct shm *arena = &c->memory->arena; /* it has all extents */
    uint64_t offset;
    memcpy(&offset, handle, sizeof offset);
    if (offset > arena->bytes || bytes > arena->bytes - offset)
        return error_set(e, ERROR_PROTOCOL, "memd's arena has an extent beyond its end");
    out->slots = (const uint8_t *)arena->base + offset;
    return ERROR_OK;
}

static void emu_close(struct device_compute *c, struct device_import *imported)
{
    (void)c, (void)imported; /* the arena stays mapped */
}

enum error_code device_compute_emu_new(const struct device_compute *base, double call_s,
                                       struct device_compute **out, struct error *e)
{
    static const struct device_compute_kind kind = {
        .free = emu_free,
        .input = emu_input,
        .queue = emu_queue,
        .fetch = emu_fetch,
        .give = emu_give,
        .settle = emu_settle,
        .store = emu_store,
        .drop = emu_drop,
        .import = emu_import,
        .close = emu_close,
    };
    struct emu_compute *m = calloc(1, sizeof *m);
    float *rows = calloc((size_t)base->max_rows * base->memory->map.params.d_model, sizeof *rows);
    if (!m || !rows) {
        free(m);
        free(rows);
        return error_set(e, ERROR_MEMORY, "no memory for the experts' rows");
    }
    m->call_s = call_s;
    m->base = *base;
    m->base.kind = &kind;
    m->base.name = "";
    m->base.arena = base->memory->arena.base;
    m->base.rows = m->base.own_rows = rows;
    *out = &m->base;
    return ERROR_OK;
}
