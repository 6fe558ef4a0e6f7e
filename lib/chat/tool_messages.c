/* Tools as plain text; see tool_messages.h. */
#include "chat/tool_messages.h"

#include "chat/call_results.h"
#include "chat/turns.h"

#include "base/strbuf.h"
#include "json/json_write.h"

#include <string.h>

bool tool_messages_have_calls(const json_t *messages)
{
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *message = json_array_get(messages, i);
        if (json_array_size(json_object_get(message, "tool_calls")) ||
            turn_has_role(message, "tool"))
            return true;
    }
    return false;
}

static void append_string(struct strbuf *out, const json_t *text)
{
    strbuf_append(out, json_string_value(text), json_string_length(text));
}

/* Takes the text; NULL: no memory. */
static json_t *string_of(struct strbuf *text)
{
    json_t *value = json_string_of(text);
    strbuf_fini(text);
    return value;
}

/* ---- The description ---- */

static json_t *description(const json_t *tools)
{
    struct strbuf text;
    strbuf_init(&text);
    strbuf_printf(&text, "You can call these tools:\n");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i),
                     *function = json_object_get(tool, "function");
        json_write(function ? function : tool, JSON_WITHOUT_BLANKS, &text);
        strbuf_printf(&text, "\n");
    }
    strbuf_printf(&text, "Answer with one JSON object and nothing else. To call tools:\n"
                         "{\"tool_calls\": [{\"name\": \"NAME\", \"arguments\": {...}}]}\n"
                         "To answer without a tool:\n"
                         "{\"response\": \"TEXT\"}\n");
    return string_of(&text);
}

/* Puts the description before the system's turn, or makes one. */
static bool describe(json_t *messages, const json_t *tools)
{
    json_t *first = json_array_get(messages, 0), *text = description(tools);
    if (!text)
        return false;
    if (!first || !turn_has_role(first, "system")) {
        json_t *turn = json_pack("{s:s, s:o}", "role", "system", "content", text);
        return turn && json_array_insert_new(messages, 0, turn) == 0;
    }
    struct strbuf both;
    strbuf_init(&both);
    append_string(&both, json_object_get(first, "content"));
    strbuf_printf(&both, "\n\n");
    append_string(&both, text);
    json_decref(text);
    return json_object_set_new(first, "content", string_of(&both)) == 0;
}

/* ---- Calls and results ---- */

static void append_call(struct strbuf *out, const json_t *call)
{
    const json_t *function = json_object_get(call, "function");
    const json_t *arguments = json_object_get(function ? function : call, "arguments");
    strbuf_printf(out, "{\"name\":");
    json_write(json_object_get(function ? function : call, "name"), JSON_WITHOUT_BLANKS, out);
    strbuf_printf(out, ",\"arguments\":");
    if (json_is_string(arguments) && json_string_length(arguments))
        append_string(out, arguments);
    else if (json_is_object(arguments))
        json_write(arguments, JSON_WITHOUT_BLANKS, out);
    else
        strbuf_printf(out, "{}");
    strbuf_printf(out, "}");
}

/* The call as the model itself would have written it, behind the text of its message. */
static bool call_as_text(json_t *message)
{
    const json_t *calls = json_object_get(message, "tool_calls");
    const json_t *content = json_object_get(message, "content");
    struct strbuf text;
    strbuf_init(&text);
    if (json_string_length(content)) {
        append_string(&text, content);
        strbuf_printf(&text, "\n");
    }
    strbuf_printf(&text, "{\"tool_calls\":[");
    for (size_t i = 0; i < json_array_size(calls); i++) {
        strbuf_printf(&text, "%s", i ? "," : "");
        append_call(&text, json_array_get(calls, i));
    }
    strbuf_printf(&text, "]}");
    json_t *value = string_of(&text);
    return value && json_object_set_new(message, "content", value) == 0 &&
           json_object_del(message, "tool_calls") == 0;
}

static bool result_as_text(json_t *message)
{
    const json_t *name = json_object_get(message, "name");
    struct strbuf text;
    strbuf_init(&text);
    strbuf_printf(&text, "Result of %s:\n",
                  json_is_string(name) ? json_string_value(name) : "the tool");
    append_string(&text, json_object_get(message, "content"));
    json_t *value = string_of(&text);
    return value && json_object_set_new(message, "content", value) == 0 &&
           json_object_set_new(message, "role", json_string("user")) == 0;
}

static bool add_plain(json_t *messages, const json_t *from)
{
    json_t *message = json_deep_copy(from);
    bool result = turn_has_role(from, "tool"), good = message != NULL;
    if (good && json_array_size(json_object_get(message, "tool_calls")))
        good = call_as_text(message);
    if (good && result)
        good = result_as_text(message);
    if (good)
        return json_array_append_new(messages, message) == 0;
    json_decref(message);
    return false;
}

/* Results of one tool have the same name: those of several calls stand in the calls' order. Owned;
 * NULL: no memory. */
static json_t *in_order(const json_t *messages)
{
    static const struct chat_abilities strings = {.text = true, .several_calls = true};
    json_t *list = json_copy((json_t *)messages);
    if (list && call_results_fit(&strings, list))
        return list;
    json_decref(list);
    return NULL;
}

json_t *tool_messages_plain(const json_t *messages, const json_t *tools)
{
    json_t *list = in_order(messages), *plain = json_array();
    bool good = list && plain;
    for (size_t i = 0; i < json_array_size(list) && good; i++)
        good = add_plain(plain, json_array_get(list, i));
    json_decref(list);
    /* two of the user's turns in a row: many templates refuse them */
    if (good && turns_join_users(plain) && (!tools || describe(plain, tools)))
        return plain;
    json_decref(plain);
    return NULL;
}
