/* Jobs; see jobs.h. */
#include "client/http/server/jobs.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static void list_init(struct job_list *l)
{
    l->first = NULL;
    l->end = &l->first;
}

static void list_append(struct job_list *l, struct job *job)
{
    job->next = NULL;
    *l->end = job;
    l->end = &job->next;
}

static struct job *list_take_first(struct job_list *l)
{
    struct job *job = l->first;
    if (job && !(l->first = job->next))
        l->end = &l->first;
    return job;
}

/* False: it is not there. */
static bool list_remove(struct job_list *l, struct job *job)
{
    struct job **link = &l->first;
    while (*link && *link != job)
        link = &(*link)->next;
    if (!*link)
        return false;
    *link = job->next;
    if (l->end == &job->next)
        l->end = link;
    return true;
}

/* The next job; NULL: the queue stops. Waits. */
static struct job *next_job(struct job_queue *q)
{
    struct job *job = NULL;
    pthread_mutex_lock(&q->lock);
    while (!q->stopping && !q->waiting.first)
        pthread_cond_wait(&q->posted, &q->lock);
    if (!q->stopping)
        job = list_take_first(&q->waiting);
    pthread_mutex_unlock(&q->lock);
    return job;
}

static void *jobs_main(void *arg)
{
    struct job_queue *q = arg;
    struct job *job;
    pthread_setname_np(pthread_self(),
                       q->name); /* a confined process may not name another thread */
    while ((job = next_job(q))) {
        job->work(job);
        pthread_mutex_lock(&q->lock);
        list_append(&q->finished, job);
        pthread_mutex_unlock(&q->lock);
        eventfd_write(q->finished_event.fd, 1);
    }
    return NULL;
}

static void finish_all(struct job_queue *q)
{
    for (;;) {
        pthread_mutex_lock(&q->lock);
        struct job *job = list_take_first(&q->finished);
        pthread_mutex_unlock(&q->lock);
        if (!job)
            return;
        job->done(job);
        q->pending--;
    }
}

static void on_finished(struct watch *w, uint32_t events)
{
    struct job_queue *q = (struct job_queue *)w;
    eventfd_t count;
    eventfd_read(w->fd, &count);
    finish_all(q);
}

/* Signals go to the threads of lib/daemon. */
static int start_thread(struct job_queue *q)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&q->thread, NULL, jobs_main, q);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

enum error_code jobs_start(struct job_queue *q, struct loop *loop, const char *name,
                           struct error *e)
{
    *q = (struct job_queue){.loop = loop};
    snprintf(q->name, sizeof q->name, "%s", name);
    list_init(&q->waiting);
    list_init(&q->finished);
    q->finished_event.ready = on_finished;
    q->finished_event.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (q->finished_event.fd < 0)
        return error_set(e, ERROR_IO, "cannot create an event descriptor: %m");
    int fd = q->finished_event.fd;
    enum error_code code = loop_add(loop, &q->finished_event, EPOLLIN, e);
    if (!code) {
        pthread_mutex_init(&q->lock, NULL);
        pthread_cond_init(&q->posted, NULL);
        int failed = start_thread(q);
        if (!failed)
            return ERROR_OK;
        code = error_set(e, ERROR_IO, "cannot start a thread: %s", strerror(failed));
        loop_remove(loop, &q->finished_event);
    }
    close(fd);
    return code;
}

void jobs_post(struct job_queue *q, struct job *job)
{
    q->pending++;
    pthread_mutex_lock(&q->lock);
    list_append(&q->waiting, job);
    pthread_cond_signal(&q->posted);
    pthread_mutex_unlock(&q->lock);
}

bool jobs_withdraw(struct job_queue *q, struct job *job)
{
    pthread_mutex_lock(&q->lock);
    bool waited = list_remove(&q->waiting, job);
    pthread_mutex_unlock(&q->lock);
    q->pending -= waited;
    return waited;
}

bool jobs_are_done(const struct job_queue *q)
{
    return q->pending == 0;
}

void jobs_stop(struct job_queue *q)
{
    pthread_mutex_lock(&q->lock);
    q->stopping = true;
    pthread_cond_signal(&q->posted);
    pthread_mutex_unlock(&q->lock);
    pthread_join(q->thread, NULL);
    struct job *job;
    while ((job = list_take_first(&q->waiting)))
        list_append(&q->finished, job);
    finish_all(q);
    int fd = q->finished_event.fd;
    loop_remove(q->loop, &q->finished_event);
    close(fd);
    pthread_cond_destroy(&q->posted);
    pthread_mutex_destroy(&q->lock);
}
