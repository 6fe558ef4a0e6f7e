/* What moed-models' main thread does; see models.h: it looks at the deployments, lets decide.h
 * choose, and runs `moed up` or `moed down`. */
#include "deploy/models/models_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/machine_memory.h"
#include "daemon/control.h"
#include "daemon/kv_promises.h"
#include "daemon/supervisor_client.h"
#include "daemon/supervisor_protocol.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_NS        1000000000ull
#define TURN_MS        250  /* while something is up, wanted or moving */
#define IDLE_TURN_MS   1000 /* a deployment may be started by a person */
#define ASK_TIMEOUT_MS 500
#define END_MS         2000 /* for `moed up`, when what it has started is stopped */

/* ---- Looking at the deployments ---- */

/* What one look has found out; without the lock. */
struct look {
    char deployment[CATALOGUE_NAME_BYTES];
    bool runs, broken, on_gpu;
    bool answers; /* one of its workers is ready */
    bool silent;  /* one that runs did not answer in time */
    /* of all its workers */
    uint64_t requests; /* that run and wait */
    uint64_t tokens;
    uint64_t kv_bytes;
    char reason[400];
};

static void ask_worker(const char *run, const char *worker, struct look *l)
{
    Moed__V1__Reply *reply;
    enum error_code code = control_health(run, worker, ASK_TIMEOUT_MS, &reply, NULL);
    l->silent = l->silent || code == ERROR_TIMEOUT;
    if (code)
        return;
    l->answers = l->answers || reply->health->ready;
    l->requests += reply->health->requests_running + reply->health->requests_waiting;
    l->tokens += reply->health->tokens_total;
    moed__v1__reply__free_unpacked(reply, NULL);
}

static void ask_workers(const char *run, struct look *l)
{
    for (unsigned i = 1; i <= SUPERVISE_WORKERS; i++)
        if (run_dir_holder(run, supervise_worker_name(i)))
            ask_worker(run, supervise_worker_name(i), l);
}

/* Whether memd has memory of a GPU: its device stands in the supervisor's answer no more than in
 * its health, so its device memory tells. */
static void ask_memd(const char *run, struct look *l)
{
    Moed__V1__Reply *reply;
    if (control_health(run, "memd", ASK_TIMEOUT_MS, &reply, NULL))
        return;
    l->on_gpu = reply->health->device_memory != NULL;
    l->kv_bytes = reply->health->kv_bytes;
    moed__v1__reply__free_unpacked(reply, NULL);
}

/* Also where it has not become ready for a while: for another model there may be device memory. */
static bool has_given_up(const char *run, struct look *l)
{
    enum supervisor_state state =
        supervisor_state_get(run, ASK_TIMEOUT_MS, l->reason, sizeof l->reason);
    return state == SUPERVISOR_GAVE_UP || state == SUPERVISOR_STARTS_FAIL;
}

static void look_at(struct look *l)
{
    char run[RUN_DIR_BYTES];
    if (run_dir_path(l->deployment, run, NULL))
        return;
    l->runs = run_dir_holder(run, "supervise") || run_dir_holder(run, "memd");
    if (!l->runs)
        return;
    ask_workers(run, l);
    if (l->answers)
        ask_memd(run, l);
    else
        l->broken = has_given_up(run, l);
}

