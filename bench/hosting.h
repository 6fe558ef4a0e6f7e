/* The deployment that moed-bench starts, measures and stops. */
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
    uint64_t threads, ctx, parallel; /* 0: the default of `moed up` */
};

/* Starts it in a runtime directory of its own and waits until it answers. Sets MOED_RUN, so this
 * process attaches to this deployment from now on. Forks: call it before any thread is started.
 * ERROR_UNAVAILABLE: `moed up` printed the reason on standard error. */
enum error_code hosting_start(const struct hosting_options *o, struct hosting *h, struct error *e);
/* Stops it, waits until it is gone, removes its directory. Does nothing where none runs. */
void hosting_stop(struct hosting *h);

#endif
