/* Accepting lease connections; see lease_listener.h. */
#include "ipc/lease_listener.h"

#include "base/log.h"

#include <time.h>
#include <unistd.h>

#define BACK_OFF_MS 10 /* between attempts while descriptors or memory are short */

/* The watch calls again at once while the connection waits, so a failure must take time. */
static void report_failure(struct lease_listener *l, enum error_code code, const struct error *e)
{
    if (code == ERROR_PROTOCOL) { /* another user's process: its connection is gone */
        log_warn("lease: %s", e->text);
        return;
    }
    if (!l->failing)
        log_warn("lease: %s: trying again every %d ms", e->text, BACK_OFF_MS);
    l->failing = true;
    nanosleep(&(struct timespec){.tv_nsec = BACK_OFF_MS * 1000000L}, NULL);
}

static bool accept_one(void *arg, int listen_fd)
{
    struct lease_listener *l = arg;
    struct lease_peer peer;
    struct error e;
    int fd;
    enum error_code code = lease_accept(listen_fd, &fd, &peer, &e);
    if (code) {
        report_failure(l, code, &e);
        return true;
    }
    l->failing = false;
    l->accepted(l->arg, fd, &peer);
    return true;
}

enum error_code lease_listener_open(struct lease_listener *l, const char *path, struct watch *watch,
                                    lease_accepted *accepted, void *arg, struct error *e)
{
    *l = (struct lease_listener){.watch = watch, .accepted = accepted, .arg = arg, .fd = -1};
    int fd;
    enum error_code code = lease_listen(path, &fd, e);
    if (code)
        return code;
    l->fd = fd;
    code = watch_add(watch, fd, accept_one, l, e);
    if (code)
        lease_listener_close(l);
    return code;
}

void lease_listener_close(struct lease_listener *l)
{
    if (!l->accepted || l->fd < 0)
        return;
    watch_remove(l->watch, l->fd);
    close(l->fd);
    l->fd = -1;
}
