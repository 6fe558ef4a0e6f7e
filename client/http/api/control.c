/* Changing a deployment; see control.h. A change runs on the deployment's thread. */
#include "client/http/api/control.h"

#include "client/http/api/failure.h"
#include "client/http/api/app.h"
#include "client/http/api/failure.h"
#include "client/http/watch/control.h"
#include "daemon/run_dir.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct change {
    struct job job; /* first */
    struct deployments_waiter waiter;
    struct exchange *x;            /* NULL: the client has left */
    struct deployment *deployment; /* held */
    bool in_job;
    char model[MODEL_NAME_BYTES], policy[64]; /* policy empty: a resize */
    uint64_t device_bytes;
    struct strbuf reply;
    struct problem problem;
};

static void free_change(struct change *c)
{
    strbuf_fini(&c->reply);
    deployment_release(c->deployment);
    free(c);
}

static void fail(struct change *c, const struct problem *p)
{
    exchange_fail(c->x, p);
    free_change(c);
}

/* ---- The request ---- */

static bool take_deployment(struct change *c, const json_t *body, struct problem *p)
{
    const json_t *model = json_object_get(body, "model");
    if (model && !json_is_string(model))
        return problem_set(p, 400, "'model' must be a string");
    snprintf(c->model, sizeof c->model, "%s", model ? json_string_value(model) : "");
    return true;
}

static bool take_policy(struct change *c, const json_t *body, struct problem *p)
{
    const char *policy = json_string_value(json_object_get(body, "policy"));
    if (!policy || !*policy || strlen(policy) >= sizeof c->policy)
        return problem_set(p, 400, "'policy' must be the name of a policy");
    memcpy(c->policy, policy, strlen(policy) + 1);
    return true;
}

static bool take_bytes(struct change *c, const json_t *body, struct problem *p)
{
    json_int_t bytes = json_integer_value(json_object_get(body, "device_bytes"));
    if (bytes <= 0)
        return problem_set(p, 400, "'device_bytes' must be a number of bytes");
    c->device_bytes = (uint64_t)bytes;
    return true;
}

typedef bool take(struct change *c, const json_t *body, struct problem *p);

static bool parse(struct change *c, const struct strbuf *body, take *take_value, struct problem *p)
{
    json_error_t why;
    json_t *object =
        json_loadb(body->data ? body->data : "", body->len, JSON_REJECT_DUPLICATES, &why);
    bool ok = json_is_object(object) || problem_set(p, 400, "the body is not a JSON object");
    ok = ok && take_deployment(c, object, p) && take_value(c, object, p);
    json_decref(object);
    return ok;
}

/* ---- The change ---- */

static int status_of(enum error_code code)
{
    switch (code) {
    case ERROR_USAGE:
    case ERROR_UNSUPPORTED:
    case ERROR_LIMIT:
    case ERROR_NOT_FOUND:
        return 400;
    case ERROR_UNAVAILABLE:
    case ERROR_TIMEOUT:
        return 503;
    default:
        return 500;
    }
}

static void work(struct job *job)
{
    struct change *c = (struct change *)job;
    char run[RUN_DIR_BYTES];
    struct error e = {0};
    enum error_code code = run_dir_path(c->deployment->name, run, &e);
    if (!code)
        code = c->policy[0] ? control_set_policy(run, c->policy, &c->reply, &e)
                            : control_resize(run, c->device_bytes, &c->reply, &e);
    if (!code)
        return;
    problem_fill(&c->problem, status_of(code), "%s", e.text);
    c->problem.retry_s = c->problem.status == 503 ? 2 : 0;
}

static void done(struct job *job)
{
    struct change *c = (struct change *)job;
    struct exchange *x = c->x;
    c->in_job = false;
    if (x && c->problem.status) {
        fail(c, &c->problem);
        return;
    }
    if (x) {
        strbuf_append(&x->out, c->reply.data, c->reply.len);
        exchange_reply(x, 200, "application/json");
    }
    free_change(c);
}

static void on_deployments(struct deployments_waiter *w)
{
    struct change *c = (struct change *)((char *)w - offsetof(struct change, waiter));
    const struct deployments *all = &app_of(c->x)->deployments;
    struct deployment *d = deployments_find_named(all, c->model);
    struct problem p;
    if (!d) {
        problem_no_model(&p, all, deployments_named(all, c->model));
        fail(c, &p);
        return;
    }
    snprintf(c->x->log.model, sizeof c->x->log.model, "%s", d->model);
    c->deployment = deployment_hold(d);
    c->in_job = true;
    jobs_post(&d->queue, &c->job);
}

static void on_left(struct exchange *x)
{
    struct change *c = x->work;
    c->x = NULL;
    deployments_cancel(&app_of(x)->deployments, &c->waiter);
    if (!c->in_job)
        free_change(c);
}

static void start(struct exchange *x, take *take_value)
{
    struct problem p = {0};
    struct change *c = calloc(1, sizeof *c);
    if (!c) {
        problem_fill(&p, 503, "no memory for the request");
        exchange_fail(x, &p);
        return;
    }
    *c = (struct change){
        .job = {.work = work, .done = done}, .waiter = {.ready = on_deployments}, .x = x};
    if (!parse(c, &x->body, take_value, &p)) {
        fail(c, &p);
        return;
    }
    x->work = c;
    x->left = on_left;
    deployments_refresh(&app_of(x)->deployments, &c->waiter);
}

void handle_policy(struct exchange *x)
{
    start(x, take_policy);
}

void handle_resize(struct exchange *x)
{
    start(x, take_bytes);
}
