/* POST /v1/chat/completions */
#include "client/http/api/conversation.h"
#include "client/http/api/answer_usage.h"
#include "client/http/api/ask_body.h"
#include "client/http/api/content.h"
#include "client/http/api/messages.h"
#include "client/http/api/openai.h"
#include "client/http/api/stream.h"
#include "client/http/api/structure.h"
#include "client/http/api/timings.h"

#include <string.h>

/* ---- The request ---- */

static bool take_modalities(struct ask *ask, json_t *value, struct problem *p)
{
    const char *first = json_string_value(json_array_get(value, 0));
    if (json_array_size(value) == 1 && first && strcmp(first, "text") == 0)
        return true;
    return problem_set(p, 400, "only [\"text\"] is supported");
}

/* Text, or parts that are text. */
static bool is_prediction(const json_t *content)
{
    bool good = json_is_string(content) || json_is_array(content);
    for (size_t i = 0; good && i < json_array_size(content); i++)
        good = content_has_type(json_array_get(content, i), "text");
    return good;
}

static bool take_prediction(struct ask *ask, json_t *value, struct problem *p)
{
    const json_t *content = json_object_get(value, "content");
    if (json_is_null(value))
        return true;
    if (!content_has_type(value, "content") || !is_prediction(content))
        return problem_set(
            p, 400,
            "{\"type\": \"content\", \"content\": ...} is expected, with a string or "
            "an array of parts {\"type\": \"text\", \"text\": ...}");
    json_decref(ask->prediction_text);
    ask->prediction_text = content_text(content, CONTENT_ANSWER, "prediction.content", p);
    return ask->prediction_text != NULL;
}

static const struct parameter chat_parameters[] = {
    {.name = "messages", .take = take_messages},
    {.name = "model", .take = take_model},
    {.name = "stream", .take = take_stream},
    {.name = "stream_options", .take = take_stream_options},
    {.name = "return_progress", .take = take_return_progress}, /* llama-server's, as the next */
    {.name = "timings_per_token", .take = take_timings_per_token},
    {.name = "max_completion_tokens", .take = take_max_completion_tokens},
    {.name = "n_predict", .take = take_n_predict}, /* llama-server's */
    {.name = "max_tokens", .take = take_max_tokens},
    {.name = "n", .take = take_n},
    {.name = "modalities", .take = take_modalities},
    {.name = "logprobs", .take = take_logprobs},
    {.name = "top_logprobs", .take = take_top_logprobs},
    {.name = "tools", .take = take_tools},
    {.name = "tool_choice", .take = take_tool_choice},
    {.name = "parallel_tool_calls", .take = take_parallel_calls},
    {.name = "response_format", .take = take_response_format},
    {.name = "prediction", .take = take_prediction},
    {.name = "structured output", .more = structure_parameters},
    {.name = "samplers and penalties", .more = sampling_parameters},
    {.name = "reasoning and the prompt's end", .more = chat_extensions},
    {.name = "functions", .refused = "use tools"},
    {.name = "function_call", .refused = "use tool_choice", .neutral = "none"},
    {.name = "audio", .refused = "the models are for text"},
    {.name = "web_search_options", .refused = "there is no web search"},
    {.name = "moderation", .refused = "there is no moderation"},
    {.name = "verbosity"},
    {.name = "user"},
    {.name = "safety_identifier"},
    {.name = "prompt_cache_key"},
    {.name = "prompt_cache_retention"},
    {.name = "prompt_cache_options"},
    {.name = "service_tier", .take = take_service_tier},
    {.name = "store"},
    {.name = "metadata"},
    {0},
};

bool parse_chat(struct ask *ask, const char *body, size_t len, struct problem *p)
{
    if (!ask_parse(ask, body, len, p) || !ask_take(ask, chat_parameters, ask->root, p))
        return false;
    if (!ask->messages)
        return problem_refuse(p, 400, "messages", "messages is missing");
    if (ask->top_logprobs && !ask->logprobs)
        return problem_refuse(p, 400, "top_logprobs", "top_logprobs needs logprobs: true");
    return ask_check_limit(ask, "max_completion_tokens", p) && finish_tools(ask, p) &&
           ask_add_prompt(ask, &(struct ask_prompt){0}, p); /* chat_render fills it */
}

/* ---- The answer ---- */

static void calls_json(const struct output *o, struct strbuf *out)
{
    const char *separator = ",\"tool_calls\":[";
    for (unsigned i = 0; i < o->count; i++) {
        const struct part *part = &o->parts[i];
        if (part->kind != PART_CALL)
            continue;
        strbuf_printf(out, "%s{\"id\":\"%s\",\"type\":\"function\",\"function\":{", separator,
                      part->id);
        json_string_member(out, "name", part->name);
        output_arguments_member(part, out);
        strbuf_printf(out, "}}");
        separator = ",";
    }
    strbuf_printf(out, o->calls ? "]" : "");
}

/* Clients read one of the two names; some that know both refuse an object that has both. */
static void reasoning_json(const struct app *app, const char *text, size_t len, struct strbuf *out)
{
    if (app->reasoning_field != REASONING_FIELD_SHORT)
        json_member(out, "reasoning_content", text, len);
    if (app->reasoning_field != REASONING_FIELD_CONTENT)
        json_member(out, "reasoning", text, len);
}

