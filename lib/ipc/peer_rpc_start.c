/* Whether nng can start; see peer_rpc_wire.h. */
#include "ipc/peer_rpc_wire.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOST_TASK_THREADS 16 /* nng's own limit: two a processor, at most so many */
#define OTHER_THREADS     8  /* resolvers, poller, reaper, timer */

/* The address space of nng's threads. */
static size_t thread_bytes(void)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    size_t n = cpus > 0 ? (size_t)cpus : 1, stack = 8u << 20;
    size_t tasks = 2 * n < MOST_TASK_THREADS ? 2 * n : MOST_TASK_THREADS;
    pthread_attr_t attr;
    if (pthread_getattr_default_np(&attr) == 0) {
        pthread_attr_getstacksize(&attr, &stack);
        pthread_attr_destroy(&attr);
    }
    return (tasks + n + OTHER_THREADS) * stack;
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
    atomic_store(&checked, true);
    return ERROR_OK;
}
