/* Answers of Anthropic's Messages API; see anthropic.h. */
#include "client/http/api/anthropic.h"

#include "client/http/api/answer.h"
#include "client/http/api/answer_usage.h"
#include "client/http/api/ask_body.h"
#include "client/http/api/question.h"
#include "client/http/api/stream.h"

#include <string.h>

static void stop_json(const struct choice *c, struct strbuf *out)
{
    const struct ask *ask = &c->answer->ask;
    int64_t stop = c->result.stop_index;
    if (choice_has_calls(c)) {
        strbuf_printf(out, "\"stop_reason\":\"tool_use\",\"stop_sequence\":null");
        return;
    }
    switch (c->result.reason) {
    case MOED_REASON_LENGTH:
        strbuf_printf(out, "\"stop_reason\":\"max_tokens\",\"stop_sequence\":null");
        break;
    case MOED_REASON_CONTEXT:
        strbuf_printf(out, "\"stop_reason\":\"model_context_window_exceeded\","
                           "\"stop_sequence\":null");
        break;
    case MOED_REASON_STOP:
        strbuf_printf(out, "\"stop_reason\":\"stop_sequence\",\"stop_sequence\":");
        if (stop >= 0 && (uint64_t)stop < ask->stop_count)
            strbuf_json_string(out, ask->stops[stop].data, ask->stops[stop].len);
        else
            strbuf_printf(out, "null");
        break;
    default:
        strbuf_printf(out, "\"stop_reason\":\"end_turn\",\"stop_sequence\":null");
        break;
    }
}

static void head_json(const struct answer *a, struct strbuf *out)
{
    strbuf_printf(out, "{\"id\":\"%s\",\"type\":\"message\",\"role\":\"assistant\"", a->id);
    json_string_member(out, "model", a->model);
}

static void usage_json(unsigned long long in, const struct answer_usage *u, struct strbuf *out)
{
    strbuf_printf(out,
                  "\"usage\":{\"input_tokens\":%llu,\"cache_read_input_tokens\":%llu,"
                  "\"cache_creation_input_tokens\":0,\"output_tokens\":%llu}",
                  in - u->cached, (unsigned long long)u->cached, (unsigned long long)u->out);
}

/* Stands where Anthropic signs what its models thought; nothing checks it here. */
#define SIGNATURE "moed"

/* A block; full: with its text, else as it begins in a stream. */
static void block_json(const struct part *part, bool full, struct strbuf *out)
{
    const char *text = part->text.data;
    size_t len = full ? part->text.len : 0;
    if (part->kind == PART_TEXT) {
        strbuf_printf(out, "{\"type\":\"text\"");
        json_member(out, "text", text, len);
    } else if (part->kind == PART_REASONING) {
        strbuf_printf(out, "{\"type\":\"thinking\"");
        json_member(out, "thinking", text, len);
        strbuf_printf(out, ",\"signature\":\"%s\"", full ? SIGNATURE : "");
    } else {
        strbuf_printf(out, "{\"type\":\"tool_use\",\"id\":\"%s\"", part->id);
        json_string_member(out, "name", part->name);
        strbuf_printf(out, ",\"input\":");
        if (full)
            output_arguments_json(part, out);
        else
            strbuf_printf(out, "{}");
    }
    strbuf_printf(out, "}");
}

static void write_whole(struct answer *a)
{
    struct strbuf *out = &a->x->out;
    const struct choice *c = &a->choices[0];
    struct answer_usage u = answer_usage(a);
    head_json(a, out);
    strbuf_printf(out, ",\"content\":[");
    for (unsigned i = 0; i < c->output.count; i++) {
        strbuf_printf(out, "%s", i ? "," : "");
        block_json(&c->output.parts[i], true, out);
    }
    strbuf_printf(out, "],");
    stop_json(c, out);
    strbuf_printf(out, ",");
    usage_json(u.in, &u, out);
    strbuf_printf(out, "}");
}

static void write_begin(struct answer *a)
{
    struct strbuf *out = &a->x->out;
    struct answer_usage u = {0};
    event_begin(out, "message_start");
    strbuf_printf(out, "{\"type\":\"message_start\",\"message\":");
    head_json(a, out);
    strbuf_printf(out, ",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,");
    usage_json(a->ask.prompts[0].token_count, &u, out);
    strbuf_printf(out, "}}");
    event_end(out);
}

