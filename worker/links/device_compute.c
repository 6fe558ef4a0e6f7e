/* Computing experts on a device of either kind; see device_compute.h. */
#include "device_compute_internal.h"

enum error_code device_compute_new(const struct memory_client *memory, struct exec *own,
                                   struct cuda_device *cuda, double call_s, uint32_t max_tokens,
                                   uint32_t max_rows, struct device_compute **out, struct error *e)
{
    struct device_compute base = {
        .memory = memory, .own = own, .max_tokens = max_tokens, .max_rows = max_rows};
    if (cuda)
        return device_compute_cuda_new(&base, cuda, out, e);
    return device_compute_emu_new(&base, call_s, out, e);
}

void device_compute_free(struct device_compute *c)
{
    if (c)
        c->kind->free(c);
}

const char *device_compute_name(const struct device_compute *c)
{
    return c->name;
}

const uint8_t *device_compute_arena(const struct device_compute *c)
{
    return c->arena;
}

enum error_code device_compute_import(struct device_compute *c,
                                      const uint8_t handle[DEVICE_HANDLE_BYTES], size_t bytes,
                                      struct device_import *out, struct error *e)
{
    *out = (struct device_import){0};
    return c->kind->import(c, handle, bytes, out, e);
}

void device_compute_close(struct device_compute *c, struct device_import *imported)
{
    c->kind->close(c, imported);
    *imported = (struct device_import){0};
}

float *device_compute_rows(const struct device_compute *c)
{
    return c->rows;
}

float *device_compute_own_rows(const struct device_compute *c)
{
    return c->own_rows;
}

void device_compute_input(struct device_compute *c, uint32_t layer, const float *values,
                          const void *prepared, uint32_t n_tokens)
{
    c->kind->input(c, layer, values, prepared, n_tokens);
}

enum error_code device_compute_run(struct device_compute *c, const struct expert_task *tasks,
                                   const bool *fetch, uint32_t n_tasks, struct error *e)
{
    c->kind->queue(c, tasks, fetch, n_tasks);
    return c->kind->settle(c, e);
}

void device_compute_queue(struct device_compute *c, const struct expert_task *tasks,
                          const bool *fetch, uint32_t n_tasks)
{
    c->kind->queue(c, tasks, fetch, n_tasks);
}

void device_compute_await(struct device_compute *c, uint32_t slot, uint32_t number)
{
    c->kind->await(c, slot, number);
}

bool device_compute_awaits(const struct device_compute *c)
{
    return c->awaits;
}

void device_compute_chosen(struct device_compute *c, const struct device_choice *choice,
                           const void *in, struct device_shared *shared)
{
    c->kind->chosen(c, choice, in, shared);
}

enum error_code device_compute_fetch(struct device_compute *c, uint32_t first, uint32_t n,
                                     struct error *e)
{
    return c->kind->fetch(c, first, n, e);
}

void device_compute_give(struct device_compute *c, uint32_t first, uint32_t n)
{
    c->kind->give(c, first, n);
}

enum error_code device_compute_settle(struct device_compute *c, struct error *e)
{
    return c->kind->settle(c, e);
}

const uint8_t *device_compute_store(struct device_compute *c, const void *from, size_t bytes)
{
    return c->kind->store(c, from, bytes);
}

void device_compute_drop(struct device_compute *c)
{
    c->kind->drop(c);
}
