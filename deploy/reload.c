/* A second generation of processes; see reload.h. */
#include "deploy/reload.h"

#include "base/clock.h"
#include "base/log.h"
#include "deploy/supervisor.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A client that looked for a worker just before the switch attaches to the old one, and its request
 * comes a moment later: only then the old workers are asked to finish. */
#define GRACE_NS 2000000000ull

static struct process *other(struct supervisor *s, int which)
{
    return &s->processes[OTHER + which];
}

static bool generation_runs(const struct supervisor *s, int base)
{
    return s->processes[base + MEMD].pid || generation_dependents_run(s, base);
}

bool reload_runs(const struct supervisor *s)
{
    return generation_runs(s, OTHER);
}

bool reload_holds(const struct supervisor *s)
{
    const struct reload *r = &s->reload;
    return r->stop_first &&
           (r->phase == RELOAD_MAKES_ROOM || r->phase == RELOAD_LOADS || r->phase == RELOAD_UNDOES);
}

/* Workers, then cpuexec, then memd, each after those that use it are gone. */
static void stop_generation(struct supervisor *s, int base)
{
    generation_stop_dependents(s, base, PROCESS_STOPPED, 0);
    if (!generation_dependents_run(s, base))
        process_stop(&s->processes[base + MEMD], PROCESS_STOPPED, 0, &s->policy);
}

/* Its workers take no new requests, and end when they have none left. */
static void drain_generation(struct supervisor *s, int base)
{
    uint64_t patience_ns = (uint64_t)(s->settings->drain_s * 1e9);
    for (int i = WORKER; i <= LAST_WORKER; i++)
        process_drain(&s->processes[base + i], PROCESS_STOPPED, patience_ns, &s->policy);
}

void reload_stop(struct supervisor *s)
{
    stop_generation(s, OTHER);
}

/* ---- The request ---- */

void reload_init(struct supervisor *s)
{
    for (int i = 0; i <= LAST_WORKER; i++) {
        struct process *p = other(s, i);
        p->name = supervise_process_names[i];
        p->unused = true;
        p->state = PROCESS_STOPPED;
    }
}

/* The settings that a request may change, and the generation's own copies of their texts. */
struct text_setting {
    const char *key, **value;
    char *own;
    size_t bytes;
};
enum { TEXT_SETTINGS = 6 };

static void list_texts(struct generation *g, struct text_setting out[TEXT_SETTINGS])
{
    const struct text_setting texts[TEXT_SETTINGS] = {
        {"model", &g->settings.model, g->model, sizeof g->model},
        {"predictors", &g->settings.options.predictors, g->predictors, sizeof g->predictors},
        {"ram", &g->settings.options.ram, g->ram, sizeof g->ram},
        {"device", &g->settings.options.device, g->device, sizeof g->device},
        {"kv_cache", &g->settings.options.kv_cache, g->kv_cache, sizeof g->kv_cache},
        {"policy", &g->settings.options.policy, g->policy, sizeof g->policy}};
    memcpy(out, texts, sizeof texts);
}

/* False: it is too long. */
static bool keep_text(const struct text_setting *t, const char *text)
{
    bool fits = strlen(text) < t->bytes;
    if (fits)
        memmove(t->own, text, strlen(text) + 1);
    *t->value = t->own;
    return fits;
}

static const char *read_field(struct generation *g, char *field, bool *stop_first)
{
    struct text_setting texts[TEXT_SETTINGS];
    char *value = strchr(field, '=');
    if (!value)
        return "a field has no value";
    *value++ = '\0';
    list_texts(g, texts);
    for (int i = 0; i < TEXT_SETTINGS; i++)
        if (strcmp(field, texts[i].key) == 0)
            return keep_text(&texts[i], value) ? NULL : "a value is too long";
    if (strcmp(field, "ctx") == 0)
        g->settings.options.ctx = strtoull(value, NULL, 10);
    else if (strcmp(field, "stop_first") == 0)
        *stop_first = strcmp(value, "1") == 0;
    else
        return "a field is unknown";
    return NULL;
}

/* The settings of the generation that serves, but for the fields of the request. */
static const char *read_request(const struct supervisor *s, struct generation *g,
                                const char *request, bool *stop_first)
{
    char copy[SUPERVISE_LINE_BYTES], *rest = copy;
    struct text_setting texts[TEXT_SETTINGS];
    const char *why = NULL;
    g->settings = *s->settings;
    g->settings.options.workers = generation_count_workers(s);
    g->settings.model = g->settings.options.predictors = NULL; /* those of the other model */
    list_texts(g, texts);
    for (int i = 0; i < TEXT_SETTINGS && !why; i++)
        if (*texts[i].value && !keep_text(&texts[i], *texts[i].value))
            why = "an option of `moed up` is too long";
    snprintf(copy, sizeof copy, "%s", request);
    for (char *field; !why && (field = strsep(&rest, "\t"));)
        why = read_field(g, field, stop_first);
    if (!why && (!g->settings.model || g->settings.model[0] != '/'))
        why = "model= must be an absolute path";
    return why;
}

