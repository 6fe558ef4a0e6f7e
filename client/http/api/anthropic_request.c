/* Requests of Anthropic's Messages API; see anthropic.h. */
#include "client/http/api/anthropic.h"
#include "client/http/api/conversation.h"
#include "client/http/api/messages.h"
#include "client/http/api/structure.h"

#include "json/json_write.h"

#include <stdio.h>
#include <string.h>

/* The text behind the line that Claude Code puts before its instructions; NULL: it does not begin
 * with that line. The line differs from request to request, and nothing behind it in the prompt
 * would be found in the KV cache. */
static const char *behind_attribution(const json_t *text)
{
    static const char begin[] = "x-anthropic-billing-header:";
    const char *value = json_string_value(text);
    if (!value || strncmp(value, begin, sizeof begin - 1) != 0)
        return NULL;
    const char *end = strchr(value, '\n');
    return end ? end + 1 : value + strlen(value);
}

/* Appends a block of the system's without that line. False: no memory. */
static bool add_system_block(json_t *blocks, json_t *block)
{
    const char *rest =
        content_has_type(block, "text") ? behind_attribution(json_object_get(block, "text")) : NULL;
    if (!rest)
        return json_array_append(blocks, block) == 0;
    return !*rest || json_array_append_new(
                         blocks, json_pack("{s:s, s:s}", "type", "text", "text", rest)) == 0;
}

/* The system's text or blocks without that line; a new reference. NULL: no memory. */
static json_t *without_attribution(json_t *value)
{
    const char *rest = behind_attribution(value);
    if (rest)
        return json_string(rest);
    if (!json_is_array(value))
        return json_incref(value);
    json_t *kept = json_array();
    for (size_t i = 0; i < json_array_size(value) && kept; i++)
        if (!add_system_block(kept, json_array_get(value, i))) {
            json_decref(kept);
            return NULL;
        }
    return kept;
}

/* The system's turn comes first, wherever the member stands in the body. */
static bool take_system(struct ask *ask, json_t *value, struct problem *p)
{
    json_t *kept = without_attribution(value);
    bool good = kept ? add_system(ask, content_text(kept, CONTENT_HISTORY, "system", p), p)
                     : problem_set(p, 503, "no memory for the messages");
    json_decref(kept);
    return good;
}

/* What a message of several blocks is made of. */
struct blocks {
    struct ask *ask;
    const char *where;
    enum content_of of;           /* CONTENT_ANSWER: the assistant's */
    json_t *turn;                 /* of the assistant, once something needs it; borrowed */
    struct strbuf text, thinking; /* of the assistant's turn; of the user's next one */
};

/* Adds what the user wrote so far as a turn of its own. */
static bool flush_user(struct blocks *b, struct problem *p)
{
    if (b->text.len && !add_message(b->ask, "user", string_of(&b->text, p), p))
        return false;
    strbuf_clear(&b->text);
    return true;
}

/* The assistant's turn, whose texts come at its end. Borrowed; NULL: *p is set. */
static json_t *begin_assistant(struct blocks *b, struct problem *p)
{
    if (!b->turn && add_message(b->ask, "assistant", json_string(""), p))
        b->turn = json_array_get(b->ask->messages, json_array_size(b->ask->messages) - 1);
    return b->turn;
}

/* The assistant's turn gets what all its blocks have of text and of reasoning. */
static bool end_assistant(struct blocks *b, struct problem *p)
{
    if (!begin_assistant(b, p))
        return false;
    json_t *thinking = b->thinking.len ? string_of(&b->thinking, p) : NULL;
    json_t *text = b->text.len ? string_of(&b->text, p) : NULL;
    int failed = 0;
    if (thinking)
        failed |= json_object_set_new(b->turn, "reasoning_content", thinking);
    if (text)
        failed |= json_object_set_new(b->turn, "content", text);
    if (failed)
        problem_fill(p, 503, "no memory for the messages");
    return p->status == 0;
}

