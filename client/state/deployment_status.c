/* The state of a deployment; see deployment_status.h. */
#include "client/state/deployment_status.h"

#include "daemon/control.h"
#include "daemon/run_dir.h"
#include "daemon/supervisor_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMMAND_TIMEOUT_MS 5000

enum error_code deployment_command(const char *run, const char *command, struct strbuf *answer,
                                   struct error *e)
{
    return supervisor_command(run, command, COMMAND_TIMEOUT_MS, answer, e);
}

static uint64_t to_number(const char *value)
{
    return strtoull(value, NULL, 10);
}

static void read_deployment_field(struct deployment_status *s, const char *key, const char *value)
{
    if (strcmp(key, "name") == 0)
        snprintf(s->name, sizeof s->name, "%s", value);
    else if (strcmp(key, "state") == 0)
        snprintf(s->state, sizeof s->state, "%s", value);
    else if (strcmp(key, "folder") == 0)
        snprintf(s->folder, sizeof s->folder, "%s", value);
    else if (strcmp(key, "model") == 0)
        snprintf(s->model, sizeof s->model, "%s", value);
    else if (strcmp(key, "reason") == 0)
        snprintf(s->reason, sizeof s->reason, "%s", value);
    else if (strcmp(key, "pid") == 0)
        s->pid = (pid_t)to_number(value);
    else if (strcmp(key, "uptime_ms") == 0)
        s->uptime_ms = to_number(value);
}

static void read_process_field(struct deployment_process *p, const char *key, const char *value)
{
    if (strcmp(key, "name") == 0)
        snprintf(p->name, sizeof p->name, "%s", value);
    else if (strcmp(key, "state") == 0)
        snprintf(p->state, sizeof p->state, "%s", value);
    else if (strcmp(key, "status") == 0)
        snprintf(p->status, sizeof p->status, "%s", value);
    else if (strcmp(key, "reason") == 0)
        snprintf(p->reason, sizeof p->reason, "%s", value);
    else if (strcmp(key, "pid") == 0)
        p->pid = (pid_t)to_number(value);
    else if (strcmp(key, "restarts") == 0)
        p->restarts = to_number(value);
    else if (strcmp(key, "ready_ends") == 0)
        p->ready_ends = to_number(value);
    else if (strcmp(key, "lacks") == 0)
        p->lacks = to_number(value);
    else if (strcmp(key, "failures") == 0)
        p->failures = to_number(value);
    else if (strcmp(key, "uptime_ms") == 0)
        p->uptime_ms = to_number(value);
    else if (strcmp(key, "replaced") == 0)
        p->replaced = strcmp(value, "1") == 0;
}

static void read_reload_field(struct deployment_status *s, const char *key, const char *value)
{
    if (strcmp(key, "number") == 0)
        s->reload.number = (unsigned)to_number(value);
    else if (strcmp(key, "state") == 0)
        snprintf(s->reload.state, sizeof s->reload.state, "%s", value);
    else if (strcmp(key, "model") == 0)
        snprintf(s->reload.model, sizeof s->reload.model, "%s", value);
    else if (strcmp(key, "reason") == 0)
        snprintf(s->reload.reason, sizeof s->reload.reason, "%s", value);
}

/* NULL: the line is of no process, or of one too many. */
static struct deployment_process *add_process(struct deployment_status *s, const char *kind)
{
    if (strcmp(kind, "process") == 0 && s->n_processes < SUPERVISE_PROCESSES)
        return &s->processes[s->n_processes++];
    if (strcmp(kind, "other") == 0 && s->n_others < SUPERVISE_PROCESSES)
        return &s->others[s->n_others++];
    return NULL;
}

static void read_status_line(struct deployment_status *s, char *line)
{
    const char *kind = strsep(&line, "\t");
    struct deployment_process *p = add_process(s, kind);
    for (char *field; (field = strsep(&line, "\t"));) {
        char *equals = strchr(field, '=');
        if (!equals)
            continue;
        *equals = '\0';
        if (p)
            read_process_field(p, field, equals + 1);
        else if (strcmp(kind, "deployment") == 0)
            read_deployment_field(s, field, equals + 1);
        else if (strcmp(kind, "reload") == 0)
            read_reload_field(s, field, equals + 1);
    }
}

void deployment_status_read(char *answer, struct deployment_status *out)
{
    memset(out, 0, sizeof *out);
    for (char *line; (line = strsep(&answer, "\n"));)
        if (*line)
            read_status_line(out, line);
}

