/* A job queue whose clients take turns: what one of them posts delays another one's next job by two
 * jobs at most.
 *
 *     turns_post ---> waiting, by rounds ---(begun)---> the queue's thread ---> done
 *
 * The queue has one job at a time. Each job of a client that waits belongs to a round of its own;
 * the first one to the round after the one that runs, so that every round ends. On the loop's
 * thread.
 */
#ifndef MOED_HTTP_TURNS_H
#define MOED_HTTP_TURNS_H

#include "client/http/server/jobs.h"

#include <stdint.h>

struct turns;

struct turn {
    struct job job;                   /* first; the owner sets `work` */
    void (*begun)(struct turn *turn); /* the thread has it from now on; may be NULL */
    void (*done)(struct turn *turn);  /* may free it */
    /* the module's */
    struct turns *in;
    struct turn *next;
    uint64_t client, round;
};

struct turns {
    struct job_queue queue;
    struct turn *waiting; /* by rounds */
    struct turn *running; /* the queue has it; NULL: none */
    uint64_t round;       /* of the last one that began */
    unsigned count;       /* that wait or run */
    bool stopping;
};

/* As jobs_start. */
enum error_code turns_start(struct turns *t, struct loop *loop, const char *name, struct error *e);
/* Sets turn->job.done. */
void turns_post(struct turns *t, uint64_t client, struct turn *turn);
/* As jobs_withdraw. */
bool turns_withdraw(struct turns *t, struct turn *turn);
/* How many of a client wait or run. */
unsigned turns_of(const struct turns *t, uint64_t client);
/* As jobs_stop. */
void turns_stop(struct turns *t);

#endif
