/* moed ps: every process of every deployment of this user. A row joins the supervisor's status
 * (state, restarts) with the process's own health report (memory, requests, speed). */
#include "base/quantity.h"
#include "client/cli/ask.h"
#include "client/cli/commands.h"
#include "client/cli/deployment.h"
#include "client/cli/fold.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct row {
    const char *deployment, *run, *process, *state, *status, *reason;
    pid_t pid;
    uint64_t uptime_ms, restarts;
    bool supervised;
    char model[256];
    const Moed__V1__HealthReply *health; /* NULL: it did not answer */
};

struct listing {
    const char *only;   /* NULL: all */
    bool json, stopped; /* stopped ones too */
    unsigned rows;
    struct strbuf out, notes;
    /* of the current deployment, where its device has memory of its own */
    bool has_memd_cache;
    Moed__V1__CacheHealth memd_cache; /* its strings are freed */
    char model[256], model_name[256]; /* the file's, and the name in it */
    struct strbuf device;             /* its line; empty: none */
    struct workers_health workers;    /* of the current deployment */
    /* of the current deployment, where not all experts are in host memory */
    bool has_memd_tier;
    Moed__V1__TierHealth memd_tier;
};

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void text_or_null(struct strbuf *b, const char *key, const char *value)
{
    strbuf_printf(b, ", \"%s\": ", key);
    if (value && *value)
        strbuf_json_string(b, value, strlen(value));
    else
        strbuf_printf(b, "null");
}

/* "KEY": part / whole; nothing where whole is 0. */
static void share_json(struct strbuf *b, const char *key, uint64_t part, uint64_t whole)
{
    if (whole)
        strbuf_printf(b, ", \"%s\": %.4f", key, (double)part / (double)whole);
}

/* "KEY": mean seconds of n; nothing where n is 0. */
static void each_json(struct strbuf *b, const char *key, uint64_t ns, uint64_t n)
{
    if (n)
        strbuf_printf(b, ", \"%s\": %.9f", key, (double)ns * 1e-9 / (double)n);
}

static void cache_json(struct strbuf *b, const Moed__V1__CacheHealth *c)
{
    strbuf_printf(b, ", \"cache\": {\"window_s\": %.3f", (double)c->window_ns * 1e-9);
    if (c->slots) { /* memd */
        strbuf_printf(b, ", \"slots\": %llu, \"resident\": %llu", (unsigned long long)c->slots,
                      (unsigned long long)c->resident);
        share_json(b, "link_gb_per_s", c->link_bytes, c->window_ns);
        share_json(b, "link_busy_share", c->link_busy_ns, c->window_ns);
        share_json(b, "wasted_share", c->wasted_bytes, c->link_bytes);
    }
    share_json(b, "hit_rate", c->segments_resident, c->segments);
    if (c->predictor && c->predictor[0])
        strbuf_printf(b, ", \"predictor\": \"%s\"", c->predictor);
    share_json(b, "prediction_precision", c->predictions_right, c->predictions);
    if (!c->slots) { /* the worker */
        share_json(b, "device_busy_share", c->device_busy_ns, c->window_ns);
        share_json(b, "cpu_busy_share", c->cpu_busy_ns, c->window_ns);
    }
    each_json(b, "layer_s", c->layer_ns, c->layers);
    each_json(b, "layer_predicted_s", c->layer_predicted_ns, c->layers);
    each_json(b, "plan_s", c->plan_ns, c->plans);
    strbuf_printf(b, "}");
}

static void device_json(struct strbuf *b, const Moed__V1__DeviceMemory *m)
{
    strbuf_printf(b,
                  ", \"device_memory\": {\"dense_bytes\": %llu, \"expert_bytes\": %llu, "
                  "\"kv_bytes\": %llu, \"scratch_bytes\": %llu}",
                  (unsigned long long)m->dense_bytes, (unsigned long long)m->expert_bytes,
                  (unsigned long long)m->kv_bytes, (unsigned long long)m->scratch_bytes);
}

