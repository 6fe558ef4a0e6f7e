/* The other workers of the deployment, through their entries in the KV pool (ipc/kv_pool.h): what
 * each has to do, the cores that this one may use now, and whose request is next to get pages.
 *
 * Threads: the engine's. Nothing here waits or allocates. */
#ifndef MOED_WORKER_SERVE_SIBLINGS_H
#define MOED_WORKER_SERVE_SIBLINGS_H

#include "exec/pool.h"
#include "ipc/kv_pool.h"

struct siblings {
    struct kv_pool_worker *entries; /* [KV_POOL_WORKERS]; NULL: there are none */
    uint32_t own;
};

/* Says what this worker has to do. */
void siblings_report(const struct siblings *s, uint32_t running, uint32_t waiting);
/* Gives the pool an equal share of the cores, among the workers that have something to do. */
void siblings_share_cores(const struct siblings *s, struct pool *pool);

/* Says that this worker's first request, submitted then, waits for pages of the pool; 0: none does.
 * To be repeated while it waits. Other workers then start no later request. */
void siblings_wait(const struct siblings *s, uint64_t submitted_ns);
/* False: a request of another worker waits for pages, and came before. */
bool siblings_may_start(const struct siblings *s, uint64_t submitted_ns);

#endif
