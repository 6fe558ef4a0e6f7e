/* One HTTP request and its reply. The server makes it, reads the body, and calls the route's
 * handler; the handler replies at once, or later from another event of the loop.
 *
 *     reading --(body complete)--> working --(exchange_reply)-------> replying --> freed
 *                                     |                                  ^
 *                                     +--(exchange_stream_begin)--> streaming
 *
 * While working or streaming with nothing to send, the connection is suspended: it costs nothing.
 * Where the client leaves, the server calls `left` once; afterwards the handler must not touch the
 * exchange. All on the loop's thread. */
#ifndef MOED_HTTP_EXCHANGE_H
#define MOED_HTTP_EXCHANGE_H

#include "client/http/server/access_log.h"
#include "client/http/server/client_address.h"
#include "client/http/server/problem.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct server;
struct connection;
struct body_client;
struct MHD_Connection;
struct exchange;

struct route {
    const char *method; /* NULL: any; the handler says that moed does not have it */
    const char *path;   /* one that ends in "/" takes any longer path too */
    void (*handle)(struct exchange *x);
    enum http_api api; /* the shape of errors */
    bool open;         /* needs no API key */
    bool admin;        /* needs an admin key */
    bool metrics;      /* a key for metrics is enough */
};

enum exchange_state { EXCHANGE_READING, EXCHANGE_WORKING, EXCHANGE_STREAMING, EXCHANGE_REPLYING };

#define EXCHANGE_HEADERS 12

struct exchange {
    struct server *server;
    struct connection *connection;
    struct MHD_Connection *mhd;
    const struct route *route;
    enum http_api api;             /* the shape of errors */
    char rest[160];                /* of the path, after the route's */
    bool admin;                    /* the request has an admin key */
    struct client_address address; /* the client's, perhaps behind a proxy */
    enum exchange_state state;
    struct strbuf body; /* the request's; for the handler's call, or longer by exchange_keep_body */
    bool keeps_body;
    void (*give_up)(struct exchange *x); /* see exchange_keep_body; NULL: not now */
    uint64_t received;                   /* bytes of it, also those that were dropped */
    bool crowded; /* it was dropped: the bodies of all requests are too large together */
    struct body_client *client; /* whose it is (bodies.c); NULL: it has no byte yet */
    bool large_body;            /* it is announced as larger than BODIES_SMALL, or has become so */
    int status;
    const char *content_type;
    struct {
        const char *name;
        char *value;             /* owned */
    } headers[EXCHANGE_HEADERS]; /* of the reply, beside those of every reply */
    size_t n_headers;
    bool close;        /* the connection, after the reply */
    struct strbuf out; /* the reply's body: all, or what a stream has not sent yet */
    size_t sent;       /* of `out` */
    uint64_t pushed;   /* bytes of a stream, in all */
    size_t largest;    /* of these, in one push */
    bool suspended, queued, ended, broken;
    uint64_t active_ns; /* when the handler last had something to send */
    void *work;         /* the handler's */
    void (*left)(struct exchange *x);
    void (*tick)(struct exchange *x); /* the handler has sent nothing for 15 seconds; may be NULL */
    struct access_entry log;
};

/* A header of the request; NULL: none. */
const char *exchange_header(const struct exchange *x, const char *name);
/* A query parameter; NULL: none. */
const char *exchange_query(const struct exchange *x, const char *name);
/* False: a HEAD, whose reply is over with its headers: a handler that streams replies at once. */
bool exchange_wants_body(const struct exchange *x);
/* In a handler's call: the body stays until it is released, or the exchange is gone. Until it is
 * pinned it may be dropped for other bodies; give_up is called then, and must fail the exchange by
 * exchange_fail_crowded. */
void exchange_keep_body(struct exchange *x, void (*give_up)(struct exchange *x));
void exchange_pin_body(struct exchange *x);
void exchange_release_body(struct exchange *x);
/* Adds a header to the reply. name: a literal. */
void exchange_add_header(struct exchange *x, const char *name, const char *value);

/* Replies with x->out as the body. */
void exchange_reply(struct exchange *x, int status, const char *content_type);
/* Replies with an error in the route's API. */
void exchange_fail(struct exchange *x, const struct problem *p);
/* ... as one whose body was dropped. */
void exchange_fail_crowded(struct exchange *x);

/* Sends status and headers; the body follows. */
void exchange_stream_begin(struct exchange *x, const char *content_type);
/* After appending to x->out. False: the client reads too slowly; the exchange is at its end and
 * `left` has been called. */
bool exchange_stream_push(struct exchange *x);
/* Ends the stream after what is in x->out. */
void exchange_stream_end(struct exchange *x);

#endif
