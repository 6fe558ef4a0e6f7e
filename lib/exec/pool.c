/* A pool of compute threads; see pool.h.
 *
 * There is one job at a time.
 *   owner:  fills the job, opens `gate` (release), increments `job`, on which the helpers wait;
 *           takes chunks; closes the gate (acquire) and waits until all helpers have left. Then
 *           their results are visible, no helper reads the job, and the owner may fill the next.
 *   helper: enters the open gate by counting itself in (acquire); takes chunks from `next` until
 *           none remain; counts itself out (release). If it comes late, because another process had
 *           its core, it finds the gate closed. The owner does not wait for it. It does not enter
 *           either if no chunk is left to take, or as many threads are at work as there are chunks:
 *           with many threads and few chunks the gate would cost more than the job.
 * To decide that, a helper reads the queues and `most_helpers` outside the gate. What it reads is
 * at least as new as the job that it saw (acquire). If the owner already writes the next job, the
 * helper may stay out of it in error, until it sees that job's number. The owner needs no helper.
 * A job's chunks may stand in several queues, one per memory node. A thread empties its own node's
 * queue first, then takes from the others.
 *
 * Helpers from `active` on sleep on that word, so that a job does not wake them. One that is late
 * may still take part in a job. */
#include "exec/pool.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/spinner.h"

#include <assert.h>
#include <inttypes.h>
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

#define GATE_CLOSED 0x80000000u

/* Chunks [next, end) remain. */
struct pool_queue {
    _Alignas(64) _Atomic uint32_t next;
    _Atomic uint32_t end;
};

struct pool {
    /* written by the owner before the gate opens */
    pool_work *work;
    void *arg;
    _Atomic unsigned n_queues;
    bool stopping;
    bool pins;
    unsigned n_threads, spin_us, n_nodes, rank, n_shares;
    unsigned n_on_node[TOPOLOGY_MAX_NODES]; /* active threads */
    char name[12];
    struct topology *topology;   /* of all threads */
    struct pool_thread *threads; /* [n_threads]; thread 0 is the caller of pool_run */

    _Alignas(64) _Atomic uint32_t job;  /* futex word: number of the current job */
    _Atomic uint32_t sleepers;          /* helpers that may sleep on it */
    _Atomic uint32_t active;            /* futex word: threads that compute */
    _Alignas(64) _Atomic uint32_t gate; /* futex word: GATE_CLOSED | helpers inside */
    _Atomic uint32_t most_helpers;      /* inside at once */
    struct pool_queue queues[TOPOLOGY_MAX_NODES];
    _Alignas(64) struct spinner spinner; /* the owner's; each helper has its own */
};

