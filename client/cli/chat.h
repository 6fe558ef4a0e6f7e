/* Makes the prompt of a conversation with the model's chat template, or with another one. */
#ifndef MOED_CLI_CHAT_H
#define MOED_CLI_CHAT_H

#include "chat/chat_template.h"
#include "client/include/moed.h"
#include "toolcall/formats.h"

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
    uint32_t *tokens; /* the caller frees them with moed_free */
    size_t count;
    bool plain;                /* the model has no chat template: turns are written as plain text */
    const char *reasoning_end; /* the prompt leaves reasoning open, which ends at this text; NULL:
                                  it does not. Constant */
    const struct tool_format *format;        /* how the model writes an answer; constant */
    const struct reasoning_marks *reasoning; /* NULL: none, or the format has its own; constant */
};

/* Adds text, unless it is empty, as the user's turn behind the file's messages. Only the template's
 * own marks become special tokens: nothing in a message can end its turn. MOED_ERROR_USAGE: the
 * text or a file is malformed, or the template refuses the conversation. */
enum moed_code chat_prompt(struct moed_session *session, const struct chat_options *options,
                           const char *text, size_t text_bytes, struct chat_prompt *out,
                           struct moed_error *error);

/* `grammar` for the answer to `prompt`: where the prompt leaves reasoning open, the model reasons
 * freely first, and the grammar binds behind it. */
struct moed_grammar chat_prompt_bind(const struct chat_prompt *prompt,
                                     const struct moed_grammar *grammar);

struct chat_turn {
    const char *role; /* "system", "user", "assistant": plain text of ours */
    const char *text;
    size_t text_bytes;
};

/* The same for a conversation of any number of turns, and the start of the assistant's next. */
enum moed_code chat_conversation(struct moed_session *session, const struct chat_turn *turns,
                                 size_t count, uint32_t **tokens, size_t *token_count,
                                 struct moed_error *error);

struct jinja_output;

/* The tokens of a prompt that a template rendered: special tokens only outside its ranges, and the
 * begin token in front where the model's texts have one. *tokens: the caller's, for moed_free. */
enum moed_code chat_tokenise(struct moed_session *session, const struct moed_model *model,
                             const struct jinja_output *text, uint32_t **tokens,
                             size_t *token_count, struct moed_error *error);

#endif
