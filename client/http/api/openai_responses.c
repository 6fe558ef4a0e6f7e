/* Answers of OpenAI's Responses API; see openai_responses.h. */
#include "client/http/api/openai_responses.h"
#include "client/http/api/answer_usage.h"

#include "client/http/api/ask_body.h"
#include "client/http/api/openai.h"
#include "client/http/api/question.h"
#include "client/http/api/stream.h"

#include "json/json_write.h"

#include <string.h>
#include <time.h>

/* Each part of the answer is an item. Text and reasoning have one part of content. */
struct item_kind {
    const char *id_prefix, *type;
    const char *delta, *done; /* a stream's events */
};

static const struct item_kind item_kinds[] = {
    [PART_TEXT] = {"msg", "message", "response.output_text.delta", "response.output_text.done"},
    [PART_REASONING] = {"rs", "reasoning", "response.reasoning_text.delta",
                        "response.reasoning_text.done"},
    [PART_CALL] = {"fc", "function_call", "response.function_call_arguments.delta",
                   "response.function_call_arguments.done"},
};
static const struct item_kind custom_call = {"ctc", "custom_tool_call",
                                             "response.custom_tool_call_input.delta",
                                             "response.custom_tool_call_input.done"};

static const struct item_kind *item_kind(const struct choice *c, const struct part *part)
{
    bool custom =
        part->kind == PART_CALL && json_object_get(c->answer->ask.custom_tools, part->name);
    return custom ? &custom_call : &item_kinds[part->kind];
}

static void id_json(const struct choice *c, const struct part *part, struct strbuf *out)
{
    strbuf_printf(out, "\"%s_%s_%u\"", item_kind(c, part)->id_prefix,
                  c->answer->id + strlen("resp_"), part->index);
}

/* The last text has the log-probabilities of the whole answer. */
static void content_json(const struct choice *c, const struct part *part, bool full,
                         struct strbuf *out)
{
    strbuf_printf(out, "{\"type\":\"%s\"",
                  part->kind == PART_TEXT ? "output_text" : "reasoning_text");
    json_member(out, "text", part->text.data, full ? part->text.len : 0);
    if (part->kind == PART_TEXT) {
        bool last = full && part == output_last_text(&c->output);
        strbuf_printf(out, ",\"annotations\":[],\"logprobs\":");
        scores_json(&c->scores, 0, last ? choice_settled_scores(c) : 0, c->answer->vocabulary, out);
    }
    strbuf_printf(out, "}");
}

static const char *status_of(const struct part *part, bool full)
{
    return !full ? "in_progress" : part->complete ? "completed" : "incomplete";
}

/* The input of a custom tool's call; of one that broke off as much as has come. */
static void input_member(const struct part *part, struct strbuf *out)
{
    struct custom_input in = {0};
    struct strbuf input;
    strbuf_init(&input);
    custom_input_take(&in, part->text.data, part->text.len, &input);
    json_member(out, "input", input.data, input.len);
    out->failed = out->failed || input.failed;
    strbuf_fini(&input);
}

static void call_json(const struct choice *c, const struct part *part, bool full,
                      struct strbuf *out)
{
    bool custom = item_kind(c, part) == &custom_call;
    strbuf_printf(out, ",\"call_id\":\"%s\"", part->id);
    json_string_member(out, "name", part->name);
    if (!full)
        strbuf_printf(out, custom ? ",\"input\":\"\"" : ",\"arguments\":\"\"");
    else if (custom)
        input_member(part, out);
    else
        output_arguments_member(part, out);
    strbuf_printf(out, ",\"status\":\"%s\"}", status_of(part, full));
}

static void item_json(const struct choice *c, const struct part *part, bool full,
                      struct strbuf *out)
{
    strbuf_printf(out, "{\"type\":\"%s\",\"id\":", item_kind(c, part)->type);
    id_json(c, part, out);
    if (part->kind == PART_CALL) {
        call_json(c, part, full, out);
        return;
    }
    strbuf_printf(out, part->kind == PART_TEXT ? ",\"role\":\"assistant\"" : ",\"summary\":[]");
    strbuf_printf(out, ",\"status\":\"%s\",\"content\":[", status_of(part, full));
    if (full)
        content_json(c, part, true, out);
    strbuf_printf(out, "]}");
}

static bool is_cut(const struct answer *a)
{
    return choice_is_cut(&a->choices[0]);
}

static void usage_json(const struct answer *a, struct strbuf *out)
{
    struct answer_usage u = answer_usage(a);
    strbuf_printf(out,
                  "{\"input_tokens\":%llu,\"input_tokens_details\":{\"cached_tokens\":%llu,\"cache_"
                  "write_tokens\":0},"
                  "\"output_tokens\":%llu,\"output_tokens_details\":{\"reasoning_tokens\":%llu},"
                  "\"total_tokens\":%llu}",
                  (unsigned long long)u.in, (unsigned long long)u.cached, (unsigned long long)u.out,
                  (unsigned long long)u.reasoning, (unsigned long long)(u.in + u.out));
}

