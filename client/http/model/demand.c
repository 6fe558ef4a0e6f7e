/* Models on demand; see demand.h. */
#include "client/http/model/demand.h"

#include "base/clock.h"
#include "client/http/model/model_names.h"
#include "daemon/control.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define REPEAT_MS       200
#define CALL_TIMEOUT_MS 5000
#define GONE_NS         15000000000ull /* moed-models does not answer for so long */

enum { QUESTIONS_MOST = 32 };

struct question {
    char model[DEMAND_ID_BYTES]; /* empty: the list */
    bool drops, has_keep;
    double keep_s;
    /* the reply */
    enum error_code code;
    char text[ERROR_TEXT_BYTES];
    struct demand_model entry;
    char reason[512];
};

struct demand_call {
    struct job job; /* first */
    struct demand *demand;
    struct question questions[QUESTIONS_MOST];
    unsigned n_questions;
    uint64_t posted_ns;
    struct demand_model *listed; /* [DEMAND_MODELS_MOST] */
    unsigned n_listed;
    bool has_list;
};

/* ---- On the thread ---- */

static void copy_entry(const Moed__V1__ModelEntry *from, struct demand_model *out)
{
    *out = (struct demand_model){.state = (enum demand_state)from->state, /* the same values */
                                 .own = from->own,
                                 .fills = from->fills,
                                 .parameters = from->parameters,
                                 .file_bytes = from->file_bytes,
                                 .context = from->context_trained,
                                 .expires_s = from->expires_s,
                                 .told_ns = clock_ns()};
    snprintf(out->id, sizeof out->id, "%s", from->id);
    snprintf(out->deployment, sizeof out->deployment, "%s", from->deployment);
    snprintf(out->architecture, sizeof out->architecture, "%s", from->architecture);
    snprintf(out->name, sizeof out->name, "%s", from->name);
    snprintf(out->quantization, sizeof out->quantization, "%s", from->quantization);
}

static void take_reply(struct demand_call *c, struct question *q, const Moed__V1__ModelsReply *r)
{
    if (*q->model && r->n_models == 1) {
        copy_entry(r->models[0], &q->entry);
        snprintf(q->reason, sizeof q->reason, "%s", r->models[0]->reason);
    } else if (*q->model) {
        q->code = ERROR_PROTOCOL;
        snprintf(q->text, sizeof q->text, "moed-models sent %zu models", r->n_models);
    } else {
        c->has_list = true;
        c->n_listed = 0;
        for (size_t i = 0; i < r->n_models && i < DEMAND_MODELS_MOST; i++)
            copy_entry(r->models[i], &c->listed[c->n_listed++]);
    }
}

static void ask(struct demand_call *c, struct question *q)
{
    struct error e = {0};
    Moed__V1__ModelsRequest models = MOED__V1__MODELS_REQUEST__INIT;
    models.action = !*q->model ? MOED__V1__MODELS_REQUEST__ACTION__LIST
                    : q->drops ? MOED__V1__MODELS_REQUEST__ACTION__DROP
                               : MOED__V1__MODELS_REQUEST__ACTION__WANT;
    models.model = q->model;
    models.has_keep = q->has_keep;
    models.keep_s = q->keep_s;
    Moed__V1__Request request = MOED__V1__REQUEST__INIT;
    request.body_case = MOED__V1__REQUEST__BODY_MODELS;
    request.models = &models;
    Moed__V1__Reply *reply = NULL;
    q->code = control_call(c->demand->run, "models", &request, MOED__V1__REPLY__BODY_MODELS,
                           CALL_TIMEOUT_MS, &reply, &e);
    snprintf(q->text, sizeof q->text, "%s", e.text);
    if (q->code)
        return;
    take_reply(c, q, reply->models);
    moed__v1__reply__free_unpacked(reply, NULL);
}

static void work(struct job *job)
{
    struct demand_call *c = (struct demand_call *)job;
    for (unsigned i = 0; i < c->n_questions; i++)
        ask(c, &c->questions[i]);
}

