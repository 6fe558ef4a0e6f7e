/* Checking nng's listener by the counts in its statistics; see peer_rpc_listener.h. nng counts a
 * failure for every connection that ends, accepted or not. So failures beyond those of accepted
 * connections that have ended are accepts that failed; where such an excess stays, the listener has
 * stopped.
 *
 *   healthy --(excess failures)--> suspicious --(no more excess)--> healthy
 *                                       \--(SUSPICIOUS_LOOKS)--> replaced
 *
 * After a failure that does not stop it, nng waits 100 ms; the check may then replace a listener
 * that has no clients although it works, which does no harm. */
#include "ipc/peer_rpc_listener.h"

#include "base/log.h"
#include "ipc/peer_rpc_wire.h"

#include <nng/transport/ipc/ipc.h>

#define SUSPICIOUS_LOOKS 3

int peer_rpc_listener_open(struct peer_rpc_listener *l, nng_socket socket, const char *url)
{
    *l = (struct peer_rpc_listener){.socket = socket, .url = url};
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

static bool is_stuck(struct peer_rpc_listener *l)
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

void peer_rpc_listener_check(struct peer_rpc_listener *l)
{
    if (l->open) {
        if (!is_stuck(l))
            return;
        log_info("peers: replaced the listener on '%s': a client went away before it was greeted",
                 peer_rpc_path_of(l->url));
        nng_listener_close(l->listener);
        l->open = false;
    }
    int rc = peer_rpc_listener_open(l, l->socket, l->url);
    if (rc != 0) /* tried again at the next check */
        log_error("peers: cannot listen on '%s': %s", peer_rpc_path_of(l->url), nng_strerror(rc));
}
