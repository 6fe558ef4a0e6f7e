/* The supervisor's state, shared by its files. Each uses only those to its right:
 *
 *   supervise.c (the loop) -> prepare.c (the start)    -> reload.c -> arguments.c, generation.c
 *                          -> commands.c (the answers) ->
 *
 * Below them, without this state: process.c, sockets.c, run_watch.c, mps.c. */
#ifndef MOED_DEPLOY_SUPERVISOR_H
#define MOED_DEPLOY_SUPERVISOR_H

#include "base/error.h"
#include "daemon/run_dir.h"
#include "deploy/process.h"
#include "deploy/reload.h"
#include "deploy/run_watch.h"
#include "deploy/sockets.h"
#include "daemon/deployment_options.h"
#include "daemon/supervisor_protocol.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

/* Indices of supervise_process_names; the workers are WORKER to LAST_WORKER. */
enum {
    MEMD,
    CPUEXEC,
    WORKER = SUPERVISE_FIRST_WORKER,
    LAST_WORKER = WORKER + SUPERVISE_WORKERS - 1,
    MODELS,
    HTTP,
    /* Process i of the generation that does not serve (reload.h) is OTHER + i. */
    OTHER,
    ALL_PROCESSES = OTHER + LAST_WORKER + 1
};
_Static_assert(HTTP + 1 == SUPERVISE_PROCESSES, "supervise_process_names has them");

static inline bool is_worker(int which)
{
    return which >= WORKER && which <= LAST_WORKER;
}

struct settings {
    struct deployment_options options; /* workers: at the start */
    const char *run, *name, *model, *bindir;
    double stop_timeout_s, stable_s, drain_s;
};

/* memd, cpuexec and the workers of one model: what they are started with. Their arguments point
 * into it. */
struct generation {
    struct settings settings;
    char dir[RUN_DIR_BYTES]; /* their place (daemon/run_dir.h) */
    char model[PATH_MAX];    /* empty: none of its own, but those of a folder */
    /* Texts of the settings of `reload`: */
    char predictors[PATH_MAX], device[512], ram[64], kv_cache[64], policy[128];
    char numbers[DEPLOYMENT_OPTIONS_COUNT][24]; /* the options' numbers, as text */
    char worker_numbers[SUPERVISE_WORKERS][12];
};

/* What the loop polls: signals, notifications, removals, the socket for commands and its clients.
 */
#define SUPERVISOR_POLLED (3 + 1 + CLIENTS_MAX)

struct supervisor {
    const struct settings *settings; /* of the generation that serves */
    const char *model;               /* the same */
    char run[RUN_DIR_BYTES];
    char models[PATH_MAX]; /* the folder */
    struct generation generations[RUN_PLACES];
    unsigned serving; /* which of them, and which place */
    struct reload reload;
    struct process_policy policy;
    struct process processes[ALL_PROCESSES];
    struct clients clients;
    struct run_watch watch;
    int signal_fd, notify_fd;
    uint64_t started_ns;
    uint64_t logs_ns, files_ns; /* when the logs, and the files in RUN, were looked at */
    uint64_t awake_ns, turn_ns; /* waking time (process_heard); when the last turn began */
    bool stopping;
    bool hurried;      /* while it stops, http waits for no answer */
    bool restart_memd; /* once the processes that need it are gone */
    bool freed;        /* free_device has restarted memd since the worker was last ready */
};

/* Does everything before the loop: paths, programs and their arguments, the lock, the log, signals,
 * processes that an earlier supervisor left, sockets. ERROR_EXISTS: the deployment runs already. */
enum error_code supervisor_prepare(struct supervisor *s, struct error *e);
/* Renames the supervisor's log if it is long. Goes on in a new one then, or if it has vanished. */
void supervisor_keep_log(const struct supervisor *s);
/* Makes those of its own files (pid file, sockets) again that have vanished. */
enum error_code supervisor_restore_files(struct supervisor *s, struct error *e);

/* Hands each of n processes from `first` on the options that it takes (arguments.c). */
void supervisor_build_arguments(struct supervisor *s, struct generation *g, struct process *first,
                                int n);
/* Of the processes from `base` on (generation.c): 0 those that serve, OTHER the other generation's.
 * Dependents of memd: cpuexec and the workers. */
bool generation_workers_run(const struct supervisor *s, int base);
bool generation_dependents_run(const struct supervisor *s, int base);
/* The workers, then cpuexec once they are gone, or with a grace at the same time. */
void generation_stop_dependents(struct supervisor *s, int base, enum process_state after_stop,
                                uint64_t grace_ns);
/* A process that lost memd ends on its own within this time, or gets SIGTERM. */
#define LOST_MEMD_GRACE_NS 1000000000ull
/* The workers of the generation that serves, without those that leave. */
unsigned generation_count_workers(const struct supervisor *s);
/* Workers that were removed, and have ended, are no part of the deployment any more. */
void generation_forget_removed(struct supervisor *s);

/* Answers a command of a client; arg: struct supervisor. */
void supervisor_command(void *arg, const char *line, struct strbuf *answer);

#endif