static bool take_use(struct blocks *b, const json_t *block, struct problem *p)
{
    const char *id = json_string_value(json_object_get(block, "id"));
    const char *name = json_string_value(json_object_get(block, "name"));
    const json_t *input = json_object_get(block, "input");
    if (b->of != CONTENT_ANSWER || !id || !name || (input && !json_is_object(input)))
        return problem_set(p, 400, "%s: a tool_use of the assistant needs id, name and input",
                           b->where);
    struct strbuf text;
    strbuf_init(&text);
    if (input)
        json_write(input, JSON_WITHOUT_BLANKS, &text);
    else
        strbuf_printf(&text, "{}");
    json_t *arguments = string_of(&text, p);
    json_t *turn = begin_assistant(b, p);
    strbuf_fini(&text);
    if (turn)
        return add_call(b->ask, turn, id, name, arguments, p);
    json_decref(arguments);
    return false;
}

static bool take_result(struct blocks *b, const json_t *block, struct problem *p)
{
    const char *id = json_string_value(json_object_get(block, "tool_use_id"));
    if (b->of == CONTENT_ANSWER || !id)
        return problem_set(p, 400, "%s: a tool_result of the user needs tool_use_id", b->where);
    return flush_user(b, p) &&
           add_result(b->ask, id,
                      content_text(json_object_get(block, "content"), CONTENT_HISTORY, b->where, p),
                      p);
}

static bool take_thought(struct blocks *b, const json_t *block, struct problem *p)
{
    const json_t *text = json_object_get(block, "thinking");
    if (!json_is_string(text))
        return problem_set(p, 400, "%s: a block of thinking needs thinking", b->where);
    strbuf_append(&b->thinking, json_string_value(text), json_string_length(text));
    return true;
}

static bool take_block(struct blocks *b, const json_t *block, struct problem *p)
{
    if (content_has_type(block, "tool_use"))
        return take_use(b, block, p);
    if (content_has_type(block, "tool_result"))
        return take_result(b, block, p);
    if (b->of == CONTENT_ANSWER && content_has_type(block, "thinking"))
        return take_thought(b, block, p);
    if (b->of == CONTENT_ANSWER && content_has_type(block, "redacted_thinking"))
        return true; /* no text of ours: another server's */
    return content_add_part(&b->text, block, b->of, b->where, p);
}

static bool take_content(struct blocks *b, json_t *content, struct problem *p)
{
    bool good = true;
    size_t before = json_array_size(b->ask->messages);
    if (!json_is_array(content))
        return add_message(b->ask, b->of == CONTENT_ANSWER ? "assistant" : "user",
                           content_text(content, b->of, b->where, p), p);
    for (size_t i = 0; i < json_array_size(content) && good; i++)
        good = take_block(b, json_array_get(content, i), p);
    if (!good)
        return false;
    if (b->of == CONTENT_ANSWER)
        return end_assistant(b, p);
    if (!flush_user(b, p))
        return false;
    return json_array_size(b->ask->messages) > before || /* else blocks without any text */
           add_message(b->ask, "user", json_string(""), p);
}

static bool take_turn(struct ask *ask, const json_t *message, bool newest, const char *where,
                      struct problem *p)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    struct blocks b = {.ask = ask, .where = where};
    if (role && strcmp(role, "system") == 0)
        return add_message(
            ask, "system",
            content_text(json_object_get(message, "content"), CONTENT_HISTORY, where, p), p);
    if (!role || (strcmp(role, "user") != 0 && strcmp(role, "assistant") != 0))
        return problem_set(p, 400, "%s: the role user, assistant or system is expected", where);
    if (!json_object_get(message, "content"))
        return problem_set(p, 400, "%s: content is missing", where);
    b.of = content_of_turn(role, newest);
    strbuf_init(&b.text);
    strbuf_init(&b.thinking);
    bool good = take_content(&b, json_object_get(message, "content"), p);
    strbuf_fini(&b.text);
    strbuf_fini(&b.thinking);
    return good;
}

static bool take_turns(struct ask *ask, json_t *value, struct problem *p)
{
    size_t n = json_array_size(value), newest = content_last_user_turn(value);
    if (!json_is_array(value) || n == 0)
        return problem_set(p, 400, "an array of at least one message is expected");
    for (size_t i = 0; i < n; i++) {
        char where[32];
        snprintf(where, sizeof where, "messages[%zu]", i);
        if (!take_turn(ask, json_array_get(value, i), i == newest, where, p))
            return false;
    }
    return true;
}

