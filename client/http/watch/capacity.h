/* What a deployment's processes have. The functions ask them and wait. 0: it is not known. */
#ifndef MOED_HTTP_CAPACITY_H
#define MOED_HTTP_CAPACITY_H

#include <stdint.h>

/* Bytes of device memory that have weights, experts and the KV cache. */
uint64_t capacity_device_bytes(const char *deployment);
/* Requests that run at once, in all workers together. */
uint64_t capacity_parallel(const char *deployment);

#endif
