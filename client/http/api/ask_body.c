/* See ask_body.h. */
#include "client/http/api/ask_body.h"

#include "client/http/api/app.h"
#include "client/http/api/loose_schemas.h"
#include "client/http/server/bodies.h"

#include <stdlib.h>

/* A body at work on app->bodies. */
struct reading {
    struct job job;     /* first */
    struct exchange *x; /* NULL: the client has left */
    ask_parser *parse;  /* NULL: it is parsed */
    ask_taker *take;
    const char *data; /* the exchange's */
    size_t len;
    struct strbuf left; /* ... once the client has left */
    struct loose_schemas *schemas;
    struct ask ask;
    struct problem problem;
};

static void free_reading(struct reading *r)
{
    ask_fini(&r->ask);
    strbuf_fini(&r->left);
    free(r);
}

static void on_left(struct exchange *x)
{
    struct reading *r = x->work;
    if (jobs_withdraw(&app_of(x)->bodies, &r->job)) {
        free_reading(r);
        return;
    }
    r->x = NULL;
    if (x->keeps_body)
        r->left = bodies_take(x);
}

static void work(struct job *job)
{
    struct reading *r = (struct reading *)job;
    if (r->parse && !r->parse(&r->ask, r->data, r->len, &r->problem))
        return;
    if (r->ask.form_is_loose)
        loose_schemas_apply(r->schemas, &r->ask);
}

static void done(struct job *job)
{
    struct reading *r = (struct reading *)job;
    struct exchange *x = r->x;
    if (!x) {
        free_reading(r);
        return;
    }
    exchange_release_body(x);
    if (r->problem.status) {
        exchange_fail(x, &r->problem);
    } else {
        struct ask ask = r->ask;
        r->ask = (struct ask){0};
        r->take(x, &ask);
    }
    free_reading(r);
}

/* Takes *ask. parse: NULL: it has been parsed. */
static void post(struct exchange *x, struct ask *ask, ask_parser *parse, ask_taker *take)
{
    struct app *app = app_of(x);
    struct reading *r = calloc(1, sizeof *r);
    if (!r) {
        struct problem p;
        problem_fill(&p, 503, "no memory for the request");
        ask_fini(ask);
        exchange_fail(x, &p);
        return;
    }
    *r = (struct reading){.job = {.work = work, .done = done},
                          .x = x,
                          .parse = parse,
                          .take = take,
                          .data = x->body.data,
                          .len = x->body.len,
                          .schemas = &app->schemas,
                          .ask = *ask};
    strbuf_init(&r->left);
    if (parse)
        exchange_keep_body(x);
    x->work = r;
    x->left = on_left;
    jobs_post(&app->bodies, &r->job);
}

void ask_body(struct exchange *x, ask_parser *parse, ask_taker *take)
{
    struct problem p = {0};
    struct ask ask;
    ask_init(&ask);
    if (x->body.len > ASK_BODY_SMALL) {
        post(x, &ask, parse, take);
    } else if (!parse(&ask, x->body.data, x->body.len, &p)) {
        ask_fini(&ask);
        exchange_fail(x, &p);
    } else if (ask.form_is_loose) {
        post(x, &ask, NULL, take);
    } else {
        take(x, &ask);
    }
}
