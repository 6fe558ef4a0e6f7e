/* Which names a request may call the server by, and which web pages may call it.
 *
 * A page in a browser can send requests to 127.0.0.1. Two checks keep pages out that nobody listed:
 * the Host must be a name of this server, so that a page's own domain that resolves to 127.0.0.1
 * (DNS rebinding) is refused; an Origin must be the server's own or listed. */
#ifndef MOED_HTTP_ORIGIN_H
#define MOED_HTTP_ORIGIN_H

#include <stdbool.h>

/* host: the Host header. names: further names, separated by commas; may be NULL. localhost and
 * addresses are always allowed. */
bool origin_host_allowed(const char *host, const char *names);
/* origin: the Origin header. allowed: "*", or origins separated by commas; may be NULL. *listed:
 * it is in that list, so a reply may carry CORS headers; else it is the server's own. */
bool origin_allowed(const char *origin, const char *host, const char *allowed, bool *listed);

#endif
