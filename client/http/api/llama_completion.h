/* llama-server's own completion: POST /completion. Its other routes are in text_tools.c and
 * state.c. */
#ifndef MOED_HTTP_LLAMA_COMPLETION_H
#define MOED_HTTP_LLAMA_COMPLETION_H

#include "client/http/api/answer.h"
#include "client/http/server/exchange.h"

void handle_llama_completion(struct exchange *x);

/* For tests. */
extern const struct dialect llama_dialect;
bool parse_llama_completion(struct ask *ask, const char *body, size_t len, struct problem *p);

#endif
