/* Text before tool calls; see call_text.h. The time is linear in the conversation, which is a
 * stranger's. */
#include "chat/call_text.h"

#include "chat/message.h"
#include "chat/turns.h"

static bool has_calls(const json_t *message)
{
    return json_object_get(message, "tool_calls") != NULL;
}

static bool is_answer(const json_t *message)
{
    return turn_has_role(message, "assistant") && !has_calls(message);
}

/* Owned; NULL: no memory. */
static json_t *text_of(const json_t *message)
{
    json_t *content = json_object_get(message, "content");
    return json_is_array(content) ? message_join_parts(content, "") : json_incref(content);
}

/* In the form that the template takes; takes the text, which may be NULL. NULL: no memory. */
static json_t *content_of(const struct chat_abilities *a, json_t *text)
{
    return a->text || !text ? text : json_pack("[{s:s, s:o}]", "type", "text", "text", text);
}

/* Appends a text, unless it is empty, to a list of parts. Takes the text. False: no memory. */
static bool hold(json_t *parts, json_t *text)
{
    bool good = text != NULL;
    if (json_string_length(text))
        good = json_array_append_new(parts, json_pack("{s:O}", "text", text)) == 0;
    json_decref(text);
    return good;
}

/* The text of a message with calls becomes the end of its reasoning. */
static bool text_to_reasoning(json_t *message, json_t *text)
{
    json_t *parts = json_array(), *reasoning = message_reasoning(message);
    bool good = !reasoning || hold(parts, json_incref(reasoning));
    good = good && hold(parts, json_incref(text));
    json_t *joined = good ? message_join_parts(parts, "\n\n") : NULL;
    good = joined && json_object_set(message, "reasoning", joined) == 0 &&
           json_object_set(message, "reasoning_content", joined) == 0;
    json_decref(joined);
    json_decref(parts);
    return good;
}

/* The held texts become the begin of the answer at this place, or one of their own in front of
 * another message. */
static bool texts_to_answer(const struct chat_abilities *a, json_t *held, json_t *messages,
                            size_t *i)
{
    json_t *message = json_array_get(messages, *i);
    bool answer = is_answer(message);
    if (answer && !hold(held, text_of(message)))
        return false;
    json_t *content = content_of(a, message_join_parts(held, "\n\n"));
    json_array_clear(held);
    if (answer)
        return json_object_set_new(message, "content", content) == 0;
    json_t *own = json_pack("{s:s, s:o}", "role", "assistant", "content", content);
    return json_array_insert_new(messages, (*i)++, own) == 0;
}

/* The numbers of messages up to the last question and up to the last answer. */
struct reach {
    size_t question, answer;
};

static struct reach reach_of(const json_t *messages)
{
    struct reach reach = {0, 0};
    size_t n = json_array_size(messages);
    for (size_t i = 0; i < n; i++) {
        const json_t *message = json_array_get(messages, i), *content;
        content = json_object_get(message, "content");
        bool begun = i + 1 == n && json_string_length(content) == 0; /* no answer yet */
        if (turn_has_role(message, "user"))
            reach.question = i + 1;
        else if (is_answer(message) && !begun)
            reach.answer = i + 1;
    }
    return reach;
}

/* Whether the template no longer shows the text of message i, which has calls, in that message. */
static bool is_past(const struct chat_abilities *a, const struct reach *reach, size_t i)
{
    return (!a->call_text_asked && i < reach->question) ||
           (!a->call_text_answered && i < reach->answer);
}

static bool is_misplaced(const struct chat_abilities *a, const json_t *message)
{
    bool both = json_string_length(message_reasoning(message)) > 0;
    bool shown = a->call_text && (a->call_reasoning || !both);
    return !shown && a->reasoning;
}

/* Of a message with calls. */
static bool fit_text(const struct chat_abilities *a, json_t *message, bool past, json_t *held)
{
    if (!past && !is_misplaced(a, message))
        return true;
    json_t *text = text_of(message);
    bool good = text != NULL;
    if (json_string_length(text)) {
        good = past ? hold(held, json_incref(text)) : text_to_reasoning(message, text);
        json_t *empty = content_of(a, json_string(""));
        good = good && json_object_set(message, "content", empty) == 0;
        json_decref(empty);
    }
    json_decref(text);
    return good;
}

/* The text of a message with calls becomes a message of its own in front; *i stays the place of the
 * message with calls. */
static bool text_to_front(const struct chat_abilities *a, json_t *messages, size_t *i)
{
    json_t *message = json_array_get(messages, *i), *text = text_of(message);
    size_t len = json_string_length(text);
    json_decref(text);
    if (len == 0)
        return true;
    json_t *own = json_pack("{s:s, s:O}", "role", "assistant", "content",
                            json_object_get(message, "content"));
    return own && json_array_insert_new(messages, (*i)++, own) == 0 &&
           json_object_set_new(message, "content", content_of(a, json_string(""))) == 0;
}

bool call_texts_fit(const struct chat_abilities *a, json_t *messages)
{
    json_t *held = json_array();
    bool good = held != NULL;
    struct reach reach = reach_of(messages);
    size_t added = 0;
    for (size_t i = 0; good && i < json_array_size(messages); i++) {
        json_t *message = json_array_get(messages, i);
        size_t at = i;
        if (turn_has_role(message, "assistant") && has_calls(message)) {
            good = fit_text(a, message, is_past(a, &reach, i - added), held);
            if (good && a->text_then_call && !a->reasoning)
                good = text_to_front(a, messages, &i);
        } else if (json_array_size(held) &&
                   (is_answer(message) || turn_has_role(message, "user"))) {
            good = texts_to_answer(a, held, messages, &i);
        }
        added += i - at;
    }
    json_decref(held);
    return good;
}
