/* A pool of compute threads of one process. All threads and the caller run a function over chunks;
 * the call returns when every chunk is done.
 *
 * One thread calls pool_run at a time. `pin` keeps the threads on memory nodes and cores, each on a
 * core of its own if there are enough. A waiting thread spins briefly, yields the core to other
 * threads, and then sleeps on a futex, so that processes that take turns on the same cores do not
 * block each other. */
#ifndef MOED_EXEC_POOL_H
#define MOED_EXEC_POOL_H

#include "base/error.h"
#include "exec/topology.h"

#include <stdbool.h>
#include <stdint.h>

struct pool;

/* n_threads includes the caller of pool_run. 0: one per core that the process may use
 * (topology_threads). spin_us: how long, at the least, a thread spins before it sleeps
 * (base/spinner.h). */
enum error_code pool_new(const char *name, unsigned n_threads, bool pin, unsigned spin_us,
                         struct pool **out, struct error *e);
/* The same for the described CPUs, real or made up. Borrows t for the call. */
enum error_code pool_new_on(const struct topology *t, const char *name, unsigned n_threads,
                            bool pin, unsigned spin_us, struct pool **out, struct error *e);
void pool_free(struct pool *p); /* takes NULL */
unsigned pool_thread_count(const struct pool *p);

/* From now on the pool computes on one of n equal shares of its threads, the rank-th of the cores
 * where it pins (topology_share). Results do not depend on it. At first rank is 0 and n is 1. The
 * caller of pool_run calls it, between two jobs. */
void pool_share(struct pool *p, unsigned rank, unsigned n);
/* The threads that compute now; others exist, and sleep. */
unsigned pool_active_count(const struct pool *p);

/* Calls work(arg, thread, chunk) for each chunk in [0, n_chunks), in any order on any thread.
 * thread is 0..pool_thread_count - 1, 0 for the caller, for per-thread scratch. The work sees what
 * the caller wrote before the call; afterwards the caller sees what the work wrote. */
typedef void pool_work(void *arg, unsigned thread, uint32_t chunk);
void pool_run(struct pool *p, pool_work *work, void *arg, uint32_t n_chunks);

/* Announces a job: sleeping threads begin to wake, which takes longer than many a job. */
void pool_wake(struct pool *p);

/* As pool_run, for work that reads memory of one node: chunks [first[k], first[k + 1]) belong to
 * node k; first[0] is 0. A node's threads take its chunks first, then those of other nodes.
 * n_nodes: 1 or pool_node_count. */
void pool_run_by_node(struct pool *p, pool_work *work, void *arg, const uint32_t *first,
                      unsigned n_nodes);
unsigned pool_node_count(const struct pool *p);
/* The threads that compute now on a node; if there are none, on all nodes, because all of them take
 * its chunks. */
unsigned pool_threads_on(const struct pool *p, unsigned node);
/* Pins the calling thread to the place of thread 0, if the pool pins. For the thread that will call
 * pool_run. */
void pool_settle_caller(const struct pool *p);

/* The CPUs that an active thread may use; none: any. Valid until pool_share. */
const cpu_set_t *pool_thread_cpus(const struct pool *p, unsigned thread);

/* Logs the number of threads and where they stay. asked: of --threads; more than there are give a
 * warning. */
void pool_log(const struct pool *p, uint64_t asked);

/* The cores that this process may use (topology_threads). */
unsigned pool_usable_cores(void);
/* The number of threads to use for `asked`; 0: the default. Never more than there are CPUs, because
 * further threads would only wait for each other. */
unsigned pool_useful_threads(unsigned asked);

#endif
