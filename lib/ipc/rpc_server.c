/* The server's side of rpc.h: one thread, one epoll set, a table of connections.
 *
 *                +--- reply read by the client ---+
 *                v                                |
 *   accepted -> reading --whole request--> handled --reply left--> adopted (not ours any more)
 *                |                                |
 *                +--> closed: end, bad length, deadline, replaced <--+
 *
 * Invariants:
 * 1. The thread owns all connections. It reads no further than the end of a request, and nothing
 *    while a reply waits: a client holds at most one request and one reply.
 * 2. Every connection has a deadline. All deadlines are equally long, so the list of connections,
 *    to whose end a connection moves when it gets a new deadline, is in the order of deadlines.
 * 3. A connection is closed by its owner alone; its peer's death is an end of the stream. */
#include "ipc/rpc.h"

#include "base/clock.h"
#include "base/log.h"
#include "ipc/local_socket.h"
#include "ipc/rpc_wire.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BACKLOG          128
#define EVENTS_A_TURN    64
#define ACCEPTS_A_TURN   16  /* then those that are in get their turn */
#define LINGER_MS        200 /* for replies that wait when the server stops */
#define SHORTAGE_WAIT_NS 10000000
#define SMALL_REQUEST    512 /* most requests fit, and need no memory of their own */

struct connection {
    struct connection *previous, *next; /* in the server's list, by deadline */
    int fd;
    uint64_t deadline_ns;
    size_t in_len;  /* received of the prefix and the request */
    uint8_t *large; /* the request, where it is larger than `small` */
    uint8_t prefix[RPC_PREFIX_BYTES], small[SMALL_REQUEST];
    uint8_t *out; /* the reply that waits, with its length before it; NULL: reading */
    size_t out_len, out_sent;
    void (*adopt)(void *arg, int fd); /* of that reply */
    void *adopt_arg;
};

struct rpc_server {
    char *path;
    rpc_handler *handler;
    void *arg;
    int listen_fd, epoll_fd, stop_event;
    pthread_t thread;
    atomic_bool stop;
    /* the thread's own */
    struct connection *first, *last;
    size_t n_connections, queued_bytes;
    bool failing; /* the last attempt to accept failed: it has been logged */
};

/* ---- The list ---- */

static void list_remove(struct rpc_server *s, struct connection *c)
{
    *(c->previous ? &c->previous->next : &s->first) = c->next;
    *(c->next ? &c->next->previous : &s->last) = c->previous;
    s->n_connections--;
}

static void list_append(struct rpc_server *s, struct connection *c)
{
    c->previous = s->last;
    c->next = NULL;
    *(s->last ? &s->last->next : &s->first) = c;
    s->last = c;
    s->n_connections++;
    c->deadline_ns = clock_end_ns(RPC_DEADLINE_MS);
}

static void renew(struct rpc_server *s, struct connection *c)
{
    list_remove(s, c);
    list_append(s, c);
}

/* ---- One connection ---- */

static void drop_reply(struct rpc_server *s, struct connection *c)
{
    if (c->out)
        s->queued_bytes -= c->out_len;
    free(c->out);
    c->out = NULL;
}

/* Frees c. Its socket is closed, unless the caller has taken it and set fd to -1. */
static void end_connection(struct rpc_server *s, struct connection *c)
{
    if (c->adopt)
        c->adopt(c->adopt_arg, -1);
    list_remove(s, c);
    drop_reply(s, c);
    if (c->fd >= 0)
        close(c->fd); /* leaves the epoll set too */
    free(c->large);
    free(c);
}

static void watch(struct rpc_server *s, struct connection *c, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = c};
    epoll_ctl(s->epoll_fd, EPOLL_CTL_MOD, c->fd, &event); /* cannot fail: it is in the set */
}

/* The reply has left. Frees c where it is handed over. */
static bool finish_reply(struct rpc_server *s, struct connection *c)
{
    drop_reply(s, c);
    if (c->adopt) {
        void (*adopt)(void *, int) = c->adopt;
        int fd = c->fd;
        epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
        c->adopt = NULL;
        c->fd = -1;
        adopt(c->adopt_arg, fd);
        end_connection(s, c);
        return false;
    }
    renew(s, c);
    watch(s, c, EPOLLIN);
    return true;
}

/* False: the connection is no more. */
static bool send_some(struct rpc_server *s, struct connection *c)
{
    while (c->out_sent < c->out_len) {
        ssize_t n = send(c->fd, c->out + c->out_sent, c->out_len - c->out_sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN)
            return true;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            end_connection(s, c);
            return false;
        }
        c->out_sent += (size_t)n;
    }
    return finish_reply(s, c);
}

/* Closes other connections whose replies wait, those with the least time left first, until there is
 * space for `bytes`. */
