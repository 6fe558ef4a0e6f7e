/* Ollama's questions about models; see ollama.h. */
#include "client/http/api/app.h"
#include "client/http/api/ask_body.h"
#include "client/http/api/fill.h"
#include "client/http/api/models.h"
#include "client/http/api/ollama.h"
#include "client/http/api/question.h"
#include "client/http/api/stream.h"
#include "client/http/model/chat_render.h"
#include "client/http/watch/capacity.h"

#include "base/checksum.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The release of Ollama whose API this is. Clients refuse older ones than they need: VS Code's chat
 * takes 0.6.4, `codex --oss` 0.13.4, which had /v1/responses. */
#define OLLAMA_API_VERSION "0.33.0"

void ollama_time(time_t at, char out[24])
{
    struct tm utc;
    gmtime_r(&at, &utc);
    strftime(out, 24, "%Y-%m-%dT%H:%M:%SZ", &utc);
}

void handle_ollama_root(struct exchange *x)
{
    strbuf_printf(&x->out, "moed is running");
    exchange_reply(x, 200, "text/plain; charset=utf-8");
}

void handle_ollama_version(struct exchange *x)
{
    strbuf_printf(&x->out, "{\"version\":\"" OLLAMA_API_VERSION "\"}");
    exchange_reply(x, 200, "application/json");
}

static void details_json(const char *architecture, uint64_t parameters, const char *quantization,
                         struct strbuf *out)
{
    strbuf_printf(out, "\"details\":{\"parent_model\":\"\",\"format\":\"gguf\"");
    json_string_member(out, "family", architecture);
    strbuf_printf(out, ",\"families\":[");
    strbuf_json_string(out, architecture, strlen(architecture));
    bool small = parameters < 1000000000;
    strbuf_printf(out, "],\"parameter_size\":\"%.1f%s\"",
                  (double)parameters * (small ? 1e-6 : 1e-9), small ? "M" : "B");
    json_string_member(out, "quantization_level", quantization);
    strbuf_printf(out, "}");
}

/* What the lists have of a model, loaded or not. */
struct listed {
    const char *id, *architecture, *quantization;
    uint64_t parameters, file_bytes;
};

/* Clients take models with one digest for one model, cut the text at 12 characters, and keep on
 * disk what they know of a digest (llm: the capabilities). Ollama's is of the model's files. Those
 * are too large to be read for it, so this one is of what the lists have: it is there before the
 * model is loaded, stays when it is, and changes with the size of the files. */
static void digest_json(const struct listed *m, struct strbuf *out)
{
    strbuf_printf(out, ",\"digest\":\"");
    for (uint64_t i = 0; i < 4; i++) {
        uint64_t sum = checksum64(i, m->id, strlen(m->id) + 1);
        sum = checksum64(sum, m->architecture, strlen(m->architecture) + 1);
        sum = checksum64(sum, m->quantization, strlen(m->quantization) + 1);
        sum = checksum64(sum, &m->parameters, sizeof m->parameters);
        sum = checksum64(sum, &m->file_bytes, sizeof m->file_bytes);
        strbuf_printf(out, "%016llx", (unsigned long long)sum);
    }
    strbuf_printf(out, "\",");
}

static void entry_json(const struct listed *m, uint64_t bytes, struct strbuf *out)
{
    strbuf_printf(out, "%s{", out->data[out->len - 1] == '[' ? "" : ",");
    json_string_member(out, "name", m->id);
    json_string_member(out, "model", m->id);
    strbuf_printf(out, ",\"size\":%llu", (unsigned long long)bytes);
    digest_json(m, out);
    details_json(m->architecture, m->parameters, m->quantization, out);
}

/* When the model is unloaded if nobody uses it. */
static void expiry(const struct deployments *all, const struct deployment *d, char out[24])
{
    const struct demand_model *m = demand_find(&all->demand, d->name);
    if (m && m->own && m->expires_s >= 0)
        ollama_time(time(NULL) + (time_t)m->expires_s, out);
    else
        snprintf(out, 24, "9999-12-31T23:59:59Z");
}

