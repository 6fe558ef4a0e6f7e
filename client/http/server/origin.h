/* Which names a request may call the server by, and which web pages may call it.
 *
 * A page in a browser can send requests to 127.0.0.1. Where the server has no keys, two checks keep
 * pages of the web out. The Host must be a name of this server: a page's own domain that resolves
 * to 127.0.0.1 (DNS rebinding) is refused. The Origin must be the server's own, listed, one of this
 * machine, or an app's. Where it has keys, a page without one gets nothing: a browser
 * adds no key by itself. So any origin is allowed then ("*"), but never credentials. */
#ifndef MOED_HTTP_ORIGIN_H
#define MOED_HTTP_ORIGIN_H

#include <stdbool.h>
#include <stdint.h>

/* host: the Host header. names: further names, separated by commas; may be NULL. localhost and
 * addresses are always allowed. */
bool origin_host_allowed(const char *host, const char *names);
/* origin: the Origin header. allowed: "*", or origins separated by commas; may be NULL. Beside them
 * pages at localhost, *.localhost, 127.0.0.1 and [::1], at any port, desktop apps and browsers'
 * extensions are allowed; "null" is not. *other: not the server's own, so the reply needs CORS
 * headers. */
bool origin_allowed(const char *origin, const char *host, const char *allowed, bool *other);

/* Which refused origins the log names. A page can ask often, from many origins: the log names an
 * origin that differs from the last one there, and at most one a minute. Zero at first. */
struct origin_log {
    char last[81]; /* the last one that was logged, as printable ASCII; cut */
    uint64_t next_ns;
};

/* Whether to log that this origin was refused: the text is log->last then. */
bool origin_log_takes(struct origin_log *log, const char *origin, uint64_t now_ns);

#endif
