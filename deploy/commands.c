/* What moed-supervise answers on its socket (lib/daemon/supervisor_protocol.h). A command only
 * changes the states of processes; the loop in supervise.c acts on them. */
#include "deploy/supervisor.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/program_folder.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool a_worker_is_ready(const struct supervisor *s)
{
    for (int i = WORKER; i <= LAST_WORKER; i++)
        if (!s->processes[i].unused && s->processes[i].state == PROCESS_READY)
            return true;
    return false;
}

static bool has_failed(const struct process *p)
{
    return p->state == PROCESS_FAILED;
}

/* It has failed, or is started again and again and has not become ready for a while. */
static bool does_not_start(const struct process *p)
{
    return has_failed(p) || p->lacks >= SUPERVISE_PATIENT_STARTS ||
           p->failures >= SUPERVISE_PATIENT_STARTS;
}

/* The one for which no request is answered: memd, or the first of the workers where `is` holds for
 * all of them; without a model of its own, models or http. NULL: there is none. */
static const struct process *stopper(const struct supervisor *s,
                                     bool (*is)(const struct process *p))
{
    const struct process *p = s->processes, *first = NULL;
    if (!s->model[0])
        return is(&p[MODELS]) ? &p[MODELS] : is(&p[HTTP]) ? &p[HTTP] : NULL;
    if (is(&p[MEMD]))
        return &p[MEMD];
    for (int i = WORKER; i <= LAST_WORKER; i++) {
        if (!p[i].unused && !is(&p[i]))
            return NULL;
        if (!p[i].unused && !first)
            first = &p[i];
    }
    return first;
}

static bool answers(const struct supervisor *s)
{
    const struct process *p = s->processes;
    if (!s->model[0])
        return p[MODELS].state == PROCESS_READY && p[HTTP].state == PROCESS_READY;
    return p[MEMD].state == PROCESS_READY && a_worker_is_ready(s);
}

static const char *deployment_state(const struct supervisor *s, char *reason, size_t bytes)
{
    reason[0] = '\0';
    if (s->stopping)
        return "stopping";
    const struct process *failed = stopper(s, has_failed);
    if (failed) {
        snprintf(reason, bytes, "%s has failed: %s", failed->name, failed->reason);
        return "failed";
    }
    if (!answers(s)) {
        const struct process *tried = stopper(s, does_not_start);
        if (tried)
            snprintf(reason, bytes, "%s does not start: %s", tried->name, tried->reason);
        return "starting";
    }
    for (int i = CPUEXEC; i <= HTTP; i++) {
        const struct process *h = &s->processes[i];
        if (h->unused || h->leaving || h->state == PROCESS_READY)
            continue;
        snprintf(reason, bytes, "%s does not run (%s)%s%s", h->name, process_state_name(h->state),
                 h->reason[0] ? ": " : "", h->reason);
        return "degraded";
    }
    return "ready";
}

static unsigned long long milliseconds_since(uint64_t ns)
{
    return (clock_ns() - ns) / 1000000u;
}

static void command_status(const struct supervisor *s, struct strbuf *answer)
{
    char reason[640], folder[PATH_MAX];
    const char *state = deployment_state(s, reason, sizeof reason);
    program_folder(folder);
    strbuf_printf(
        answer,
        "deployment\tname=%s\tstate=%s\tpid=%d\tuptime_ms=%llu\tfolder=%s\tmodel=%s\treason=%s\n",
        s->settings->name, state, (int)getpid(), milliseconds_since(s->started_ns), folder,
        s->model, reason);
    for (int i = 0; i < SUPERVISE_PROCESSES; i++) {
        const struct process *p = &s->processes[i];
        if (p->unused)
            continue;
        strbuf_printf(answer,
                      "process\tname=%s\tstate=%s\tpid=%d\trestarts=%u\tready_ends=%u\t"
                      "failures=%u\tlacks=%u\tuptime_ms=%llu\treplaced=%d\tstatus=%s\treason=%s\n",
                      p->name, process_state_name(p->state), (int)p->pid,
                      p->starts ? p->starts - 1 : 0, p->ready_ends, p->failures, p->lacks,
                      p->pid ? milliseconds_since(p->started_ns) : 0, process_is_replaced(p),
                      p->status, p->reason);
    }
    reload_status(s, answer);
    strbuf_printf(answer, "ok\n");
}

static void forgive(struct process *p)
{
    p->failures = p->silences = p->lacks = 0;
    p->backoff_ms = 0;
    if (!p->pid)
        p->state = PROCESS_WAITING;
}

