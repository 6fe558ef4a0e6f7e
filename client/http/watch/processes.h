/* The processes of a deployment, as JSON, for people who watch: state, memory, restarts, and the
 * last lines of the log. Any thread; waits for the processes. */
#ifndef MOED_HTTP_PROCESSES_H
#define MOED_HTTP_PROCESSES_H

#include "base/strbuf.h"

/* without: the same without the lines of moed-http, which name clients and may have their prompts
 * (--log-bodies). */
void processes_json(const char *run, struct strbuf *all, struct strbuf *without);

#endif