/* The processes of the new generation, as those that serve. */
static void prepare_processes(struct supervisor *s, struct generation *g)
{
    for (int i = 0; i <= LAST_WORKER; i++) {
        const struct process *from = &s->processes[i];
        struct process *p = other(s, i);
        char file[64];
        *p = (struct process){
            .name = from->name, .ends_first = from->ends_first, .runs_setuid = from->runs_setuid};
        memcpy(p->program, from->program, sizeof p->program);
        p->unused = is_worker(i) ? i - WORKER >= (int)g->settings.options.workers : from->unused;
        p->state = p->unused ? PROCESS_STOPPED : PROCESS_WAITING;
        snprintf(file, sizeof file, "%s.log", p->name);
        run_dir_file(g->dir, file, p->log_path);
    }
    supervisor_build_arguments(s, g, other(s, 0), LAST_WORKER + 1);
}

static const char *refusal(const struct supervisor *s)
{
    if (s->stopping)
        return "the deployment is stopping";
    if (!s->model[0])
        return "the deployment has no model of its own: requests load those of its folder";
    if (s->reload.phase == RELOAD_DRAINS)
        return "the last reload has not ended: the model before it finishes its requests";
    return s->reload.phase != RELOAD_NONE ? "a reload is going on" : NULL;
}

void reload_command(struct supervisor *s, const char *request, struct strbuf *answer)
{
    unsigned place = !s->serving;
    struct generation *g = &s->generations[place];
    struct error e = {0};
    bool stop_first = false;
    const char *why = refusal(s);
    if (!why)
        why = read_request(s, g, request, &stop_first);
    if (!why && !run_dir_place(s->run, place, g->dir))
        why = "the path of the runtime directory is too long for a second place in it";
    if (!why && run_dir_create(g->dir, &e))
        why = e.text;
    if (!why && stop_first && run_dir_serve(s->run, place, &e)) /* no new requests */
        why = e.text;
    if (why) {
        strbuf_printf(answer, "error %s\n", why);
        return;
    }
    prepare_processes(s, g);
    s->reload = (struct reload){.phase = stop_first ? RELOAD_MAKES_ROOM : RELOAD_LOADS,
                                .number = s->reload.number + 1,
                                .stop_first = stop_first};
    log_info("reload %u: %s%s", s->reload.number, g->model,
             stop_first ? ", after the model that serves has stopped" : "");
    if (stop_first)
        drain_generation(s, 0);
    strbuf_printf(answer, "reload\tnumber=%u\nok\n", s->reload.number);
}

/* ---- The states ---- */

static void undo(struct supervisor *s, const char *reason)
{
    struct reload *r = &s->reload;
    struct error e = {0};
    r->failed = true;
    r->phase = RELOAD_UNDOES;
    snprintf(r->reason, sizeof r->reason, "%s", reason);
    log_error("reload %u has failed, %s serves%s: %s", r->number, s->model,
              r->stop_first ? " again soon" : " on", r->reason);
    for (int i = 0; i <= LAST_WORKER; i++)
        if (!other(s, i)->pid)
            other(s, i)->state = PROCESS_STOPPED;
    stop_generation(s, OTHER);
    if (r->stop_first && run_dir_serve(s->run, s->serving, &e))
        log_error("%s", e.text);
}

void reload_cancel(struct supervisor *s, struct strbuf *answer)
{
    if (s->reload.phase == RELOAD_LOADS || s->reload.phase == RELOAD_MAKES_ROOM) {
        undo(s, "it was cancelled");
        strbuf_printf(answer, "ok\n");
    } else {
        strbuf_printf(answer, "error no reload is before its switch\n");
    }
}

static void end_undo(struct supervisor *s)
{
    s->reload.phase = RELOAD_NONE;
    if (!s->reload.stop_first)
        return;
    for (int i = 0; i <= LAST_WORKER; i++) {
        struct process *p = &s->processes[i];
        if (p->pid) /* it was draining, and has not ended */
            p->after_stop = PROCESS_WAITING;
        else if (!p->unused && p->state == PROCESS_STOPPED)
            p->state = PROCESS_WAITING;
    }
}

/* The one whose end undoes the reload; NULL: none has ended. */
static struct process *ended(struct supervisor *s)
{
    for (int i = 0; i <= LAST_WORKER; i++)
        if (other(s, i)->state == PROCESS_BACKOFF || other(s, i)->state == PROCESS_FAILED)
            return other(s, i);
    return NULL;
}

