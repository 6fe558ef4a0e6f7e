/* Tools, calls and results as plain text, for templates that do not show them. The model is asked
 * to answer in the format "generic" of lib/toolcall. */
#ifndef MOED_CHAT_TOOL_MESSAGES_H
#define MOED_CHAT_TOOL_MESSAGES_H

#include <jansson.h>
#include <stdbool.h>

/* The conversation has calls or results of tools. */
bool tool_messages_have_calls(const json_t *messages);

/* messages: each content is a string (messages_join_parts), or none. A copy in which calls are an
 * assistant's text and results are the user's, in the order of the calls. tools: described in the
 * system's turn; NULL: not. Returns owned; NULL: no memory. */
json_t *tool_messages_plain(const json_t *messages, const json_t *tools);

#endif
