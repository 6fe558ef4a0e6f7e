/* One supervised process: its start, its log, its state and its end. supervise.c decides which
 * process may run. Single-threaded. */
#ifndef MOED_DEPLOY_PROCESS_H
#define MOED_DEPLOY_PROCESS_H

#include "daemon/deployment_options.h"
#include "daemon/run_dir.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum process_state {
    PROCESS_WAITING,
    PROCESS_STARTING,
    PROCESS_READY,
    PROCESS_BACKOFF,
    PROCESS_FAILED,
    PROCESS_STOPPING,
    PROCESS_STOPPED,
};
const char *process_state_name(enum process_state state);

/* The program, five of its own (arguments.c), and every option with its value. */
enum { PROCESS_MAX_ARGUMENTS = 6 + 2 * DEPLOYMENT_OPTIONS_COUNT };

struct process_file {
    dev_t device;
    ino_t inode;
};

struct process {
    const char *name; /* "memd" */
    char program[PATH_MAX];
    char *arguments[PROCESS_MAX_ARGUMENTS + 1]; /* NULL-terminated, borrowed */
    char log_path[RUN_PATH_BYTES];

    bool unused;      /* the deployment does not have this process */
    bool leaving;     /* and will not, once it has ended */
    bool ends_first;  /* where the kernel lacks memory: before memd, which loads the model anew */
    bool runs_setuid; /* a GPU's driver in it may start a program that makes the device's files */
    bool stops_deployments; /* when it is stopped: it has three times as long */
    /* So much longer it has, for requests that run, when it is not to start again (process_hurry).
     */
    uint64_t drain_ns;
    enum process_state state;
    enum process_state after_stop; /* state after PROCESS_STOPPING: waiting or stopped */
    pid_t pid;                     /* 0: none runs */
    uint64_t started_ns, ready_ns;
    uint64_t retry_ns; /* in PROCESS_BACKOFF: when to start again */
    uint64_t term_ns,
        kill_ns;       /* in PROCESS_STOPPING: when to send SIGTERM, SIGKILL; 0: sent, or never */
    uint64_t hurry_ns; /* the same: when to send SIGINT, next; 0: never */
    unsigned starts;
    unsigned failures;   /* ends in a row before it was ready, but for lack of device memory */
    unsigned ready_ends; /* ends after it was ready, when nobody had stopped it */
    unsigned lacks;      /* ends in a row for lack of device memory; 0 once it loads */
    unsigned backoff_ms; /* the last delay; doubles */
    uint64_t heard_ns;   /* of the supervisor's waking time: the last beat of the watchdog */
    unsigned silences;   /* kills by the watchdog in a row */
    bool was_ready;      /* in this start or before: it is not given up for its failures */
    bool silent;         /* the watchdog has killed it; process_end has not run yet */
    bool stopped_hard;   /* this supervisor has sent SIGKILL */
    bool ended;          /* reaped; process_end has not run yet */
    int wait_status;
    struct process_file program_file; /* that was started */
    char module[PATH_MAX]; /* the GPU module that a ready process has loaded; empty: none */
    struct process_file module_file;
    off_t log_start;     /* where the log lines of this start begin */
    off_t old_log_start; /* the same in the log that was renamed since; -1: none was */
    char status[256];
    char reason[512];
};

/* Settings that do not change while the supervisor runs. */
struct process_policy {
    uint64_t
        stable_ns; /* a process that was ready for so long is restarted without growing delay */
    uint64_t stop_timeout_ns; /* process_stop_timeout_ns */
    uint64_t watchdog_ns;     /* a process that sends no beat for so long is killed; 0: none is */
};

/* Starts the process: PROCESS_STARTING, or the state that process_end gives where it cannot start.
 * That counts as a beat at awake_ns (process_heard). */
void process_start(struct process *p, uint64_t awake_ns, const struct process_policy *policy);
/* Notes the kernel's kills for lack of memory, by which process_end knows one: at least once a
 * second. */
void process_look_for_oom_kills(void);
/* Handles the end of the process: PROCESS_BACKOFF or PROCESS_FAILED; after process_stop:
 * after_stop. */
void process_end(struct process *p, const struct process_policy *policy);
/* From SIGTERM to SIGKILL, when it is not to start again. */
uint64_t process_stop_timeout_ns(const struct process *p, const struct process_policy *policy);
/* Stops the process with SIGTERM after grace_ns (0: now). Does nothing where none runs. With
 * after_stop PROCESS_WAITING drain_ns is not waited for: clients find nobody until it is back. */
void process_stop(struct process *p, enum process_state after_stop, uint64_t grace_ns,
                  const struct process_policy *policy);
/* A process that is being stopped ends with SIGINT, and the requests that run with it. */
void process_hurry(struct process *p);
/* Asks the process to take no new work and to end when it has none left; it is stopped after
 * patience_ns. */
void process_drain(struct process *p, enum process_state after_stop, uint64_t patience_ns,
                   const struct process_policy *policy);
/* True: it runs, and the file of its program, or of the GPU module that it has loaded, is
 * another now. */
bool process_is_replaced(const struct process *p);
/* Sends the signals that are due. */
void process_send_due_signals(struct process *p);
/* Takes a notification datagram of the process: READY=1, STATUS=. */
void process_notified(struct process *p, char *message);
/* The watchdog: notes a beat; kills the process where it had none for too long. awake_ns: the
 * supervisor's waking time, which does not count suspends of the machine, and stops of the
 * supervisor. A process under a debugger is left
 * alone, and so is one that has crashed while its core is written. */
void process_heard(struct process *p, uint64_t awake_ns);
void process_check_silence(struct process *p, uint64_t awake_ns,
                           const struct process_policy *policy);
/* The time of the next signal or restart (clock_ns); UINT64_MAX: none. */
uint64_t process_deadline(const struct process *p);

/* Opens a log for appending, and renames one of more than 10 MB to .1 first. -1: errno. */
int process_open_log(const char *path);
/* Whether the log has more. */
bool process_log_is_long(const char *path);
/* Whether somebody has removed the log. */
bool process_log_has_vanished(const char *path);
/* Renames the log of a process that runs if it is long. Makes a new one then, or where it has
 * vanished, to which the process changes once it notices (daemon.c). */
void process_keep_log(struct process *p);

#endif