/* memd, then cpuexec, then the workers. True: all are ready. */
static bool start_next(struct supervisor *s)
{
    bool all = true;
    for (int i = 0; i <= LAST_WORKER; i++) {
        struct process *p = other(s, i);
        if (p->unused)
            continue;
        if (p->state == PROCESS_WAITING && (all || is_worker(i)))
            process_start(p, s->awake_ns, &s->policy);
        if (p->state != PROCESS_READY)
            all = false;
        if (i < WORKER && !all)
            return false;
    }
    return all;
}

/* From now on the new generation is the one that serves. */
static void switch_over(struct supervisor *s)
{
    struct error e = {0};
    if (run_dir_serve(s->run, !s->serving, &e)) {
        undo(s, e.text);
        return;
    }
    for (int i = 0; i <= LAST_WORKER; i++) {
        struct process old = s->processes[i];
        s->processes[i] = *other(s, i);
        *other(s, i) = old;
        s->processes[i].arguments[0] = s->processes[i].program;
        other(s, i)->arguments[0] = other(s, i)->program;
    }
    s->serving = !s->serving;
    s->settings = &s->generations[s->serving].settings;
    s->model = s->generations[s->serving].model;
    s->freed = false;
    s->reload.phase = RELOAD_DRAINS;
    s->reload.drain_ns = clock_ns() + GRACE_NS;
    log_info("reload %u: %s serves now", s->reload.number, s->model);
}

static void advance_load(struct supervisor *s)
{
    const struct process *p = ended(s);
    if (p) {
        char reason[sizeof s->reload.reason];
        snprintf(reason, sizeof reason, "%s: %s; its log is %s", p->name, p->reason, p->log_path);
        undo(s, reason);
    } else if (start_next(s) && !s->restart_memd) {
        switch_over(s);
    }
}

/* What has ended by itself stays so; without memd the others end, too. */
static void advance_drain(struct supervisor *s)
{
    struct reload *r = &s->reload;
    for (int i = 0; i <= LAST_WORKER; i++)
        if (!other(s, i)->pid)
            other(s, i)->state = PROCESS_STOPPED;
    if (!other(s, MEMD)->pid)
        generation_stop_dependents(s, OTHER, PROCESS_STOPPED, LOST_MEMD_GRACE_NS);
    if (!r->asked && clock_ns() >= r->drain_ns) {
        r->asked = true;
        drain_generation(s, OTHER);
    }
    if (!generation_workers_run(s, OTHER))
        stop_generation(s, OTHER);
    if (reload_runs(s))
        return;
    for (int i = 0; i <= LAST_WORKER; i++)
        other(s, i)->unused = true;
    r->phase = RELOAD_NONE;
    log_info("reload %u: the model before it has stopped", r->number);
}

void reload_advance(struct supervisor *s)
{
    switch (s->reload.phase) {
    case RELOAD_NONE:
        break;
    case RELOAD_MAKES_ROOM:
        if (!generation_workers_run(s, 0))
            stop_generation(s, 0);
        if (!generation_runs(s, 0)) {
            s->reload.phase = RELOAD_LOADS;
            advance_load(s);
        }
        break;
    case RELOAD_LOADS:
        advance_load(s);
        break;
    case RELOAD_UNDOES:
        stop_generation(s, OTHER);
        if (!reload_runs(s))
            end_undo(s);
        break;
    case RELOAD_DRAINS:
        advance_drain(s);
        break;
    }
}

uint64_t reload_deadline(const struct supervisor *s)
{
    const struct reload *r = &s->reload;
    return r->phase == RELOAD_DRAINS && !r->asked ? r->drain_ns : UINT64_MAX;
}

static const char *phase_name(const struct reload *r)
{
    switch (r->phase) {
    case RELOAD_NONE:
        return r->failed ? "failed" : "done";
    case RELOAD_MAKES_ROOM:
        return "making-room";
    case RELOAD_LOADS:
        return "loading";
    case RELOAD_UNDOES:
        return "undoing";
    case RELOAD_DRAINS:
        break;
    }
    return "draining";
}

void reload_status(const struct supervisor *s, struct strbuf *answer)
{
    const struct reload *r = &s->reload;
    bool is_over = r->phase == RELOAD_DRAINS || (r->phase == RELOAD_NONE && !r->failed);
    if (!r->number)
        return;
    strbuf_printf(answer, "reload\tnumber=%u\tstate=%s\tmodel=%s\treason=%s\n", r->number,
                  phase_name(r), is_over ? s->model : s->generations[!s->serving].model, r->reason);
    for (int i = 0; i <= LAST_WORKER; i++) {
        const struct process *p = &s->processes[OTHER + i];
        if (!p->unused && r->phase != RELOAD_NONE)
            strbuf_printf(answer, "other\tname=%s\tstate=%s\tpid=%d\tstatus=%s\treason=%s\n",
                          p->name, process_state_name(p->state), (int)p->pid, p->status, p->reason);
    }
}
