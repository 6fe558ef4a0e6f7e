/* Which names a request may call the server by, and which web pages may call it.
 *
 * A page in a browser can send requests to 127.0.0.1. Where the server has no keys, two checks keep
 * pages of the web out: the Host must be a name of this server, so that a page's own domain that
 * resolves to 127.0.0.1 (DNS rebinding) is refused; the Origin must be the server's own, listed,
 * one of this machine, or an app's. Where it has keys, a page without one gets nothing: a browser
 * adds no key by itself. So any origin is allowed then ("*"), but never credentials. */
#ifndef MOED_HTTP_ORIGIN_H
#define MOED_HTTP_ORIGIN_H

#include <stdbool.h>

/* host: the Host header. names: further names, separated by commas; may be NULL. localhost and
 * addresses are always allowed. */
bool origin_host_allowed(const char *host, const char *names);
/* origin: the Origin header. allowed: "*", or origins separated by commas; may be NULL. Beside them
 * pages at localhost, *.localhost, 127.0.0.1 and [::1], at any port, desktop apps and browsers'
 * extensions are allowed; "null" is not. *other: not the server's own, so the reply needs CORS
 * headers. */
bool origin_allowed(const char *origin, const char *host, const char *allowed, bool *other);

#endif
