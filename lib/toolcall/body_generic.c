/* An answer that the grammar forces into JSON: {"tool_calls": [...]} or {"response": "text"}. */
#include "toolcall/parser.h"

#include <string.h>

enum { BRACE, KEY, COLON, VALUE, TEXT, END };

static enum step key(struct tool_parser *p)
{
    json_t *text;
    size_t from = p->at;
    enum step s = p->buf[p->at] == '"' ? read_string(p, TOOL_NAME_BYTES_MAX, &text) : STEP_FAIL;
    if (s != STEP_AGAIN)
        return s;
    bool calls = strcmp(json_string_value(text), "tool_calls") == 0;
    bool response = strcmp(json_string_value(text), "response") == 0;
    json_decref(text);
    if (!calls && !response) {
        p->at = from;
        return STEP_FAIL;
    }
    p->key[0] = calls ? '[' : '"'; /* what must follow */
    return body_go(p, COLON);
}

static enum step value(struct tool_parser *p)
{
    char c = p->buf[p->at];
    if (c != p->key[0])
        return STEP_FAIL;
    if (c == '[') {
        enum step s = objects_begin(p, false);
        p->objects.brace = true;
        return s;
    }
    p->at++;
    p->mark = p->at;
    p->region_done = p->started = true;
    return body_go(p, TEXT);
}

/* The escape at `at`, decoded by jansson: of a pair of surrogates both. */
static enum step escape(struct tool_parser *p)
{
    char quoted[16] = "\"";
    const char *s = p->buf + p->at;
    size_t left = p->len - p->at, n = 2;
    if (left >= 2 && s[1] == 'u')
        n = 6;
    if (left >= 4 && n == 6 && (s[2] == 'd' || s[2] == 'D') && strchr("89abAB", s[3]))
        n = 12;
    if (left < n)
        return STEP_WAIT;
    memcpy(quoted + 1, s, n);
    quoted[n + 1] = '"';
    json_t *text = json_loadb(quoted, n + 2, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    if (!json_is_string(text)) {
        json_decref(text);
        return STEP_FAIL;
    }
    p->at += n;
    p->mark = p->at;
    emit_text(p, TOOL_CONTENT, json_string_value(text), json_string_length(text));
    json_decref(text);
    return STEP_AGAIN;
}

static enum step text(struct tool_parser *p)
{
    size_t from = p->at;
    while (p->at < p->len && p->buf[p->at] != '"' && p->buf[p->at] != '\\')
        p->at++;
    p->mark = p->at;
    emit_text(p, TOOL_CONTENT, p->buf + from, p->at - from);
    if (p->at == p->len)
        return STEP_WAIT;
    if (p->buf[p->at] == '\\')
        return escape(p);
    p->at++;
    p->mark = p->at;
    return body_go(p, END);
}

enum step generic_step(struct tool_parser *p)
{
    if (p->body_state == TEXT)
        return text(p);
    read_space(p);
    if (p->at == p->len && !(p->body_state == END && p->final))
        return STEP_WAIT;
    char c = p->at < p->len ? p->buf[p->at] : '\0';
    switch (p->body_state) {
    case BRACE:
        p->at++;
        return body_go(p, KEY); /* it began the call */
    case KEY:
        return key(p);
    case COLON:
        if (c != ':')
            return STEP_FAIL;
        p->at++;
        return body_go(p, VALUE);
    case VALUE:
        return value(p);
    default:
        p->at = c == '}' ? p->at + 1 : p->mark;
        return STEP_CLOSED;
    }
}
