/* The models; see models.h. */
#include "client/http/api/models.h"

#include "client/http/api/app.h"
#include "client/http/api/stream.h"

#include <stdlib.h>
#include <string.h>

/* A handler that waits until the deployments are known. */
struct listing {
    struct deployments_waiter waiter; /* first */
    struct exchange *x;
    void (*write)(struct exchange *x);
};

static void on_listing_left(struct exchange *x)
{
    struct listing *l = x->work;
    deployments_cancel(&app_of(x)->deployments, &l->waiter);
    free(l);
}

static void on_listing_ready(struct deployments_waiter *w)
{
    struct listing *l = (struct listing *)w;
    struct exchange *x = l->x;
    void (*write)(struct exchange *) = l->write;
    x->left = NULL;
    free(l);
    write(x);
}

void models_listing(struct exchange *x, void (*write)(struct exchange *x))
{
    struct listing *l = malloc(sizeof *l);
    if (!l) {
        struct problem p;
        problem_fill(&p, 503, "no memory");
        exchange_fail(x, &p);
        return;
    }
    *l = (struct listing){.waiter = {.ready = on_listing_ready}, .x = x, .write = write};
    x->work = l;
    x->left = on_listing_left;
    deployments_refresh(&app_of(x)->deployments, &l->waiter);
}

static void model_json(const struct deployment *d, struct strbuf *out)
{
    strbuf_printf(out, "{");
    json_member(out, "id", d->model, strlen(d->model));
    strbuf_printf(out,
                  ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"moed\","
                  "\"max_model_len\":%u,\"meta\":{",
                  (long long)d->since, d->facts->context);
    json_member(out, "name", d->facts->name, strlen(d->facts->name));
    json_member(out, "architecture", d->facts->architecture, strlen(d->facts->architecture));
    strbuf_printf(out,
                  ",\"n_params\":%llu,\"size\":%llu,\"n_vocab\":%u,\"n_ctx_train\":%u,"
                  "\"n_experts\":%u,\"n_experts_used\":%u}}",
                  (unsigned long long)d->facts->parameters,
                  (unsigned long long)d->facts->file_bytes, d->facts->vocab,
                  d->facts->context_trained, d->facts->experts, d->facts->experts_used);
}

static void write_models(struct exchange *x)
{
    const struct deployments *all = &app_of(x)->deployments;
    const char *separator = "";
    strbuf_printf(&x->out, "{\"object\":\"list\",\"data\":[");
    for (unsigned i = 0; i < all->count; i++) {
        const struct deployment *d = all->items[i];
        if (!d->running || !d->facts)
            continue;
        strbuf_printf(&x->out, "%s", separator);
        model_json(d, &x->out);
        separator = ",";
    }
    strbuf_printf(&x->out, "]}");
    exchange_reply(x, 200, "application/json");
}

void handle_models(struct exchange *x)
{
    models_listing(x, write_models);
}

static void write_model(struct exchange *x)
{
    const struct deployment *d = deployments_find(&app_of(x)->deployments, x->rest);
    if (d) {
        model_json(d, &x->out);
        exchange_reply(x, 200, "application/json");
        return;
    }
    struct problem p;
    problem_fill(&p, 404, "there is no model '%.100s': GET /v1/models lists them", x->rest);
    p.code = "model_not_found";
    exchange_fail(x, &p);
}

void handle_model(struct exchange *x)
{
    models_listing(x, write_model);
}
