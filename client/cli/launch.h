/* Starting a deployment: its supervisor in a session of its own, then waiting until it answers. For
 * `moed up`, and for verbs that need one for themselves. */
#ifndef MOED_CLI_LAUNCH_H
#define MOED_CLI_LAUNCH_H

#include "client/cli/deployment.h"

struct launch {
    /* what to start; NULL and 0 leave the choice to the processes */
    const char *name, *device, *ram, *policy, *assign, *cache, *predictor, *budget, *prefetch;
    const char *learned; /* a path */
    const char *kv_type;
    const char *log_level;
    const char *model; /* as model_file_find gives it */
    uint64_t segment_bytes, threads, ctx, parallel;
    bool reproducible, calibrate, fine_tune, mps, cpuexec;
    bool bound; /* it ends with this process */
    /* filled in */
    char run[RUN_DIR_BYTES];
    char program[PATH_MAX];
    pid_t supervisor;                /* our child */
    struct deployment_status status; /* the last one seen */
};

#define LAUNCH_INTERRUPTED 130 /* 128 + SIGINT: what launch_start returns after Ctrl-C */

/* Check what can be known beforehand (the file, the memory, whether it runs already), start the
 * supervisor and wait, showing progress, until the worker answers. Returns an exit code; other than
 * CLI_OK: it has complained, and what was started is stopped. Before this process touches nng,
 * which does not survive a fork. l->run is set already. */
int launch_start(struct launch *l);
/* Stop what launch_start started, and wait for it. */
void launch_stop(struct launch *l);
/* Wait until the supervisor ends, passing Ctrl-C on to it; returns the exit code. */
int launch_wait(struct launch *l);
/* "default" where the deployment has no name. */
const char *launch_name(const struct launch *l);

#endif
