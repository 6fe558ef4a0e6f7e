/* Checking nng's listener by a request to itself; see peer_rpc_listener.h.
 *
 *   no probe --(check: sent)--> under way --(arrived)--> no probe
 *                                       \--(MOST_LOOKS checks)--> the listener is replaced
 *
 * On a machine so busy that the probe takes longer, a listener that works may be replaced, which
 * does no harm. */
#include "ipc/peer_rpc_listener.h"

#include "base/log.h"
#include "ipc/peer_rpc_wire.h"

#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define MOST_LOOKS 2

/* Between two checks; nng's threads wake up for each. Often while the probe is under way and at
 * first, when the other daemons start and may be killed. */
#define CHECK_MS      1000
#define IDLE_CHECK_MS 5000
#define EARLY_PROBES  5

int peer_rpc_listener_open(struct peer_rpc_listener *l, nng_socket socket, const char *url)
{
    *l = (struct peer_rpc_listener){.socket = socket, .url = url, .probe_fd = -1};
    if (getrandom(l->probe, sizeof l->probe, 0) != sizeof l->probe)
        return NNG_EINTERNAL;
    int rc = nng_listener_create(&l->listener, socket, url);
    if (rc != 0)
        return rc;
    /* Mode 0600. nng's option calls chmod, which confined processes may not (confine/calls.c). */
    mode_t before = umask(0177);
    rc = nng_listener_start(l->listener, 0);
    umask(before);
    if (rc != 0) {
        nng_listener_close(l->listener);
        return rc;
    }
    l->open = true;
    return 0;
}

static void end_probe(struct peer_rpc_listener *l)
{
    if (l->probe_fd >= 0)
        close(l->probe_fd);
    l->probe_fd = -1;
}

void peer_rpc_listener_end(struct peer_rpc_listener *l)
{
    end_probe(l);
}

/* Sends the probe as nng's req0 would: its greeting, then one message of a request's id and body.
 * Nothing is waited for: a full backlog counts as not delivered. */
static void send_probe(struct peer_rpc_listener *l)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    const char *path = peer_rpc_path_of(l->url);
    if (strlen(path) >= sizeof to.sun_path)
        return;
    memcpy(to.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return; /* descriptors are short: the next check tries again */
    struct {
        uint8_t greeting[8], head[9], id[4], body[sizeof l->probe];
    } m = {{0, 'S', 'P', 0, 0, 0x30, 0, 0}, {1, [8] = 4 + sizeof l->probe}, {0x80, 0, 0, 1}, {0}};
    memcpy(m.body, l->probe, sizeof m.body);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0)
        (void)!send(fd, &m, sizeof m, MSG_NOSIGNAL);
    l->probe_fd = fd;
    l->looks = 0;
}

bool peer_rpc_listener_is_probe(struct peer_rpc_listener *l, const void *body, size_t len)
{
    if (len != sizeof l->probe || memcmp(body, l->probe, len) != 0)
        return false;
    end_probe(l);
    l->arrived++;
    return true;
}

int peer_rpc_listener_check_ms(const struct peer_rpc_listener *l)
{
    bool idle = l->open && l->probe_fd < 0 && l->arrived >= EARLY_PROBES;
    return idle ? IDLE_CHECK_MS : CHECK_MS;
}

void peer_rpc_listener_check(struct peer_rpc_listener *l)
{
    if (l->open && l->probe_fd < 0) {
        send_probe(l);
        return;
    }
    if (l->open) {
        if (++l->looks < MOST_LOOKS)
            return;
        log_info("peers: replaced the listener on '%s': it delivered no request",
                 peer_rpc_path_of(l->url));
        end_probe(l);
        nng_listener_close(l->listener);
        l->open = false;
    }
    int rc = peer_rpc_listener_open(l, l->socket, l->url);
    if (rc != 0) /* tried again at the next check */
        log_error("peers: cannot listen on '%s': %s", peer_rpc_path_of(l->url), nng_strerror(rc));
}
