/* A deployment, for the verbs that manage it: finding it, stopping it; deployment_status.h has its
 * state. */
#ifndef MOED_CLI_DEPLOYMENT_H
#define MOED_CLI_DEPLOYMENT_H

#include "base/error.h"
#include "base/strbuf.h"
#include "client/state/deployment_status.h"
#include "daemon/run_dir.h"

#include "control.pb-c.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Sets RUN of deployment `name` (NULL: default). Complains where the name is not valid. */
bool deployment_path(const char *name, char run[RUN_DIR_BYTES]);
/* Where *name is NULL and deployment "default" does not run: sets *name to the only deployment that
 * runs; those without a model of their own count only where there is no other. It stays NULL where
 * none does. False: several do; it has complained with their names, and
 * *exit_code is set. MOED_RUN, where set, decides instead. Call it from one thread. */
bool deployment_choose(const char **name, int *exit_code);
/* deployment_choose and deployment_path, where any process of the deployment runs. False: it has
 * complained, and *exit_code is set. */
bool deployment_find_running(const char *name, char run[RUN_DIR_BYTES], int *exit_code);
/* The same, where its supervisor runs. */
bool deployment_find_supervised(const char *name, char run[RUN_DIR_BYTES], int *exit_code);
/* True for one of supervise_process_names; complains otherwise. */
bool deployment_is_process(const char *verb, const char *process);
/* Complains that the deployment is not running; returns CLI_NOT_RUNNING. */
int deployment_not_running(const char *name);
/* The path of a program in this program's folder; see daemon/program_find.h. */
enum error_code deployment_find_program(const char *name, char out[PATH_MAX], struct error *e);

/* True where any process of the deployment runs, its supervisor included. */
bool deployment_has_processes(const char *run);
/* True where RUN holds the sockets of a supervisor that was killed. */
bool deployment_has_leftovers(const char *run);
/* The systemd unit ("moed-memd@x.service") to which a process of RUN belongs; false: none does. */
bool deployment_systemd_unit(const char *run, char unit[128]);

/* Stops the processes that a supervisor which was killed left. */
enum error_code deployment_stop_processes(const char *run, struct error *e);
/* Stops all processes, also those that a killed supervisor left, and waits for their end. now:
 * moed-http does not wait for answers that run; else says after a moment that it does. Removes
 * sockets and pid files, keeps logs. */
enum error_code deployment_stop(const char *run, bool now, struct error *e);
/* Deployments that the moed-models of RUN has started (daemon/models_started.h), and that it has
 * not stopped: whether any of them runs, and their stop. ERROR_TIMEOUT names those that are left.
 */
bool deployment_has_started(const char *run);
enum error_code deployment_stop_started(const char *run, struct error *e);

/* Calls visit for each directory in which daemons of this user run that run_dir_list does not
 * visit: a person started them with --run DIR. The name is the directory's. */
void deployment_list_elsewhere(void (*visit)(void *arg, const char *name, const char *run),
                               void *arg);
/* The file to which process `pid` writes its standard error. False: it is none, and `out` says what
 * it is ("/dev/pts/3", "socket:[123]"), or is "". */
bool deployment_log_file(pid_t pid, char out[PATH_MAX]);

/* Appends "1.1 GB dense weights, 9.5 GB experts, 0.4 GB KV cache, 0.2 GB scratch", without the
 * parts of 0 bytes. dense: the words for the first. */
void deployment_device_text(const Moed__V1__DeviceMemory *m, const char *dense, struct strbuf *out);

/* Writes "5s", "3m12s", "2h05m" or "4d03h". */
void deployment_format_uptime(uint64_t ms, char out[24]);

#endif
