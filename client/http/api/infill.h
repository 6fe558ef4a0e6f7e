/* llama-server's fill-in-the-middle: POST /infill. The answer is that of /completion. */
#ifndef MOED_HTTP_INFILL_H
#define MOED_HTTP_INFILL_H

#include "client/http/api/ask.h"
#include "client/http/server/exchange.h"

void handle_infill(struct exchange *x);

/* For tests. */
bool parse_infill(struct ask *ask, const char *body, size_t len, struct problem *p);

#endif
