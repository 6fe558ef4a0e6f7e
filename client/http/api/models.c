/* The models; see models.h. */
#include "client/http/api/models.h"

#include "client/http/api/app.h"
#include "client/http/api/failure.h"
#include "client/http/api/stream.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

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

static void begin(struct exchange *x, void (*write)(struct exchange *x),
                  void (*wait)(struct deployments *d, struct deployments_waiter *w))
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
    wait(&app_of(x)->deployments, &l->waiter);
}

void models_listing(struct exchange *x, void (*write)(struct exchange *x))
{
    begin(x, write, deployments_list);
}

void models_running(struct exchange *x, void (*write)(struct exchange *x))
{
    begin(x, write, deployments_refresh);
}

/* What Anthropic's list has of a model beside OpenAI's; clients skip what they do not know. */
static void anthropic_json(const char *name, time_t since, struct strbuf *out)
{
    struct tm utc;
    char text[32];
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&since, &utc));
    strbuf_printf(out, ",\"type\":\"model\",\"created_at\":\"%s\",\"lifecycle\":\"active\"", text);
    json_string_member(out, "display_name", name);
}

/* The aliases of a model: of deployment d, or of m, which is not loaded. */
static void aliases_json(const struct deployments *all, const struct deployment *d,
                         const struct demand_model *m, struct strbuf *out)
{
    unsigned n = 0;
    for (size_t i = 0; i < all->names.count; i++) {
        const char *name = all->names.items[i].name;
        if (d ? deployments_find(all, name) != d
              : demand_find(&all->demand, deployments_meant(all, name)) != m)
            continue;
        strbuf_printf(out, "%s", n++ ? "," : ",\"aliases\":[");
        strbuf_json_string(out, name, strlen(name));
    }
    if (n)
        strbuf_append(out, "]", 1);
}

static void model_json(const struct deployment *d, struct strbuf *out)
{
    strbuf_printf(out, "{");
    json_string_member(out, "id", d->model);
    strbuf_printf(out,
                  ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"moed\","
                  "\"max_model_len\":%u,\"meta\":{",
                  (long long)d->since, d->facts->context);
    json_string_member(out, "name", d->facts->name);
    json_string_member(out, "architecture", d->facts->architecture);
    strbuf_printf(out,
                  ",\"n_params\":%llu,\"size\":%llu,\"n_vocab\":%u,\"n_ctx_train\":%u,"
                  "\"n_experts\":%u,\"n_experts_used\":%u},\"status\":{\"value\":\"loaded\"}",
                  (unsigned long long)d->facts->parameters,
                  (unsigned long long)d->facts->file_bytes, d->facts->vocab,
                  d->facts->context_trained, d->facts->experts, d->facts->experts_used);
    anthropic_json(d->model, (time_t)d->since, out);
    aliases_json(d->all, d, NULL, out);
    strbuf_printf(out, "}");
}

/* One of the folder that is not loaded. */
static void unloaded_json(const struct deployments *all, const struct demand_model *m,
                          time_t created, struct strbuf *out)
{
    strbuf_printf(out, "{");
    json_string_member(out, "id", m->id);
    strbuf_printf(out, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"moed\",\"meta\":{",
                  (long long)created);
    json_string_member(out, "name", m->name);
    json_string_member(out, "architecture", m->architecture);
    strbuf_printf(out, ",\"n_params\":%llu,\"size\":%llu,\"n_ctx_train\":%u},\"status\":{",
                  (unsigned long long)m->parameters, (unsigned long long)m->file_bytes, m->context);
    const char *status = m->state == DEMAND_STARTING ? "loading" : "unloaded";
    json_string_member(out, "value", status);
    strbuf_printf(out, "}");
    anthropic_json(m->id, created, out);
    aliases_json(all, NULL, m, out);
    strbuf_printf(out, "}");
}

/* The deployment of a model of the folder runs and is known. */
static bool is_loaded(const struct deployments *all, const struct demand_model *m)
{
    for (unsigned i = 0; i < all->count; i++)
        if (all->items[i]->running && all->items[i]->facts &&
            strcmp(all->items[i]->name, m->deployment) == 0)
            return true;
    return false;
}

void models_each_unloaded(const struct deployments *all,
                          void (*visit)(void *arg, const struct demand_model *m), void *arg)
{
    for (unsigned i = 0; i < all->demand.count; i++)
        if (!is_loaded(all, &all->demand.models[i]))
            visit(arg, &all->demand.models[i]);
}

static void add_unloaded(void *arg, const struct demand_model *m)
{
    struct exchange *x = arg;
    strbuf_printf(&x->out, "%s", x->out.data[x->out.len - 1] == '[' ? "" : ",");
    unloaded_json(&app_of(x)->deployments, m, app_of(x)->started, &x->out);
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
    models_each_unloaded(all, add_unloaded, x);
    strbuf_printf(&x->out, "],\"has_more\":false}");
    exchange_reply(x, 200, "application/json");
}

void handle_models(struct exchange *x)
{
    models_listing(x, write_models);
}

static void write_model(struct exchange *x)
{
    const struct deployments *all = &app_of(x)->deployments;
    const struct deployment *d = deployments_find(all, x->rest);
    const struct demand_model *m = demand_find(&all->demand, deployments_meant(all, x->rest));
    if (d)
        model_json(d, &x->out);
    else if (m)
        unloaded_json(all, m, app_of(x)->started, &x->out);
    if (d || m) {
        exchange_reply(x, 200, "application/json");
        return;
    }
    struct problem p;
    problem_no_model(&p, all, deployments_meant(all, x->rest));
    exchange_fail(x, &p);
}

void handle_model(struct exchange *x)
{
    models_listing(x, write_model);
}
