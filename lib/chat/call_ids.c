/* Ids of calls and results; see call_ids.h. */
#include "chat/call_ids.h"

#include "chat/turns.h"

#include <stdio.h>

/* 9 letters and digits, as Mistral's templates demand. */
static bool number_calls(json_t *calls, size_t *number)
{
    int failed = 0;
    for (size_t i = 0; i < json_array_size(calls); i++) {
        json_t *call = json_array_get(calls, i);
        char id[32];
        if (json_is_string(json_object_get(call, "id")))
            continue;
        snprintf(id, sizeof id, "call%05zu", ++*number);
        failed |= json_object_set_new(call, "id", json_string(id));
    }
    return !failed;
}

/* calls: those before the results, of which this is number i. */
static bool name_call(json_t *result, const json_t *calls, size_t i)
{
    size_t n = json_array_size(calls);
    const json_t *call = json_array_get(calls, i < n ? i : n - 1);
    json_t *id = json_object_get(call, "id");
    if (json_is_string(json_object_get(result, "tool_call_id")))
        return true;
    return json_object_set_new(result, "tool_call_id", id ? json_incref(id) : json_string("")) == 0;
}

static bool fill_ids(json_t *messages)
{
    json_t *calls = NULL;
    size_t number = 0, results = 0;
    bool good = true;
    for (size_t i = 0; i < json_array_size(messages) && good; i++) {
        json_t *message = json_array_get(messages, i);
        if (turn_has_role(message, "tool")) {
            good = name_call(message, calls, results++);
            continue;
        }
        calls = json_object_get(message, "tool_calls");
        results = 0;
        good = number_calls(calls, &number);
    }
    return good;
}

/* ---- The template's own ids ---- */

/* The new ids by the old ones, an object. NULL: no memory. */
static json_t *rename_calls(json_t *calls)
{
    json_t *renamed = json_object();
    int failed = !renamed;
    for (size_t i = 0; i < json_array_size(calls); i++) {
        json_t *call = json_array_get(calls, i), *function = json_object_get(call, "function");
        const char *old = json_string_value(json_object_get(call, "id"));
        const char *name = json_string_value(json_object_get(function ? function : call, "name"));
        json_t *id = json_sprintf("functions.%s:%zu", name ? name : "", i);
        if (old)
            failed |= json_object_set(renamed, old, id);
        failed |= json_object_set_new(call, "id", id);
    }
    if (!failed)
        return renamed;
    json_decref(renamed);
    return NULL;
}

static bool rename_result(json_t *result, const json_t *renamed)
{
    const char *old = json_string_value(json_object_get(result, "tool_call_id"));
    json_t *id = old ? json_object_get(renamed, old) : NULL;
    return !id || json_object_set(result, "tool_call_id", id) == 0;
}

static bool rename_ids(json_t *messages)
{
    json_t *renamed = json_object();
    bool good = renamed != NULL;
    for (size_t i = 0; i < json_array_size(messages) && good; i++) {
        json_t *message = json_array_get(messages, i);
        if (turn_has_role(message, "tool")) {
            good = rename_result(message, renamed);
            continue;
        }
        json_decref(renamed);
        renamed = rename_calls(json_object_get(message, "tool_calls"));
        good = renamed != NULL;
    }
    json_decref(renamed);
    return good;
}

bool call_ids_fit(const struct chat_abilities *a, json_t *messages)
{
    return (!(a->ids_needed || a->ordinal_ids) || fill_ids(messages)) &&
           (!a->ordinal_ids || rename_ids(messages));
}
