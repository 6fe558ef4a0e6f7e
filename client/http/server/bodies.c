/* Bodies; see bodies.h. */
#include "client/http/server/bodies.h"

#include "base/clock.h"
#include "base/log.h"
#include "client/http/server/connection.h"

#include <microhttpd.h>
#include <netinet/in.h>
#include <string.h>

#define LOG_NS      10000000000ull /* a line for all that are dropped within it */
#define SMALL_SHARE 8

static enum body_pool pool_of(const struct exchange *x)
{
    return x->large_body ? BODIES_OF_LARGE : BODIES_OF_SMALL;
}

static uint64_t capacity(const struct server *s, enum body_pool pool)
{
    return s->settings->bodies_bytes / (pool == BODIES_OF_SMALL ? SMALL_SHARE : 1);
}

/* ---- Clients ---- */

static uint64_t hash(uint64_t h, const void *data, size_t n)
{
    for (const uint8_t *at = data; n--; at++)
        h = (h ^ *at) * 0x100000001b3u; /* FNV-1a */
    return h;
}

/* An IPv6 client has the addresses of a /64. */
static uint64_t hash_address(const struct exchange *x, uint64_t h)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(x->mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *a = info ? info->client_addr : NULL;
    if (a && a->sa_family == AF_INET)
        return hash(h, &((const struct sockaddr_in *)a)->sin_addr, sizeof(struct in_addr));
    if (a && a->sa_family == AF_INET6)
        return hash(h, &((const struct sockaddr_in6 *)a)->sin6_addr, 8);
    return h;
}

static uint64_t client_of(struct exchange *x)
{
    uint64_t h = 0xcbf29ce484222325u;
    if (!x->client)
        x->client = x->log.key[0] ? hash(h, x->log.key, strlen(x->log.key)) : hash_address(x, h);
    return x->client;
}

/* ---- Making space ---- */

/* The bytes of c's body, where they count in x's pool; x's, which grows, has x_bytes. */
static uint64_t bytes_of(const struct connection *c, const struct exchange *x, uint64_t x_bytes)
{
    const struct exchange *other = c->exchange;
    if (other == x)
        return x_bytes;
    if (!other || other->state != EXCHANGE_READING || pool_of(other) != pool_of(x))
        return 0;
    return other->body.len;
}

static uint64_t bytes_of_client(uint64_t client, const struct exchange *x, uint64_t x_bytes)
{
    uint64_t sum = 0;
    for (struct connection *c = x->server->connections; c; c = c->next)
        if (c->exchange && client_of(c->exchange) == client)
            sum += bytes_of(c, x, x_bytes);
    return sum;
}

/* The exchange whose body is dropped for x's; of equals it is x. */
static struct exchange *find_largest(struct exchange *x, uint64_t x_bytes)
{
    struct exchange *largest = x;
    uint64_t most = bytes_of_client(client_of(x), x, x_bytes), largest_bytes = x_bytes;
    for (struct connection *c = x->server->connections; c; c = c->next) {
        uint64_t bytes = bytes_of(c, x, x_bytes);
        uint64_t sum = bytes ? bytes_of_client(client_of(c->exchange), x, x_bytes) : 0;
        if (sum < most || (sum == most && bytes <= largest_bytes))
            continue;
        largest = c->exchange;
        largest_bytes = bytes;
        most = sum;
    }
    return largest;
}

/* A body alone always fits. */
static bool fits(const struct exchange *x, uint64_t x_bytes)
{
    uint64_t others = x->server->bodies[pool_of(x)] - x->body.len;
    return others == 0 || others + x_bytes <= capacity(x->server, pool_of(x));
}

static void report(struct exchange *x)
{
    struct server *s = x->server;
    uint64_t now = clock_ns();
    if (s->crowded_ns && now - s->crowded_ns < LOG_NS)
        return;
    s->crowded_ns = now;
    log_warn("a body of %zu bytes is dropped: the bodies that are being read have all memory for "
             "them (--bodies-bytes), and most of it is of %s%s",
             x->body.len, x->log.key[0] ? "key " : "one address", x->log.key[0] ? x->log.key : "");
}

static bool make_space(struct exchange *x, size_t len)
{
    uint64_t x_bytes = x->body.len + len;
    while (!fits(x, x_bytes)) {
        struct exchange *largest = find_largest(x, x_bytes);
        report(largest);
        largest->crowded = true;
        bodies_drop(largest);
        if (largest == x)
            return false;
    }
    return true;
}

static void move_to_large(struct exchange *x)
{
    x->server->bodies[BODIES_OF_SMALL] -= x->body.len;
    x->server->bodies[BODIES_OF_LARGE] += x->body.len;
    x->large_body = true;
}

void bodies_append(struct exchange *x, const char *data, size_t len)
{
    size_t before = x->body.len;
    if (!x->large_body && before + len > BODIES_SMALL)
        move_to_large(x);
    if (x->crowded || !make_space(x, len))
        return;
    strbuf_append(&x->body, data, len);
    x->server->bodies[pool_of(x)] += x->body.len - before;
}

void bodies_drop(struct exchange *x)
{
    x->server->bodies[pool_of(x)] -= x->body.len;
    strbuf_fini(&x->body);
}
