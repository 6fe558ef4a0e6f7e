/* libmoed: a conversation, as its two files see it: chat.c keeps the messages, chat_answer.c starts
 * answers to them. */
#ifndef MOED_CLIENT_CHAT_H
#define MOED_CLIENT_CHAT_H

#include "client/chat/chat_model.h"
#include "client/src/chat_settings.h"

struct moed_chat {
    struct moed_session *session; /* a reference */
    struct chat_settings *settings;
    struct chat_model *model;
    json_t *messages; /* an array in OpenAI's form */
};

/* The prompt of an answer to the conversation, as text (chat_model.h). */
enum moed_code chat_write(struct moed_chat *chat, struct chat_rendered *out,
                          struct moed_error *error);

#endif
