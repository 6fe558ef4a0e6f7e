/* libmoed: conversations; see chat.h. client/chat makes the prompt of the messages. */
#include "client/src/chat.h"

#include "client/src/chat_reader.h"
#include "client/src/error.h"
#include "client/src/request.h"

#include "base/strbuf.h"
#include "chat/message.h"
#include "json/json_read.h"
#include "json/json_write.h"

#include <stdlib.h>
#include <string.h>

static enum moed_code no_memory(struct moed_error *error)
{
    return error_report(error, MOED_ERROR_MEMORY, false, "no memory for the chat");
}

/* ---- The conversation ---- */

enum moed_code moed_chat_new(struct moed_session *session, const struct moed_chat_options *options,
                             struct moed_chat **out, struct moed_error *error)
{
    if (session_is_foreign(session, error))
        return MOED_ERROR_USAGE;
    struct moed_chat *chat = calloc(1, sizeof *chat);
    json_t *messages = json_array();
    if (!chat || !messages) {
        free(chat);
        json_decref(messages);
        return no_memory(error);
    }
    session_ref(session);
    chat->session = session;
    chat->messages = messages;
    enum moed_code code = moed_chat_configure(chat, options, error);
    if (code)
        moed_chat_free(chat);
    else
        *out = chat;
    return code;
}

enum moed_code moed_chat_configure(struct moed_chat *chat, const struct moed_chat_options *options,
                                   struct moed_error *error)
{
    struct chat_settings *settings;
    struct chat_model *model;
    enum moed_code code = chat_settings_new(options, &settings, error);
    if (code)
        return code;
    code = chat_model_new(chat->session, settings->chat_template, &model, error);
    if (code) {
        chat_settings_unref(settings);
        return code;
    }
    chat_settings_unref(chat->settings);
    chat_model_free(chat->model);
    chat->settings = settings;
    chat->model = model;
    return MOED_OK;
}

void moed_chat_free(struct moed_chat *chat)
{
    if (!chat)
        return;
    chat_settings_unref(chat->settings);
    chat_model_free(chat->model);
    json_decref(chat->messages);
    if (!session_is_foreign(chat->session, NULL))
        session_unref(chat->session);
    free(chat);
}

/* Takes message, NULL where it could not be made. */
static enum moed_code append(struct moed_chat *chat, json_t *message, struct moed_error *error)
{
    if (!message || json_array_append_new(chat->messages, message) != 0)
        return no_memory(error);
    return MOED_OK;
}

/* A string of JSON; NULL with *error set where it is not UTF-8. */
static json_t *string_of(const char *text, size_t bytes, const char *what, struct moed_error *error)
{
    json_t *value = json_stringn(text, bytes ? bytes : strlen(text));
    if (!value)
        error_report(error, MOED_ERROR_USAGE, false, "%s is not UTF-8", what);
    return value;
}

enum moed_code moed_chat_add(struct moed_chat *chat, const char *role, const char *text,
                             size_t text_bytes, struct moed_error *error)
{
    if (!*role)
        return error_report(error, MOED_ERROR_USAGE, false, "the message has no role");
    json_t *content = string_of(text, text_bytes, "the message", error);
    if (!content)
        return MOED_ERROR_USAGE;
    json_t *name = string_of(role, 0, "the role", error);
    if (!name) {
        json_decref(content);
        return MOED_ERROR_USAGE;
    }
    return append(chat, json_pack("{s:o, s:o}", "role", name, "content", content), error);
}

enum moed_code moed_chat_add_result(struct moed_chat *chat, const char *call_id, const char *text,
                                    size_t text_bytes, struct moed_error *error)
{
    json_t *content = string_of(text, text_bytes, "the result", error);
    if (!content)
        return MOED_ERROR_USAGE;
    json_t *id = string_of(call_id, 0, "the call's id", error);
    if (!id) {
        json_decref(content);
        return MOED_ERROR_USAGE;
    }
    return append(
        chat, json_pack("{s:s, s:o, s:o}", "role", "tool", "tool_call_id", id, "content", content),
        error);
}

static bool is_message(const json_t *value)
{
    const char *role = json_string_value(json_object_get(value, "role"));
    return role && *role;
}

