/* Calls whose arguments stand between tags: Qwen3-Coder, GLM, MiniMax-M2, DeepSeek V3.2, Seed.
 * The values are bare; the tool's schema says which are strings (argument_types.h). */
#include "toolcall/argument_types.h"
#include "toolcall/parser.h"

#include <string.h>

enum { NAME, NAME_END, NEXT, KEY, TYPE, VALUE_BEGIN, VALUE };

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
    return body_go(p, NAME_END);
}

static enum step finish(struct tool_parser *p)
{
    if (!p->call_open && !call_open(p, NULL))
        return STEP_FAIL;
    strbuf_append(&p->args, p->args_written ? "}" : "{}", p->args_written ? 1 : 2);
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
    if (s != STEP_AGAIN)
        return s;
    if (!p->call_open && !call_open(p, NULL))
        return STEP_FAIL;
    const char *text = p->buf + p->at;
    p->at += len + mark_len;
    if (f->newline_values && len > 0 && text[0] == '\n') {
        text++;
        len--;
    } else if (f->newline_values && len > 0 && text[len - 1] == '\n') {
        len--;
    }
    unsigned types = f->typed_values
                         ? (p->value_is_string ? ARGUMENT_STRING : ARGUMENT_ANY & ~ARGUMENT_STRING)
                         : argument_types(p->tool->parameters, p->key);
    strbuf_append(&p->args, p->args_written++ ? "," : "{", 1);
    strbuf_json_string(&p->args, p->key, strlen(p->key));
    strbuf_append(&p->args, ":", 1);
    argument_write(&p->args, types, text, len);
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
