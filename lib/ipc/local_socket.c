/* Unix sockets with a file; see local_socket.h. */
#include "ipc/local_socket.h"

#include "base/clock.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define RETRY_CONNECT_MS 10

enum error_code local_socket_address(const char *path, struct sockaddr_un *out, struct error *e)
{
    size_t len = strlen(path);
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (len == 0 || len >= sizeof out->sun_path)
        return error_set(e, ERROR_LIMIT,
                         "socket '%s': the path has %zu bytes, at most %zu are possible: "
                         "use a shorter run directory",
                         path, len, sizeof out->sun_path - 1);
    memcpy(out->sun_path, path, len + 1);
    return ERROR_OK;
}

static enum error_code new_socket(int type, const char *path, int *fd, struct error *e)
{
    *fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    return *fd >= 0 ? ERROR_OK : error_set(e, ERROR_IO, "socket '%s': %m", path);
}

/* The probe is a datagram socket. Where a process listens the kernel refuses it with EPROTOTYPE,
 * and the listener sees no connection. */
static enum error_code remove_stale(const struct sockaddr_un *address, struct error *e)
{
    const char *path = address->sun_path;
    struct stat st;
    int probe;
    if (lstat(path, &st) != 0)
        return errno == ENOENT ? ERROR_OK : error_set(e, ERROR_IO, "socket '%s': %m", path);
    if (!S_ISSOCK(st.st_mode))
        return error_set(e, ERROR_EXISTS, "'%s' exists and is not a socket: move it away", path);
    enum error_code code = new_socket(SOCK_DGRAM | SOCK_NONBLOCK, path, &probe, e);
    if (code)
        return code;
    int rc = connect(probe, (const struct sockaddr *)address, sizeof *address);
    bool in_use = rc == 0 || errno != ECONNREFUSED;
    close(probe);
    if (in_use)
        return error_set(e, ERROR_EXISTS, "socket '%s': another process listens on it", path);
    if (unlink(path) != 0 && errno != ENOENT)
        return error_set(e, ERROR_IO, "socket '%s': cannot remove the old file: %m", path);
    return ERROR_OK;
}

enum error_code local_socket_remove_stale(const char *path, struct error *e)
{
    struct sockaddr_un address;
    enum error_code code = local_socket_address(path, &address, e);
    return code ? code : remove_stale(&address, e);
}

enum error_code local_socket_listen(const char *path, int type, int backlog, int *fd,
                                    struct error *e)
{
    struct sockaddr_un address;
    int s = -1;
    enum error_code code = local_socket_address(path, &address, e);
    if (!code)
        code = remove_stale(&address, e);
    if (!code)
        code = new_socket(type, path, &s, e);
    if (code)
        return code;
    /* The mode of the file that bind makes, set before it: at no moment does it have another. */
    if (fchmod(s, 0600) != 0 || bind(s, (const struct sockaddr *)&address, sizeof address) != 0) {
        code = error_set(e, errno == EADDRINUSE ? ERROR_EXISTS : ERROR_IO,
                         "socket '%s': cannot listen: %m", path);
        close(s);
        return code;
    }
    if (listen(s, backlog) != 0) {
        code = error_set(e, ERROR_IO, "socket '%s': cannot listen: %m", path);
        local_socket_unlisten(path, s);
        return code;
    }
    *fd = s;
    return ERROR_OK;
}

void local_socket_unlisten(const char *path, int fd)
{
    unlink(path);
    close(fd);
}

/* The peer's process, as the kernel recorded it when the connection was made. */
static enum error_code check_peer(int fd, struct local_peer *out, struct error *e)
{
    struct ucred peer;
    socklen_t len = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0)
        return error_set(e, ERROR_IO, "cannot read the credentials of a socket's peer: %m");
    if (peer.uid != geteuid() && peer.uid != 0)
        return error_set(e, ERROR_PROTOCOL,
                         "process %d of user %u refused: this process is user %u's", (int)peer.pid,
                         (unsigned)peer.uid, (unsigned)geteuid());
    *out = (struct local_peer){.pid = peer.pid, .uid = peer.uid};
    return ERROR_OK;
}

enum error_code local_socket_accept(int listen_fd, int flags, int *fd, struct local_peer *peer,
                                    struct error *e)
{
    int s;
    do
        s = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | flags);
    while (s < 0 && (errno == EINTR || errno == ECONNABORTED));
    if (s < 0 && errno == EAGAIN)
        return error_set(e, ERROR_UNAVAILABLE, "no connection waits");
    if (s < 0)
        return error_set(e, ERROR_IO, "cannot accept a connection: %m");
    enum error_code code = check_peer(s, peer, e);
    if (code)
        close(s);
    else
        *fd = s;
    return code;
}

static bool is_absent(int error)
{
    return error == ENOENT || error == ECONNREFUSED;
}

static bool is_busy(int error)
{
    return error == EAGAIN || error == EINTR;
}

enum error_code local_socket_connect(const char *path, int type, uint64_t absent_end_ns,
                                     uint64_t end_ns, int *fd, struct error *e)
{
    struct sockaddr_un address;
    struct local_peer peer;
    int s = -1;
    enum error_code code = local_socket_address(path, &address, e);
    if (!code) /* non-blocking: a full backlog would block without limit */
        code = new_socket(type | SOCK_NONBLOCK, path, &s, e);
    if (code)
        return code;
    while (connect(s, (const struct sockaddr *)&address, sizeof address) != 0) {
        uint64_t now_ns = clock_ns();
        if ((is_absent(errno) && now_ns < absent_end_ns) || (is_busy(errno) && now_ns < end_ns)) {
            nanosleep(&(struct timespec){.tv_nsec = RETRY_CONNECT_MS * 1000000L}, NULL);
            continue;
        }
        if (is_busy(errno))
            code = error_set(e, ERROR_TIMEOUT, "'%s' did not accept a connection in time", path);
        else
            code = error_set(e, is_absent(errno) ? ERROR_UNAVAILABLE : ERROR_IO,
                             "no process answers at '%s': %m", path);
        break;
    }
    if (!code)
        code = check_peer(s, &peer, e);
    if (code)
        close(s);
    else
        *fd = s;
    return code;
}
