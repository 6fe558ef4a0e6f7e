/* Calls whose arguments stand between tags: Qwen3-Coder, GLM, MiniMax-M2, DeepSeek V3.2, Seed.
 * The values are bare; the tool's schema says which are strings (argument_types.h). */
#include "toolcall/argument_types.h"
#include "toolcall/parser.h"

#include <string.h>

enum { NAME, NAME_END, NEXT, KEY, TYPE, VALUE_BEGIN, VALUE };
enum { LINES_MAX = 256 }; /* lines of a call's values that begin with a mark and do not end one */

static enum step then(struct tool_parser *p, enum step s, uint8_t state)
{
    return s == STEP_AGAIN ? body_go(p, state) : s;
}

static enum step name(struct tool_parser *p)
{
    size_t len;
    enum step s = peek_name(p, &len);
    if (s != STEP_AGAIN)
        return s;
    p->tool = tool_list_find(p->o.tools, p->buf + p->at, len);
    if (!p->tool)
        return STEP_FAIL;
    p->at += len;
    strbuf_clear(&p->given);
    strbuf_append(&p->given, "", 1);
    return body_go(p, NAME_END);
}

static enum step finish(struct tool_parser *p)
{
    if (!p->call_open && !call_open(p, NULL))
        return STEP_FAIL;
    strbuf_append(&p->args, p->args_written ? "}" : "{}", p->args_written ? 1 : 2);
    p->lines.rejected = 0;
    call_close(p);
    return STEP_CLOSED;
}

/* Behind the name or an argument: another argument, or the end. */
static enum step next(struct tool_parser *p)
{
    const struct tool_format *f = p->o.format;
    size_t from = p->at;
    enum match key = read_mark(p, f->key_begin), end = MATCH_NO, section = MATCH_NO;
    if (key == MATCH_YES)
        return body_go(p, KEY);
    end = read_mark(p, f->call_end);
    if (end == MATCH_YES)
        return finish(p);
    if (f->section_end) /* the end mark of the call is missing */
        section = read_mark(p, f->section_end);
    if (section == MATCH_YES) {
        p->at = from;
        return finish(p);
    }
    return key == MATCH_PART || end == MATCH_PART || section == MATCH_PART ? STEP_WAIT : STEP_FAIL;
}

static enum step key(struct tool_parser *p)
{
    const struct tool_format *f = p->o.format;
    size_t len;
    enum step s = find_mark(p, f->key_end, TOOL_NAME_BYTES_MAX, &len);
    if (s != STEP_AGAIN)
        return s;
    if (len == 0 || memchr(p->buf + p->at, '\0', len))
        return STEP_FAIL;
    memcpy(p->key, p->buf + p->at, len);
    p->key[len] = '\0';
    p->at += len + strlen(f->key_end);
    p->lines.from = p->at;
    return body_go(p, f->typed_values ? TYPE : VALUE_BEGIN);
}

static enum step type(struct tool_parser *p)
{
    enum match yes = read_mark(p, "true\">"), no = MATCH_NO;
    if (yes == MATCH_NO)
        no = read_mark(p, "false\">");
    if (yes == MATCH_PART || no == MATCH_PART)
        return STEP_WAIT;
    p->value_is_string = yes == MATCH_YES;
    return yes == MATCH_YES || no == MATCH_YES ? body_go(p, VALUE) : STEP_FAIL;
}

/* Another argument, or the end of the call, stands on the line behind byte i. */
static enum match argument_ends_at(struct tool_parser *p, size_t i)
{
    const struct tool_format *f = p->o.format;
    size_t from = p->at;
    p->at = i;
    enum match m = read_mark(p, "\n");
    if (m == MATCH_YES) {
        enum match key = read_mark(p, f->key_begin), end = read_mark(p, f->call_end);
        m = key == MATCH_YES || end == MATCH_YES     ? MATCH_YES
            : key == MATCH_PART || end == MATCH_PART ? MATCH_PART
                                                     : MATCH_NO;
    }
    p->at = from;
    return m;
}

