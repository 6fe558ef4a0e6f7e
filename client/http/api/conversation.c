/* Conversations; see conversation.h. */
#include "client/http/api/conversation.h"

#include <stdio.h>
#include <string.h>

struct chat_request conversation_of(const struct ask *ask)
{
    return (struct chat_request){.messages = ask->messages,
                                 .tools = ask->tools,
                                 .kwargs = ask->kwargs,
                                 .reasoning_effort = ask->reasoning_effort,
                                 .thinking = ask->thinking,
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
                               "expected: moed runs no tools of its own",
                               i);
        if (!add_tool(ask, json_incref(function), p))
            return false;
    }
    return true;
}

static bool choose_name(struct ask *ask, const json_t *choice, struct problem *p)
{
    const char *type = json_string_value(json_object_get(choice, "type"));
    const json_t *function = json_object_get(choice, "function");
    const char *name = json_string_value(json_object_get(function ? function : choice, "name"));
    if (!type || strcmp(type, "function") != 0 || !name)
        return problem_set(p, 400,
                           "none, auto, required or {\"type\": \"function\", \"function\": "
                           "{\"name\": ...}} is expected");
    ask->calls = CALLS_NAMED;
    ask->call_name = name;
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
    problem_fill(p, 400, "%s", message);
    memcpy(p->parameter, "tool_choice", sizeof "tool_choice");
    return false;
}

bool finish_tools(struct ask *ask, struct problem *p)
{
    struct error why;
    if (json_array_size(ask->tools) == 0 || ask->calls == CALLS_NONE) {
        json_decref(ask->tools);
        ask->tools = NULL;
        bool needed = ask->calls == CALLS_REQUIRED || ask->calls == CALLS_NAMED;
        return !needed || refuse_choice(p, "a call is demanded, but there are no tools");
    }
    if (ask->form && ask->form != MOED_GRAMMAR_JSON_SCHEMA && ask->calls == CALLS_AUTO) {
        problem_fill(p, 400,
                     "beside tools the answer's form can only be JSON: leave the grammar out, or "
                     "choose required or none");
        memcpy(p->parameter, "tools", sizeof "tools");
        return false;
    }
    if (tool_list_new(ask->tools, &ask->tool_list, &why)) {
        problem_fill(p, why.code == ERROR_MEMORY ? 503 : 400, "%s", why.text);
        memcpy(p->parameter, "tools", sizeof "tools");
        return false;
    }
    if (ask->calls == CALLS_NAMED &&
        !tool_list_find(ask->tool_list, ask->call_name, strlen(ask->call_name)))
        return refuse_choice(p, "it names a function that is not in tools");
    return true;
}