struct pool_thread {
    struct pool *pool;
    unsigned index;
    _Atomic unsigned node;
    cpu_set_t cpus; /* its CPUs; empty: any. The owner's */
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

/* The i-th queue for a thread: its node's is the first. NULL: there are no more. */
static struct pool_queue *queue_for(struct pool *p, unsigned thread, unsigned i)
{
    unsigned n = atomic_load_explicit(&p->n_queues, memory_order_relaxed);
    unsigned node = atomic_load_explicit(&p->threads[thread].node, memory_order_relaxed);
    return i < n ? &p->queues[(node + i) % n] : NULL;
}

static bool has_chunks(const struct pool_queue *q)
{
    return atomic_load_explicit(&q->next, memory_order_relaxed) <
           atomic_load_explicit(&q->end, memory_order_relaxed);
}

static void run_chunks(struct pool *p, unsigned thread)
{
    struct pool_queue *q;
    for (unsigned i = 0; (q = queue_for(p, thread, i)); i++) {
        uint32_t end = atomic_load_explicit(&q->end, memory_order_relaxed);
        while (has_chunks(q)) {
            uint32_t chunk = atomic_fetch_add_explicit(&q->next, 1, memory_order_relaxed);
            if (chunk < end)
                p->work(p->arg, thread, chunk);
        }
    }
}

/* True: the thread would find a chunk. */
static bool has_work(struct pool *p, unsigned thread)
{
    struct pool_queue *q;
    for (unsigned i = 0; (q = queue_for(p, thread, i)); i++)
        if (has_chunks(q))
            return true;
    return false;
}

struct change {
    const _Atomic uint32_t *word;
    uint32_t seen;
};

static bool has_changed(void *arg)
{
    const struct change *c = arg;
    return atomic_load_explicit(c->word, memory_order_acquire) != c->seen;
}

/* Waits until *word differs from seen. */
static void wait_change(struct spinner *spinner, _Atomic uint32_t *word, uint32_t seen,
                        _Atomic uint32_t *sleepers)
{
    struct change change = {word, seen};
    if (has_changed(&change))
        return;
    uint64_t start = clock_ns();
    if (!spinner_spin(spinner, has_changed, &change, start, UINT64_MAX)) {
        if (sleepers) /* seq_cst, paired with the owner's bump then read of sleepers */
            atomic_fetch_add(sleepers, 1);
        while (atomic_load(word) == seen)
            futex_sleep(word, seen);
        if (sleepers)
            atomic_fetch_sub(sleepers, 1);
    }
    spinner_waited(spinner, clock_ns() - start);
}

/* A failed exchange is tried again. Counting in with one addition, and out again where the gate is
 * closed, would make the owner wait for a helper that loses its core between the two. */
static bool enter(struct pool *p, unsigned thread)
{
    if (!has_work(p, thread))
        return false;
    uint32_t gate = atomic_load_explicit(&p->gate, memory_order_relaxed);
    uint32_t most = atomic_load_explicit(&p->most_helpers, memory_order_relaxed);
    while (gate < most) /* also: not closed */
        if (atomic_compare_exchange_weak_explicit(&p->gate, &gate, gate + 1, memory_order_acquire,
                                                  memory_order_relaxed))
            return true;
    return false;
}

static void leave(struct pool *p)
{
    if (atomic_fetch_sub_explicit(&p->gate, 1, memory_order_release) == (GATE_CLOSED | 1))
        futex_wake_all(&p->gate);
}

/* A hint: failing is harmless. */
static void stay(pthread_t thread, const struct pool_thread *t)
{
    if (CPU_COUNT(&t->cpus))
        pthread_setaffinity_np(thread, sizeof t->cpus, &t->cpus);
}

/* Sleeps while the thread has no part in the pool's share. */
static void wait_active(struct pool *p, unsigned index)
{
    for (uint32_t active; (active = atomic_load(&p->active)) <= index;)
        futex_sleep(&p->active, active);
}

static void *thread_main(void *arg)
{
    struct pool_thread *t = arg;
    struct pool *p = t->pool;
    char name[16];
    snprintf(name, sizeof name, "%.10s/%u", p->name, t->index % 1000);
    pthread_setname_np(pthread_self(), name);
    struct spinner spinner;
    spinner_init(&spinner, p->spin_us);
    for (uint32_t seen = 0;;) {
        wait_active(p, t->index);
        wait_change(&spinner, &p->job, seen, &p->sleepers);
        seen = atomic_load_explicit(&p->job, memory_order_acquire);
        if (!enter(p, t->index))
            continue;
        if (p->stopping) /* the gate stays open */
            return NULL;
        run_chunks(p, t->index);
        leave(p);
    }
}

static void publish(struct pool *p)
{
    atomic_store_explicit(&p->gate, 0, memory_order_release);
    atomic_fetch_add(&p->job, 1);
    if (atomic_load(&p->sleepers))
        futex_wake_all(&p->job);
}

/* The helpers find the gate closed and spin. */
void pool_wake(struct pool *p)
{
    if (!atomic_load(&p->sleepers))
        return;
    atomic_fetch_add(&p->job, 1);
    futex_wake_all(&p->job);
}

static void fill_queues(struct pool *p, const uint32_t *first, unsigned n_queues)
{
    for (unsigned i = 0; i < n_queues; i++) {
        atomic_store_explicit(&p->queues[i].next, first[i], memory_order_relaxed);
        atomic_store_explicit(&p->queues[i].end, first[i + 1], memory_order_relaxed);
    }
    atomic_store_explicit(&p->n_queues, n_queues, memory_order_relaxed);
    atomic_store_explicit(&p->most_helpers, first[n_queues] - 1, memory_order_relaxed);
}

void pool_run(struct pool *p, pool_work *work, void *arg, uint32_t n_chunks)
{
    pool_run_by_node(p, work, arg, (const uint32_t[]){0, n_chunks}, 1);
}

void pool_run_by_node(struct pool *p, pool_work *work, void *arg, const uint32_t *first,
                      unsigned n_nodes)
{
    uint32_t n_chunks = first[n_nodes];
    assert(n_nodes <= p->n_nodes && first[0] == 0);
    if (pool_active_count(p) == 1 || n_chunks <= 1) {
        for (uint32_t chunk = 0; chunk < n_chunks; chunk++)
            work(arg, 0, chunk);
        return;
    }
    p->work = work;
    p->arg = arg;
    fill_queues(p, first, n_nodes);
    publish(p);
    run_chunks(p, 0);
    uint32_t gate =
        atomic_fetch_or_explicit(&p->gate, GATE_CLOSED, memory_order_acquire) | GATE_CLOSED;
    for (; gate != GATE_CLOSED; gate = atomic_load_explicit(&p->gate, memory_order_acquire))
        wait_change(&p->spinner, &p->gate, gate, NULL);
}

unsigned pool_usable_cores(void)
{
    return pool_useful_threads(0);
}

unsigned pool_useful_threads(unsigned asked)
{
    struct topology *t = malloc(sizeof *t); /* too large for the stack */
    if (!t)
        return 1;
    topology_read(t);
    unsigned n = topology_threads(t), n_cpus = t->n_cpus;
    free(t);
    return asked == 0 ? n : asked > n_cpus ? n_cpus : asked;
}

/* Stops threads 1 to n_started. */
static void stop_threads(struct pool *p, unsigned n_started)
{
    p->stopping = true;
    fill_queues(p, (const uint32_t[]){0, p->n_threads + 1}, 1); /* so that all enter */
    atomic_store(&p->active, p->n_threads);
    futex_wake_all(&p->active);
    publish(p);
    for (unsigned i = 1; i <= n_started; i++)
        pthread_join(p->threads[i].thread, NULL);
}

/* The least speed of the cores for a node's threads, if there are fewer of these than cores. Cores
 * of one kind may differ by some per cent. */
static uint32_t least_speed(const struct pool *p, const struct topology *t, unsigned node)
{
    uint32_t most = 0;
    unsigned n_fast = 0;
    for (unsigned i = 0; i < t->n_cores; i++)
        if (t->cpus[i].node == node && t->speeds[t->cpus[i].core] > most)
            most = t->speeds[t->cpus[i].core];
    for (unsigned i = 0; i < t->n_cores; i++)
        n_fast += t->cpus[i].node == node && t->speeds[t->cpus[i].core] >= most - most / 8;
    return p->n_on_node[node] <= n_fast ? most - most / 8 : 0;
}

/* The CPUs of a thread. With a thread for each core, each thread has a core of its own: the owners
 * of two processes that take turns then share one core and their helpers the others, and no two
 * threads share a core while another is idle. With fewer threads the kernel chooses the cores,
 * because other programs compute too: any first CPU of a core on the thread's node; only the fast
 * ones if the node has as many as threads. */
static cpu_set_t place_of(const struct pool *p, const struct topology *t, unsigned index)
{
    unsigned n_threads = pool_active_count(p);
    bool one_each = n_threads >= t->n_cores;
    unsigned n_cpus = n_threads > t->n_cores ? t->n_cpus : t->n_cores;
    uint32_t least = one_each ? 0 : least_speed(p, t, p->threads[index].node);
    cpu_set_t set;
    CPU_ZERO(&set);
    for (unsigned i = 0; i < n_cpus; i++)
        if (one_each
                ? i == index % n_cpus
                : t->cpus[i].node == p->threads[index].node && t->speeds[t->cpus[i].core] >= least)
            CPU_SET(t->cpus[i].cpu, &set);
    return set;
}

/* Gives the active threads their places on t. */
static void place_threads(struct pool *p, const struct topology *t)
{
    memset(p->n_on_node, 0, sizeof p->n_on_node);
    for (unsigned i = 0; i < pool_active_count(p); i++) {
        unsigned node = t->n_cpus ? t->cpus[i % t->n_cpus].node : 0;
        p->threads[i].node = node;
        p->n_on_node[node]++;
    }
    for (unsigned i = 0; p->pins && i < pool_active_count(p); i++)
        p->threads[i].cpus = place_of(p, t, i);
}

void pool_settle_caller(const struct pool *p)
{
    stay(pthread_self(), &p->threads[0]);
}

const cpu_set_t *pool_thread_cpus(const struct pool *p, unsigned thread)
{
    return &p->threads[thread].cpus;
}

unsigned pool_active_count(const struct pool *p)
{
    return atomic_load_explicit(&p->active, memory_order_relaxed);
}

void pool_share(struct pool *p, unsigned rank, unsigned n)
{
    static _Thread_local struct topology share; /* large */
    if (rank == p->rank && n == p->n_shares)
        return;
    unsigned active = p->n_threads / n ? p->n_threads / n : 1;
    p->rank = rank;
    p->n_shares = n;
    atomic_store(&p->active, active);
    topology_share(p->topology, rank, n, &share);
    place_threads(p, &share);
    pool_settle_caller(p);
    for (unsigned i = 1; i < active; i++)
        stay(p->threads[i].thread, &p->threads[i]);
    futex_wake_all(&p->active);
    pool_wake(p); /* those that have no part any more find that out */
}

static enum error_code start_threads(struct pool *p, struct error *e)
{
    for (unsigned i = 1; i < p->n_threads; i++) {
        int failed = pthread_create(&p->threads[i].thread, NULL, thread_main, &p->threads[i]);
        if (failed) {
            stop_threads(p, i - 1);
            return error_set(e, ERROR_MEMORY, "cannot start compute thread %u of %u: %s", i + 1,
                             p->n_threads, strerror(failed));
        }
        stay(p->threads[i].thread, &p->threads[i]);
    }
    return ERROR_OK;
}

enum error_code pool_new_on(const struct topology *t, const char *name, unsigned n_threads,
                            bool pin, unsigned spin_us, struct pool **out, struct error *e)
{
    if (n_threads == 0)
        n_threads = topology_threads(t);
    struct pool *p = aligned_alloc(64, (sizeof *p + 63) / 64 * 64);
    struct pool_thread *threads = calloc(n_threads, sizeof *threads);
    struct topology *topology = malloc(sizeof *topology);
    if (!p || !threads || !topology) {
        free(p);
        free(threads);
        free(topology);
        return error_set(e, ERROR_MEMORY, "no memory for a pool of %u threads", n_threads);
    }
    memset(p, 0, sizeof *p);
    atomic_init(&p->gate, GATE_CLOSED);
    p->n_threads = n_threads;
    p->n_shares = 1;
    atomic_init(&p->active, n_threads);
    p->n_nodes = t->n_nodes;
    p->spin_us = spin_us;
    spinner_init(&p->spinner, spin_us);
    p->pins = pin && !t->is_guessed;
    p->threads = threads;
    p->topology = topology;
    *topology = *t;
    snprintf(p->name, sizeof p->name, "%s", name);
    for (unsigned i = 0; i < n_threads; i++) {
        threads[i].pool = p;
        threads[i].index = i;
    }
    place_threads(p, t);
    enum error_code code = start_threads(p, e);
    if (code) {
        free(topology);
        free(threads);
        free(p);
        return code;
    }
    *out = p;
    return ERROR_OK;
}

enum error_code pool_new(const char *name, unsigned n_threads, bool pin, unsigned spin_us,
                         struct pool **out, struct error *e)
{
    struct topology *t = malloc(sizeof *t);
    if (!t)
        return error_set(e, ERROR_MEMORY, "no memory for the table of CPUs");
    topology_read(t);
    enum error_code code = pool_new_on(t, name, n_threads, pin, spin_us, out, e);
    free(t);
    return code;
}

unsigned pool_threads_on(const struct pool *p, unsigned node)
{
    return p->n_on_node[node] ? p->n_on_node[node] : pool_active_count(p);
}

void pool_log(const struct pool *p, uint64_t asked)
{
    const struct topology *t = p->topology;
    char quota[24] = "none";
    if (t->quota)
        snprintf(quota, sizeof quota, "%u cores", t->quota);
    if (asked > p->n_threads)
        log_warn("--threads %" PRIu64 ": this process may use %u CPUs: %u threads", asked,
                 t->n_cpus, p->n_threads);
    log_info("compute threads: %u on %u memory node%s, %s; CPU quota: %s", p->n_threads, p->n_nodes,
             p->n_nodes == 1 ? "" : "s",
             !p->pins                    ? "not pinned"
             : p->n_threads < t->n_cores ? "pinned to nodes"
                                         : "pinned to cores",
             quota);
}

unsigned pool_node_count(const struct pool *p)
{
    return p->n_nodes;
}

void pool_free(struct pool *p)
{
    if (!p)
        return;
    if (p->n_threads > 1)
        stop_threads(p, p->n_threads - 1);
    free(p->topology);
    free(p->threads);
    free(p);
}

unsigned pool_thread_count(const struct pool *p)
{
    return p->n_threads;
}
