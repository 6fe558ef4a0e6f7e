/* libmoed: parts of an answer; see chat_reader.h. The parser calls on_event while it is fed; the
 * texts of one feed's parts are collected in `texts`, and get pointers at its end. */
#include "client/src/chat_reader.h"

#include "client/src/random.h"

#include "base/json_space.h"
#include "base/strbuf.h"
#include "toolcall/toolcall.h"

#include <stdlib.h>
#include <string.h>

struct part_box {
    struct moed_part part;
    size_t text, id, name; /* where they stand in `texts`; id and name: of a call's begin */
};

struct call {
    char *id, *name;
    struct strbuf arguments;
    bool complete;
};

struct chat_reader {
    struct chat_settings *settings;
    struct tool_parser *parser; /* NULL: all is content */
    enum chat_inside continues;
    bool failed, finished;
    const char
        *open;  /* ends the reasoning inside which the prompt ended in a message; NULL: none */
    bool begun; /* the answer has more than white space */

    struct strbuf texts; /* of the current parts */
    struct part_box *parts;
    const struct moed_part **pointers; /* to them; as many as `capacity` */
    size_t count, capacity;

    struct strbuf content, reasoning; /* so far */
    struct strbuf space;              /* at the begin of an answer inside reasoning */
    struct call *calls;
    size_t call_count;
    size_t surplus; /* tokens of earlier events, of which the answer has no need */
};

/* ---- Collecting ---- */

static struct moed_part *add_part(struct chat_reader *r, enum moed_part_kind kind)
{
    if (r->count == r->capacity) {
        size_t capacity = 2 * r->capacity + 8;
        struct part_box *parts = realloc(r->parts, capacity * sizeof *parts);
        r->parts = parts ? parts : r->parts;
        const struct moed_part **pointers = realloc(r->pointers, capacity * sizeof *pointers);
        r->pointers = pointers ? pointers : r->pointers;
        r->failed |= !parts || !pointers;
        if (r->failed)
            return NULL;
        r->capacity = capacity;
    }
    struct part_box *box = &r->parts[r->count++];
    *box = (struct part_box){.part = {.kind = kind}, .text = r->texts.len};
    return &box->part;
}

static void add_text(struct chat_reader *r, enum moed_part_kind kind, uint32_t call,
                     const char *text, size_t len)
{
    struct moed_part *last = r->count ? &r->parts[r->count - 1].part : NULL;
    bool goes_on = last && last->kind == kind && last->call == call;
    struct moed_part *part = goes_on ? last : len ? add_part(r, kind) : NULL;
    if (!part)
        return;
    part->call = call;
    part->text_bytes += len;
    strbuf_append(&r->texts, text, len);
}

/* A string with its NUL; returns where it stands. */
static size_t keep_string(struct chat_reader *r, const char *text)
{
    size_t at = r->texts.len;
    strbuf_append(&r->texts, text, strlen(text) + 1);
    return at;
}

static void begin_call(struct chat_reader *r, const struct tool_event *e)
{
    struct call *grown = realloc(r->calls, (r->call_count + 1) * sizeof *grown);
    r->calls = grown ? grown : r->calls;
    if (!grown || !add_part(r, MOED_PART_CALL)) {
        r->failed = true;
        return;
    }
    struct part_box *box = &r->parts[r->count - 1];
    box->part.call = e->index;
    box->id = keep_string(r, e->id);
    box->name = keep_string(r, e->name);
    box->text = r->texts.len;
    struct call *call = &r->calls[r->call_count++];
    *call = (struct call){.id = strdup(e->id), .name = strdup(e->name)};
    strbuf_init(&call->arguments);
    r->failed |= !call->id || !call->name;
}

static void end_call(struct chat_reader *r, const struct tool_event *e)
{
    struct moed_part *part = add_part(r, MOED_PART_CALL_END);
    if (!part)
        return;
    part->call = e->index;
    part->complete = e->complete;
    if (e->index < r->call_count)
        r->calls[e->index].complete = e->complete;
}

