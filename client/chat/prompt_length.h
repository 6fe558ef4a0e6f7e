/* Prompts that no message to a worker can carry. Clients shorten a conversation at the code of a
 * full context, and at no other. */
#ifndef MOED_CLIENT_PROMPT_LENGTH_H
#define MOED_CLIENT_PROMPT_LENGTH_H

#include "client/include/moed.h"

/* After *error, which is of this prompt: where that is MOED_ERROR_LIMIT, and the text has more
 * tokens than the model's context, it becomes MOED_ERROR_CONTEXT. Asks the session's worker, which
 * tokenizes the text in slices. Returns error->code. */
enum moed_code prompt_length_explain(struct moed_session *session, const char *text, size_t bytes,
                                     struct moed_error *error);

#endif
