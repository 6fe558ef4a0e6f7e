/* Whether nng can start; see peer_rpc_wire.h. */
#include "ipc/peer_rpc_wire.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOST_TASK_THREADS 16 /* nng's own limit: two a processor, at most so many */
#define MOST_THREADS      64 /* that the check starts: more cores than that have no such limits */
#define OTHER_THREADS     8  /* resolvers, poller, reaper, timer */

/* How many threads nng starts, at most. */
static size_t thread_count(void)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    size_t n = cpus > 0 ? (size_t)cpus : 1;
    size_t tasks = 2 * n < MOST_TASK_THREADS ? 2 * n : MOST_TASK_THREADS;
    return tasks + n + OTHER_THREADS;
}

/* Their address space. */
static size_t thread_bytes(void)
{
    size_t stack = 8u << 20;
    pthread_attr_t attr;
    if (pthread_getattr_default_np(&attr) == 0) {
        pthread_attr_getstacksize(&attr, &stack);
        pthread_attr_destroy(&attr);
    }
    return thread_count() * stack;
}

static void *wait_for_all(void *arg)
{
    pthread_mutex_t *lock = arg;
    pthread_mutex_lock(lock);
    pthread_mutex_unlock(lock);
    return NULL;
}

/* Whether the system allows so many threads at once: it starts them, and ends them. */
static bool can_start_threads(size_t n)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_t threads[MOST_THREADS];
    size_t started = 0;
    n = n < MOST_THREADS ? n : MOST_THREADS;
    pthread_mutex_lock(&lock);
    while (started < n && pthread_create(&threads[started], NULL, wait_for_all, &lock) == 0)
        started++;
    pthread_mutex_unlock(&lock);
    for (size_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    return started == n;
}

enum error_code peer_rpc_check_start(struct error *e)
{
    static atomic_bool checked;
    if (atomic_load(&checked))
        return ERROR_OK;
    size_t bytes = thread_bytes();
    void *space = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (space == MAP_FAILED)
        return error_set(e, ERROR_MEMORY,
                         "no address space for the threads of the control plane (%zu MiB): raise "
                         "the limit (ulimit -v)",
                         bytes >> 20);
    munmap(space, bytes);
    if (!can_start_threads(thread_count()))
        return error_set(e, ERROR_MEMORY,
                         "the %zu threads of the control plane cannot be started: raise the limit "
                         "of processes (ulimit -u, or the cgroup's pids.max)",
                         thread_count());
    atomic_store(&checked, true);
    return ERROR_OK;
}
