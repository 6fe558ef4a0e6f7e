/* Streams, as the operations use them.
 *
 * An operation takes its stream with cuda_stream, brings host memory to the device with cuda_stage,
 * launches its kernels, and calls cuda_check after each launch. It never waits for the device.
 *
 * One thread uses a stream at a time. Plain C and C++. */
#ifndef MOED_DEVICE_CUDA_STREAM_H
#define MOED_DEVICE_CUDA_STREAM_H

#include "context.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Staging is a ring of pinned memory and one of device memory of the same size, cut into blocks.
 * cuda_stage copies its bytes into the pinned ring, and in the stream's order from there into the
 * device's. A block is filled again after its copies are done (its event); on a busy stream that
 * was long ago. */
enum { CUDA_STAGE_BLOCKS = 4, CUDA_STAGE_BLOCK_BYTES = 2 << 20 };

struct device_stream {
    struct device *device;
    cudaStream_t cuda;
    uint8_t *staging; /* pinned */
    uint8_t *staged;  /* device */
    uint32_t block;   /* the block that is being filled */
    size_t block_used;
    cudaEvent_t block_done[CUDA_STAGE_BLOCKS]; /* recorded when the block was full */
    const uint32_t *guard;                     /* device; NULL: none */
    bool captured;                             /* into a graph */
};

/* The stream; enters its device, so the calling thread may launch. */
cudaStream_t cuda_stream(struct device_stream *s);

/* Copies host memory to the device: `bytes` of it, CUDA_STAGE_BLOCK_BYTES at most. Returns their
 * address there, aligned to 256 bytes, for launches on s until three more blocks have been staged.
 * The caller may write `from` again at once. NULL: it failed, and the device keeps the error;
 * launch nothing then. A device opened for copies fails. */
void *cuda_stage(struct device_stream *s, const void *from, size_t bytes);

/* After a launch: `what` names it, as "quantize". False: it failed, and the device keeps the error.
 */
#define cuda_check(s, what) cuda_remember((s)->device, cudaGetLastError(), what, __FILE__, __LINE__)

/* Of struct device_module. */
enum error_code cuda_stream_new(struct device *d, struct device_stream **out, struct error *e);
void cuda_stream_free(struct device_stream *s); /* takes NULL */
void cuda_upload(struct device_stream *s, void *to, const void *from, size_t bytes);
void cuda_download(struct device_stream *s, void *to, const void *from, size_t bytes);
void cuda_copy(struct device_stream *s, void *to, const void *from, size_t bytes);
void cuda_fill(struct device_stream *s, void *to, uint8_t byte, size_t bytes);
enum error_code cuda_finish(struct device_stream *s, struct error *e);

#ifdef __cplusplus
}
#endif
#endif
