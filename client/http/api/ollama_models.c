/* Ollama's questions about models; see ollama.h. */
#include "client/http/api/app.h"
#include "client/http/api/fill.h"
#include "client/http/api/models.h"
#include "client/http/api/ollama.h"
#include "client/http/api/question.h"
#include "client/http/api/stream.h"
#include "client/http/model/chat_render.h"

#include <stdio.h>
#include <string.h>

/* The release of Ollama whose API this is: its clients refuse older ones. */
#define OLLAMA_API_VERSION "0.6.4"

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

static void details_json(const char *architecture, uint64_t parameters, struct strbuf *out)
{
    strbuf_printf(out, "\"details\":{\"parent_model\":\"\",\"format\":\"gguf\"");
    json_member(out, "family", architecture, strlen(architecture));
    strbuf_printf(out, ",\"families\":[");
    strbuf_json_string(out, architecture, strlen(architecture));
    bool small = parameters < 1000000000;
    strbuf_printf(out, "],\"parameter_size\":\"%.1f%s\",\"quantization_level\":\"\"}",
                  (double)parameters * (small ? 1e-6 : 1e-9), small ? "M" : "B");
}

/* What all lists have of a model. */
static void entry_json(struct strbuf *out, const char *id, uint64_t bytes, const char *architecture,
                       uint64_t parameters)
{
    strbuf_printf(out, "%s{", out->data[out->len - 1] == '[' ? "" : ",");
    json_member(out, "name", id, strlen(id));
    json_member(out, "model", id, strlen(id));
    strbuf_printf(out, ",\"size\":%llu,\"digest\":\"\",", (unsigned long long)bytes);
    details_json(architecture, parameters, out);
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
    char started[24];
    ollama_time(app_of(x)->started, started);
    entry_json(&x->out, m->id, m->file_bytes, m->architecture, m->parameters);
    strbuf_printf(&x->out, ",\"modified_at\":\"%s\"}", started);
}

static void write_list(struct exchange *x, bool running)
{
    const struct deployments *all = &app_of(x)->deployments;
    char time_text[24];
    strbuf_printf(&x->out, "{\"models\":[");
    for (unsigned i = 0; i < all->count; i++) {
        const struct deployment *d = all->items[i];
        if (!d->running || !d->facts)
            continue;
        entry_json(&x->out, d->model, d->facts->file_bytes, d->facts->architecture,
                   d->facts->parameters);
        if (running) {
            expiry(all, d, time_text);
            strbuf_printf(&x->out, ",\"expires_at\":\"%s\",\"size_vram\":0,\"context_length\":%u}",
                          time_text, d->facts->context);
        } else {
            ollama_time(d->since, time_text);
            strbuf_printf(&x->out, ",\"modified_at\":\"%s\"}", time_text);
        }
    }
    if (!running)
        models_each_unloaded(all, add_unloaded, x);
    strbuf_printf(&x->out, "]}");
    exchange_reply(x, 200, "application/json");
}

static void write_tags(struct exchange *x)
{
    write_list(x, false);
}

static void write_ps(struct exchange *x)
{
    write_list(x, true);
}

void handle_ollama_tags(struct exchange *x)
{
    models_listing(x, write_tags);
}

void handle_ollama_ps(struct exchange *x)
{
    models_listing(x, write_ps);
}

/* What is known of a model, loaded or not. */
struct shown {
    const char *template, *architecture, *name;
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
    json_member(out, "template", s->template, strlen(s->template));
    strbuf_printf(out, ",\"modified_at\":\"%s\",", time);
    details_json(s->architecture, s->parameters, out);
    strbuf_printf(out, ",\"model_info\":{");
    json_member(out, "general.architecture", s->architecture, strlen(s->architecture));
    json_member(out, "general.basename", s->name, strlen(s->name));
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

/* The template, and so whether the model thinks, is not known. The context is that of training. */
static void show_unloaded(struct question *q, const struct demand_model *m)
{
    const struct shown shown = {.template = "",
                                .architecture = m->architecture,
                                .name = m->name,
                                .parameters = m->parameters,
                                .context = m->context,
                                .since = app_of(q->x)->started};
    show_begin(&shown, &q->x->out);
    show_end(false, false, &q->x->out);
}

void handle_ollama_show(struct exchange *x)
{
    static const struct parameter table[] = {
        {.name = "model", .take = take_model},
        {.name = "name", .take = take_model},
        {.name = "verbose"},
        {0},
    };
    static const struct question_kind kind = {NULL, write_show, show_unloaded};
    struct ask ask;
    struct problem p = {0};
    ask_init(&ask);
    if (ask_parse(&ask, x->body.data, x->body.len, &p) && ask_take(&ask, table, ask.root, &p)) {
        question_start(x, &ask, &kind);
    } else {
        ask_fini(&ask);
        exchange_fail(x, &p);
    }
}