/* A member of the request, without what has no effect here. */
static void repeat_json(const struct answer *a, const char *name, const char *without,
                        struct strbuf *out)
{
    const json_t *value = json_object_get(a->ask.root, name);
    strbuf_printf(out, ",\"%s\":", name);
    if (value && !json_is_null(value))
        json_write(value, JSON_WITHOUT_BLANKS, out);
    else
        strbuf_printf(out, "%s", without);
}

/* What a response repeats of its request. */
static void echo_json(const struct answer *a, struct strbuf *out)
{
    struct moed_sampling s = ask_shown(&a->ask, a->deployment ? a->deployment->facts : NULL);
    const char *instructions = json_string_value(json_object_get(a->ask.root, "instructions"));
    strbuf_printf(out, ",\"temperature\":%.6g,\"top_p\":%.6g", (double)s.temperature,
                  (double)s.top_p);
    if (instructions)
        json_string_member(out, "instructions", instructions);
    else
        strbuf_printf(out, ",\"instructions\":null");
    if (a->ask.max_tokens)
        strbuf_printf(out, ",\"max_output_tokens\":%u", a->ask.max_tokens);
    else
        strbuf_printf(out, ",\"max_output_tokens\":null");
    strbuf_printf(out, ",\"parallel_tool_calls\":%s", a->ask.one_call ? "false" : "true");
    repeat_json(a, "tool_choice", "\"auto\"", out);
    repeat_json(a, "tools", "[]", out);
    repeat_json(a, "text", "{\"format\":{\"type\":\"text\"}}", out);
    repeat_json(a, "metadata", "{}", out);
    repeat_json(a, "reasoning", "{\"effort\":null,\"summary\":null}", out);
    repeat_json(a, "truncation", "\"disabled\"", out);
    repeat_json(a, "user", "null", out);
    repeat_json(a, "safety_identifier", "null", out);
    repeat_json(a, "prompt_cache_key", "null", out);
    strbuf_printf(out, ",\"presence_penalty\":%.6g,\"frequency_penalty\":%.6g,\"top_logprobs\":%u",
                  (double)s.presence_penalty, (double)s.frequency_penalty, a->ask.top_logprobs);
    strbuf_printf(out, ",\"store\":false,\"background\":false,\"previous_response_id\":null,"
                       "\"max_tool_calls\":null,\"service_tier\":\"default\"");
}

/* By `context_length_exceeded` clients know that they must shorten the conversation. */
static const char *failure_code(const struct problem *failure)
{
    if (failure->code)
        return failure->code;
    return failure->status < 500 ? "invalid_prompt" : "server_error";
}

static void response_json(const struct answer *a, bool full, const struct problem *failure,
                          struct strbuf *out)
{
    const char *status = failure     ? "failed"
                         : !full     ? "in_progress"
                         : is_cut(a) ? "incomplete"
                                     : "completed";
    strbuf_printf(out, "{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%lld", a->id,
                  (long long)a->created);
    json_string_member(out, "model", a->model);
    strbuf_printf(out, ",\"status\":\"%s\"", status);
    if (failure) {
        strbuf_printf(out, ",\"error\":{\"code\":\"%s\"", failure_code(failure));
        json_string_member(out, "message", failure->message);
        strbuf_printf(out, "}");
    } else {
        strbuf_printf(out, ",\"error\":null");
    }
    strbuf_printf(out, full && is_cut(a)
                           ? ",\"incomplete_details\":{\"reason\":\"max_output_tokens\"}"
                           : ",\"incomplete_details\":null");
    if (full && !failure && !is_cut(a))
        strbuf_printf(out, ",\"completed_at\":%lld", (long long)time(NULL));
    else
        strbuf_printf(out, ",\"completed_at\":null");
    echo_json(a, out);
    strbuf_printf(out, ",\"output\":[");
    for (unsigned i = 0; full && i < a->choices[0].output.count; i++) {
        strbuf_printf(out, "%s", i ? "," : "");
        item_json(&a->choices[0], &a->choices[0].output.parts[i], true, out);
    }
    strbuf_printf(out, "],\"usage\":");
    if (full)
        usage_json(a, out);
    else
        strbuf_printf(out, "null");
    strbuf_printf(out, "}");
}

static void write_whole(struct answer *a)
{
    response_json(a, true, NULL, &a->x->out);
}

/* ---- The stream ---- */

static struct strbuf *begin_event(struct answer *a, const char *type)
{
    struct strbuf *out = &a->x->out;
    event_begin(out, type);
    strbuf_printf(out, "{\"type\":\"%s\",\"sequence_number\":%u", type, a->n_events++);
    return out;
}

static void end_event(struct strbuf *out)
{
    strbuf_printf(out, "}");
    event_end(out);
}

static void response_event(struct answer *a, const char *type, bool full,
                           const struct problem *failure)
{
    struct strbuf *out = begin_event(a, type);
    strbuf_printf(out, ",\"response\":");
    response_json(a, full, failure, out);
    end_event(out);
}

