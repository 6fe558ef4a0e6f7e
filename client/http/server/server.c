/* The HTTP server; see server.h and exchange.h. */
#include "client/http/server/server.h"

#include "base/clock.h"
#include "base/log.h"
#include "client/http/server/connection.h"
#include "client/http/server/refusals.h"

#include <fcntl.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* Refuses folded lines and NULs in fields. Earlier versions take them; see framing.h. */
#if MHD_VERSION >= 0x00097701
#define STRICT MHD_OPTION_CLIENT_DISCIPLINE_LVL
#else
#define STRICT MHD_OPTION_STRICT_FOR_CLIENT
#endif
#define TICK_NS    1000000000u
#define POOL_BYTES 16384 /* a connection's headers and buffers */
#define SEND_BUFFER_BYTES                                                                          \
    65536u /* the kernel's, at most: a slow reader is noticed, and costs little */
#define STREAM_BLOCK   4096
#define ROUNDS_MOST    4 /* of libmicrohttpd at once */
#define SECOND_NS      1000000000ull
#define BODY_GRACE_S   10 /* and one second a MiB of the body */
#define GONE_GRACE_NS  SECOND_NS
#define STREAM_IDLE_NS (15 * SECOND_NS)

/* ---- Connections ---- */

static void on_left(struct watch *w, uint32_t events)
{
    struct connection *c = (struct connection *)w;
    c->gone = true;
    if (c->exchange && c->exchange->state != EXCHANGE_READING)
        exchange_abandon(c->exchange, "left");
    else /* libmicrohttpd misses some ends that came while it was suspended */
        c->deadline_ns = clock_ns() + GONE_GRACE_NS;
}

static void open_connection(struct listener *l, struct MHD_Connection *mhd, void **context)
{
    struct server *s = l->server;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct connection *c = calloc(1, sizeof *c);
    if (!c || !info) {
        free(c);
        return; /* without a context its requests are refused */
    }
    *c = (struct connection){.left = {.fd = info->connect_fd, .ready = on_left},
                             .server = s,
                             .listener = l,
                             .mhd = mhd,
                             .fd = info->connect_fd,
                             .deadline_ns = clock_ns() + s->settings->header_timeout_s * SECOND_NS};
    uint64_t most = s->settings->stream_bytes;
    int bytes = (int)(most < SEND_BUFFER_BYTES ? most : SEND_BUFFER_BYTES);
    setsockopt(c->fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    if (loop_add(s->loop, &c->left, EPOLLRDHUP | EPOLLET, NULL)) {
        free(c);
        return;
    }
    c->next = s->connections;
    c->link = &s->connections;
    if (c->next)
        c->next->link = &c->next;
    s->connections = c;
    *context = c;
}

static void close_connection(struct connection *c)
{
    loop_remove(c->server->loop, &c->left);
    *c->link = c->next;
    if (c->next)
        c->next->link = c->link;
    free(c);
}

static struct client_address address_of(const struct connection *c)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c->mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    return client_address_of(info ? info->client_addr : NULL);
}

/* Whether an address has fewer connections than it may. Trusted proxies have those of many clients,
 * and a unix socket those of this machine. */
static bool has_few(const struct server *s, const struct client_address *peer)
{
    uint64_t most = s->settings->connections_per_ip, same = 0;
    if (!most || !peer->known || client_address_is_trusted(peer, &s->settings->proxies))
        return true;
    for (const struct connection *c = s->connections; c && same < most; c = c->next) {
        struct client_address other = address_of(c);
        same += other.known && memcmp(other.bytes, peer->bytes, sizeof other.bytes) == 0;
    }
    return same < most;
}

/* Each instance of libmicrohttpd has a limit of its own. Those that share a socket, that of the
 * certificate and those of former ones, have it together. */
