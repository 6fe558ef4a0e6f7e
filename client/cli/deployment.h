/* What the verbs that manage deployments share: finding one, talking to its supervisor, its
 * processes' health, stopping it. */
#ifndef MOED_CLI_DEPLOYMENT_H
#define MOED_CLI_DEPLOYMENT_H

#include "base/error.h"
#include "base/strbuf.h"
#include "daemon/options.h"
#include "daemon/run_dir.h"
#include "deploy/supervise.h"

#include "control.pb-c.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define DEPLOYMENT_HEALTH_TIMEOUT_MS 500

/* What the supervisor says of a process. */
struct deployment_process {
    char name[32], state[32], status[256], reason[512];
    pid_t pid; /* 0: none runs */
    uint64_t restarts, uptime_ms;
};

/* What the supervisor says of all. */
struct deployment_status {
    char name[64], state[32], model[PATH_MAX], reason[640];
    pid_t pid; /* the supervisor's */
    uint64_t uptime_ms;
    unsigned n_processes;
    struct deployment_process processes[SUPERVISE_PROCESSES];
};

/* Parse options and min to max positional arguments, answer --help. True: go on. False: exit with
 * *exit_code. */
bool deployment_arguments(const struct option_spec *table, const char *verb, const char *arguments,
                          const char *purpose, int argc, char **argv, int min, int max,
                          int *n_positional, int *exit_code);

/* RUN of deployment `name` (NULL: default); complains where the name is none. */
bool deployment_path(const char *name, char run[RUN_DIR_BYTES]);
/* One of supervise_process_names; complains otherwise. */
bool deployment_is_process(const char *verb, const char *process);
/* Say on standard error that it is not running and what to do; returns CLI_NOT_RUNNING. */
int deployment_not_running(const char *name);
/* The program beside this one; see daemon/program_find.h. */
enum error_code deployment_find_program(const char *name, char out[PATH_MAX], struct error *e);

/* One command to the supervisor, its answer without the last "ok". ERROR_UNAVAILABLE: nobody
 * listens. */
enum error_code deployment_command(const char *run, const char *command, struct strbuf *answer,
                                   struct error *e);
enum error_code deployment_status(const char *run, struct deployment_status *out, struct error *e);
/* NULL: not in the status. */
const struct deployment_process *deployment_status_find(const struct deployment_status *s,
                                                        const char *process);

/* Ask a process itself. *reply is to be freed with moed__v1__reply__free_unpacked. */
enum error_code deployment_health(const char *run, const char *process, Moed__V1__Reply **reply,
                                  struct error *e);

/* True where any process of the deployment lives, its supervisor included. */
bool deployment_has_processes(const char *run);
/* True where RUN holds the sockets of a supervisor that is no more. */
bool deployment_has_leftovers(const char *run);
/* The systemd unit ("moed-memd@x.service") that a process of RUN belongs to; false: none does. */
bool deployment_systemd_unit(const char *run, char unit[128]);

/* Stop everything and wait for it; with a dead supervisor, what is left of it; remove sockets and
 * pid files, keep logs. */
enum error_code deployment_stop(const char *run, struct error *e);

/* "1.1 GB dense weights, 9.5 GB experts, 0.4 GB KV cache, 0.2 GB scratch": what there is of them. */
void deployment_device_text(const Moed__V1__DeviceMemory *m, struct strbuf *out);

/* Seconds as "5s", "3m12s", "2h05m", "4d03h". */
void deployment_format_uptime(uint64_t ms, char out[24]);

#endif
