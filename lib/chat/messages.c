/* Changes a copy of a conversation to fit a template; see chat_template.h. */
#include "chat/call_ids.h"
#include "chat/call_results.h"
#include "chat/call_text.h"
#include "chat/internal.h"
#include "chat/message.h"
#include "chat/turns.h"
#include "json/json_read.h"
#include "json/json_write.h"

#include <string.h>

static enum error_code no_memory(struct error *e)
{
    return error_set(e, ERROR_MEMORY, "no memory for a conversation");
}

/* ---- Content ---- */

static enum error_code check_part(const json_t *part, size_t number, struct error *e)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    if (!type)
        return error_set(e, ERROR_USAGE, "message %zu: a part of its content has no type", number);
    if (strcmp(type, "text") != 0)
        return error_set(e, ERROR_UNSUPPORTED,
                         "message %zu: a part of type '%.40s': only text is supported", number,
                         type);
    if (!json_is_string(json_object_get(part, "text")))
        return error_set(e, ERROR_USAGE, "message %zu: a text part has no text", number);
    return ERROR_OK;
}

static enum error_code check_parts(const json_t *parts, size_t number, struct error *e)
{
    enum error_code code = ERROR_OK;
    for (size_t i = 0; !code && i < json_array_size(parts); i++)
        code = check_part(json_array_get(parts, i), number, e);
    return code;
}

/* Its own texts as the model wrote them. */
static json_t *joined_content(const json_t *message, const char *gap)
{
    bool own = turn_has_role(message, "assistant");
    return message_join_parts(json_object_get(message, "content"), own ? "" : gap);
}

enum error_code messages_join_parts(const json_t *messages, json_t **out, struct error *e)
{
    json_t *copy = json_deep_copy(messages);
    enum error_code code = copy ? ERROR_OK : no_memory(e);
    for (size_t i = 0; !code && i < json_array_size(copy); i++) {
        json_t *message = json_array_get(copy, i), *content = json_object_get(message, "content");
        if (!json_is_array(content))
            continue;
        code = check_parts(content, i + 1, e);
        if (!code && json_object_set_new(message, "content", joined_content(message, "\n")))
            code = no_memory(e);
    }
    if (code)
        json_decref(copy);
    else
        *out = copy;
    return code;
}

static enum error_code fit_content(const struct chat_abilities *a, json_t *message, size_t number,
                                   struct error *e)
{
    const json_t *content = json_object_get(message, "content");
    json_t *fitted = NULL;
    if (json_is_array(content)) {
        enum error_code code = check_parts(content, number, e);
        if (code || !a->text)
            return code;
        fitted = joined_content(message, a->part_gap);
    } else if (content && !json_is_null(content) && !json_is_string(content)) {
        return error_set(e, ERROR_USAGE, "message %zu: its content is no string and no list",
                         number);
    } else if (json_is_string(content) && a->text) {
        return ERROR_OK;
    } else {
        const char *text = json_is_string(content) ? json_string_value(content) : "";
        size_t len = json_string_length(content);
        fitted = a->text ? json_stringn(text, len)
                         : json_pack("[{s:s, s:s%}]", "type", "text", "text", text, len);
    }
    return json_object_set_new(message, "content", fitted) ? no_memory(e) : ERROR_OK;
}

/* ---- Tool calls ---- */

/* Some clients send a call without "function" around it. */
static json_t *call_function(json_t *call)
{
    json_t *function = json_object_get(call, "function");
    return function ? function : call;
}

static json_t *text_of(const json_t *arguments)
{
    struct strbuf text;
    strbuf_init(&text);
    json_write(arguments, JSON_WITH_BLANKS, &text);
    json_t *string = json_string_of(&text);
    strbuf_fini(&text);
    return string;
}

/* The value of a string of JSON, which may be in a string once more: some clients encode arguments
 * twice. NULL: no memory, or it is no JSON. */
static json_t *read_arguments(const json_t *text)
{
    const size_t flags = JSON_ALLOW_NUL | JSON_DECODE_ANY;
    json_t *value = json_read(json_string_value(text), json_string_length(text), flags, NULL);
    if (!json_is_string(value))
        return value;
    json_t *inner = json_read(json_string_value(value), json_string_length(value), flags, NULL);
    json_decref(value);
    return inner;
}

