/* A scrape; see scrape.h. Its threads take processes to ask from one list until none is left. */
#include "client/http/watch/scrape.h"

#include "base/clock.h"
#include "base/log.h"
#include "client/state/deployment_status.h"
#include "daemon/control.h"
#include "daemon/run_dir.h"
#include "daemon/supervisor_client.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS    32 /* that ask at the same time */
#define NAME_BYTES 40

/* A deployment's processes and its supervisor. http, which comes last, is asked in other
 * deployments alone: the own one is the frontend, which knows its metrics. */
enum { PROCESSES = SUPERVISE_PROCESSES, HTTP = PROCESSES - 1, SUPERVISOR = PROCESSES, ASKED };

struct asked_process {
    bool asked; /* the process runs */
    bool answered;
    struct strbuf answer; /* its metrics; the supervisor's status */
};

struct target {
    char name[NAME_BYTES], run[RUN_DIR_BYTES];
    bool expected; /* it has a model, so it should run */
    struct asked_process processes[ASKED];
};

struct gathering {
    const struct scrape_settings *settings;
    struct target *targets;
    size_t count, capacity;
    bool has_own;
    bool has_only; /* settings->only is known */
    /* of the threads that ask */
    atomic_size_t next; /* of all targets' processes */
    uint64_t begin_until_ns;
};

/* ---- Which processes there are ---- */

static struct target *add_target(struct gathering *g, const char *name, const char *run)
{
    if (g->count == g->capacity) {
        size_t more = g->capacity ? 2 * g->capacity : 8;
        struct target *grown = realloc(g->targets, more * sizeof *grown);
        if (!grown)
            return NULL; /* the page lacks it */
        g->targets = grown;
        g->capacity = more;
    }
    struct target *t = &g->targets[g->count++];
    memset(t, 0, sizeof *t);
    snprintf(t->name, sizeof t->name, "%s", name);
    snprintf(t->run, sizeof t->run, "%s", run);
    for (int i = 0; i < ASKED; i++)
        strbuf_init(&t->processes[i].answer);
    return t;
}

/* True: some process of it runs. */
static bool find_processes(struct target *t, bool own)
{
    bool any = false;
    for (int i = 0; i < ASKED; i++) {
        const char *process = i == SUPERVISOR ? "supervise" : supervise_process_names[i];
        if (own && i == HTTP)
            continue;
        t->processes[i].asked = run_dir_hint(t->run, process);
        any = any || t->processes[i].asked;
    }
    return any;
}

static bool has_model_process(const struct target *t)
{
    for (int i = 0; i < PROCESSES; i++)
        if (t->processes[i].asked && (i == 0 || supervise_is_worker(supervise_process_names[i])))
            return true;
    return false;
}

static bool is_wanted(const struct gathering *g, const char *name)
{
    return !g->settings->only || strcmp(g->settings->only, name) == 0;
}

static void visit(void *arg, const char *name, const char *run)
{
    struct gathering *g = arg;
    char path[PATH_MAX];
    if (realpath(run, path) && strcmp(path, g->settings->own_run) == 0)
        name = g->settings->own; /* $MOED_RUN may end in anything */
    bool own = strcmp(name, g->settings->own) == 0;
    g->has_own = g->has_own || own;
    if (!is_wanted(g, name))
        return;
    g->has_only = true;
    struct target *t = add_target(g, name, run);
    if (!t)
        return;
    bool any = find_processes(t, own);
    t->expected = has_model_process(t) || (own && g->settings->expects_own);
    if (!any && !t->expected)
        g->count--; /* it was stopped */
}

static void find_targets(struct gathering *g)
{
    struct error e = {0};
    char run[RUN_DIR_BYTES];
    if (run_dir_list(visit, g, &e))
        log_warn("cannot list the deployments: %s", e.text);
    bool own = is_wanted(g, g->settings->own);
    g->has_only = g->has_only || own;
    if (!own || g->has_own || !g->settings->expects_own ||
        run_dir_path(g->settings->own, run, NULL))
        return;
    struct target *t = add_target(g, g->settings->own, run);
    if (t)
        t->expected = true;
}

/* ---- Asking, on each thread ---- */

static void ask_for_metrics(const struct target *t, const char *process, struct asked_process *p)
{
    Moed__V1__Reply *reply;
    if (control_metrics(t->run, process, SCRAPE_ANSWER_MS, &reply, NULL))
        return;
    const char *text = reply->metrics->prometheus_text;
    strbuf_append(&p->answer, text, strlen(text));
    p->answered = p->answer.len && !p->answer.failed;
    moed__v1__reply__free_unpacked(reply, NULL);
}

static void ask_for_status(const struct target *t, struct asked_process *p)
{
    struct error e;
    p->answered = supervisor_command(t->run, "status", SCRAPE_ANSWER_MS, &p->answer, &e) == 0;
}

