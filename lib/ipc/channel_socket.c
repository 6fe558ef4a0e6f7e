/* Stream sockets for channels; see channel_socket.h. */
#include "ipc/channel_socket.h"

#include "base/clock.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define GREETING      0x3168636du /* "mch1": the version of the framing too */
#define BACKLOG       8           /* one is let in; the others only wait to be cut off */
#define RETRY_DIAL_MS 10

static enum error_code make_address(const char *url, struct sockaddr_un *out, struct error *e)
{
    size_t scheme = strlen(CHANNEL_SCHEME);
    if (strncmp(url, CHANNEL_SCHEME, scheme) != 0 || url[scheme] == '\0')
        return error_set(e, ERROR_USAGE, "channel '%s': not of the form ipc://PATH", url);
    const char *path = url + scheme;
    size_t len = strlen(path);
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (len >= sizeof out->sun_path)
        return error_set(e, ERROR_LIMIT,
                         "channel '%s': the path has %zu bytes, at most %zu are possible: "
                         "use a shorter run directory",
                         path, len, sizeof out->sun_path - 1);
    memcpy(out->sun_path, path, len + 1);
    return ERROR_OK;
}

static int new_socket(int type)
{
    return socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/* A socket file that nobody listens on is removed. The probe is of another type, which the kernel
 * refuses with EPROTOTYPE where there is a listener, who does not even notice. */
static enum error_code remove_stale(const struct sockaddr_un *address, struct error *e)
{
    const char *path = address->sun_path;
    struct stat st;
    if (lstat(path, &st) != 0)
        return errno == ENOENT ? ERROR_OK : error_set(e, ERROR_IO, "channel '%s': %m", path);
    if (!S_ISSOCK(st.st_mode))
        return error_set(e, ERROR_EXISTS,
                         "channel '%s': the file is there and is not a socket: move it away", path);
    int probe = new_socket(SOCK_DGRAM);
    if (probe < 0)
        return error_set(e, ERROR_IO, "channel '%s': socket: %m", path);
    int rc = connect(probe, (const struct sockaddr *)address, sizeof *address);
    bool in_use = rc == 0 || errno != ECONNREFUSED;
    close(probe);
    if (in_use)
        return error_set(e, ERROR_EXISTS, "channel '%s': in use", path);
    if (unlink(path) != 0 && errno != ENOENT)
        return error_set(e, ERROR_IO, "channel '%s': cannot remove the old socket: %m", path);
    return ERROR_OK;
}

enum error_code channel_socket_listen(const char *url, struct sockaddr_un *address, int *fd,
                                      struct error *e)
{
    enum error_code code = make_address(url, address, e);
    if (code == ERROR_OK)
        code = remove_stale(address, e);
    if (code != ERROR_OK)
        return code;
    int s = new_socket(SOCK_STREAM);
    if (s < 0)
        return error_set(e, ERROR_IO, "channel '%s': socket: %m", address->sun_path);
    /* The mode of the file that bind makes; set before, so there is no moment with another. */
    if (fchmod(s, 0600) != 0 || bind(s, (const struct sockaddr *)address, sizeof *address) != 0) {
        code = error_set(e, errno == EADDRINUSE ? ERROR_EXISTS : ERROR_IO,
                         "channel '%s': cannot listen: %m", address->sun_path);
        close(s);
        return code;
    }
    if (listen(s, BACKLOG) != 0) {
        code = error_set(e, ERROR_IO, "channel '%s': cannot listen: %m", address->sun_path);
        channel_socket_unlisten(address, s);
        return code;
    }
    *fd = s;
    return ERROR_OK;
}

void channel_socket_unlisten(const struct sockaddr_un *address, int fd)
{
    unlink(address->sun_path);
    close(fd);
}

/* Whether the other end is a process of our user, or of root, who may do anything anyway. */
static bool is_ours(int fd)
{
    struct ucred peer;
    socklen_t len = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 &&
           (peer.uid == geteuid() || peer.uid == 0);
}

int channel_socket_accept(int listen_fd)
{
    int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0 && !is_ours(fd)) {
        close(fd);
        errno = EPERM;
        return -1;
    }
    return fd;
}

bool channel_socket_greet(int fd)
{
    const uint32_t greeting = GREETING; /* a fresh socket has room for it */
    return send(fd, &greeting, sizeof greeting, MSG_NOSIGNAL) == (ssize_t)sizeof greeting;
}

/* ---- dialling ---- */

static int ms_until(uint64_t end_ns)
{
    uint64_t now = clock_ns();
    uint64_t ms = now < end_ns ? (end_ns - now + 999999u) / 1000000u : 0;
    return ms > INT_MAX ? INT_MAX : (int)ms;
}

/* Nobody listens yet, or more stand in line than fit: may be otherwise soon. */
static bool is_absent(int error)
{
    return error == ENOENT || error == ECONNREFUSED || error == EAGAIN || error == EINTR;
}

static enum error_code await_greeting(int fd, const char *path, uint64_t end_ns, struct error *e)
{
    uint32_t greeting = 0;
    ssize_t n;
    while ((n = recv(fd, &greeting, sizeof greeting, 0)) < 0 &&
           (errno == EAGAIN || errno == EINTR)) {
        int left_ms = ms_until(end_ns);
        if (left_ms == 0)
            return error_set(e, ERROR_UNAVAILABLE, "channel '%s': no answer in time", path);
        poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, left_ms); /* recv knows more */
    }
    if (n == 0 || (n < 0 && errno == ECONNRESET))
        return error_set(e, ERROR_UNAVAILABLE, "channel '%s': closed, or another was let in", path);
    if (n < 0)
        return error_set(e, ERROR_IO, "channel '%s': %m", path);
    if (n != (ssize_t)sizeof greeting || greeting != GREETING)
        return error_set(e, ERROR_PROTOCOL, "channel '%s': what listens there is no channel", path);
    return ERROR_OK;
}

enum error_code channel_socket_dial(const char *url, int timeout_ms, int *fd, struct error *e)
{
    uint64_t end_ns = clock_ns() + (uint64_t)(timeout_ms > 0 ? timeout_ms : 0) * 1000000u;
    struct sockaddr_un address;
    enum error_code code = make_address(url, &address, e);
    if (code != ERROR_OK)
        return code;
    int s = new_socket(SOCK_STREAM);
    if (s < 0)
        return error_set(e, ERROR_IO, "channel '%s': socket: %m", address.sun_path);
    while (connect(s, (const struct sockaddr *)&address, sizeof address) != 0) {
        if (is_absent(errno) && clock_ns() < end_ns) {
            nanosleep(&(struct timespec){.tv_nsec = RETRY_DIAL_MS * 1000000L}, NULL);
            continue;
        }
        code = error_set(e, is_absent(errno) ? ERROR_UNAVAILABLE : ERROR_IO, "channel '%s': %m",
                         address.sun_path);
        close(s);
        return code;
    }
    if (is_ours(s))
        code = await_greeting(s, address.sun_path, end_ns, e);
    else
        code = error_set(e, ERROR_PROTOCOL, "channel '%s': another user listens there",
                         address.sun_path);
    if (code != ERROR_OK) {
        close(s);
        return code;
    }
    *fd = s;
    return ERROR_OK;
}
