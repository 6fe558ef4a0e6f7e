/* Lease sockets: listening, connecting, one message with descriptors. The watching thread is in
 * watch.c. */
#include "ipc/lease.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD /* Linux 6.5 */
#define SO_PEERPIDFD 77
#endif

#define LISTEN_BACKLOG 128
#define SEND_TIMEOUT_S 5 /* a peer that does not read for so long is dropped by its caller */

static enum error_code make_address(const char *path, struct sockaddr_un *out, struct error *e)
{
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    size_t len = strlen(path);
    if (len == 0 || len >= sizeof out->sun_path)
        return error_set(e, ERROR_LIMIT,
                         "socket path '%s' has %zu bytes, at most %zu are possible: "
                         "use a shorter run directory",
                         path, len, sizeof out->sun_path - 1);
    memcpy(out->sun_path, path, len + 1);
    return ERROR_OK;
}

static int new_socket(int more_flags)
{
    return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | more_flags, 0);
}

/* A socket file is there. Removes it if nobody listens on it. */
static enum error_code remove_stale(const struct sockaddr_un *address, struct error *e)
{
    struct stat st;
    if (lstat(address->sun_path, &st) != 0)
        return errno == ENOENT ? ERROR_OK
                               : error_set(e, ERROR_IO, "socket '%s': %m", address->sun_path);
    if (!S_ISSOCK(st.st_mode))
        return error_set(e, ERROR_EXISTS, "'%s' is there and is not a socket: move it away",
                         address->sun_path);
    int probe = new_socket(SOCK_NONBLOCK);
    if (probe < 0)
        return error_set(e, ERROR_IO, "socket: %m");
    int rc = connect(probe, (const struct sockaddr *)address, sizeof *address);
    bool in_use = rc == 0 || errno != ECONNREFUSED;
    close(probe);
    if (in_use)
        return error_set(e, ERROR_EXISTS, "socket '%s' is in use by another process",
                         address->sun_path);
    if (unlink(address->sun_path) != 0 && errno != ENOENT)
        return error_set(e, ERROR_IO, "cannot remove the old socket '%s': %m", address->sun_path);
    return ERROR_OK;
}

enum error_code lease_listen(const char *path, int *fd, struct error *e)
{
    struct sockaddr_un address;
    enum error_code code = make_address(path, &address, e);
    if (code == ERROR_OK)
        code = remove_stale(&address, e);
    if (code != ERROR_OK)
        return code;
    int s = new_socket(0);
    if (s < 0)
        return error_set(e, ERROR_IO, "socket: %m");
    /* The mode of the file that bind makes; set before, so there is no moment with another. */
    if (fchmod(s, 0600) != 0 || bind(s, (const struct sockaddr *)&address, sizeof address) != 0) {
        code = error_set(e, errno == EADDRINUSE ? ERROR_EXISTS : ERROR_IO,
                         "cannot listen on '%s': %m", path);
        close(s);
        return code;
    }
    if (listen(s, LISTEN_BACKLOG) != 0) {
        code = error_set(e, ERROR_IO, "cannot listen on '%s': %m", path);
        unlink(path);
        close(s);
        return code;
    }
    *fd = s;
    return ERROR_OK;
}

static void limit_send_time(int fd)
{
    struct timeval t = {.tv_sec = SEND_TIMEOUT_S};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t);
}

/* Who is at the other end, as the kernel recorded it when the connection was made. */
static enum error_code check_peer(int fd, struct ucred *out, struct error *e)
{
    socklen_t len = sizeof *out;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, out, &len) != 0)
        return error_set(e, ERROR_IO, "lease: credentials of the peer: %m");
    if (out->uid != geteuid() && out->uid != 0)
        return error_set(e, ERROR_PROTOCOL,
                         "lease: process %d of user %u refused, this is user %u's", (int)out->pid,
                         (unsigned)out->uid, (unsigned)geteuid());
    return ERROR_OK;
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
    /* If the connection stands now, its process lived when the pidfd was opened: the number was not
     * another's by then. */
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
    int s;
    do
        s = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
    while (s < 0 && (errno == EINTR || errno == ECONNABORTED));
    if (s < 0)
        return error_set(e, ERROR_IO, "lease: accept: %m");
    struct ucred who;
    enum error_code code = check_peer(s, &who, e);
    if (code != ERROR_OK) {
        close(s);
        return code;
    }
    limit_send_time(s);
    *peer = (struct lease_peer){.pid = who.pid, .uid = who.uid, .pidfd = open_pidfd(s, who.pid)};
    *fd = s;
    return ERROR_OK;
}

enum error_code lease_connect(const char *path, int timeout_ms, int *fd, struct error *e)
{
    struct sockaddr_un address;
    enum error_code code = make_address(path, &address, e);
    if (code != ERROR_OK)
        return code;
    int s = new_socket(SOCK_NONBLOCK); /* else a full backlog would block without limit */
    if (s < 0)
        return error_set(e, ERROR_IO, "socket: %m");
    uint64_t end = clock_ns() + (uint64_t)(timeout_ms > 0 ? timeout_ms : 0) * 1000000u;
    while (connect(s, (const struct sockaddr *)&address, sizeof address) != 0) {
        bool absent = errno == ENOENT || errno == ECONNREFUSED || errno == EAGAIN;
        if (absent && clock_ns() < end) {
            nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
            continue;
        }
        if (errno == EINTR)
            continue;
        code =
            error_set(e, absent ? ERROR_UNAVAILABLE : ERROR_IO, "nobody answers at '%s': %m", path);
        close(s);
        return code;
    }
    struct ucred who;
    code = check_peer(s, &who, e);
    if (code == ERROR_OK && fcntl(s, F_SETFL, 0) != 0)
        code = error_set(e, ERROR_IO, "lease: %m");
    if (code != ERROR_OK) {
        close(s);
        return code;
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

/* Every descriptor that came, also those of a second or malformed ancillary message: each is open
 * now. */
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

static enum error_code wait_readable(int fd, int timeout_ms, struct error *e)
{
    uint64_t end = clock_ns() + (uint64_t)(timeout_ms > 0 ? timeout_ms : 0) * 1000000u;
    for (;;) {
        int left = timeout_ms;
        if (timeout_ms > 0) {
            uint64_t now = clock_ns();
            left = now >= end ? 0 : (int)((end - now + 999999u) / 1000000u);
        }
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int rc = poll(&p, 1, left < 0 ? -1 : left);
        if (rc > 0)
            return ERROR_OK;
        if (rc == 0)
            return error_set(e, ERROR_TIMEOUT, "lease: no message within %d ms", timeout_ms);
        if (errno != EINTR)
            return error_set(e, ERROR_IO, "lease: poll: %m");
    }
}

/* What arrived, judged. n is recvmsg's result. */
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
    do {
        enum error_code code = wait_readable(fd, timeout_ms, e);
        if (code != ERROR_OK)
            return code;
        h = (struct msghdr){.msg_iov = &iov,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = sizeof control.bytes};
        n = recvmsg(fd, &h, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    } while (n < 0 && (errno == EINTR || errno == EAGAIN));
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
