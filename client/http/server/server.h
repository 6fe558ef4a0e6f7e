/* The HTTP server: libmicrohttpd in the program's own event loop, on one thread.
 *
 * Invariants:
 *  1. Every open connection is in `connections`. It has at most one exchange.
 *  2. A connection is suspended exactly while its exchange waits for the handler. libmicrohttpd
 *     does not notice that the client of a suspended connection leaves: the watch `left` does.
 *  3. A connection that is not suspended has a deadline: for its next request's headers, for the
 *     body, or libmicrohttpd's own for sending. */
#ifndef MOED_HTTP_SERVER_H
#define MOED_HTTP_SERVER_H

#include "client/http/server/auth.h"
#include "client/http/server/client_address.h"
#include "client/http/server/exchange.h"
#include "client/http/server/loop.h"
#include "client/http/server/origin.h"
#include "client/http/server/server_metrics.h"

struct server_settings {
    const char *host_names;      /* see origin.h */
    const char *cors_origins;    /* see origin.h */
    uint64_t connections;        /* at most, at once */
    uint64_t connections_per_ip; /* 0: no limit of its own; of others than trusted proxies */
    struct trusted_proxies proxies;
    uint64_t body_bytes;   /* of a request */
    uint64_t bodies_bytes; /* of all requests that are being read (bodies.h) */
    uint64_t header_timeout_s, idle_timeout_s;
    uint64_t stream_bytes; /* a stream's unsent bytes, at most, beside its largest chunk */
    bool log_json;
    bool log_bodies; /* of requests */
    bool check_host; /* refuse a Host that is not one of this server's names */
};

#define SERVER_LISTENERS 16 /* with those of former certificates, whose replies still run */

enum body_pool { BODIES_OF_SMALL, BODIES_OF_LARGE, BODY_POOLS };

/* An API key or an address whose requests have bodies in memory (bodies.c). */
struct body_client {
    uint64_t id;
    uint64_t bytes[BODY_POOLS];
    unsigned exchanges; /* that have it as their client */
    struct body_client *next, **link;
};

/* PEM texts, owned; NULL: no TLS. */
struct certificate {
    char *chain, *key;
};
void certificate_free(struct certificate *c);

struct listener {
    struct watch watch; /* of libmicrohttpd's own epoll instance */
    struct MHD_Daemon *daemon;
    struct server *server;
    struct certificate certificate;
    bool former; /* another one has its socket: each of its connections ends with a reply */
};

struct server {
    struct loop *loop;
    const struct server_settings *settings;
    struct auth auth;
    struct auth admin;          /* keys that may also change a deployment */
    struct auth metrics_keys;   /* keys that may only read metrics */
    const struct route *routes; /* ends with a NULL path */
    void *app;                  /* the handlers' */
    struct server_metrics metrics;
    struct listener *listeners[SERVER_LISTENERS];
    unsigned n_listeners;
    unsigned n_former; /* of those, of former certificates */
    struct connection *connections;
    unsigned exchanges;          /* that have no whole reply yet */
    unsigned streams;            /* of those, that are being streamed */
    uint64_t bodies[BODY_POOLS]; /* bytes of bodies in memory */
    struct body_client *body_clients;
    uint64_t crowded_ns; /* when the log had a line of one that was dropped */
    uint64_t next_tick_ns;
    bool draining;
    struct origin_log refused;
};

/* Listens at a socket; takes it and the certificate, also where it fails. NULL: no TLS.
 * ERROR_FORMAT: the certificate or its key cannot be used. */
enum error_code server_listen(struct server *s, int socket, struct certificate *c, struct error *e);
/* Whether new connections get this certificate, with this key. */
bool server_has_certificate(const struct server *s, const struct certificate *c);
/* New connections get this certificate, which is taken; those that are open end with their next
 * reply. An error, and the one before stays: ERROR_FORMAT, it cannot be used; else a passing cause.
 */
enum error_code server_renew_certificate(struct server *s, struct certificate *c, struct error *e);
/* Handles what is ready; waits for it at most until timeout_ms. */
void server_run(struct server *s, int timeout_ms);
/* Accepts no connection any more; running exchanges go on. */
void server_drain(struct server *s);
void server_close(struct server *s);

#endif
