/* Deployments; see deployments.h. */
#include "client/http/model/deployments.h"

#include "base/clock.h"
#include "base/log.h"
#include "client/http/model/chat_render.h"
#include "client/http/model/vocabulary.h"
#include "daemon/run_dir.h"
#include "daemon/supervisor_protocol.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ASK_TIMEOUT_MS 10000
/* How often moed-models hears that a model is in use: more often than it unloads one. */
#define WANT_EVERY_NS 1000000000ull
/* How often names that the default model would answer have the folder listed. */
#define LIST_EVERY_NS 5000000000ull
/* How often processes are asked for a capacity. */
#define CAPACITY_NS 1000000000ull
/* How long a deployment that has gone stays in the table: a service manager may start it again. */
#define KEEP_GONE_NS 60000000000ull

struct probe {
    struct job job; /* first */
    struct deployment *deployment;
    struct moed_model *facts;
};

void deployments_init(struct deployments *d, struct loop *loop, const char *own, const char *run)
{
    *d = (struct deployments){.loop = loop, .own = own, .keep_gone_ns = KEEP_GONE_NS};
    if (!realpath(run, d->own_run))
        d->own_run[0] = '\0';
}

static void detach(struct attachment *a)
{
    moed_detach(a->session);
    chat_model_free(a->chat);
    vocabulary_release(a->vocabulary);
    *a = (struct attachment){.of = a->of};
}

/* Ends the sessions whose model has gone, so that no answer of theirs runs; `all`: every one. */
static void forget_replaced(struct deployment *d, bool all)
{
    for (unsigned i = 0; i < DEPLOYMENT_REPLACED; i++)
        if (d->replaced[i] && (all || !moed_session_alive(d->replaced[i]))) {
            moed_detach(d->replaced[i]);
            d->replaced[i] = NULL;
        }
}

/* True where it can take a request. Else *session is NULL: one whose model was replaced is kept
 * until its answers have ended. */
static bool is_current(struct deployment *d, struct moed_session **session)
{
    forget_replaced(d, false);
    if (*session && moed_session_alive(*session)) {
        if (!moed_session_replaced(*session))
            return true;
        d->replacements++;
        for (unsigned i = 0; i < DEPLOYMENT_REPLACED && *session; i++)
            if (!d->replaced[i]) {
                d->replaced[i] = *session;
                *session = NULL;
            }
    }
    moed_detach(*session);
    *session = NULL;
    return false;
}

static void end_sessions(struct deployment *d)
{
    detach(&d->answering);
    moed_detach(d->grammar_session);
    d->grammar_session = NULL;
    forget_replaced(d, true);
}

static void stop_threads(struct deployment *d)
{
    jobs_stop(&d->queue);
    if (d->asks)
        turns_stop(&d->questions);
}

/* Its threads have been stopped. */
static void free_deployment(struct deployment *d)
{
    end_sessions(d);
    detach(&d->asking);
    moed_model_free(d->facts);
    free(d);
}

void deployments_fini(struct deployments *d)
{
    for (unsigned i = 0; i < d->count; i++) /* a job may hold other deployments */
        stop_threads(d->items[i]);
    for (unsigned i = 0; i < d->count; i++)
        free_deployment(d->items[i]);
    d->count = 0;
    demand_stop(&d->demand);
    model_names_fini(&d->names);
}

static struct deployment *by_name(const struct deployments *d, const char *name)
{
    for (unsigned i = 0; i < d->count; i++)
        if (strcmp(d->items[i]->name, name) == 0)
            return d->items[i];
    return NULL;
}

static struct deployment *add(struct deployments *d, const char *name)
{
    struct error e = {0};
    if (d->count == DEPLOYMENTS_MAX) {
        if (!d->full)
            log_warn("cannot serve deployment %s: moed-http knows %u deployments, the most; stop "
                     "one: it leaves after a minute",
                     name, d->count);
        d->full = true;
        return NULL;
    }
    struct deployment *new = calloc(1, sizeof *new);
    if (!new)
        return NULL;
    snprintf(new->name, sizeof new->name, "%s", name);
    new->all = d;
    new->answering.of = new->asking.of = new;
    char thread[16];
    snprintf(thread, sizeof thread, "ask/%.10s", name);
    if (jobs_start(&new->queue, d->loop, thread, &e)) {
        log_warn("cannot serve deployment %s: %s", name, e.text);
        free(new);
        return NULL;
    }
    d->items[d->count++] = new;
    return new;
}