static void message_json(const struct choice *c, struct strbuf *out)
{
    struct strbuf text, reasoning;
    strbuf_init(&text);
    strbuf_init(&reasoning);
    output_text(&c->output, PART_TEXT, &text);
    output_text(&c->output, PART_REASONING, &reasoning);
    strbuf_printf(out, "{\"role\":\"assistant\"");
    if (text.len || !c->output.calls)
        json_member(out, "content", text.data, text.len);
    else
        strbuf_printf(out, ",\"content\":null");
    if (reasoning.len)
        reasoning_json(c->answer->app, reasoning.data, reasoning.len, out);
    calls_json(&c->output, out);
    strbuf_printf(out, "}");
    out->failed = out->failed || text.failed || reasoning.failed;
    strbuf_fini(&text);
    strbuf_fini(&reasoning);
}

/* Those that the client does not have yet; a whole answer has all, an empty one too. */
static void logprobs_json(struct choice *c, bool whole, struct strbuf *out)
{
    struct scores *s = &c->scores;
    size_t settled = choice_settled_scores(c);
    strbuf_printf(out, ",\"logprobs\":");
    if (!c->answer->ask.logprobs || (s->written == settled && !whole)) {
        strbuf_printf(out, "null");
        return;
    }
    strbuf_printf(out, "{\"content\":");
    scores_json(s, s->written, settled, c->answer->vocabulary, out);
    strbuf_printf(out, ",\"refusal\":null}");
    s->written = settled;
}

static void choice_json(struct choice *c, struct strbuf *out)
{
    strbuf_printf(out, "{\"index\":%u,\"message\":", c->index);
    message_json(c, out);
    logprobs_json(c, true, out);
    strbuf_printf(out, ",\"finish_reason\":\"%s\"}", openai_finish_reason(c));
}

static void write_whole(struct answer *a)
{
    struct strbuf *out = &a->x->out;
    openai_head(a, "chat.completion", out);
    strbuf_printf(out, ",\"choices\":[");
    for (unsigned i = 0; i < a->n_choices; i++) {
        strbuf_printf(out, "%s", i ? "," : "");
        choice_json(&a->choices[i], out);
    }
    strbuf_printf(out, "]");
    openai_usage(a, out);
    timings_json(&a->choices[0], out);
    strbuf_printf(out, "}");
}

#define CHUNK "chat.completion.chunk"

/* progress: of the prompt; NULL: nothing about it */
static struct strbuf *begin_chunk_of(struct choice *c, const struct moed_progress *progress)
{
    struct strbuf *out = &c->answer->x->out;
    event_begin(out, NULL);
    openai_head(c->answer, CHUNK, out);
    if (progress)
        timings_progress_json(progress, out);
    strbuf_printf(out, ",\"choices\":[{\"index\":%u,\"delta\":{", c->index);
    return out;
}

static struct strbuf *begin_chunk(struct choice *c)
{
    return begin_chunk_of(c, NULL);
}

static void end_chunk(struct choice *c, const char *finish_reason)
{
    struct strbuf *out = &c->answer->x->out;
    strbuf_printf(out, "}");
    logprobs_json(c, false, out);
    if (finish_reason)
        strbuf_printf(out, ",\"finish_reason\":\"%s\"}]", finish_reason);
    else
        strbuf_printf(out, ",\"finish_reason\":null}]");
    openai_chunk_usage(c->answer, out);
    if (finish_reason)
        timings_json(c, out);
    else
        timings_chunk_json(c, out);
    strbuf_printf(out, "}");
    event_end(out);
}

static void write_begin(struct answer *a)
{
    for (unsigned i = 0; i < a->n_choices; i++) {
        struct strbuf *out = begin_chunk(&a->choices[i]);
        strbuf_printf(out, "\"role\":\"assistant\",\"content\":\"\"");
        end_chunk(&a->choices[i], NULL);
    }
}

/* As llama-server writes it. */
static void write_progress(struct choice *c, const struct moed_progress *progress)
{
    begin_chunk_of(c, progress);
    end_chunk(c, NULL);
}

static void write_part_begin(struct choice *c, const struct part *part)
{
    if (part->kind != PART_CALL)
        return;
    struct strbuf *out = begin_chunk(c);
    strbuf_printf(out,
                  "\"tool_calls\":[{\"index\":%u,\"id\":\"%s\",\"type\":\"function\","
                  "\"function\":{",
                  part->call, part->id);
    json_string_member(out, "name", part->name);
    strbuf_printf(out, ",\"arguments\":\"\"}}]");
    end_chunk(c, NULL);
}

static void write_part_text(struct choice *c, const struct part *part, const char *text, size_t len)
{
    struct strbuf *out = begin_chunk(c);
    if (part->kind == PART_TEXT) {
        json_member(out, "content", text, len);
    } else if (part->kind == PART_REASONING) {
        reasoning_json(c->answer->app, text, len, out);
    } else {
        strbuf_printf(out, "\"tool_calls\":[{\"index\":%u,\"function\":{", part->call);
        json_member(out, "arguments", text, len);
        strbuf_printf(out, "}}]");
    }
    end_chunk(c, NULL);
}

static void write_end_choice(struct choice *c)
{
    begin_chunk(c);
    end_chunk(c, openai_finish_reason(c));
}

static void write_end(struct answer *a)
{
    openai_stream_end(a, CHUNK);
}

const struct dialect chat_dialect = {
    .stream_type = EVENT_STREAM,
    .begin = write_begin,
    .progress = write_progress,
    .parts.begin = write_part_begin,
    .parts.text = write_part_text,
    .end_choice = write_end_choice,
    .end = write_end,
    .whole = write_whole,
    .fail = openai_stream_fail,
    .keep_alive = openai_keep_alive,
};

static void take_chat_completions(struct exchange *x, struct ask *ask)
{
    answer_start(x, ask, &chat_dialect, "chatcmpl-");
}

void handle_chat_completions(struct exchange *x)
{
    ask_body(x, parse_chat, take_chat_completions);
}