/* ---- What is known; on the loop's thread from here ---- */

static struct demand_model *find(const struct demand *d, const char *name)
{
    for (unsigned i = 0; i < d->count; i++)
        if (model_names_same(d->models[i].id, name) ||
            model_names_same(d->models[i].deployment, name))
            return &d->models[i];
    return NULL;
}

const struct demand_model *demand_find(const struct demand *d, const char *name)
{
    return name && *name ? find(d, name) : NULL;
}

void demand_forget_up(struct demand *d, const char *deployment)
{
    for (unsigned i = 0; i < d->count; i++)
        if (d->models[i].state == DEMAND_UP && strcmp(d->models[i].deployment, deployment) == 0)
            d->models[i].state = DEMAND_OFF;
}

static void note(struct demand *d, const struct demand_model *entry)
{
    struct demand_model *known = NULL; /* its deployment may be another than it was */
    for (unsigned i = 0; i < d->count && !known; i++)
        known = strcmp(d->models[i].id, entry->id) == 0 ? &d->models[i] : NULL;
    if (!known && d->count < DEMAND_MODELS_MOST)
        known = &d->models[d->count++];
    if (known)
        *known = *entry;
}

/* ---- Waiting ---- */

static void remove_wait(struct demand *d, struct demand_wait *w)
{
    struct demand_wait **link = &d->waits;
    while (*link && *link != w)
        link = &(*link)->next;
    if (*link)
        *link = w->next;
    w->waits = false;
}

static const struct question *question_of(const struct demand_call *c, const struct demand_wait *w)
{
    for (unsigned i = 0; i < c->n_questions; i++)
        if (c->questions[i].drops == w->drops && strcmp(c->questions[i].model, w->model) == 0)
            return &c->questions[i];
    return NULL;
}

/* moed-models has refused, or does not answer. True: the wait is over. */
static bool take_error(struct demand_wait *w, const struct question *q)
{
    bool gone = q->code == ERROR_UNAVAILABLE || q->code == ERROR_TIMEOUT || q->code == ERROR_IO;
    if (gone && clock_ns() - w->since_ns < GONE_NS)
        return false;                 /* it is being restarted */
    if (q->code == ERROR_NOT_FOUND) { /* without the folder's path */
        model_names_unknown(&w->problem, w->model);
    } else if (q->code == ERROR_UNSUPPORTED) { /* its file is left out */
        problem_fill(&w->problem, 404, "%s", q->text);
        w->problem.code = "model_not_found";
    } else {
        problem_fill(&w->problem,
                     q->code == ERROR_BUSY    ? 409
                     : q->code == ERROR_USAGE ? 400
                                              : 503,
                     "%s", q->text);
    }
    w->problem.retry_s = gone ? 2 : 0;
    return true;
}

/* True: the wait is over. */
static bool take_answer(struct demand_wait *w, const struct question *q)
{
    if (q->code)
        return take_error(w, q);
    if (!*w->model)
        return true;
    enum demand_state state = q->entry.state;
    if (w->drops)
        return state == DEMAND_OFF || state == DEMAND_FAILED;
    if (state == DEMAND_FAILED) {
        problem_fill(&w->problem, 503, "the model '%s' cannot be loaded: %.400s", q->entry.id,
                     q->reason);
        w->problem.code = "model_not_loaded";
    }
    return state == DEMAND_UP || state == DEMAND_FAILED;
}

static void set_timer(struct demand *d, int ms)
{
    struct itimerspec at = {.it_value = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}};
    timerfd_settime(d->timer.fd, 0, &at, NULL);
}

static void add_question(struct demand_call *c, const struct demand_wait *w)
{
    struct question *q = (struct question *)question_of(c, w);
    if (!q && c->n_questions < QUESTIONS_MOST) {
        q = &c->questions[c->n_questions++];
        *q = (struct question){.drops = w->drops};
        memcpy(q->model, w->model, sizeof q->model);
    }
    if (q && w->has_keep) {
        q->has_keep = true;
        q->keep_s = w->keep_s;
    }
}

