/* Calls that are JSON objects: {"name": N, "arguments": {...}}, in any order of the keys; one,
 * several, or an array of them. "parameters" stands for "arguments", Cohere's "tool_name" for
 * "name"; OpenAI's own form, in which both are inside of "function", is taken too. */
#include "toolcall/parser.h"

#include <string.h>

enum { START, KEY, COLON, VALUE, ARGUMENTS, OTHER, AFTER, NEXT };
enum { FIELD_OTHER, FIELD_NAME, FIELD_ARGUMENTS, FIELD_FUNCTION, FIELD_UNKNOWN };

static const struct {
    const char *key;
    uint8_t field;
} fields[] = {
    {"name", FIELD_NAME},         {"arguments", FIELD_ARGUMENTS}, {"parameters", FIELD_ARGUMENTS},
    {"function", FIELD_FUNCTION}, {"type", FIELD_OTHER},          {"id", FIELD_OTHER},
    {"tool_name", FIELD_NAME},    {"tool_call_id", FIELD_OTHER},
};

enum step objects_begin(struct tool_parser *p, bool bare)
{
    p->objects = (struct objects_body){.first = bare};
    p->as_objects = true;
    return body_go(p, START);
}

static enum step start(struct tool_parser *p, char c)
{
    struct objects_body *o = &p->objects;
    if (c == '[' && !o->array) {
        o->array = true;
        p->at++;
        return STEP_AGAIN;
    }
    if (c == ']' && o->array)
        return body_go(p, NEXT);
    if (c != '{')
        return STEP_FAIL;
    p->at++;
    p->tool = NULL;
    o->have_arguments = false;
    return body_go(p, KEY);
}

static enum step object_end(struct tool_parser *p)
{
    struct objects_body *o = &p->objects;
    if (o->wrapped) {
        p->at++;
        o->wrapped = false;
        return body_go(p, AFTER);
    }
    if (!p->tool || (!p->call_open && !call_open(p, NULL)))
        return STEP_FAIL;
    p->at++;
    if (!o->have_arguments)
        strbuf_append(&p->args, "{}", 2);
    call_close(p);
    return body_go(p, NEXT);
}

static enum step key(struct tool_parser *p, char c)
{
    struct objects_body *o = &p->objects;
    if (c == '}')
        return object_end(p);
    if (c != '"')
        return STEP_FAIL;
    json_t *text;
    size_t from = p->at;
    enum step s = read_string(p, TOOL_NAME_BYTES_MAX, &text);
    if (s != STEP_AGAIN)
        return s;
    o->field = FIELD_UNKNOWN;
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (strcmp(json_string_value(text), fields[i].key) == 0)
            o->field = fields[i].field;
    json_decref(text);
    if ((o->field == FIELD_UNKNOWN && o->first) ||
        (o->field == FIELD_ARGUMENTS && o->have_arguments)) {
        p->at = from; /* a bare object that is an answer in JSON, or two sets of arguments */
        return STEP_FAIL;
    }
    o->first = false;
    return body_go(p, COLON);
}

static enum step name_value(struct tool_parser *p)
{
    json_t *text;
    size_t from = p->at;
    enum step s = read_string(p, TOOL_NAME_BYTES_MAX, &text);
    if (s != STEP_AGAIN)
        return s;
    p->tool = p->call_open
                  ? NULL
                  : tool_list_find(p->o.tools, json_string_value(text), json_string_length(text));
    json_decref(text);
    if (!p->tool) {
        p->at = from;
        return STEP_FAIL;
    }
    return body_go(p, AFTER);
}

/* The arguments begin. Without a name they are kept until it comes. False: one call too many. */
static bool open_if_named(struct tool_parser *p)
{
    return !p->tool || p->call_open || call_open(p, NULL);
}

/* Arguments that are a string with the JSON text of an object. */
static enum step encoded_arguments(struct tool_parser *p)
{
    json_t *text;
    size_t from = p->at;
    enum step s = read_string(p, TOOL_HELD_BYTES_MAX, &text);
    if (s != STEP_AGAIN)
        return s;
    const char *object = json_string_value(text);
    size_t len = json_string_length(text);
    bool valid = len > 0 && object[0] == '{' && json_scan_whole(object, len) && open_if_named(p);
    if (valid)
        surrogates_append(&p->surrogates, &p->args, object, len);
    json_decref(text);
    if (!valid) {
        p->at = from;
        return STEP_FAIL;
    }
    p->objects.have_arguments = true;
    call_flush(p);
    return body_go(p, AFTER);
}

static enum step value(struct tool_parser *p, char c)
{
    struct objects_body *o = &p->objects;
    json_scan_init(&p->json);
    if (o->field == FIELD_FUNCTION && c == '{' && !o->wrapped) {
        p->at++;
        o->wrapped = true;
        return body_go(p, KEY);
    }
    if (o->field == FIELD_NAME || o->field == FIELD_FUNCTION)
        return c == '"' ? name_value(p) : STEP_FAIL;
    if (o->field != FIELD_ARGUMENTS || c == 'n')
        return body_go(p, OTHER);
    if (c != '{' && c != '"')
        return STEP_FAIL;
    if (c == '"')
        return encoded_arguments(p);
    if (!open_if_named(p))
        return STEP_FAIL;
    o->have_arguments = true;
    return body_go(p, ARGUMENTS);
}

/* Behind an object: another one, the end of the array, the end mark. */
static enum step next(struct tool_parser *p)
{
    struct objects_body *o = &p->objects;
    const struct tool_format *f = p->o.format;
    char c = p->at < p->len ? p->buf[p->at] : '\0';
    if (c == '{' && p->region_done)
        return body_go(p, START);
    if (((c == ',' || c == ';') && p->region_done) || (c == ']' && o->array) ||
        (c == '}' && o->brace && !o->array)) {
        o->array = o->array && c != ']';
        o->brace = o->brace && c != '}';
        p->at++;
        if (p->region_done)
            call_take(p);
        return STEP_AGAIN;
    }
    enum match m = f->call_end && p->at < p->len ? read_mark(p, f->call_end) : MATCH_NO;
    if (m == MATCH_PART)
        return STEP_WAIT;
    if (m == MATCH_NO && p->region_done && !read_cut_mark(p, f->call_end))
        p->at = p->mark;
    return STEP_CLOSED;
}

enum step objects_step(struct tool_parser *p)
{
    enum step s;
    if (p->body_state == ARGUMENTS || p->body_state == OTHER) {
        s = json_run(p, p->body_state == ARGUMENTS ? SINK_ARGUMENTS : SINK_NONE);
        return s == STEP_CLOSED ? body_go(p, AFTER) : s;
    }
    read_space(p);
    if (p->at == p->len && (p->body_state != NEXT || !p->final))
        return STEP_WAIT;
    char c = p->at < p->len ? p->buf[p->at] : '\0';
    switch (p->body_state) {
    case START:
        return start(p, c);
    case KEY:
        return key(p, c);
    case VALUE:
        return value(p, c);
    case NEXT:
        return next(p);
    case COLON:
        if (c != ':')
            return STEP_FAIL;
        p->at++;
        return body_go(p, VALUE);
    default: /* AFTER */
        if (c == '}')
            return object_end(p);
        if (c != ',')
            return STEP_FAIL;
        p->at++;
        return body_go(p, KEY);
    }
}
