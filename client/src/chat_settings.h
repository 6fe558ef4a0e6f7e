/* libmoed: what a program's struct moed_chat_options asks for, checked. It never changes; the chat
 * and its requests share it, on any threads. */
#ifndef MOED_CLIENT_CHAT_SETTINGS_H
#define MOED_CLIENT_CHAT_SETTINGS_H

#include "client/include/moed.h"

#include "toolcall/tools.h"

#include <jansson.h>
#include <stdatomic.h>

struct chat_settings {
    atomic_uint references;
    json_t *tools;               /* NULL: none, or the model does not see them */
    struct tool_list *tool_list; /* of `tools` */
    json_t *variables;           /* NULL: none */
    char *tool_name, *reasoning_effort, *chat_template; /* NULL: not given */
    enum moed_tool_choice choice;
    enum moed_thinking thinking;
    bool one_call, whole_calls;
};

/* options may be NULL. One reference. */
enum moed_code chat_settings_new(const struct moed_chat_options *options,
                                 struct chat_settings **out, struct moed_error *error);
struct chat_settings *chat_settings_ref(struct chat_settings *s);
void chat_settings_unref(struct chat_settings *s); /* takes NULL */

#endif
