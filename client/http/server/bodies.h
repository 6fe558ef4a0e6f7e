/* The memory that the bodies of all requests have while they are read. Bodies of up to BODIES_SMALL
 * bytes have an eighth of --bodies-bytes of their own beside it, so large ones never keep them out.
 * Where there is no space, the largest body of the client that has most is dropped, also one that
 * waits to be parsed: a client is an API key or, without one, an address. */
#ifndef MOED_HTTP_BODIES_H
#define MOED_HTTP_BODIES_H

#include "client/http/server/exchange.h"

#define BODIES_SMALL (256u << 10)

/* Appends to the body of x, unless that is dropped, then or before: x->crowded. */
void bodies_append(struct exchange *x, const char *data, size_t len);
void bodies_drop(struct exchange *x);
/* The same, but the body is the caller's now. Where bodies are logged, the exchange has a copy. */
struct strbuf bodies_take(struct exchange *x);
/* The client whose exchange it is. */
uint64_t bodies_client(const struct exchange *x);

#endif
