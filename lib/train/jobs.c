/* Jobs on threads; see jobs.h. */
#include "train/jobs.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

enum { MOST_THREADS = 256 };

struct run {
    const struct jobs *jobs;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    /* guarded by lock */
    uint32_t next, n_running;
    uint32_t failed; /* the lowest number of a failed job */
    enum error_code code;
    struct error error;
};

static void fail(struct run *r, uint32_t job, enum error_code code, const struct error *e)
{
    if (!r->code || job < r->failed) {
        r->code = code;
        r->failed = job;
        r->error = *e;
    }
    atomic_store(r->jobs->stop, true);
}

static void *worker(void *arg)
{
    struct run *r = arg;
    const struct jobs *j = r->jobs;
    pthread_mutex_lock(&r->lock);
    while (r->next < j->n && !atomic_load(j->stop)) {
        uint32_t job = r->next++;
        pthread_mutex_unlock(&r->lock);
        struct error e = {0};
        enum error_code code = j->run(j->arg, job, &e);
        pthread_mutex_lock(&r->lock);
        if (code)
            fail(r, job, code, &e);
    }
    r->n_running--;
    pthread_cond_signal(&r->ended);
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

/* The caller holds the lock. */
static bool wait_and_poll(struct run *r)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 200 * 1000 * 1000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&r->ended, &r->lock, &until);
    pthread_mutex_unlock(&r->lock);
    bool go_on = !r->jobs->poll || r->jobs->poll(r->jobs->arg);
    pthread_mutex_lock(&r->lock);
    return go_on;
}

enum error_code jobs_run(const struct jobs *j, struct error *e)
{
    struct run r = {.jobs = j};
    pthread_t threads[MOST_THREADS];
    uint32_t n_threads = 0, most = j->n_threads < MOST_THREADS ? j->n_threads : MOST_THREADS;
    bool cancelled = false;
    pthread_mutex_init(&r.lock, NULL);
    pthread_cond_init(&r.ended, NULL);
    pthread_mutex_lock(&r.lock);
    while (n_threads < most && n_threads < j->n &&
           !pthread_create(&threads[n_threads], NULL, worker, &r))
        r.n_running = ++n_threads;
    while (r.n_running)
        if (!wait_and_poll(&r)) {
            cancelled = true;
            atomic_store(j->stop, true);
        }
    pthread_mutex_unlock(&r.lock);
    for (uint32_t i = 0; i < n_threads; i++)
        pthread_join(threads[i], NULL);
    pthread_mutex_destroy(&r.lock);
    pthread_cond_destroy(&r.ended);
    if (!n_threads && j->n)
        return error_set(e, ERROR_MEMORY, "cannot start a thread to train");
    if (r.code && e)
        *e = r.error;
    if (!r.code && cancelled)
        return error_set(e, ERROR_CANCELLED, "interrupted");
    return r.code;
}
