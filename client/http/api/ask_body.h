/* From an exchange's body to what it asks for. */
#ifndef MOED_HTTP_API_ASK_BODY_H
#define MOED_HTTP_API_ASK_BODY_H

#include "client/http/api/ask.h"
#include "client/http/server/exchange.h"

typedef bool ask_parser(struct ask *ask, const char *body, size_t len, struct problem *p);

/* Parses the body. False: the exchange has got its reply, and there is no *ask to release. */
bool ask_body(struct exchange *x, struct ask *ask, ask_parser *parse);

#endif
