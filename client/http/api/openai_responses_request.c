/* Requests of OpenAI's Responses API; see openai_responses.h. */
#include "client/http/api/conversation.h"
#include "client/http/api/custom_tool.h"
#include "client/http/api/messages.h"
#include "client/http/api/openai_responses.h"
#include "client/http/api/structure.h"
#include "client/http/api/truncation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A text, or parts of one. */
static bool take_instructions(struct ask *ask, json_t *value, struct problem *p)
{
    if (json_object_get(json_array_get(value, 0), "role"))
        return problem_set(p, 400,
                           "a text is expected, not messages: put them before those of input");
    return add_system(ask, content_text(value, CONTENT_HISTORY, "instructions", p), p);
}

/* The items of an input. */
struct input {
    struct ask *ask;
    char where[32];      /* of the item, for messages of errors */
    bool newest;         /* it is the user's newest message */
    struct strbuf notes; /* of items without a text; for the assistant's next one */
};

/* The notes, and behind them a text, which it takes. NULL: *p is set. */
static json_t *with_notes(struct input *in, json_t *text, struct problem *p)
{
    if (!text || !in->notes.len)
        return text;
    if (json_string_length(text))
        strbuf_append(&in->notes, "\n", 1);
    strbuf_append(&in->notes, json_string_value(text), json_string_length(text));
    json_decref(text);
    json_t *joined = string_of(&in->notes, p);
    strbuf_clear(&in->notes);
    return joined;
}

/* The notes that no text of the assistant follows come at the end of its turn. */
static bool flush_notes(struct input *in, struct problem *p)
{
    if (!in->notes.len && !in->notes.failed)
        return true;
    json_t *turn = assistant_turn(in->ask, p);
    if (!turn)
        return false;
    const json_t *before = json_object_get(turn, "content");
    struct strbuf text;
    strbuf_init(&text);
    strbuf_append(&text, json_string_value(before), json_string_length(before));
    strbuf_append(&text, "\n", text.len ? 1 : 0);
    strbuf_append(&text, in->notes.data, in->notes.len);
    text.failed = text.failed || in->notes.failed;
    strbuf_clear(&in->notes);
    json_t *joined = string_of(&text, p);
    strbuf_fini(&text);
    return (joined && json_object_set_new(turn, "content", joined) == 0) ||
           problem_set(p, 503, "no memory for the messages");
}

/* The assistant's turn for an item that begins a new one where `member` is there already. */
static json_t *turn_without(struct ask *ask, const char *member, struct problem *p)
{
    json_t *turn = assistant_turn(ask, p);
    if (!turn || !json_object_get(turn, member))
        return turn;
    if (!add_message(ask, "assistant", json_string(""), p))
        return NULL;
    return assistant_turn(ask, p);
}

/* Reasoning, as this server writes it, goes back to the template. That of OpenAI's models has no
 * text. */
static bool take_reasoning_item(struct input *in, const json_t *item, struct problem *p)
{
    const json_t *content = json_object_get(item, "content");
    if (json_array_size(content) == 0)
        return true;
    json_t *text = content_text(content, CONTENT_ANSWER, in->where, p);
    json_t *turn =
        text && flush_notes(in, p) ? turn_without(in->ask, "reasoning_content", p) : NULL;
    if (turn && json_object_set_new(turn, "reasoning_content", text) == 0)
        return true;
    if (!turn)
        json_decref(text);
    return p->status ? false : problem_set(p, 503, "no memory for the messages");
}

/* The arguments of a call, a new reference. A custom tool has a text as its input; templates know
 * calls of functions alone. NULL: the call has none. */
static json_t *arguments_of(const json_t *item)
{
    json_t *arguments = json_object_get(item, "arguments");
    json_t *input = json_object_get(item, "input");
    if (content_has_type(item, "function_call"))
        return json_is_string(arguments) ? json_incref(arguments) : NULL;
    json_t *object = json_is_string(input) ? json_pack("{s:O}", "input", input) : NULL;
    char *text = json_dumps(object, JSON_COMPACT);
    json_t *value = text ? json_string(text) : NULL;
    free(text);
    json_decref(object);
    return value;
}

static bool take_call_item(struct input *in, const json_t *item, struct problem *p)
{
    const char *id = json_string_value(json_object_get(item, "call_id"));
    const char *name = json_string_value(json_object_get(item, "name"));
    json_t *arguments = id && name ? arguments_of(item) : NULL;
    if (!arguments)
        return problem_set(p, 400,
                           "%s: a call needs call_id, name and arguments, or input if the tool is "
                           "custom",
                           in->where);
    json_t *turn = flush_notes(in, p) ? assistant_turn(in->ask, p) : NULL;
    if (turn)
        return add_call(in->ask, turn, id, name, arguments, p);
    json_decref(arguments);
    return false;
}

