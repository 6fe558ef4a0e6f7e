/* A deployment's runtime directory: RUN = $MOED_RUN, else $XDG_RUNTIME_DIR/moed/NAME (where that
 * directory is there and ours: after `su` it is often not), else /tmp/moed-UID/NAME; mode 0700,
 * owned by us (refused otherwise). It holds PROCESS.ctl (control sockets), PROCESS.lease (lease
 * sockets), PROCESS.pid (locked while it lives), PROCESS.log, supervise.sock and the frontends'
 * session-N.sock. */
#ifndef MOED_DAEMON_RUN_DIR_H
#define MOED_DAEMON_RUN_DIR_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define RUN_DIR_BYTES  84 /* unix socket paths end at 107: RUN/session-4294967295.sock must fit */
#define RUN_PATH_BYTES 108

/* The path for deployment NAME ("default" where NULL); checks the name ([A-Za-z0-9._-], at most 32,
 * no leading dot). Creates nothing. */
enum error_code run_dir_path(const char *name, char out[RUN_DIR_BYTES], struct error *e);
/* Create it with its parents (mode 0700) if missing, check owner and mode. */
enum error_code run_dir_create(const char *run, struct error *e);
/* RUN/file */
void run_dir_file(const char *run, const char *file, char out[RUN_PATH_BYTES]);
/* ipc://RUN/file, for nng. */
#define RUN_URL_BYTES (RUN_PATH_BYTES + 8)
void run_dir_url(const char *run, const char *file, char out[RUN_URL_BYTES]);

/* Write and lock RUN/PROCESS.pid for this process's life; ERROR_EXISTS names the pid that holds it.
 */
enum error_code run_dir_lock(const char *run, const char *process, struct error *e);

/* The pid of the live process that holds RUN/PROCESS.pid; 0 where there is none. */
pid_t run_dir_holder(const char *run, const char *process);
/* Stop the holder: SIGTERM, after timeout_ms SIGKILL. True when nobody holds it afterwards. */
bool run_dir_terminate(const char *run, const char *process, int timeout_ms);

/* Remove the sockets and pid files (not the logs). Only for whoever knows that no process is left:
 * the holder of supervise.pid. */
void run_dir_sweep(const char *run);

/* The names of all deployments of this user that have a directory (each for run_dir_path), for
 * `ps`. Calls visit for each. With $MOED_RUN set only that one, named "default" unless its last
 * part is a valid name. */
enum error_code run_dir_list(void (*visit)(void *arg, const char *name, const char *run), void *arg,
                             struct error *e);

#endif
