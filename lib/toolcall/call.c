/* The events of a call, and its id. */
#include "toolcall/parser.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Events ---- */

static void emit(struct tool_parser *p, struct tool_event event)
{
    event.index = p->calls;
    p->o.on_event(p->o.context, &event);
}

void emit_text(struct tool_parser *p, enum tool_event_kind kind, const char *text, size_t len)
{
    if (len > 0)
        emit(p, (struct tool_event){.kind = kind, .text = text, .len = len});
}

static void emit_begin(struct tool_parser *p, const char *id, const struct tool *tool)
{
    emit(p, (struct tool_event){.kind = TOOL_CALL_BEGIN, .id = id, .name = tool->name});
}

static void emit_end(struct tool_parser *p, bool complete)
{
    emit(p, (struct tool_event){.kind = TOOL_CALL_END, .complete = complete});
    p->calls++;
}

/* ---- Ids ---- */

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

/* ---- A call ---- */

bool call_waits(const struct tool_parser *p)
{
    return p->o.whole_calls || p->from_reasoning;
}

bool call_open(struct tool_parser *p, const char *id)
{
    if (p->calls == TOOL_CALLS_MAX || p->held.text.len > TOOL_HELD_BYTES_MAX)
        return false;
    make_id(p, id);
    p->call_open = true;
    if (!call_waits(p))
        emit_begin(p, p->id, p->tool);
    return true;
}

void call_flush(struct tool_parser *p)
{
    if (!p->call_open || call_waits(p))
        return;
    emit_text(p, TOOL_ARGUMENTS, p->args.data, p->args.len);
    strbuf_clear(&p->args);
    p->mark = p->at;
}

void call_fail(struct tool_parser *p)
{
    if (p->call_open && !call_waits(p))
        emit_end(p, false);
    p->call_open = false;
    strbuf_clear(&p->args);
}

void call_take(struct tool_parser *p)
{
    if (p->held.n)
        strbuf_append(&p->held.text, p->buf + p->mark, p->at - p->mark);
    p->mark = p->at;
}

/* ---- Calls of reasoning ---- */

static struct held_call *held_new(struct held_calls *h)
{
    if (h->n == h->capacity) {
        uint32_t capacity = h->capacity ? h->capacity * 2 : 4;
        struct held_call *larger = realloc(h->calls, capacity * sizeof *larger);
        if (!larger)
            return NULL;
        h->calls = larger;
        h->capacity = capacity;
    }
    return &h->calls[h->n++];
}

static void hold(struct tool_parser *p)
{
    struct held_call *call = held_new(&p->held);
    p->calls++;
    if (!call) {
        p->failed = true;
        return;
    }
    call->tool = p->tool;
    memcpy(call->id, p->id, sizeof call->id);
    call->from = p->held.args.len;
    strbuf_append(&p->held.args, p->args.data, p->args.len);
    call->to = p->held.args.len;
    p->failed |= p->held.args.failed;
    p->mark_len = 0;
    call_take(p);
}

static void held_clear(struct held_calls *h)
{
    h->n = 0;
    strbuf_clear(&h->args);
    strbuf_clear(&h->text);
}

void held_give(struct tool_parser *p)
{
    struct held_calls *h = &p->held;
    uint32_t n = p->o.parallel || h->n == 0 ? h->n : 1;
    p->calls -= h->n;
    for (uint32_t i = 0; i < n; i++) {
        const struct held_call *call = &h->calls[i];
        emit_begin(p, call->id, call->tool);
        emit_text(p, TOOL_ARGUMENTS, h->args.data + call->from, call->to - call->from);
        emit_end(p, true);
    }
    held_clear(h);
    p->from_reasoning = false;
    p->started = true;
    p->stopped = !p->o.parallel;
}

void held_drop(struct tool_parser *p)
{
    p->calls -= p->held.n;
    emit_text(p, TOOL_REASONING, p->held.text.data, p->held.text.len);
    held_clear(&p->held);
}

void held_fini(struct held_calls *h)
{
    strbuf_fini(&h->args);
    strbuf_fini(&h->text);
    free(h->calls);
}

void call_close(struct tool_parser *p)
{
    p->region_done = true;
    if (p->from_reasoning) {
        hold(p);
    } else {
        if (call_waits(p))
            emit_begin(p, p->id, p->tool);
        emit_text(p, TOOL_ARGUMENTS, p->args.data, p->args.len);
        emit_end(p, true);
        p->mark = p->at;
        p->started = true;
        p->stopped = !p->o.parallel;
    }
    strbuf_clear(&p->args);
    p->call_open = false;
}
