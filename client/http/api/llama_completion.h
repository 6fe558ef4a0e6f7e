/* llama-server's own completion: POST /completion. Its other routes are in text_tools.c and
 * state.c. */
#ifndef MOED_HTTP_LLAMA_COMPLETION_H
#define MOED_HTTP_LLAMA_COMPLETION_H

#include "client/http/api/ask.h"
#include "client/http/server/exchange.h"

void handle_llama_completion(struct exchange *x);

/* The parameters, for tests. */
bool parse_llama_completion(struct ask *ask, const char *body, size_t len, struct problem *p);

#endif
