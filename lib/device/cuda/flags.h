/* Flags: numbers in device memory that one stream writes and another stream waits for, of this or
 * of another process. They are the driver's operations on memory in a stream's order (CUDA driver
 * API, "Stream Memory Operations"). The runtime has no such calls, so this module looks them up by
 * name in the driver's library, which is loaded already. */
#ifndef MOED_DEVICE_CUDA_FLAGS_H
#define MOED_DEVICE_CUDA_FLAGS_H

#include "stream.h"

/* Finds both functions, and tries them on the calling thread's device. False: the driver lacks
 * them, or they do not work. */
bool cuda_flags_find(void);

/* Of struct device_module; only if cuda_flags_find returned true. */
void cuda_flag_signal(struct device_stream *s, uint32_t *flag, uint32_t value);
void cuda_flag_await(struct device_stream *s, const uint32_t *flag, uint32_t value);

#endif