enum error_code deployment_status(const char *run, struct deployment_status *out, struct error *e)
{
    struct strbuf answer;
    strbuf_init(&answer);
    enum error_code code = deployment_command(run, "status", &answer, e);
    if (!code)
        deployment_status_read(answer.data, out);
    strbuf_fini(&answer);
    return code;
}

const struct deployment_process *deployment_status_find(const struct deployment_status *s,
                                                        const char *process)
{
    for (unsigned i = 0; i < s->n_processes; i++)
        if (strcmp(s->processes[i].name, process) == 0)
            return &s->processes[i];
    return NULL;
}

static bool does_not_become_ready(const struct deployment_process *p)
{
    return p->lacks >= SUPERVISE_PATIENT_STARTS || p->failures >= SUPERVISE_PATIENT_STARTS;
}

bool deployment_does_not_run(const struct deployment_process *p)
{
    return strcmp(p->state, "failed") == 0 || does_not_become_ready(p);
}

const struct deployment_process *deployment_status_lacking(const struct deployment_status *s,
                                                           const char *process)
{
    const struct deployment_process *p = deployment_status_find(s, process),
                                    *memd = deployment_status_find(s, "memd");
    if (supervise_needs_memd(process) && memd && memd->lacks)
        return memd;
    return p && p->lacks ? p : NULL;
}

const struct deployment_process *deployment_status_stopper(const struct deployment_status *s,
                                                           const char *process)
{
    const struct deployment_process *p = deployment_status_find(s, process),
                                    *memd = deployment_status_find(s, "memd");
    if (supervise_needs_memd(process) && memd && does_not_become_ready(memd))
        return memd;
    return p && deployment_does_not_run(p) ? p : NULL;
}

unsigned deployment_workers(const char *run, const char *names[SUPERVISE_WORKERS])
{
    unsigned n = 0;
    for (unsigned i = 1; i <= SUPERVISE_WORKERS; i++)
        if (run_dir_hint(run, supervise_worker_name(i)))
            names[n++] = supervise_worker_name(i);
    return n;
}

/* The windows add up, too, so that a share is the mean of the workers'. */
static void add_cache(Moed__V1__CacheHealth *all, const Moed__V1__CacheHealth *one)
{
    all->window_ns += one->window_ns;
    all->segments += one->segments;
    all->segments_resident += one->segments_resident;
    all->predictions += one->predictions;
    all->predictions_right += one->predictions_right;
    all->device_busy_ns += one->device_busy_ns;
    all->cpu_busy_ns += one->cpu_busy_ns;
    all->layers += one->layers;
    all->layer_ns += one->layer_ns;
    all->layer_predicted_ns += one->layer_predicted_ns;
    all->plans += one->plans;
    all->plan_ns += one->plan_ns;
}

static void add_tier(Moed__V1__TierHealth *all, const Moed__V1__TierHealth *one)
{
    all->window_ns += one->window_ns;
    all->activated += one->activated;
    all->found += one->found;
    all->decode_ns += one->decode_ns;
    all->decode_wait_ns += one->decode_wait_ns;
}

void workers_health_add(struct workers_health *all, const Moed__V1__HealthReply *one)
{
    if (all->n++ == 0) {
        moed__v1__cache_health__init(&all->cache);
        moed__v1__tier_health__init(&all->tier);
    }
    all->running += one->requests_running;
    all->waiting += one->requests_waiting;
    all->clients += one->clients;
    all->parallel += one->parallel;
    all->tokens_per_s += one->tokens_per_s;
    all->drafted += one->drafted_total;
    all->accepted += one->accepted_total;
    if (one->drafts_unused[0])
        snprintf(all->drafts_unused, sizeof all->drafts_unused, "%s", one->drafts_unused);
    if (one->cache) {
        all->has_cache = true;
        add_cache(&all->cache, one->cache);
        snprintf(all->predictor, sizeof all->predictor, "%s", one->cache->predictor);
    }
    if (one->tier) {
        all->has_tier = true;
        add_tier(&all->tier, one->tier);
    }
}

enum error_code deployment_health(const char *run, const char *process, Moed__V1__Reply **reply,
                                  struct error *e)
{
    return control_health(run, process, DEPLOYMENT_HEALTH_TIMEOUT_MS, reply, e);
}

struct workers_health deployment_workers_health(const char *run)
{
    struct workers_health all = {0};
    const char *names[SUPERVISE_WORKERS];
    unsigned n = deployment_workers(run, names);
    for (unsigned i = 0; i < n; i++) {
        struct error e = {0};
        Moed__V1__Reply *reply;
        if (deployment_health(run, names[i], &reply, &e))
            continue;
        workers_health_add(&all, reply->health);
        moed__v1__reply__free_unpacked(reply, NULL);
    }
    return all;
}
