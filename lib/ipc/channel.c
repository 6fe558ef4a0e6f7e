/* A private two-way channel over nng's pair0.
 *
 *   waiting --(first pipe)--> open --(pipe gone, goodbye, stop)--> closed
 *      \--(peer_timeout_ms)-----------------------------------------^
 *
 * `peer_pipe` makes the first transition (pipe_event), `gone` and `stop` the others. There is no
 * way back: a peer that returns needs a new channel.
 *
 * Receiving: the channel's thread keeps one asynchronous receive going and runs the callback.
 * Sending: a queue under the lock, one asynchronous send in flight, the completion starts the next.
 * nng calls made inside nng's callbacks are only those it documents for them (start a send, reject
 * a pipe).
 *
 * An empty message is the goodbye. nng finishes a send when it hands the bytes to its pipe, not
 * when they are written, and closing then cuts them; but a send only finishes after the one before
 * it is written. So when the goodbye is sent, everything before it is on its way. (nng 1.5.2 may
 * leak the one message that it holds when its pipe closes; no more than that a channel.) */
#include "ipc/channel.h"

#include "base/clock.h"
#include "ipc/rpc.h"
#include "ipc/rpc_wire.h"

#include <nng/nng.h>
#include <nng/protocol/pair0/pair.h>
#include <nng/supplemental/util/platform.h>
#include <nng/transport/ipc/ipc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MESSAGE_BYTES      RPC_MESSAGE_BYTES
#define ITEM_OVERHEAD      256 /* counted for each message, so that many tiny ones are bounded too */
#define RECEIVE_BUFFER     64  /* messages that nng reads ahead of the callback */
#define RECONNECT_NEVER_MS 3600000

struct item {
    struct item *next;
    nng_msg *message;
    size_t cost;
};

struct channel {
    nng_socket socket;
    channel_callback *callback;
    void *arg;
    int peer_timeout_ms;
    pthread_t thread;
    nng_aio *send_aio, *receive_aio;

    pthread_mutex_t lock;
    pthread_cond_t changed; /* any of the following */
    int peer_pipe;          /* nng's id of the one peer; 0: none yet */
    bool gone;              /* the peer's pipe has closed or said goodbye */
    bool stop;              /* our owner closes */
    bool sending, received; /* a send is in flight; the receive has finished */
    struct item *first, **last;
    size_t queued_bytes; /* with the one in flight */
    size_t sending_cost;
};

/* ---- sending ---- */

/* Under the lock. Starts the next send, if there is one and none in flight. */
static void start_send(struct channel *c)
{
    struct item *i = c->first;
    if (c->sending || i == NULL || c->gone)
        return;
    c->first = i->next;
    if (c->first == NULL)
        c->last = &c->first;
    c->sending = true;
    c->sending_cost = i->cost;
    nng_aio_set_msg(c->send_aio, i->message);
    free(i);
    nng_send_aio(c->socket, c->send_aio);
}

