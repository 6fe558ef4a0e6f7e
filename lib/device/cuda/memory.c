/* Memory; see memory.h. */
#include "memory.h"

#include <stdlib.h>
#include <string.h>

/* One call registers at most this much: the driver makes other calls wait while it registers host
 * memory. */
#define PIN_BYTES (1ull << 30)

_Static_assert(DEVICE_HANDLE_BYTES == sizeof(cudaIpcMemHandle_t),
               "struct device_handle holds the runtime's handle");

void cuda_memory_info(struct device *d, uint64_t *free_bytes, uint64_t *memory_bytes)
{
    size_t unused = 0, all = 0;
    if (cuda_enter(d))
        cuda_try(d, cudaMemGetInfo(&unused, &all));
    *free_bytes = unused;
    *memory_bytes = all;
}

enum error_code cuda_allocate(struct device *d, size_t bytes, void **out, struct error *e)
{
    uint64_t free_bytes, memory_bytes;
    enum error_code failed = cuda_try_enter(d, e);
    cudaError_t code = failed ? cudaSuccess : cudaMalloc(out, bytes);
    if (failed || code == cudaSuccess)
        return failed;
    if (code != cudaErrorMemoryAllocation)
        return CUDA_EXPLAIN(e, code, "cudaMalloc");
    cudaGetLastError();
    cuda_memory_info(d, &free_bytes, &memory_bytes);
    return error_set(e, ERROR_MEMORY, "%s has no %.3f GB for us, %.3f of %.3f GB are free", d->name,
                     (double)bytes * 1e-9, (double)free_bytes * 1e-9, (double)memory_bytes * 1e-9);
}

void cuda_release(struct device *d, void *memory)
{
    if (memory && cuda_enter(d))
        cuda_try(d, cudaFree(memory));
}

enum error_code cuda_export_memory(struct device *d, void *memory, struct device_handle *out,
                                   struct error *e)
{
    cudaIpcMemHandle_t handle;
    enum error_code failed = cuda_try_enter(d, e);
    cudaError_t code = failed ? cudaSuccess : cudaIpcGetMemHandle(&handle, memory);
    if (!failed && code != cudaSuccess)
        failed = CUDA_EXPLAIN(e, code, "cudaIpcGetMemHandle");
    if (!failed)
        memcpy(out->bytes, &handle, sizeof handle);
    return failed;
}

enum error_code cuda_import_memory(struct device *d, const struct device_handle *from, void **out,
                                   struct error *e)
{
    cudaIpcMemHandle_t handle;
    memcpy(&handle, from->bytes, sizeof handle);
    enum error_code failed = cuda_try_enter(d, e);
    cudaError_t code =
        failed ? cudaSuccess : cudaIpcOpenMemHandle(out, handle, cudaIpcMemLazyEnablePeerAccess);
    return failed || code == cudaSuccess ? failed : CUDA_EXPLAIN(e, code, "cudaIpcOpenMemHandle");
}

void cuda_close_imported(struct device *d, void *memory)
{
    if (memory && cuda_enter(d))
        cuda_try(d, cudaIpcCloseMemHandle(memory));
}

/* Grows the list where it has no entry left. False: there is no memory. */
static bool grow_pinned(struct device *d)
{
    if (d->n_pinned < d->max_pinned)
        return true;
    size_t most = d->max_pinned ? 2 * d->max_pinned : 16;
    struct cuda_pinned *list = realloc(d->pinned, most * sizeof *list);
    if (!list)
        return false;
    d->pinned = list;
    d->max_pinned = most;
    return true;
}

static cudaError_t register_part(struct device *d, void *memory, size_t bytes)
{
    cudaError_t code = cudaHostRegister(memory, bytes, cudaHostRegisterDefault);
    if (code == cudaSuccess || !d->pins_read_only)
        return code;
    cudaGetLastError(); /* the driver refuses a read-only mapping without the flag */
    return cudaHostRegister(memory, bytes, cudaHostRegisterReadOnly);
}

static enum error_code explain_pin(const struct device *d, cudaError_t code, struct error *e)
{
    enum error_code failed = CUDA_EXPLAIN(e, code, "cudaHostRegister");
    bool other = code == cudaErrorHostMemoryAlreadyRegistered || code == cudaErrorMemoryAllocation;
    if (d->pins_read_only || other)
        return failed;
    struct error first = *e;
    return error_set(e, failed, "%.300s; this device takes no memory that is mapped read-only",
                     first.text);
}

/* Unregisters the parts of `memory` that begin in its first `bytes`. */
static void unpin_parts(struct device *d, const void *memory, size_t bytes)
{
    pthread_mutex_lock(&d->pin_lock);
    for (size_t i = d->n_pinned; i-- > 0;) {
        const struct cuda_pinned *p = &d->pinned[i];
        if (p->of != memory || (size_t)((uint8_t *)p->memory - (const uint8_t *)memory) >= bytes)
            continue;
        cuda_try(d, cudaHostUnregister(p->memory));
        d->pinned[i] = d->pinned[--d->n_pinned];
    }
    pthread_mutex_unlock(&d->pin_lock);
}

void cuda_unpin(struct device *d, const void *memory)
{
    if (cuda_enter(d))
        unpin_parts(d, memory, SIZE_MAX);
}

void cuda_unpin_all(struct device *d)
{
    while (d->n_pinned)
        cudaHostUnregister(d->pinned[--d->n_pinned].memory);
}

enum error_code cuda_pin(struct device *d, const void *memory, size_t bytes, struct error *e)
{
    enum error_code failed = cuda_try_enter(d, e);
    size_t done = 0;
    while (!failed && done < bytes) {
        size_t n = bytes - done < PIN_BYTES ? bytes - done : PIN_BYTES;
        void *part = (uint8_t *)(uintptr_t)memory + done;
        pthread_mutex_lock(&d->pin_lock);
        bool listed = grow_pinned(d);
        cudaError_t code = listed ? register_part(d, part, n) : cudaErrorMemoryAllocation;
        if (code == cudaSuccess)
            d->pinned[d->n_pinned++] = (struct cuda_pinned){memory, part};
        pthread_mutex_unlock(&d->pin_lock);
        if (code != cudaSuccess)
            failed = explain_pin(d, code, e);
        else
            done += n;
    }
    /* only what this call has registered: an earlier call may have pinned the same memory */
    if (failed && done)
        unpin_parts(d, memory, done);
    return failed;
}

enum error_code cuda_allocate_pinned(struct device *d, size_t bytes, void **out, struct error *e)
{
    enum error_code failed = cuda_try_enter(d, e);
    cudaError_t code = failed ? cudaSuccess : cudaMallocHost(out, bytes);
    return failed || code == cudaSuccess ? failed : CUDA_EXPLAIN(e, code, "cudaMallocHost");
}

void cuda_release_pinned(struct device *d, void *memory)
{
    if (memory && cuda_enter(d))
        cuda_try(d, cudaFreeHost(memory));
}
