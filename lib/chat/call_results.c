/* Results beside their calls; see call_results.h. The time is linear in the conversation, which is
 * a stranger's. */
#include "chat/call_results.h"

#include "chat/turns.h"

static const json_t *id_of(const json_t *calls, size_t i)
{
    return json_object_get(json_array_get(calls, i), "id");
}

/* The call whose result is number i behind the message. Ids may be absent, or be there twice. */
static size_t call_of(const json_t *calls, const json_t *places, const json_t *result, size_t i)
{
    const json_t *id = json_object_get(result, "tool_call_id");
    const json_t *place =
        json_is_string(id) ? json_object_get(places, json_string_value(id)) : NULL;
    size_t last = json_array_size(calls) - 1, same = i < last ? i : last;
    bool known = place && !json_equal(id_of(calls, same), id);
    return known ? (size_t)json_integer_value(place) : same;
}

/* Where each id's call is. Owned; NULL: no memory. */
static json_t *places_of(const json_t *calls)
{
    json_t *places = json_object();
    int failed = !places;
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const char *id = json_string_value(id_of(calls, i));
        if (id)
            failed |= json_object_set_new(places, id, json_integer((json_int_t)i));
    }
    if (!failed)
        return places;
    json_decref(places);
    return NULL;
}

/* The results of each call: those of messages [from, to). Owned; NULL: no memory. */
static json_t *results_of(const json_t *calls, const json_t *messages, size_t from, size_t to)
{
    json_t *places = places_of(calls), *results = json_array();
    int failed = !places || !results;
    for (size_t i = 0; i < json_array_size(calls); i++)
        failed |= json_array_append_new(results, json_array());
    for (size_t i = from; i < to && !failed; i++) {
        json_t *result = json_array_get(messages, i);
        size_t call = call_of(calls, places, result, i - from);
        failed |= json_array_append(json_array_get(results, call), result);
    }
    json_decref(places);
    if (!failed)
        return results;
    json_decref(results);
    return NULL;
}

/* In the form that the template takes. Owned; NULL: no memory. */
static json_t *content_of(const struct chat_abilities *a, const char *text)
{
    return a->text ? json_string(text) : json_pack("[{s:s, s:s}]", "type", "text", "text", text);
}

/* Stands for the result of a call that has none: by position the next one would be its. Owned;
 * NULL: no memory. */
static json_t *no_result(const struct chat_abilities *a, const json_t *call)
{
    json_t *name = json_object_get(json_object_get(call, "function"), "name");
    return json_pack("{s:s, s:o, s:O*, s:O*}", "role", "tool", "content",
                     content_of(a, "(no result)"), "tool_call_id", json_object_get(call, "id"),
                     "name", name);
}

/* Writes results for the calls without any in front of the last call that has one. */
static bool fill_gaps(const struct chat_abilities *a, const json_t *calls, json_t *results)
{
    size_t n = json_array_size(calls);
    while (n > 0 && json_array_size(json_array_get(results, n - 1)) == 0)
        n--;
    int failed = 0;
    for (size_t i = 0; i < n; i++) {
        json_t *own = json_array_get(results, i);
        if (json_array_size(own) == 0)
            failed |= json_array_append_new(own, no_result(a, json_array_get(calls, i)));
    }
    return !failed;
}

/* A message with call i alone; the first one has the text and the reasoning. Owned. */
static json_t *message_of(const struct chat_abilities *a, const json_t *message, size_t i)
{
    json_t *calls = json_pack("[O]", json_array_get(json_object_get(message, "tool_calls"), i));
    if (i == 0) {
        json_t *first = json_copy((json_t *)message);
        if (json_object_set_new(first, "tool_calls", calls) == 0)
            return first;
        json_decref(first);
        return NULL;
    }
    return json_pack("{s:s, s:o, s:o}", "role", "assistant", "content", content_of(a, ""),
                     "tool_calls", calls);
}

/* Appends the message at i, and the results behind it, to the list. Returns the place behind them;
 * 0: no memory. */
static size_t append_turn(const struct chat_abilities *a, const json_t *messages, size_t i,
                          json_t *list)
{
    json_t *message = json_array_get(messages, i);
    const json_t *calls = json_object_get(message, "tool_calls");
    size_t end = i + 1;
    while (turn_has_role(json_array_get(messages, end), "tool"))
        end++;
    json_t *results = results_of(calls, messages, i + 1, end);
    int failed = !results || !fill_gaps(a, calls, results);
    if (a->several_calls)
        failed |= json_array_append(list, message);
    for (size_t k = 0; k < json_array_size(calls) && !failed; k++) {
        if (!a->several_calls)
            failed |= json_array_append_new(list, message_of(a, message, k));
        failed |= json_array_extend(list, json_array_get(results, k));
    }
    json_decref(results);
    return failed ? 0 : end;
}

bool call_results_fit(const struct chat_abilities *a, json_t *messages)
{
    json_t *list = json_array();
    size_t i = 0, n = json_array_size(messages);
    bool good = list != NULL;
    while (good && i < n) {
        json_t *message = json_array_get(messages, i);
        bool several = json_array_size(json_object_get(message, "tool_calls")) > 1;
        if (several && turn_has_role(message, "assistant"))
            good = (i = append_turn(a, messages, i, list)) > 0;
        else
            good = json_array_append(list, json_array_get(messages, i++)) == 0;
    }
    good = good && json_array_clear(messages) == 0 && json_array_extend(messages, list) == 0;
    json_decref(list);
    return good;
}