static void tier_json(struct strbuf *b, const Moed__V1__TierHealth *t)
{
    strbuf_printf(b, ", \"tier\": {\"window_s\": %.3f", (double)t->window_ns * 1e-9);
    if (t->experts) { /* memd */
        strbuf_printf(b, ", \"experts\": %llu, \"in_memory\": %llu", (unsigned long long)t->experts,
                      (unsigned long long)t->in_memory);
        share_json(b, "disk_gb_per_s", t->read_bytes, t->window_ns);
    }
    share_json(b, "hit_rate", t->found, t->activated);
    share_json(b, "decode_disk_wait_share", t->decode_wait_ns, t->decode_ns);
    strbuf_printf(b, "}");
}

static void row_json(struct listing *l, const struct row *r)
{
    struct strbuf *b = &l->out;
    const Moed__V1__HealthReply *h = r->health;
    strbuf_printf(b, "%s\n  {\"name\": ", l->rows ? "," : "");
    strbuf_json_string(b, r->deployment, strlen(r->deployment));
    text_or_null(b, "process", r->process);
    strbuf_printf(b, ", \"pid\": %d", (int)r->pid);
    text_or_null(b, "state", r->state);
    strbuf_printf(b, ", \"uptime_s\": %.3f", (double)r->uptime_ms * 1e-3);
    if (r->supervised)
        strbuf_printf(b, ", \"restarts\": %llu", (unsigned long long)r->restarts);
    text_or_null(b, "status", h ? h->state : r->status);
    text_or_null(b, "reason", r->reason);
    text_or_null(b, "model", r->model);
    text_or_null(b, "run", r->run);
    strbuf_printf(b, ", \"answers\": %s", h ? "true" : "false");
    if (h)
        strbuf_printf(b,
                      ", \"ready\": %s, \"memory_bytes\": %llu, \"requests_running\": %u, "
                      "\"requests_waiting\": %u, \"tokens_per_s\": %.3f, \"tokens_total\": %llu, "
                      "\"drafted_total\": %llu, \"accepted_total\": %llu, "
                      "\"experts_total\": %llu, \"clients\": %u",
                      h->ready ? "true" : "false", (unsigned long long)h->memory_bytes,
                      h->requests_running, h->requests_waiting, h->tokens_per_s,
                      (unsigned long long)h->tokens_total, (unsigned long long)h->drafted_total,
                      (unsigned long long)h->accepted_total, (unsigned long long)h->experts_total,
                      h->clients);
    if (h && h->drafts_unused[0])
        text_or_null(b, "drafts_unused", h->drafts_unused);
    if (h && h->cache)
        cache_json(b, h->cache);
    if (h && h->tier)
        tier_json(b, h->tier);
    if (h && h->device_memory)
        device_json(b, h->device_memory);
    strbuf_printf(b, "}");
}

#define ROW_FORMAT "%-10s %-9s %7s %-8s %6s %8s %8s %8s %8s\n"

static void row_text(struct listing *l, const struct row *r)
{
    const Moed__V1__HealthReply *h = r->health;
    bool is_worker = supervise_is_worker(r->process);
    char pid[16] = "-", uptime[24] = "-", restarts[24] = "-", memory[24] = "-", requests[32] = "-",
         speed[32] = "-";
    if (r->pid)
        snprintf(pid, sizeof pid, "%d", (int)r->pid);
    if (r->pid)
        deployment_format_uptime(r->uptime_ms, uptime);
    if (r->supervised)
        snprintf(restarts, sizeof restarts, "%llu", (unsigned long long)r->restarts);
    if (h)
        quantity_format_bytes(h->memory_bytes, memory);
    if (h && is_worker) {
        snprintf(requests, sizeof requests, "%u+%u", h->requests_running, h->requests_waiting);
        snprintf(speed, sizeof speed, "%.1f", h->tokens_per_s);
    }
    strbuf_printf(&l->out, ROW_FORMAT, r->deployment, r->process, pid, r->state, uptime, restarts,
                  memory, requests, speed);
    if (r->model[0] && !l->model[0])
        snprintf(l->model, sizeof l->model, "%s", r->model);
    else if (strcmp(r->model, l->model) != 0)
        snprintf(l->model_name, sizeof l->model_name, "%s", r->model);
}

static void share_text(struct strbuf *b, const char *before, uint64_t part, uint64_t whole,
                       const char *after)
{
    if (whole)
        strbuf_printf(b, "%s%.1f %%%s", before, 100.0 * (double)part / (double)whole, after);
}

