/* The processes of a deployment, as JSON, for people who watch: state, memory, restarts, and the
 * last lines of the log. Any thread; waits for the processes. */
#ifndef MOED_HTTP_PROCESSES_H
#define MOED_HTTP_PROCESSES_H

#include "base/strbuf.h"

void processes_json(const char *run, struct strbuf *out);

#endif
