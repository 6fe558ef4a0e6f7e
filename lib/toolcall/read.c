/* What a parser reads: marks, names, JSON; and the text between marks. */
#include "toolcall/parser.h"

#include "base/json_space.h"

#include <string.h>

size_t space_end(const struct tool_parser *p)
{
    return p->at + json_space_length(p->buf + p->at, p->len - p->at);
}

void read_space(struct tool_parser *p)
{
    p->at = space_end(p);
}

static enum match match_at(const struct tool_parser *p, size_t at, const char *text)
{
    size_t n = strlen(text), left = p->len - at;
    if (memcmp(p->buf + at, text, left < n ? left : n) != 0)
        return MATCH_NO;
    if (left >= n)
        return MATCH_YES;
    return p->final ? MATCH_NO : MATCH_PART;
}

enum match read_mark(struct tool_parser *p, const char *text)
{
    enum match m = match_at(p, p->at, text);
    if (m == MATCH_YES)
        p->at += strlen(text);
    return m;
}

bool read_cut_mark(struct tool_parser *p, const char *text)
{
    size_t left = p->len - p->at;
    bool cut = text && p->final && left < strlen(text) && memcmp(p->buf + p->at, text, left) == 0;
    if (cut)
        p->at = p->len;
    return cut;
}

enum step require_mark(struct tool_parser *p, const char *text)
{
    switch (read_mark(p, text)) {
    case MATCH_YES:
        return STEP_AGAIN;
    case MATCH_PART:
        return STEP_WAIT;
    default:
        return STEP_FAIL;
    }
}

enum step find_mark(struct tool_parser *p, const char *text, size_t max, size_t *found)
{
    size_t n = strlen(text), left = p->len - p->at, reach = left < max + n ? left : max + n;
    bool far = max > TOOL_NAME_BYTES_MAX; /* a near one is cheap to search again */
    size_t from = far && p->absent == text && p->absent_to > p->at ? p->absent_to - p->at : 0;
    const char *start = p->buf + p->at;
    const char *hit = from < reach ? memmem(start + from, reach - from, text, n) : NULL;
    if (hit)
        from = *found = (size_t)(hit - start);
    else if (reach >= n && reach - (n - 1) > from) /* it may begin in the last n - 1 bytes */
        from = reach - (n - 1);
    if (far) {
        p->absent = text;
        p->absent_to = p->at + from;
    }
    if (hit)
        return STEP_AGAIN;
    return left >= max + n ? STEP_FAIL : STEP_WAIT;
}

enum step peek_name(struct tool_parser *p, size_t *len)
{
    size_t n = 0, left = p->len - p->at;
    while (n < left && n <= TOOL_NAME_BYTES_MAX && tool_name_byte(p->buf[p->at + n]))
        n++;
    if (n > TOOL_NAME_BYTES_MAX)
        return STEP_FAIL;
    if (n == left)
        return STEP_WAIT;
    *len = n;
    return n > 0 ? STEP_AGAIN : STEP_FAIL;
}

enum step read_string(struct tool_parser *p, size_t max, json_t **out)
{
    const char *s = p->buf + p->at;
    size_t left = p->len - p->at, i = p->searched ? p->searched : 1;
    while (i < left && i <= max && s[i] != '"') {
        if (s[i] == '\\' && i + 1 == left)
            break;
        i += s[i] == '\\' ? 2 : 1;
    }
    if (i > max) {
        p->searched = 0;
        return STEP_FAIL;
    }
    if (i >= left || s[i] != '"') {
        p->searched = i;
        return STEP_WAIT;
    }
    p->searched = 0;
    *out = json_loadb(s, i + 1, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    if (!*out)
        return STEP_FAIL;
    p->at += i + 1;
    return STEP_AGAIN;
}

static void keep(struct tool_parser *p, enum json_sink sink, size_t from, size_t to)
{
    if (sink == SINK_ARGUMENTS && to > from)
        surrogates_append(&p->surrogates, &p->args, p->buf + from, to - from);
}

enum step json_run(struct tool_parser *p, enum json_sink sink)
{
    size_t from = p->at;
    enum step s = STEP_WAIT;
    while (p->at < p->len && s == STEP_WAIT) {
        unsigned char c = (unsigned char)p->buf[p->at];
        enum json_scan_result r = json_scan_byte(&p->json, c);
        if (r == JSON_SCAN_BAD || r == JSON_SCAN_BEFORE) {
            s = r == JSON_SCAN_BAD ? STEP_FAIL : STEP_CLOSED;
            break;
        }
        if (r == JSON_SCAN_CONTROL) {
            keep(p, sink, from, p->at);
            if (sink == SINK_ARGUMENTS) {
                surrogates_end(&p->surrogates, &p->args);
                strbuf_json_escape(&p->args, c);
            }
            from = p->at + 1;
        }
        p->at++;
        if (r == JSON_SCAN_END)
            s = STEP_CLOSED;
    }
    keep(p, sink, from, p->at);
    if (sink == SINK_ARGUMENTS)
        call_flush(p);
    return s;
}

/* Where the whitespace before a mark at i begins: newlines of the mark, at most so many. */
static size_t mark_from(const struct tool_parser *p, size_t i, size_t newlines)
{
    while (i > p->at && newlines > 0 && p->buf[i - 1] == '\n') {
        i--;
        newlines--;
    }
    return i;
}

enum step scan_text(struct tool_parser *p, enum tool_event_kind kind, const char *const *marks,
                    size_t n, size_t newlines, size_t *which)
{
    enum match m = MATCH_NO;
    size_t i, k = 0;
    for (i = p->at; i < p->len; i++) {
        for (k = 0; k < n && m == MATCH_NO; k++)
            m = marks[k][0] == p->buf[i] ? match_at(p, i, marks[k]) : MATCH_NO;
        if (m != MATCH_NO)
            break;
    }
    size_t end = p->final && m == MATCH_NO ? p->len : mark_from(p, i, newlines), from = p->at;
    p->mark = end;
    p->at = end;
    emit_text(p, kind, p->buf + from, end - from);
    if (m != MATCH_YES)
        return STEP_WAIT;
    *which = k - 1;
    p->at = i + strlen(marks[k - 1]);
    return STEP_AGAIN;
}