static void on_event(void *context, const struct tool_event *e)
{
    struct chat_reader *r = context;
    if (r->failed)
        return;
    switch (e->kind) {
    case TOOL_CONTENT:
        add_text(r, MOED_PART_CONTENT, 0, e->text, e->len);
        strbuf_append(&r->content, e->text, e->len);
        break;
    case TOOL_REASONING:
        add_text(r, MOED_PART_REASONING, 0, e->text, e->len);
        strbuf_append(&r->reasoning, e->text, e->len);
        break;
    case TOOL_CALL_BEGIN:
        begin_call(r, e);
        break;
    case TOOL_ARGUMENTS:
        add_text(r, MOED_PART_ARGUMENTS, e->index, e->text, e->len);
        if (e->index < r->call_count)
            strbuf_append(&r->calls[e->index].arguments, e->text, e->len);
        break;
    case TOOL_CALL_END:
        end_call(r, e);
        break;
    }
}

static bool has_failed(const struct chat_reader *r)
{
    bool failed =
        r->failed || r->texts.failed || r->content.failed || r->reasoning.failed || r->space.failed;
    for (size_t i = 0; i < r->call_count; i++)
        failed |= r->calls[i].arguments.failed;
    return failed;
}

/* ---- The reader ---- */

struct chat_reader *chat_reader_new(struct chat_settings *settings,
                                    const struct chat_rendered *from)
{
    struct chat_reader *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->settings = chat_settings_ref(settings);
    const struct reasoning_marks *marks = from->style.reasoning;
    r->continues = from->inside;
    r->open = from->inside == CHAT_IN_TEXT && from->reasoning_open && marks ? marks->end : NULL;
    strbuf_init(&r->space);
    strbuf_init(&r->texts);
    strbuf_init(&r->content);
    strbuf_init(&r->reasoning);
    if (!settings->tool_list && !chat_style_has_marks(&from->style))
        return r;
    struct tool_parser_options options = {
        .format = from->style.format,
        .reasoning = from->style.reasoning,
        .tools = settings->tool_list,
        .reasoning_open = from->reasoning_open,
        .reasoning_begun = from->inside == CHAT_IN_REASONING,
        .calls_in_reasoning = settings->choice == MOED_TOOLS_AUTO,
        .parallel = !settings->one_call && settings->choice != MOED_TOOLS_NAMED,
        .whole_calls = settings->whole_calls,
        .id_seed = random_number(),
        .on_event = on_event,
        .context = r,
    };
    if (!tool_parser_new(&options, &r->parser, NULL))
        return r;
    chat_reader_free(r);
    return NULL;
}

void chat_reader_free(struct chat_reader *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->call_count; i++) {
        free(r->calls[i].id);
        free(r->calls[i].name);
        strbuf_fini(&r->calls[i].arguments);
    }
    free(r->calls);
    free(r->parts);
    free(r->pointers);
    strbuf_fini(&r->texts);
    strbuf_fini(&r->content);
    strbuf_fini(&r->reasoning);
    strbuf_fini(&r->space);
    tool_parser_free(r->parser); /* before the tools that it borrows */
    chat_settings_unref(r->settings);
    free(r);
}

/* The parts are complete: their texts do not move any more. */
static void set_pointers(struct chat_reader *r)
{
    for (size_t i = 0; i < r->count; i++) {
        struct part_box *box = &r->parts[i];
        box->part.text = box->part.text_bytes ? r->texts.data + box->text : "";
        if (box->part.kind == MOED_PART_CALL) {
            box->part.id = r->texts.data + box->id;
            box->part.name = r->texts.data + box->name;
        }
        r->pointers[i] = &box->part;
    }
}

/* The parser drops white space at the begin of reasoning. */
static void note_space(struct chat_reader *r, const char *text, size_t len)
{
    size_t n = 0;
    while (n < len && json_space(text[n]))
        n++;
    if (r->open && !r->begun)
        strbuf_append(&r->space, text, n);
    r->begun |= n < len;
}

/* The answer is over with the first n tokens of the event, and as much of its text; `surplus` more
 * of those before are not needed either. */
