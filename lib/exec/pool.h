/* A pool of compute threads for one process: run a function over chunks, all threads and the caller
 * together, return when every chunk is done.
 *
 * Owner: one thread calls pool_run at a time. When asked (pin) threads are kept on memory nodes and cores, each on a core
 * of its own where there is one for each. Waiting spins briefly, giving the core to whoever else wants it, and then sleeps
 * on a futex; so processes that take turns on the same cores do not hold each other up.
 */
#ifndef MOED_EXEC_POOL_H
#define MOED_EXEC_POOL_H

#include "base/error.h"
#include "exec/topology.h"

#include <stdbool.h>
#include <stdint.h>

struct pool;

/* n_threads includes the caller of pool_run; 0: one a core that the process may use (topology_threads). */
enum error_code pool_new(const char *name, unsigned n_threads, bool pin, unsigned spin_us,
                         struct pool **out, struct error *e);
/* The same on CPUs that are described and may be made up; borrows t for the call. */
enum error_code pool_new_on(const struct topology *t, const char *name, unsigned n_threads,
                            bool pin, unsigned spin_us, struct pool **out, struct error *e);
void pool_free(struct pool *p); /* takes NULL */
unsigned pool_thread_count(const struct pool *p);

/* work(arg, thread, chunk) for each chunk in [0, n_chunks), in any order on any thread; thread is
 * 0..pool_thread_count - 1 (0 is the caller), for per-thread scratch. What the caller wrote before is
 * seen by the work; what the work wrote is seen by the caller after. */
typedef void pool_work(void *arg, unsigned thread, uint32_t chunk);
void pool_run(struct pool *p, pool_work *work, void *arg, uint32_t n_chunks);

/* The next job is near: threads that sleep may wake meanwhile, which takes longer than many a job. */
void pool_wake(struct pool *p);

/* The same for work that reads what lies on memory nodes: chunks [first[k], first[k + 1]) are node k's, whose threads take them
 * first, and other nodes' when they have none left. n_nodes: 1, or pool_node_count. */
void pool_run_by_node(struct pool *p, pool_work *work, void *arg, const uint32_t *first,
                      unsigned n_nodes);
unsigned pool_node_count(const struct pool *p);
/* Keeps the calling thread where thread 0 of a pool that pins belongs, for who calls pool_run from then on. */
void pool_settle_caller(const struct pool *p);

/* The cores that this process may use (topology_threads). */
unsigned pool_usable_cores(void);
/* How many threads to compute with where so many were asked for, 0: no number. More than there are CPUs would only wait for
 * each other. */
unsigned pool_useful_threads(unsigned asked);

#endif
