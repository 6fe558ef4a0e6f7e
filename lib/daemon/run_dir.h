/* A deployment's runtime directory, RUN. It is the first of these:
 *
 *     $MOED_RUN                     where it is set
 *     $XDG_RUNTIME_DIR/moed/NAME    where $XDG_RUNTIME_DIR exists and belongs to this user; after
 *                                   `su` it often does not
 *     /tmp/moed-UID/NAME
 *
 * It must belong to this user and have mode 0700. It holds
 *
 *     PROCESS.ctl      control sockets
 *     PROCESS.peers    sockets for calls of other daemons
 *     PROCESS.lease    lease sockets
 *     PROCESS.pid      locked by PROCESS while it lives
 *     PROCESS.log
 *     supervise.sock
 *
 * memd, cpuexec and the workers have their files in a *place*: RUN itself, or RUN/2. `moed reload`
 * starts those of the next model in the place that is free. The link RUN/serving leads to RUN/2
 * while the processes there serve; without it those in RUN do. Functions that take RUN and a
 * process look for memd, cpuexec and workers in the place that serves. */
#ifndef MOED_DAEMON_RUN_DIR_H
#define MOED_DAEMON_RUN_DIR_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define RUN_DIR_BYTES  84 /* unix socket paths end at 107: 23 bytes are left for a file's name */
#define RUN_PATH_BYTES 108

/* The path for the deployment `name` (NULL: "default"). ERROR_USAGE where the name is not 1 to 32
 * of [A-Za-z0-9._-] without a leading dot. Creates nothing. */
enum error_code run_dir_path(const char *name, char out[RUN_DIR_BYTES], struct error *e);
/* $MOED_RUN; NULL: it is not set, or empty. */
const char *run_dir_from_environment(void);
/* What messages call the deployment `name` (NULL: "default"): "deployment NAME", or "the deployment
 * in DIR (MOED_RUN)" where $MOED_RUN is set, because then the name does not count. */
#define RUN_LABEL_BYTES (RUN_DIR_BYTES + 40)
void run_dir_label(const char *name, char out[RUN_LABEL_BYTES]);
/* Create RUN and its parents (mode 0700) where they are missing; check owner and mode. */
enum error_code run_dir_create(const char *run, struct error *e);
/* Open RUN with O_PATH, after its owner, its mode and its parent have been checked through the
 * descriptor. Nothing in RUN may be read or believed before: in a shared folder another user could
 * have made it. ERROR_NOT_FOUND: it does not exist. */
enum error_code run_dir_open(const char *run, int *fd, struct error *e);
/* The same check alone. A directory that does not exist passes. */
enum error_code run_dir_check(const char *run, struct error *e);
/* RUN/file */
void run_dir_file(const char *run, const char *file, char out[RUN_PATH_BYTES]);
/* ipc://RUN/file */
#define RUN_URL_BYTES (RUN_PATH_BYTES + 8)
void run_dir_url(const char *run, const char *file, char out[RUN_URL_BYTES]);

/* ---- Places (run_dir_place.c) ---- */

enum { RUN_PLACES = 2 };
/* The directory of place 0 or 1; false: its path would be too long. */
bool run_dir_place(const char *run, unsigned place, char out[RUN_DIR_BYTES]);
/* Which place serves now. */
unsigned run_dir_serving(const char *run);
/* Makes this place serve, in one step. Only the supervisor calls it. */
enum error_code run_dir_serve(const char *run, unsigned place, struct error *e);
/* The directory of the process's files: the place that serves, or RUN. */
void run_dir_of(const char *run, const char *process, char out[RUN_DIR_BYTES]);

/* ---- Pid files (run_dir_lock.c) ---- */

/* Write and lock RUN/PROCESS.pid for this process's life. ERROR_EXISTS names the pid that holds the
 * lock. */
enum error_code run_dir_lock(const char *run, const char *process, struct error *e);

/* The pid of the process that holds RUN/PROCESS.pid; 0: no process does. The file's number is
 * believed only where /proc shows that this process, of this user, holds the lock of this file.
 * 0 for a directory that run_dir_open refuses. */
pid_t run_dir_holder(const char *run, const char *process);
/* For a process that may not look into others' /proc, as a confined one: the file's number where
 * some process holds its lock; 0: none does. It tells one run of a process from the next; the
 * process may be another one, so never signal it. */
pid_t run_dir_hint(const char *run, const char *process);
/* The same, of exactly this directory: RUN or a place. */
pid_t run_dir_hint_at(const char *dir, const char *process);
/* As run_dir_holder; where the file is gone, also a process that still holds its lock. Reads all of
 * /proc, which takes some milliseconds. */
pid_t run_dir_find_holder(const char *run, const char *process);
/* The same for several processes at once, of which pids has a place each. */
void run_dir_find_holders(const char *run, const char *const *processes, unsigned n, pid_t *pids);
/* Send a signal to the holder, which is `pid`. Nothing is sent where it holds the lock no more. */
void run_dir_signal(const char *run, const char *process, pid_t pid, int signal_number);
/* Stop the holder, also one whose file is gone: SIGTERM, after timeout_ms SIGKILL. True when no
 * process holds it afterwards. */
bool run_dir_terminate(const char *run, const char *process, int timeout_ms);

/* ---- The end of a deployment (run_dir_remove.c) ---- */

/* Remove the sockets and pid files, not the logs. Only the holder of supervise.pid may call it,
 * when no process of the deployment is left. */
void run_dir_sweep(const char *run);
/* Remove RUN of a stopped deployment with all that is in it. Takes supervise.pid's lock.
 * ERROR_USAGE: it has files of somebody else, and nothing was removed. ERROR_EXISTS: it runs. */
enum error_code run_dir_remove(const char *run, struct error *e);

/* ---- All deployments ---- */

/* The folder of the deployments' directories where $MOED_RUN is not set; false: too long. */
bool run_dir_folder(char out[RUN_DIR_BYTES]);

/* Call visit for each deployment of this user that has a directory. With $MOED_RUN set: only for
 * that one, named "default" unless its last part is a valid name. */
enum error_code run_dir_list(void (*visit)(void *arg, const char *name, const char *run), void *arg,
                             struct error *e);

#endif