static void command_restart(struct supervisor *s, const char *name, struct strbuf *answer)
{
    int which = 0;
    while (which < SUPERVISE_PROCESSES && strcmp(name, s->processes[which].name) != 0)
        which++;
    if (which == SUPERVISE_PROCESSES) {
        strbuf_printf(
            answer,
            "error there is no process %s: memd, cpuexec, worker, worker-N, models or http\n",
            name);
        return;
    }
    if (s->processes[which].unused) {
        strbuf_printf(answer, "error there is no %s: %s\n", name,
                      which == HTTP      ? "start it with moed up --http"
                      : which == MODELS  ? "start it with moed serve --models DIR"
                      : !s->model[0]     ? "the deployment has no model of its own"
                      : is_worker(which) ? "`moed workers N` adds workers"
                                         : "the worker computes the experts (moed up --cpuexec)");
        return;
    }
    if (s->stopping) {
        strbuf_printf(answer, "error the deployment is stopping\n");
        return;
    }
    if (which != MEMD && which < MODELS && s->processes[MEMD].state == PROCESS_FAILED) {
        strbuf_printf(answer, "error %s needs memd, which has failed: restart memd\n", name);
        return;
    }
    log_info("restart of %s requested", name);
    if (which == MEMD) {
        for (int i = 0; i < SUPERVISE_PROCESSES; i++)
            forgive(&s->processes[i]);
        s->restart_memd = s->processes[MEMD].pid != 0;
    } else {
        forgive(&s->processes[which]);
        process_stop(&s->processes[which], PROCESS_WAITING, 0, &s->policy);
    }
    strbuf_printf(answer, "ok\n");
}

/* The most that advance_to_stop takes: one process after the other, the workers at the same time.
 */
static uint64_t most_stop_ns(const struct supervisor *s)
{
    uint64_t sum = 0;
    for (int i = 0; i < ALL_PROCESSES; i++) {
        const struct process *p = &s->processes[i];
        bool after_a_worker = is_worker(i % OTHER) && is_worker(i % OTHER - 1);
        if (!p->unused && !after_a_worker)
            sum += process_stop_timeout_ns(p, &s->policy);
    }
    return sum;
}

static void add_worker(struct process *p)
{
    if (p->pid) /* it leaves: it ends, and starts again */
        p->after_stop = PROCESS_WAITING;
    else
        forgive(p);
    p->unused = p->leaving = p->was_ready = false;
}

static void remove_worker(struct supervisor *s, struct process *p)
{
    p->leaving = true;
    p->lacks = p->failures = 0;
    process_drain(p, PROCESS_STOPPED, (uint64_t)(s->settings->drain_s * 1e9), &s->policy);
    if (!p->pid)
        p->state = PROCESS_STOPPED;
}

/* memd has reserved the scratch and the KV caches of the first workers on a CUDA device, and given
 * the rest of its memory to the experts. */
static uint64_t most_workers(const struct supervisor *s)
{
    const char *device = s->settings->options.device;
    return device && strncmp(device, "cuda", 4) == 0 ? s->settings->options.workers
                                                     : SUPERVISE_WORKERS;
}

static void command_workers(struct supervisor *s, const char *text, struct strbuf *answer)
{
    char *end;
    unsigned long n = strtoul(text, &end, 10);
    uint64_t most = most_workers(s);
    if (*end || end == text || n < 1 || n > most) {
        strbuf_printf(answer, "error there can be 1 to %" PRIu64 " workers, not %.20s%s\n", most,
                      text,
                      most < SUPERVISE_WORKERS
                          ? "; the device's memory was divided for these by `moed up --workers`"
                          : "");
        return;
    }
    if (s->stopping || !s->model[0]) {
        strbuf_printf(answer, "error the deployment %s\n",
                      s->stopping ? "is stopping" : "has no model of its own");
        return;
    }
    log_info("%lu workers requested, %u now", n, generation_count_workers(s));
    for (int i = WORKER; i <= LAST_WORKER; i++) {
        struct process *p = &s->processes[i];
        bool wanted = i - WORKER < (int)n;
        if (wanted && (p->unused || p->leaving))
            add_worker(p);
        else if (!wanted && !p->unused && !p->leaving)
            remove_worker(s, p);
    }
    generation_forget_removed(s);
    strbuf_printf(answer, "ok\n");
}

void supervisor_command(void *arg, const char *line, struct strbuf *answer)
{
    struct supervisor *s = arg;
    if (strncmp(line, "reload\t", 7) == 0) {
        reload_command(s, line + 7, answer);
    } else if (strcmp(line, "reload-cancel") == 0) {
        reload_cancel(s, answer);
    } else if (strcmp(line, "status") == 0) {
        command_status(s, answer);
    } else if (strncmp(line, "restart ", 8) == 0) {
        command_restart(s, line + 8, answer);
    } else if (strncmp(line, "workers ", 8) == 0) {
        command_workers(s, line + 8, answer);
    } else if (strcmp(line, "down") == 0 || strcmp(line, "down-now") == 0) {
        if (!s->stopping)
            log_info("%s requested", line);
        s->stopping = true;
        s->hurried |= strcmp(line, "down-now") == 0;
        strbuf_printf(answer, "stopping\tmost_ms=%llu\nok\n",
                      (unsigned long long)(most_stop_ns(s) / 1000000u));
    } else {
        strbuf_printf(
            answer, "error unknown command: status, restart PROCESS, workers N, reload or down\n");
    }
}