/* Under the lock. */
static void take_look(struct models *m, const struct look *l)
{
    struct model *x = models_of_deployment(m, l->deployment);
    if (!x || x == m->moving)
        return;
    struct model_facts *f = &x->facts;
    if (!l->runs && f->state == MODEL_UP) {
        log_info("%s has been stopped", x->deployment);
        f->state = MODEL_OFF;
        f->own = f->busy = f->broken = f->drop = false;
        f->kv_bytes = 0;
        models_save_started(m);
    } else if (l->runs && (f->state == MODEL_OFF || f->state == MODEL_FAILED) && l->answers) {
        f->state = MODEL_UP; /* a person started it */
        f->own = false;
        f->waits_ns = 0;
    }
    if (f->state != MODEL_UP)
        return;
    if (l->broken && !f->broken && f->own)
        log_warn("%s has failed: %s", x->deployment, l->reason);
    if (l->broken)
        snprintf(x->reason, sizeof x->reason, "%s", l->reason);
    f->broken = l->broken;
    f->on_gpu = l->on_gpu;
    if (l->kv_bytes)
        f->kv_bytes = l->kv_bytes;
    /* a worker that does not answer is not known to be idle */
    f->busy = l->requests > 0 || l->silent || (!l->answers && !l->broken);
    if (f->busy || l->tokens != x->tokens_total)
        f->used_ns = clock_ns();
    x->tokens_total = l->tokens;
}

static void look_at_all(struct models *m)
{
    pthread_mutex_lock(&m->lock);
    size_t count = m->count;
    struct look *looks = calloc(count + 1, sizeof *looks);
    for (size_t i = 0; looks && i < count; i++)
        memcpy(looks[i].deployment, m->items[i]->deployment, sizeof looks[i].deployment);
    pthread_mutex_unlock(&m->lock);
    for (size_t i = 0; looks && i < count; i++)
        look_at(&looks[i]);
    pthread_mutex_lock(&m->lock);
    for (size_t i = 0; looks && i < count; i++)
        take_look(m, &looks[i]);
    pthread_mutex_unlock(&m->lock);
    free(looks);
    m->looked_ns = clock_ns();
}

/* ---- Acting; under the lock ---- */

static void fail(struct models *m, struct model *x, const char *why)
{
    x->facts.state = MODEL_FAILED;
    x->facts.own = false;
    x->facts.kv_bytes = 0;
    x->facts.failed_ns = clock_ns();
    if (why != x->reason)
        snprintf(x->reason, sizeof x->reason, "%s", why);
    counter_add(m->failures, 1);
    log_warn("%s does not start: %s", x->id, why);
}

/* "moed: " in front of a complaint is of no use to a client. */
static const char *without_program(const char *line)
{
    return strncmp(line, "moed: ", 6) == 0 ? line + 6 : line;
}

static void run_moed(struct models *m, struct model *x, char *const arguments[],
                     enum model_state state)
{
    struct error e = {0};
    if (child_start(&m->child, arguments, &e)) {
        fail(m, x, e.text);
        return;
    }
    x->facts.state = state;
    m->moving = x;
}

/* What is given to `moed up`; NULL: that option is not. */
struct up_arguments {
    char *defaults, *config, *kv_cache;
};
enum { UP_ARGUMENTS = 14 };

/* Ends with NULL. Borrows all. */
static void list_arguments(struct models *m, struct model *x, const struct up_arguments *given,
                           char *out[UP_ARGUMENTS])
{
    char *const options[][2] = {{"--name", x->deployment},
                                {"--defaults", given->defaults},
                                {"--config", given->config},
                                {"--kv-cache", given->kv_cache}};
    size_t n = 0;
    out[n++] = m->moed;
    out[n++] = "up";
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (options[i][1]) {
            out[n++] = options[i][0];
            out[n++] = options[i][1];
        }
    out[n++] = "--";
    out[n++] = x->path;
    out[n] = NULL;
}

static void start(struct models *m, struct model *x, uint64_t kv_bytes)
{
    if (!x->listed || !x->path) {
        fail(m, x, "its file has gone");
        return;
    }
    char size[24], options[PATH_MAX];
    bool configured = catalogue_options_file(x->id, x->deployment, options);
    snprintf(size, sizeof size, "%" PRIu64, kv_bytes);
    const struct up_arguments given = {.defaults = m->defaults[0] ? m->defaults : NULL,
                                       .config = configured ? options : NULL,
                                       .kv_cache = x->kv_given ? NULL : size};
    char *arguments[UP_ARGUMENTS];
    list_arguments(m, x, &given, arguments);
    log_info("starting %s (%s)%s%s%s%s", x->id, x->path, given.config ? ", options from " : "",
             given.config ? options : "", given.defaults ? ", defaults from " : "", m->defaults);
    x->facts.own = true;
    x->facts.kv_bytes = kv_bytes;
    run_moed(m, x, arguments, MODEL_STARTING);
    models_save_started(m);
}