static void *ask_all(void *arg)
{
    struct gathering *g = arg;
    size_t i;
    while ((i = atomic_fetch_add(&g->next, 1)) < g->count * ASKED &&
           clock_ns() < g->begin_until_ns && !atomic_load(g->settings->cancelled)) {
        struct target *t = &g->targets[i / ASKED];
        struct asked_process *p = &t->processes[i % ASKED];
        if (p->asked && i % ASKED == SUPERVISOR)
            ask_for_status(t, p);
        else if (p->asked)
            ask_for_metrics(t, supervise_process_names[i % ASKED], p);
    }
    return NULL;
}

static size_t count_asked(const struct gathering *g)
{
    size_t n = 0;
    for (size_t i = 0; i < g->count; i++)
        for (int j = 0; j < ASKED; j++)
            n += g->targets[i].processes[j].asked;
    return n;
}

/* With fewer threads where the system has no more. */
static void ask_at_once(struct gathering *g)
{
    pthread_t threads[THREADS - 1];
    size_t n = count_asked(g), wanted = n < THREADS ? n : THREADS, started = 0;
    g->begin_until_ns = clock_ns() + SCRAPE_BEGIN_MS * 1000000ull;
    while (started + 1 < wanted && !pthread_create(&threads[started], NULL, ask_all, g))
        started++;
    ask_all(g);
    while (started > 0)
        pthread_join(threads[--started], NULL);
}

/* ---- What they answered ---- */

static void add_value(struct metrics_merge *m, const struct target *t, const char *process,
                      const char *name, const char *type, const char *help, uint64_t value)
{
    char text[256], labels[128];
    snprintf(text, sizeof text, "# HELP %s %s\n# TYPE %s %s\n%s %llu\n", name, help, name, type,
             name, (unsigned long long)value);
    int n = snprintf(labels, sizeof labels, "deployment=\"%s\"", t->name);
    if (process)
        snprintf(labels + n, sizeof labels - (size_t)n, ",process=\"%s\"", process);
    metrics_merge_add(m, text, labels);
}

static void add_deployment_up(struct metrics_merge *m, const struct target *t, bool up)
{
    add_value(m, t, NULL, "moed_deployment_up", "gauge", "1: it answers requests.", up);
}

static void add_process_up(struct metrics_merge *m, const struct target *t, const char *process,
                           bool up)
{
    add_value(m, t, process, "moed_process_up", "gauge", "1: the process is ready.", up);
}

static void add_supervised(struct metrics_merge *m, const struct target *t,
                           const struct deployment_status *s)
{
    if (strcmp(s->state, "stopping") == 0)
        return;
    bool degraded = strcmp(s->state, "degraded") == 0; /* it answers */
    add_deployment_up(m, t, degraded || strcmp(s->state, "ready") == 0);
    add_value(m, t, NULL, "moed_deployment_failed", "gauge",
              "1: the supervisor has given it up, and starts it no more.",
              strcmp(s->state, "failed") == 0);
    for (unsigned i = 0; i < s->n_processes; i++) {
        const struct deployment_process *p = &s->processes[i];
        add_process_up(m, t, p->name, strcmp(p->state, "ready") == 0);
        add_value(m, t, p->name, "moed_process_restarts_total", "counter",
                  "Starts of the process by its supervisor, but the first.", p->restarts);
    }
}

/* Where there is no supervisor, as under systemd, or it does not answer. */
static void add_unsupervised(struct metrics_merge *m, const struct target *t)
{
    bool memd = t->processes[0].answered, worker_runs = false, worker_answers = false;
    for (int i = 0; i < PROCESSES; i++) {
        const struct asked_process *p = &t->processes[i];
        bool worker = supervise_is_worker(supervise_process_names[i]);
        worker_runs = worker_runs || (worker && p->asked);
        worker_answers = worker_answers || (worker && p->answered);
        if (p->asked || (i == 0 && t->expected))
            add_process_up(m, t, supervise_process_names[i], p->answered);
    }
    if (t->expected && !worker_runs)
        add_process_up(m, t, "worker", false);
    if (t->expected)
        add_deployment_up(m, t, memd && worker_answers);
}

static void add_state(struct metrics_merge *m, struct target *t)
{
    struct asked_process *p = &t->processes[SUPERVISOR];
    struct deployment_status *s = p->answered ? malloc(sizeof *s) : NULL; /* large */
    if (s) {
        deployment_status_read(p->answer.data, s);
        add_supervised(m, t, s);
    } else {
        add_unsupervised(m, t);
    }
    free(s);
}

static void add_metrics(struct metrics_merge *m, const struct target *t)
{
    char labels[128];
    for (int i = 0; i < PROCESSES; i++) {
        snprintf(labels, sizeof labels, "deployment=\"%s\",process=\"%s\"", t->name,
                 supervise_process_names[i]);
        if (t->processes[i].answered)
            metrics_merge_add(m, t->processes[i].answer.data, labels);
    }
}

bool scrape(const struct scrape_settings *settings, struct metrics_merge *m)
{
    struct gathering g = {.settings = settings};
    find_targets(&g);
    ask_at_once(&g);
    for (size_t i = 0; i < g.count; i++) {
        struct target *t = &g.targets[i];
        add_state(m, t);
        add_metrics(m, t);
        for (int j = 0; j < ASKED; j++)
            strbuf_fini(&t->processes[j].answer);
    }
    free(g.targets);
    return g.has_only;
}
