/* Conversations; see messages.h. */
#include "client/http/api/messages.h"

#include "json/json_write.h"

#include <stdio.h>
#include <string.h>

json_t *string_of(const struct strbuf *text, struct problem *p)
{
    json_t *value = json_string_of(text);
    if (!value)
        problem_fill(p, 503, "no memory for the messages");
    return value;
}

bool add_message(struct ask *ask, const char *role, json_t *content, struct problem *p)
{
    if (!content)
        return false;
    if (json_array_size(ask->messages) == MESSAGES_MAX) {
        json_decref(content);
        return problem_set(p, 400, "more than %d messages and results of tools", MESSAGES_MAX);
    }
    if (!ask->messages)
        ask->messages = json_array();
    json_t *message = json_pack("{s:s, s:o}", "role", role, "content", content);
    if (!message || json_array_append_new(ask->messages, message) != 0)
        return problem_set(p, 503, "no memory for the messages");
    return true;
}

json_t *assistant_turn(struct ask *ask, struct problem *p)
{
    json_t *last = json_array_get(ask->messages, json_array_size(ask->messages) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    if (last && role && strcmp(role, "assistant") == 0)
        return last;
    if (!add_message(ask, "assistant", json_string(""), p))
        return NULL;
    return json_array_get(ask->messages, json_array_size(ask->messages) - 1);
}

/* Notes the name of a call for its result. Of several calls with one id the last one counts. */
static bool note_call(struct ask *ask, const json_t *call, struct problem *p)
{
    const char *id = json_string_value(json_object_get(call, "id"));
    json_t *name = json_object_get(json_object_get(call, "function"), "name");
    if (ask->call_count == MESSAGES_MAX)
        return problem_set(p, 400, "more than %d calls of tools", MESSAGES_MAX);
    ask->call_count++;
    if (!id)
        return true;
    if (!ask->call_names)
        ask->call_names = json_object();
    return json_object_set(ask->call_names, id, name) == 0 ||
           problem_set(p, 503, "no memory for the messages");
}

bool add_call(struct ask *ask, json_t *turn, const char *id, const char *name, json_t *arguments,
              struct problem *p)
{
    json_t *calls = json_object_get(turn, "tool_calls");
    if (!calls) {
        calls = json_array();
        json_object_set_new(turn, "tool_calls", calls);
    }
    json_t *call = arguments ? json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", id, "type", "function",
                                         "function", "name", name, "arguments", arguments)
                             : NULL;
    if (!calls || !call || json_array_append_new(calls, call) != 0)
        return problem_set(p, 503, "no memory for the messages");
    return note_call(ask, call, p);
}

/* Templates show the tool's name by the result, or its id. */
static bool name_result(struct ask *ask, json_t *result, const char *id)
{
    json_t *name =
        id && !json_object_get(result, "name") ? json_object_get(ask->call_names, id) : NULL;
    return !name || json_object_set(result, "name", name) == 0;
}

bool add_result(struct ask *ask, const char *id, json_t *content, struct problem *p)
{
    if (!add_message(ask, "tool", content, p))
        return false;
    json_t *result = json_array_get(ask->messages, json_array_size(ask->messages) - 1);
    if (json_object_set_new(result, "tool_call_id", json_string(id)) != 0 ||
        !name_result(ask, result, id))
        return problem_set(p, 503, "no memory for the messages");
    return true;
}

bool add_system(struct ask *ask, json_t *content, struct problem *p)
{
    if (!content)
        return false;
    if (json_string_length(content) == 0) { /* none: the template may have its own */
        json_decref(content);
        return true;
    }
    json_t *turn = json_pack("{s:s, s:o}", "role", "system", "content", content);
    if (!ask->messages)
        ask->messages = json_array();
    if (!turn || json_array_insert_new(ask->messages, 0, turn) != 0)
        return problem_set(p, 503, "no memory for the messages");
    return true;
}

/* "developer" is what OpenAI calls the system's turn now. */
static const char *known_role(const char *role)
{
    static const char *const known[][2] = {
        {"system", "system"},       {"developer", "system"}, {"user", "user"},
        {"assistant", "assistant"}, {"tool", "tool"},
    };
    for (size_t i = 0; role && i < sizeof known / sizeof *known; i++)
        if (strcmp(role, known[i][0]) == 0)
            return known[i][1];
    return NULL;
}