/* The end of a value that begins on a line of its own: value_end, or the same without its newline
 * where the argument ends. */
static enum step find_line_end(struct tool_parser *p, size_t *len, size_t *mark_len)
{
    const char *end = p->o.format->value_end, *bare = end + 1, *text = p->buf + p->at, *hit;
    size_t n = strlen(bare), left = p->len - p->at;
    size_t i = p->absent == end && p->absent_to > p->at ? p->absent_to - p->at : 1;
    enum match m = MATCH_NO;
    while (m == MATCH_NO && i < left && (hit = memmem(text + i, left - i, bare, n))) {
        i = (size_t)(hit - text);
        m = hit[-1] == '\n' ? MATCH_YES : argument_ends_at(p, p->at + i + n);
        i += m == MATCH_NO;
    }
    if (m == MATCH_NO && left >= n && left - (n - 1) > i) /* it may begin in the last n - 1 bytes */
        i = left - (n - 1);
    p->absent = end;
    p->absent_to = p->at + i;
    *mark_len = text[i - 1] == '\n' ? n + 1 : n;
    *len = i + n - *mark_len;
    return m == MATCH_YES ? STEP_AGAIN : STEP_WAIT;
}

/* ---- Values without an end mark ---- */

/* The key at `at` is of a property that has no value yet. */
static enum match is_missing_key(const struct tool_parser *p)
{
    const char *end = p->o.format->key_end, *text = p->buf + p->at;
    size_t n = strlen(end), left = p->len - p->at, most = TOOL_NAME_BYTES_MAX + n;
    size_t reach = left < most ? left : most;
    const char *hit = memmem(text, reach, end, n);
    size_t len = hit ? (size_t)(hit - text) : reach;
    char key[TOOL_NAME_BYTES_MAX + 2] = "";
    if (memchr(text, '\n', len))
        return MATCH_NO;
    if (!hit)
        return left < most && !p->final ? MATCH_PART : MATCH_NO;
    memcpy(key + 1, text, len);
    key[len + 1] = '\0';
    const json_t *properties = json_object_get(p->tool->parameters, "properties");
    bool given =
        strcmp(p->key, key + 1) == 0 || memmem(p->given.data, p->given.len, key, len + 2) != NULL;
    return json_object_get(properties, key + 1) && !given ? MATCH_YES : MATCH_NO;
}

/* Behind a call's end: the section's end; without sections another call or the answer's end. */
static enum match is_over(struct tool_parser *p)
{
    const struct tool_format *f = p->o.format;
    read_space(p);
    if (p->at < p->len)
        return read_mark(p, f->section_end ? f->section_end : f->call_begin);
    return !p->final ? MATCH_PART : f->section_end ? MATCH_NO : MATCH_YES;
}

/* Whether the line behind the newline at i begins with a mark, and whether it ends the value: as
 * another argument's, or as the call's end. */
static enum match line_begins_mark(struct tool_parser *p, size_t i, enum match *ends)
{
    const struct tool_format *f = p->o.format;
    size_t from = p->at;
    p->at = i + 1;
    enum match key = read_mark(p, f->key_begin), end = MATCH_NO;
    if (key == MATCH_YES)
        *ends = is_missing_key(p);
    else if ((end = read_mark(p, f->call_end)) == MATCH_YES)
        *ends = is_over(p);
    p->at = from;
    if (key == MATCH_YES || end == MATCH_YES)
        return MATCH_YES;
    return key == MATCH_PART || end == MATCH_PART ? MATCH_PART : MATCH_NO;
}

/* Another call begins in the value before i: this one is only quoted, or was given up. */
static bool has_call(const struct tool_parser *p, size_t i)
{
    const char *mark = p->o.format->call_begin;
    return memmem(p->buf + p->at, i - p->at, mark, strlen(mark)) != NULL;
}