static void make_space(struct rpc_server *s, const struct connection *keep, size_t bytes)
{
    for (struct connection *c = s->first, *next; c; c = next) {
        next = c->next;
        if (s->queued_bytes + bytes <= RPC_QUEUED_BYTES)
            return;
        if (c != keep && c->out)
            end_connection(s, c);
    }
}

static bool handle_request(struct rpc_server *s, struct connection *c, const uint8_t *data,
                           size_t len)
{
    struct rpc_reply reply = {0};
    s->handler(s->arg, data, len, &reply);
    free(c->large);
    c->large = NULL;
    c->in_len = 0;
    c->adopt = reply.adopt;
    c->adopt_arg = reply.adopt_arg;
    size_t bytes = RPC_PREFIX_BYTES + reply.len;
    if (reply.len == 0 || reply.len > RPC_MESSAGE_BYTES) {
        log_error("rpc: a reply of %zu bytes cannot be sent: its client is dropped", reply.len);
    } else {
        make_space(s, c, bytes);
        c->out = malloc(bytes);
    }
    if (c->out) {
        const uint32_t prefix = (uint32_t)reply.len;
        memcpy(c->out, &prefix, RPC_PREFIX_BYTES);
        memcpy(c->out + RPC_PREFIX_BYTES, reply.data, reply.len);
        c->out_len = bytes;
        c->out_sent = 0;
        s->queued_bytes += bytes;
    }
    free(reply.data);
    if (!c->out) {
        end_connection(s, c);
        return false;
    }
    renew(s, c);
    watch(s, c, EPOLLOUT);
    return send_some(s, c);
}

/* Where the next bytes go and how many are wanted; NULL: no memory. */
static uint8_t *place(struct connection *c, size_t *wanted)
{
    if (c->in_len < RPC_PREFIX_BYTES) {
        *wanted = RPC_PREFIX_BYTES - c->in_len;
        return c->prefix + c->in_len;
    }
    size_t len = rpc_length_at(c->prefix), got = c->in_len - RPC_PREFIX_BYTES;
    *wanted = len - got;
    if (len <= sizeof c->small)
        return c->small + got;
    if (!c->large)
        c->large = malloc(len);
    return c->large ? c->large + got : NULL;
}

/* Reads until a request is whole, or nothing more has come. */
static void read_some(struct rpc_server *s, struct connection *c)
{
    for (;;) {
        size_t wanted;
        uint8_t *at = place(c, &wanted);
        ssize_t n = at ? recv(c->fd, at, wanted, 0) : 0;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            end_connection(s, c);
            return;
        }
        c->in_len += (size_t)n;
        if (c->in_len < RPC_PREFIX_BYTES)
            continue;
        size_t len = rpc_length_at(c->prefix);
        if (len == 0 || len > RPC_REQUEST_BYTES) {
            log_warn("rpc: a client announces a request of %zu bytes and is dropped", len);
            end_connection(s, c);
            return;
        }
        if (c->in_len == RPC_PREFIX_BYTES + len) {
            handle_request(s, c, c->large ? c->large : c->small, len);
            return; /* the others first */
        }
    }
}

/* ---- All connections ---- */

static struct connection *add_connection(struct rpc_server *s, int fd)
{
    const uint32_t greeting = RPC_GREETING;
    struct connection *c = calloc(1, sizeof *c);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    if (!c || send(fd, &greeting, sizeof greeting, MSG_NOSIGNAL) != (ssize_t)sizeof greeting ||
        epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        free(c);
        close(fd);
        return NULL;
    }
    c->fd = fd;
    list_append(s, c);
    if (s->n_connections > RPC_CONNECTIONS)
        end_connection(s, s->first);
    return c;
}

/* While descriptors or memory are short the connection still waits: a later attempt gets it. */
static void accept_failed(struct rpc_server *s, const struct error *e)
{
    if (!s->failing)
        log_warn("rpc: %s: closing the oldest connection, or trying again", e->text);
    s->failing = true;
    if (s->first)
        end_connection(s, s->first);
    else
        nanosleep(&(struct timespec){.tv_nsec = SHORTAGE_WAIT_NS}, NULL);
}

/* The events of this turn have been served: a connection may be closed. */
static void accept_some(struct rpc_server *s)
{
    for (int i = 0; i < ACCEPTS_A_TURN; i++) {
        int fd;
        struct local_peer peer;
        struct error e;
        enum error_code code = local_socket_accept(s->listen_fd, SOCK_NONBLOCK, &fd, &peer, &e);
        if (code == ERROR_UNAVAILABLE)
            return;
        if (code == ERROR_PROTOCOL)
            log_warn("rpc: %s", e.text);
        if (code == ERROR_IO) {
            accept_failed(s, &e);
            return;
        }
        if (code)
            continue;
        s->failing = false;
        struct connection *c = add_connection(s, fd);
        if (c)
            read_some(s, c); /* most often the request is there already */
    }
}

