/* Samples; see sample.h. */
#include "client/cli/top/sample.h"

#include "base/clock.h"
#include "client/cli/deployment.h"
#include "daemon/control.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ASK_TIMEOUT_MS 500

/* ---- Metrics ---- */

/* Asks one process for its metrics. The caller frees the text. NULL: it does not answer. */
static char *metrics_of(const char *run, const char *process)
{
    Moed__V1__Reply *reply;
    if (control_metrics(run, process, ASK_TIMEOUT_MS, &reply, NULL))
        return NULL;
    char *text = strdup(reply->metrics->prometheus_text);
    moed__v1__reply__free_unpacked(reply, NULL);
    return text;
}

/* The sum of a family's samples whose labels contain `label` ("": all); NaN: there are none. */
static double metric_sum(const char *text, const char *name, const char *label)
{
    size_t len = strlen(name);
    double sum = NAN;
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, len) != 0 || (line[len] != ' ' && line[len] != '{'))
            continue;
        const char *end = strchrnul(line, '\n');
        const char *value = memrchr(line, ' ', (size_t)(end - line));
        if (*label && !memmem(line, (size_t)(value - line), label, strlen(label)))
            continue;
        sum = (isnan(sum) ? 0 : sum) + strtod(value, NULL);
    }
    return sum;
}

/* To a sum of the workers; NaN: none was measured. */
static void add(double *sum, double value)
{
    if (!isnan(value))
        *sum = (isnan(*sum) ? 0 : *sum) + value;
}

static void read_metrics(struct sample *s, struct sample_process *p)
{
    char *text = metrics_of(s->run, p->name);
    if (!text)
        return;
    p->cpu_s = metric_sum(text, "process_cpu_seconds_total", "");
    if (supervise_is_worker(p->name)) {
        add(&s->requests_ended, metric_sum(text, "moed_worker_requests_total", ""));
        add(&s->generated_tokens, metric_sum(text, "moed_worker_generated_tokens_total", ""));
        add(&s->prompt_tokens, metric_sum(text, "moed_worker_prompt_tokens_total", ""));
        add(&s->cached_tokens, metric_sum(text, "moed_worker_cached_prompt_tokens_total", ""));
    } else if (strcmp(p->name, "memd") == 0) {
        s->kv_used_bytes = metric_sum(text, "moed_memd_kv_bytes", "state=\"used\"");
        s->kv_free_bytes = metric_sum(text, "moed_memd_kv_bytes", "state=\"free\"");
        s->kv_tokens = metric_sum(text, "moed_memd_kv_tokens", "");
    }
    free(text);
}

/* ---- Health ---- */

static double share(uint64_t part, uint64_t whole)
{
    return whole ? (double)part / (double)whole : NAN;
}

static void read_cache(struct sample *s, const Moed__V1__CacheHealth *c)
{
    s->slots = (double)c->slots;
    s->resident = (double)c->resident;
    s->devices = c->devices ? (double)c->devices : 1;
    s->link_bytes_per_s = share(c->link_bytes, c->window_ns) * 1e9;
    s->link_busy = share(c->link_busy_ns, c->window_ns);
}

/* memd's. */
static void read_tier(struct sample *s, const Moed__V1__TierHealth *t)
{
    s->experts = (double)t->experts;
    s->host_experts = (double)t->in_memory;
    s->disk_bytes_per_s = share(t->read_bytes, t->window_ns) * 1e9;
}

static void read_device_memory(struct sample *s, const Moed__V1__DeviceMemory *m)
{
    s->device_memory = *m;
    s->device_memory.device = NULL; /* the reply's */
    s->has_device_memory = true;
}

/* What the workers have reported, together. */
static void read_workers(struct sample *s, const struct workers_health *w)
{
    if (!w->n)
        return;
    s->requests_running = (double)w->running;
    s->requests_waiting = (double)w->waiting;
    s->clients = (double)w->clients;
    s->tokens_per_s = w->tokens_per_s;
    if (w->has_tier) {
        s->memory_hit_rate = share(w->tier.found, w->tier.activated);
        s->disk_wait = share(w->tier.decode_wait_ns, w->tier.decode_ns);
    }
    if (!w->has_cache)
        return;
    s->hit_rate = share(w->cache.segments_resident, w->cache.segments);
    s->precision = share(w->cache.predictions_right, w->cache.predictions);
    s->device_busy = share(w->cache.device_busy_ns, w->cache.window_ns);
    s->cpu_busy = share(w->cache.cpu_busy_ns, w->cache.window_ns);
}

static void read_health(struct sample *s, struct sample_process *p, const Moed__V1__HealthReply *h)
{
    p->memory_bytes = (double)h->memory_bytes;
    if (h->model[0] && !s->model[0])
        snprintf(s->model, sizeof s->model, "%s", h->model);
    if (h->cache && h->cache->slots) /* memd's */
        read_cache(s, h->cache);
    if (h->tier && h->tier->experts)
        read_tier(s, h->tier);
    if (h->device_memory)
        read_device_memory(s, h->device_memory);
    if (supervise_is_worker(p->name)) {
        workers_health_add(&s->workers, h);
        read_workers(s, &s->workers);
    }
}

static void read_process(struct sample *s, struct sample_process *p, bool supervised)
{
    Moed__V1__Reply *reply;
    if (!p->pid)
        return;
    if (deployment_health(s->run, p->name, &reply, NULL)) {
        if (!supervised || strcmp(p->state, "ready") == 0)
            snprintf(p->state, sizeof p->state, "silent");
        return;
    }
    if (!supervised) {
        snprintf(p->state, sizeof p->state, "%s", reply->health->ready ? "ready" : "starting");
        p->uptime_ms = reply->health->uptime_ms;
    }
    read_health(s, p, reply->health);
    moed__v1__reply__free_unpacked(reply, NULL);
    read_metrics(s, p);
}

