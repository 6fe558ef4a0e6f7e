/* RUN/models.started: the deployments that moed-models has started and not stopped, a name a line.
 * moed-models writes it; a next moed-models, the supervisor and `moed down` read it. */
#ifndef MOED_DAEMON_MODELS_STARTED_H
#define MOED_DAEMON_MODELS_STARTED_H

#include "daemon/run_dir.h"

void models_started_file(const char *run, char out[RUN_PATH_BYTES]);

/* Calls visit for each name in the file of RUN, with the runtime directory of that deployment,
 * which may have gone. $MOED_RUN does not count: it is the directory of one deployment. */
void models_started_list(const char *run,
                         void (*visit)(void *arg, const char *name, const char *run), void *arg);

#endif
