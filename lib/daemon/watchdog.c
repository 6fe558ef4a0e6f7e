/* See watchdog.h. The probe of the control socket connects at a beat; the server's greeting may
 * come until the next one: the probe never blocks the thread that takes signals. */
#include "daemon/watchdog.h"

#include "base/log.h"
#include "ipc/local_socket.h"

#include <sys/socket.h>
#include <unistd.h>

void watchdog_init(struct watchdog *w, uint64_t interval_us)
{
    w->interval_ns = interval_us * 1000u;
    w->probe_fd = -1;
}

int watchdog_pause_ms(const struct watchdog *w)
{
    return w->interval_ns ? (int)(w->interval_ns / WATCHDOG_BEATS / 1000000u) : -1;
}

void watchdog_take_greeting(struct watchdog *w)
{
    char byte;
    if (w->probe_fd < 0)
        return;
    if (recv(w->probe_fd, &byte, 1, MSG_DONTWAIT) == 1)
        w->answered_ns = clock_ns();
    close(w->probe_fd);
    w->probe_fd = -1;
}

/* Returns why the process is not alive; NULL: it is. */
static const char *fault(struct watchdog *w)
{
    uint64_t most = WATCHDOG_THREAD_LIMIT * w->interval_ns;
    if (heartbeat_late(&w->control, most))
        return "a control request is being handled for too long";
    if (heartbeat_late(&w->start, most))
        return "the start does not get on"; /* nng can hang without memory or threads */
    for (int i = 0; i < WATCHDOG_THREADS; i++) {
        const struct heartbeat *h = atomic_load(&w->threads[i]);
        if (h && heartbeat_late(h, most))
            return "a thread does not get on";
    }
    if (!atomic_load(&w->serving))
        return NULL;
    watchdog_take_greeting(w);
    struct error e;
    uint64_t now = clock_ns();
    enum error_code code = local_socket_connect(w->socket, SOCK_STREAM, now, now, &w->probe_fd, &e);
    /* Without descriptors or memory for a probe, and while the control thread handles a request,
     * the silence of the socket proves nothing. */
    if (w->answered_ns == 0 || code == ERROR_IO || code == ERROR_MEMORY ||
        heartbeat_late(&w->control, 0))
        w->answered_ns = now;
    return now - w->answered_ns > w->interval_ns ? "the control socket does not answer" : NULL;
}

bool watchdog_lives(struct watchdog *w)
{
    const char *text = fault(w);
    if (text && !w->complained)
        log_error("the watchdog is not notified: %s", text);
    w->complained = text != NULL;
    return !text;
}
