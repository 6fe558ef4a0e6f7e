/* The CUDA device as a worker has it: one module, one stream, on which everything happens in order, and memd's memory,
 * imported. */
#ifndef MOED_WORKER_CUDA_DEVICE_H
#define MOED_WORKER_CUDA_DEVICE_H

#include "base/error.h"
#include "device/device.h"
#include "device/module.h"
#include "memory/memory_client.h"

enum cuda_use { CUDA_KV, CUDA_SCRATCH, CUDA_USES };

struct cuda_device {
    const struct device_module *module;
    struct device *device;
    struct device_stream *stream;
    struct device_facts facts;
    uint8_t *memory; /* memd's: the dense weights' copy, where there is one, flags, and the arena's first piece */
    const uint8_t *arena; /* the first slot, in it */
    const uint32_t *flags; /* of all slots, in it; NULL: our stream cannot wait for them */
    _Atomic uint64_t used[CUDA_USES]; /* bytes that cuda_device_allocate gave: a counter, for any thread */
    const uint8_t *dense; /* where the pool's first byte would lie for the dense weights' copy; NULL: there is none */
};

/* ERROR_UNSUPPORTED, ERROR_NOT_FOUND (no module, no device), ERROR_MEMORY, ERROR_IO. */
enum error_code cuda_device_open(const struct memory_client *memory, const struct device_spec *spec,
                                 struct cuda_device *out, struct error *e);
void cuda_device_close(struct cuda_device *c); /* takes one of zeros */

/* Memory of this worker's own, as lib/device/worker_room.h reckons with it. c->module releases it, or this does, where it goes
 * before the rest. */
enum error_code cuda_device_allocate(struct cuda_device *c, enum cuda_use use, size_t bytes, void **out,
                                     struct error *e);
void cuda_device_release(struct cuda_device *c, enum cuda_use use, void *memory, size_t bytes);

#endif