static bool has_worker(const char *run)
{
    for (unsigned i = 1; i <= SUPERVISE_WORKERS; i++)
        if (run_dir_hint(run, supervise_worker_name(i)))
            return true;
    return false;
}

enum error_code deployment_post_question(struct deployment *d, uint64_t client, struct turn *turn,
                                         struct error *e)
{
    char thread[16];
    snprintf(thread, sizeof thread, "text/%.10s", d->name);
    enum error_code code = d->asks ? ERROR_OK : turns_start(&d->questions, d->all->loop, thread, e);
    if (code)
        return code;
    d->asks = true;
    turns_post(&d->questions, client, turn);
    return ERROR_OK;
}

static void visit(void *arg, const char *name, const char *run)
{
    struct deployments *d = arg;
    char path[PATH_MAX];
    pid_t memd = run_dir_hint(run, "memd");
    bool running = memd && has_worker(run);
    if (realpath(run, path) && strcmp(path, d->own_run) == 0)
        name = d->own; /* $MOED_RUN may end in anything */
    d->has_own = d->has_own || (memd && strcmp(name, d->own) == 0);
    struct deployment *each = by_name(d, name);
    if (!each && running)
        each = add(d, name);
    if (!each)
        return;
    each->running = running;
    each->expected = memd || run_dir_hint(run, "supervise");
    if (running && each->memd != memd) { /* perhaps of another model */
        if (each->memd && strcmp(name, d->own) != 0)
            demand_forget_up(&d->demand, name);
        moed_model_free(each->facts);
        each->facts = NULL;
        each->memd = memd;
    }
}

/* ---- Those that have gone ---- */

struct deployment *deployment_hold(struct deployment *d)
{
    d->holders++;
    d->retired = false;
    return d;
}

void deployment_release(struct deployment *d)
{
    if (d)
        d->holders--;
}

/* On its thread: a session may wait for its worker. */
static void retire_work(struct job *job)
{
    end_sessions((struct deployment *)((char *)job - offsetof(struct deployment, retire)));
}

static void work_retire_asking(struct job *job)
{
    detach(
        &((struct deployment *)((char *)job - offsetof(struct deployment, retire_asking)))->asking);
}

static void retire_asking_done(struct turn *turn)
{
    struct deployment *d =
        (struct deployment *)((char *)turn - offsetof(struct deployment, retire_asking));
    d->retired = d->holders == 0;
}

static void retire_done(struct job *job)
{
    struct deployment *d = (struct deployment *)((char *)job - offsetof(struct deployment, retire));
    d->retired = d->holders == 0 && !d->asks;
    if (!d->asks || d->questions.stopping)
        return;
    d->retire_asking = (struct turn){.job.work = work_retire_asking, .done = retire_asking_done};
    turns_post(&d->questions, 0, &d->retire_asking);
}

/* True: it is freed. It takes two looks: first its sessions end. */
static bool leaves(struct deployment *d)
{
    uint64_t now = clock_ns();
    if (d->running || d->expected) {
        d->gone_ns = 0;
        d->retired = false; /* a probe may attach a session */
    } else if (!d->gone_ns) {
        d->gone_ns = now;
    }
    if (!d->gone_ns || now - d->gone_ns < d->all->keep_gone_ns || d->holders ||
        !jobs_are_done(&d->queue) || d->questions.count || strcmp(d->name, d->all->own) == 0)
        return false;
    if (d->retired) {
        demand_forget_up(&d->all->demand, d->name);
        stop_threads(d);
        free_deployment(d);
        return true;
    }
    d->retire = (struct job){.work = retire_work, .done = retire_done};
    jobs_post(&d->queue, &d->retire);
    return false;
}

static void free_gone(struct deployments *d)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < d->count; i++)
        if (!leaves(d->items[i]))
            d->items[kept++] = d->items[i];
    d->full = d->full && kept == d->count;
    d->count = kept;
}

void deployments_look(struct deployments *d)
{
    struct error e = {0};
    for (unsigned i = 0; i < d->count; i++)
        d->items[i]->running = d->items[i]->expected = false;
    if (run_dir_list(visit, d, &e))
        log_warn("cannot list the deployments: %s", e.text);
    free_gone(d);
}

