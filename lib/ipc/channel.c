/* A two-way channel over a unix stream socket; see channel.h.
 *
 *   open --(end of stream, bad length, write error, stop)--> closed
 *
 * `end` makes the transition. A closed channel stays closed: a peer that returns needs a new one.
 *
 * On the wire: a 32-bit length, 1 to RPC_MESSAGE_BYTES, in the machine's byte order (both ends are
 * on one machine), then that many bytes. Any other length ends the channel. Bytes that the kernel
 * has taken reach the peer even if the socket is closed at once, so the protocol needs no last
 * message: a channel is flushed when its queue is empty.
 *
 * The reader thread receives and runs the callback. The writer thread sends what the socket did not
 * take at once. They are two so that a slow callback does not delay sending.
 *
 * Invariants:
 * 1. `fd` is closed after both threads have ended.
 * 2. Bytes go to the socket under `lock` only, from the front of the queue.
 * 3. `end` shuts the socket down: the reader gets what had arrived, then the end of the stream, and
 *    then reports the end to the owner.
 * 4. `held` is what the channel has charged to its group; release() returns the rest. */
#include "ipc/channel.h"

#include "base/clock.h"
#include "base/log.h"
#include "ipc/rpc.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PREFIX_BYTES  sizeof(uint32_t)
#define ITEM_OVERHEAD 256         /* added to each message, so that the limit bounds tiny ones */
#define RECEIVE_BYTES (64u << 10) /* read at once; more while a larger message is received */

struct item {
    struct item *next;
    size_t len, sent; /* of frame */
    uint8_t frame[];  /* the length and the message */
};

struct channel {
    channel_callback *callback;
    void *arg;
    struct channel_group *group; /* borrowed; NULL: none */
    int fd;
    int end_fd; /* an eventfd, readable for good once `gone` or `stop` is set */
    pthread_t reader, writer;

    pthread_mutex_t lock;
    pthread_cond_t work;    /* for the writer: the queue is not empty, or the end */
    pthread_cond_t drained; /* for channel_close and the reader: the queue is shorter, or the end */
    bool gone;              /* the peer can no longer be reached */
    bool closing;           /* channel_close runs: queue nothing more */
    bool stop;              /* channel_close joins the threads: deliver nothing more */
    struct item *first, **last;
    size_t queued_bytes;
    size_t held;
};

/* Wait until fd is ready for `events`, or the channel ends. May return early. */
static void wait_ready(struct channel *c, short events)
{
    struct pollfd p[2] = {{.fd = c->fd, .events = events}, {.fd = c->end_fd, .events = POLLIN}};
    poll(p, 2, -1);
}

/* ---- The group's memory; under the lock ---- */

static bool take_memory(struct channel *c, size_t bytes)
{
    struct channel_group *g = c->group;
    if (!g)
        return true;
    size_t all = atomic_fetch_add(&g->bytes, bytes) + bytes;
    if (all > g->limit && c->held + bytes > g->limit / atomic_load(&g->channels)) {
        atomic_fetch_sub(&g->bytes, bytes);
        return false;
    }
    c->held += bytes;
    return true;
}

static void return_memory(struct channel *c, size_t bytes)
{
    if (!c->group)
        return;
    c->held -= bytes;
    atomic_fetch_sub(&c->group->bytes, bytes);
}

/* Under the lock: wake both threads and channel_close, to check `gone` and `stop`. */
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

/* Under the lock, with a peer and a queue: one send call. A single one, so that no thread waits for
 * the lock while a whole queue is copied. */
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
    if (c->first == NULL)
        c->last = &c->first;
    c->queued_bytes -= i->len + ITEM_OVERHEAD;
    return_memory(c, i->len + ITEM_OVERHEAD);
    if (c->first == NULL || (c->group && c->queued_bytes <= CHANNEL_PAUSE_BYTES))
        pthread_cond_broadcast(&c->drained);
    free(i);
}

/* Each thread names itself: a confined process may not name another thread (client/http/confine.h).
 */
static void *writer_main(void *arg)
{
    struct channel *c = arg;
    pthread_setname_np(pthread_self(), "channel/send");
    pthread_mutex_lock(&c->lock);
    while (!c->gone && !c->stop) {
        if (c->first == NULL) {
            pthread_cond_wait(&c->work, &c->lock);
            continue;
        }
        pthread_mutex_unlock(&c->lock);
        wait_ready(c, POLLOUT);
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
    if (!take_memory(c, cost))
        return error_set(e, ERROR_LIMIT,
                         "channel: the peer does not read, %zu bytes wait for it, and the memory "
                         "for all peers is used up",
                         c->queued_bytes);
    bool first = c->first == NULL;
    *c->last = i;
    c->last = &i->next;
    c->queued_bytes += cost;
    if (first)
        write_first(c); /* most often all of it, and the writer need not wake */
    if (c->first != NULL)
        pthread_cond_signal(&c->work);
    return ERROR_OK; /* also where the peer has just gone: the callback reports it */
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

static uint32_t prefix_at(const uint8_t *p)
{
    uint32_t len;
    memcpy(&len, p, PREFIX_BYTES);
    return len;
}

/* Waits while the peer does not read its replies. */
static void wait_for_space(struct channel *c)
{
    pthread_mutex_lock(&c->lock);
    while (c->group && !c->gone && !c->stop && c->queued_bytes > CHANNEL_PAUSE_BYTES)
        pthread_cond_wait(&c->drained, &c->lock);
    pthread_mutex_unlock(&c->lock);
}

/* Deliver every whole message. False: the owner closes, or the bytes are no message. */
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
        wait_for_space(c);
        open = !stopping(c);
        if (open)
            c->callback(c->arg, in->data + at + PREFIX_BYTES, len);
        at += PREFIX_BYTES + len;
    }
    in->len -= at;
    memmove(in->data, in->data + at, in->len);
    return open;
}

