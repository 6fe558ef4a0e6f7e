/* A job queue whose clients take turns: what one of them posts delays another one's next job by two
 * jobs at most, also where it withdraws jobs.
 *
 *     turns_post ---> waiting ---(begun)---> the queue's thread ---> done
 *
 * The queue has one job at a time: of the client that has waited longest, its oldest one. Then that
 * client waits behind the others. Each function takes constant time, however many jobs wait. On the
 * loop's thread. */
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
    uint64_t client;
    bool waits;
    struct turn *after, *before; /* of the same client; `before` of its oldest is NULL */
    /* Of a client's oldest, which stands for the client: */
    struct turn *last;      /* its newest */
    unsigned waiting;       /* how many wait */
    struct turn *next;      /* the client that comes next */
    struct turn **link;     /* what points at this one */
    struct turn *in_bucket; /* the next of its bucket */
};

enum { TURNS_BUCKETS = 256 };

struct turns {
    struct job_queue queue;
    struct turn *first, **end; /* a client's oldest each, in the order of their turns */
    struct turn *running;      /* the queue has it; NULL: none */
    unsigned count;            /* that wait or run */
    bool stopping;
    struct turn *buckets[TURNS_BUCKETS]; /* the same, by client */
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
