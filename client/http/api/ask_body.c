/* See ask_body.h. */
#include "client/http/api/ask_body.h"

#include "client/http/api/app.h"
#include "client/http/api/loose_schemas.h"
#include "client/http/server/bodies.h"

#include <stdlib.h>

/* A body at work: on app->bodies to be parsed, then on app->loosening where its schema is to be
 * loosened. */
struct reading {
    struct turn turn; /* first */
    struct app *app;
    struct exchange *x; /* NULL: the client has left */
    ask_parser *parse;
    ask_taker *take;
    const char *data; /* the exchange's */
    size_t len;
    struct strbuf left; /* ... once the client has left */
    struct ask ask;
    struct problem problem;
};

static void free_reading(struct reading *r)
{
    ask_fini(&r->ask);
    strbuf_fini(&r->left);
    free(r);
}

/* ---- Nobody waits for it any more ---- */

static void work_drop(struct job *job)
{
    ask_fini(&((struct reading *)job)->ask);
}

static void drop_done(struct turn *turn)
{
    free_reading((struct reading *)turn);
}

/* A large body's values take long to free, too: that is a turn of its client. */
static void drop(struct reading *r)
{
    uint64_t client = r->turn.client;
    if (!r->ask.root || r->len <= ASK_BODY_SMALL || r->app->bodies.stopping) {
        free_reading(r);
        return;
    }
    r->turn = (struct turn){.job.work = work_drop, .done = drop_done};
    turns_post(&r->app->bodies, client, &r->turn);
}

static void on_left(struct exchange *x)
{
    struct reading *r = x->work;
    if (turns_withdraw(r->turn.in, &r->turn)) {
        drop(r);
        return;
    }
    r->x = NULL;
    if (x->keeps_body)
        r->left = bodies_take(x);
}

/* Other bodies need the memory of this one, which waits. */
static void on_crowded(struct exchange *x)
{
    struct reading *r = x->work;
    turns_withdraw(r->turn.in, &r->turn);
    drop(r);
    exchange_fail_crowded(x);
}

/* From now on it keeps its memory. */
static void begun(struct turn *turn)
{
    exchange_pin_body(((struct reading *)turn)->x);
}

/* ---- Loosening ---- */

static void work_loosen(struct job *job)
{
    struct reading *r = (struct reading *)job;
    loose_schemas_apply(&r->app->schemas, &r->ask);
}

/* The body is read. */
static void hand_over(struct reading *r)
{
    struct ask ask = r->ask;
    if (r->x->keeps_body)
        exchange_release_body(r->x);
    r->ask = (struct ask){0};
    r->take(r->x, &ask);
    free_reading(r);
}

static void loosen_done(struct turn *turn)
{
    struct reading *r = (struct reading *)turn;
    if (r->x)
        hand_over(r);
    else
        drop(r);
}

/* A large body still counts (--bodies-bytes), for its values. */
static void post_loosening(struct reading *r)
{
    r->turn = (struct turn){.job.work = work_loosen, .begun = begun, .done = loosen_done};
    if (r->len > ASK_BODY_SMALL)
        exchange_keep_body(r->x, on_crowded);
    turns_post(&r->app->loosening, bodies_client(r->x), &r->turn);
}

/* ---- Parsing ---- */

static void work_parse(struct job *job)
{
    struct reading *r = (struct reading *)job;
    if (!r->parse(&r->ask, r->data, r->len, &r->problem))
        ask_fini(&r->ask);
}

static void parse_done(struct turn *turn)
{
    struct reading *r = (struct reading *)turn;
    struct exchange *x = r->x;
    if (!x) {
        drop(r);
        return;
    }
    if (r->problem.status) {
        exchange_release_body(x);
        exchange_fail(x, &r->problem);
        free_reading(r);
    } else if (r->ask.form_is_loose) {
        post_loosening(r);
    } else {
        hand_over(r);
    }
}

static void post_parsing(struct reading *r)
{
    r->turn = (struct turn){.job.work = work_parse, .begun = begun, .done = parse_done};
    exchange_keep_body(r->x, on_crowded);
    turns_post(&r->app->bodies, bodies_client(r->x), &r->turn);
}

/* ---- Both ---- */

/* Half of all answers is for requests that need not wait here; a client may have half of the rest.
 */
static bool has_too_many(const struct app *app, const struct exchange *x, struct problem *p)
{
    uint64_t client = bodies_client(x);
    unsigned all = app_busy(app), waiting = app->bodies.count + app->loosening.count,
             own = turns_of(&app->bodies, client) + turns_of(&app->loosening, client);
    if (all >= app->answers_max)
        problem_fill(p, 429, "%u requests are being answered; try again later", all);
    else if (waiting && waiting >= app->answers_max / 2)
        problem_fill(p, 429, "%u large requests are being read; try again later", waiting);
    else if (own && own >= app->answers_max / 4)
        problem_fill(p, 429, "%u requests of this key or address are being read; try again later",
                     own);
    else
        return false;
    counter_add(app->metrics.refused, 1);
    p->retry_s = 1;
    return true;
}

/* Takes *ask. parse: NULL: it has been parsed. */
static void post(struct exchange *x, struct ask *ask, ask_parser *parse, ask_taker *take)
{
    struct app *app = app_of(x);
    struct problem p;
    bool refused = has_too_many(app, x, &p);
    struct reading *r = refused ? NULL : calloc(1, sizeof *r);
    if (!r) {
        if (!refused)
            problem_fill(&p, 503, "no memory for the request");
        ask_fini(ask);
        exchange_fail(x, &p);
        return;
    }
    *r = (struct reading){.app = app,
                          .x = x,
                          .parse = parse,
                          .take = take,
                          .data = x->body.data,
                          .len = x->body.len,
                          .ask = *ask};
    strbuf_init(&r->left);
    x->work = r;
    x->left = on_left;
    if (parse)
        post_parsing(r);
    else
        post_loosening(r);
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
