/* Clients' addresses; see client_address.h. */
#include "client/http/server/client_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define HOPS_MOST 16 /* of one request; more are not looked at */
#define ITEM_MOST 64

#define IPV4_BITS 96 /* in front of an IPv4 address as IPv6 */

static const unsigned char ipv4_prefix[12] = {[10] = 0xff, [11] = 0xff};
_Static_assert(CLIENT_ADDRESS_BYTES >= INET6_ADDRSTRLEN, "any address fits as text");

static void from_ipv4(const struct in_addr *v4, unsigned char out[16])
{
    memcpy(out, ipv4_prefix, sizeof ipv4_prefix);
    memcpy(out + sizeof ipv4_prefix, v4, 4);
}

static bool parse_address(const char *text, unsigned char out[16], bool *v4)
{
    struct in_addr four;
    *v4 = inet_pton(AF_INET, text, &four) == 1;
    if (*v4)
        from_ipv4(&four, out);
    return *v4 || inet_pton(AF_INET6, text, out) == 1;
}

/* ---- Trusted proxies ---- */

static bool parse_range(char *item, struct proxy_range *out)
{
    bool v4;
    char *slash = strchr(item, '/'), *end = NULL;
    if (slash)
        *slash = '\0';
    if (!parse_address(item, out->bytes, &v4))
        return false;
    unsigned most = v4 ? 32 : 128;
    unsigned long bits = slash ? strtoul(slash + 1, &end, 10) : most;
    if (slash && (slash[1] < '0' || slash[1] > '9' || *end || bits > most))
        return false;
    if (!v4 && bits > 0 && bits < IPV4_BITS &&
        memcmp(out->bytes, ipv4_prefix, sizeof ipv4_prefix) == 0)
        return false; /* ::ffff:10.0.0.0/8 would be all of IPv4 */
    out->bits = (unsigned)bits + 128 - most;
    return true;
}

enum error_code trusted_proxies_parse(const char *list, struct trusted_proxies *out,
                                      struct error *e)
{
    size_t items = 1;
    for (const char *c = list; *c; c++)
        items += *c == ',';
    *out = (struct trusted_proxies){.ranges = calloc(items, sizeof *out->ranges)};
    if (!out->ranges)
        return error_set(e, ERROR_MEMORY, "no memory for the trusted proxies");
    for (const char *at = list; *at;) {
        char item[ITEM_MOST] = "";
        size_t len = strcspn(at, ",");
        if (len < sizeof item)
            memcpy(item, at, len);
        if (strcmp(item, "unix") == 0) {
            out->unix_sockets = true;
        } else if (!parse_range(item, &out->ranges[out->count++])) {
            trusted_proxies_free(out);
            return error_set(e, ERROR_USAGE,
                             "--trusted-proxies %.60s: expected addresses, ranges as 10.0.0.0/8 "
                             "and `unix`, separated by commas",
                             list);
        }
        at += len + (at[len] == ',');
    }
    return ERROR_OK;
}

void trusted_proxies_free(struct trusted_proxies *t)
{
    free(t->ranges);
    *t = (struct trusted_proxies){0};
}

static bool is_in(const unsigned char a[16], const struct proxy_range *r)
{
    unsigned whole = r->bits / 8, rest = r->bits % 8;
    if (memcmp(a, r->bytes, whole) != 0)
        return false;
    return !rest || (a[whole] ^ r->bytes[whole]) >> (8 - rest) == 0;
}

bool client_address_is_trusted(const struct client_address *peer, const struct trusted_proxies *t)
{
    if (!peer->known)
        return t->unix_sockets;
    for (size_t i = 0; i < t->count; i++)
        if (is_in(peer->bytes, &t->ranges[i]))
            return true;
    return false;
}

/* ---- Clients ---- */

struct client_address client_address_of(const struct sockaddr *peer)
{
    struct client_address c = {0};
    if (peer && peer->sa_family == AF_INET) {
        c.known = true;
        from_ipv4(&((const struct sockaddr_in *)peer)->sin_addr, c.bytes);
    } else if (peer && peer->sa_family == AF_INET6) {
        c.known = true;
        memcpy(c.bytes, &((const struct sockaddr_in6 *)peer)->sin6_addr, 16);
    }
    return c;
}

/* "192.0.2.1", "192.0.2.1:1234", "2001:db8::1", "[2001:db8::1]:1234". */
static bool parse_hop(const char *text, size_t len, unsigned char out[16])
{
    char hop[ITEM_MOST];
    bool v4;
    if (len && text[0] == '[') {
        const char *close = memchr(text, ']', len);
        len = close ? (size_t)(close - text) - 1 : 0;
        text++;
    } else {
        const char *colon = memchr(text, ':', len);
        if (colon && !memchr(colon + 1, ':', len - (size_t)(colon + 1 - text)))
            len = (size_t)(colon - text); /* a port */
    }
    if (!len || len >= sizeof hop)
        return false;
    memcpy(hop, text, len);
    hop[len] = '\0';
    return parse_address(hop, out, &v4);
}

struct client_address client_address_find(const struct client_address *peer,
                                          const struct trusted_proxies *t, const char *forwarded)
{
    struct client_address c = *peer;
    size_t end = forwarded ? strlen(forwarded) : 0;
    for (int hops = 0; end && hops < HOPS_MOST && client_address_is_trusted(&c, t); hops++) {
        size_t begin = end;
        while (begin && forwarded[begin - 1] != ',')
            begin--;
        size_t from = begin, to = end;
        while (from < to && (forwarded[from] == ' ' || forwarded[from] == '\t'))
            from++;
        while (to > from && (forwarded[to - 1] == ' ' || forwarded[to - 1] == '\t'))
            to--;
        struct client_address hop = {.known = true};
        if (!parse_hop(forwarded + from, to - from, hop.bytes))
            break;
        c = hop;
        end = begin ? begin - 1 : 0;
    }
    return c;
}

bool client_address_is_ipv4(const struct client_address *c)
{
    return memcmp(c->bytes, ipv4_prefix, sizeof ipv4_prefix) == 0;
}

void client_address_text(const struct client_address *c, char out[CLIENT_ADDRESS_BYTES])
{
    out[0] = '\0';
    if (c->known && client_address_is_ipv4(c))
        inet_ntop(AF_INET, c->bytes + 12, out, CLIENT_ADDRESS_BYTES);
    else if (c->known)
        inet_ntop(AF_INET6, c->bytes, out, CLIENT_ADDRESS_BYTES);
}
