/* Makes the prompt of a conversation with the model's chat template, or with another one. */
#ifndef MOED_CLI_CHAT_H
#define MOED_CLI_CHAT_H

#include "client/chat/chat_model.h"

struct chat_options {
    const char *template_file; /* NULL: the model's template */
    const char *messages_file; /* JSON: an array of messages, or an object with "messages" and, as
                                  in a request, "tools", "chat_template_kwargs",
                                  "reasoning_effort", "enable_thinking"; NULL: none */
    const json_t *messages;    /* an array of messages, where messages_file is NULL; NULL: none */
    const char *system;        /* the first message; NULL: none */
    const char *kwargs;        /* further variables of the template, a JSON object; NULL: none */
    enum chat_switch thinking; /* where the file does not say */
};

struct chat_prompt {
    char *text; /* for moed_generate_options, with its ranges; owned, as these are */
    size_t bytes;
    struct moed_range *ranges;
    size_t range_count;
    bool plain;                /* the model has no chat template: turns are written as plain text */
    const char *reasoning_end; /* the prompt leaves reasoning open, which ends at this text; NULL:
                                  it does not. Constant */
    struct chat_style style;   /* how the model writes an answer */
};

/* Adds text, unless it is empty, as the user's turn behind the file's messages. Only the template's
 * own marks become special tokens: nothing in a message can end its turn. MOED_ERROR_USAGE: the
 * text or a file is malformed, or the template refuses the conversation.
 *
 * *model: the session's and the options' of an earlier call, or NULL: then it asks the worker, and
 * sets *model, which the caller frees. */
enum moed_code chat_prompt(struct moed_session *session, const struct chat_options *options,
                           const char *text, size_t text_bytes, struct chat_model **model,
                           struct chat_prompt *out, struct moed_error *error);
void chat_prompt_fini(struct chat_prompt *prompt); /* of zeros: nothing */

/* Sets the options' prompt, which borrows from `prompt`. */
void chat_prompt_apply(const struct chat_prompt *prompt, struct moed_generate_options *options);

/* `grammar` for the answer to `prompt`: where the prompt leaves reasoning open, the model reasons
 * freely first, and the grammar binds behind it. */
struct moed_grammar chat_prompt_bind(const struct chat_prompt *prompt,
                                     const struct moed_grammar *grammar);

#endif
