/* The state of a deployment: commands to its supervisor, and the health of its processes. Any
 * thread. */
#ifndef MOED_CLIENT_STATE_DEPLOYMENT_STATUS_H
#define MOED_CLIENT_STATE_DEPLOYMENT_STATUS_H

#include "base/error.h"
#include "base/strbuf.h"
#include "daemon/supervisor_protocol.h"

#include "control.pb-c.h"

#include <limits.h>
#include <stdint.h>
#include <sys/types.h>

#define DEPLOYMENT_HEALTH_TIMEOUT_MS 500

/* A process, as the supervisor reports it. */
struct deployment_process {
    char name[32], state[32], status[256], reason[512];
    pid_t pid; /* 0: none runs */
    uint64_t restarts, uptime_ms;
    uint64_t ready_ends; /* ends after it was ready, when nobody had stopped it */
    uint64_t lacks;      /* its last starts in a row that ended for lack of device memory */
    uint64_t failures;   /* and those that ended before it was ready for another cause */
    bool replaced; /* the file of its program or GPU module is another than the one that runs */
};

/* A deployment, as the supervisor reports it. */
struct deployment_status {
    char name[64], state[32], model[PATH_MAX], reason[640];
    char folder[PATH_MAX]; /* of the supervisor's program; empty: not known */
    pid_t pid;             /* the supervisor's */
    uint64_t uptime_ms;
    unsigned n_processes;
    struct deployment_process processes[SUPERVISE_PROCESSES];
    struct {             /* the last one (daemon/supervisor_protocol.h) */
        unsigned number; /* 0: there was none */
        char state[16], model[PATH_MAX], reason[700];
    } reload;
    unsigned n_others; /* processes of the model that does not serve, during a reload */
    struct deployment_process others[SUPERVISE_PROCESSES];
};

/* Sends one command to the supervisor; answer: its lines without the last "ok". ERROR_UNAVAILABLE:
 * no supervisor listens. */
enum error_code deployment_command(const char *run, const char *command, struct strbuf *answer,
                                   struct error *e);
enum error_code deployment_status(const char *run, struct deployment_status *out, struct error *e);
/* answer: the supervisor's to `status`. Changes it. */
void deployment_status_read(char *answer, struct deployment_status *out);
/* NULL: not in the status. */
const struct deployment_process *deployment_status_find(const struct deployment_status *s,
                                                        const char *process);

/* It has failed, or has not become ready at SUPERVISE_PATIENT_STARTS starts in a row. The
 * supervisor tries on then, but a person who waits should know. */
bool deployment_does_not_run(const struct deployment_process *p);
/* The process, or memd where it needs memd, if its last start ended for lack of device memory;
 * NULL: neither. */
const struct deployment_process *deployment_status_lacking(const struct deployment_status *s,
                                                           const char *process);
/* What keeps the process from starting: memd, where it needs memd, if that does not become ready
 * (as above), or itself, if it does not run. NULL: nothing. */
const struct deployment_process *deployment_status_stopper(const struct deployment_status *s,
                                                           const char *process);

/* The names of the workers that run, with or without a supervisor; returns their number. */
unsigned deployment_workers(const char *run, const char *names[SUPERVISE_WORKERS]);

/* What all workers of a deployment report, together. */
struct workers_health {
    unsigned n; /* that have answered */
    uint64_t running, waiting, clients;
    uint64_t parallel; /* requests that can run at once */
    double tokens_per_s;
    uint64_t drafted, accepted;
    char drafts_unused[64]; /* why nothing is drafted; "": no reason */
    bool has_cache, has_tier;
    Moed__V1__CacheHealth cache; /* without its strings */
    Moed__V1__TierHealth tier;
    char predictor[32];
};
void workers_health_add(struct workers_health *all, const Moed__V1__HealthReply *one);
/* Asks each worker that runs, one after the other. */
struct workers_health deployment_workers_health(const char *run);

/* Asks a process for its health. The caller frees *reply with moed__v1__reply__free_unpacked. */
enum error_code deployment_health(const char *run, const char *process, Moed__V1__Reply **reply,
                                  struct error *e);

#endif
