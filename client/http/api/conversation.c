/* Conversations; see conversation.h. */
#include "client/http/api/conversation.h"

#include <string.h>

struct chat_request conversation_of(const struct ask *ask)
{
    return (struct chat_request){.messages = ask->messages,
                                 .tools = ask->tools,
                                 .kwargs = ask->kwargs,
                                 .reasoning_effort = ask->reasoning_effort,
                                 .thinking = ask_thinking(ask),
                                 .end = ask->end,
                                 .now_s = -1};
}

bool add_tool(struct ask *ask, json_t *function, struct problem *p)
{
    json_t *tool =
        function ? json_pack("{s:s, s:o}", "type", "function", "function", function) : NULL;
    if (!ask->tools)
        ask->tools = json_array();
    if (!tool || !ask->tools || json_array_append_new(ask->tools, tool) != 0)
        return problem_set(p, 503, "no memory for the tools");
    return true;
}

bool take_tools(struct ask *ask, json_t *value, struct problem *p)
{
    if (!json_is_array(value))
        return problem_set(p, 400, "an array of tools is expected");
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *tool = json_array_get(value, i);
        const char *type = json_string_value(json_object_get(tool, "type"));
        json_t *function = json_object_get(tool, "function");
        if (!type || strcmp(type, "function") != 0 || !json_is_object(function))
            return problem_set(p, 400,
                               "tools[%zu]: {\"type\": \"function\", \"function\": {...}} is "
                               "expected, not '%.40s': moed has no tools of its own. Describe "
                               "a tool that the client runs as a function",
                               i, type ? type : "none");
        if (!add_tool(ask, json_incref(function), p))
            return false;
    }
    return true;
}

/* The name in a tool or a choice: chat completions have it in `function`, Responses have not. */
static const char *function_name(const json_t *tool)
{
    const json_t *function = json_object_get(tool, "function");
    return json_string_value(json_object_get(function ? function : tool, "name"));
}

static bool choose_name(struct ask *ask, const json_t *choice, struct problem *p)
{
    const char *type = json_string_value(json_object_get(choice, "type"));
    const char *name = function_name(choice);
    bool known = type && (strcmp(type, "function") == 0 || strcmp(type, "custom") == 0);
    if (!known || !name)
        return problem_set(p, 400,
                           "none, auto, required or {\"type\": \"function\", \"function\": "
                           "{\"name\": ...}} is expected");
    ask->calls = CALLS_NAMED;
    ask->call_name = name;
    return true;
}

/* {"type": "allowed_tools", "mode", "tools"}; chat completions have both in `allowed_tools`. */
static bool choose_allowed(struct ask *ask, const json_t *choice, struct problem *p)
{
    const json_t *inner = json_object_get(choice, "allowed_tools");
    const json_t *allowed = inner ? inner : choice, *tools = json_object_get(allowed, "tools");
    const char *mode = json_string_value(json_object_get(allowed, "mode"));
    bool required = mode && strcmp(mode, "required") == 0;
    if (!mode || (!required && strcmp(mode, "auto") != 0) || json_array_size(tools) == 0)
        return problem_set(p, 400, "allowed_tools needs the mode auto or required, and tools");
    if (json_array_size(tools) > TOOLS_MAX)
        return problem_set(p, 400, "allowed_tools: %zu tools; at most %d are possible",
                           json_array_size(tools), TOOLS_MAX);
    for (size_t i = 0; i < json_array_size(tools); i++)
        if (!function_name(json_array_get(tools, i)))
            return problem_set(p, 400, "allowed_tools: tool %zu has no name", i);
    ask->calls = required ? CALLS_REQUIRED : CALLS_AUTO;
    ask->allowed = tools;
    return true;
}

bool take_tool_choice(struct ask *ask, json_t *value, struct problem *p)
{
    static const struct {
        const char *name;
        enum ask_calls calls;
    } known[] = {{"none", CALLS_NONE}, {"auto", CALLS_AUTO}, {"required", CALLS_REQUIRED}};
    const char *name = json_string_value(value);
    for (size_t i = 0; name && i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, name) == 0) {
            ask->calls = known[i].calls;
            return true;
        }
    const char *type = json_string_value(json_object_get(value, "type"));
    if (type && strcmp(type, "allowed_tools") == 0)
        return choose_allowed(ask, value, p);
    return choose_name(ask, value, p);
}

bool take_parallel_calls(struct ask *ask, json_t *value, struct problem *p)
{
    bool on;
    if (!read_bool(value, &on, p))
        return false;
    ask->one_call = !on;
    return true;
}

static bool refuse_choice(struct problem *p, const char *message)
{
    return problem_refuse(p, 400, "tool_choice", message);
}

/* The model sees all tools, so that the prompt stays the same, and may call these; a new reference.
 * Compares each allowed name with each tool: both have a limit. NULL: *p is set. */
static json_t *callable_tools(const struct ask *ask, struct problem *p)
{
    json_t *some = ask->allowed ? json_array() : json_incref(ask->tools), *tool = NULL;
    size_t i, k;
    for (i = 0; some && i < json_array_size(ask->allowed); i++) {
        const char *name = function_name(json_array_get(ask->allowed, i));
        json_array_foreach(ask->tools, k, tool)
        {
            const char *other = function_name(tool);
            if (other && strcmp(other, name) == 0)
                break;
        }
        if (k == json_array_size(ask->tools) || json_array_append(some, tool) != 0) {
            json_decref(some);
            refuse_choice(p, "allowed_tools names a function that is not in tools");
            return NULL;
        }
    }
    if (!some)
        problem_fill(p, 503, "no memory for the tools");
    return some;
}

static bool list_tools(struct ask *ask, struct problem *p)
{
    struct error why;
    if (json_array_size(ask->tools) > TOOLS_MAX) {
        error_set(&why, ERROR_LIMIT, "%zu tools; at most %d are possible",
                  json_array_size(ask->tools), TOOLS_MAX);
        return problem_refuse(p, 400, "tools", why.text);
    }
    json_t *tools = callable_tools(ask, p);
    if (!tools)
        return false;
    enum error_code code = tool_list_new(tools, &ask->tool_list, &why);
    json_decref(tools);
    return !code || problem_refuse(p, code == ERROR_MEMORY ? 503 : 400, "tools", why.text);
}

bool finish_tools(struct ask *ask, struct problem *p)
{
    if (json_array_size(ask->tools) == 0 || ask->calls == CALLS_NONE) {
        json_decref(ask->tools);
        ask->tools = NULL;
        bool needed = ask->calls == CALLS_REQUIRED || ask->calls == CALLS_NAMED;
        return !needed || refuse_choice(p, "a call is demanded, but there are no tools");
    }
    if (ask->form && ask->form != MOED_GRAMMAR_JSON_SCHEMA && ask->calls == CALLS_AUTO)
        return problem_refuse(p, 400, "tools",
                              "beside tools the answer's form can only be JSON: leave the grammar "
                              "out, or choose required or none");
    if (!list_tools(ask, p))
        return false;
    if (ask->calls == CALLS_NAMED &&
        !tool_list_find(ask->tool_list, ask->call_name, strlen(ask->call_name)))
        return refuse_choice(p, "it names a function that is not in tools");
    return true;
}