/* The newline before a line that ends the value and begins before `end`. A model may forget the end
 * mark; under a strict schema it cannot. */
static enum match find_open_end(struct tool_parser *p, size_t end, size_t *len)
{
    struct line_search *s = &p->lines;
    enum match m = MATCH_NO, ends = MATCH_NO;
    size_t i = s->from > p->at ? s->from : p->at, begin = i;
    while (m == MATCH_NO && i < end && s->rejected < LINES_MAX) {
        if (i >= s->absent_from && i <= s->absent_to) {
            begin = s->absent_from;
            i = s->absent_to;
        }
        const char *newline = i < end ? memchr(p->buf + i, '\n', end - i) : NULL;
        i = newline ? (size_t)(newline - p->buf) : i > end ? i : end;
        if (newline)
            m = line_begins_mark(p, i, &ends);
        s->absent_from = begin;
        s->absent_to = i;
        if (m == MATCH_YES && (ends == MATCH_NO || (ends == MATCH_YES && has_call(p, i)))) {
            m = MATCH_NO;
            s->rejected++;
            begin = i + 1;
        }
        i += m == MATCH_NO && newline;
    }
    s->from = i;
    *len = i - p->at;
    return m == MATCH_YES ? ends : m;
}

static enum step value(struct tool_parser *p)
{
    const struct tool_format *f = p->o.format;
    const char *mark = f->value_end + f->newline_values;
    size_t len, mark_len = strlen(mark);
    if (f->newline_values && p->at == p->len)
        return STEP_WAIT;
    enum step s = f->newline_values && p->buf[p->at] == '\n'
                      ? find_line_end(p, &len, &mark_len)
                      : find_mark(p, mark, TOOL_HELD_BYTES_MAX, &len);
    size_t open_len;
    enum match open = MATCH_NO;
    if (s != STEP_FAIL && !p->tool->strict)
        open = find_open_end(p, s == STEP_AGAIN ? p->at + len : p->len, &open_len);
    if (open == MATCH_PART)
        return STEP_WAIT;
    if (open == MATCH_YES) {
        s = STEP_AGAIN;
        len = open_len;
        mark_len = 1;
    }
    if (s != STEP_AGAIN)
        return s;
    if (!p->call_open && !call_open(p, NULL))
        return STEP_FAIL;
    const char *text = p->buf + p->at;
    p->at += len + mark_len;
    if (f->newline_values && len > 0 && text[0] == '\n') {
        text++;
        len--;
    } else if (open == MATCH_NO && f->newline_values && len > 0 && text[len - 1] == '\n') {
        len--;
    }
    unsigned types = f->typed_values
                         ? (p->value_is_string ? ARGUMENT_STRING : ARGUMENT_ANY & ~ARGUMENT_STRING)
                         : argument_types(p->tool->parameters, p->key);
    strbuf_append(&p->args, p->args_written++ ? "," : "{", 1);
    strbuf_json_string(&p->args, p->key, strlen(p->key));
    strbuf_append(&p->args, ":", 1);
    argument_write(&p->args, types, text, len);
    strbuf_append(&p->given, p->key, strlen(p->key) + 1);
    call_flush(p);
    return body_go(p, NEXT);
}

enum step tags_step(struct tool_parser *p)
{
    const struct tool_format *f = p->o.format;
    if (p->body_state == KEY)
        return key(p);
    if (p->body_state == TYPE)
        return type(p);
    if (p->body_state == VALUE)
        return value(p);
    if (p->body_state == VALUE_BEGIN && !f->value_begin)
        return body_go(p, VALUE);
    read_space(p);
    if (p->at == p->len)
        return STEP_WAIT;
    switch (p->body_state) {
    case NAME:
        return name(p);
    case NAME_END:
        return then(p, require_mark(p, f->name_end), NEXT);
    case VALUE_BEGIN:
        return then(p, require_mark(p, f->value_begin), VALUE);
    default:
        return next(p);
    }
}
