/* Independent pieces of work on a few threads. */
#ifndef MOED_TRAIN_JOBS_H
#define MOED_TRAIN_JOBS_H

#include "base/error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct jobs {
    uint32_t n, n_threads;
    enum error_code (*run)(void *arg, uint32_t job, struct error *e); /* any thread */
    bool (*poll)(
        void *arg); /* the calling thread, several times a second; false: no more jobs are begun */
    void *arg;
    _Atomic bool *stop; /* set when a job fails or poll says so; running jobs may look at it */
};

/* The error of the first job, in their order, that failed; ERROR_CANCELLED. */
enum error_code jobs_run(const struct jobs *j, struct error *e);

#endif
