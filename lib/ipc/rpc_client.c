/* The client's side of rpc.h.
 *
 * Each call has a connection of its own: threads share no state, a request cannot outlive its call,
 * and no call gets an old connection to a server that has died. A request is sent once; a restarted
 * server never executes it again. */
#include "ipc/rpc.h"

#include "base/clock.h"
#include "ipc/local_socket.h"
#include "ipc/rpc_wire.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define ABSENT_MS 50 /* a server that restarts is absent for a moment */

/* A connection, for error texts. */
struct call {
    int fd;
    const char *path;
    uint64_t end_ns;
};

static enum error_code went_away(const struct call *c, struct error *e)
{
    return error_set(e, ERROR_UNAVAILABLE, "'%s' went away before it answered", c->path);
}

/* After a send or recv that failed. ERROR_OK: wait is over, try again. */
static enum error_code wait_or_fail(const struct call *c, short events, struct error *e)
{
    if (errno == EINTR)
        return ERROR_OK;
    if (errno != EAGAIN)
        return went_away(c, e);
    int left_ms = clock_ms_until(c->end_ns);
    if (left_ms == 0)
        return error_set(e, ERROR_TIMEOUT, "'%s' did not answer in time", c->path);
    poll(&(struct pollfd){.fd = c->fd, .events = events}, 1, left_ms); /* the next try reports */
    return ERROR_OK;
}

static enum error_code send_frame(const struct call *c, const uint8_t *data, size_t len,
                                  struct error *e)
{
    uint32_t prefix = (uint32_t)len;
    size_t sent = 0, total = RPC_PREFIX_BYTES + len;
    while (sent < total) {
        size_t of_prefix = sent < RPC_PREFIX_BYTES ? RPC_PREFIX_BYTES - sent : 0;
        size_t at = sent > RPC_PREFIX_BYTES ? sent - RPC_PREFIX_BYTES : 0;
        struct iovec parts[2] = {{(uint8_t *)&prefix + RPC_PREFIX_BYTES - of_prefix, of_prefix},
                                 {(uint8_t *)data + at, len - at}};
        struct msghdr m = {.msg_iov = parts, .msg_iovlen = 2};
        ssize_t n = sendmsg(c->fd, &m, MSG_NOSIGNAL);
        enum error_code code = n < 0 ? wait_or_fail(c, POLLOUT, e) : ERROR_OK;
        if (code)
            return code;
        sent += n > 0 ? (size_t)n : 0;
    }
    return ERROR_OK;
}

static enum error_code receive(const struct call *c, uint8_t *out, size_t len, struct error *e)
{
    for (size_t got = 0; got < len;) {
        ssize_t n = recv(c->fd, out + got, len - got, 0);
        if (n == 0)
            return went_away(c, e);
        enum error_code code = n < 0 ? wait_or_fail(c, POLLIN, e) : ERROR_OK;
        if (code)
            return code;
        got += n > 0 ? (size_t)n : 0;
    }
    return ERROR_OK;
}

static enum error_code receive_reply(const struct call *c, uint8_t **reply, size_t *reply_len,
                                     struct error *e)
{
    uint32_t head[2]; /* the greeting and the reply's length */
    enum error_code code = receive(c, (uint8_t *)head, sizeof *head, e);
    if (!code && head[0] != RPC_GREETING)
        code = error_set(e, ERROR_PROTOCOL, "'%s' does not speak this control protocol", c->path);
    if (!code)
        code = receive(c, (uint8_t *)&head[1], sizeof head[1], e);
    if (!code && (head[1] == 0 || head[1] > RPC_MESSAGE_BYTES))
        code = error_set(e, ERROR_PROTOCOL, "'%s' announces a reply of %u bytes", c->path, head[1]);
    if (code)
        return code;
    uint8_t *data = malloc(head[1]);
    if (!data)
        return error_set(e, ERROR_MEMORY, "reply of '%s': %u bytes: out of memory", c->path,
                         head[1]);
    code = receive(c, data, head[1], e);
    if (code) {
        free(data);
        return code;
    }
    *reply = data;
    *reply_len = head[1];
    return ERROR_OK;
}

enum error_code rpc_call_open(const char *url, const uint8_t *request, size_t len, int timeout_ms,
                              uint8_t **reply, size_t *reply_len, int *fd, struct error *e)
{
    struct call c = {.end_ns = clock_end_ns(timeout_ms)};
    enum error_code code = rpc_path_of(url, &c.path, e);
    if (!code && (len == 0 || len > RPC_REQUEST_BYTES))
        code = error_set(e, ERROR_LIMIT, "request of %zu bytes: 1 to %u are possible", len,
                         RPC_REQUEST_BYTES);
    if (code)
        return code;
    int absent_ms = timeout_ms < ABSENT_MS ? timeout_ms : ABSENT_MS;
    code = local_socket_connect(c.path, SOCK_STREAM, clock_end_ns(absent_ms), c.end_ns, &c.fd, e);
    if (code)
        return code;
    code = send_frame(&c, request, len, e);
    if (!code)
        code = receive_reply(&c, reply, reply_len, e);
    if (code)
        close(c.fd);
    else
        *fd = c.fd;
    return code;
}

enum error_code rpc_call(const char *url, const uint8_t *request, size_t len, int timeout_ms,
                         uint8_t **reply, size_t *reply_len, struct error *e)
{
    int fd;
    enum error_code code = rpc_call_open(url, request, len, timeout_ms, reply, reply_len, &fd, e);
    if (!code)
        close(fd);
    return code;
}