static void add_unloaded(void *arg, const struct demand_model *m)
{
    struct exchange *x = arg;
    const struct listed listed = {.id = m->id,
                                  .architecture = m->architecture,
                                  .quantization = m->quantization,
                                  .parameters = m->parameters,
                                  .file_bytes = m->file_bytes};
    char started[24];
    ollama_time(app_of(x)->started, started);
    entry_json(&listed, m->file_bytes, &x->out);
    strbuf_printf(&x->out, ",\"modified_at\":\"%s\"}", started);
}

static void loaded_json(const struct deployment *d, uint64_t bytes, struct strbuf *out)
{
    const struct listed listed = {.id = d->model,
                                  .architecture = d->facts->architecture,
                                  .quantization = d->facts->quantization,
                                  .parameters = d->facts->parameters,
                                  .file_bytes = d->facts->file_bytes};
    entry_json(&listed, bytes, out);
}

static void write_tags(struct exchange *x)
{
    const struct deployments *all = &app_of(x)->deployments;
    char time_text[24];
    strbuf_printf(&x->out, "{\"models\":[");
    for (unsigned i = 0; i < all->count; i++) {
        const struct deployment *d = all->items[i];
        if (!d->running || !d->facts)
            continue;
        loaded_json(d, d->facts->file_bytes, &x->out);
        ollama_time(d->since, time_text);
        strbuf_printf(&x->out, ",\"modified_at\":\"%s\"}", time_text);
    }
    models_each_unloaded(all, add_unloaded, x);
    strbuf_printf(&x->out, "]}");
    exchange_reply(x, 200, "application/json");
}

void handle_ollama_tags(struct exchange *x)
{
    models_listing(x, write_tags);
}

/* ---- /api/ps ---- */

/* The running deployments, whose memds are asked for the device memory. */
struct running {
    struct job job;     /* first */
    struct exchange *x; /* NULL: the client has left */
    unsigned count;
    struct running_model {
        struct deployment *deployment; /* held */
        uint64_t device_bytes;
    } models[];
};

static void free_running(struct running *r)
{
    for (unsigned i = 0; i < r->count; i++)
        deployment_release(r->models[i].deployment);
    free(r);
}

static void measure(struct job *job)
{
    struct running *r = (struct running *)job;
    for (unsigned i = 0; i < r->count; i++) {
        struct deployment *d = r->models[i].deployment;
        r->models[i].device_bytes = deployment_capacity(d, &d->device_bytes, capacity_device_bytes);
    }
}

static void write_ps(struct job *job)
{
    struct running *r = (struct running *)job;
    struct exchange *x = r->x;
    char time_text[24];
    if (!x) {
        free_running(r);
        return;
    }
    strbuf_printf(&x->out, "{\"models\":[");
    for (unsigned i = 0; i < r->count; i++) {
        const struct deployment *d = r->models[i].deployment;
        if (!d->running || !d->facts) /* it stopped meanwhile */
            continue;
        uint64_t on_device = r->models[i].device_bytes, bytes = d->facts->file_bytes;
        /* clients show the difference as the CPU's part, but the KV cache is in no file */
        loaded_json(d, on_device > bytes ? on_device : bytes, &x->out);
        expiry(&app_of(x)->deployments, d, time_text);
        strbuf_printf(&x->out, ",\"expires_at\":\"%s\",\"size_vram\":%llu,\"context_length\":%u}",
                      time_text, (unsigned long long)on_device, d->facts->context);
    }
    strbuf_printf(&x->out, "]}");
    free_running(r);
    exchange_reply(x, 200, "application/json");
}

static void on_ps_left(struct exchange *x)
{
    struct running *r = x->work;
    r->x = NULL;
    if (jobs_withdraw(&app_of(x)->processes, &r->job))
        free_running(r);
}

static void start_ps(struct exchange *x)
{
    const struct deployments *all = &app_of(x)->deployments;
    struct running *r = calloc(1, sizeof *r + all->count * sizeof *r->models);
    struct problem p;
    if (!r) {
        problem_fill(&p, 503, "no memory");
        exchange_fail(x, &p);
        return;
    }
    r->job = (struct job){.work = measure, .done = write_ps};
    r->x = x;
    for (unsigned i = 0; i < all->count; i++)
        if (all->items[i]->running && all->items[i]->facts)
            r->models[r->count++].deployment = deployment_hold(all->items[i]);
    x->work = r;
    x->left = on_ps_left;
    jobs_post(&app_of(x)->processes, &r->job);
}

