/* What a message of a conversation holds, in the forms in which clients send it. */
#ifndef MOED_CHAT_MESSAGE_H
#define MOED_CHAT_MESSAGE_H

#include "base/error.h"

#include <jansson.h>

/* The texts of all parts of a content, owned by the caller; NULL: no memory. */
json_t *message_join_parts(const json_t *parts, const char *between);

/* A content's text, which may be in parts; a new reference. NULL: it has none, or no memory. */
json_t *message_text(json_t *content);

/* A copy of the messages in which each content that is a list of texts is one string, owned by the
 * caller. ERROR_UNSUPPORTED: a part that is no text; ERROR_USAGE: a malformed one. */
enum error_code messages_join_parts(const json_t *messages, json_t **out, struct error *e);

/* `reasoning` and `thinking` are what some servers call reasoning_content. Borrowed; may be NULL.
 */
json_t *message_reasoning(const json_t *message);

#endif