static void write_part_begin(struct choice *c, const struct part *part)
{
    struct strbuf *out = &c->answer->x->out;
    event_begin(out, "content_block_start");
    strbuf_printf(out,
                  "{\"type\":\"content_block_start\",\"index\":%u,\"content_block\":", part->index);
    block_json(part, false, out);
    strbuf_printf(out, "}");
    event_end(out);
}

static void delta_event(struct choice *c, const struct part *part, const char *type,
                        const char *member, const char *text, size_t len)
{
    struct strbuf *out = &c->answer->x->out;
    event_begin(out, "content_block_delta");
    strbuf_printf(out, "{\"type\":\"content_block_delta\",\"index\":%u,\"delta\":{\"type\":\"%s\"",
                  part->index, type);
    json_member(out, member, text, len);
    strbuf_printf(out, "}}");
    event_end(out);
}

static void write_part_text(struct choice *c, const struct part *part, const char *text, size_t len)
{
    if (part->kind == PART_TEXT)
        delta_event(c, part, "text_delta", "text", text, len);
    else if (part->kind == PART_REASONING)
        delta_event(c, part, "thinking_delta", "thinking", text, len);
    else
        delta_event(c, part, "input_json_delta", "partial_json", text, len);
}

static void write_part_end(struct choice *c, const struct part *part)
{
    struct strbuf *out = &c->answer->x->out;
    if (part->kind == PART_REASONING)
        delta_event(c, part, "signature_delta", "signature", SIGNATURE, strlen(SIGNATURE));
    event_begin(out, "content_block_stop");
    strbuf_printf(out, "{\"type\":\"content_block_stop\",\"index\":%u}", part->index);
    event_end(out);
}

static void write_end_choice(struct choice *c) {}

static void write_end(struct answer *a)
{
    struct strbuf *out = &a->x->out;
    struct answer_usage u = answer_usage(a);
    event_begin(out, "message_delta");
    strbuf_printf(out, "{\"type\":\"message_delta\",\"delta\":{");
    stop_json(&a->choices[0], out);
    strbuf_printf(out, "},");
    usage_json(u.in, &u, out);
    strbuf_printf(out, "}");
    event_end(out);
    event_begin(out, "message_stop");
    strbuf_printf(out, "{\"type\":\"message_stop\"}");
    event_end(out);
}

static void write_fail(struct answer *a, const struct problem *p)
{
    event_begin(&a->x->out, "error");
    problem_body(p, HTTP_API_ANTHROPIC, &a->x->out);
    event_end(&a->x->out);
}

static void write_ping(struct answer *a)
{
    event_begin(&a->x->out, "ping");
    strbuf_printf(&a->x->out, "{\"type\":\"ping\"}");
    event_end(&a->x->out);
}

const struct dialect message_dialect = {
    .stream_type = EVENT_STREAM,
    .begin = write_begin,
    .parts.begin = write_part_begin,
    .parts.text = write_part_text,
    .parts.end = write_part_end,
    .end_choice = write_end_choice,
    .end = write_end,
    .whole = write_whole,
    .fail = write_fail,
    .keep_alive = write_ping,
};

static bool parse_message(struct ask *ask, const char *body, size_t len, struct problem *p)
{
    return parse_messages(ask, body, len, false, p);
}

static bool parse_count(struct ask *ask, const char *body, size_t len, struct problem *p)
{
    return parse_messages(ask, body, len, true, p);
}

static void take_messages(struct exchange *x, struct ask *ask)
{
    answer_start(x, ask, &message_dialect, "msg_");
}

void handle_messages(struct exchange *x)
{
    ask_body(x, parse_message, take_messages);
}

static void write_count(struct question *q)
{
    strbuf_printf(&q->x->out, "{\"input_tokens\":%zu}", q->token_count);
}

static void take_count(struct exchange *x, struct ask *ask)
{
    static const struct question_kind kind = {.work = question_render, .write = write_count};
    question_start(x, ask, &kind);
}

void handle_count_tokens(struct exchange *x)
{
    ask_body(x, parse_count, take_count);
}