/* Enlarges the buffer for the message that has begun, so that there is always space to read into;
 * shrinks it after a large one. `deliver` has checked the length. */
static bool reserve(struct channel *c, struct inbox *in)
{
    size_t need = RECEIVE_BYTES;
    if (in->len >= PREFIX_BYTES && PREFIX_BYTES + prefix_at(in->data) > need)
        need = PREFIX_BYTES + prefix_at(in->data);
    if (need == in->capacity)
        return true;
    pthread_mutex_lock(&c->lock);
    bool allowed = need < in->capacity || take_memory(c, need - in->capacity);
    if (need < in->capacity)
        return_memory(c, in->capacity - need);
    pthread_mutex_unlock(&c->lock);
    uint8_t *data = allowed ? realloc(in->data, need) : NULL;
    if (data == NULL) {
        log_error("channel: no memory for a message of %zu bytes%s, the peer is dropped", need,
                  allowed ? "" : ": it is used up by all peers together");
        return false; /* release() returns what is held */
    }
    in->data = data;
    in->capacity = need;
    return true;
}

/* Receive some bytes, or none yet. False: the end of the stream, or the owner closes. */
static bool receive(struct channel *c, struct inbox *in)
{
    ssize_t n = recv(c->fd, in->data + in->len, in->capacity - in->len, MSG_DONTWAIT);
    if (n > 0) {
        in->len += (size_t)n;
        return true;
    }
    if (n == 0 || (errno != EAGAIN && errno != EINTR))
        return false; /* after a reset the peer has not read all of ours: an end as any other */
    wait_ready(c, POLLIN);
    return !stopping(c);
}

static void *reader_main(void *arg)
{
    struct channel *c = arg;
    struct inbox in = {0};
    pthread_setname_np(pthread_self(), "channel");
    bool open = reserve(c, &in);
    while (open)
        open = receive(c, &in) && deliver(c, &in) && reserve(c, &in);
    free(in.data);

    pthread_mutex_lock(&c->lock);
    end(c);
    bool report = !c->stop;
    pthread_mutex_unlock(&c->lock);
    if (report)
        c->callback(c->arg, NULL, 0);
    return NULL;
}

/* ---- making and closing ---- */

/* Free the channel. The threads have ended or never ran. */
static void release(struct channel *c)
{
    if (c->group) {
        return_memory(c, c->held);
        atomic_fetch_sub(&c->group->channels, 1);
    }
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

static struct channel *channel_new(int fd, struct channel_group *group, channel_callback *callback,
                                   void *arg)
{
    struct channel *c = calloc(1, sizeof *c);
    if (c == NULL)
        return NULL;
    c->callback = callback;
    c->arg = arg;
    c->fd = fd;
    c->group = group;
    if (group)
        atomic_fetch_add(&group->channels, 1);
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

static void stop_threads(struct channel *c, bool reader_runs)
{
    pthread_mutex_lock(&c->lock);
    c->stop = true;
    wake_all(c);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->writer, NULL);
    if (reader_runs)
        pthread_join(c->reader, NULL);
}

/* Start the threads. They block all signals, which belong to the program that uses this library.
 * The reader is the last, so that no callback runs where this fails. */
static bool start(struct channel *c)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool writes = pthread_create(&c->writer, NULL, writer_main, c) == 0;
    bool reads = writes && pthread_create(&c->reader, NULL, reader_main, c) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (writes && !reads)
        stop_threads(c, false);
    return reads;
}

enum error_code channel_open(int fd, struct channel_group *group, channel_callback *callback,
                             void *arg, struct channel **out, struct error *e)
{
    struct channel *c = channel_new(fd, group, callback, arg);
    if (c == NULL) {
        close(fd);
        return error_set(e, ERROR_MEMORY, "channel: out of memory");
    }
    if (c->end_fd < 0) {
        enum error_code code = error_set(e, ERROR_IO, "channel: eventfd: %m");
        release(c);
        return code;
    }
    if (!start(c)) {
        release(c);
        return error_set(e, ERROR_MEMORY, "channel: cannot start its threads");
    }
    *out = c;
    return ERROR_OK;
}

void channel_close(struct channel *c, int flush_ms)
{
    if (c == NULL)
        return;
    uint64_t end_ns = clock_end_ns(flush_ms);
    struct timespec deadline = {.tv_sec = (time_t)(end_ns / 1000000000u),
                                .tv_nsec = (long)(end_ns % 1000000000u)};
    int rc = 0;
    pthread_mutex_lock(&c->lock);
    c->closing = true;
    while (!c->gone && c->first != NULL && rc == 0)
        rc = pthread_cond_timedwait(&c->drained, &c->lock, &deadline);
    pthread_mutex_unlock(&c->lock);
    stop_threads(c, true);
    release(c);
}

void channel_abandon(struct channel *c)
{
    if (!c)
        return;
    close(c->fd);
    close(c->end_fd);
}
