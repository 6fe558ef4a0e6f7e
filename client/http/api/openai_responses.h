/* OpenAI's Responses API, without state: POST /v1/responses, /v1/responses/input_tokens. Nothing is
 * stored, so a conversation comes whole with each request. */
#ifndef MOED_HTTP_OPENAI_RESPONSES_H
#define MOED_HTTP_OPENAI_RESPONSES_H

#include "client/http/api/answer.h"
#include "client/http/api/ask.h"
#include "client/http/server/exchange.h"

void handle_responses(struct exchange *x);
void handle_input_tokens(struct exchange *x);
/* POST /v1/chat/completions/input_tokens, llama-server's: the same of a chat completion. */
void handle_chat_input_tokens(struct exchange *x);

/* For tests. */
extern const struct dialect response_dialect;
bool parse_response(struct ask *ask, const char *body, size_t len, struct problem *p);
/* A request whose prompt is only counted. */
bool parse_input_tokens(struct ask *ask, const char *body, size_t len, struct problem *p);

#endif
