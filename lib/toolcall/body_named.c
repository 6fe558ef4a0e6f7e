/* Calls that are a name, a separator and the JSON object of the arguments: DeepSeek V3 and V3.1,
 * Kimi-K2, Mistral; and Solar-Open's, which have an id before the name. */
#include "toolcall/parser.h"

#include <stdlib.h>
#include <string.h>

enum {
    START,
    OWN_ID,
    NAME_BEGIN,
    NAME,
    CALL_ID,
    ID,
    SEPARATOR,
    SECOND_NAME,
    FENCE,
    ARGUMENTS,
    JSON,
    CLOSE
};

static const char fence[] = "```", call_id[] = "[CALL_ID]";

/* Mistral's earlier form has an array of objects behind the same mark. */
static enum step start(struct tool_parser *p)
{
    char c = p->buf[p->at];
    p->id[0] = '\0';
    if (c == '[' || c == '{')
        return objects_begin(p, false);
    return body_go(p, p->o.format->name_begin ? OWN_ID : NAME);
}

static enum step name(struct tool_parser *p, char *out, uint8_t then)
{
    size_t len;
    enum step s = peek_name(p, &len);
    if (s != STEP_AGAIN)
        return s;
    memcpy(out, p->buf + p->at, len);
    out[len] = '\0';
    p->at += len;
    return body_go(p, then);
}

/* DeepSeek V3 and R1: the word `function`, the separator, the name, a fence around the JSON. */
static enum step after_separator(struct tool_parser *p)
{
    bool second = strcmp(p->key, "function") == 0 && tool_name_byte(p->buf[p->at]);
    return second ? name(p, p->key, FENCE) : body_go(p, ARGUMENTS);
}

static enum step read_fence(struct tool_parser *p)
{
    enum match m = p->buf[p->at] == '`' ? read_mark(p, "```json") : MATCH_NO;
    return m == MATCH_PART ? STEP_WAIT : body_go(p, ARGUMENTS);
}

/* Kimi's names stand in ids: functions.NAME:INDEX. */
static const struct tool *find_tool(struct tool_parser *p, const char **id)
{
    const char *text = p->key;
    *id = p->id[0] ? p->id : NULL;
    if (p->o.format->id != ID_ORDINAL)
        return tool_list_find(p->o.tools, text, strlen(text));
    static const char prefix[] = "functions.";
    const char *from =
        strncmp(text, prefix, sizeof prefix - 1) == 0 ? text + sizeof prefix - 1 : text;
    const char *colon = strrchr(from, ':');
    size_t digits = colon ? strspn(colon + 1, "0123456789") : 0;
    bool ordinal = digits > 0 && colon[1 + digits] == '\0';
    if (ordinal && from != text)
        *id = text;
    return tool_list_find(p->o.tools, from, ordinal ? (size_t)(colon - from) : strlen(from));
}

static enum step arguments(struct tool_parser *p)
{
    const char *id;
    if (p->buf[p->at] != '{')
        return STEP_FAIL;
    p->tool = find_tool(p, &id);
    char own[TOOL_ID_BYTES];
    if (id)
        strcpy(own, id); /* p->key and p->id are shorter */
    if (!p->tool || !call_open(p, id ? own : NULL))
        return STEP_FAIL;
    json_scan_init(&p->json);
    return body_go(p, JSON);
}

static enum step wait_from(struct tool_parser *p, size_t at)
{
    p->at = at;
    return STEP_WAIT;
}

static enum step close_call(struct tool_parser *p)
{
    const char *end = p->o.format->call_end;
    size_t json_end = p->at;
    if (end) {
        read_space(p);
        if (p->at == p->len && !p->final)
            return wait_from(p, json_end);
        enum match m = read_mark(p, fence);
        if (m == MATCH_YES)
            return STEP_AGAIN;
        if (m == MATCH_NO)
            m = read_mark(p, end);
        if (m == MATCH_PART)
            return wait_from(p, json_end);
        if (m == MATCH_NO) /* the JSON object is whole: the mark is missing */
            p->at = json_end;
    }
    call_close(p);
    return STEP_CLOSED;
}

enum step named_step(struct tool_parser *p)
{
    enum step s;
    if (p->body_state == JSON) {
        s = json_run(p, SINK_ARGUMENTS);
        return s == STEP_CLOSED ? body_go(p, CLOSE) : s;
    }
    if (p->body_state == CLOSE)
        return close_call(p);
    read_space(p);
    if (p->at == p->len)
        return STEP_WAIT;
    switch (p->body_state) {
    case START:
        return start(p);
    case OWN_ID:
        return name(p, p->id, NAME_BEGIN);
    case NAME_BEGIN:
        s = require_mark(p, p->o.format->name_begin);
        return s == STEP_AGAIN ? body_go(p, NAME) : s;
    case NAME:
        return name(p, p->key, CALL_ID);
    case CALL_ID: {
        enum match m = p->o.format->id == ID_NINE ? read_mark(p, call_id) : MATCH_NO;
        return m == MATCH_PART ? STEP_WAIT : body_go(p, m == MATCH_YES ? ID : SEPARATOR);
    }
    case ID:
        return name(p, p->id, SEPARATOR);
    case SEPARATOR:
        s = require_mark(p, p->o.format->separator);
        return s == STEP_AGAIN ? body_go(p, SECOND_NAME) : s;
    case SECOND_NAME:
        return after_separator(p);
    case FENCE:
        return read_fence(p);
    default:
        return arguments(p);
    }
}
