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

/* The ids that calls had: in their order, and with the new ones. */
struct old_ids {
    json_t *list, *renamed;
};

static bool rename_calls(json_t *calls, struct old_ids *old)
{
    int failed = json_array_clear(old->list) | json_object_clear(old->renamed);
    for (size_t i = 0; i < json_array_size(calls); i++) {
        json_t *call = json_array_get(calls, i), *function = json_object_get(call, "function");
        const char *name = json_string_value(json_object_get(function ? function : call, "name"));
        json_t *was = json_object_get(call, "id");
        json_t *id = json_sprintf("functions.%s:%zu", name ? name : "", i);
        failed |= json_array_append_new(old->list, was ? json_incref(was) : json_null());
        if (json_is_string(was))
            failed |= json_object_set(old->renamed, json_string_value(was), id);
        failed |= json_object_set_new(call, "id", id);
    }
    return !failed;
}

/* Result number i behind the calls. An id may be there twice, as "": then its place decides. */
static bool rename_result(json_t *result, const json_t *calls, const struct old_ids *old, size_t i)
{
    const json_t *was = json_object_get(result, "tool_call_id");
    json_t *id = json_object_get(old->renamed, json_is_string(was) ? json_string_value(was) : "");
    if (json_equal(json_array_get(old->list, i), was))
        id = json_object_get(json_array_get(calls, i), "id");
    return !id || json_object_set(result, "tool_call_id", id) == 0;
}

static bool rename_ids(json_t *messages)
{
    struct old_ids old = {json_array(), json_object()};
    json_t *calls = NULL;
    size_t results = 0;
    bool good = old.list && old.renamed;
    for (size_t i = 0; i < json_array_size(messages) && good; i++) {
        json_t *message = json_array_get(messages, i);
        if (turn_has_role(message, "tool")) {
            good = rename_result(message, calls, &old, results++);
            continue;
        }
        calls = json_object_get(message, "tool_calls");
        results = 0;
        good = rename_calls(calls, &old);
    }
    json_decref(old.list);
    json_decref(old.renamed);
    return good;
}

bool call_ids_fit(const struct chat_abilities *a, json_t *messages)
{
    return (!(a->ids_needed || a->ordinal_ids) || fill_ids(messages)) &&
           (!a->ordinal_ids || rename_ids(messages));
}
