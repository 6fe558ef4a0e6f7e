/* A conversation as OpenAI's API has it, checked and brought into the form that chat_render takes:
 * every content is a string. */
#ifndef MOED_HTTP_MESSAGES_H
#define MOED_HTTP_MESSAGES_H

#include "client/http/api/ask.h"
#include "client/http/api/content.h"

#define MESSAGES_MAX 16384 /* of a conversation; its calls of tools have the same limit */

/* The text as a string; a new reference. NULL: *p is set. */
json_t *string_of(const struct strbuf *text, struct problem *p);
/* Sets ask->messages. */
bool take_messages(struct ask *ask, json_t *value, struct problem *p);
/* The assistant's turn that the next part of an answer belongs to: the last message where that is
 * the assistant's, else a new one without text. Borrowed; NULL: *p is set. */
json_t *assistant_turn(struct ask *ask, struct problem *p);
/* Appends a call to an assistant's turn of ask->messages; arguments: JSON text. Takes `arguments`,
 * which may be NULL (no memory). */
bool add_call(struct ask *ask, json_t *turn, const char *id, const char *name, json_t *arguments,
              struct problem *p);
/* Appends the result of the call with this id; takes content, which may be NULL (*p is set then).
 * The name of its tool is found among the calls. */
bool add_result(struct ask *ask, const char *id, json_t *content, struct problem *p);
/* Puts a system's turn before the conversation; takes content, which may be NULL. */
bool add_system(struct ask *ask, json_t *content, struct problem *p);
/* Appends {"role","content"} to ask->messages, at most MESSAGES_MAX; takes content, which may be
 * NULL (*p is set then). */
bool add_message(struct ask *ask, const char *role, json_t *content, struct problem *p);

#endif
