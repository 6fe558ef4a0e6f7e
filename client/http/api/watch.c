/* Watching a deployment; see watch.h. The polls are client/http/watch/watch.c's. */
#include "client/http/api/watch.h"

#include "client/http/api/app.h"
#include "client/http/api/failure.h"
#include "client/http/api/stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct watcher {
    struct viewer viewer; /* first */
    struct deployments_waiter waiter;
    struct exchange *x;
    char model[MODEL_NAME_BYTES]; /* as the request names it */
    unsigned interruptions;       /* of app->watches when its key was checked */
    bool stream, begun, joined;
};

static void free_watcher(struct watcher *w)
{
    if (w->joined)
        watch_leave(&w->viewer);
    free(w);
}

static void on_left(struct exchange *x)
{
    struct watcher *w = x->work;
    deployments_cancel(&app_of(x)->deployments, &w->waiter);
    free_watcher(w);
}

static void fail(struct watcher *w, const struct problem *p)
{
    exchange_fail(w->x, p);
    free_watcher(w);
}

static void see_once(struct watcher *w, const struct watch_view *view)
{
    struct exchange *x = w->x;
    struct problem p;
    if (view->map) {
        strbuf_append(&x->out, view->map->data, view->map->len);
        exchange_reply(x, 200, "application/json");
        free_watcher(w);
    } else if (view->failed) {
        problem_fill(&p, 503, "%s", view->failed);
        p.retry_s = 2;
        fail(w, &p);
    }
}

static void event(struct strbuf *out, const char *name, const struct strbuf *data)
{
    if (!data)
        return;
    event_begin(out, name);
    strbuf_append(out, data->data, data->len);
    event_end(out);
}

static void see_stream(struct watcher *w, const struct watch_view *view)
{
    struct exchange *x = w->x;
    if (!w->begun)
        exchange_stream_begin(x, EVENT_STREAM);
    w->begun = true;
    event(&x->out, "map", view->map);
    event(&x->out, "change", view->change);
    event(&x->out, "figures", view->figures);
    event(&x->out, "processes", view->processes);
    if (view->failed) {
        event_begin(&x->out, "failed");
        strbuf_append(&x->out, "{", 1);
        json_string_member(&x->out, "message", view->failed);
        strbuf_append(&x->out, "}", 1);
        event_end(&x->out);
    }
    if (view->ending) {
        exchange_stream_end(x);
        free_watcher(w);
    } else if (view->map || view->change || view->figures || view->processes || view->failed) {
        exchange_stream_push(x); /* a client that reads too slowly has left after that */
    }
}

static void see(struct viewer *v, const struct watch_view *view)
{
    struct watcher *w = (struct watcher *)v;
    if (w->stream)
        see_stream(w, view);
    else
        see_once(w, view);
}

static void on_tick(struct exchange *x)
{
    const struct watcher *w = x->work;
    if (!w->begun)
        return;
    event_comment(&x->out);
    exchange_stream_push(x);
}

static void on_deployments(struct deployments_waiter *waiter)
{
    struct watcher *w = (struct watcher *)((char *)waiter - offsetof(struct watcher, waiter));
    struct app *app = app_of(w->x);
    const struct deployments *all = &app->deployments;
    const struct deployment *d = deployments_find_named(all, w->model);
    struct problem p;
    struct error e = {0};
    if (w->interruptions != app->watches.interruptions) {
        problem_fill(&p, 503, "keys or the certificate have changed: connect again");
        p.retry_s = 1;
        fail(w, &p);
        return;
    }
    if (!d) {
        problem_no_model(&p, all, deployments_named(all, w->model));
        fail(w, &p);
        return;
    }
    snprintf(w->x->log.model, sizeof w->x->log.model, "%s", d->model);
    if (w->stream && !exchange_wants_body(w->x)) { /* a stream that ends with its headers */
        exchange_reply(w->x, 200, EVENT_STREAM);
        free_watcher(w);
        return;
    }
    w->x->tick = w->stream ? on_tick : NULL;
    if (watch_join(&app->watches, d->name, &w->viewer, &e)) {
        problem_fill(&p, 503, "%s", e.text);
        fail(w, &p);
        return;
    }
    w->joined = true;
}

static void start(struct exchange *x, bool stream)
{
    const char *model = exchange_query(x, "model");
    struct watcher *w = calloc(1, sizeof *w);
    if (!w) {
        struct problem p;
        problem_fill(&p, 503, "no memory for the request");
        exchange_fail(x, &p);
        return;
    }
    *w = (struct watcher){.viewer = {.see = see, .admin = x->admin},
                          .waiter = {.ready = on_deployments},
                          .x = x,
                          .interruptions = app_of(x)->watches.interruptions,
                          .stream = stream};
    snprintf(w->model, sizeof w->model, "%s", model ? model : "");
    x->work = w;
    x->left = on_left;
    deployments_refresh(&app_of(x)->deployments, &w->waiter);
}

void handle_map(struct exchange *x)
{
    start(x, false);
}

void handle_events(struct exchange *x)
{
    start(x, true);
}
