/* Opening the CUDA device; see cuda_device.h. */
#include "cuda_device.h"

#include "base/checked.h"
#include "base/clock.h"
#include "base/log.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>

#define ALLOCATION_ALIGN 256u
#define PATIENCE_NS      10000000000u
#define REPORT_NS        1000000000u
#define NAP_NS           20000000u

void cuda_device_starts(struct cuda_device *c, void (*report)(void *arg, const char *text),
                        void *arg)
{
    c->patience = (struct cuda_patience){.report = report, .arg = arg, .starting = true};
}

void cuda_device_started(struct cuda_device *c)
{
    c->patience.starting = false;
}

/* After an error: waits a moment, where it is a lack of memory that may pass. False: it does not.
 */
static bool await_memory(struct cuda_device *c, enum error_code code, const struct error *lack)
{
    struct cuda_patience *p = &c->patience;
    uint64_t now = clock_ns(), waited = p->since_ns ? now - p->since_ns : 0;
    if (code != ERROR_MEMORY)
        return false;
    if (!p->starting || waited >= PATIENCE_NS) {
        c->full = true;
        return false;
    }
    if (!p->since_ns)
        p->since_ns = now;
    if (waited >= REPORT_NS && !p->reported) { /* memd leaves its part at once */
        p->reported = true;
        p->report(p->arg, lack->text);
    }
    nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    return true;
}

static enum error_code open_once(const struct memory_client *memory, const struct device_spec *spec,
                                 struct cuda_device *c, struct error *e)
{
    void *imported = NULL;
    enum error_code code = c->module->open(spec->ordinal, DEVICE_COMPUTES, &c->device, e);
    if (!code)
        code = c->module->import_memory(c->device, &memory->arena_handle, &imported, e);
    c->memory = imported;
    if (code && c->device) {
        c->module->close_imported(c->device, c->memory);
        c->module->close(c->device);
        c->device = NULL;
        c->memory = NULL;
    }
    return code;
}

enum error_code cuda_device_open(const struct memory_client *memory, const struct device_spec *spec,
                                 struct cuda_device *c, struct error *e)
{
    enum error_code code = device_module_load("cuda", &c->module, e);
    if (!code)
        do
            code = open_once(memory, spec, c, e);
        while (await_memory(c, code, e));
    if (code)
        return code;
    c->arena = c->memory + memory->slots_offset;
    if (memory->dense_bytes) /* as integers: the pool's first byte may lie before the allocation */
        c->dense = (const uint8_t *)((uintptr_t)c->memory - pool_map_dense(&memory->map).offset);
    c->module->facts(c->device, &c->facts);
    if (memory->flags_offset != DEVICE_NO_FLAGS && c->facts.signals)
        c->flags = (const uint32_t *)(c->memory + memory->flags_offset);
    log_info("%s computes %s, %.2f GB of it are for experts: %s", c->facts.name,
             c->dense ? "the model" : "the experts that are in it",
             (double)(residency_n_slots(memory->residency.header) *
                      memory->residency.header->slot_bytes) *
                 1e-9,
             c->facts.version);
    return ERROR_OK;
}

enum error_code cuda_device_make_stream(struct cuda_device *c, struct error *e)
{
    enum error_code code;
    do
        code = c->module->stream_new(c->device, &c->stream, e);
    while (await_memory(c, code, e));
    return code;
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
    enum error_code code;
    do
        code = c->module->allocate(c->device, bytes, out, e);
    while (await_memory(c, code, e));
    if (!code)
        atomic_fetch_add(&c->used[use], bytes);
    return code;
}

void cuda_device_release(struct cuda_device *c, enum cuda_use use, void *memory, size_t bytes)
{
    c->module->release(c->device, memory);
    atomic_fetch_sub(&c->used[use], whole_bytes(bytes));
}
