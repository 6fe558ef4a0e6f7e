/* The skeleton that every daemon shares: configuration, logging, signals, readiness, control
 * socket.
 *
 *     int main(int argc, char **argv) {
 *         daemon_init(&d, ...);       parses options, logs, locks the pid file, blocks signals
 *         ... confine it ...          (lib/confine: while it has one thread)
 *         daemon_start(&d);           takes signals
 *         ... set up ...              daemon_status(&d, "loading %u of %u layers", ...)
 *         daemon_serve(&d, handlers); opens the control socket
 *         daemon_ready(&d);           until here SIGTERM ends the process at once
 *         ... work, or ...            daemon_wait(&d): until SIGTERM, SIGINT, a shutdown request
 *         daemon_stop(&d);
 *     }
 *
 * Exit codes: 0 clean; 1 the environment or a peer failed, a restart may help; 2 wrong usage and 3
 * wrong configuration, which a restart does not mend: the supervisor gives up at once; 4 another
 * program has what the process needs (a port): the supervisor gives up at once, unless the process
 * has been ready before; 5 the device has no memory at present: the supervisor never gives up. */
#ifndef MOED_DAEMON_DAEMON_H
#define MOED_DAEMON_DAEMON_H

#include "base/error.h"
#include "base/heartbeat.h"
#include "daemon/options.h"
#include "daemon/run_dir.h"
#include "metrics/metrics.h"

#include "control.pb-c.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    EXIT_CLEAN = 0,
    EXIT_RETRY = 1,
    EXIT_BAD_USAGE = 2,
    EXIT_PERMANENT = 3,
    EXIT_TAKEN = 4,
    EXIT_NO_DEVICE_MEMORY = 5
};

struct daemon_internal; /* one a process */

struct daemon {
    const char *process; /* "memd", "worker-2" */
    char run[RUN_DIR_BYTES];
    struct metrics *metrics; /* lives until the process ends */
    uint64_t started_ns;
    bool confine; /* --confine: the process is to call lib/confine */
    _Atomic bool ready, stopping;
    _Atomic bool hurried; /* SIGINT came while it stopped: work that runs is not waited for */
    struct daemon_internal *internal;
};

/* Parse `table`, which ends with a NULL name, and the options common to all daemons (--run DIR,
 * --log-level, --config, --confine, --config-dump, --help). For --help and --config-dump print and
 * exit; for wrong usage log one line and exit with EXIT_BAD_USAGE. Afterwards: log_init done, RUN
 * created, RUN/process.pid locked, SIGPIPE and SIGXFSZ ignored, SIGTERM, SIGINT and SIGHUP
 * blocked, process name set. Starts no thread. */
void daemon_init(struct daemon *d, const char *process, const char *purpose,
                 const struct option_spec *table, int argc, char **argv);
/* The same for a process of which a deployment has several: an option sets *number. From 2 on the
 * name is "PROCESS-NUMBER". */
void daemon_init_numbered(struct daemon *d, const char *process, const uint64_t *number,
                          const char *purpose, const struct option_spec *table, int argc,
                          char **argv);
/* The same for a process that keeps its rights, because it starts programs: without --confine. */
void daemon_init_unconfined(struct daemon *d, const char *process, const char *purpose,
                            const struct option_spec *table, int argc, char **argv);
/* From now on SIGTERM, SIGINT and SIGHUP set `stopping`, or end a process that is not ready. SIGINT
 * after that sets `hurried`; another SIGTERM changes nothing, because a service manager sends it to
 * each process, and so does the supervisor. The watchdog is notified. Starts the thread "signals".
 */
void daemon_start(struct daemon *d);

/* Fill in what HealthReply has beyond the common fields (pid, uptime, state, memory, version). On
 * the control thread. */
typedef void daemon_health(void *arg, Moed__V1__HealthReply *health);
/* Answer a request whose body is not health, metrics or shutdown. On the control thread, one at a
 * time. ERROR_OK: it has set a body of *reply, in static or handler-owned storage that stays valid
 * until the next call (the body is packed, not freed). An error: the control thread sends it as an
 * Error reply, with `retry` for ERROR_UNAVAILABLE and ERROR_TIMEOUT. For an unknown body, return
 * daemon_unknown(). */
typedef enum error_code daemon_request(void *arg, const Moed__V1__Request *request,
                                       Moed__V1__Reply *reply, struct error *e);
/* SIGUSR1 came: take no new work, and call daemon_request_stop once there is none left. On the
 * thread "signals"; must not wait. */
typedef void daemon_drain(void *arg);
struct daemon_handlers {
    daemon_health *health;   /* NULL: the common fields only */
    daemon_request *request; /* NULL: the common requests only */
    daemon_drain *drain;     /* NULL: SIGUSR1 stops the process, as SIGTERM does */
    bool peers;              /* other daemons call this one: RUN/PROCESS.peers (ipc/peer_rpc.h) */
};
/* From a request handler: hand the client's connection over once the reply has left; see `adopt`
 * in ipc/rpc.h. It is called once, with fd -1 where the reply becomes an error. */
void daemon_adopt(struct daemon *d, void (*adopt)(void *arg, int fd), void *arg);
enum error_code daemon_unknown(const Moed__V1__Request *request, struct error *e);

/* Open the control socket, RUN/PROCESS.ctl, and the one for peers. Borrows handlers. */
enum error_code daemon_serve(struct daemon *d, const struct daemon_handlers *handlers, void *arg,
                             struct error *e);

/* Set the one-line state: HealthReply.state, and STATUS= for the service manager. */
void daemon_status(struct daemon *d, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Log, and set as the state, which memory of a device the process waits for. arg: the struct
 * daemon; a function for device_link_report (device/link.h). */
void daemon_awaits_memory(void *arg, const char *lack);
void daemon_ready(struct daemon *d); /* sets `ready`, sends READY=1 */
/* The watchdog counts the process as hung where the thread of this heartbeat works for four of the
 * watchdog's intervals without a beat. Borrows h until the process ends. */
void daemon_watch(struct daemon *d, const struct heartbeat *h);
/* Request that the process stops, as when a peer that it needs has gone. Any thread. */
void daemon_request_stop(struct daemon *d, int exit_code);
/* Block until `stopping`. Returns the exit code. */
int daemon_wait(struct daemon *d);
int daemon_stop_fd(const struct daemon *d); /* readable once `stopping`, for poll */
void daemon_stop(struct daemon *d);         /* sends STOPPING=1, closes the control socket */
/* Log the error and exit, where the environment is unusable. */
_Noreturn void daemon_fail(struct daemon *d, int exit_code, const struct error *e);

#endif
