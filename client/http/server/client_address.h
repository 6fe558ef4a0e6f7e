/* The address of a request's client: the connection's peer or, where that is a trusted proxy, the
 * last hop of X-Forwarded-For that is none. */
#ifndef MOED_HTTP_CLIENT_ADDRESS_H
#define MOED_HTTP_CLIENT_ADDRESS_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

struct sockaddr;

struct client_address {
    bool known;              /* a unix socket's peer is not */
    unsigned char bytes[16]; /* as IPv6; IPv4 as ::ffff:a.b.c.d */
};

struct proxy_range {
    unsigned char bytes[16];
    unsigned bits; /* of 128 */
};

/* Zero: no proxy is trusted. */
struct trusted_proxies {
    struct proxy_range *ranges; /* owned */
    size_t count;
    bool unix_sockets; /* the peers of unix sockets, too */
};

#define CLIENT_ADDRESS_BYTES 46

/* list: "10.0.0.0/8,fd00::/8,192.0.2.1,unix". ERROR_USAGE: an item is none of these. */
enum error_code trusted_proxies_parse(const char *list, struct trusted_proxies *out,
                                      struct error *e);
void trusted_proxies_free(struct trusted_proxies *t);

struct client_address client_address_of(const struct sockaddr *peer); /* NULL: not known */
bool client_address_is_trusted(const struct client_address *peer, const struct trusted_proxies *t);
/* forwarded: the value of X-Forwarded-For, its lines joined by commas; NULL: the request has none.
 * A hop that is no address ends the search. */
struct client_address client_address_find(const struct client_address *peer,
                                          const struct trusted_proxies *t, const char *forwarded);
bool client_address_is_ipv4(const struct client_address *c);
/* "192.0.2.1", "2001:db8::1"; "" where it is not known. */
void client_address_text(const struct client_address *c, char out[CLIENT_ADDRESS_BYTES]);

#endif