static bool take_own_tools(struct ask *ask, json_t *value, struct problem *p)
{
    if (!json_is_array(value))
        return problem_set(p, 400, "an array of tools is expected");
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *tool = json_array_get(value, i);
        const char *type = json_string_value(json_object_get(tool, "type"));
        if (type && strcmp(type, "custom") != 0)
            return problem_set(p, 400,
                               "tools[%zu]: '%.40s' is not known: moed has no tools of its own. "
                               "Describe a tool that the client runs by name, description and "
                               "input_schema, without a type",
                               i, type);
        json_t *function = json_pack(
            "{s:O*, s:O*, s:O*, s:O*}", "name", json_object_get(tool, "name"), "description",
            json_object_get(tool, "description"), "parameters",
            json_object_get(tool, "input_schema"), "strict", json_object_get(tool, "strict"));
        if (!add_tool(ask, function, p))
            return false;
    }
    return true;
}

static bool take_own_choice(struct ask *ask, json_t *value, struct problem *p)
{
    static const struct {
        const char *name;
        enum ask_calls calls;
    } known[] = {
        {"none", CALLS_NONE}, {"auto", CALLS_AUTO}, {"any", CALLS_REQUIRED}, {"tool", CALLS_NAMED}};
    const char *type = json_string_value(json_object_get(value, "type"));
    ask->call_name = json_string_value(json_object_get(value, "name"));
    ask->one_call = json_is_true(json_object_get(value, "disable_parallel_tool_use"));
    for (size_t i = 0; type && i < sizeof known / sizeof *known; i++)
        if (strcmp(type, known[i].name) == 0) {
            ask->calls = known[i].calls;
            return ask->calls != CALLS_NAMED || ask->call_name ||
                   problem_set(p, 400, "the type tool needs a name");
        }
    return problem_set(p, 400, "the type auto, any, tool or none is expected");
}

static bool take_output_config(struct ask *ask, json_t *value, struct problem *p)
{
    static const struct parameter table[] = {
        {.name = "effort", .take = take_effort},
        {.name = "format", .take = take_response_format},
        {.name = "task_budget", .refused = "moed knows no tasks"},
        {0},
    };
    if (!json_is_object(value))
        return problem_set(p, 400, "an object is expected");
    return ask_take(ask, table, value, p);
}

static const struct parameter parameters[] = {
    {.name = "system", .take = take_system},
    {.name = "messages", .take = take_turns},
    {.name = "model", .take = take_model},
    {.name = "max_tokens", .take = take_max_tokens},
    {.name = "stream", .take = take_stream},
    {.name = "stop_sequences", .take = take_stop},
    {.name = "tools", .take = take_own_tools},
    {.name = "tool_choice", .take = take_own_choice},
    {.name = "output_config", .take = take_output_config},
    {.name = "output_format", .take = take_response_format},
    {.name = "samplers and penalties", .more = sampling_parameters},
    {.name = "reasoning and the prompt's end", .more = chat_extensions},
    {.name = "structured output", .more = structure_parameters},
    {.name = "mcp_servers", .refused = "moed runs no tools"},
    {.name = "container", .refused = "moed runs no tools"},
    {.name = "cache_control"},
    {.name = "context_management"},
    {.name = "metadata"},
    {.name = "service_tier"},
    {.name = "inference_geo"},
    {.name = "speed"},
    {.name = "diagnostics"},
    {.name = "user_profile_id"},
    {.name = "workspace_id"},
    {0},
};

bool parse_messages(struct ask *ask, const char *body, size_t len, bool count_only,
                    struct problem *p)
{
    if (!ask_parse(ask, body, len, p) || !ask_take(ask, parameters, ask->root, p))
        return false;
    if (!json_is_array(json_object_get(ask->root, "messages")))
        return problem_set(p, 400, "messages is missing");
    if (!count_only && ask->max_tokens == 0)
        return problem_set(p, 400, "max_tokens is missing, or 0");
    return finish_tools(ask, p) &&
           ask_add_prompt(ask, &(struct ask_prompt){0}, p); /* chat_render fills it */
}
