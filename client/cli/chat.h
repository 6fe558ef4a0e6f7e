/* A person's text as one turn of a conversation, for models whose chat template marks turns as
 * ChatML does: <|im_start|>user, a newline, the text, <|im_end|>, a newline, and the start of the
 * assistant's turn. */
#ifndef MOED_CLI_CHAT_H
#define MOED_CLI_CHAT_H

#include "client/include/moed.h"

/* The prompt's ids; *tokens is released with moed_free. The marks are special tokens and the text is
 * text: whatever stands in it, it cannot end its turn. MOED_ERROR_UNSUPPORTED: the model has no chat
 * template, or one of another kind, or takes a mark's text for the mark wherever it stands and it
 * stands in the text. */
enum moed_code chat_prompt(struct moed_session *session, const char *text, size_t text_bytes,
                           uint32_t **tokens, size_t *token_count, struct moed_error *error);

#endif
