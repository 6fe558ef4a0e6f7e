/* Streams: their copies, and staging; see stream.h. */
#include "stream.h"

#include "memory.h"

#include <stdlib.h>
#include <string.h>

/* ---- Streams ---- */

void cuda_stream_free(struct device_stream *s)
{
    if (!s)
        return;
    if (cuda_enter(s->device)) {
        cuda_try(s->device, cudaStreamSynchronize(s->cuda));
        for (int i = 0; i < CUDA_STAGE_BLOCKS; i++)
            if (s->block_done[i])
                cuda_try(s->device, cudaEventDestroy(s->block_done[i]));
        cuda_release_pinned(s->device, s->staging);
        cuda_release(s->device, s->staged);
        if (s->cuda)
            cuda_try(s->device, cudaStreamDestroy(s->cuda));
    }
    free(s);
}

_Static_assert((int)CUDA_STAGE_BLOCKS *(int)CUDA_STAGE_BLOCK_BYTES == (int)DEVICE_STREAM_BYTES,
               "DEVICE_STREAM_BYTES is what the device's ring takes");

static enum error_code make_staging(struct device_stream *s, struct error *e)
{
    size_t bytes = (size_t)CUDA_STAGE_BLOCKS * CUDA_STAGE_BLOCK_BYTES;
    enum error_code failed = cuda_allocate_pinned(s->device, bytes, (void **)&s->staging, e);
    if (!failed)
        failed = cuda_allocate(s->device, bytes, (void **)&s->staged, e);
    for (int i = 0; i < CUDA_STAGE_BLOCKS && !failed; i++)
        if (!cuda_try(s->device,
                      cudaEventCreateWithFlags(&s->block_done[i], cudaEventDisableTiming)))
            failed = cuda_first_error(s->device, e);
    return failed;
}

enum error_code cuda_stream_new(struct device *d, struct device_stream **out, struct error *e)
{
    struct device_stream *s = calloc(1, sizeof *s);
    if (!s)
        return error_set(e, ERROR_MEMORY, "no memory for a stream");
    s->device = d;
    enum error_code failed = cuda_try_enter(d, e);
    cudaError_t code =
        failed ? cudaSuccess : cudaStreamCreateWithFlags(&s->cuda, cudaStreamNonBlocking);
    if (code != cudaSuccess)
        failed = CUDA_EXPLAIN(e, code, "cudaStreamCreateWithFlags");
    if (!failed && d->computes) /* now, when a lack of memory is no error of the device */
        failed = make_staging(s, e);
    if (failed) {
        cuda_stream_free(s);
        return failed;
    }
    *out = s;
    return ERROR_OK;
}

cudaStream_t cuda_stream(struct device_stream *s)
{
    cuda_enter(s->device);
    return s->cuda;
}

static void copy_async(struct device_stream *s, void *to, const void *from, size_t bytes,
                       enum cudaMemcpyKind kind)
{
    if (bytes && cuda_enter(s->device))
        cuda_try(s->device, cudaMemcpyAsync(to, from, bytes, kind, s->cuda));
}

void cuda_upload(struct device_stream *s, void *to, const void *from, size_t bytes)
{
    copy_async(s, to, from, bytes, cudaMemcpyHostToDevice);
}

void cuda_download(struct device_stream *s, void *to, const void *from, size_t bytes)
{
    copy_async(s, to, from, bytes, cudaMemcpyDeviceToHost);
}

void cuda_copy(struct device_stream *s, void *to, const void *from, size_t bytes)
{
    copy_async(s, to, from, bytes, cudaMemcpyDeviceToDevice);
}

void cuda_fill(struct device_stream *s, void *to, uint8_t byte, size_t bytes)
{
    if (bytes && cuda_enter(s->device))
        cuda_try(s->device, cudaMemsetAsync(to, byte, bytes, s->cuda));
}

enum error_code cuda_finish(struct device_stream *s, struct error *e)
{
    if (cuda_enter(s->device))
        cuda_try(s->device, cudaStreamSynchronize(s->cuda));
    return cuda_first_error(s->device, e);
}

/* ---- Staging ---- */

/* Goes on to the next block, once its copies of a turn of the ring ago are done. */
static bool next_block(struct device_stream *s)
{
    bool ok = cuda_try(s->device, cudaEventRecord(s->block_done[s->block], s->cuda));
    s->block = (s->block + 1) % CUDA_STAGE_BLOCKS;
    s->block_used = 0;
    /* an event that was never recorded is done */
    return ok && cuda_try(s->device, cudaEventSynchronize(s->block_done[s->block]));
}

void *cuda_stage(struct device_stream *s, const void *from, size_t bytes)
{
    size_t taken = (bytes + 255) & ~(size_t)255;
    if (s->captured) {
        cuda_refuse(s->device, "a graph that reads host memory", __FILE__, __LINE__);
        return NULL;
    }
    if (!s->staged) {
        cuda_refuse(s->device, "an operation of a device opened for copies", __FILE__, __LINE__);
        return NULL;
    }
    if (taken > CUDA_STAGE_BLOCK_BYTES) {
        cuda_refuse(s->device, "more is staged at once than a block holds", __FILE__, __LINE__);
        return NULL;
    }
    if (!cuda_enter(s->device))
        return NULL;
    if (s->block_used + taken > CUDA_STAGE_BLOCK_BYTES && !next_block(s))
        return NULL;
    size_t at = (size_t)s->block * CUDA_STAGE_BLOCK_BYTES + s->block_used;
    s->block_used += taken;
    memcpy(s->staging + at, from, bytes);
    bool ok = cuda_try(s->device, cudaMemcpyAsync(s->staged + at, s->staging + at, bytes,
                                                  cudaMemcpyHostToDevice, s->cuda));
    return ok ? s->staged + at : NULL;
}