bool deployments_only_on_demand(const struct deployments *d)
{
    return d->demand.enabled && !d->has_own;
}

/* ---- On a deployment's thread ---- */

static enum moed_code attach(struct deployment *d, struct moed_session **out,
                             struct moed_error *error)
{
    struct moed_attach_options options = {.size = sizeof options,
                                          .deployment = d->name,
                                          .client = "moed-http",
                                          .timeout_ms = ASK_TIMEOUT_MS};
    return moed_attach(&options, out, error);
}

enum moed_code deployment_attach(struct deployment *d, struct moed_error *error)
{
    if (is_current(d, &d->answering.session))
        return MOED_OK;
    detach(&d->answering);
    return attach(d, &d->answering.session, error);
}

/* No answer runs there, so a session whose model was replaced ends at once. */
enum moed_code deployment_attach_asking(struct deployment *d, struct moed_error *error)
{
    struct attachment *a = &d->asking;
    if (a->session && moed_session_alive(a->session) && !moed_session_replaced(a->session))
        return MOED_OK;
    detach(a);
    return attach(d, &a->session, error);
}

enum moed_code deployment_generate(struct deployment *d,
                                   const struct moed_generate_options *options,
                                   struct moed_request **out, struct moed_error *error)
{
    /* The session of deployment_attach, also if its model was replaced since: the prompt is one for
     * that model. */
    enum moed_code code = d->answering.session && moed_session_alive(d->answering.session)
                              ? MOED_OK
                              : deployment_attach(d, error);
    if (code || !options->grammar)
        return code ? code : moed_generate_start(d->answering.session, options, out, error);
    if (!is_current(d, &d->grammar_session))
        code = attach(d, &d->grammar_session, error);
    return code ? code : moed_generate_start(d->grammar_session, options, out, error);
}

static void probe_work(struct job *job)
{
    struct probe *p = (struct probe *)job;
    struct moed_error error;
    if (deployment_attach(p->deployment, &error) ||
        moed_model_get(p->deployment->answering.session, &p->facts, &error))
        log_debug("deployment %s: %s", p->deployment->name, error.message);
}

/* ---- Back on the loop ---- */

/* "demo" for "/models/demo.gguf". */
static void file_stem(const char *path, char out[MODEL_NAME_BYTES])
{
    const char *slash = strrchr(path, '/');
    snprintf(out, MODEL_NAME_BYTES, "%s", slash ? slash + 1 : path);
    char *end = strrchr(out, '.');
    if (end && end != out && strcmp(end, ".gguf") == 0)
        *end = '\0';
}

const char *deployment_template(const struct deployment *d)
{
    return strcmp(d->name, d->all->own) == 0 ? d->all->own_template : NULL;
}

/* The model's name: that in the folder, or the deployment's where somebody chose one. */
static void learn_model(struct deployment *d, struct moed_model *facts)
{
    const struct demand_model *on_demand = demand_find(&d->all->demand, d->name);
    moed_model_free(d->facts);
    d->facts = facts;
    if (deployment_template(d)) {
        facts->chat_template = deployment_template(d);
        facts->chat_template_tools = "";
    }
    d->since = time(NULL);
    file_stem(facts->path, d->stem);
    if (on_demand && on_demand->own)
        snprintf(d->model, sizeof d->model, "%s", on_demand->id);
    else if (strcmp(d->name, "default") != 0)
        snprintf(d->model, sizeof d->model, "%s", d->name);
    else
        memcpy(d->model, d->stem, sizeof d->model);
}

static void wait_again(struct deployments_waiter *w);

/* A model that moed-models has loaded: it must hear of each use, or it may unload it meanwhile. */
static bool must_be_wanted(const struct deployments *d, const struct deployment *each)
{
    const struct demand_model *m = demand_find(&d->demand, each->name);
    return m && m->own && clock_ns() - each->wanted_ns >= WANT_EVERY_NS;
}

