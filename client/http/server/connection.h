/* A client's connection, as server.c and exchange.c see it. */
#ifndef MOED_HTTP_CONNECTION_H
#define MOED_HTTP_CONNECTION_H

#include "client/http/server/server.h"

struct connection {
    struct watch left; /* first: the client has closed its side */
    struct server *server;
    struct listener *listener;
    struct MHD_Connection *mhd;
    int fd;
    uint64_t deadline_ns; /* 0: none */
    bool gone;            /* `left` came */
    bool late;            /* the deadline came */
    enum http_api api;    /* of the request that is being read: the shape of a refusal */
    struct { /* its target as it was sent, in the library's memory; only to compare places */
        const char *begin, *end;
    } target;
    struct exchange *exchange;
    struct connection *next, **link;
};

/* The API of a path, by the routes: the shape of its errors. */
enum http_api exchange_api(const struct route *routes, const char *url);

/* libmicrohttpd hands these a request in steps; see MHD_AccessHandlerCallback. */
struct exchange *exchange_new(struct connection *c);
void exchange_free(struct exchange *x);
/* The headers are complete: refuses the request, or leaves it to be read. */
void exchange_admit(struct exchange *x, const char *url, const char *method, const char *version);
void exchange_take_body(struct exchange *x, const char *data, size_t len);
/* The body is complete. */
void exchange_handle(struct exchange *x);
/* The client has left, or does not read, or the server closes. outcome: a literal, for the log. */
void exchange_abandon(struct exchange *x, const char *outcome);
/* Lets libmicrohttpd go on with the connection. */
void exchange_resume(struct exchange *x);

#endif