/* ---- The processes ---- */

static struct sample_process *add_process(struct sample *s, const char *name, const char *state,
                                          pid_t pid)
{
    struct sample_process *p = &s->processes[s->n_processes++];
    *p = (struct sample_process){.pid = pid, .restarts = NAN, .memory_bytes = NAN, .cpu_s = NAN};
    snprintf(p->name, sizeof p->name, "%.31s", name);
    snprintf(p->state, sizeof p->state, "%.31s", state);
    return p;
}

static void list_supervised(struct sample *s, const struct deployment_status *status)
{
    snprintf(s->state, sizeof s->state, "%s", status->state);
    for (unsigned i = 0; i < status->n_processes; i++) {
        const struct deployment_process *from = &status->processes[i];
        struct sample_process *p = add_process(s, from->name, from->state, from->pid);
        p->uptime_ms = from->uptime_ms;
        p->restarts = (double)from->restarts;
        read_process(s, p, true);
    }
}

/* systemd or a person runs the processes. */
static void list_unsupervised(struct sample *s)
{
    pid_t pids[SUPERVISE_PROCESSES];
    run_dir_find_holders(s->run, supervise_process_names, SUPERVISE_PROCESSES, pids);
    for (int i = 0; i < SUPERVISE_PROCESSES; i++)
        if (pids[i])
            read_process(s, add_process(s, supervise_process_names[i], "silent", pids[i]), false);
}

/* ---- The model's experts ---- */

/* Counts the experts and segments in one reply of memd's map, of `total` entries. False: there are
 * no more, or memd does not answer. */
static bool count_some(struct sample *s, uint32_t *first, uint32_t *total)
{
    Moed__V1__MemoryMapRequest map = MOED__V1__MEMORY_MAP_REQUEST__INIT;
    Moed__V1__Request request = MOED__V1__REQUEST__INIT;
    Moed__V1__Reply *reply;
    map.first = *first;
    request.body_case = MOED__V1__REQUEST__BODY_MEMORY_MAP;
    request.memory_map = &map;
    if (control_call(s->run, "memd", &request, MOED__V1__REPLY__BODY_MEMORY_MAP, ASK_TIMEOUT_MS,
                     &reply, NULL))
        return false;
    const Moed__V1__MemoryMapReply *got = reply->memory_map;
    for (size_t i = 0; i < got->n_entries; i++) {
        s->experts += got->entries[i]->experts;
        s->segments += (double)got->entries[i]->experts * got->entries[i]->segments;
    }
    *first += (uint32_t)got->n_entries;
    *total = got->total;
    bool more = got->n_entries && *first < got->total;
    moed__v1__reply__free_unpacked(reply, NULL);
    return more;
}

/* The model of a deployment does not change while memd lives, so it is counted once. */
static void count_experts(struct sample *s)
{
    static struct {
        char run[RUN_DIR_BYTES];
        pid_t memd;
        double experts, segments;
    } counted;
    uint32_t first = 0, total = 1;
    pid_t memd = run_dir_holder(s->run, "memd");
    if (memd && counted.memd == memd && strcmp(counted.run, s->run) == 0) {
        s->experts = counted.experts;
        s->segments = counted.segments;
        return;
    }
    s->experts = s->segments = 0;
    while (count_some(s, &first, &total))
        ;
    if (first < total) {
        s->experts = s->segments = NAN;
        return;
    }
    memcpy(counted.run, s->run, sizeof counted.run);
    counted.memd = memd;
    counted.experts = s->experts;
    counted.segments = s->segments;
}

/* ---- From outside ---- */

static void set_unmeasured(struct sample *s)
{
    double *values[] = {&s->requests_running, &s->requests_waiting, &s->clients,
                        &s->tokens_per_s,     &s->requests_ended,   &s->generated_tokens,
                        &s->prompt_tokens,    &s->cached_tokens,    &s->hit_rate,
                        &s->link_bytes_per_s, &s->link_busy,        &s->device_busy,
                        &s->cpu_busy,         &s->precision,        &s->kv_used_bytes,
                        &s->kv_free_bytes,    &s->kv_tokens,        &s->slots,
                        &s->resident,         &s->host_experts,     &s->memory_hit_rate,
                        &s->disk_bytes_per_s, &s->disk_wait};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        *values[i] = NAN;
}

bool sample_take(struct sample *s, const char *name, const char *run)
{
    static struct deployment_status status; /* large */
    memset(s, 0, sizeof *s);
    snprintf(s->name, sizeof s->name, "%.63s", name);
    snprintf(s->run, sizeof s->run, "%s", run);
    set_unmeasured(s);
    s->at_s = clock_s();
    bool supervised = deployment_status(run, &status, NULL) == ERROR_OK;
    if (!supervised && !deployment_has_processes(run))
        return false;
    count_experts(s);
    if (supervised)
        list_supervised(s, &status);
    else
        list_unsupervised(s);
    return true;
}

struct sample_places sample_places(const struct sample *s)
{
    struct sample_places p = {.device = NAN, .host = 1, .file = 0};
    if (s->segments > 0 && !isnan(s->resident))
        p.device = s->resident / (s->segments * s->devices);
    if (s->experts > 0 && !isnan(s->host_experts)) {
        p.host = s->host_experts / s->experts;
        p.file = 1 - p.host;
    }
    if (!(s->experts > 0))
        p.host = p.file = NAN;
    return p;
}

double sample_rate(double before, double after, double seconds)
{
    return after >= before && seconds > 0 ? (after - before) / seconds : NAN;
}
