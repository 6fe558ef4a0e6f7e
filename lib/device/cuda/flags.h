/* Numbers in device memory that one stream writes and another waits for, of this or of another process: the driver's
 * operations on memory in a stream's order (CUDA driver API, "Stream Memory Operations"). The runtime has none, so the
 * driver's library, which is loaded already, is asked for them by name. */
#ifndef MOED_DEVICE_CUDA_FLAGS_H
#define MOED_DEVICE_CUDA_FLAGS_H

#include "internal.h"

/* Finds them, and tries both on the calling thread's device. False: they are not there, or do not work. */
bool cuda_flags_find(void);

/* Of struct device_module; only where they were found. */
void cuda_flag_signal(struct device_stream *s, uint32_t *flag, uint32_t value);
void cuda_flag_await(struct device_stream *s, const uint32_t *flag, uint32_t value);

#endif
