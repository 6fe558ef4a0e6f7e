/* The worker's CUDA device: one module, one stream, on which everything happens in order, and
 * memd's memory, imported. */
#ifndef MOED_WORKER_LINKS_CUDA_DEVICE_H
#define MOED_WORKER_LINKS_CUDA_DEVICE_H

#include "base/error.h"
#include "device/device.h"
#include "device/module.h"
#include "memory/memory_client.h"

enum cuda_use { CUDA_KV, CUDA_SCRATCH, CUDA_USES };

/* While the worker starts it waits for device memory that other programs, or memd, are about to
 * leave. */
struct cuda_patience {
    void (*report)(void *arg, const char *text); /* called once: what it waits for */
    void *arg;
    bool reported;
    bool starting;     /* else nothing is waited for: requests run */
    uint64_t since_ns; /* the first wait; 0: none */
};

struct cuda_device {
    const struct device_module *module;
    struct device *device;
    struct device_stream *stream; /* NULL until cuda_device_make_stream */
    struct device_facts facts;
    /* memd's: the first extent of the arena, with the copy of the dense weights, if any, and flags
     */
    uint8_t *memory;
    const uint8_t *arena;  /* the first slot, in memory */
    const uint32_t *flags; /* of all slots, in memory; NULL: the stream cannot wait for them */
    const uint8_t *dense;  /* the address that the pool's first byte would have for the copy of the
                              dense weights; NULL: there is no copy */
    _Atomic uint64_t
        used[CUDA_USES]; /* bytes from cuda_device_allocate: a counter, for any thread */
    struct cuda_patience patience;
    bool full; /* the device had no memory for an allocation, and none came */
};

/* Makes the context and imports memd's memory; allocates nothing else. ERROR_UNSUPPORTED (no
 * module), ERROR_NOT_FOUND (no device), ERROR_MEMORY, ERROR_IO. */
enum error_code cuda_device_open(const struct memory_client *memory, const struct device_spec *spec,
                                 struct cuda_device *c, struct error *e); /* c: zeroed */
/* The stream with its staging, which is the worker's first allocation: memd must have released the
 * worker's share (cache_link_open), or a full device has no memory for it. ERROR_MEMORY, ERROR_IO.
 */
enum error_code cuda_device_make_stream(struct cuda_device *c, struct error *e);
/* Before cuda_device_open: from now on it, cuda_device_make_stream and cuda_device_allocate wait
 * for memory, ten seconds altogether. Until cuda_device_started. */
void cuda_device_starts(struct cuda_device *c, void (*report)(void *arg, const char *text),
                        void *arg);
void cuda_device_started(struct cuda_device *c);
void cuda_device_close(struct cuda_device *c); /* takes a zeroed one */

/* The worker's own device memory, which lib/device/worker_memory.h plans. Release it through
 * c->module when everything is released; before that through cuda_device_release, which counts. */
enum error_code cuda_device_allocate(struct cuda_device *c, enum cuda_use use, size_t bytes,
                                     void **out, struct error *e);
void cuda_device_release(struct cuda_device *c, enum cuda_use use, void *memory, size_t bytes);

#endif
