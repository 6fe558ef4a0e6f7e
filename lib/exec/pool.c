/* A pool of compute threads; see pool.h.
 *
 * One job at a time. The owner fills the job, then publishes it by bumping `job` (release, paired with the
 * workers' acquire). Everyone takes chunks from `next`. A worker that finds no chunk left adds itself to
 * `finished` (release, paired with the owner's acquire): when all have, their results are visible and none
 * still looks at the job, so the owner may fill the next one.
 */
#include "exec/pool.h"

#include "base/clock.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct pool {
    /* written by the owner before `job` is bumped */
    pool_work *work;
    void *arg;
    uint32_t n_chunks;
    bool stopping;
    unsigned n_threads, spin_us;
    char name[12];
    struct pool_thread *threads; /* [n_threads - 1] */

    _Alignas(64) _Atomic uint32_t job;      /* futex word: number of the current job */
    _Atomic uint32_t sleepers;              /* workers that may sleep on it */
    _Alignas(64) _Atomic uint32_t next;     /* next chunk to take */
    _Alignas(64) _Atomic uint32_t finished; /* futex word: workers done with the job */
};

struct pool_thread {
    struct pool *pool;
    unsigned index;
    int cpu; /* -1: not pinned */
    pthread_t thread;
};

static void futex_sleep(_Atomic uint32_t *word, uint32_t seen)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake_all(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void run_chunks(struct pool *p, unsigned thread)
{
    uint32_t n = p->n_chunks;
    for (;;) {
        uint32_t chunk = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed);
        if (chunk >= n)
            return;
        p->work(p->arg, thread, chunk);
    }
}

/* Until *word differs from seen: spin for spin_us, then sleep. */
static void wait_change(struct pool *p, _Atomic uint32_t *word, uint32_t seen,
                        _Atomic uint32_t *sleepers)
{
    if (p->spin_us) {
        uint64_t end = clock_ns() + p->spin_us * 1000ull;
        do {
            for (int i = 0; i < 64; i++) {
                if (atomic_load_explicit(word, memory_order_acquire) != seen)
                    return;
                cpu_relax();
            }
        } while (clock_ns() < end);
    }
    if (sleepers) /* seq_cst, paired with the owner's bump then read of sleepers */
        atomic_fetch_add(sleepers, 1);
    while (atomic_load(word) == seen)
        futex_sleep(word, seen);
    if (sleepers)
        atomic_fetch_sub(sleepers, 1);
}

static void *thread_main(void *arg)
{
    struct pool_thread *t = arg;
    struct pool *p = t->pool;
    char name[16];
    snprintf(name, sizeof name, "%.10s/%u", p->name, t->index % 1000);
    pthread_setname_np(pthread_self(), name);
    if (t->cpu >= 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET((unsigned)t->cpu, &set);
        pthread_setaffinity_np(pthread_self(), sizeof set, &set); /* a hint: failing is harmless */
    }
    for (uint32_t seen = 0;;) {
        wait_change(p, &p->job, seen, &p->sleepers);
        seen = atomic_load_explicit(&p->job, memory_order_acquire);
        if (p->stopping)
            return NULL;
        run_chunks(p, t->index);
        uint32_t done = atomic_fetch_add_explicit(&p->finished, 1, memory_order_acq_rel) + 1;
        if (done == p->n_threads - 1)
            futex_wake_all(&p->finished);
    }
}

static void publish(struct pool *p)
{
    atomic_store_explicit(&p->next, 0, memory_order_relaxed);
    atomic_store_explicit(&p->finished, 0, memory_order_relaxed);
    atomic_fetch_add(&p->job, 1);
    if (atomic_load(&p->sleepers))
        futex_wake_all(&p->job);
}

void pool_run(struct pool *p, pool_work *work, void *arg, uint32_t n_chunks)
{
    if (p->n_threads == 1 || n_chunks <= 1) {
        for (uint32_t chunk = 0; chunk < n_chunks; chunk++)
            work(arg, 0, chunk);
        return;
    }
    p->work = work;
    p->arg = arg;
    p->n_chunks = n_chunks;
    publish(p);
    run_chunks(p, 0);
    uint32_t want = p->n_threads - 1, done;
    while ((done = atomic_load_explicit(&p->finished, memory_order_acquire)) != want)
        wait_change(p, &p->finished, done, NULL);
}

/* The cgroup's CPU quota in whole cores, 0 where there is none (version 2's cpu.max). */
static unsigned cgroup_quota_cores(void)
{
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
    if (!f)
        return 0;
    long quota = 0, period = 0;
    int n = fscanf(f, "%ld %ld", &quota, &period);
    fclose(f);
    return n == 2 && period > 0 && quota > 0 ? (unsigned)((quota + period - 1) / period) : 0;
}

unsigned pool_usable_cores(void)
{
    cpu_set_t set;
    unsigned n = 1;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        n = (unsigned)CPU_COUNT(&set);
    unsigned quota = cgroup_quota_cores();
    if (quota && quota < n)
        n = quota;
    return n ? n : 1;
}

/* The index-th CPU that the process may use, or -1 when there are fewer. */
static int usable_cpu(unsigned index)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set))
        return -1;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET((unsigned)cpu, &set) && index-- == 0)
            return cpu;
    return -1;
}

static void stop_threads(struct pool *p, unsigned n_started)
{
    p->stopping = true;
    publish(p);
    for (unsigned i = 0; i < n_started; i++)
        pthread_join(p->threads[i].thread, NULL);
}

enum error_code pool_new(const char *name, unsigned n_threads, bool pin, unsigned spin_us,
                         struct pool **out, struct error *e)
{
    if (n_threads == 0)
        n_threads = pool_usable_cores();
    struct pool *p = aligned_alloc(64, (sizeof *p + 63) / 64 * 64);
    struct pool_thread *threads = calloc(n_threads, sizeof *threads);
    if (!p || !threads) {
        free(p);
        free(threads);
        return error_set(e, ERROR_MEMORY, "no memory for a pool of %u threads", n_threads);
    }
    memset(p, 0, sizeof *p);
    p->n_threads = n_threads;
    p->spin_us = spin_us;
    p->threads = threads;
    snprintf(p->name, sizeof p->name, "%s", name);
    for (unsigned i = 0; i + 1 < n_threads; i++) {
        threads[i] = (struct pool_thread){p, i + 1, pin ? usable_cpu(i + 1) : -1, 0};
        int failed = pthread_create(&threads[i].thread, NULL, thread_main, &threads[i]);
        if (failed) {
            stop_threads(p, i);
            free(threads);
            free(p);
            return error_set(e, ERROR_MEMORY, "cannot start compute thread %u of %u: %s", i + 2,
                             n_threads, strerror(failed));
        }
    }
    *out = p;
    return ERROR_OK;
}

void pool_free(struct pool *p)
{
    if (!p)
        return;
    if (p->n_threads > 1)
        stop_threads(p, p->n_threads - 1);
    free(p->threads);
    free(p);
}

unsigned pool_thread_count(const struct pool *p)
{
    return p->n_threads;
}
