/* Serving expert work to workers over shared memory (ipc/expert_channel.h): one thread a worker, all on one
 * pool of compute threads. */
#ifndef MOED_CPUEXEC_SERVE_H
#define MOED_CPUEXEC_SERVE_H

#include "base/error.h"
#include "exec/pool.h"
#include "memory/memory_client.h"
#include "metrics/metrics.h"

struct serve;

struct serve_counters {
    struct counter *jobs, *experts, *rows, *compute_ns, *weight_bytes, *refused;
    struct histogram *job_seconds;
};

/* Listens on RUN/cpuexec.lease. Borrows everything. */
enum error_code serve_open(const char *run, const struct memory_client *memory, struct pool *pool,
                           bool blas, unsigned spin_us, const struct serve_counters *counters,
                           struct serve **out, struct error *e);
/* Ends all threads. Takes NULL. */
void serve_close(struct serve *s);

#endif
