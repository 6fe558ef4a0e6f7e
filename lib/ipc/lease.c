/* Lease sockets; see lease.h. */
#include "ipc/lease.h"

#include "base/clock.h"
#include "ipc/local_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD /* Linux 6.5 */
#define SO_PEERPIDFD 77
#endif

#define LISTEN_BACKLOG 128
#define SEND_TIMEOUT_S 5 /* the caller drops a peer that does not read for so long */

enum error_code lease_listen(const char *path, int *fd, struct error *e)
{
    return local_socket_listen(path, SOCK_SEQPACKET, LISTEN_BACKLOG, fd, e);
}

static void limit_send_time(int fd)
{
    struct timeval t = {.tv_sec = SEND_TIMEOUT_S};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t);
}

static int open_pidfd(int fd, pid_t pid)
{
    int pidfd = -1;
    socklen_t len = sizeof pidfd;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &len) == 0)
        return pidfd;
#ifdef SYS_pidfd_open
    pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (pidfd < 0)
        return -1;
    /* If the connection is open now, its process lived when the pidfd was opened, so the kernel had
     * not given the number to another process. */
    struct pollfd p = {.fd = fd, .events = POLLIN};
    if (poll(&p, 1, 0) > 0 && (p.revents & POLLHUP)) {
        close(pidfd);
        return -1;
    }
    return pidfd;
#else
    return -1;
#endif
}

enum error_code lease_accept(int listen_fd, int *fd, struct lease_peer *peer, struct error *e)
{
    struct local_peer process;
    int s;
    enum error_code code = local_socket_accept(listen_fd, 0, &s, &process, e);
    if (code)
        return code;
    limit_send_time(s);
    *peer = (struct lease_peer){
        .pid = process.pid, .uid = process.uid, .pidfd = open_pidfd(s, process.pid)};
    *fd = s;
    return ERROR_OK;
}

enum error_code lease_connect(const char *path, int timeout_ms, int *fd, struct error *e)
{
    int s;
    uint64_t end_ns = clock_end_ns(timeout_ms);
    enum error_code code = local_socket_connect(path, SOCK_SEQPACKET, end_ns, end_ns, &s, e);
    if (code)
        return code;
    if (fcntl(s, F_SETFL, 0) != 0) { /* sending blocks, for a limited time */
        close(s);
        return error_set(e, ERROR_IO, "lease: %m");
    }
    limit_send_time(s);
    *fd = s;
    return ERROR_OK;
}

enum error_code lease_send(int fd, const struct lease_message *m, const int *fds, unsigned n_fds,
                           struct error *e)
{
    if (n_fds > LEASE_MAX_FDS)
        return error_set(e, ERROR_USAGE, "lease: %u descriptors in a message, at most %d", n_fds,
                         LEASE_MAX_FDS);
    struct lease_message copy = *m;
    copy.magic = LEASE_MAGIC;
    struct iovec iov = {.iov_base = &copy, .iov_len = sizeof copy};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(LEASE_MAX_FDS * sizeof(int))];
    } control = {0};
    struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};
    if (n_fds > 0) {
        h.msg_control = control.bytes;
        h.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&h);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        memcpy(CMSG_DATA(c), fds, n_fds * sizeof(int));
    }
    ssize_t n;
    do
        n = sendmsg(fd, &h, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n == (ssize_t)sizeof copy)
        return ERROR_OK;
    if (n < 0 && (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN))
        return error_set(e, ERROR_UNAVAILABLE, "lease: the peer is gone");
    if (n < 0 && errno == EAGAIN)
        return error_set(e, ERROR_TIMEOUT, "lease: the peer has not read for %d s", SEND_TIMEOUT_S);
    return error_set(e, ERROR_IO, "lease: sendmsg: %m");
}

static void close_all(const int *fds, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        close(fds[i]);
}

/* Every received descriptor, also of a second or malformed ancillary message: the kernel has opened
 * each. */
static unsigned collect_fds(struct msghdr *h, int fds[LEASE_MAX_FDS + 1])
{
    unsigned n = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c != NULL; c = CMSG_NXTHDR(h, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (n <= LEASE_MAX_FDS)
                fds[n++] = fd;
            else
                close(fd);
        }
    }
    return n;
}

/* timeout_ms -1: without limit. */
static enum error_code wait_readable(int fd, int timeout_ms, struct error *e)
{
    uint64_t end_ns = clock_end_ns(timeout_ms);
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int rc = poll(&p, 1, timeout_ms < 0 ? -1 : clock_ms_until(end_ns));
        if (rc > 0)
            return ERROR_OK;
        if (rc == 0)
            return error_set(e, ERROR_TIMEOUT, "lease: no message within %d ms", timeout_ms);
        if (errno != EINTR)
            return error_set(e, ERROR_IO, "lease: poll: %m");
    }
}

/* n is recvmsg's result, flags its msg_flags. */
static enum error_code check_message(const struct lease_message *m, ssize_t n, int flags,
                                     unsigned n_fds, unsigned max_fds, struct error *e)
{
    if (flags & MSG_CTRUNC)
        return error_set(e, ERROR_PROTOCOL, "lease: more descriptors than can be taken");
    if (flags & MSG_TRUNC)
        return error_set(e, ERROR_PROTOCOL, "lease: message longer than %zu bytes", sizeof *m);
    if (n != (ssize_t)sizeof *m)
        return error_set(e, ERROR_PROTOCOL, "lease: message of %zd bytes, expected %zu", n,
                         sizeof *m);
    if (m->magic != LEASE_MAGIC)
        return error_set(e, ERROR_PROTOCOL, "lease: magic is 0x%08x, expected 0x%08x", m->magic,
                         LEASE_MAGIC);
    if (n_fds > max_fds)
        return error_set(e, ERROR_PROTOCOL, "lease: %u descriptors came, at most %u expected",
                         n_fds, max_fds);
    return ERROR_OK;
}

enum error_code lease_receive(int fd, struct lease_message *m, int *fds, unsigned max_fds,
                              unsigned *n_fds, int timeout_ms, struct error *e)
{
    struct lease_message in;
    struct iovec iov = {.iov_base = &in, .iov_len = sizeof in};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(LEASE_MAX_FDS * sizeof(int))];
    } control;
    struct msghdr h;
    ssize_t n;
    bool again, reset = false;
    do {
        enum error_code code = wait_readable(fd, timeout_ms, e);
        if (code != ERROR_OK)
            return code;
        h = (struct msghdr){.msg_iov = &iov,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = sizeof control.bytes};
        n = recvmsg(fd, &h, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        /* A peer that closed with something unread is reported once, before its last message. */
        again = n < 0 && (errno == EINTR || errno == EAGAIN || (errno == ECONNRESET && !reset));
        reset |= n < 0 && errno == ECONNRESET;
    } while (again);
    if (n < 0 && errno != ECONNRESET)
        return error_set(e, ERROR_IO, "lease: recvmsg: %m");
    int received[LEASE_MAX_FDS + 1];
    unsigned n_received = n < 0 ? 0 : collect_fds(&h, received);
    if (n <= 0) {
        close_all(received, n_received);
        return error_set(e, ERROR_UNAVAILABLE, "lease: the peer is gone");
    }
    enum error_code code = check_message(&in, n, h.msg_flags, n_received, max_fds, e);
    if (code != ERROR_OK) {
        close_all(received, n_received);
        return code;
    }
    for (unsigned i = 0; i < n_received; i++)
        fds[i] = received[i];
    if (n_fds != NULL)
        *n_fds = n_received;
    *m = in;
    return ERROR_OK;
}
