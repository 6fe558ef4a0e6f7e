/* Output; see output.h. */
#include "client/http/api/output.h"

#include "client/http/api/ask.h"
#include "client/http/api/json_text.h"
#include "client/http/api/stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Parts ---- */

static struct part *last_part(const struct output *o)
{
    return o->count ? &o->parts[o->count - 1] : NULL;
}

static void end_part(struct output *o, bool complete)
{
    if (!o->open)
        return;
    o->open = false;
    last_part(o)->complete = complete;
    if (o->streams && o->writer->end)
        o->writer->end(o->choice, last_part(o));
}

/* NULL: no memory. */
static struct part *add_part(struct output *o, enum part_kind kind, const char *id,
                             const char *name)
{
    end_part(o, true);
    struct part *grown = realloc(o->parts, (o->count + 1) * sizeof *grown);
    if (!grown) {
        o->failed = true;
        return NULL;
    }
    o->parts = grown;
    struct part *p = &o->parts[o->count];
    *p = (struct part){.kind = kind, .index = o->count, .call = o->calls};
    strbuf_init(&p->text);
    if (kind == PART_CALL) {
        p->id = strdup(id);
        p->name = strdup(name);
        o->failed = !p->id || !p->name;
        o->calls++;
    }
    o->count++;
    if (o->failed)
        return NULL;
    o->open = true;
    if (o->streams && o->writer->begin)
        o->writer->begin(o->choice, p);
    return p;
}

static void add_text(struct output *o, enum part_kind kind, const char *text, size_t len)
{
    struct part *p = last_part(o);
    if (o->failed || !len)
        return;
    if (!o->open || p->kind != kind)
        p = add_part(o, kind, NULL, NULL);
    if (!p)
        return;
    if (o->streams)
        o->writer->text(o->choice, p, text, len);
    if (!o->streams || o->keeps_text || kind == PART_CALL)
        strbuf_append(&p->text, text, len);
    o->failed = p->text.failed;
}

static void on_event(void *context, const struct tool_event *e)
{
    struct output *o = context;
    if (o->failed)
        return;
    switch (e->kind) {
    case TOOL_CONTENT:
        add_text(o, PART_TEXT, e->text, e->len);
        break;
    case TOOL_REASONING:
        if (!o->hides_reasoning)
            add_text(o, o->reasoning_as_text ? PART_TEXT : PART_REASONING, e->text, e->len);
        break;
    case TOOL_CALL_BEGIN:
        add_part(o, PART_CALL, e->id, e->name);
        break;
    case TOOL_ARGUMENTS:
        add_text(o, PART_CALL, e->text, e->len);
        break;
    case TOOL_CALL_END:
        end_part(o, e->complete);
        break;
    }
}

/* ---- The parser ---- */

static bool is_harmony(const struct chat_style *style)
{
    return style->format->body == BODY_HARMONY;
}

bool output_needs_parser(const struct ask *ask, const struct chat_style *style)
{
    return ask->tool_list || is_harmony(style) || (style->reasoning && !ask->reasoning_as_content);
}

enum moed_code output_start(struct output *o, struct choice *c, unsigned index,
                            const struct ask *ask, const struct chat_rendered *style,
                            const struct part_writer *writer, struct moed_error *error)
{
    *o = (struct output){.choice = c,
                         .writer = writer,
                         .streams = ask->stream,
                         .keeps_text = writer->keeps_text,
                         .hides_reasoning = ask->reasoning_hidden,
                         .reasoning_as_text = ask->reasoning_as_content};
    if (!style || !output_needs_parser(ask, &style->style))
        return MOED_OK;
    struct tool_parser_options options = {
        .format = style->style.format,
        .reasoning = ask->reasoning_as_content ? NULL : style->style.reasoning,
        .tools = ask->tool_list,
        .reasoning_open = style->reasoning_open,
        .reasoning_begun = style->inside == CHAT_IN_REASONING,
        .calls_in_reasoning = ask->calls == CALLS_AUTO,
        .parallel = !ask->one_call && ask->calls != CALLS_NAMED,
        .whole_calls = writer->whole_calls || !ask->stream,
        .reasoning_budget = ask->reasoning_budget,
        .id_seed = ask->id_seed + index,
        .on_event = on_event,
        .context = o,
    };
    struct error why;
    if (!tool_parser_new(&options, &o->parser, &why))
        return MOED_OK;
    *error = (struct moed_error){.code = MOED_ERROR_MEMORY};
    snprintf(error->message, sizeof error->message, "%s", why.text);
    return MOED_ERROR_MEMORY;
}