/* moed-models has answered. */
static void on_demand(struct demand_wait *demand)
{
    struct deployments_waiter *w =
        (struct deployments_waiter *)((char *)demand - offsetof(struct deployments_waiter, demand));
    const struct demand_model *m = demand_find(&w->all->demand, demand->model);
    struct deployment *each = m ? by_name(w->all, m->deployment) : NULL;
    if (each)
        each->wanted_ns = clock_ns();
    if (demand->problem.status)
        w->ready(w);
    else
        wait_again(w);
}

static bool has_name(const struct deployment *d, const char *model)
{
    return model_names_same(d->name, model) || model_names_same(d->model, model) ||
           model_names_same(d->stem, model);
}

/* It has the name, or the file of the folder whose id it is. */
static bool serves(const struct deployment *each, const char *model)
{
    const struct demand_model *listed = demand_find(&each->all->demand, model);
    return has_name(each, model) ||
           (listed && listed->state == DEMAND_UP && strcmp(each->name, listed->deployment) == 0);
}

/* A request's model for moed-models; NULL: there is none to name. */
static const char *name_for_demand(const struct deployments *d, const char *model)
{
    const char *meant = deployments_meant(d, model);
    const struct deployment *own = by_name(d, d->own);
    if (own && serves(own, meant))
        return NULL; /* it comes back: its file may be in the folder, and is not loaded twice */
    if (*meant)
        return meant;
    return d->demand.count == 1 && !d->has_own ? d->demand.models[0].id : NULL;
}

/* True: moed-models is asked first. */
static bool ask_for_model(struct deployments *d, struct deployments_waiter *w)
{
    const struct deployment *found = deployments_find(d, w->model);
    const char *name = found ? found->name : name_for_demand(d, w->model);
    if (!w->wants || w->asked || !d->demand.enabled || !name ||
        strlen(name) >= sizeof w->demand.model ||
        (found && !w->demand.has_keep && !must_be_wanted(d, found)))
        return false;
    w->asked = true;
    snprintf(w->demand.model, sizeof w->demand.model, "%s", name);
    w->demand.done = on_demand;
    demand_ask(&d->demand, &w->demand);
    return true;
}

static bool is_known(const struct deployments *d, const char *model);

/* The folder's list does not change what the name of `w` stands for. */
static bool name_is_clear(const struct deployments *d, const struct deployments_waiter *w)
{
    const char *named = deployments_named(d, w->model);
    if (*named)
        return is_known(d, named) || (w->wants && !d->names.any); /* moed-models is asked for it */
    return d->has_own || deployments_find(d, NULL);
}

static bool needs_list(const struct deployments *d, const struct deployments_waiter *w)
{
    if (!d->demand.enabled || w->listed || w->list == LIST_NEVER)
        return false;
    bool recent = d->listed_ns && (d->list_wait.waits || clock_ns() - d->listed_ns < LIST_EVERY_NS);
    return w->list == LIST_ALWAYS ||
           (!name_is_clear(d, w) && !(recent && deployments_find(d, w->model)));
}

static void on_list(struct demand_wait *w)
{
    struct deployments *d =
        (struct deployments *)((char *)w - offsetof(struct deployments, list_wait));
    if (w->problem.status)
        log_warn("cannot list the models of the folder: %s", w->problem.message);
    d->listed_ns = clock_ns();
    while (d->list_waiters) {
        struct deployments_waiter *first = d->list_waiters;
        d->list_waiters = first->next;
        wait_again(first);
    }
}

/* The others do not wait for moed-models, which may hang. */
static void wait_for_list(struct deployments *d, struct deployments_waiter *w)
{
    w->listed = true;
    w->next = d->list_waiters;
    d->list_waiters = w;
    if (d->list_wait.waits)
        return;
    d->list_wait = (struct demand_wait){.done = on_list};
    demand_ask(&d->demand, &d->list_wait);
}

static void wake_waiters(struct deployments *d)
{
    while (d->probes == 0 && d->waiters) {
        struct deployments_waiter *w = d->waiters;
        d->waiters = w->next;
        if (needs_list(d, w))
            wait_for_list(d, w);
        else if (!ask_for_model(d, w))
            w->ready(w);
    }
}

static void probe_done(struct job *job)
{
    struct probe *p = (struct probe *)job;
    struct deployments *d = p->deployment->all;
    p->deployment->probing = false;
    if (p->facts)
        learn_model(p->deployment, p->facts);
    free(p);
    d->probes--;
    wake_waiters(d);
}

