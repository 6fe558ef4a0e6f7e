/* The notification protocol; see notify.h. */
#include "daemon/notify.h"

#include "base/clock.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define IMPORTANT_TIMEOUT_S 5

void notify_send(const char *assignments, bool important)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (!path || (path[0] != '/' && path[0] != '@') || !path[1] ||
        strlen(path) >= sizeof address.sun_path)
        return;
    size_t len = strlen(path);
    memcpy(address.sun_path, path, len);
    if (path[0] == '@')
        address.sun_path[0] = '\0'; /* an abstract address: its length counts, no NUL ends it */
    else
        len++;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    struct timeval timeout = {.tv_sec = IMPORTANT_TIMEOUT_S};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
    uint64_t end_ns = clock_ns() + IMPORTANT_TIMEOUT_S * 1000000000ull;
    ssize_t sent;
    do { /* a stop and a continuation of this process interrupt it, too */
        sent = sendto(fd, assignments, strlen(assignments),
                      MSG_NOSIGNAL | (important ? 0 : MSG_DONTWAIT), (struct sockaddr *)&address,
                      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len));
    } while (sent < 0 && errno == EINTR && clock_ns() < end_ns);
    /* without a manager there is nobody to notify */
    close(fd);
}

uint64_t notify_watchdog_us(void)
{
    const char *pid = getenv("WATCHDOG_PID"), *usec = getenv("WATCHDOG_USEC");
    if (!usec || !getenv("NOTIFY_SOCKET") || (pid && strtol(pid, NULL, 10) != (long)getpid()))
        return 0;
    return strtoull(usec, NULL, 10);
}
