/* Watching nng's listener, by the counts in its statistics. nng counts a failure for every connection
 * that ends, accepted or not; so failures beyond those of accepted connections that are gone are
 * accepts that failed, and one that stays is a listener that has stopped.
 *
 *   healthy --(excess failures)--> suspicious --(no more excess)--> healthy
 *                                       \--(SUSPICIOUS_LOOKS)--> replaced
 *
 * A failure that does not stop nng makes it pause for 100 ms; a listener without clients may then be
 * replaced for nothing, which costs nobody anything. */
#include "ipc/rpc_listener.h"

#include "base/log.h"
#include "ipc/rpc_wire.h"

#include <nng/transport/ipc/ipc.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define SUSPICIOUS_LOOKS 3
#define PROBE_TIMEOUT_MS 500

bool rpc_listener_in_use(const char *path)
{
    static const uint8_t greeting[8] = {0, 'S', 'P', 0, 0, 0x30, 0, 0}; /* 0x30: req0 */
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof a.sun_path)
        return false; /* nng will say so */
    memcpy(a.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return false;
    bool used = true;
    if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (send(fd, greeting, sizeof greeting, MSG_NOSIGNAL) > 0)
            poll(&p, 1, PROBE_TIMEOUT_MS);
    } else if (errno == ECONNREFUSED) {
        unlink(path);
        used = false;
    } else if (errno != EAGAIN) {
        used = false; /* not there, or for nng to complain about */
    }
    close(fd);
    return used;
}

int rpc_listener_open(struct rpc_listener *l, nng_socket socket, const char *url)
{
    *l = (struct rpc_listener){.socket = socket, .url = url};
    int rc = nng_listener_create(&l->listener, socket, url);
    if (rc != 0)
        return rc;
    rc = nng_listener_set_int(l->listener, NNG_OPT_IPC_PERMISSIONS, 0600);
    if (rc == 0)
        rc = nng_listener_start(l->listener, 0);
    if (rc != 0) {
        nng_listener_close(l->listener);
        return rc;
    }
    l->open = true;
    return 0;
}

static uint64_t count_of(nng_stat *listener, const char *name)
{
    nng_stat *s = nng_stat_find(listener, name);
    return s != NULL ? nng_stat_value(s) : 0;
}

static bool is_stuck(struct rpc_listener *l)
{
    nng_stat *all = NULL;
    if (nng_stats_get(&all) != 0)
        return false; /* built without statistics */
    nng_stat *mine = nng_stat_find_listener(all, l->listener);
    if (mine == NULL) {
        nng_stats_free(all);
        return false;
    }
    uint64_t gone = count_of(mine, "accept") - count_of(mine, "pipes");
    int64_t excess =
        (int64_t)(count_of(mine, "other") + count_of(mine, "canceled")) - (int64_t)gone;
    nng_stats_free(all);
    if (excess > l->excess) {
        l->suspicious++;
    } else {
        l->suspicious = 0;
        l->excess = excess;
    }
    return l->suspicious > SUSPICIOUS_LOOKS;
}

void rpc_listener_check(struct rpc_listener *l)
{
    if (l->open) {
        if (!is_stuck(l))
            return;
        log_info("rpc: listening anew on '%s': a client was gone before it was greeted",
                 rpc_path_of(l->url));
        nng_listener_close(l->listener);
        l->open = false;
    }
    int rc = rpc_listener_open(l, l->socket, l->url);
    if (rc != 0) /* tried again at the next look */
        log_error("rpc: cannot listen on '%s': %s", rpc_path_of(l->url), nng_strerror(rc));
}