static void start_probe(struct deployment *d)
{
    struct probe *p = d->probing ? NULL : calloc(1, sizeof *p);
    if (!p)
        return;
    *p = (struct probe){.job = {.work = probe_work, .done = probe_done}, .deployment = d};
    d->probing = true;
    d->all->probes++;
    jobs_post(&d->queue, &p->job);
}

static void wait_again(struct deployments_waiter *w)
{
    struct deployments *d = w->all;
    deployments_look(d);
    for (unsigned i = 0; i < d->count; i++)
        if (d->items[i]->running && !d->items[i]->facts)
            start_probe(d->items[i]);
    w->next = d->waiters;
    d->waiters = w;
    wake_waiters(d);
}

void deployments_refresh(struct deployments *d, struct deployments_waiter *w)
{
    w->all = d;
    wait_again(w);
}

void deployments_list(struct deployments *d, struct deployments_waiter *w)
{
    w->list = LIST_ALWAYS;
    deployments_refresh(d, w);
}

void deployments_seek(struct deployments *d, struct deployments_waiter *w, const char *model)
{
    w->model = model;
    w->list = LIST_UNKNOWN;
    deployments_refresh(d, w);
}

void deployments_want(struct deployments *d, struct deployments_waiter *w, const char *model,
                      const double *keep_s)
{
    w->wants = true;
    w->demand.has_keep = keep_s != NULL;
    w->demand.keep_s = keep_s ? *keep_s : 0;
    deployments_seek(d, w, model);
}

const struct demand_model *deployments_unloaded(const struct deployments *d, const char *model)
{
    return demand_find(&d->demand, name_for_demand(d, model));
}

static void remove_waiter(struct deployments_waiter **link, const struct deployments_waiter *w)
{
    while (*link && *link != w)
        link = &(*link)->next;
    if (*link)
        *link = w->next;
}

void deployments_cancel(struct deployments *d, struct deployments_waiter *w)
{
    remove_waiter(&d->waiters, w);
    remove_waiter(&d->list_waiters, w);
    demand_cancel(&d->demand, &w->demand);
}

static bool is_known(const struct deployments *d, const char *model)
{
    for (unsigned i = 0; i < d->count; i++)
        if (has_name(d->items[i], model))
            return true;
    return demand_find(&d->demand, model) != NULL;
}

bool deployments_starting(const struct deployments *d, const char *meant)
{
    const struct deployment *own = by_name(d, d->own);
    for (unsigned i = 0; i < d->count; i++)
        if ((d->items[i]->expected || d->items[i] == own) && serves(d->items[i], meant))
            return true;
    return d->has_own && (!own || !*own->model); /* its model's name is not known yet */
}

const char *deployments_named(const struct deployments *d, const char *model)
{
    return model ? model_names_find(&d->names, model) : "";
}

const char *deployments_meant(const struct deployments *d, const char *model)
{
    const char *named = deployments_named(d, model);
    return *named && d->names.any && !is_known(d, named) ? "" : named;
}

static struct deployment *find_meant(const struct deployments *d, const char *meant)
{
    const struct deployment *own = by_name(d, d->own);
    bool own_starts = d->has_own && (!own || own->expected);
    bool any = !*meant;
    struct deployment *last = NULL;
    unsigned running = 0;
    for (unsigned i = 0; i < d->count; i++) {
        struct deployment *each = d->items[i];
        if (!each->running || !each->facts)
            continue;
        if (any ? has_name(each, d->own) : serves(each, meant))
            return each;
        running++;
        last = each;
    }
    return any && running == 1 && !own_starts ? last : NULL;
}

struct deployment *deployments_find(const struct deployments *d, const char *model)
{
    return find_meant(d, deployments_meant(d, model));
}

struct deployment *deployments_find_named(const struct deployments *d, const char *model)
{
    return find_meant(d, deployments_named(d, model));
}

/* ---- On the thread that asks the processes ---- */

uint64_t deployment_capacity(const struct deployment *d, struct deployment_capacity *c,
                             uint64_t (*ask)(const char *deployment))
{
    if (!c->asked_ns || clock_ns() - c->asked_ns >= CAPACITY_NS) {
        c->value = ask(d->name);
        c->asked_ns = clock_ns();
    }
    return c->value;
}
