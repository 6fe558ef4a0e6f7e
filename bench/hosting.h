/* The deployment that moed-bench measures: one that it starts for itself and stops again. */
#ifndef MOED_BENCH_HOSTING_H
#define MOED_BENCH_HOSTING_H

#include "base/error.h"

#include <stdint.h>
#include <sys/types.h>

struct hosting {
    pid_t moed;   /* `moed up --foreground`; 0: none runs */
    char run[64]; /* its runtime directory */
};

struct hosting_options {
    const char *model;
    uint64_t threads, ctx, parallel; /* 0: as `moed up` has it */
};

/* Start it in a runtime directory of its own and wait until it answers. Sets MOED_RUN, so what this
 * process attaches to from now on is this deployment. Call it before anything else that starts
 * threads: it forks. ERROR_UNAVAILABLE: `moed up` has said why on standard error. */
enum error_code hosting_start(const struct hosting_options *o, struct hosting *h, struct error *e);
/* Stop it, wait until it is gone, remove its directory. Harmless where none runs. */
void hosting_stop(struct hosting *h);

#endif
