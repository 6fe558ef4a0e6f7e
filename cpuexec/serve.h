/* Computing expert work for workers over shared memory (ipc/expert_channel.h): each worker has a
 * thread here, and all of them share one pool of compute threads. */
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

/* Listens on RUN/cpuexec.lease and serves at most 32 workers at a time. Borrows memory and pool,
 * and what counters points to, until serve_close. rounds: as exec_new; spin_us: how long, at the
 * least, a worker's thread spins for a job before it sleeps (base/spinner.h). */
enum error_code serve_open(const char *run, const struct memory_client *memory, struct pool *pool,
                           bool rounds, unsigned spin_us, const struct serve_counters *counters,
                           struct serve **out, struct error *e);
/* Ends all connections and joins their threads. Takes NULL. */
void serve_close(struct serve *s);

#endif
