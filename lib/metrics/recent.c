/* The growth of counters; see recent.h. */
#include "metrics/recent.h"

#include "base/clock.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct taken {
    uint64_t at_ns;
    uint64_t values[RECENT_MOST]; /* what sample does not fill is 0 */
};

struct recent {
    recent_sample *sample;
    recent_report *report;
    void *arg;
    const char *name;
    pthread_t thread;
    bool started, stop;
    pthread_mutex_t lock;
    pthread_cond_t stopping;
    struct taken taken[RECENT_SECONDS]; /* a ring: next is the oldest */
    unsigned next;
    struct taken reported; /* the sampling thread's, and recent_free's when that has ended */
};

static struct taken take(struct recent *r)
{
    struct taken t = {.at_ns = clock_ns()};
    r->sample(r->arg, t.values);
    return t;
}

static void report(struct recent *r, const struct taken *now)
{
    uint64_t growth[RECENT_MOST];
    for (unsigned i = 0; i < RECENT_MOST; i++)
        growth[i] = now->values[i] - r->reported.values[i];
    if (r->report && now->at_ns > r->reported.at_ns)
        r->report(r->arg, growth, now->at_ns - r->reported.at_ns);
    r->reported = *now;
}

static void *sampler(void *arg)
{
    struct recent *r = arg;
    pthread_setname_np(pthread_self(), r->name);
    struct timespec next;
    clock_gettime(CLOCK_MONOTONIC, &next);
    pthread_mutex_lock(&r->lock);
    while (!r->stop) {
        next.tv_sec++;
        while (!r->stop && pthread_cond_timedwait(&r->stopping, &r->lock, &next) == 0) {
        }
        if (r->stop)
            break;
        struct taken now = take(r);
        r->taken[r->next] = now;
        r->next = (r->next + 1) % RECENT_SECONDS;
        if (now.at_ns - r->reported.at_ns >= RECENT_REPORT_SECONDS * 1000000000ull)
            report(r, &now);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

enum error_code recent_new(const char *thread, recent_sample *sample, recent_report *report_to,
                           void *arg, struct recent **out, struct error *e)
{
    struct recent *r = calloc(1, sizeof *r);
    if (!r)
        return error_set(e, ERROR_MEMORY, "no memory for the recent counters");
    r->sample = sample;
    r->report = report_to;
    r->arg = arg;
    r->name = thread;
    pthread_mutex_init(&r->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&r->stopping, &monotonic);
    pthread_condattr_destroy(&monotonic);
    struct taken first = take(r);
    for (unsigned i = 0; i < RECENT_SECONDS; i++)
        r->taken[i] = first;
    r->reported = first;
    r->started = pthread_create(&r->thread, NULL, sampler, r) == 0;
    if (!r->started) {
        recent_free(r);
        return error_set(e, ERROR_MEMORY, "cannot start the thread %s", thread);
    }
    *out = r;
    return ERROR_OK;
}

void recent_free(struct recent *r)
{
    if (!r)
        return;
    pthread_mutex_lock(&r->lock);
    r->stop = true;
    pthread_cond_signal(&r->stopping);
    pthread_mutex_unlock(&r->lock);
    if (r->started) {
        pthread_join(r->thread, NULL);
        struct taken last = take(r);
        report(r, &last);
    }
    pthread_cond_destroy(&r->stopping);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

uint64_t recent_read(struct recent *r, uint64_t growth[RECENT_MOST])
{
    pthread_mutex_lock(&r->lock);
    struct taken then = r->taken[r->next];
    pthread_mutex_unlock(&r->lock);
    struct taken now = take(r);
    for (unsigned i = 0; i < RECENT_MOST; i++)
        growth[i] = now.values[i] - then.values[i];
    return now.at_ns - then.at_ns;
}
