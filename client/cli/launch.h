/* Starts a deployment: its supervisor in a session of its own, then waits until it answers. For
 * `moed up`, and for verbs that start a deployment of their own. */
#ifndef MOED_CLI_LAUNCH_H
#define MOED_CLI_LAUNCH_H

#include "client/cli/deployment.h"
#include "daemon/deployment_options.h"

struct launch {
    /* what to start */
    struct deployment_options options;
    const char *name;
    const char *model; /* as model_file_find gives it; NULL: only those of options.models */
    bool bound;        /* the deployment ends with this process */
    bool prints_logs;  /* launch_start and launch_wait copy the processes' logs to standard error */
    /* set by launch_start, but for run */
    char run[RUN_DIR_BYTES];
    char program[PATH_MAX];
    pid_t supervisor;                /* our child */
    off_t log_start;                 /* where the log lines of this start begin */
    struct deployment_status status; /* the last one seen */
};

#define LAUNCH_INTERRUPTED 130 /* 128 + SIGINT: what launch_start returns after Ctrl-C */

/* A deployment of which nothing is given. Large. */
void launch_init(struct launch *l);
/* Checks the file, the memory and that the deployment does not run yet; starts the supervisor;
 * shows progress until the worker answers. The caller has set l->run. It forks: call it before
 * this process has threads. Returns an exit code; where it is not CLI_OK, it has
 * complained and stopped what it started. */
int launch_start(struct launch *l);
/* Stops what launch_start started, and waits for its end. */
void launch_stop(struct launch *l);
/* That the deployment of l->run does not run. Ends what is left of one whose supervisor was killed.
 * Returns an exit code; where it is not CLI_OK, it has complained. */
int launch_check_not_running(const struct launch *l);
/* Finds what the processes would refuse: the file, the options and, if `beside`, that the model
 * fits in memory beside what is there. Returns an exit code; where it is not CLI_OK, it has
 * complained.
 */
int launch_check_model(const struct launch *l, bool beside);
/* Waits until the supervisor ends, and passes Ctrl-C on to it. Stops a deployment that has failed,
 * and complains: what started this program may start it again. As process 1, of a container, it
 * reaps orphans. Returns an exit code. */
int launch_wait(struct launch *l);
/* "default" where the deployment has no name. */
const char *launch_name(const struct launch *l);

#endif
