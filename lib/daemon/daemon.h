/* The skeleton that every daemon shares: configuration, logging, signals, readiness, control
 * socket.
 *
 *     int main(int argc, char **argv) {
 *         daemon_start(&d, ...);      parses options, logs, locks the pid file, blocks signals
 *         ... set up ...              daemon_status(&d, "loading %u of %u layers", ...)
 *         daemon_serve(&d, handlers); control socket
 *         daemon_ready(&d);
 *         ... work, or ...            daemon_wait(&d): until SIGTERM, SIGINT, a shutdown request
 *         daemon_stop(&d);
 *     }
 *
 * Exit codes: 0 clean; 1 the environment or a peer (worth a restart); 2 usage and 3 configuration
 * that no restart mends (the supervisor gives up at once). */
#ifndef MOED_DAEMON_DAEMON_H
#define MOED_DAEMON_DAEMON_H

#include "base/error.h"
#include "daemon/options.h"
#include "daemon/run_dir.h"
#include "metrics/metrics.h"

#include "control.pb-c.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { EXIT_CLEAN = 0, EXIT_RETRY = 1, EXIT_BAD_USAGE = 2, EXIT_PERMANENT = 3 };

struct daemon_internal; /* one a process */

struct daemon {
    const char *process; /* "memd" */
    char run[RUN_DIR_BYTES];
    struct metrics *metrics; /* lives until the process ends */
    uint64_t started_ns;
    _Atomic bool ready, stopping;
    struct daemon_internal *internal;
};

/* Options common to all daemons (--run DIR, --log-level, --config, --config-dump, --help) are added
 * to `table`, which ends with a NULL name. Prints help and exits, or exits with EXIT_BAD_USAGE and
 * one line, by itself. Afterwards: log_init done, RUN created, RUN/process.pid locked, SIGPIPE
 * ignored, SIGTERM and SIGINT routed to `stopping`, core dumps as the system says, process name
 * set. */
void daemon_start(struct daemon *d, const char *process, const char *purpose,
                  const struct option_spec *table, int argc, char **argv);

/* Fills `reply->health` beyond the common fields (pid, uptime, state, memory, version). Optional.
 */
typedef void daemon_health(void *arg, Moed__V1__HealthReply *health);
/* A request whose body is not health, metrics or shutdown. Either sets a body of *reply (in static
 * or handler-owned storage that stays valid until the next call; it is packed, not freed) and
 * returns ERROR_OK, or returns an error with its text, sent as an Error reply (retry for
 * ERROR_UNAVAILABLE). Bodies it does not know: return ERROR_PROTOCOL via daemon_unknown(). Runs on
 * the control thread, one at a time. */
typedef enum error_code daemon_request(void *arg, const Moed__V1__Request *request,
                                       Moed__V1__Reply *reply, struct error *e);
struct daemon_handlers {
    daemon_health *health;
    daemon_request *request; /* NULL: only the common ones */
};
enum error_code daemon_unknown(const Moed__V1__Request *request, struct error *e);

/* Serve RUN/PROCESS.ctl. */
enum error_code daemon_serve(struct daemon *d, const struct daemon_handlers *handlers, void *arg,
                             struct error *e);

/* One line for people (HealthReply.state), and STATUS= to the service manager ($NOTIFY_SOCKET). */
void daemon_status(struct daemon *d, const char *format, ...) __attribute__((format(printf, 2, 3)));
void daemon_ready(struct daemon *d); /* READY=1, ready = true */
/* Ask the process to stop, from any thread (a peer that it cannot do without has gone). */
void daemon_request_stop(struct daemon *d, int exit_code);
/* Block until stopping. Returns the exit code. daemon_stop_fd: readable then, for poll. */
int daemon_wait(struct daemon *d);
int daemon_stop_fd(const struct daemon *d);
void daemon_stop(struct daemon *d); /* STOPPING=1, control socket closed */
/* Log the error and exit: the environment is unusable. */
_Noreturn void daemon_fail(struct daemon *d, int exit_code, const struct error *e);

#endif
