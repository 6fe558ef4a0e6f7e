/* From an exchange's body to what it asks for.
 *
 * Small bodies are parsed at once. A body above ASK_BODY_SMALL, and a schema that is to be
 * loosened, take long: one thread parses, another one loosens, so that they stop neither the loop
 * nor a model's thread. Clients take turns at both (server/turns.h). What waits there counts as an
 * answer (--answers): at most half of these, and a quarter of one client; more is refused. */
#ifndef MOED_HTTP_API_ASK_BODY_H
#define MOED_HTTP_API_ASK_BODY_H

#include "client/http/api/ask.h"
#include "client/http/server/exchange.h"

#define ASK_BODY_SMALL (64u << 10)

/* On any thread. */
typedef bool ask_parser(struct ask *ask, const char *body, size_t len, struct problem *p);
/* Takes *ask; on the loop's thread. */
typedef void ask_taker(struct exchange *x, struct ask *ask);

/* Parses the body and calls `take`: now or later, or never, where the client leaves or the body is
 * refused. */
void ask_body(struct exchange *x, ask_parser *parse, ask_taker *take);

#endif
