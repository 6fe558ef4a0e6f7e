/* Independent jobs on a few threads. */
#ifndef MOED_TRAIN_JOBS_H
#define MOED_TRAIN_JOBS_H

#include "base/error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct jobs {
    uint32_t n, n_threads;
    enum error_code (*run)(void *arg, uint32_t job, struct error *e); /* any thread */
    /* Called from the calling thread several times a second. False: begin no more jobs. */
    bool (*poll)(void *arg);
    void *arg;
    _Atomic bool *stop; /* set when a job fails or poll returns false; running jobs may read it */
};

/* Returns the error of the failed job with the lowest number. ERROR_CANCELLED: poll returned false.
 */
enum error_code jobs_run(const struct jobs *j, struct error *e);

#endif
