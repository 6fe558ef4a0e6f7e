/* libmoed: a chat's options; see chat_settings.h. */
#include "client/src/chat_settings.h"

#include "client/src/error.h"
#include "client/src/options.h"

#include "chat/effort.h"

#include <stdlib.h>
#include <string.h>

struct chat_settings *chat_settings_ref(struct chat_settings *s)
{
    atomic_fetch_add_explicit(&s->references, 1, memory_order_relaxed);
    return s;
}

void chat_settings_unref(struct chat_settings *s)
{
    /* acq_rel: what other holders read is read before the memory goes */
    if (!s || atomic_fetch_sub_explicit(&s->references, 1, memory_order_acq_rel) > 1)
        return;
    tool_list_free(s->tool_list);
    json_decref(s->tools);
    json_decref(s->variables);
    free(s->tool_name);
    free(s->reasoning_effort);
    free(s->chat_template);
    free(s);
}

/* text NULL: *out stays NULL. */
static enum moed_code parse(const char *text, const char *name, bool array, json_t **out,
                            struct moed_error *error)
{
    json_error_t why;
    if (!text)
        return MOED_OK;
    *out = json_loads(text, JSON_REJECT_DUPLICATES, &why);
    if (!*out)
        return error_report(error, MOED_ERROR_USAGE, false, "%s: line %d, column %d: %s", name,
                            why.line, why.column, why.text);
    if (array ? json_is_array(*out) : json_is_object(*out))
        return MOED_OK;
    return error_report(error, MOED_ERROR_USAGE, false, "%s: not a JSON %s", name,
                        array ? "array" : "object");
}

static bool copy_text(const char *text, char **out)
{
    *out = text ? strdup(text) : NULL;
    return !text || *out;
}

/* Checks the tools, and that the choice can be kept. */
static enum moed_code take_tools(struct chat_settings *s, struct moed_error *error)
{
    struct error why;
    bool demanded = s->choice == MOED_TOOLS_REQUIRED || s->choice == MOED_TOOLS_NAMED;
    if (s->choice < MOED_TOOLS_AUTO || s->choice > MOED_TOOLS_NAMED)
        return error_report(error, MOED_ERROR_USAGE, false, "unknown tool_choice %d",
                            (int)s->choice);
    if (json_array_size(s->tools) == 0 || s->choice == MOED_TOOLS_NONE) {
        json_decref(s->tools);
        s->tools = NULL;
    } else if (tool_list_new(s->tools, &s->tool_list, &why)) {
        return error_convert(error, &why);
    }
    if (demanded && !s->tool_list)
        return error_report(error, MOED_ERROR_USAGE, false,
                            "tool_choice demands a call, but there are no tools");
    if (s->choice == MOED_TOOLS_NAMED &&
        (!s->tool_name || !tool_list_find(s->tool_list, s->tool_name, strlen(s->tool_name))))
        return error_report(error, MOED_ERROR_USAGE, false, "tool_name: there is no tool '%.60s'",
                            s->tool_name ? s->tool_name : "");
    return MOED_OK;
}

/* An effort switches thinking, unless the options or the variables do. */
static void take_effort(struct chat_settings *s)
{
    static const enum moed_thinking thinking[] = {[CHAT_UNSET] = MOED_THINKING_DEFAULT,
                                                  [CHAT_ON] = MOED_THINKING_ON,
                                                  [CHAT_OFF] = MOED_THINKING_OFF};
    enum chat_switch effort = chat_effort_switch(s->reasoning_effort);
    if (s->thinking == MOED_THINKING_DEFAULT)
        s->thinking = thinking[chat_thinking(CHAT_UNSET, effort, s->variables)];
    if (effort != CHAT_OFF)
        return;
    free(s->reasoning_effort);
    s->reasoning_effort = NULL; /* "none" is no effort that a template knows */
}

static enum moed_code fill(struct chat_settings *s, const struct moed_chat_options *o,
                           struct moed_error *error)
{
    s->choice = o->tool_choice;
    s->thinking = o->thinking;
    s->one_call = o->one_call;
    s->whole_calls = o->whole_calls;
    if (!copy_text(o->tool_name, &s->tool_name) ||
        !copy_text(o->reasoning_effort, &s->reasoning_effort) ||
        !copy_text(o->chat_template, &s->chat_template))
        return error_report(error, MOED_ERROR_MEMORY, false, "no memory for the chat");
    enum moed_code code = parse(o->variables, "variables", false, &s->variables, error);
    if (!code)
        code = parse(o->tools, "tools", true, &s->tools, error);
    if (code)
        return code;
    take_effort(s);
    return take_tools(s, error);
}

enum moed_code chat_settings_new(const struct moed_chat_options *options,
                                 struct chat_settings **out, struct moed_error *error)
{
    struct moed_chat_options o = {0};
    enum moed_code code =
        options ? OPTIONS_COPY(options, &o, struct moed_chat_options, variables, error) : MOED_OK;
    if (code)
        return code;
    struct chat_settings *s = calloc(1, sizeof *s);
    if (!s)
        return error_report(error, MOED_ERROR_MEMORY, false, "no memory for the chat");
    atomic_init(&s->references, 1);
    code = fill(s, &o, error);
    if (code)
        chat_settings_unref(s);
    else
        *out = s;
    return code;
}