static void stop(struct models *m, struct model *x)
{
    char *const arguments[] = {m->moed, "down", x->deployment, NULL};
    log_info("stopping %s%s", x->id, x->facts.broken ? ", which has failed" : "");
    run_moed(m, x, arguments, MODEL_STOPPING);
}

static void refuse(struct models *m, struct model *x, const struct models_limits *l)
{
    char why[sizeof x->reason], options[PATH_MAX];
    catalogue_options_file(x->id, x->deployment, options);
    uint64_t most = l->available_bytes < l->budget_bytes ? l->available_bytes : l->budget_bytes;
    snprintf(why, sizeof why,
             "it needs %.2f GB of memory, and %.2f GB are available: give it less with `ram` in "
             "~/.config/moed/%s, take a smaller quantisation, or give running deployments a "
             "smaller --kv-cache",
             (double)(x->facts.need_bytes + x->facts.kv_least_bytes) * 1e-9, (double)most * 1e-9,
             strrchr(options, '/') + 1);
    fail(m, x, why);
}

/* The child has ended. */
static void settle(struct models *m, int exit_code)
{
    struct model *x = m->moving;
    bool started = x->facts.state == MODEL_STARTING;
    m->moving = NULL;
    if (started && exit_code == 0) {
        x->facts.state = MODEL_UP;
        x->facts.used_ns = clock_ns();
        x->facts.waits_ns = 0;
        counter_add(m->loads, 1);
        log_info("%s is up", x->id);
    } else if (started) {
        fail(m, x, *m->child.last ? without_program(m->child.last) : "moed up has failed");
    } else {
        bool broken = x->facts.broken;
        x->facts.own = x->facts.busy = x->facts.broken = x->facts.drop = x->facts.on_gpu = false;
        x->facts.kv_bytes = 0;
        x->facts.state = MODEL_OFF;
        counter_add(m->unloads, 1);
        if (broken)
            fail(m, x, x->reason);
        else
            log_info("%s is stopped", x->id);
    }
    models_save_started(m);
}

/* promised: of the free memory, to KV caches. */
static void act(struct models *m, uint64_t promised)
{
    static struct model_facts facts[2 * CATALOGUE_MOST];
    uint64_t available = memory_available_bytes();
    struct models_limits limits = {.now_ns = clock_ns(),
                                   .available_bytes =
                                       available > promised ? available - promised : 0,
                                   .budget_bytes = m->settings->budget_bytes,
                                   .most = (unsigned)m->settings->most};
    for (size_t i = 0; i < m->count; i++)
        facts[i] = m->items[i]->facts;
    struct action action = models_decide(facts, m->count, &limits);
    if (action.kind == ACTION_START)
        start(m, m->items[action.model], models_kv_bytes(facts, m->count, action.model, &limits));
    else if (action.kind == ACTION_STOP)
        stop(m, m->items[action.model]);
    else if (action.kind == ACTION_REFUSE)
        refuse(m, m->items[action.model], &limits);
}

static bool is_active(const struct models *m)
{
    for (size_t i = 0; i < m->count; i++) {
        const struct model_facts *f = &m->items[i]->facts;
        if (f->own || model_is_wanted(f, clock_ns()))
            return true;
    }
    return m->moving != NULL;
}

static void count_up(struct models *m)
{
    int64_t up = 0;
    for (size_t i = 0; i < m->count; i++)
        up += m->items[i]->facts.own && m->items[i]->facts.state == MODEL_UP;
    gauge_set(m->up, up);
}