/* A line for the expert cache. It omits values with no events in the last seconds. */
static void cache_text(struct listing *l, const char *name)
{
    const Moed__V1__CacheHealth *m = &l->memd_cache, *w = &l->workers.cache;
    struct strbuf *b = &l->out;
    if (!l->has_memd_cache)
        return;
    char predictions[64];
    snprintf(predictions, sizeof predictions, ", predictions (%s) ", l->workers.predictor);
    strbuf_printf(b, "%-10s cache: ", name);
    if (l->workers.has_cache)
        share_text(b, "hit rate ", w->segments_resident, w->segments, ", ");
    share_text(b, "", m->resident, m->slots, " filled");
    if (m->window_ns)
        strbuf_printf(b, ", link %.2f GB/s", (double)m->link_bytes / (double)m->window_ns);
    share_text(b, ", busy ", m->link_busy_ns, m->window_ns, "");
    if (l->workers.has_cache)
        share_text(b, predictions, w->predictions_right, w->predictions, " right");
    share_text(b, ", ", m->wasted_bytes, m->link_bytes, " of the copied bytes unused");
    strbuf_printf(b, "\n");
}

/* A line for the MoE layers; none where no layer was computed in the last seconds. */
static void layers_text(struct listing *l, const char *name)
{
    const Moed__V1__CacheHealth *w = &l->workers.cache;
    struct strbuf *b = &l->out;
    if (!l->workers.has_cache || !w->layers)
        return;
    double n = (double)w->layers;
    strbuf_printf(b, "%-10s layers: %.3f ms each, predicted %.3f ms", name,
                  (double)w->layer_ns * 1e-6 / n, (double)w->layer_predicted_ns * 1e-6 / n);
    if (w->plans)
        strbuf_printf(b, ", planned in %.4f ms", (double)w->plan_ns * 1e-6 / (double)w->plans);
    share_text(b, ", device busy ", w->device_busy_ns, w->window_ns, "");
    share_text(b, ", CPU busy ", w->cpu_busy_ns, w->window_ns, "");
    strbuf_printf(b, "\n");
}

static void model_text(struct listing *l, const char *name)
{
    if (l->model[0])
        strbuf_printf(&l->out, "%-10s model: %s%s%s%s\n", name, l->model,
                      l->model_name[0] ? " (" : "", l->model_name, l->model_name[0] ? ")" : "");
}

static void device_text(struct listing *l, const char *name)
{
    if (l->device.len)
        strbuf_printf(&l->out, "%-10s device: %s\n", name, l->device.data);
}

/* A line for the host tier. */
static void tier_text(struct listing *l, const char *name)
{
    const Moed__V1__TierHealth *m = &l->memd_tier, *w = &l->workers.tier;
    struct strbuf *b = &l->out;
    if (!l->has_memd_tier)
        return;
    strbuf_printf(b, "%-10s memory: ", name);
    share_text(b, "", m->in_memory, m->experts, " of the experts");
    if (l->workers.has_tier)
        share_text(b, ", hit rate ", w->found, w->activated, "");
    if (m->window_ns)
        strbuf_printf(b, ", disk %.2f GB/s", (double)m->read_bytes / (double)m->window_ns);
    if (l->workers.has_tier)
        share_text(b, ", ", w->decode_wait_ns, w->decode_ns, " of decode time waiting for it");
    strbuf_printf(b, "\n");
}

/* A line for drafts of tokens; none where there were none, but could be. */
static void drafts_text(struct listing *l, const char *name)
{
    if (l->workers.drafted)
        strbuf_printf(&l->out,
                      "%-10s drafts: %llu tokens computed since the start, %.1f %% accepted\n",
                      name, (unsigned long long)l->workers.drafted,
                      100.0 * (double)l->workers.accepted / (double)l->workers.drafted);
    else if (l->workers.drafts_unused[0])
        strbuf_printf(&l->out, "%-10s drafts: none, because %s\n", name, l->workers.drafts_unused);
}

static void keep_tier(struct listing *l, const struct row *r)
{
    const Moed__V1__TierHealth *tier = r->health ? r->health->tier : NULL;
    if (tier && strcmp(r->process, "memd") == 0) {
        l->has_memd_tier = true;
        l->memd_tier = *tier;
    }
}

