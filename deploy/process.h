/* One supervised process: starting it, its log, and what its end means. Which process may run when
 * is the supervisor's business (supervise.c). Single-threaded. */
#ifndef MOED_DEPLOY_PROCESS_H
#define MOED_DEPLOY_PROCESS_H

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

#define PROCESS_MAX_ARGUMENTS 40

struct process {
    const char *name; /* "memd" */
    char program[PATH_MAX];
    char *arguments[PROCESS_MAX_ARGUMENTS + 1]; /* NULL-terminated, borrowed */
    char log_path[RUN_PATH_BYTES];

    bool unused; /* this deployment does without it */
    enum process_state state;
    enum process_state after_stop; /* what follows PROCESS_STOPPING: waiting or stopped */
    pid_t pid;                     /* 0: none runs */
    uint64_t started_ns, ready_ns;
    uint64_t retry_ns;         /* in PROCESS_BACKOFF: when to start again */
    uint64_t term_ns, kill_ns; /* in PROCESS_STOPPING: when to send what; 0: sent, or never */
    unsigned starts;
    unsigned failures; /* in a row before becoming ready */
    unsigned pause_ms; /* the last backoff; doubles */
    bool ended;        /* reaped, not yet dealt with */
    int wait_status;
    off_t log_start; /* where this run's lines begin */
    char status[256];
    char reason[512];
};

/* Policy numbers that do not change while running. */
struct process_policy {
    uint64_t stable_ns;       /* ready for so long: the next death is answered at once */
    uint64_t stop_timeout_ns; /* SIGTERM to SIGKILL */
};

/* Start it: PROCESS_STARTING, or what process_end says where it cannot be started. */
void process_start(struct process *p, const struct process_policy *policy);
/* It has ended by itself: PROCESS_BACKOFF or PROCESS_FAILED; or it has stopped as asked:
 * after_stop. */
void process_end(struct process *p, const struct process_policy *policy);
/* Ask it to stop, after grace_ns (0: now); does nothing where none runs. */
void process_stop(struct process *p, enum process_state after_stop, uint64_t grace_ns,
                  const struct process_policy *policy);
/* Send the signals that are due. */
void process_send_due_signals(struct process *p);
/* A notification datagram of its: READY=1, STATUS=. */
void process_notified(struct process *p, char *message);
/* The next moment at which something is due; UINT64_MAX: none. */
uint64_t process_deadline(const struct process *p);

/* Open a log for appending; one of more than 10 MB is renamed to .1 first. -1: errno. */
int process_open_log(const char *path);

#endif
