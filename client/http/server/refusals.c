/* Refusals of libmicrohttpd; see refusals.h.
 *
 * libmicrohttpd has no hook for its own replies, but queues them by MHD_queue_response as a program
 * does. The function of that name below stands in front of the library's, as the dynamic linker
 * finds the program's symbols first. A library that was linked with -Bsymbolic calls its own, and
 * its clients get HTML as before. */
#include "client/http/server/refusals.h"

#include "base/clock.h"
#include "client/http/server/connection.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

typedef enum MHD_Result queue_function(struct MHD_Connection *mhd, unsigned status,
                                       struct MHD_Response *reply);

enum MHD_Result refusals_pass(struct MHD_Connection *mhd, unsigned status,
                              struct MHD_Response *reply)
{
    static queue_function *queue; /* libmicrohttpd's */
    if (!queue)
        *(void **)&queue = dlsym(RTLD_NEXT, "MHD_queue_response");
    return queue ? queue(mhd, status, reply) : MHD_NO;
}

/* libmicrohttpd tells the status alone. */
static const char *reason_of(unsigned status)
{
    switch (status) {
    case 413:
        return "the body, or a chunk of it, is too large";
    case 414:
        return "the request line is too long";
    case 431:
        return "the header fields are too long: 16 kB are allowed together";
    case 505:
        return "an HTTP version other than 1.0 and 1.1";
    default:
        return "the request is not well-formed HTTP: check its request line, its header fields "
               "(exactly one Host, a number as Content-Length) and its chunks";
    }
}

/* A request that no exchange was made for has its line in the log here. */
static void log_refusal(const struct connection *c, struct access_entry *log)
{
    unsigned class = (unsigned)log->status / 100;
    counter_add(c->server->metrics.requests[class < 6 ? class : 0], 1);
    log->method = "OTHER";
    snprintf(log->path, sizeof log->path, "-");
    log->outcome = "ok";
    log->begin_ns = log->end_ns = clock_ns();
    access_write(log, c->server->settings->log_json);
}

/* Sends without waiting; by GnuTLS, which libmicrohttpd is linked with, where the connection has
 * TLS. */
static void send_now(const struct connection *c, const char *data, size_t len)
{
    const union MHD_ConnectionInfo *tls =
        MHD_get_connection_info(c->mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    ssize_t (*record_send)(void *session, const void *data, size_t len);
    if (!tls) {
        (void)!send(c->fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);
        return;
    }
    *(void **)&record_send = dlsym(RTLD_DEFAULT, "gnutls_record_send");
    if (record_send)
        (void)!record_send(tls->tls_session, data, len);
}

/* Writes the reply at once; libmicrohttpd then closes the connection. Version 0.9.75 sends the head
 * of some of its own replies twice. */
static enum MHD_Result write_and_close(const struct connection *c, const struct access_entry *log,
                                       const struct strbuf *body)
{
    struct strbuf reply;
    strbuf_init(&reply);
    strbuf_printf(&reply,
                  "HTTP/1.1 %d %s\r\nConnection: close\r\nContent-Type: application/json\r\n"
                  "x-request-id: %s\r\nContent-Length: %zu\r\n\r\n",
                  log->status, MHD_get_reason_phrase_for((unsigned)log->status), log->id,
                  body->len);
    strbuf_append(&reply, body->data, body->len);
    if (!reply.failed)
        send_now(c, reply.data, reply.len);
    strbuf_fini(&reply);
    return MHD_NO;
}

static enum MHD_Result queue(const struct connection *c, const struct access_entry *log,
                             const struct strbuf *body)
{
    struct MHD_Response *r =
        MHD_create_response_from_buffer(body->len, body->data, MHD_RESPMEM_MUST_COPY);
    if (!r)
        return MHD_NO;
    MHD_add_response_header(r, "Content-Type", "application/json");
    MHD_add_response_header(r, "x-request-id", log->id);
    enum MHD_Result result = refusals_pass(c->mhd, (unsigned)log->status, r);
    MHD_destroy_response(r);
    return result;
}

static enum MHD_Result refuse(struct connection *c, unsigned status)
{
    struct access_entry own = {0}, *log = c->exchange ? &c->exchange->log : &own;
    struct problem p;
    struct strbuf body;
    problem_fill(&p, (int)status, "%s", reason_of(status));
    strbuf_init(&body);
    problem_body(&p, c->api, &body);
    log->status = (int)status;
    if (!c->exchange) {
        access_new_id(own.id);
        own.bytes_out = body.len;
        log_refusal(c, &own);
    }
    enum MHD_Result result = body.failed   ? MHD_NO
                             : c->exchange ? queue(c, log, &body)
                                           : write_and_close(c, log, &body);
    strbuf_fini(&body);
    return result;
}

/* What libmicrohttpd calls for its own replies; the program calls refusals_pass. */
__attribute__((visibility("default"))) enum MHD_Result
MHD_queue_response(struct MHD_Connection *mhd, unsigned status, struct MHD_Response *reply)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct connection *c = info ? info->socket_context : NULL;
    return c ? refuse(c, status) : refusals_pass(mhd, status, reply);
}
