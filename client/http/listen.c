/* Listening; see listen.h. */
#include "client/http/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 512

enum error_code listen_parse(const char *text, struct listen_address *out, struct error *e)
{
    const char *colon = strrchr(text, ':');
    const char *host = colon ? text : "127.0.0.1", *port = colon ? colon + 1 : text;
    size_t len = colon ? (size_t)(colon - text) : strlen(host);
    if (len > 2 && host[0] == '[' && host[len - 1] == ']') {
        host++;
        len -= 2;
    }
    size_t digits = strspn(port, "0123456789");
    if (!digits || port[digits] || digits > 5 || atoi(port) > 65535 || !len ||
        len >= sizeof out->host)
        return error_set(e, ERROR_USAGE, "'%.100s' is not [HOST:]PORT", text);
    memcpy(out->host, host, len);
    out->host[len] = '\0';
    memcpy(out->port, port, digits + 1);
    return ERROR_OK;
}

static bool is_loopback(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr) >> 24 == 127;
    return a->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)a)->sin6_addr);
}

static enum error_code bind_address(const struct addrinfo *info, int *out, struct error *e)
{
    int on = 1, fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return error_set(e, ERROR_IO, "cannot create a socket: %m");
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, info->ai_addr, info->ai_addrlen) != 0 || listen(fd, BACKLOG) != 0) {
        enum error_code code =
            errno == EADDRINUSE
                ? error_set(e, ERROR_EXISTS,
                            "%m: another program has the port; give another one with --http PORT "
                            "(0: any free one)")
                : error_set(e, ERROR_IO, "%m");
        close(fd);
        return code;
    }
    *out = fd;
    return ERROR_OK;
}

static unsigned bound_port(int fd)
{
    struct sockaddr_storage a;
    socklen_t len = sizeof a;
    if (getsockname(fd, (struct sockaddr *)&a, &len) != 0)
        return 0;
    return ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port
                                         : ((struct sockaddr_in *)&a)->sin_port);
}

enum error_code listen_tcp(const struct listen_address *a, int *fd, bool *loopback, unsigned *port,
                           struct error *e)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found;
    int failed = getaddrinfo(a->host, a->port, &hints, &found);
    if (failed)
        return error_set(e, failed == EAI_AGAIN ? ERROR_IO : ERROR_USAGE,
                         "cannot find the address of %s: %s", a->host, gai_strerror(failed));
    enum error_code code = bind_address(found, fd, e);
    if (code) {
        error_prefix(e, "cannot listen at %s:%s", a->host, a->port);
    } else {
        *loopback = is_loopback(found->ai_addr);
        *port = bound_port(*fd);
    }
    freeaddrinfo(found);
    return code;
}

/* Removes a socket that an earlier process left. False: *e says what else stands at the path. */
static bool clear_path(const struct sockaddr_un *a, struct error *e)
{
    struct stat s;
    if (lstat(a->sun_path, &s) != 0)
        return true; /* nothing, or bind says why */
    if (!S_ISSOCK(s.st_mode)) {
        error_set(e, ERROR_EXISTS, "%s is a file and no socket: give another path", a->sun_path);
        return false;
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool dead = fd >= 0 && connect(fd, (const struct sockaddr *)a, sizeof *a) != 0 &&
                errno == ECONNREFUSED && unlink(a->sun_path) == 0;
    int why = errno;
    if (fd >= 0)
        close(fd);
    if (dead)
        return true;
    if (fd >= 0 && (why == ECONNREFUSED || why == EACCES || why == EPERM))
        error_set(e, ERROR_IO, "cannot replace the socket %s: %s", a->sun_path, strerror(why));
    else
        error_set(e, ERROR_EXISTS, "another process listens at %s: stop it, or give another path",
                  a->sun_path);
    return false;
}

enum error_code listen_unix(const char *path, struct unix_socket *out, int *fd, struct error *e)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct stat s;
    if (strlen(path) >= sizeof a.sun_path)
        return error_set(e, ERROR_USAGE, "%s is too long for a socket's address", path);
    memcpy(a.sun_path, path, strlen(path) + 1);
    if (!clear_path(&a, e))
        return e->code;
    int new = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (new < 0)
        return error_set(e, ERROR_IO, "cannot create a socket: %m");
    mode_t before = umask(0177);
    int failed = bind(new, (struct sockaddr *)&a, sizeof a) != 0 || listen(new, BACKLOG) != 0 ||
                 lstat(path, &s) != 0;
    umask(before);
    if (failed) {
        error_set(e, ERROR_IO, "cannot listen at %s: %m", path);
        close(new);
        return ERROR_IO;
    }
    *out = (struct unix_socket){.path = path, .device = s.st_dev, .inode = s.st_ino};
    *fd = new;
    return ERROR_OK;
}

void listen_unix_remove(struct unix_socket *u)
{
    struct stat s;
    if (u->path && lstat(u->path, &s) == 0 && s.st_dev == u->device && s.st_ino == u->inode)
        unlink(u->path);
    u->path = NULL;
}
