/* What the parts of the CUDA module share: module.c (memory, streams, errors, the table) and the operations, whose functions
 * ops.h declares.
 *
 * An operation takes its stream by cuda_stream, brings what it reads of host memory over with cuda_stage, launches, and calls
 * cuda_check after each launch. It never waits for the device.
 *
 * Plain C and C++. */
#ifndef MOED_DEVICE_CUDA_INTERNAL_H
#define MOED_DEVICE_CUDA_INTERNAL_H

#include "device/module.h"

#include <cuda_runtime_api.h>
#include <pthread.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A part of host memory that is registered. */
struct cuda_pinned {
    const void *of; /* what was pinned by the call */
    void *memory;
};

struct device {
    int ordinal;
    /* of cudaDeviceProp */
    int multiprocessors;
    size_t block_shared_bytes;       /* that a block has without asking */
    size_t block_shared_bytes_optin; /* that it may have after cudaFuncSetAttribute */
    bool pins_read_only;             /* cudaHostRegisterReadOnly is known */
    bool signals;                    /* flags.h */
    char name[128], version[64];
    struct cuda_blas *blas; /* blas.h; NULL: not loaded */

    pthread_mutex_t lock; /* guards */
    struct error first;   /* code ERROR_OK: nothing has failed yet */
    pthread_mutex_t pin_lock; /* guards */
    struct cuda_pinned *pinned;
    size_t n_pinned, max_pinned;
};

/* Staging: a ring of pinned memory and one of device memory of the same size, cut in blocks. What is staged is copied into
 * the one and, in the stream's order, from there into the other. A block is written again when its copies are done
 * (its event), which a stream that is kept busy has long done. */
enum { CUDA_STAGE_BLOCKS = 4, CUDA_STAGE_BLOCK_BYTES = 2 << 20 };

struct device_stream {
    struct device *device;
    cudaStream_t cuda;
    uint8_t *staging;      /* pinned */
    uint8_t *staged;       /* device */
    uint32_t block;        /* that is being filled */
    size_t block_used;
    cudaEvent_t block_done[CUDA_STAGE_BLOCKS]; /* recorded when it was full */
    const uint32_t *guard; /* device; NULL: none */
    bool captured;         /* into a graph */
};

struct device_graph {
    struct device *device;
    cudaGraphExec_t cuda;
};

struct device_event {
    struct device *device;
    cudaEvent_t cuda;
};

/* The stream, on which this thread may launch now. */
cudaStream_t cuda_stream(struct device_stream *s);

/* Where `bytes` of host memory (at most CUDA_STAGE_BLOCK_BYTES) lie on the device for what is launched on s from now on, until
 * three blocks more have been staged; 256 bytes aligned. `from` may be written again at once. NULL: it failed, which is
 * remembered; launch nothing then. */
void *cuda_stage(struct device_stream *s, const void *from, size_t bytes);

/* After a launch: `what` names it, as "quantize". The first error of the device is remembered, with its place. True: all is
 * well. */
#define cuda_check(s, what) cuda_remember((s)->device, cudaGetLastError(), what, __FILE__, __LINE__)
/* A call of the runtime: cuda_try(s->device, cudaMemsetAsync(...)). */
#define cuda_try(device, call) cuda_remember(device, call, #call, __FILE__, __LINE__)
bool cuda_remember(struct device *d, cudaError_t code, const char *what, const char *file, int line);
/* An operation's own error, as of arguments that it cannot serve. */
void cuda_refuse(struct device *d, const char *what, const char *file, int line);

/* The least compute capability that the kernels were compiled for, as 75 for 7.5. */
int cuda_least_architecture(void);

#ifdef __cplusplus
}
#endif
#endif
