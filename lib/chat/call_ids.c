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

bool call_ids_fit(const struct chat_abilities *a, json_t *messages)
{
    json_t *calls = NULL;
    size_t number = 0, results = 0;
    bool good = true;
    if (!a->ids_needed)
        return true;
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
