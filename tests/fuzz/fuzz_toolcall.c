/* Fuzz target of tool-call parsing. The first two bytes choose a format and options; the rest is an
 * answer. Fed whole, byte by byte and in uneven parts it gives the same events; complete arguments
 * are a JSON object; what is given as text stands in the answer in this order; an answer without
 * calls and reasoning comes out as it is, but for whitespace at its end and marks of channels and
 * of text. */
#include "base/strbuf.h"
#include "toolcall/toolcall.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

struct events {
    struct strbuf text, arguments, given;
    uint32_t calls;
    bool in_call, reasoned;
    int last;
};

static void check_arguments(const struct strbuf *b)
{
    json_error_t e;
    json_t *v = json_loadb(b->data, b->len, JSON_ALLOW_NUL, &e);
    enum json_error_code code = json_error_code(&e);
    /* jansson also refuses what moed passes on: large numbers, other bytes, a NUL in a key */
    require(json_is_object(v) ||
            (!v && (code == json_error_numeric_overflow || code == json_error_invalid_utf8 ||
                    code == json_error_null_byte_in_key)));
    json_decref(v);
}

static void on_event(void *context, const struct tool_event *e)
{
    struct events *v = context;
    require(e->index == v->calls || e->kind < TOOL_CALL_BEGIN);
    require(v->in_call == (e->kind > TOOL_CALL_BEGIN));
    if ((int)e->kind != v->last)
        strbuf_printf(&v->text, "\n%d:", e->kind);
    v->last = (int)e->kind;
    switch (e->kind) {
    case TOOL_CALL_BEGIN:
        v->in_call = true;
        strbuf_printf(&v->text, "%s %s", e->id, e->name);
        strbuf_clear(&v->arguments);
        break;
    case TOOL_CALL_END:
        v->in_call = false;
        v->calls++;
        strbuf_printf(&v->text, "%d", e->complete);
        if (e->complete)
            check_arguments(&v->arguments);
        break;
    default:
        require(e->len > 0);
        strbuf_append(&v->text, e->text, e->len);
        strbuf_append(e->kind == TOOL_ARGUMENTS ? &v->arguments : &v->given, e->text, e->len);
        v->reasoned = v->reasoned || e->kind == TOOL_REASONING;
    }
}

static void run(struct events *v, struct tool_parser_options o, const uint8_t *data, size_t size,
                unsigned step)
{
    struct tool_parser *p;
    memset(v, 0, sizeof *v);
    v->last = -1;
    o.on_event = on_event;
    o.context = v;
    require(tool_parser_new(&o, &p, NULL) == ERROR_OK);
    for (size_t at = 0, n; at < size; at += n) {
        n = step == 0 ? size : step == 1 ? 1 : 1 + (at * 7 + data[at]) % step;
        n = n < size - at ? n : size - at;
        require(tool_parser_feed(p, (const char *)data + at, n, 1) == ERROR_OK);
    }
    require(tool_parser_finish(p) == ERROR_OK);
    require(!v->in_call && tool_parser_calls(p) == v->calls);
    tool_parser_free(p);
}

static void events_fini(struct events *v)
{
    strbuf_fini(&v->text);
    strbuf_fini(&v->arguments);
    strbuf_fini(&v->given);
}

static bool same(const struct strbuf *a, const struct strbuf *b)
{
    return a->len == b->len && (a->len == 0 || memcmp(a->data, b->data, a->len) == 0);
}

/* Every byte of the text stands in the answer, in this order. gaps: but for newlines, which also
 * stand between messages. */
static void require_in_order(const struct strbuf *text, const uint8_t *data, size_t size, bool gaps)
{
    size_t at = 0;
    for (size_t i = 0; i < text->len; i++) {
        if (gaps && text->data[i] == '\n')
            continue;
        const uint8_t *hit = memchr(data + at, text->data[i], size - at);
        require(hit);
        at = (size_t)(hit - data) + 1;
    }
}

static struct tool_list *tools(void)
{
    static const char text[] =
        "[{\"name\":\"f\",\"parameters\":{\"properties\":{\"s\":{\"type\":\"string\"},\"i\":{"
        "\"type\":\"integer\"},\"b\":{\"type\":\"boolean\"}}}},{\"name\":\"get\"}]";
    struct tool_list *list;
    json_t *array = json_loads(text, 0, NULL);
    require(tool_list_new(array, &list, NULL) == ERROR_OK);
    json_decref(array);
    return list;
}

/* From the byte '0' on. New ones stand last, so that the corpus keeps its formats. */
static const char *const formats[] = {
    "hermes",        "qwen3-coder",   "seed",        "harmony",     "deepseek-v3",
    "deepseek-v3.1", "deepseek-v3.2", "deepseek-v4", "kimi-k2",     "glm",
    "mistral",       "mistral-array", "llama3",      "minimax-m2",  "tool-calls-tag",
    "lfm2",          "gemma4",        "generic",     "hy3",         "hy3-preview",
    "cohere",        "command-a",     "solar-open",  "functionary", "gigachat3"};
enum { N_FORMATS = sizeof formats / sizeof formats[0] };

static const struct tool_format *format_of(uint8_t byte)
{
    const struct tool_format *format = tool_format_find(formats[(uint8_t)(byte - '0') % N_FORMATS]);
    require(format && tool_format_at(N_FORMATS - 1) && !tool_format_at(N_FORMATS));
    return format;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tool_list *list;
    static const struct reasoning_marks think = {.begin = "<think>", .end = "</think>"};
    if (size < 2)
        return 0;
    if (!list)
        list = tools();
    const struct tool_format *format = format_of(data[0]);
    const struct reasoning_marks *marks = format->reasoning.end ? &format->reasoning : &think;
    struct tool_parser_options o = {.format = format,
                                    .reasoning = data[1] & 1 ? marks : NULL,
                                    .reasoning_open = data[1] & 2,
                                    .whole_calls = data[1] & 4,
                                    .calls_in_reasoning = !(data[1] & 16),
                                    .parallel = !(data[1] & 8),
                                    .tools = list};
    data += 2;
    size -= 2;
    struct events whole, cut;
    run(&whole, o, data, size, 0);
    for (unsigned step = 1; step < 12; step += 5) {
        run(&cut, o, data, size, step);
        require(same(&whole.text, &cut.text));
        events_fini(&cut);
    }
    bool decodes = o.format->body == BODY_GENERIC;
    if (!decodes)
        require_in_order(&whole.given, data, size, o.format->body == BODY_HARMONY);
    if (whole.calls == 0 && !whole.reasoned && !o.reasoning && !decodes &&
        o.format->body != BODY_HARMONY && !o.format->text_end)
        require(whole.given.len == size &&
                (size == 0 || memcmp(whole.given.data, data, size) == 0));
    events_fini(&whole);
    return 0;
}