static void post(struct demand *d)
{
    struct demand_call *c = d->call;
    if (d->in_flight) {
        d->again = true;
        return;
    }
    c->n_questions = 0;
    c->has_list = false;
    for (const struct demand_wait *w = d->waits; w; w = w->next)
        add_question(c, w);
    if (!c->n_questions)
        return;
    c->posted_ns = clock_ns();
    d->in_flight = true;
    d->again = false;
    jobs_post(&d->queue, &c->job);
}

/* Ends the waits that the replies end. A callback may cancel any, or begin others: those are for
 * the next call. */
static void settle(struct demand *d, const struct demand_call *c)
{
    for (struct demand_wait *w = d->waits; w;) {
        const struct question *q = question_of(c, w);
        if (!q || w->since_ns > c->posted_ns || !take_answer(w, q)) {
            w = w->next;
            continue;
        }
        remove_wait(d, w);
        w->done(w);
        w = d->waits; /* from the start: the list may have changed */
    }
}

static void on_reply(struct job *job)
{
    struct demand_call *c = (struct demand_call *)job;
    struct demand *d = c->demand;
    if (c->has_list) {
        memcpy(d->models, c->listed, c->n_listed * sizeof *c->listed);
        d->count = c->n_listed;
    }
    for (unsigned i = 0; i < c->n_questions; i++)
        if (!c->questions[i].code && *c->questions[i].model)
            note(d, &c->questions[i].entry);
    settle(d, c); /* still in flight: what begins now is asked next */
    d->in_flight = false;
    if (d->again)
        post(d);
    else if (d->waits)
        set_timer(d, REPEAT_MS);
}

static void on_timer(struct watch *w, uint32_t events)
{
    struct demand *d = (struct demand *)((char *)w - offsetof(struct demand, timer));
    uint64_t n;
    if (read(w->fd, &n, sizeof n) == (ssize_t)sizeof n)
        post(d);
}

void demand_ask(struct demand *d, struct demand_wait *w)
{
    w->problem = (struct problem){0};
    w->since_ns = clock_ns();
    w->waits = true;
    w->next = d->waits;
    d->waits = w;
    post(d);
}

void demand_cancel(struct demand *d, struct demand_wait *w)
{
    if (w->waits)
        remove_wait(d, w);
}

/* ---- Start and end ---- */

enum error_code demand_start(struct demand *d, struct loop *loop, const char *run, struct error *e)
{
    *d = (struct demand){.loop = loop, .run = run, .timer = {.fd = -1, .ready = on_timer}};
    d->call = calloc(1, sizeof *d->call);
    d->models = calloc(DEMAND_MODELS_MOST, sizeof *d->models);
    if (!d->call || !d->models ||
        !(d->call->listed = calloc(DEMAND_MODELS_MOST, sizeof *d->call->listed)))
        return error_set(e, ERROR_MEMORY, "no memory for the list of models");
    d->call->demand = d;
    d->call->job = (struct job){.work = work, .done = on_reply};
    d->timer.fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (d->timer.fd < 0)
        return error_set(e, ERROR_IO, "cannot make a timer: %m");
    enum error_code code = loop_add(loop, &d->timer, EPOLLIN, e);
    if (!code)
        code = jobs_start(&d->queue, loop, "models", e);
    d->enabled = code == ERROR_OK;
    return code;
}

void demand_stop(struct demand *d)
{
    d->waits = NULL;
    d->again = false;
    if (d->enabled)
        jobs_stop(&d->queue);
    if (d->loop && d->timer.fd >= 0) {
        loop_remove(d->loop, &d->timer);
        close(d->timer.fd);
    }
    if (d->call)
        free(d->call->listed);
    free(d->call);
    free(d->models);
    *d = (struct demand){.enabled = false};
}
