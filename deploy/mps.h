/* NVIDIA's Multi-Process Service (MPS) for the processes of this deployment only.
 *
 * Its control daemon, nvidia-cuda-mps-control, has its pipes in RUN/mps and its logs in
 * RUN/mps-log. It is off by default; docs/gpu.md has the reason. If a supervisor was killed, the
 * next one in RUN stops the MPS daemon that it left running. The supervisor's only thread calls
 * these functions, outside of its loop. */
#ifndef MOED_DEPLOY_MPS_H
#define MOED_DEPLOY_MPS_H

#include <stdbool.h>

/* Stops the MPS daemon of an earlier supervisor. wanted: starts one and sets the environment that
 * this process's children inherit. Call it before any process is started, with SIGCHLD blocked.
 * False: MPS was wanted and does not run; it has logged why, and the deployment works without. */
bool mps_start(const char *run, bool wanted);
/* Stops the MPS daemon, if one runs. Call it when the processes that use it are gone. */
void mps_stop(const char *run);

#endif