enum moed_code moed_chat_add_json(struct moed_chat *chat, const char *json, size_t json_bytes,
                                  struct moed_error *error)
{
    json_error_t why;
    json_t *value = json_read(json, json_bytes ? json_bytes : strlen(json),
                              JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    if (!value)
        return error_report(error, MOED_ERROR_USAGE, false, "messages: line %d, column %d: %s",
                            why.line, why.column, why.text);
    bool list = json_is_array(value), failed = false;
    for (size_t i = 0; i < (list ? json_array_size(value) : 1); i++)
        if (!is_message(list ? json_array_get(value, i) : value)) {
            json_decref(value);
            return error_report(error, MOED_ERROR_USAGE, false,
                                "messages: number %zu is no object with a role", i + 1);
        }
    if (list)
        failed = json_array_extend(chat->messages, value) != 0;
    else
        failed = json_array_append(chat->messages, value) != 0;
    json_decref(value);
    return failed ? no_memory(error) : MOED_OK;
}

size_t moed_chat_count(const struct moed_chat *chat)
{
    return json_array_size(chat->messages);
}

void moed_chat_truncate(struct moed_chat *chat, size_t count)
{
    while (json_array_size(chat->messages) > count)
        json_array_remove(chat->messages, json_array_size(chat->messages) - 1);
}

enum moed_code moed_chat_json(const struct moed_chat *chat, char **json, size_t *json_bytes,
                              struct moed_error *error)
{
    char *text = json_dumps(chat->messages, JSON_INDENT(2));
    if (!text)
        return no_memory(error);
    *json = text;
    *json_bytes = strlen(text);
    return MOED_OK;
}

/* ---- The answer as a message ---- */

static json_t *last_message(const struct moed_chat *chat)
{
    size_t count = json_array_size(chat->messages);
    return count ? json_array_get(chat->messages, count - 1) : NULL;
}

static bool is_assistants(const json_t *message)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    return role && strcmp(role, "assistant") == 0;
}

/* An assistant's message without text or calls: the answer began in its place. */
static bool is_empty(const json_t *message)
{
    const json_t *content = json_object_get(message, "content");
    return is_assistants(message) && json_is_string(content) && !json_string_length(content) &&
           !json_array_size(json_object_get(message, "tool_calls"));
}

/* Puts a text of the answer behind that of the message that it continues. */
static bool join(const json_t *message, json_t *answer, const char *key)
{
    json_t *after = json_object_get(answer, key),
           *before = message_text(json_object_get(message, key));
    if (!before)
        return !json_is_array(json_object_get(message, key));
    struct strbuf text;
    strbuf_init(&text);
    strbuf_append(&text, json_string_value(before), json_string_length(before));
    strbuf_append(&text, json_string_value(after), json_string_length(after));
    json_decref(before);
    json_t *both = json_string_of(&text);
    strbuf_fini(&text);
    return both && json_object_set_new(answer, key, both) == 0;
}

static bool continue_message(json_t *message, json_t *answer)
{
    return join(message, answer, "content") && join(message, answer, "reasoning_content") &&
           json_object_update(message, answer) == 0;
}

enum moed_code moed_chat_add_answer(struct moed_chat *chat, const struct moed_request *request,
                                    struct moed_error *error)
{
    const struct chat_reader *reader = request_reader(request);
    if (!reader)
        return error_report(error, MOED_ERROR_USAGE, false, "the request is not of a chat");
    json_t *answer = chat_reader_message(reader);
    size_t count = json_array_size(chat->messages);
    bool reasons = chat_reader_continues(reader) == CHAT_IN_REASONING;
    if (answer && count > 1 && !reasons && is_empty(last_message(chat)))
        json_array_remove(chat->messages, count - 1);
    if (!answer || !chat_reader_continues(reader) || !is_assistants(last_message(chat)))
        return append(chat, answer, error);
    bool done = continue_message(last_message(chat), answer);
    json_decref(answer);
    return done ? MOED_OK : no_memory(error);
}

/* ---- The prompt ---- */

static enum moed_code request_of(const struct moed_chat *chat, struct chat_request *out,
                                 struct moed_error *error)
{
    static const enum chat_switch thinking[] = {[MOED_THINKING_DEFAULT] = CHAT_UNSET,
                                                [MOED_THINKING_ON] = CHAT_ON,
                                                [MOED_THINKING_OFF] = CHAT_OFF};
    const struct chat_settings *s = chat->settings;
    if (!json_array_size(chat->messages))
        return error_report(error, MOED_ERROR_USAGE, false, "the chat has no messages");
    *out = (struct chat_request){.messages = chat->messages,
                                 .tools = s->tools,
                                 .kwargs = s->variables,
                                 .reasoning_effort = s->reasoning_effort,
                                 .thinking = thinking[s->thinking],
                                 .now_s = -1};
    return MOED_OK;
}

enum moed_code chat_write(struct moed_chat *chat, struct chat_rendered *out,
                          struct moed_error *error)
{
    struct chat_request q;
    enum moed_code code = request_of(chat, &q, error);
    return code ? code : chat_model_write(chat->model, &q, out, error);
}

enum moed_code moed_chat_tokens(struct moed_chat *chat, uint32_t **tokens, size_t *token_count,
                                struct moed_error *error)
{
    struct chat_request q;
    struct chat_rendered rendered;
    enum moed_code code = request_of(chat, &q, error);
    if (!code)
        code = chat_model_render(chat->model, chat->session, &q, &rendered, error);
    if (code)
        return code;
    *tokens = rendered.tokens;
    *token_count = rendered.token_count;
    return MOED_OK;
}