static void cut(struct chat_reader *r, struct moed_event *event, size_t n, size_t text_bytes)
{
    size_t surplus = tool_parser_surplus(r->parser), own = surplus < n ? surplus : n;
    r->surplus = surplus - own;
    event->token_count = n - own;
    event->text_bytes = text_bytes;
    if (event->logprob_count)
        event->logprob_count = event->token_count;
}

static void take_tokens(struct chat_reader *r, struct moed_event *event)
{
    size_t n = 0, used = 0;
    r->failed |= tool_parser_feed_tokens(r->parser, event->token_bytes, event->token_count,
                                         event->text, event->text_bytes, &n, &used) != ERROR_OK;
    if (tool_parser_stopped(r->parser))
        cut(r, event, n, used);
}

bool chat_reader_take(struct chat_reader *r, struct moed_event *event)
{
    r->count = 0;
    strbuf_clear(&r->texts);
    if (event->kind == MOED_EVENT_DONE && !r->finished) {
        r->finished = true;
        r->failed |= r->parser && tool_parser_finish(r->parser) != ERROR_OK;
    } else if (event->kind == MOED_EVENT_TOKENS && !r->parser) {
        on_event(r, &(struct tool_event){
                        .kind = TOOL_CONTENT, .text = event->text, .len = event->text_bytes});
    } else if (event->kind == MOED_EVENT_TOKENS) {
        note_space(r, event->text, event->text_bytes);
        take_tokens(r, event);
    }
    if (has_failed(r))
        return false;
    set_pointers(r);
    event->parts = r->pointers;
    event->part_count = r->count;
    return true;
}

bool chat_reader_is_over(const struct chat_reader *r)
{
    return r->parser && tool_parser_stopped(r->parser);
}

size_t chat_reader_surplus(const struct chat_reader *r)
{
    return r->surplus;
}

uint32_t chat_reader_reasoning_tokens(const struct chat_reader *r)
{
    return r->parser ? (uint32_t)tool_parser_reasoning_tokens(r->parser) : 0;
}

/* ---- The message ---- */

static void write_calls(const struct chat_reader *r, struct strbuf *out)
{
    size_t written = 0;
    for (size_t i = 0; i < r->call_count; i++) {
        const struct call *call = &r->calls[i];
        if (!call->complete)
            continue;
        strbuf_printf(out, "%s{\"id\":", written++ ? "," : ",\"tool_calls\":[");
        strbuf_json_string(out, call->id, strlen(call->id));
        strbuf_printf(out, ",\"type\":\"function\",\"function\":{\"name\":");
        strbuf_json_string(out, call->name, strlen(call->name));
        strbuf_printf(out, ",\"arguments\":");
        strbuf_json_string(out, call->arguments.data, call->arguments.len);
        strbuf_printf(out, "}}");
    }
    if (written)
        strbuf_printf(out, "]");
}

static void write_content(const struct chat_reader *r, struct strbuf *out)
{
    struct strbuf both;
    strbuf_init(&both);
    if (r->open) {
        strbuf_append(&both, r->space.data, r->space.len);
        strbuf_append(&both, r->reasoning.data, r->reasoning.len);
        if (r->content.len || r->call_count)
            strbuf_append(&both, r->open, strlen(r->open));
    }
    strbuf_append(&both, r->content.data, r->content.len);
    strbuf_json_string(out, both.data, both.len);
    out->failed |= both.failed;
    strbuf_fini(&both);
}

json_t *chat_reader_message(const struct chat_reader *r)
{
    struct strbuf text;
    strbuf_init(&text);
    strbuf_printf(&text, "{\"role\":\"assistant\",\"content\":");
    write_content(r, &text);
    if (r->reasoning.len && !r->open) {
        strbuf_printf(&text, ",\"reasoning_content\":");
        strbuf_json_string(&text, r->reasoning.data, r->reasoning.len);
    }
    write_calls(r, &text);
    strbuf_printf(&text, "}");
    json_t *message = text.failed ? NULL : json_loadb(text.data, text.len, JSON_ALLOW_NUL, NULL);
    strbuf_fini(&text);
    return message;
}

enum chat_inside chat_reader_continues(const struct chat_reader *r)
{
    return r->continues;
}
