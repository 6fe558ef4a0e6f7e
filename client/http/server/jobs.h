/* Work that may wait: a thread with a queue of jobs, and the loop that takes them back.
 *
 *     loop's thread: jobs_post(q, job) ---> the queue's thread: job->work(job)
 *     loop's thread: job->done(job)    <--- (an eventfd)
 *
 * The thread runs one job at a time, in order. A job belongs to the thread from jobs_post until
 * done. `done` may free it. */
#ifndef MOED_HTTP_JOBS_H
#define MOED_HTTP_JOBS_H

#include "client/http/server/loop.h"

#include <pthread.h>
#include <stdbool.h>

struct job {
    void (*work)(struct job *job);
    void (*done)(struct job *job);
    struct job *next; /* the queue's */
};

struct job_list {
    struct job *first, **end;
};

struct job_queue {
    struct watch finished_event; /* first: its function gets the queue from it */
    struct loop *loop;
    unsigned pending; /* jobs that were posted and whose `done` has not returned; the loop's */
    pthread_t thread;
    char name[16];        /* its name */
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t posted;
    struct job_list waiting, finished;
    bool stopping;
};

/* name: of the thread, at most 15 characters. */
enum error_code jobs_start(struct job_queue *q, struct loop *loop, const char *name,
                           struct error *e);
void jobs_post(struct job_queue *q, struct job *job);
/* Withdraws a job that was posted and has not begun: neither of its functions is called. False: it
 * has begun, or has run, and `done` will be called. */
bool jobs_withdraw(struct job_queue *q, struct job *job);
/* No job is posted, runs, or is in `done`: jobs_stop does not wait. On the loop's thread. */
bool jobs_are_done(const struct job_queue *q);
/* Ends the thread after the job that it runs. Calls `done` of every job that was posted, also of
 * those that did not run. */
void jobs_stop(struct job_queue *q);

#endif
