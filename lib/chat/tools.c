/* Changes a copy of the tools to fit a template; see chat_template.h. */
#include "chat/internal.h"

/* A shallow copy of the schema, or a new one, with properties. NULL: no memory. */
static json_t *fit_parameters(const json_t *given)
{
    json_t *parameters =
        json_is_object(given) ? json_copy((json_t *)given) : json_pack("{s:s}", "type", "object");
    if (json_is_object(json_object_get(parameters, "properties")) ||
        json_object_set_new(parameters, "properties", json_object()) == 0)
        return parameters;
    json_decref(parameters);
    return NULL;
}

/* A shallow copy with a description and parameters. NULL: no memory. */
static json_t *fit_function(const json_t *given)
{
    json_t *function = json_copy((json_t *)given);
    int failed = !function;
    if (!json_is_string(json_object_get(function, "description")))
        failed |= json_object_set_new(function, "description", json_string(""));
    failed |= json_object_set_new(function, "parameters",
                                  fit_parameters(json_object_get(function, "parameters")));
    if (!failed)
        return function;
    json_decref(function);
    return NULL;
}

static json_t *fit_tool(const json_t *given)
{
    const json_t *function = json_object_get(given, "function");
    if (!json_is_object(function))
        return json_incref((json_t *)given);
    json_t *tool = json_copy((json_t *)given);
    if (!tool || json_object_set_new(tool, "function", fit_function(function)) == 0)
        return tool;
    json_decref(tool);
    return NULL;
}

json_t *chat_tools_fit(const json_t *tools)
{
    json_t *copy = json_array();
    for (size_t i = 0; copy && i < json_array_size(tools); i++)
        if (json_array_append_new(copy, fit_tool(json_array_get(tools, i))) != 0) {
            json_decref(copy);
            copy = NULL;
        }
    return copy;
}
