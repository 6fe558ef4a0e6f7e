/* A conversation as lib/chat takes it, and the tools that the model may call. */
#ifndef MOED_HTTP_CONVERSATION_H
#define MOED_HTTP_CONVERSATION_H

#include "client/http/api/ask.h"

/* What ask has for a chat template; borrows. */
struct chat_request conversation_of(const struct ask *ask);

/* OpenAI's tools and tool_choice; Ollama has the first too. */
bool take_tools(struct ask *ask, json_t *value, struct problem *p);
bool take_tool_choice(struct ask *ask, json_t *value, struct problem *p);
bool take_parallel_calls(struct ask *ask, json_t *value, struct problem *p);

/* Adds {"type": "function", "function": {...}} to ask->tools; takes `function`, which may be NULL
 * (no memory). */
bool add_tool(struct ask *ask, json_t *function, struct problem *p);
/* Once all parameters are taken: checks that tools and choice agree, and drops tools that must not
 * be called. False: *p is set. */
bool finish_tools(struct ask *ask, struct problem *p);

#endif
