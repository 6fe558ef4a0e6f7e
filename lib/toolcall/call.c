/* The events of a call, and its id. */
#include "toolcall/parser.h"

#include <stdio.h>
#include <string.h>

void emit_text(struct tool_parser *p, enum tool_event_kind kind, const char *text, size_t len)
{
    if (len == 0)
        return;
    p->o.on_event(p->o.context,
                  &(struct tool_event){.kind = kind, .index = p->calls, .text = text, .len = len});
}

/* splitmix64 (Steele, Lea, Flood, OOPSLA 2014, figure 15) */
static uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static void random_letters(struct tool_parser *p, char *out, size_t n)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    for (size_t i = 0; i < n; i++)
        out[i] = letters[random_next(&p->id_state) % (sizeof letters - 1)];
    out[n] = '\0';
}

static void make_id(struct tool_parser *p, const char *id)
{
    if (id)
        snprintf(p->id, sizeof p->id, "%s", id);
    else if (p->o.format->id == ID_ORDINAL)
        snprintf(p->id, sizeof p->id, "functions.%s:%u", p->tool->name, p->calls);
    else if (p->o.format->id == ID_NINE)
        random_letters(p, p->id, 9);
    else {
        memcpy(p->id, "call_", 5);
        random_letters(p, p->id + 5, 24);
    }
}

static void emit_call(struct tool_parser *p, enum tool_event_kind kind)
{
    struct tool_event event = {.kind = kind, .index = p->calls};
    if (kind == TOOL_CALL_BEGIN) {
        event.id = p->id;
        event.name = p->tool->name;
    } else if (kind == TOOL_ARGUMENTS) {
        event.text = p->args.data;
        event.len = p->args.len;
    } else {
        event.complete = true;
    }
    p->o.on_event(p->o.context, &event);
}

bool call_waits(const struct tool_parser *p)
{
    return p->o.whole_calls || p->from_reasoning;
}

bool call_open(struct tool_parser *p, const char *id)
{
    if (p->calls == TOOL_CALLS_MAX)
        return false;
    make_id(p, id);
    p->call_open = true;
    if (!call_waits(p))
        emit_call(p, TOOL_CALL_BEGIN);
    return true;
}

void call_flush(struct tool_parser *p)
{
    if (!p->call_open || call_waits(p))
        return;
    if (p->args.len > 0)
        emit_call(p, TOOL_ARGUMENTS);
    strbuf_clear(&p->args);
    p->mark = p->at;
}

void call_close(struct tool_parser *p)
{
    if (call_waits(p))
        emit_call(p, TOOL_CALL_BEGIN);
    if (p->args.len > 0)
        emit_call(p, TOOL_ARGUMENTS);
    emit_call(p, TOOL_CALL_END);
    strbuf_clear(&p->args);
    p->call_open = false;
    p->calls++;
    p->mark = p->at;
    p->region_done = p->started = true;
    p->reasoning_unended = p->reasoning_unended || p->from_reasoning;
    p->from_reasoning = false;
    p->stopped = !p->o.parallel;
}
