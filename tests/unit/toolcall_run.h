/* Runs an answer through a parser of tool calls, whole or cut, and writes down its events:
 * "R(reasoning)C(content)N(name)A(arguments)E" and "X" for the end of an incomplete call.
 * Adjacent deltas of one kind are one. */
#ifndef MOED_TESTS_TOOLCALL_RUN_H
#define MOED_TESTS_TOOLCALL_RUN_H

#include "base/strbuf.h"
#include "toolcall/toolcall.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct transcript {
    struct strbuf text, content, ids;
    char open; /* the kind of the deltas whose bracket is open */
    uint32_t next_index;
    bool in_call;
};

static inline void transcript_event(void *context, const struct tool_event *e)
{
    static const char letters[] = "CRNAE";
    struct transcript *t = context;
    char kind = letters[e->kind];
    if (kind == 'E' && !e->complete)
        kind = 'X';
    if (t->open && t->open != kind)
        strbuf_append(&t->text, ")", 1);
    if (e->kind >= TOOL_CALL_BEGIN) {
        assert_int_equal(e->index, t->next_index);
        assert_int_equal(t->in_call, e->kind != TOOL_CALL_BEGIN);
    } else {
        assert_false(t->in_call);
    }
    if (e->kind == TOOL_CALL_BEGIN) {
        strbuf_printf(&t->text, "N(%s)", e->name);
        strbuf_printf(&t->ids, "%s ", e->id);
        t->in_call = true;
        t->open = 0;
    } else if (e->kind == TOOL_CALL_END) {
        strbuf_append(&t->text, &kind, 1);
        t->in_call = false;
        t->next_index++;
        t->open = 0;
    } else {
        assert_true(e->len > 0);
        if (t->open != kind)
            strbuf_printf(&t->text, "%c(", kind);
        t->open = kind;
        strbuf_append(&t->text, e->text, e->len);
        if (e->kind == TOOL_CONTENT)
            strbuf_append(&t->content, e->text, e->len);
    }
}

static inline void transcript_init(struct transcript *t)
{
    *t = (struct transcript){0};
    strbuf_init(&t->text);
    strbuf_init(&t->content);
    strbuf_init(&t->ids);
}

static inline void transcript_fini(struct transcript *t)
{
    strbuf_fini(&t->text);
    strbuf_fini(&t->content);
    strbuf_fini(&t->ids);
}

/* next_cut(context, at, len): the bytes of the next part. */
typedef size_t transcript_cut(void *context, size_t at, size_t len);

static inline void transcript_run(struct transcript *t, struct tool_parser_options o,
                                  const char *text, size_t len, transcript_cut *next_cut,
                                  void *context)
{
    struct tool_parser *p;
    transcript_init(t);
    o.on_event = transcript_event;
    o.context = t;
    assert_int_equal(tool_parser_new(&o, &p, NULL), ERROR_OK);
    for (size_t at = 0; at < len;) {
        size_t n = next_cut ? next_cut(context, at, len) : len;
        char *part = malloc(n); /* its own allocation: the sanitizer sees a read behind it */
        assert_non_null(part);
        memcpy(part, text + at, n);
        assert_int_equal(tool_parser_feed(p, part, n, 1), ERROR_OK);
        free(part);
        at += n;
    }
    assert_int_equal(tool_parser_finish(p), ERROR_OK);
    assert_int_equal(tool_parser_calls(p), t->next_index);
    assert_false(t->in_call);
    if (t->open)
        strbuf_append(&t->text, ")", 1);
    tool_parser_free(p);
}

static inline size_t cut_once(void *context, size_t at, size_t len)
{
    size_t where = *(size_t *)context;
    return at == 0 && where > 0 ? where : len - at;
}

static inline size_t cut_bytes(void *context, size_t at, size_t len)
{
    (void)context, (void)at, (void)len;
    return 1;
}

static inline size_t cut_random(void *context, size_t at, size_t len)
{
    uint32_t *state = context;
    *state = *state * 1664525u + 1013904223u;
    size_t n = 1 + (*state >> 16) % 9;
    return n < len - at ? n : len - at;
}

static inline const char *transcript_text(const struct transcript *t)
{
    return t->text.data ? t->text.data : "";
}

/* The events of every way to cut are those of the whole. */
static inline void assert_cuts_equal(struct tool_parser_options o, const char *text, size_t len,
                                     const struct transcript *whole)
{
    struct transcript t;
    size_t ways = len < 2 ? 0 : len - 1;
    for (size_t i = 0; i < ways + 21; i++) {
        size_t where = i + 1;
        uint32_t seed = (uint32_t)i;
        if (i < ways)
            transcript_run(&t, o, text, len, cut_once, &where);
        else if (i == ways)
            transcript_run(&t, o, text, len, cut_bytes, NULL);
        else
            transcript_run(&t, o, text, len, cut_random, &seed);
        assert_string_equal(transcript_text(&t), transcript_text(whole));
        assert_string_equal(t.ids.data ? t.ids.data : "", whole->ids.data ? whole->ids.data : "");
        transcript_fini(&t);
    }
}

/* The answer gives these events, whole and cut, with and without whole_calls. */
static inline void assert_events(struct tool_parser_options o, const char *text,
                                 const char *expected)
{
    for (int whole_calls = 0; whole_calls < 2; whole_calls++) {
        struct transcript t;
        o.whole_calls = whole_calls;
        transcript_run(&t, o, text, strlen(text), NULL, NULL);
        assert_string_equal(transcript_text(&t), expected);
        assert_cuts_equal(o, text, strlen(text), &t);
        transcript_fini(&t);
    }
}

static inline struct tool_list *tools_of(const char *text)
{
    json_error_t where;
    json_t *array = json_loads(text, 0, &where);
    struct tool_list *list;
    struct error e;
    assert_non_null(array);
    if (tool_list_new(array, &list, &e) != ERROR_OK)
        fail_msg("%s", e.text);
    json_decref(array);
    return list;
}

/* get_weather(city: string, days: integer, ...), edit(path, text), now() */
#define SAMPLE_TOOLS                                                                               \
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":{"              \
    "\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"},\"days\":{\"type\":"       \
    "\"integer\"},\"hourly\":{\"type\":\"boolean\"},\"tags\":{\"type\":\"array\",\"items\":{"      \
    "\"type\":\"string\"}},\"unit\":{\"enum\":[\"C\",\"F\"]},\"either\":{\"type\":[\"string\","    \
    "\"integer\"]},\"opt\":{\"anyOf\":[{\"type\":\"number\"},{\"type\":\"null\"}]}},"              \
    "\"required\":[\"city\"]}}},"                                                                  \
    "{\"type\":\"function\",\"function\":{\"name\":\"edit\",\"parameters\":{\"type\":\"object\","  \
    "\"properties\":{\"path\":{\"type\":\"string\"},\"text\":{\"type\":\"string\"}}}}},"           \
    "{\"type\":\"function\",\"function\":{\"name\":\"now\"}}]"

#endif
