/* A private two-way channel over a unix stream socket.
 *
 *   waiting --(peer let in)--> open --(end of stream, bad length, write error, stop)--> closed
 *      \--(peer_timeout_ms, stop)----------------------------------------------------------^
 *
 * let_in makes the first transition, `end` the others. There is no way back: a peer that returns
 * needs a new channel.
 *
 * On the wire: a 32-bit length in the machine's byte order (both ends are on one machine), 1 to
 * RPC_MESSAGE_BYTES, and so many bytes. Any other length ends the channel. Bytes that the kernel
 * has taken reach the peer also when the socket is closed at once, so there is no goodbye: a
 * channel is flushed when its queue is empty.
 *
 * The reader thread lets the peer in, receives and runs the callback; the writer thread sends what
 * the socket did not take at once. Two, so that a slow callback does not hold up what is sent.
 *
 * Invariants:
 * 1. The listening socket is the reader's once it runs. It and its file go as soon as the peer is
 *    in: a second one finds nothing to dial, or is cut off from the line of the waiting.
 * 2. `fd` is set once, under `lock`; it is closed after both threads have ended.
 * 3. Bytes go to the socket under `lock` only, from the front of the queue.
 * 4. After `end` the socket is shut down: the reader gets what had arrived, then the end of the
 *    stream, and tells the owner last. */
#include "ipc/channel.h"

#include "base/clock.h"
#include "base/log.h"
#include "ipc/channel_socket.h"
#include "ipc/rpc.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PREFIX_BYTES    sizeof(uint32_t)
#define ITEM_OVERHEAD   256 /* counted for each message, so that tiny ones are bounded too */
#define RECEIVE_BYTES   (64u << 10) /* read at once; grows to the largest message that came */
#define ACCEPT_PAUSE_NS 10000000u   /* between tries while descriptors or memory are short */
#define FOREVER         UINT64_MAX

struct item {
    struct item *next;
    size_t len, sent; /* of frame */
    uint8_t frame[];  /* the length and the message */
};

struct channel {
    channel_callback *callback;
    void *arg;
    uint64_t peer_deadline_ns;
    struct sockaddr_un address; /* of listen_fd */
    int listen_fd;              /* -1: none (any more) */
    int end_fd;                 /* an eventfd, readable for good once `gone` or `stop` is set */
    pthread_t reader, writer;

    pthread_mutex_t lock;
    pthread_cond_t work;    /* for the writer: the queue is not empty, or the end */
    pthread_cond_t drained; /* for channel_close: the queue is empty, or the end */
    int fd;                 /* the peer's socket; -1: nobody has come */
    bool gone;              /* the peer cannot be reached any more */
    bool closing;           /* the owner closes: nothing more is queued */
    bool stop;              /* the owner waits for the threads: nothing more is delivered */
    struct item *first, **last;
    size_t queued_bytes;
};

/* Until fd is ready for `events`, the channel ends or until_ns has come. May return early. */
static void wait_ready(struct channel *c, int fd, short events, uint64_t until_ns)
{
    struct pollfd p[2] = {{.fd = fd, .events = events}, {.fd = c->end_fd, .events = POLLIN}};
    uint64_t now = clock_ns();
    uint64_t ms = until_ns > now ? (until_ns - now + 999999u) / 1000000u : 0;
    poll(p, 2, until_ns == FOREVER ? -1 : ms > INT_MAX ? INT_MAX : (int)ms);
}

/* Under the lock: wake both threads and channel_close to look at `gone` and `stop`. */
static void wake_all(struct channel *c)
{
    eventfd_write(c->end_fd, 1);
    pthread_cond_broadcast(&c->work);
    pthread_cond_broadcast(&c->drained);
}

/* Under the lock. */
static void end(struct channel *c)
{
    if (c->gone)
        return;
    c->gone = true;
    if (c->fd >= 0)
        shutdown(c->fd, SHUT_RDWR);
    wake_all(c);
}

static bool stopping(struct channel *c)
{
    pthread_mutex_lock(&c->lock);
    bool stop = c->stop;
    pthread_mutex_unlock(&c->lock);
    return stop;
}

