/* The prompts of completions: texts, token ids, and both in one. */
#ifndef MOED_HTTP_PROMPT_H
#define MOED_HTTP_PROMPT_H

#include "client/http/api/ask.h"

/* A prompt or several: a string, an array of ids, one of strings and ids, which are one prompt, an
 * object {"prompt_string"}, or an array of strings, arrays and objects. */
bool take_prompt(struct ask *ask, json_t *value, struct problem *p);
/* Appends an array of strings and ids as one prompt. */
bool prompt_add_joined(struct ask *ask, const json_t *array, struct problem *p);

/* On the session's thread: the tokens of a prompt that came as strings and ids; nothing to do for
 * others. flags: as of moed_tokenize; special tokens are added to the first item alone. */
enum moed_code prompt_encode(struct ask_prompt *prompt, struct moed_session *session,
                             unsigned flags, struct moed_error *error);

#endif
