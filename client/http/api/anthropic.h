/* Anthropic's Messages API: POST /v1/messages, /v1/messages/count_tokens. */
#ifndef MOED_HTTP_ANTHROPIC_H
#define MOED_HTTP_ANTHROPIC_H

#include "client/http/api/answer.h"
#include "client/http/api/ask.h"
#include "client/http/server/exchange.h"

void handle_messages(struct exchange *x);
void handle_count_tokens(struct exchange *x);

/* For tests. */
extern const struct dialect message_dialect;
bool parse_messages(struct ask *ask, const char *body, size_t len, bool count_only,
                    struct problem *p);

#endif