static void close_overdue(struct rpc_server *s)
{
    uint64_t now = clock_ns();
    while (s->first && s->first->deadline_ns <= now)
        end_connection(s, s->first);
}

/* An event names a connection that an earlier event of the same turn may have closed. */
static bool is_listed(const struct rpc_server *s, const struct connection *wanted)
{
    for (const struct connection *c = s->first; c; c = c->next)
        if (c == wanted)
            return true;
    return false;
}

static void serve_events(struct rpc_server *s, const struct epoll_event *events, int n)
{
    bool accepting = false;
    for (int i = 0; i < n; i++) {
        struct connection *c = events[i].data.ptr;
        if ((void *)c == (void *)s)
            accepting = true;
        else if (!c || !is_listed(s, c))
            continue;
        else if (c->out)
            send_some(s, c);
        else
            read_some(s, c);
    }
    if (accepting)
        accept_some(s);
}

/* Sends what waits, for a moment: the request to stop is answered too. */
static void flush(struct rpc_server *s)
{
    uint64_t end_ns = clock_end_ns(LINGER_MS);
    struct epoll_event events[EVENTS_A_TURN];
    epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, s->listen_fd, NULL);
    epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, s->stop_event, NULL);
    for (struct connection *c = s->first, *next; c; c = next) {
        next = c->next;
        if (!c->out)
            end_connection(s, c);
    }
    while (s->first && clock_ns() < end_ns) {
        int n = epoll_wait(s->epoll_fd, events, EVENTS_A_TURN, clock_ms_until(end_ns));
        for (int i = 0; i < n; i++) {
            struct connection *c = events[i].data.ptr;
            if (is_listed(s, c) && send_some(s, c) && !c->out)
                end_connection(s, c);
        }
    }
    while (s->first)
        end_connection(s, s->first);
}

static void *server_main(void *arg)
{
    struct rpc_server *s = arg;
    struct epoll_event events[EVENTS_A_TURN];
    while (!atomic_load_explicit(&s->stop, memory_order_acquire)) {
        int timeout_ms = s->first ? clock_ms_until(s->first->deadline_ns) : -1;
        int n = epoll_wait(s->epoll_fd, events, EVENTS_A_TURN, timeout_ms);
        serve_events(s, events, n);
        close_overdue(s);
    }
    flush(s);
    return NULL;
}

/* ---- Life ---- */

static void release(struct rpc_server *s)
{
    if (s->listen_fd >= 0)
        local_socket_unlisten(s->path, s->listen_fd);
    if (s->epoll_fd >= 0)
        close(s->epoll_fd);
    if (s->stop_event >= 0)
        close(s->stop_event);
    free(s->path);
    free(s);
}

static enum error_code open_server(struct rpc_server *s, struct error *e)
{
    enum error_code code =
        local_socket_listen(s->path, SOCK_STREAM | SOCK_NONBLOCK, BACKLOG, &s->listen_fd, e);
    if (code)
        return code;
    s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    s->stop_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event listening = {.events = EPOLLIN, .data.ptr = s};
    struct epoll_event stopping = {.events = EPOLLIN}; /* NULL: only ends the wait */
    if (s->epoll_fd < 0 || s->stop_event < 0 ||
        epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, s->listen_fd, &listening) != 0 ||
        epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, s->stop_event, &stopping) != 0)
        return error_set(e, ERROR_IO, "cannot listen on '%s': %m", s->path);
    return ERROR_OK;
}

/* The thread blocks all signals, which belong to the program. */
static bool start_thread(struct rpc_server *s)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = pthread_create(&s->thread, NULL, server_main, s) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (started)
        pthread_setname_np(s->thread, "rpc");
    return started;
}

enum error_code rpc_serve(const char *url, rpc_handler *handler, void *arg, struct rpc_server **out,
                          struct error *e)
{
    const char *path;
    enum error_code code = rpc_path_of(url, &path, e);
    if (code)
        return code;
    struct rpc_server *s = calloc(1, sizeof *s);
    if (s == NULL)
        return error_set(e, ERROR_MEMORY, "cannot listen on '%s': out of memory", path);
    s->listen_fd = s->epoll_fd = s->stop_event = -1;
    s->handler = handler;
    s->arg = arg;
    if ((s->path = strdup(path)) == NULL)
        code = error_set(e, ERROR_MEMORY, "cannot listen on '%s': out of memory", path);
    if (!code)
        code = open_server(s, e);
    if (!code && !start_thread(s))
        code = error_set(e, ERROR_MEMORY, "cannot start the thread of '%s'", path);
    if (code)
        release(s);
    else
        *out = s;
    return code;
}

void rpc_server_stop(struct rpc_server *s)
{
    if (s == NULL)
        return;
    atomic_store_explicit(&s->stop, true, memory_order_release);
    eventfd_write(s->stop_event, 1);
    pthread_join(s->thread, NULL);
    release(s);
}