void output_fini(struct output *o)
{
    for (unsigned i = 0; i < o->count; i++) {
        strbuf_fini(&o->parts[i].text);
        free(o->parts[i].id);
        free(o->parts[i].name);
    }
    free(o->parts);
    tool_parser_free(o->parser);
    *o = (struct output){0};
}

void output_take(struct output *o, const char *text, size_t len, uint32_t n_tokens)
{
    if (!o->parser)
        add_text(o, PART_TEXT, text, len);
    else if (!o->failed && tool_parser_feed(o->parser, text, len, n_tokens))
        o->failed = true;
}

size_t output_take_token(struct output *o, uint32_t bytes, const char *text, size_t len)
{
    size_t used = 0;
    if (!o->failed && tool_parser_feed_token(o->parser, bytes, text, len, &used))
        o->failed = true;
    return used;
}

void output_take_rest(struct output *o, const char *text, size_t len)
{
    if (!o->failed && tool_parser_feed_text(o->parser, text, len))
        o->failed = true;
}

bool output_is_over_budget(const struct output *o)
{
    return o->parser && !o->reasoning_ended && tool_parser_over_budget(o->parser);
}

void output_end_reasoning(struct output *o, const char *text, uint32_t n_tokens)
{
    o->reasoning_ended = true;
    if (*text)
        output_take(o, text, strlen(text), n_tokens);
}

void output_finish(struct output *o, bool cut)
{
    if (o->parser && !o->failed && tool_parser_finish(o->parser))
        o->failed = true;
    end_part(o, !cut);
}

bool output_is_over(const struct output *o)
{
    return o->parser && tool_parser_stopped(o->parser);
}

size_t output_surplus(const struct output *o)
{
    return o->parser ? tool_parser_surplus(o->parser) : 0;
}

size_t output_pending(const struct output *o)
{
    return o->parser ? tool_parser_pending(o->parser) : 0;
}

/* ---- Reading ---- */

uint64_t output_reasoning_tokens(const struct output *o)
{
    return o->parser ? tool_parser_reasoning_tokens(o->parser) : 0;
}

void output_text(const struct output *o, enum part_kind kind, struct strbuf *out)
{
    for (unsigned i = 0; i < o->count; i++)
        if (o->parts[i].kind == kind)
            strbuf_append(out, o->parts[i].text.data, o->parts[i].text.len);
}

const struct part *output_last_text(const struct output *o)
{
    for (unsigned i = o->count; i > 0; i--)
        if (o->parts[i - 1].kind == PART_TEXT)
            return &o->parts[i - 1];
    return NULL;
}

bool output_has_calls(const struct output *o)
{
    for (unsigned i = 0; i < o->count; i++)
        if (o->parts[i].kind == PART_CALL && !o->parts[i].complete)
            return false;
    return o->calls > 0;
}

void output_arguments_member(const struct part *call, struct strbuf *out)
{
    if (call->text.len)
        json_member(out, "arguments", call->text.data, call->text.len);
    else
        json_string_member(out, "arguments", "{}");
}

/* The model's JSON may have newlines, which lines of JSON and events must not. */
void output_arguments_json(const struct part *call, struct strbuf *out)
{
    if (!json_text_compact(call->text.len ? call->text.data : "", call->text.len, out))
        strbuf_printf(out, "{}");
}
