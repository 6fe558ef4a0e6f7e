/* The supervisor's state, shared by its start (prepare.c) and its loop (supervise.c). */
#ifndef MOED_DEPLOY_SUPERVISOR_H
#define MOED_DEPLOY_SUPERVISOR_H

#include "base/error.h"
#include "daemon/run_dir.h"
#include "deploy/process.h"
#include "deploy/sockets.h"
#include "deploy/supervise.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

/* Indices of supervise_process_names. */
enum { MEMD, CPUEXEC, WORKER };

struct settings {
    const char *run, *name, *model, *bindir, *device, *ram, *log_level;
    const char *policy, *assign, *cache, *predictor, *budget, *prefetch, *learned, *kv_type;
    uint64_t threads, ctx, parallel, segment_bytes; /* 0: the process's own default */
    bool reproducible, calibrate, fine_tune, mps, cpuexec;
    double stop_timeout_s, stable_s;
};

struct supervisor {
    const struct settings *settings;
    char run[RUN_DIR_BYTES];
    char model[PATH_MAX];
    char numbers[4][24]; /* --threads, --ctx, --parallel, --segment-bytes as text */
    struct process_policy policy;
    struct process processes[SUPERVISE_PROCESSES];
    struct clients clients;
    int signal_fd, notify_fd;
    uint64_t started_ns;
    bool stopping;
    bool restart_memd; /* once those that need it are gone */
    bool freed;        /* memd was started again for a worker that does not start (MPS), since one did */
};

/* Everything before the loop: paths, programs and their arguments, the lock, the log, signals,
 * leftovers of an earlier supervisor, sockets. ERROR_EXISTS: the deployment runs already. */
enum error_code supervisor_prepare(struct supervisor *s, struct error *e);

#endif