static enum MHD_Result may_connect(void *arg, const struct sockaddr *address, socklen_t bytes)
{
    const struct listener *l = arg;
    const struct server *s = l->server;
    struct client_address peer = client_address_of(address);
    uint64_t all = 0;
    if (!has_few(s, &peer))
        return MHD_NO;
    if (!l->certificate.chain || s->n_former == 0)
        return MHD_YES;
    for (const struct connection *c = s->connections; c; c = c->next)
        all += c->listener->certificate.chain != NULL;
    return all < s->settings->connections ? MHD_YES : MHD_NO;
}

static void on_connection(void *arg, struct MHD_Connection *mhd, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    struct listener *l = arg;
    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        open_connection(l, mhd, context);
    else if (*context)
        close_connection(*context);
}

/* ---- Requests ---- */

static int digit_of(char c)
{
    const char *digits = "0123456789abcdef", *at = c ? strchr(digits, c | 0x20) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* Decodes %XX in place. %00 stays as it is: a decoded NUL would cut the path. */
static size_t unescape(void *arg, struct MHD_Connection *mhd, char *text)
{
    char *out = text;
    (void)arg, (void)mhd;
    for (const char *in = text; *in; in++) {
        int high = *in == '%' ? digit_of(in[1]) : -1, low = high >= 0 ? digit_of(in[2]) : -1;
        bool decode = low >= 0 && high + low > 0;
        *out++ = decode ? (char)(high * 16 + low) : *in;
        in += decode ? 2 : 0;
    }
    *out = '\0';
    return (size_t)(out - text);
}

static struct connection *connection_of(struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

/* libmicrohttpd has read a request line: what it refuses from here on has the API's shape. */
static void *on_target(void *arg, const char *target, struct MHD_Connection *mhd)
{
    struct connection *c = connection_of(mhd);
    char url[128];
    snprintf(url, sizeof url, "%.*s", (int)strcspn(target, "?"), target);
    if (!c)
        return NULL;
    c->api = exchange_api(c->server->routes, url);
    c->target.begin = target;
    c->target.end = target + strlen(target);
    return NULL; /* the request's context: it has none yet */
}

/* The content of a stream, for libmicrohttpd. With nothing to send it suspends the connection. */
static ssize_t read_stream(void *arg, uint64_t position, char *buffer, size_t bytes)
{
    struct exchange *x = arg;
    size_t left = x->out.len - x->sent;
    if (left) {
        size_t n = left < bytes ? left : bytes;
        memcpy(buffer, x->out.data + x->sent, n);
        x->sent += n;
        x->log.bytes_out += n;
        if (x->sent == x->out.len) {
            strbuf_clear(&x->out);
            x->sent = 0;
        }
        return (ssize_t)n;
    }
    if (x->broken)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    if (x->ended)
        return MHD_CONTENT_READER_END_OF_STREAM;
    MHD_suspend_connection(x->mhd);
    x->suspended = true;
    return 0;
}

static struct MHD_Response *make_response(struct exchange *x)
{
    struct MHD_Response *r;
    if (x->state == EXCHANGE_STREAMING)
        r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, read_stream, x, NULL);
    else
        r = MHD_create_response_from_buffer(x->out.len, x->out.data, MHD_RESPMEM_MUST_COPY);
    if (!r)
        return NULL;
    if (x->content_type)
        MHD_add_response_header(r, "Content-Type", x->content_type);
    MHD_add_response_header(r, "x-request-id", x->log.id);
    if (x->api == HTTP_API_ANTHROPIC)
        MHD_add_response_header(r, "request-id", x->log.id);
    if (x->state == EXCHANGE_STREAMING) {
        MHD_add_response_header(r, "Cache-Control", "no-cache");
        MHD_add_response_header(r, "X-Accel-Buffering", "no"); /* a proxy passes each event on */
    }
    char ignored[ACCESS_IGNORED];
    access_ignored_header(&x->log, ignored);
    if (*ignored)
        MHD_add_response_header(r, "x-moed-ignored", ignored);
    for (size_t i = 0; i < x->n_headers; i++)
        MHD_add_response_header(r, x->headers[i].name, x->headers[i].value);
    if (x->close || x->server->draining || x->connection->listener->former)
        MHD_add_response_header(r, "Connection", "close");
    return r;
}

static enum MHD_Result send_reply(struct exchange *x)
{
    struct MHD_Response *r = make_response(x);
    if (!r)
        return MHD_NO;
    x->log.status = x->status;
    x->log.bytes_out = x->state == EXCHANGE_STREAMING ? 0 : x->out.len;
    enum MHD_Result result = refusals_pass(x->mhd, (unsigned)x->status, r);
    MHD_destroy_response(r);
    if (x->state == EXCHANGE_STREAMING)
        gauge_set(x->server->metrics.streams, (int64_t)++x->server->streams);
    x->queued = result == MHD_YES;
    return result;
}

/* Sends what the handler has decided, or waits for it. */
static enum MHD_Result proceed(struct exchange *x)
{
    if (x->broken)
        return MHD_NO;
    if (x->state == EXCHANGE_STREAMING || x->state == EXCHANGE_REPLYING)
        return send_reply(x);
    MHD_suspend_connection(x->mhd);
    x->suspended = true;
    return MHD_YES;
}

static enum MHD_Result begin_request(struct MHD_Connection *mhd, const char *url,
                                     const char *method, const char *version, void **context)
{
    struct connection *c = connection_of(mhd);
    struct exchange *x = c ? exchange_new(c) : NULL;
    if (!x)
        return MHD_NO;
    *context = x;
    exchange_admit(x, url, method, version);
    if (x->state == EXCHANGE_REPLYING)
        return send_reply(x);
    uint64_t grace_s = BODY_GRACE_S + (c->server->settings->body_bytes >> 20);
    c->deadline_ns = clock_ns() + (c->gone ? GONE_GRACE_NS : grace_s * SECOND_NS);
    return MHD_YES;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *mhd, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_bytes, void **context)
{
    struct exchange *x = *context;
    if (!x)
        return begin_request(mhd, url, method, version, context);
    if (*upload_bytes) {
        exchange_take_body(x, upload, *upload_bytes);
        *upload_bytes = 0;
        return x->broken ? MHD_NO : MHD_YES;
    }
    if (x->state == EXCHANGE_READING) {
        x->connection->deadline_ns = 0;
        exchange_handle(x);
    }
    return proceed(x);
}

static void on_completed(void *arg, struct MHD_Connection *mhd, void **context,
                         enum MHD_RequestTerminationCode code)
{
    struct exchange *x = *context;
    if (!x)
        return;
    *context = NULL;
    struct connection *c = x->connection;
    bool running = x->state == EXCHANGE_STREAMING && !x->ended; /* libmicrohttpd wants no more */
    if (running || code != MHD_REQUEST_TERMINATED_COMPLETED_OK)
        exchange_abandon(x, "left");
    c->exchange = NULL;
    uint64_t idle_ns = c->server->settings->idle_timeout_s * SECOND_NS;
    c->deadline_ns = clock_ns() + (c->gone ? GONE_GRACE_NS : idle_ns);
    exchange_free(x);
}

/* ---- Deadlines and keep-alive comments ---- */

static void tick_connection(struct server *s, struct connection *c, uint64_t now)
{
    struct exchange *x = c->exchange;
    if (c->deadline_ns && now >= c->deadline_ns && !c->late) {
        c->late = true;
        counter_add(s->metrics.late, !c->gone);
        shutdown(c->fd, SHUT_RDWR); /* libmicrohttpd notices the end and closes */
    } else if (x && x->tick && now - x->active_ns >= STREAM_IDLE_NS) {
        x->active_ns = now;
        x->tick(x);
    }
}

static void tick(struct server *s)
{
    uint64_t now = clock_ns();
    if (now < s->next_tick_ns)
        return;
    s->next_tick_ns = now + TICK_NS;
    unsigned n = 0;
    for (struct connection *c = s->connections, *next; c; c = next, n++) {
        next = c->next;
        tick_connection(s, c, now);
    }
    gauge_set(s->metrics.connections, n);
}

/* ---- The server ---- */

static void on_daemon(struct watch *w, uint32_t events)
{
    struct listener *l = (struct listener *)w;
    MHD_run(l->daemon);
}

void certificate_free(struct certificate *c)
{
    if (c->key)
        explicit_bzero(c->key, strlen(c->key));
    free(c->chain);
    free(c->key);
    *c = (struct certificate){0};
}

static struct MHD_Daemon *start_daemon(struct listener *l, int socket)
{
    const struct server_settings *o = l->server->settings;
    const struct certificate *c = &l->certificate;
    bool tls = c->chain != NULL;
    unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | (tls ? MHD_USE_TLS : 0);
    struct MHD_OptionItem certificate[] = {
        {tls ? MHD_OPTION_HTTPS_MEM_CERT : MHD_OPTION_END, 0, c->chain},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, c->key},
        {MHD_OPTION_END, 0, NULL},
    };
    return MHD_start_daemon(
        flags, 0, may_connect, l, on_request, l, MHD_OPTION_LISTEN_SOCKET, socket,
        MHD_OPTION_UNESCAPE_CALLBACK, unescape, NULL, MHD_OPTION_URI_LOG_CALLBACK, on_target, l,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, l, MHD_OPTION_NOTIFY_COMPLETED, on_completed,
        l, MHD_OPTION_CONNECTION_LIMIT, (unsigned)o->connections, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)o->idle_timeout_s, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)POOL_BYTES, STRICT,
        1, MHD_OPTION_ARRAY, certificate, MHD_OPTION_END);
}