/* The keep_* functions copy from a reply, which is freed before the lines are written. */
static void keep_device(struct listing *l, const struct row *r)
{
    if (r->health && r->health->device_memory)
        deployment_device_text(r->health->device_memory, "dense weights", &l->device);
}

static void keep_cache(struct listing *l, const struct row *r)
{
    const Moed__V1__CacheHealth *cache = r->health ? r->health->cache : NULL;
    if (cache && strcmp(r->process, "memd") == 0) {
        l->has_memd_cache = true;
        l->memd_cache = *cache;
    }
}

static void add_row(struct listing *l, struct row *r)
{
    if (l->json)
        row_json(l, r);
    else
        row_text(l, r);
    l->rows++;
}

/* Asks the process for its health and adds its row. Where no supervisor gave its state, the health
 * report does. */
static void add_process(struct listing *l, struct row *r)
{
    Moed__V1__Reply *reply = NULL;
    struct error e = {0};
    if (r->pid && deployment_health(r->run, r->process, &reply, &e) == ERROR_OK) {
        r->health = reply->health;
        if (r->health->model[0])
            snprintf(r->model, sizeof r->model, "%s", r->health->model);
        if (!r->supervised) {
            r->state = r->health->ready ? "ready" : "starting";
            r->uptime_ms = r->health->uptime_ms;
        }
    } else if (r->pid && strcmp(r->state, "ready") == 0) {
        r->state = "silent"; /* it runs but does not answer */
        if (!r->reason || !*r->reason)
            r->reason = e.text;
    }
    keep_device(l, r);
    keep_cache(l, r);
    keep_tier(l, r);
    if (r->health && supervise_is_worker(r->process))
        workers_health_add(&l->workers, r->health);
    add_row(l, r);
    if (reply)
        moed__v1__reply__free_unpacked(reply, NULL);
}

/* A reload that goes on, or whose failure nobody may have seen. */
static void reload_text(struct listing *l, const char *name, const struct deployment_status *s)
{
    const char *state = s->reload.state;
    if (!s->reload.number || strcmp(state, "done") == 0)
        return;
    if (strcmp(state, "draining") == 0)
        strbuf_printf(&l->notes, "%s: the model before finishes its requests\n", name);
    else
        strbuf_printf(&l->notes, "%s: reload of %s: %s%s%s\n", name, file_name(s->reload.model),
                      state, s->reload.reason[0] ? ": " : "", s->reload.reason);
}

static void list_supervised(struct listing *l, const char *name, const char *run,
                            const struct deployment_status *s)
{
    struct row supervisor = {.deployment = name,
                             .run = run,
                             .process = "supervise",
                             .state = s->state,
                             .status = "",
                             .reason = s->reason,
                             .pid = s->pid,
                             .uptime_ms = s->uptime_ms};
    snprintf(supervisor.model, sizeof supervisor.model, "%.255s", file_name(s->model));
    add_row(l, &supervisor);
    for (unsigned i = 0; i < s->n_processes; i++) {
        const struct deployment_process *p = &s->processes[i];
        struct row r = {.deployment = name,
                        .run = run,
                        .process = p->name,
                        .state = p->state,
                        .status = p->status,
                        .reason = p->reason,
                        .pid = p->pid,
                        .uptime_ms = p->uptime_ms,
                        .restarts = p->restarts,
                        .supervised = true};
        memcpy(r.model, supervisor.model, sizeof r.model);
        add_process(l, &r);
    }
    if (s->reason[0])
        strbuf_printf(&l->notes, "%s: %s (logs: %s)\n", name, s->reason, run);
    reload_text(l, name, s);
}

/* A deployment that systemd or a person runs, or what a killed supervisor left. */
static void list_unsupervised(struct listing *l, const char *name, const char *run)
{
    unsigned rows = l->rows;
    bool dead = deployment_has_leftovers(run);
    pid_t supervisor = run_dir_find_holder(run, "supervise");
    if (dead || supervisor) {
        struct row r = {.deployment = name,
                        .run = run,
                        .process = "supervise",
                        .state = dead ? "dead" : "silent",
                        .pid = supervisor};
        add_row(l, &r);
    }
    pid_t pids[SUPERVISE_PROCESSES];
    run_dir_find_holders(run, supervise_process_names, SUPERVISE_PROCESSES, pids);
    for (int i = 0; i < SUPERVISE_PROCESSES; i++) {
        struct row r = {.deployment = name,
                        .run = run,
                        .process = supervise_process_names[i],
                        .state = "silent",
                        .pid = pids[i]};
        if (r.pid)
            add_process(l, &r);
    }
    if (l->rows == rows && l->stopped)
        add_row(l, &(struct row){
                       .deployment = name, .run = run, .process = "supervise", .state = "stopped"});
    if (dead)
        strbuf_printf(&l->notes,
                      "%s: its supervisor has died; `moed down %s` clears what is left, `moed up` "
                      "starts it anew\n",
                      name, name);
}

