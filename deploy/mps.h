/* NVIDIA's Multi-Process Service, for this deployment's processes alone: its control daemon, nvidia-cuda-mps-control, with its
 * pipes in RUN/mps and its logs in RUN/mps-log. Off unless it is asked for: docs/gpu.md says why.
 *
 * It is a daemon: it outlives a supervisor that is killed, and the next one of this directory ends it. The supervisor's one
 * thread, outside of its loop. */
#ifndef MOED_DEPLOY_MPS_H
#define MOED_DEPLOY_MPS_H

#include <stdbool.h>

/* Before any process is started, with SIGCHLD blocked. Ends what an earlier supervisor left. wanted: starts one, and puts it into
 * the environment of the processes to come. False: it was wanted and is not there, which one line in the log says; all goes
 * on without. */
bool mps_start(const char *run, bool wanted);
/* When all that use it are gone. Does nothing where there is none. */
void mps_stop(const char *run);

#endif
