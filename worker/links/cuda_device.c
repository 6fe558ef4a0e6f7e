/* Opening the CUDA device; see cuda_device.h. */
#include "cuda_device.h"

#include "base/checked.h"
#include "base/log.h"

#include <stdatomic.h>
#include <string.h>

#define ALLOCATION_ALIGN 256u

enum error_code cuda_device_open(const struct memory_client *memory, const struct device_spec *spec,
                                 struct cuda_device *out, struct error *e)
{
    struct cuda_device c = {0};
    void *imported = NULL;
    enum error_code code = device_module_load("cuda", &c.module, e);
    if (!code)
        code = c.module->open(spec->ordinal, &c.device, e);
    if (!code)
        code = c.module->import_memory(c.device, &memory->arena_handle, &imported, e);
    c.memory = imported;
    if (!code)
        code = c.module->stream_new(c.device, &c.stream, e);
    if (code) {
        cuda_device_close(&c);
        return code;
    }
    c.arena = c.memory + memory->slots_offset;
    if (memory->dense_bytes) /* as integers: the pool's first byte may lie before the allocation */
        c.dense = (const uint8_t *)((uintptr_t)c.memory - pool_map_dense(&memory->map).offset);
    c.module->facts(c.device, &c.facts);
    if (memory->flags_offset != DEVICE_NO_FLAGS && c.facts.signals)
        c.flags = (const uint32_t *)(c.memory + memory->flags_offset);
    log_info("%s computes %s, %.2f GB of it are for experts: %s", c.facts.name,
             c.dense ? "the model" : "the experts that are in it",
             (double)(residency_n_slots(memory->residency.header) *
                      memory->residency.header->slot_bytes) *
                 1e-9,
             c.facts.version);
    *out = c;
    return ERROR_OK;
}

void cuda_device_close(struct cuda_device *c)
{
    if (!c->device)
        return;
    c->module->stream_free(c->stream);
    c->module->close_imported(c->device, c->memory);
    c->module->close(c->device);
    memset(c, 0, sizeof *c);
}

static size_t whole_bytes(size_t bytes)
{
    return round_up(bytes ? bytes : 1, ALLOCATION_ALIGN);
}

enum error_code cuda_device_allocate(struct cuda_device *c, enum cuda_use use, size_t bytes,
                                     void **out, struct error *e)
{
    bytes = whole_bytes(bytes);
    enum error_code code = c->module->allocate(c->device, bytes, out, e);
    if (!code)
        atomic_fetch_add(&c->used[use], bytes);
    return code;
}

void cuda_device_release(struct cuda_device *c, enum cuda_use use, void *memory, size_t bytes)
{
    c->module->release(c->device, memory);
    atomic_fetch_sub(&c->used[use], whole_bytes(bytes));
}