void handle_ollama_ps(struct exchange *x)
{
    models_listing(x, start_ps);
}

/* ---- /api/show ---- */

/* What is known of a model, loaded or not. */
struct shown {
    const char *template, *architecture, *name, *quantization;
    uint64_t parameters;
    uint32_t context;
    time_t since;
};

/* To the last brace but those of model_info and of the whole. */
static void show_begin(const struct shown *s, struct strbuf *out)
{
    char time[24];
    ollama_time(s->since, time);
    strbuf_printf(out, "{\"license\":\"\",\"modelfile\":\"\",\"parameters\":\"\"");
    json_string_member(out, "template", s->template);
    strbuf_printf(out, ",\"modified_at\":\"%s\",", time);
    details_json(s->architecture, s->parameters, s->quantization, out);
    strbuf_printf(out, ",\"model_info\":{");
    json_string_member(out, "general.architecture", s->architecture);
    json_string_member(out, "general.basename", s->name);
    strbuf_printf(out, ",\"general.parameter_count\":%llu,\"%s.context_length\":%u",
                  (unsigned long long)s->parameters, s->architecture, s->context);
}

static void show_end(bool thinks, bool fills, struct strbuf *out)
{
    strbuf_printf(out, "},\"capabilities\":[\"completion\",\"tools\"%s%s]}",
                  thinks ? ",\"thinking\"" : "", fills ? ",\"insert\"" : "");
}

/* Continue takes a template with this word, of the language of Ollama's templates, as the sign that
 * the model fills in. In ours it is a comment. */
#define FILLS "{# .Suffix #}"

static void show_begin_of(const struct question *q, bool fills, struct strbuf *out)
{
    const struct moed_model *m = q->deployment->facts;
    struct strbuf template;
    strbuf_init(&template);
    strbuf_printf(&template, "%s%s", m->chat_template, fills ? FILLS : "");
    const struct shown shown = {.template = template.len ? template.data : "",
                                .architecture = m->architecture,
                                .name = m->name,
                                .quantization = m->quantization,
                                .parameters = m->parameters,
                                .context = m->context,
                                .since = q->deployment->since};
    show_begin(&shown, out);
    out->failed = out->failed || template.failed;
    strbuf_fini(&template);
}

static void write_show(struct question *q)
{
    struct strbuf *out = &q->x->out;
    const struct moed_model *m = q->deployment->facts;
    struct chat_style style = chat_style_of(m, false);
    bool fills = fill_is_possible(&m->fim);
    show_begin_of(q, fills, out);
    strbuf_printf(out,
                  ",\"%s.block_count\":%u,\"%s.embedding_length\":%u,\"%s.expert_count\":%u,"
                  "\"%s.expert_used_count\":%u",
                  m->architecture, m->layers, m->architecture, m->d_model, m->architecture,
                  m->experts, m->architecture, m->experts_used);
    show_end(style.reasoning || style.format->body == BODY_HARMONY, fills, out);
}

/* The template, and so whether the model thinks, is not known; but its sign of fill-in-the-middle
 * is there. The context is that of training. */
static void show_unloaded(struct question *q, const struct demand_model *m)
{
    const struct shown shown = {.template = m->fills ? FILLS : "",
                                .architecture = m->architecture,
                                .name = m->name,
                                .quantization = m->quantization,
                                .parameters = m->parameters,
                                .context = m->context,
                                .since = app_of(q->x)->started};
    show_begin(&shown, &q->x->out);
    show_end(false, m->fills, &q->x->out);
}

static bool parse_show(struct ask *ask, const char *body, size_t len, struct problem *p)
{
    static const struct parameter table[] = {
        {.name = "model", .take = take_model},
        {.name = "name", .take = take_model},
        {.name = "verbose"},
        {0},
    };
    return ask_parse(ask, body, len, p) && ask_take(ask, table, ask->root, p);
}

static void take_show(struct exchange *x, struct ask *ask)
{
    static const struct question_kind kind = {.write = write_show, .write_unloaded = show_unloaded};
    question_start(x, ask, &kind);
}

void handle_ollama_show(struct exchange *x)
{
    ask_body(x, parse_show, take_show);
}
