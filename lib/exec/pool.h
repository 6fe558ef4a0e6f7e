/* A pool of compute threads for one process: run a function over chunks, all threads and the caller
 * together, return when every chunk is done.
 *
 * Owner: one thread calls pool_run at a time. Threads are pinned one a core when asked. Waiting spins
 * briefly and then sleeps on a futex; it never spins longer than spin_us, so processes that take turns on
 * the same cores do not hold each other up.
 */
#ifndef MOED_EXEC_POOL_H
#define MOED_EXEC_POOL_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct pool;

/* n_threads includes the caller of pool_run; 0: as many as the process may run on. */
enum error_code pool_new(const char *name, unsigned n_threads, bool pin, unsigned spin_us,
                         struct pool **out, struct error *e);
void pool_free(struct pool *p); /* takes NULL */
unsigned pool_thread_count(const struct pool *p);

/* work(arg, thread, chunk) for each chunk in [0, n_chunks), in any order on any thread; thread is
 * 0..pool_thread_count - 1 (0 is the caller), for per-thread scratch. What the caller wrote before is
 * seen by the work; what the work wrote is seen by the caller after. */
typedef void pool_work(void *arg, unsigned thread, uint32_t chunk);
void pool_run(struct pool *p, pool_work *work, void *arg, uint32_t n_chunks);

/* The cores that this process may use (cgroup quota and affinity considered), at least 1. */
unsigned pool_usable_cores(void);

#endif
