/* Questions; see question.h. */
#include "client/http/api/question.h"

#include "client/http/api/answer.h"
#include "client/http/api/conversation.h"
#include "client/http/api/failure.h"
#include "client/http/model/chat_render.h"
#include "client/http/server/bodies.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void free_question(struct question *q)
{
    moed_free(q->tokens);
    moed_free(q->text);
    strbuf_fini(&q->text_json);
    vocabulary_release(q->vocabulary);
    ask_fini(&q->ask);
    deployment_release(q->deployment);
    free(q);
}

static void fail(struct question *q, const struct problem *p)
{
    exchange_fail(q->x, p);
    free_question(q);
}

static void on_left(struct exchange *x)
{
    struct question *q = x->work;
    q->x = NULL;
    deployments_cancel(&app_of(x)->deployments, &q->waiter);
    bool runs = q->takes_turn ? !turns_withdraw(&q->deployment->questions, &q->turn)
                              : q->in && !jobs_withdraw(q->in, &q->turn.job);
    if (!runs)
        free_question(q);
}

static void work(struct job *job)
{
    struct question *q = (struct question *)job;
    struct moed_error error;
    enum moed_code code = deployment_attach_asking(q->deployment, &error);
    if (!code)
        code = q->kind->work(q, &error);
    if (code)
        problem_from_moed(&q->problem, &error);
}

static void reply(struct question *q)
{
    exchange_reply(q->x, 200, "application/json");
    free_question(q);
}

static void answer(struct question *q)
{
    q->kind->write(q);
    reply(q);
}

/* True: the model is not loaded, and the question is answered without it. */
static bool answer_unloaded(struct question *q)
{
    const struct demand_model *m = deployments_unloaded(&app_of(q->x)->deployments, q->ask.model);
    if (!m || !q->kind->write_unloaded)
        return false;
    snprintf(q->x->log.model, sizeof q->x->log.model, "%s", m->id);
    q->kind->write_unloaded(q, m);
    reply(q);
    return true;
}

static void measure(struct job *job)
{
    struct question *q = (struct question *)job;
    q->kind->measure(q);
}

static void measure_done(struct job *job)
{
    struct question *q = (struct question *)job;
    if (q->x)
        answer(q);
    else
        free_question(q);
}

static void start_measuring(struct question *q)
{
    q->in = &app_of(q->x)->processes;
    q->turn.job = (struct job){.work = measure, .done = measure_done};
    jobs_post(q->in, &q->turn.job);
}

static void done(struct turn *turn)
{
    struct question *q = (struct question *)turn;
    q->takes_turn = false;
    if (!q->x)
        free_question(q);
    else if (q->problem.status)
        fail(q, &q->problem);
    else if (q->kind->measure)
        start_measuring(q);
    else
        answer(q);
}

static void take_turn(struct question *q)
{
    struct error e = {0};
    struct problem p;
    q->takes_turn = !deployment_post_question(q->deployment, bodies_client(q->x), &q->turn, &e);
    if (q->takes_turn)
        return;
    problem_fill(&p, 503, "%s", e.text);
    p.retry_s = 5;
    fail(q, &p);
}

static void on_deployments(struct deployments_waiter *w)
{
    struct question *q = (struct question *)((char *)w - offsetof(struct question, waiter));
    struct problem p;
    struct deployment *d = deployments_find(&app_of(q->x)->deployments, q->ask.model);
    if (!d && answer_unloaded(q))
        return;
    if (!d) {
        problem_not_loaded(&p, &q->waiter);
        fail(q, &p);
        return;
    }
    q->deployment = deployment_hold(d);
    snprintf(q->x->log.model, sizeof q->x->log.model, "%s", d->model);
    if (!q->kind->work) {
        answer(q);
        return;
    }
    take_turn(q);
}

void question_start(struct exchange *x, struct ask *ask, const struct question_kind *kind)
{
    struct question *q = calloc(1, sizeof *q);
    if (!q) {
        struct problem p;
        problem_fill(&p, 503, "no memory for the request");
        ask_fini(ask);
        exchange_fail(x, &p);
        return;
    }
    *q = (struct question){.turn = {.job.work = work, .done = done},
                           .waiter = {.ready = on_deployments},
                           .x = x,
                           .ask = *ask,
                           .kind = kind};
    memcpy(x->log.ignored, ask->ignored, sizeof x->log.ignored);
    x->work = q;
    x->left = on_left;
    if (kind->write_unloaded)
        deployments_seek(&app_of(x)->deployments, &q->waiter, q->ask.model);
    else
        deployments_want(&app_of(x)->deployments, &q->waiter, q->ask.model, NULL);
}

enum moed_code question_render(struct question *q, struct moed_error *error)
{
    struct chat_request request = conversation_of(&q->ask);
    struct chat_rendered rendered;
    enum moed_code code = chat_render(&q->deployment->asking, &request, &rendered, error);
    if (code)
        return code;
    q->tokens = rendered.tokens;
    q->token_count = rendered.token_count;
    return MOED_OK;
}
