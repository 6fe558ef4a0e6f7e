/* The client side of the supervisor's socket (daemon/supervisor_protocol.h). Any thread. */
#ifndef MOED_DAEMON_SUPERVISOR_CLIENT_H
#define MOED_DAEMON_SUPERVISOR_CLIENT_H

#include "base/error.h"
#include "base/strbuf.h"

/* Sends one command to the supervisor of RUN. answer: its lines without the last "ok". timeout_ms:
 * of each wait. ERROR_UNAVAILABLE: no supervisor listens. ERROR_USAGE: it refused the command. */
enum error_code supervisor_command(const char *run, const char *command, int timeout_ms,
                                   struct strbuf *answer, struct error *e);

enum supervisor_state {
    SUPERVISOR_NONE,        /* none listens, or it does not answer */
    SUPERVISOR_RESTARTS,    /* memd and the worker run, or the supervisor starts them again */
    SUPERVISOR_GAVE_UP,     /* memd or the worker has failed: it is not started again */
    SUPERVISOR_STARTS_FAIL, /* it starts them again and again, and they do not become ready */
    SUPERVISOR_STOPPING
};

/* What the supervisor of RUN does about its processes. reason: one line where it gave up, where a
 * process does not run, or where one does not become ready; else "". */
enum supervisor_state supervisor_state_get(const char *run, int timeout_ms, char *reason,
                                           size_t reason_bytes);

/* The same, and the path of the deployment's model: "" where it has none of its own. Both outputs
 * are "" with SUPERVISOR_NONE. */
enum supervisor_state supervisor_model_get(const char *run, int timeout_ms, char *model,
                                           size_t model_bytes);

#endif