static enum error_code fit_arguments(const struct chat_abilities *a, json_t *function,
                                     struct error *e)
{
    const json_t *arguments = json_object_get(function, "arguments");
    json_t *fitted = NULL;
    if (json_is_string(arguments) && !a->string_arguments && a->object_arguments) {
        bool empty = json_string_length(arguments) == 0;
        fitted = empty ? json_object() : read_arguments(arguments);
        if (!json_is_object(fitted)) { /* a call that the model wrote wrongly is history too */
            json_decref(fitted);
            fitted = json_pack("{sO}", "arguments", arguments);
        }
    } else if (json_is_object(arguments) && !a->object_arguments && a->string_arguments) {
        fitted = text_of(arguments);
    } else {
        return ERROR_OK;
    }
    return json_object_set_new(function, "arguments", fitted) ? no_memory(e) : ERROR_OK;
}

static enum error_code fit_calls(const struct chat_abilities *a, json_t *message, size_t number,
                                 struct error *e)
{
    json_t *calls = json_object_get(message, "tool_calls");
    if (!calls || json_is_null(calls) || json_array_size(calls) == 0) {
        json_object_del(message, "tool_calls"); /* "is defined" must not hold of none */
        return ERROR_OK;
    }
    for (size_t i = 0; i < json_array_size(calls); i++) {
        json_t *function = call_function(json_array_get(calls, i));
        if (!json_is_string(json_object_get(function, "name")))
            return error_set(e, ERROR_USAGE, "message %zu: a tool call has no name", number);
        enum error_code code = fit_arguments(a, function, e);
        if (code)
            return code;
    }
    return ERROR_OK;
}

/* ---- Reasoning ---- */

/* In front of the parts of its content. Takes neither. NULL: no memory. */
static json_t *with_reasoning(json_t *content, json_t *reasoning)
{
    json_t *parts = json_pack("[{s:s, s:O}]", "type", "thinking", "thinking", reasoning);
    int failed = !parts;
    if (json_is_array(content))
        failed |= json_array_extend(parts, content);
    else if (json_string_length(content))
        failed |=
            json_array_append_new(parts, json_pack("{s:s, s:O}", "type", "text", "text", content));
    if (!failed)
        return parts;
    json_decref(parts);
    return NULL;
}

/* As reasoning_content, and in the template's own form. */
static enum error_code fit_reasoning(const struct chat_abilities *a, json_t *message,
                                     struct error *e)
{
    json_t *reasoning = message_reasoning(message);
    if (!json_is_string(reasoning))
        return ERROR_OK;
    bool failed = !json_object_get(message, "reasoning_content") &&
                  json_object_set(message, "reasoning_content", reasoning);
    if (a->reasoning)
        failed |= json_object_set(message, a->reasoning, reasoning) != 0;
    if (a->reasoning_part && json_string_length(reasoning) && turn_has_role(message, "assistant")) {
        json_t *content = with_reasoning(json_object_get(message, "content"), reasoning);
        failed |= json_object_set_new(message, "content", content) != 0;
    }
    return failed ? no_memory(e) : ERROR_OK;
}

/* ---- All ---- */

static enum error_code fit_message(const struct chat_abilities *a, json_t *message, size_t number,
                                   struct error *e)
{
    if (!json_is_string(json_object_get(message, "role")))
        return error_set(e, ERROR_USAGE, "message %zu has no role", number);
    bool shown = a->developer && number == 1; /* only there the probe has seen one */
    if (turn_has_role(message, "developer") && !shown &&
        json_object_set_new(message, "role", json_string("system")))
        return no_memory(e);
    enum error_code code = fit_calls(a, message, number, e);
    if (!code)
        code = fit_content(a, message, number, e);
    return code;
}

enum error_code chat_messages_fit(const struct chat_abilities *a, const json_t *messages,
                                  json_t **out, struct error *e)
{
    if (!json_is_array(messages) || json_array_size(messages) == 0)
        return error_set(e, ERROR_USAGE, "the conversation has no messages");
    json_t *copy = json_deep_copy(messages);
    enum error_code code = copy ? ERROR_OK : no_memory(e);
    for (size_t i = 0; !code && i < json_array_size(copy); i++)
        code = fit_message(a, json_array_get(copy, i), i + 1, e);
    if (!code && !(call_ids_fit(a, copy) && call_results_fit(a, copy) && turns_fit(a, copy) &&
                   call_texts_fit(a, copy)))
        code = no_memory(e);
    for (size_t i = 0; !code && i < json_array_size(copy); i++)
        code = fit_reasoning(a, json_array_get(copy, i), e);
    if (code)
        json_decref(copy);
    else
        *out = copy;
    return code;
}