static void visit(void *arg, const char *name, const char *run)
{
    struct listing *l = arg;
    static struct deployment_status status; /* large */
    if (l->only && strcmp(l->only, name) != 0)
        return;
    strbuf_clear(&l->device);
    l->model[0] = l->model_name[0] = '\0';
    l->has_memd_cache = false;
    l->has_memd_tier = false;
    l->workers = (struct workers_health){0};
    if (deployment_status(run, &status, NULL) == ERROR_OK)
        list_supervised(l, name, run, &status);
    else
        list_unsupervised(l, name, run);
    if (l->json)
        return;
    model_text(l, name);
    device_text(l, name);
    cache_text(l, name);
    layers_text(l, name);
    tier_text(l, name);
    drafts_text(l, name);
}

static void visit_elsewhere(void *arg, const char *name, const char *run)
{
    struct listing *l = arg;
    unsigned rows = l->rows;
    visit(arg, name, run);
    if (l->rows > rows)
        strbuf_printf(&l->notes, "%s: started with --run; select it with MOED_RUN=%s\n", name, run);
}

static int print_listing(struct listing *l)
{
    if (l->out.failed || l->notes.failed) {
        cli_complain("ps: no memory for the list");
        return CLI_FAILURE;
    }
    if (l->json) {
        printf("[%s%s]\n", l->out.data ? l->out.data : "", l->rows ? "\n" : "");
    } else if (l->rows) {
        fold_printf(ROW_FORMAT, "NAME", "PROCESS", "PID", "STATE", "UPTIME", "RESTARTS", "MEMORY",
                    "REQUESTS", "TOKENS/S");
        fold_print(l->out.data);
    } else {
        printf("no deployment is running; start one with `moed up MODEL.gguf`\n");
    }
    if (!ask_flush())
        return CLI_FAILURE;
    if (l->notes.data)
        fprintf(stderr, "%s", l->notes.data);
    return l->only && !l->rows ? CLI_NOT_RUNNING : CLI_OK;
}

int ps_main(int argc, char **argv)
{
    struct listing l = {0};
    const struct option_spec table[] = {
        {"name", OPTION_STRING, &l.only, 0, 0, "NAME", "list only this deployment"},
        {"a", OPTION_BOOL, &l.stopped, 0, 0, NULL, "list stopped deployments too"},
        {"json", OPTION_BOOL, &l.json, 0, 0, NULL, "print a JSON array, one object a process"},
        {0},
    };
    int n, exit_code;
    if (!ask_arguments(
            table, "ps", "[-a] [--json] [--name NAME]",
            "Lists the processes of your deployments. REQUESTS: running+waiting. MEMORY:\n"
            "resident, with what is shared: every process that read memd's model counts it.\n"
            "\"cache\", \"layers\", \"memory\": the last 5 seconds. \"device\": use of its memory.",
            argc, argv, 0, 0, &n, &exit_code))
        return exit_code;
    char run[RUN_DIR_BYTES];
    if (l.only && !deployment_path(l.only, run))
        return CLI_USAGE;
    strbuf_init(&l.out);
    strbuf_init(&l.notes);
    strbuf_init(&l.device);
    struct error e = {0};
    if (run_dir_list(visit, &l, &e)) {
        cli_complain("ps: %s", e.text);
        exit_code = CLI_FAILURE;
    } else {
        if (!getenv("MOED_RUN"))
            deployment_list_elsewhere(visit_elsewhere, &l);
        exit_code = print_listing(&l);
    }
    strbuf_fini(&l.out);
    strbuf_fini(&l.notes);
    strbuf_fini(&l.device);
    return exit_code;
}