static void on_sent(void *arg)
{
    struct channel *c = arg;
    int rc = nng_aio_result(c->send_aio);
    if (rc != 0) {
        nng_msg_free(nng_aio_get_msg(c->send_aio));
        nng_aio_set_msg(c->send_aio, NULL);
    }
    pthread_mutex_lock(&c->lock);
    c->sending = false;
    c->queued_bytes -= c->sending_cost;
    if (rc != 0)
        c->gone = true; /* cancelled or closed: nothing goes out after it */
    start_send(c);
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

/* Under the lock. Takes the message. */
static bool enqueue(struct channel *c, nng_msg *m, size_t cost)
{
    struct item *i = malloc(sizeof *i);
    if (i == NULL)
        return false;
    *i = (struct item){.message = m, .cost = cost};
    *c->last = i;
    c->last = &i->next;
    c->queued_bytes += cost;
    start_send(c);
    return true;
}

enum error_code channel_send(struct channel *c, const uint8_t *data, size_t len, struct error *e)
{
    if (len == 0)
        return error_set(e, ERROR_USAGE, "channel: an empty message cannot be sent");
    if (len > MESSAGE_BYTES)
        return error_set(e, ERROR_LIMIT, "channel: message of %zu bytes, at most %u are possible",
                         len, MESSAGE_BYTES);
    nng_msg *m = NULL;
    if (nng_msg_alloc(&m, len) != 0)
        return error_set(e, ERROR_MEMORY, "channel: out of memory for a message of %zu bytes", len);
    memcpy(nng_msg_body(m), data, len);

    enum error_code code = ERROR_OK;
    pthread_mutex_lock(&c->lock);
    if (c->gone || c->stop)
        code = error_set(e, ERROR_UNAVAILABLE, "channel: the peer is gone");
    else if (c->queued_bytes + len + ITEM_OVERHEAD > CHANNEL_QUEUE_BYTES)
        code = error_set(e, ERROR_LIMIT, "channel: the peer does not read, %zu bytes wait for it",
                         c->queued_bytes);
    else if (!enqueue(c, m, len + ITEM_OVERHEAD))
        code = error_set(e, ERROR_MEMORY, "channel: out of memory");
    pthread_mutex_unlock(&c->lock);
    if (code != ERROR_OK)
        nng_msg_free(m);
    return code;
}

/* ---- receiving ---- */

static void on_received(void *arg)
{
    struct channel *c = arg;
    pthread_mutex_lock(&c->lock);
    c->received = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

/* nng's notice that a pipe comes or has gone. Exactly one is ever let in. */
static void pipe_event(nng_pipe p, nng_pipe_ev event, void *arg)
{
    struct channel *c = arg;
    bool reject = false;
    pthread_mutex_lock(&c->lock);
    if (event == NNG_PIPE_EV_ADD_PRE) {
        if (c->peer_pipe == 0 && !c->gone)
            c->peer_pipe = nng_pipe_id(p);
        else
            reject = true;
    } else if (event == NNG_PIPE_EV_REM_POST && nng_pipe_id(p) == c->peer_pipe) {
        c->gone = true;
    }
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    if (reject)
        nng_pipe_close(p);
}

static struct timespec deadline_in(int ms)
{
    uint64_t ns = clock_ns() + (uint64_t)(ms > 0 ? ms : 0) * 1000000u;
    return (struct timespec){.tv_sec = (time_t)(ns / 1000000000u),
                             .tv_nsec = (long)(ns % 1000000000u)};
}

/* Until the peer has come. False when nobody came in time or the owner closes. */
static bool wait_for_peer(struct channel *c)
{
    struct timespec end = deadline_in(c->peer_timeout_ms);
    int rc = 0;
    pthread_mutex_lock(&c->lock);
    while (c->peer_pipe == 0 && !c->stop && rc == 0)
        rc = pthread_cond_timedwait(&c->changed, &c->lock, &end);
    if (c->peer_pipe == 0)
        c->gone = true; /* from now on nobody is let in */
    bool open = c->peer_pipe != 0 && !c->stop;
    pthread_mutex_unlock(&c->lock);
    return open;
}

/* Hand a message on and free it; false for a goodbye or when the owner closes. */
static bool deliver(struct channel *c, nng_msg *m)
{
    size_t len = nng_msg_len(m);
    pthread_mutex_lock(&c->lock);
    bool wanted = len > 0 && !c->stop;
    pthread_mutex_unlock(&c->lock);
    if (wanted)
        c->callback(c->arg, nng_msg_body(m), len);
    nng_msg_free(m);
    return wanted;
}

/* One asynchronous receive, ended early by `gone` or `stop`. NULL: nothing came. */
static nng_msg *receive(struct channel *c)
{
    c->received = false; /* no receive runs: nobody else writes it */
    nng_recv_aio(c->socket, c->receive_aio);
    pthread_mutex_lock(&c->lock);
    while (!c->received && !c->gone && !c->stop)
        pthread_cond_wait(&c->changed, &c->lock);
    pthread_mutex_unlock(&c->lock);
    nng_aio_cancel(c->receive_aio); /* does nothing where it has finished */
    nng_aio_wait(c->receive_aio);
    return nng_aio_result(c->receive_aio) == 0 ? nng_aio_get_msg(c->receive_aio) : NULL;
}

static void *channel_main(void *arg)
{
    struct channel *c = arg;
    if (wait_for_peer(c)) {
        nng_msg *m;
        bool open = true;
        while (open && (m = receive(c)) != NULL)
            open = deliver(c, m);
        /* What the peer sent before it went. */
        while (open && nng_recvmsg(c->socket, &m, NNG_FLAG_NONBLOCK) == 0)
            open = deliver(c, m);
    }
    pthread_mutex_lock(&c->lock);
    c->gone = true;
    bool tell = !c->stop;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    if (tell)
        c->callback(c->arg, NULL, 0);
    return NULL;
}

/* ---- making and closing ---- */

static void channel_release(struct channel *c)
{
    nng_aio_free(c->send_aio); /* takes NULL; stops and waits */
    nng_aio_free(c->receive_aio);
    while (c->first != NULL) {
        struct item *next = c->first->next;
        nng_msg_free(c->first->message);
        free(c->first);
        c->first = next;
    }
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

static int open_socket(struct channel *c)
{
    int rc = nng_pair0_open(&c->socket);
    if (rc != 0)
        return rc;
    rc = nng_socket_set_size(c->socket, NNG_OPT_RECVMAXSZ, MESSAGE_BYTES + RPC_WIRE_SLACK);
    if (rc == 0)
        rc = nng_socket_set_int(c->socket, NNG_OPT_RECVBUF, RECEIVE_BUFFER);
    if (rc == 0)
        rc = nng_socket_set_int(c->socket, NNG_OPT_SENDBUF, 0); /* the queue is ours */
    if (rc == 0) /* a peer that comes back is a new one */
        rc = nng_socket_set_ms(c->socket, NNG_OPT_RECONNMINT, RECONNECT_NEVER_MS);
    if (rc == 0)
        rc = nng_socket_set_ms(c->socket, NNG_OPT_RECONNMAXT, RECONNECT_NEVER_MS);
    if (rc == 0)
        rc = nng_pipe_notify(c->socket, NNG_PIPE_EV_ADD_PRE, pipe_event, c);
    if (rc == 0)
        rc = nng_pipe_notify(c->socket, NNG_PIPE_EV_REM_POST, pipe_event, c);
    if (rc != 0)
        nng_close(c->socket);
    return rc;
}

static struct channel *channel_new(channel_callback *callback, void *arg, int peer_timeout_ms)
{
    struct channel *c = calloc(1, sizeof *c);
    if (c == NULL)
        return NULL;
    c->callback = callback;
    c->arg = arg;
    c->peer_timeout_ms = peer_timeout_ms;
    c->last = &c->first;
    pthread_mutex_init(&c->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&c->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (nng_aio_alloc(&c->send_aio, on_sent, c) != 0 ||
        nng_aio_alloc(&c->receive_aio, on_received, c) != 0) {
        channel_release(c);
        return NULL;
    }
    return c;
}

static int listen_at(nng_socket socket, const char *url)
{
    nng_listener listener;
    int rc = nng_listener_create(&listener, socket, url);
    if (rc == 0)
        rc = nng_listener_set_int(listener, NNG_OPT_IPC_PERMISSIONS, 0600);
    if (rc == 0)
        rc = nng_listener_start(listener, 0);
    return rc;
}

/* Dials until timeout_ms while nobody listens yet. */
static int dial(nng_socket socket, const char *url, int timeout_ms)
{
    uint64_t end = clock_ns() + (uint64_t)(timeout_ms > 0 ? timeout_ms : 0) * 1000000u;
    for (;;) {
        int rc = nng_dial(socket, url, NULL, 0);
        bool absent = rc == NNG_ECONNREFUSED || rc == NNG_ENOENT || rc == NNG_EAGAIN;
        if (!absent || clock_ns() >= end)
            return rc;
        nng_msleep(10);
    }
}

/* The socket stands, its connection is made or listened for: start the thread. */
static enum error_code start(struct channel *c, const char *url, struct error *e)
{
    if (pthread_create(&c->thread, NULL, channel_main, c) != 0)
        return error_set(e, ERROR_MEMORY, "channel '%s': cannot start a thread", rpc_path_of(url));
    pthread_setname_np(c->thread, "channel");
    return ERROR_OK;
}

static enum error_code open_failure(struct error *e, const char *url, int rc)
{
    enum error_code code = ERROR_IO;
    if (rc == NNG_ECONNREFUSED || rc == NNG_ENOENT || rc == NNG_EAGAIN || rc == NNG_ECONNRESET ||
        rc == NNG_ECONNSHUT || rc == NNG_ECLOSED || rc == NNG_ETIMEDOUT)
        code = ERROR_UNAVAILABLE;
    else if (rc == NNG_EADDRINUSE)
        code = ERROR_EXISTS;
    else if (rc == NNG_ENOMEM)
        code = ERROR_MEMORY;
    return error_set(e, code, "channel '%s': %s", rpc_path_of(url), nng_strerror(rc));
}

enum error_code channel_listen(const char *url, int peer_timeout_ms, channel_callback *callback,
                               void *arg, struct channel **out, struct error *e)
{
    struct channel *c = channel_new(callback, arg, peer_timeout_ms);
    if (c == NULL)
        return error_set(e, ERROR_MEMORY, "channel '%s': out of memory", rpc_path_of(url));
    int rc = open_socket(c);
    if (rc != 0) {
        channel_release(c);
        return open_failure(e, url, rc);
    }
    rc = listen_at(c->socket, url);
    enum error_code code = rc == 0 ? start(c, url, e) : open_failure(e, url, rc);
    if (code != ERROR_OK) {
        nng_close(c->socket);
        channel_release(c);
        return code;
    }
    *out = c;
    return ERROR_OK;
}

enum error_code channel_connect(const char *url, int timeout_ms, channel_callback *callback,
                                void *arg, struct channel **out, struct error *e)
{
    struct channel *c = channel_new(callback, arg, timeout_ms);
    if (c == NULL)
        return error_set(e, ERROR_MEMORY, "channel '%s': out of memory", rpc_path_of(url));
    int rc = open_socket(c);
    if (rc != 0) {
        channel_release(c);
        return open_failure(e, url, rc);
    }
    rc = dial(c->socket, url, timeout_ms);
    enum error_code code = rc == 0 ? start(c, url, e) : open_failure(e, url, rc);
    if (code != ERROR_OK) {
        nng_close(c->socket);
        channel_release(c);
        return code;
    }
    *out = c;
    return ERROR_OK;
}

void channel_close(struct channel *c, int flush_ms)
{
    if (c == NULL)
        return;
    nng_msg *goodbye = NULL;
    nng_msg_alloc(&goodbye, 0);
    struct timespec end = deadline_in(flush_ms);
    pthread_mutex_lock(&c->lock);
    if (goodbye != NULL && !c->gone && enqueue(c, goodbye, 0))
        goodbye = NULL;
    int rc = 0;
    while (c->peer_pipe != 0 && !c->gone && (c->sending || c->first != NULL) && rc == 0)
        rc = pthread_cond_timedwait(&c->changed, &c->lock, &end);
    c->stop = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    nng_msg_free(goodbye); /* takes NULL */

    pthread_join(c->thread, NULL);
    nng_aio_stop(c->send_aio);
    nng_close(c->socket);
    channel_release(c);
}