static bool take_output_item(struct input *in, const json_t *item, struct problem *p)
{
    const char *id = json_string_value(json_object_get(item, "call_id"));
    if (!id)
        return problem_set(p, 400, "%s: the output of a call needs call_id", in->where);
    return flush_notes(in, p) &&
           add_result(in->ask, id,
                      content_text(json_object_get(item, "output"), CONTENT_HISTORY, in->where, p),
                      p);
}

/* The assistant's text belongs to the turn of its reasoning. */
static bool add_answer(struct input *in, json_t *text, struct problem *p)
{
    struct ask *ask = in->ask;
    json_t *last = json_array_get(ask->messages, json_array_size(ask->messages) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    bool reasoned = role && strcmp(role, "assistant") == 0 &&
                    !json_object_get(last, "tool_calls") &&
                    json_object_get(last, "reasoning_content") &&
                    json_string_length(json_object_get(last, "content")) == 0;
    text = with_notes(in, text, p);
    if (text && reasoned)
        return json_object_set_new(last, "content", text) == 0 ||
               problem_set(p, 503, "no memory for the messages");
    return add_message(ask, "assistant", text, p);
}

static bool take_message_item(struct input *in, const json_t *item, struct problem *p)
{
    const char *role = json_string_value(json_object_get(item, "role"));
    if (role && strcmp(role, "developer") == 0)
        role = "system";
    if (!role || (strcmp(role, "user") != 0 && strcmp(role, "assistant") != 0 &&
                  strcmp(role, "system") != 0))
        return problem_set(p, 400, "%s: the role user, assistant, system or developer is expected",
                           in->where);
    json_t *text = content_text(json_object_get(item, "content"), content_of_turn(role, in->newest),
                                in->where, p);
    if (strcmp(role, "assistant") == 0)
        return add_answer(in, text, p);
    if (text && flush_notes(in, p))
        return add_message(in->ask, role, text, p);
    json_decref(text);
    return false;
}

static bool take_item(struct input *in, const json_t *item, struct problem *p)
{
    const json_t *type = json_object_get(item, "type");
    if (!type || content_has_type(item, "message"))
        return take_message_item(in, item, p);
    if (content_has_type(item, "reasoning"))
        return take_reasoning_item(in, item, p);
    if (content_has_type(item, "function_call") || content_has_type(item, "custom_tool_call"))
        return take_call_item(in, item, p);
    if (content_has_type(item, "function_call_output") ||
        content_has_type(item, "custom_tool_call_output"))
        return take_output_item(in, item, p);
    if (content_has_type(item, "item_reference"))
        return problem_set(p, 400, "%s: nothing is stored: send the item in place of its reference",
                           in->where);
    if (!json_is_string(type))
        return problem_set(p, 400, "%s: an item with a type is expected", in->where);
    content_add_note(&in->notes, json_string_value(type), CONTENT_HISTORY);
    return true;
}

static bool take_items(struct input *in, const json_t *items, struct problem *p)
{
    size_t newest = content_last_user_turn(items);
    for (size_t i = 0; i < json_array_size(items); i++) {
        snprintf(in->where, sizeof in->where, "input[%zu]", i);
        in->newest = i == newest;
        if (!take_item(in, json_array_get(items, i), p))
            return false;
    }
    return flush_notes(in, p);
}

static bool take_input(struct ask *ask, json_t *value, struct problem *p)
{
    if (json_is_string(value))
        return add_message(ask, "user", content_text(value, CONTENT_QUESTION, "input", p), p);
    if (!json_is_array(value) || json_array_size(value) == 0)
        return problem_set(p, 400, "a string or an array of items is expected");
    struct input in = {.ask = ask};
    strbuf_init(&in.notes);
    bool good = take_items(&in, value, p);
    strbuf_fini(&in.notes);
    return good;
}

static bool take_text(struct ask *ask, json_t *value, struct problem *p)
{
    static const struct parameter table[] = {
        {.name = "format", .take = take_response_format},
        {.name = "verbosity"},
        {0},
    };
    if (!json_is_object(value))
        return problem_set(p, 400, "an object is expected");
    return ask_take(ask, table, value, p);
}

/* Tools that OpenAI's server would run and that Codex always offers. The model does not see them,
 * so it calls none; the access log names them. */
static bool is_left_out(const json_t *tool)
{
    static const char *const types[] = {"web_search", "web_search_preview", "image_generation",
                                        "namespace", "tool_search"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (content_has_type(tool, types[i]))
            return true;
    return false;
}

static bool note_custom(struct ask *ask, const json_t *tool, struct problem *p)
{
    const char *name = json_string_value(json_object_get(tool, "name"));
    if (!ask->custom_tools)
        ask->custom_tools = json_object();
    return !name /* finish_tools refuses it */ ||
           json_object_set_new(ask->custom_tools, name, json_true()) == 0 ||
           problem_set(p, 503, "no memory for the tools");
}

/* Functions have their members at the top here. A custom tool becomes a function. */
static bool take_flat_tools(struct ask *ask, json_t *value, struct problem *p)
{
    if (!json_is_array(value))
        return problem_set(p, 400, "an array of tools is expected");
    for (size_t i = 0; i < json_array_size(value); i++) {
        json_t *tool = json_array_get(value, i);
        const char *type = json_string_value(json_object_get(tool, "type"));
        if (is_left_out(tool)) {
            ask_ignore(ask, type);
            continue;
        }
        bool custom = content_has_type(tool, "custom");
        if (!custom && !content_has_type(tool, "function"))
            return problem_set(p, 400,
                               "tools[%zu]: the type function or custom is expected, not '%.40s': "
                               "moed has no tools of its own. Describe a tool that the client runs "
                               "as a function (name, description, parameters)",
                               i, type ? type : "none");
        json_t *function = custom ? custom_tool_function(tool) : json_copy(tool);
        json_object_del(function, "type");
        if (!add_tool(ask, function, p) || (custom && !note_custom(ask, tool, p)))
            return false;
    }
    return true;
}

/* The log-probabilities are the one thing of this list that moed has. */
static bool take_include(struct ask *ask, json_t *value, struct problem *p)
{
    for (size_t i = 0; i < json_array_size(value); i++) {
        const char *name = json_string_value(json_array_get(value, i));
        if (name && strcmp(name, "message.output_text.logprobs") == 0)
            ask->logprobs = true;
    }
    return json_is_array(value) || problem_set(p, 400, "an array of strings is expected");
}

static bool take_background(struct ask *ask, json_t *value, struct problem *p)
{
    return !json_is_true(value) || problem_set(p, 400, "nothing is stored: ask with stream");
}

/* Repeated by the response. OpenAI takes 16 texts of 512 characters. */
static bool take_metadata(struct ask *ask, json_t *value, struct problem *p)
{
    enum { METADATA_BYTES = 64 << 10 };
    if (!json_is_object(value))
        return problem_set(p, 400, "an object is expected");
    size_t bytes = json_dumpb(value, NULL, 0, JSON_COMPACT);
    return bytes <= METADATA_BYTES ||
           problem_set(p, 400, "it has %zu bytes; %d are allowed", bytes, METADATA_BYTES);
}

#define NO_STATE "nothing is stored: send the whole conversation as input"

static const struct parameter parameters[] = {
    {.name = "input", .take = take_input},
    {.name = "instructions", .take = take_instructions},
    {.name = "model", .take = take_model},
    {.name = "max_output_tokens", .take = take_max_completion_tokens},
    {.name = "n_predict", .take = take_n_predict}, /* llama-server's */
    {.name = "stream", .take = take_stream},
    {.name = "text", .take = take_text},
    {.name = "background", .take = take_background},
    {.name = "tools", .take = take_flat_tools},
    {.name = "tool_choice", .take = take_tool_choice},
    {.name = "parallel_tool_calls", .take = take_parallel_calls},
    {.name = "top_logprobs", .take = take_top_logprobs},
    {.name = "include", .take = take_include},
    {.name = "samplers and penalties", .more = sampling_parameters},
    {.name = "reasoning and the prompt's end", .more = chat_extensions},
    {.name = "structured output", .more = structure_parameters},
    {.name = "previous_response_id", .refused = NO_STATE},
    {.name = "conversation", .refused = NO_STATE},
    {.name = "prompt", .refused = "there are no stored prompts"},
    {.name = "truncation", .take = take_truncation},
    {.name = "metadata", .take = take_metadata},
    {.name = "max_tool_calls", .refused = "moed runs no tools"},
    {.name = "store"},
    {.name = "stream_options"},
    {.name = "user"},
    {.name = "client_metadata"}, /* Codex' */
    {.name = "safety_identifier"},
    {.name = "prompt_cache_key"},
    {.name = "prompt_cache_retention"},
    {.name = "prompt_cache_options"},
    {.name = "moderation", .refused = "there is no moderation"},
    {.name = "image", .refused = "the models are for text"},
    {.name = "access_programs", .refused = "moed runs no tools"},
    {.name = "background_options"},
    {.name = "context_management"},
    {.name = "personality"},
    {.name = "service_tier", .take = take_service_tier},
    {0},
};

static bool parse(struct ask *ask, const char *body, size_t len, bool count_only, struct problem *p)
{
    if (!ask_parse(ask, body, len, p) || !ask_take(ask, parameters, ask->root, p))
        return false;
    json_t *input = json_object_get(ask->root, "input");
    bool none = !input || json_is_null(input); /* counted are instructions without input, too */
    if ((none && !count_only) || !ask->messages)
        return problem_set(p, 400, "input is missing, or has no message");
    ask->logprobs = ask->logprobs || ask->top_logprobs;
    return ask_check_limit(ask, "max_output_tokens", p) && finish_tools(ask, p) &&
           ask_add_prompt(ask, &(struct ask_prompt){0}, p); /* chat_render fills it */
}

bool parse_response(struct ask *ask, const char *body, size_t len, struct problem *p)
{
    return parse(ask, body, len, false, p);
}

bool parse_input_tokens(struct ask *ask, const char *body, size_t len, struct problem *p)
{
    return parse(ask, body, len, true, p);
}
