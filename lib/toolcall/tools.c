/* The tools of a request. */
#include "toolcall/tools.h"

#include <stdlib.h>
#include <string.h>

struct tool_list {
    json_t *array;
    size_t n;
    struct tool tools[];
};

bool tool_name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("_.:/-", c));
}

static bool name_valid(const char *name, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!tool_name_byte(name[i]))
            return false;
    return len > 0 && len <= TOOL_NAME_MAX;
}

static enum error_code tool_read(struct tool_list *l, json_t *element, size_t i, struct error *e)
{
    const char *type = json_string_value(json_object_get(element, "type"));
    json_t *function = json_object_get(element, "function");
    if (json_is_object(element) && type && strcmp(type, "function") != 0)
        return error_set(e, ERROR_USAGE, "tools[%zu]: type \"%.40s\" is not \"function\"", i, type);
    if (!function)
        function = element;
    json_t *name = json_object_get(function, "name");
    if (!json_is_string(name))
        return error_set(e, ERROR_USAGE, "tools[%zu]: the function has no name", i);
    const char *text = json_string_value(name);
    if (!name_valid(text, json_string_length(name)))
        return error_set(e, ERROR_USAGE,
                         "tools[%zu]: \"%.140s\" is no name: 1 to %d of letters, digits and _.:/-",
                         i, text, TOOL_NAME_MAX);
    if (tool_list_find(l, text, strlen(text)))
        return error_set(e, ERROR_USAGE, "tools[%zu]: \"%s\" is a second tool of this name", i,
                         text);
    json_t *parameters = json_object_get(function, "parameters");
    if (parameters && !json_is_null(parameters) && !json_is_object(parameters))
        return error_set(e, ERROR_USAGE, "tools[%zu]: parameters is not a schema (an object)", i);
    struct tool *t = &l->tools[l->n++];
    *t = (struct tool){.name = text,
                       .parameters = json_is_object(parameters) ? parameters : NULL,
                       .strict = json_is_true(json_object_get(function, "strict"))};
    return ERROR_OK;
}

enum error_code tool_list_new(json_t *tools, struct tool_list **out, struct error *e)
{
    if (!json_is_array(tools))
        return error_set(e, ERROR_USAGE, "tools is not an array");
    size_t n = json_array_size(tools);
    if (n > TOOLS_MAX)
        return error_set(e, ERROR_LIMIT, "%zu tools; at most %d are possible", n, TOOLS_MAX);
    struct tool_list *l = calloc(1, sizeof *l + n * sizeof l->tools[0]);
    if (!l)
        return error_set(e, ERROR_MEMORY, "no memory for %zu tools", n);
    l->array = json_incref(tools);
    for (size_t i = 0; i < n; i++) {
        enum error_code code = tool_read(l, json_array_get(tools, i), i, e);
        if (code) {
            tool_list_free(l);
            return code;
        }
    }
    *out = l;
    return ERROR_OK;
}

void tool_list_free(struct tool_list *l)
{
    if (!l)
        return;
    json_decref(l->array);
    free(l);
}

size_t tool_list_count(const struct tool_list *l)
{
    return l ? l->n : 0;
}

const struct tool *tool_list_at(const struct tool_list *l, size_t i)
{
    return &l->tools[i];
}

const struct tool *tool_list_find(const struct tool_list *l, const char *name, size_t len)
{
    for (size_t i = 0; i < tool_list_count(l); i++)
        if (strlen(l->tools[i].name) == len && memcmp(l->tools[i].name, name, len) == 0)
            return &l->tools[i];
    return NULL;
}