/* Begins an event about a part: its item, and its place in it. */
static struct strbuf *begin_part_event(struct choice *c, const struct part *part, const char *type)
{
    struct strbuf *out = begin_event(c->answer, type);
    strbuf_printf(out, ",\"item_id\":");
    id_json(c, part, out);
    strbuf_printf(out, ",\"output_index\":%u", part->index);
    if (part->kind != PART_CALL)
        strbuf_printf(out, ",\"content_index\":0");
    return out;
}

static void item_event(struct choice *c, const struct part *part, const char *type, bool full)
{
    struct strbuf *out = begin_event(c->answer, type);
    strbuf_printf(out, ",\"output_index\":%u,\"item\":", part->index);
    item_json(c, part, full, out);
    end_event(out);
}

static void content_event(struct choice *c, const struct part *part, const char *type, bool full)
{
    struct strbuf *out = begin_part_event(c, part, type);
    strbuf_printf(out, ",\"part\":");
    content_json(c, part, full, out);
    end_event(out);
}

static void write_begin(struct answer *a)
{
    response_event(a, "response.created", false, NULL);
    response_event(a, "response.in_progress", false, NULL);
}

static void write_part_begin(struct choice *c, const struct part *part)
{
    c->answer->custom = (struct custom_input){0};
    item_event(c, part, "response.output_item.added", false);
    if (part->kind != PART_CALL)
        content_event(c, part, "response.content_part.added", false);
}

/* Log-probabilities that the client does not have yet. */
static void new_scores_json(struct choice *c, struct strbuf *out)
{
    struct scores *s = &c->scores;
    size_t settled = choice_settled_scores(c);
    strbuf_printf(out, ",\"logprobs\":");
    scores_json(s, s->written, settled, c->answer->vocabulary, out);
    s->written = settled;
}

static void write_delta(struct choice *c, const struct part *part, const char *text, size_t len)
{
    struct strbuf *out = begin_part_event(c, part, item_kind(c, part)->delta);
    json_member(out, "delta", text, len);
    if (part->kind == PART_TEXT)
        new_scores_json(c, out);
    end_event(out);
}

static void write_part_text(struct choice *c, const struct part *part, const char *text, size_t len)
{
    struct strbuf input;
    if (item_kind(c, part) != &custom_call) {
        write_delta(c, part, text, len);
        return;
    }
    strbuf_init(&input);
    custom_input_take(&c->answer->custom, text, len, &input);
    if (input.len)
        write_delta(c, part, input.data, input.len);
    c->answer->x->out.failed = c->answer->x->out.failed || input.failed;
    strbuf_fini(&input);
}

static void write_part_end(struct choice *c, const struct part *part)
{
    const struct item_kind *kind = item_kind(c, part);
    struct strbuf *out = begin_part_event(c, part, kind->done);
    if (kind == &custom_call) {
        input_member(part, out);
    } else if (part->kind == PART_CALL) {
        json_string_member(out, "name", part->name);
        output_arguments_member(part, out);
    } else {
        json_member(out, "text", part->text.data, part->text.len);
    }
    if (part->kind == PART_TEXT)
        new_scores_json(c, out);
    end_event(out);
    if (part->kind != PART_CALL)
        content_event(c, part, "response.content_part.done", true);
    item_event(c, part, "response.output_item.done", true);
}

static void write_end_choice(struct choice *c) {}

static void write_end(struct answer *a)
{
    response_event(a, is_cut(a) ? "response.incomplete" : "response.completed", true, NULL);
}

static void write_fail(struct answer *a, const struct problem *p)
{
    response_event(a, "response.failed", false, p);
}

static void write_keep_alive(struct answer *a)
{
    event_comment(&a->x->out);
}

const struct dialect response_dialect = {
    .stream_type = EVENT_STREAM,
    .parts.keeps_text = true,
    .begin = write_begin,
    .parts.begin = write_part_begin,
    .parts.text = write_part_text,
    .parts.end = write_part_end,
    .end_choice = write_end_choice,
    .end = write_end,
    .whole = write_whole,
    .fail = write_fail,
    .keep_alive = write_keep_alive,
};

static void take_responses(struct exchange *x, struct ask *ask)
{
    answer_start(x, ask, &response_dialect, "resp_");
}

void handle_responses(struct exchange *x)
{
    ask_body(x, parse_response, take_responses);
}

static void write_count(struct question *q)
{
    strbuf_printf(&q->x->out, "{\"object\":\"response.input_tokens\",\"input_tokens\":%zu}",
                  q->token_count);
}

static void take_count(struct exchange *x, struct ask *ask)
{
    static const struct question_kind kind = {.work = question_render, .write = write_count};
    question_start(x, ask, &kind);
}

void handle_input_tokens(struct exchange *x)
{
    ask_body(x, parse_input_tokens, take_count);
}

void handle_chat_input_tokens(struct exchange *x)
{
    ask_body(x, parse_chat, take_count);
}
