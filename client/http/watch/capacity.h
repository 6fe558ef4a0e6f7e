/* What the processes of deployments have, by the deployments' names. Each is asked at most once a
 * second; the functions wait for it. One thread uses a struct capacities. 0: it is not known. */
#ifndef MOED_HTTP_CAPACITY_H
#define MOED_HTTP_CAPACITY_H

#include <stdint.h>

/* What they said. Zeroed at first. */
struct capacities {
    struct capacity *first;
};

void capacities_fini(struct capacities *c);
/* Bytes of device memory that have weights, experts and the KV cache. */
uint64_t capacity_device_bytes(struct capacities *c, const char *deployment);
/* Requests that run at once, in all workers together. */
uint64_t capacity_parallel(struct capacities *c, const char *deployment);

#endif