static bool is_any_wanted(const struct models *m)
{
    for (size_t i = 0; i < m->count; i++)
        if (model_is_wanted(&m->items[i]->facts, clock_ns()))
            return true;
    return false;
}

/* False: no model is wanted, so it does not matter. Without the lock: it calls memds. */
static bool request_promises(struct models *m, bool ended, uint64_t *bytes)
{
    pthread_mutex_lock(&m->lock);
    bool wanted = (ended || !m->moving) && is_any_wanted(m);
    pthread_mutex_unlock(&m->lock);
    if (!wanted)
        return false;
    struct kv_promises p;
    kv_promises_open(&p, NULL);
    *bytes = kv_promises_bytes(&p);
    kv_promises_close(&p);
    return true;
}

int models_turn(struct models *m)
{
    uint64_t promised = 0;
    int exit_code;
    bool ended = child_poll(&m->child, &exit_code);
    if (ended || clock_ns() - m->looked_ns >= LOOK_NS) {
        models_look_at_others(m);
        look_at_all(m);
    }
    bool requested = request_promises(m, ended, &promised);
    pthread_mutex_lock(&m->lock);
    if (ended)
        settle(m, exit_code);
    if (requested || !is_any_wanted(m)) /* else one is wanted since */
        act(m, promised);
    count_up(m);
    bool active = is_active(m);
    pthread_mutex_unlock(&m->lock);
    return active ? TURN_MS : IDLE_TURN_MS;
}

/* ---- The end ---- */

static void begin_stop(const struct models *m, const struct model *x, struct child *c)
{
    char *const arguments[] = {(char *)m->moed, "down", (char *)x->deployment, NULL};
    struct error e = {0};
    if (child_start(c, arguments, &e))
        snprintf(c->last, sizeof c->last, "%s", e.text);
}

/* Whether `moed down` has done its work; else the log says why not. */
static bool finish_stop(const struct model *x, struct child *c)
{
    bool started = c->pid, stopped = child_wait(c) == 0 && started;
    if (!stopped)
        log_warn("cannot stop %s: %s", x->deployment, c->last);
    return stopped;
}

/* The model that was moving. Its `moed down` has ended, but may have come before its `moed up` had
 * started anything. */
static void end_moving(struct models *m)
{
    struct model *x = m->moving;
    char run[RUN_DIR_BYTES];
    struct child again = {0};
    m->moving = NULL;
    if (!x)
        return;
    if (x->facts.state == MODEL_STOPPING) {
        x->facts.own = !finish_stop(x, &m->child);
        return;
    }
    child_end(&m->child, END_MS);
    x->facts.own = !run_dir_path(x->deployment, run, NULL) && run_dir_holder(run, "supervise");
    if (!x->facts.own)
        return;
    begin_stop(m, x, &again);
    x->facts.own = !finish_stop(x, &again);
}

/* Each `moed down` runs at once, so that one that does not end leaves the others their time. */
void models_stop_all(struct models *m)
{
    pthread_mutex_lock(&m->lock);
    m->stopping = true; /* from now on only this thread changes anything */
    pthread_mutex_unlock(&m->lock);
    struct child *children = calloc(m->count + 1, sizeof *children);
    const struct model *moving = m->moving;
    bool stopping = moving && moving->facts.state == MODEL_STOPPING; /* by `moed down` */
    if (!stopping)
        child_interrupt(&m->child);
    for (size_t i = 0; children && i < m->count; i++)
        if (m->items[i]->facts.own && !(stopping && m->items[i] == moving))
            begin_stop(m, m->items[i], &children[i]);
    for (size_t i = 0; children && i < m->count; i++) {
        struct model *x = m->items[i];
        if (x == moving)
            child_wait(&children[i]);
        else if (x->facts.own)
            x->facts.own = !finish_stop(x, &children[i]);
    }
    end_moving(m);
    models_save_started(m); /* those that are left */
    free(children);
}