/* libmicrohttpd closes the socket in some of its failures, and another thread may have its number
 * by now. */
static void close_socket(int fd, const struct stat *socket)
{
    struct stat now;
    if (fstat(fd, &now) == 0 && now.st_dev == socket->st_dev && now.st_ino == socket->st_ino)
        close(fd);
}

static void listener_free(struct listener *l)
{
    certificate_free(&l->certificate);
    free(l);
}

/* Its connections are gone, or are closed. */
static void listener_stop(struct listener *l)
{
    loop_remove(l->server->loop, &l->watch);
    MHD_stop_daemon(l->daemon);
    listener_free(l);
}

static enum error_code cannot_start(bool tls, struct error *e)
{
    if (tls)
        return error_set(e, ERROR_FORMAT,
                         "cannot start the HTTP server: check the certificate and its key");
    return error_set(e, ERROR_IO, "cannot start the HTTP server");
}

enum error_code server_listen(struct server *s, int socket, struct certificate *c, struct error *e)
{
    struct stat identity = {0};
    struct listener *l = s->n_listeners < SERVER_LISTENERS ? calloc(1, sizeof *l) : NULL;
    fstat(socket, &identity);
    if (!l) {
        close(socket);
        if (c)
            certificate_free(c);
        if (s->n_listeners == SERVER_LISTENERS)
            return error_set(e, ERROR_LIMIT, "connections with %u former certificates are open",
                             s->n_former);
        return error_set(e, ERROR_MEMORY, "no memory for the HTTP server");
    }
    *l = (struct listener){.server = s, .watch = {.fd = -1, .ready = on_daemon}};
    if (c) {
        l->certificate = *c;
        *c = (struct certificate){0};
    }
    l->daemon = start_daemon(l, socket);
    if (!l->daemon) {
        bool tls = l->certificate.chain != NULL;
        close_socket(socket, &identity);
        listener_free(l);
        return cannot_start(tls, e);
    }
    l->watch.fd = MHD_get_daemon_info(l->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    if (loop_add(s->loop, &l->watch, EPOLLIN, e)) {
        MHD_stop_daemon(l->daemon);
        listener_free(l);
        return e->code;
    }
    s->listeners[s->n_listeners++] = l;
    return ERROR_OK;
}

static void stop_listening(struct listener *l)
{
    int socket = l->former ? -1 : MHD_quiesce_daemon(l->daemon);
    if (socket >= 0)
        close(socket);
}

/* NULL: the server has no TLS. */
static struct listener *tls_listener(const struct server *s)
{
    for (unsigned i = 0; i < s->n_listeners; i++)
        if (!s->listeners[i]->former && s->listeners[i]->certificate.chain)
            return s->listeners[i];
    return NULL;
}

bool server_has_certificate(const struct server *s, const struct certificate *c)
{
    const struct listener *l = tls_listener(s);
    return l && strcmp(l->certificate.chain, c->chain) == 0 &&
           strcmp(l->certificate.key, c->key) == 0;
}

/* libmicrohttpd reads a certificate once. So another instance of it takes the socket. */
enum error_code server_renew_certificate(struct server *s, struct certificate *c, struct error *e)
{
    struct listener *l = tls_listener(s);
    if (!l) {
        certificate_free(c);
        return error_set(e, ERROR_USAGE, "the server has no TLS");
    }
    int listening = MHD_get_daemon_info(l->daemon, MHD_DAEMON_INFO_LISTEN_FD)->listen_fd;
    int socket = fcntl(listening, F_DUPFD_CLOEXEC, 0);
    if (socket < 0) {
        certificate_free(c);
        return error_set(e, ERROR_IO, "cannot copy the listening socket: %m");
    }
    enum error_code code = server_listen(s, socket, c, e);
    if (code)
        return code;
    stop_listening(l);
    l->former = true;
    s->n_former++;
    return ERROR_OK;
}

/* Ends those of former certificates that have no connection any more. */
static void stop_former(struct server *s)
{
    for (unsigned i = s->n_listeners; i-- > 0;) {
        struct listener *l = s->listeners[i];
        if (!l->former ||
            MHD_get_daemon_info(l->daemon, MHD_DAEMON_INFO_CURRENT_CONNECTIONS)->num_connections)
            continue;
        listener_stop(l);
        s->n_former--;
        s->listeners[i] = s->listeners[--s->n_listeners];
    }
}

static int least_timeout_ms(struct server *s, int timeout_ms)
{
    MHD_UNSIGNED_LONG_LONG wanted;
    if (s->connections && (timeout_ms < 0 || timeout_ms > 1000))
        timeout_ms = 1000; /* tick */
    for (unsigned i = 0; i < s->n_listeners; i++)
        if (MHD_get_timeout(s->listeners[i]->daemon, &wanted) == MHD_YES &&
            (timeout_ms < 0 || wanted < (unsigned)timeout_ms))
            timeout_ms = (int)wanted;
    return timeout_ms;
}

/* Lets libmicrohttpd send. It sends the head and the first content of a stream in two rounds; the
 * second one does not wait for the events of other requests. */
static void run_daemon(struct MHD_Daemon *d)
{
    MHD_UNSIGNED_LONG_LONG wanted = 0;
    for (int i = 0; i < ROUNDS_MOST && wanted == 0; i++) {
        MHD_run(d);
        if (MHD_get_timeout(d, &wanted) != MHD_YES)
            return;
    }
}

void server_run(struct server *s, int timeout_ms)
{
    loop_wait(s->loop, least_timeout_ms(s, timeout_ms));
    tick(s);
    for (unsigned i = 0; i < s->n_listeners; i++)
        run_daemon(s->listeners[i]->daemon);
    stop_former(s);
}

void server_drain(struct server *s)
{
    if (s->draining)
        return;
    s->draining = true;
    for (unsigned i = 0; i < s->n_listeners; i++)
        stop_listening(s->listeners[i]);
}

void server_close(struct server *s)
{
    server_drain(s);
    for (struct connection *c = s->connections; c; c = c->next)
        if (c->exchange)
            exchange_abandon(c->exchange, "stopped");
    for (unsigned i = 0; i < s->n_listeners; i++) {
        MHD_run(s->listeners[i]->daemon); /* resumes what was suspended */
        listener_stop(s->listeners[i]);
    }
    s->n_listeners = 0;
    auth_free(&s->auth);
    auth_free(&s->admin);
    auth_free(&s->metrics_keys);
}