/* OpenAI's calls have arguments as text, Ollama's as objects; lib/chat takes both. */
static bool check_calls(const json_t *calls, const char *where, struct problem *p)
{
    if (calls && !json_is_null(calls) && !json_is_array(calls))
        return problem_set(p, 400, "%s.tool_calls: an array is expected", where);
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *function = json_object_get(json_array_get(calls, i), "function");
        const json_t *arguments = json_object_get(function, "arguments");
        if (!json_is_string(json_object_get(function, "name")) ||
            (arguments && !json_is_string(arguments) && !json_is_object(arguments)))
            return problem_set(p, 400,
                               "%s.tool_calls[%zu]: {\"function\": {\"name\": ..., "
                               "\"arguments\": ...}} is expected",
                               where, i);
    }
    return true;
}

/* Members that templates show. */
static bool keep_members(struct ask *ask, json_t *added, const json_t *message, struct problem *p)
{
    static const char *const kept[][2] = {
        {"name", "name"},
        {"tool_name", "name"}, /* Ollama's */
        {"tool_calls", "tool_calls"},
        {"tool_call_id", "tool_call_id"},
        {"reasoning", "reasoning_content"},
        {"thinking", "reasoning_content"}, /* Ollama's */
        {"reasoning_content", "reasoning_content"},
    };
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        json_t *value = json_object_get(message, kept[i][0]);
        bool empty = !value || json_is_null(value) || json_is_false(value);
        if (!empty && json_object_set(added, kept[i][1], value) != 0)
            return problem_set(p, 503, "no memory for the messages");
    }
    const json_t *calls = json_object_get(added, "tool_calls");
    for (size_t i = 0; i < json_array_size(calls); i++)
        if (!note_call(ask, json_array_get(calls, i), p))
            return false;
    return name_result(ask, added, json_string_value(json_object_get(added, "tool_call_id"))) ||
           problem_set(p, 503, "no memory for the messages");
}

static bool is_text_part(const json_t *part)
{
    return content_has_type(part, "text") && json_is_string(json_object_get(part, "text"));
}

/* Several parts that are all text: what stands between them is the template's choice. */
static bool is_texts(const json_t *content)
{
    bool texts = json_array_size(content) > 1;
    for (size_t i = 0; i < json_array_size(content) && texts; i++)
        texts = is_text_part(json_array_get(content, i));
    return texts;
}

/* Reasoning that is a part of the content, unless a member has it. */
static bool keep_reasoning(json_t *added, const json_t *content, struct problem *p)
{
    struct strbuf text;
    if (json_string_length(json_object_get(added, "reasoning_content")))
        return true;
    strbuf_init(&text);
    content_add_reasoning(&text, content);
    bool failed =
        text.len && json_object_set_new(added, "reasoning_content", json_string_of(&text));
    strbuf_fini(&text);
    return !failed || problem_set(p, 503, "no memory for the messages");
}

static bool take_message(struct ask *ask, const json_t *message, bool newest, const char *where,
                         struct problem *p)
{
    const char *role = known_role(json_string_value(json_object_get(message, "role")));
    if (!json_is_object(message) || !role)
        return problem_set(p, 400,
                           "%s: an object with the role system, developer, user, assistant or tool "
                           "is expected",
                           where);
    if (!check_calls(json_object_get(message, "tool_calls"), where, p))
        return false;
    if (!json_object_get(message, "content") && strcmp(role, "assistant") != 0)
        return problem_set(p, 400, "%s: content is missing", where);
    bool answer = strcmp(role, "assistant") == 0;
    json_t *given = json_object_get(message, "content"), *content;
    content = !answer && is_texts(given)
                  ? json_incref(given)
                  : content_text(given, content_of_turn(role, newest), where, p);
    if (!add_message(ask, role, content, p))
        return false;
    json_t *added = json_array_get(ask->messages, json_array_size(ask->messages) - 1);
    return keep_members(ask, added, message, p) &&
           (!answer || keep_reasoning(added, json_object_get(message, "content"), p));
}

bool take_messages(struct ask *ask, json_t *value, struct problem *p)
{
    size_t n = json_array_size(value), newest = content_last_user_turn(value);
    if (!json_is_array(value) || n == 0 || n > MESSAGES_MAX)
        return problem_set(p, 400, "an array of 1 to %d messages is expected", MESSAGES_MAX);
    for (size_t i = 0; i < n; i++) {
        char where[32];
        snprintf(where, sizeof where, "messages[%zu]", i);
        if (!take_message(ask, json_array_get(value, i), i == newest, where, p))
            return false;
    }
    return true;
}