/* ---- sending ---- */

/* Under the lock, with a peer and a queue: one write, which takes what the socket has room for. A
 * single one, so that nobody waits for the lock while a whole queue is copied. */
static void write_first(struct channel *c)
{
    struct item *i = c->first;
    ssize_t n = send(c->fd, i->frame + i->sent, i->len - i->sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0) {
        if (errno != EAGAIN && errno != EINTR)
            end(c);
        return;
    }
    i->sent += (size_t)n;
    if (i->sent < i->len)
        return;
    c->first = i->next;
    if (c->first == NULL) {
        c->last = &c->first;
        pthread_cond_broadcast(&c->drained);
    }
    c->queued_bytes -= i->len + ITEM_OVERHEAD;
    free(i);
}

static void *writer_main(void *arg)
{
    struct channel *c = arg;
    pthread_mutex_lock(&c->lock);
    while (!c->gone && !c->stop) {
        if (c->fd < 0 || c->first == NULL) {
            pthread_cond_wait(&c->work, &c->lock);
            continue;
        }
        int fd = c->fd;
        pthread_mutex_unlock(&c->lock);
        wait_ready(c, fd, POLLOUT, FOREVER);
        pthread_mutex_lock(&c->lock);
        if (c->first != NULL && !c->gone)
            write_first(c);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* Under the lock. Takes the item, unless it fails. */
static enum error_code enqueue(struct channel *c, struct item *i, struct error *e)
{
    size_t cost = i->len + ITEM_OVERHEAD;
    if (c->gone || c->closing)
        return error_set(e, ERROR_UNAVAILABLE, "channel: the peer is gone");
    if (c->queued_bytes + cost > CHANNEL_QUEUE_BYTES)
        return error_set(e, ERROR_LIMIT, "channel: the peer does not read, %zu bytes wait for it",
                         c->queued_bytes);
    bool first = c->first == NULL;
    *c->last = i;
    c->last = &i->next;
    c->queued_bytes += cost;
    if (first && c->fd >= 0)
        write_first(c); /* most often all of it, and the writer sleeps on */
    if (c->first != NULL)
        pthread_cond_signal(&c->work);
    return ERROR_OK; /* a peer that has gone just now is told as one that goes a moment later */
}

enum error_code channel_send(struct channel *c, const uint8_t *data, size_t len, struct error *e)
{
    if (len == 0)
        return error_set(e, ERROR_USAGE, "channel: an empty message cannot be sent");
    if (len > RPC_MESSAGE_BYTES)
        return error_set(e, ERROR_LIMIT, "channel: message of %zu bytes, at most %u are possible",
                         len, RPC_MESSAGE_BYTES);
    struct item *i = malloc(sizeof *i + PREFIX_BYTES + len);
    if (i == NULL)
        return error_set(e, ERROR_MEMORY, "channel: out of memory for a message of %zu bytes", len);
    *i = (struct item){.len = PREFIX_BYTES + len};
    const uint32_t prefix = (uint32_t)len;
    memcpy(i->frame, &prefix, PREFIX_BYTES);
    memcpy(i->frame + PREFIX_BYTES, data, len);

    pthread_mutex_lock(&c->lock);
    enum error_code code = enqueue(c, i, e);
    pthread_mutex_unlock(&c->lock);
    if (code != ERROR_OK)
        free(i);
    return code;
}

/* ---- receiving ---- */

struct inbox {
    uint8_t *data;
    size_t capacity, len;
};

/* The peer comes in, what was queued for it starts. False: it has gone already. */
static bool let_in(struct channel *c, int fd)
{
    pthread_mutex_lock(&c->lock);
    /* Greeted under the lock: once the peer knows, a close flushes. */
    bool in = channel_socket_greet(fd);
    if (in) {
        c->fd = fd;
        pthread_cond_signal(&c->work);
    }
    pthread_mutex_unlock(&c->lock);
    return in;
}

/* Until the peer is in. False when nobody came in time or the owner closes. */
static bool wait_for_peer(struct channel *c)
{
    bool in = false;
    while (!in && !stopping(c) && clock_ns() < c->peer_deadline_ns) {
        int fd = channel_socket_accept(c->listen_fd);
        if (fd >= 0) {
            in = let_in(c, fd);
            if (!in)
                close(fd);
        } else if (errno == EAGAIN) {
            wait_ready(c, c->listen_fd, POLLIN, c->peer_deadline_ns);
        } else if (errno == EPERM) {
            log_warn("channel '%s': a process of another user was refused", c->address.sun_path);
        } else if (errno != EINTR && errno != ECONNABORTED) {
            wait_ready(c, -1, 0, clock_ns() + ACCEPT_PAUSE_NS);
        }
    }
    channel_socket_unlisten(&c->address, c->listen_fd);
    c->listen_fd = -1;
    return in;
}

static uint32_t prefix_at(const uint8_t *p)
{
    uint32_t len;
    memcpy(&len, p, PREFIX_BYTES);
    return len;
}

/* Hand on every whole message. False: no more is wanted, or what came is no message. */
static bool deliver(struct channel *c, struct inbox *in)
{
    size_t at = 0;
    bool open = true;
    while (open && in->len - at >= PREFIX_BYTES) {
        uint32_t len = prefix_at(in->data + at);
        if (len == 0 || len > RPC_MESSAGE_BYTES) {
            log_warn("channel: the peer announces a message of %u bytes and is dropped", len);
            return false;
        }
        if (in->len - at - PREFIX_BYTES < len)
            break;
        open = !stopping(c);
        if (open)
            c->callback(c->arg, in->data + at + PREFIX_BYTES, len);
        at += PREFIX_BYTES + len;
    }
    in->len -= at;
    memmove(in->data, in->data + at, in->len);
    return open;
}

/* So that the message that has begun fits: there is always room to read into. Its length has been
 * checked by `deliver`. */
static bool make_room(struct inbox *in)
{
    size_t need = RECEIVE_BYTES;
    if (in->len >= PREFIX_BYTES && PREFIX_BYTES + prefix_at(in->data) > need)
        need = PREFIX_BYTES + prefix_at(in->data);
    if (need <= in->capacity)
        return true;
    uint8_t *data = realloc(in->data, need);
    if (data == NULL) {
        log_error("channel: out of memory for a message of %zu bytes, the peer is dropped", need);
        return false;
    }
    in->data = data;
    in->capacity = need;
    return true;
}

/* Some bytes, or none yet. False: the end of the stream, or the owner closes. */
static bool receive(struct channel *c, struct inbox *in)
{
    ssize_t n = recv(c->fd, in->data + in->len, in->capacity - in->len, MSG_DONTWAIT);
    if (n > 0) {
        in->len += (size_t)n;
        return true;
    }
    if (n == 0 || (errno != EAGAIN && errno != EINTR))
        return false; /* a reset says that the peer had not read all of ours: an end like others */
    wait_ready(c, c->fd, POLLIN, FOREVER);
    return !stopping(c);
}

static void *reader_main(void *arg)
{
    struct channel *c = arg;
    struct inbox in = {0};
    bool open = (c->listen_fd < 0 || wait_for_peer(c)) && make_room(&in);
    while (open)
        open = receive(c, &in) && deliver(c, &in) && make_room(&in);
    free(in.data);

    pthread_mutex_lock(&c->lock);
    end(c);
    bool tell = !c->stop;
    pthread_mutex_unlock(&c->lock);
    if (tell)
        c->callback(c->arg, NULL, 0);
    return NULL;
}

/* ---- making and closing ---- */

/* The threads have ended, or were never there. */
static void release(struct channel *c)
{
    if (c->listen_fd >= 0)
        channel_socket_unlisten(&c->address, c->listen_fd);
    if (c->fd >= 0)
        close(c->fd);
    if (c->end_fd >= 0)
        close(c->end_fd);
    while (c->first != NULL) {
        struct item *next = c->first->next;
        free(c->first);
        c->first = next;
    }
    pthread_cond_destroy(&c->drained);
    pthread_cond_destroy(&c->work);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

static struct channel *channel_new(channel_callback *callback, void *arg)
{
    struct channel *c = calloc(1, sizeof *c);
    if (c == NULL)
        return NULL;
    c->callback = callback;
    c->arg = arg;
    c->listen_fd = c->fd = -1;
    c->last = &c->first;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->work, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&c->drained, &monotonic);
    pthread_condattr_destroy(&monotonic);
    c->end_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return c;
}

static void stop_threads(struct channel *c, bool writer_runs)
{
    pthread_mutex_lock(&c->lock);
    c->stop = true;
    wake_all(c);
    pthread_mutex_unlock(&c->lock);
    if (writer_runs)
        pthread_join(c->writer, NULL);
    pthread_join(c->reader, NULL);
}

/* The socket stands: start the threads. Takes the channel when it fails. They block all signals,
 * which belong to the program that this library is in. */
static enum error_code start(struct channel *c, const char *url, struct error *e)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool reads = pthread_create(&c->reader, NULL, reader_main, c) == 0;
    bool writes = reads && pthread_create(&c->writer, NULL, writer_main, c) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!writes) {
        if (reads)
            stop_threads(c, false);
        release(c);
        return error_set(e, ERROR_MEMORY, "channel '%s': cannot start its threads", url);
    }
    pthread_setname_np(c->reader, "channel");
    pthread_setname_np(c->writer, "channel/send");
    return ERROR_OK;
}

