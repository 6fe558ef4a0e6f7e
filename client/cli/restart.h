/* Restarts of one process of a deployment by its supervisor. */
#ifndef MOED_CLI_RESTART_H
#define MOED_CLI_RESTART_H

#include <sys/types.h>

/* Makes the supervisor of RUN restart a process, waits until it is ready, and prints so; a model
 * may load for long. verb: of the messages. Returns an exit code; it has complained where that is
 * not CLI_OK. */
int restart_process(const char *verb, const char *run, const char *process);
/* The waiting alone, for another process than pid `before` (0: any). */
int restart_wait(const char *verb, const char *run, const char *process, pid_t before);

#endif
