/* Loading and unloading; see loading.h. */
#include "client/http/api/loading.h"

#include "client/http/api/ask_body.h"
#include "client/http/api/failure.h"
#include "client/http/api/stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void on_left(struct exchange *x)
{
    struct loading *l = x->work;
    deployments_cancel(&app_of(x)->deployments, &l->waiter);
    demand_cancel(&app_of(x)->deployments.demand, &l->drop);
    free(l);
}

/* Replies and ends. p: NULL: it has worked. */
static void end(struct loading *l, const struct problem *p)
{
    struct exchange *x = l->x;
    if (p) {
        exchange_fail(x, p);
    } else {
        x->left = NULL;
        l->write(x, l);
    }
    free(l);
}

static void on_loaded(struct deployments_waiter *w)
{
    struct loading *l = (struct loading *)w;
    struct problem p;
    const struct deployment *d = deployments_find(&app_of(l->x)->deployments, l->model);
    if (d) {
        snprintf(l->model, sizeof l->model, "%s", d->model);
        end(l, NULL);
        return;
    }
    problem_not_loaded(&p, w);
    end(l, &p);
}

static void on_dropped(struct demand_wait *w)
{
    struct loading *l = (struct loading *)((char *)w - offsetof(struct loading, drop));
    struct problem p = w->problem;
    end(l, p.status ? &p : NULL);
}

/* NULL: it has failed the exchange. */
static struct loading *new_loading(struct exchange *x, const char *model,
                                   void (*write)(struct exchange *, const struct loading *))
{
    struct problem p;
    struct loading *l = calloc(1, sizeof *l);
    if (!l || (model && strlen(model) >= sizeof l->model)) {
        problem_fill(&p, l ? 404 : 503, l ? "there is no model of that name" : "no memory");
        free(l);
        exchange_fail(x, &p);
        return NULL;
    }
    snprintf(l->model, sizeof l->model, "%s", model ? model : "");
    l->x = x;
    l->write = write;
    x->work = l;
    x->left = on_left;
    return l;
}

void loading_load(struct exchange *x, const char *model, const double *keep_s,
                  void (*write)(struct exchange *x, const struct loading *l))
{
    struct loading *l = new_loading(x, model, write);
    if (!l)
        return;
    l->waiter.ready = on_loaded;
    deployments_want(&app_of(x)->deployments, &l->waiter, l->model, keep_s);
}

void loading_unload(struct exchange *x, const char *model,
                    void (*write)(struct exchange *x, const struct loading *l))
{
    struct demand *demand = &app_of(x)->deployments.demand;
    const char *named = deployments_named(&app_of(x)->deployments, model);
    struct problem p;
    if (!demand->enabled || !*named) {
        problem_fill(&p, 400,
                     demand->enabled ? "the request names no model of the folder"
                                     : "the models were loaded by hand: stop one with moed down");
        exchange_fail(x, &p);
        return;
    }
    struct loading *l = new_loading(x, named, write);
    if (!l)
        return;
    l->drops = l->drop.drops = true;
    l->drop.done = on_dropped;
    memcpy(l->drop.model, l->model, sizeof l->drop.model);
    demand_ask(demand, &l->drop);
}

/* ---- llama-server's ---- */

static void write_success(struct exchange *x, const struct loading *l)
{
    strbuf_printf(&x->out, "{\"success\":true}");
    exchange_reply(x, 200, "application/json");
}

static bool parse(struct ask *ask, const char *body, size_t len, struct problem *p)
{
    static const struct parameter table[] = {{.name = "model", .take = take_model}, {0}};
    return ask_parse(ask, body, len, p) && ask_take(ask, table, ask->root, p) &&
           (ask->model || problem_set(p, 400, "model is missing"));
}

static void take_load(struct exchange *x, struct ask *ask)
{
    loading_load(x, ask->model, NULL, write_success);
    ask_fini(ask);
}

void handle_models_load(struct exchange *x)
{
    ask_body(x, parse, take_load);
}

static void take_unload(struct exchange *x, struct ask *ask)
{
    loading_unload(x, ask->model, write_success);
    ask_fini(ask);
}

void handle_models_unload(struct exchange *x)
{
    ask_body(x, parse, take_unload);
}
