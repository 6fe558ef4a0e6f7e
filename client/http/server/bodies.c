/* Bodies; see bodies.h. */
#include "client/http/server/bodies.h"

#include "base/checksum.h"
#include "base/clock.h"
#include "base/log.h"
#include "client/http/server/connection.h"

#include <microhttpd.h>
#include <netinet/in.h>
#include <stdlib.h>
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

/* An IPv6 client has the addresses of a /64. */
static uint64_t hash_address(const struct client_address *c)
{
    if (!c->known)
        return 0;
    return client_address_is_ipv4(c) ? checksum64(0, c->bytes + 12, 4) : checksum64(0, c->bytes, 8);
}

uint64_t bodies_client(const struct exchange *x)
{
    const char *key = x->log.key;
    return *key ? checksum64(0, key, strlen(key)) : hash_address(&x->address);
}

static struct body_client *find_client(const struct server *s, uint64_t id)
{
    struct body_client *c = s->body_clients;
    while (c && c->id != id)
        c = c->next;
    return c;
}

static struct body_client *add_client(struct server *s, uint64_t id)
{
    struct body_client *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    *c = (struct body_client){.id = id, .next = s->body_clients, .link = &s->body_clients};
    if (c->next)
        c->next->link = &c->next;
    s->body_clients = c;
    return c;
}

/* False: no memory. */
static bool enter_client(struct exchange *x)
{
    if (x->client)
        return true;
    uint64_t id = bodies_client(x);
    x->client = find_client(x->server, id);
    if (!x->client)
        x->client = add_client(x->server, id);
    if (!x->client)
        return false;
    x->client->exchanges++;
    return true;
}

static void leave_client(struct exchange *x)
{
    struct body_client *c = x->client;
    x->client = NULL;
    if (!c || --c->exchanges)
        return;
    *c->link = c->next;
    if (c->next)
        c->next->link = c->link;
    free(c);
}

/* ---- Counts ---- */

static void count(struct exchange *x, uint64_t bytes)
{
    x->server->bodies[pool_of(x)] += bytes;
    if (x->client)
        x->client->bytes[pool_of(x)] += bytes;
}

static void discount(struct exchange *x, uint64_t bytes)
{
    x->server->bodies[pool_of(x)] -= bytes;
    if (x->client)
        x->client->bytes[pool_of(x)] -= bytes;
}

/* ---- Making space ---- */

/* c's body may be dropped for x's. */
static bool is_candidate(const struct connection *c, const struct exchange *x)
{
    const struct exchange *other = c->exchange;
    return other && other->client && (other->state == EXCHANGE_READING || other->give_up) &&
           pool_of(other) == pool_of(x) && other->body.len;
}

/* The exchange whose body is dropped for x's, which grows by `more`; of equals it is x. */
static struct exchange *find_largest(struct exchange *x, uint64_t more)
{
    enum body_pool pool = pool_of(x);
    struct exchange *largest = x;
    uint64_t most = x->client->bytes[pool] + more, largest_bytes = x->body.len + more;
    for (struct connection *c = x->server->connections; c; c = c->next) {
        if (c->exchange == x || !is_candidate(c, x))
            continue;
        const struct body_client *client = c->exchange->client;
        uint64_t bytes = c->exchange->body.len;
        uint64_t sum = client->bytes[pool] + (client == x->client ? more : 0);
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

static void drop_crowded(struct exchange *x)
{
    void (*give_up)(struct exchange *) = x->give_up;
    report(x);
    x->crowded = true;
    x->give_up = NULL;
    bodies_drop(x);
    if (give_up)
        give_up(x);
}

static bool make_space(struct exchange *x, size_t more)
{
    while (!fits(x, x->body.len + more)) {
        struct exchange *largest = find_largest(x, more);
        drop_crowded(largest);
        if (largest == x)
            return false;
    }
    return true;
}

static void move_to_large(struct exchange *x)
{
    discount(x, x->body.len);
    x->large_body = true;
    count(x, x->body.len);
}

void bodies_append(struct exchange *x, const char *data, size_t len)
{
    size_t before = x->body.len;
    if (!x->large_body && before + len > BODIES_SMALL)
        move_to_large(x);
    if (x->crowded)
        return;
    if (!enter_client(x)) {
        x->body.failed = true;
        return;
    }
    if (!make_space(x, len))
        return;
    strbuf_append(&x->body, data, len);
    count(x, x->body.len - before);
}

struct strbuf bodies_take(struct exchange *x)
{
    struct strbuf body = x->body;
    strbuf_init(&x->body);
    if (x->server->settings->log_bodies)
        strbuf_append(&x->body, body.data, body.len);
    discount(x, body.len - x->body.len);
    if (!x->body.len)
        leave_client(x);
    return body;
}

void bodies_drop(struct exchange *x)
{
    discount(x, x->body.len);
    leave_client(x);
    strbuf_fini(&x->body);
    strbuf_init(&x->body);
}