/* channel_new, with the error told. */
static enum error_code make(const char *url, channel_callback *callback, void *arg,
                            struct channel **out, struct error *e)
{
    struct channel *c = channel_new(callback, arg);
    if (c == NULL)
        return error_set(e, ERROR_MEMORY, "channel '%s': out of memory", url);
    if (c->end_fd < 0) {
        enum error_code code = error_set(e, ERROR_IO, "channel '%s': eventfd: %m", url);
        release(c);
        return code;
    }
    *out = c;
    return ERROR_OK;
}

enum error_code channel_listen(const char *url, int peer_timeout_ms, channel_callback *callback,
                               void *arg, struct channel **out, struct error *e)
{
    struct channel *c;
    enum error_code code = make(url, callback, arg, &c, e);
    if (code != ERROR_OK)
        return code;
    code = channel_socket_listen(url, &c->address, &c->listen_fd, e);
    if (code != ERROR_OK) {
        release(c);
        return code;
    }
    c->peer_deadline_ns =
        clock_ns() + (uint64_t)(peer_timeout_ms > 0 ? peer_timeout_ms : 0) * 1000000u;
    code = start(c, url, e);
    if (code == ERROR_OK)
        *out = c;
    return code;
}

enum error_code channel_connect(const char *url, int timeout_ms, channel_callback *callback,
                                void *arg, struct channel **out, struct error *e)
{
    struct channel *c;
    enum error_code code = make(url, callback, arg, &c, e);
    if (code != ERROR_OK)
        return code;
    code = channel_socket_dial(url, timeout_ms, &c->fd, e);
    if (code != ERROR_OK) {
        release(c);
        return code;
    }
    code = start(c, url, e);
    if (code == ERROR_OK)
        *out = c;
    return code;
}

void channel_close(struct channel *c, int flush_ms)
{
    if (c == NULL)
        return;
    uint64_t end_ns = clock_ns() + (uint64_t)(flush_ms > 0 ? flush_ms : 0) * 1000000u;
    struct timespec deadline = {.tv_sec = (time_t)(end_ns / 1000000000u),
                                .tv_nsec = (long)(end_ns % 1000000000u)};
    int rc = 0;
    pthread_mutex_lock(&c->lock);
    c->closing = true;
    while (c->fd >= 0 && !c->gone && c->first != NULL && rc == 0)
        rc = pthread_cond_timedwait(&c->drained, &c->lock, &deadline);
    pthread_mutex_unlock(&c->lock);
    stop_threads(c, true);
    release(c);
}
