/* llama-server's own completion: POST /completion. Its other routes are in infill.c, text_tools.c
 * and state.c. */
#ifndef MOED_HTTP_LLAMA_COMPLETION_H
#define MOED_HTTP_LLAMA_COMPLETION_H

#include "client/http/api/answer.h"
#include "client/http/server/exchange.h"

void handle_llama_completion(struct exchange *x);

/* Of /infill, too. */
extern const struct dialect llama_dialect;
extern const struct parameter llama_completion_parameters[];
/* What the parameters mean together; after ask_take. */
void llama_completion_conclude(struct ask *ask);

/* For tests. */
bool parse_llama_completion(struct ask *ask, const char *body, size_t len, struct problem *p);

#endif
