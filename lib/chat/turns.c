/* The order of turns; see turns.h. All of it takes time linear in the conversation, which is a
 * stranger's. */
#include "chat/turns.h"

#include "base/strbuf.h"
#include "json/json_write.h"

#include <string.h>

bool turn_has_role(const json_t *message, const char *role)
{
    const char *own = json_string_value(json_object_get(message, "role"));
    return own && strcmp(own, role) == 0;
}

/* ---- Joining ---- */

static const json_t *content_at(const json_t *messages, size_t i)
{
    return json_object_get(json_array_get(messages, i), "content");
}

static json_t *join_strings(const json_t *messages, size_t from, size_t to)
{
    struct strbuf text;
    strbuf_init(&text);
    for (size_t i = from; i < to; i++) {
        const json_t *content = content_at(messages, i);
        if (text.len && json_string_length(content))
            strbuf_append(&text, "\n\n", 2);
        strbuf_append(&text, json_string_value(content), json_string_length(content));
    }
    json_t *joined = json_string_of(&text);
    strbuf_fini(&text);
    return joined;
}

static json_t *join_parts(const json_t *messages, size_t from, size_t to)
{
    json_t *joined = json_array();
    int failed = !joined;
    for (size_t i = from; i < to; i++) {
        if (i > from)
            failed |= json_array_append_new(
                joined, json_pack("{s:s, s:s}", "type", "text", "text", "\n\n"));
        failed |= json_array_extend(joined, (json_t *)content_at(messages, i));
    }
    if (!failed)
        return joined;
    json_decref(joined);
    return NULL;
}

/* The contents of these messages, which are of one kind, with blank lines between. NULL: no memory.
 */
static json_t *join_contents(const json_t *messages, size_t from, size_t to)
{
    return json_is_array(content_at(messages, from)) ? join_parts(messages, from, to)
                                                     : join_strings(messages, from, to);
}

static bool same_kind(const json_t *one, const json_t *other)
{
    return (json_is_string(one) && json_is_string(other)) ||
           (json_is_array(one) && json_is_array(other));
}

/* The end of the run that begins at `i`: a message of the role `first`, then those of `then`. */
static size_t run_end(const json_t *messages, size_t i, const char *first, const char *then)
{
    size_t end = i + 1;
    if (turn_has_role(json_array_get(messages, i), first))
        while (turn_has_role(json_array_get(messages, end), then) &&
               same_kind(content_at(messages, i), content_at(messages, end)))
            end++;
    return end;
}

/* Takes the new list, which may be NULL (no memory). */
static bool replace(json_t *messages, json_t *list)
{
    bool good = list && json_array_clear(messages) == 0 && json_array_extend(messages, list) == 0;
    json_decref(list);
    return good;
}

/* Appends to each message of the role `first` those of the role `then` right behind it. */
static bool join_runs(json_t *messages, const char *first, const char *then)
{
    json_t *list = json_array();
    for (size_t i = 0, end; i < json_array_size(messages); i = end) {
        json_t *message = json_array_get(messages, i);
        end = run_end(messages, i, first, then);
        json_t *joined = end > i + 1 ? join_contents(messages, i, end) : NULL;
        if ((end > i + 1 && json_object_set_new(message, "content", joined) != 0) ||
            json_array_append(list, message) != 0) {
            json_decref(list);
            return false;
        }
    }
    return replace(messages, list);
}

bool turns_join_users(json_t *messages)
{
    return join_runs(messages, "user", "user");
}

/* ---- System messages ---- */

/* Puts each system message into the user's turn after it; one without becomes a user's turn. */
static bool merge_system(json_t *messages)
{
    if (!join_runs(messages, "system", "system"))
        return false;
    json_t *list = json_array();
    int failed = 0;
    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_t *message = json_array_get(messages, i);
        if (run_end(messages, i, "system", "user") > i + 1) {
            json_t *joined = join_contents(messages, i, i + 2);
            failed |= json_object_set_new(json_array_get(messages, i + 1), "content", joined);
            continue;
        }
        if (turn_has_role(message, "system"))
            failed |= json_object_set_new(message, "role", json_string("user"));
        failed |= json_array_append(list, message);
    }
    return replace(messages, list) && !failed;
}

/* Only the first message may be a developer's. */
static bool join_system(json_t *messages)
{
    return join_runs(messages, "developer", "system") && join_runs(messages, "system", "system");
}

/* System messages behind those at the begin, in their place: the prompt before them stays. */
static bool later_to_user(json_t *messages)
{
    size_t i = turn_has_role(json_array_get(messages, 0), "developer");
    int failed = 0;
    while (turn_has_role(json_array_get(messages, i), "system"))
        i++;
    for (; i < json_array_size(messages); i++) {
        json_t *message = json_array_get(messages, i);
        if (turn_has_role(message, "system"))
            failed |= json_object_set_new(message, "role", json_string("user"));
    }
    return !failed;
}

static bool fit_system(const struct chat_abilities *a, json_t *messages)
{
    if (!a->system)
        return merge_system(messages);
    return (a->system_again || join_system(messages)) &&
           (a->system_later || later_to_user(messages));
}

/* ---- All ---- */

bool turns_fit(const struct chat_abilities *a, json_t *messages)
{
    return fit_system(a, messages) && (a->user_again || turns_join_users(messages)) &&
           (a->user_after_result || join_runs(messages, "tool", "user"));
}
