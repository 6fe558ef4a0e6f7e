/* Memory of the dense part on a CUDA device, and the way between the host and it; see dense.h. */
#include "dense_cuda_internal.h"

#include "base/checked.h"

#include <assert.h>
#include <string.h>

void *dense_cuda_allocate(struct dense *d, size_t bytes)
{
    struct dense_cuda *c = dense_cuda_of(d);
    void *memory;
    if (c->n_buffers == DENSE_CUDA_BUFFERS) {
        error_set(&c->failed, ERROR_MEMORY, "too many buffers");
        return NULL;
    }
    if (cuda_device_allocate(c->cuda, CUDA_SCRATCH, bytes, &memory, &c->failed))
        return NULL;
    c->buffers[c->n_buffers++] = memory;
    c->module->fill(c->stream, memory, 0, bytes);
    return memory;
}

void *dense_cuda_allocate_pinned(struct dense_cuda *c, size_t bytes)
{
    void *memory;
    bytes = round_up(bytes ? bytes : 1, DENSE_CUDA_ALIGN);
    if (c->n_pinned == DENSE_CUDA_BUFFERS) {
        error_set(&c->failed, ERROR_MEMORY, "too many buffers");
        return NULL;
    }
    if (c->module->allocate_pinned(c->device, bytes, &memory, &c->failed))
        return NULL;
    memset(memory, 0, bytes);
    c->pinned[c->n_pinned++] = memory;
    return memory;
}

bool dense_cuda_allocate_shared(struct dense *d, size_t bytes, struct mirrored_values *out)
{
    out->own = dense_cuda_allocate(d, bytes);
    out->host = dense_cuda_allocate_pinned(dense_cuda_of(d), bytes);
    return out->own && out->host;
}

void dense_cuda_fetch(struct dense *d, const struct mirrored_values *v, size_t bytes)
{
    struct dense_cuda *c = dense_cuda_of(d);
    c->module->download(c->stream, v->host, v->own, bytes);
}

enum error_code dense_cuda_wait(struct dense *d, struct error *e)
{
    struct dense_cuda *c = dense_cuda_of(d);
    c->staged_used = 0;
    return c->module->finish(c->stream, e);
}

const void *dense_cuda_bring(struct dense *d, const void *host, size_t bytes)
{
    struct dense_cuda *c = dense_cuda_of(d);
    size_t whole = round_up(bytes, DENSE_CUDA_ALIGN);
    struct error e;
    assert(whole <= c->staged_bytes);
    if (c->staged_bytes - c->staged_used < whole)
        dense_cuda_wait(d, &e); /* the next wait returns an error again */
    uint8_t *at = (uint8_t *)c->staged.host + c->staged_used;
    uint8_t *to = (uint8_t *)c->staged.own + c->staged_used;
    memcpy(at, host, bytes);
    c->module->upload(c->stream, to, at, bytes);
    c->staged_used += whole;
    return to;
}
