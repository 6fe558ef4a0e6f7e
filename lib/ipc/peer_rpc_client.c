/* The client's side of peer_rpc.h: one request over nng's req0.
 *
 * Each call has a socket of its own: threads share no state, a request cannot outlive its call, and
 * no call gets an old connection to a server that has died. */
#include "ipc/peer_rpc.h"

#include "base/clock.h"
#include "ipc/peer_rpc_wire.h"

#include <nng/nng.h>
#include <nng/protocol/reqrep0/req.h>
#include <nng/supplemental/util/platform.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define RECONNECT_NEVER_MS 3600000
#define RETRY_DIAL_MS      2
#define ABSENT_MS          50 /* a listener that is being replaced is absent for a moment */

static int set_options(nng_socket socket)
{
    int rc = nng_socket_set_size(socket, NNG_OPT_RECVMAXSZ, RPC_MESSAGE_BYTES + PEER_RPC_SLACK);
    if (rc == 0) /* never send a request twice: a restarted server would execute it again */
        rc = nng_socket_set_ms(socket, NNG_OPT_REQ_RESENDTIME, NNG_DURATION_INFINITE);
    if (rc == 0)
        rc = nng_socket_set_ms(socket, NNG_OPT_RECONNMINT, RECONNECT_NEVER_MS);
    if (rc == 0)
        rc = nng_socket_set_ms(socket, NNG_OPT_RECONNMAXT, RECONNECT_NEVER_MS);
    return rc;
}

/* The connection broke before a request went over it, so a second attempt is safe: the listener's
 * backlog was full, or it was replaced (peer_rpc_listener.c). */
static bool worth_another_dial(int rc)
{
    return rc == NNG_EAGAIN || rc == NNG_ESYSERR + EAGAIN || rc == NNG_ECONNRESET ||
           rc == NNG_ECONNSHUT || rc == NNG_ECLOSED;
}

/* Dials and waits for the connection, so that an absent server is noticed at once. (nng waits 10 s
 * here for a process that accepts and does not answer, such as a stopped one, whatever our
 * timeout.) */
static int dial(nng_socket socket, const char *url, uint64_t end_ns)
{
    uint64_t absent_end_ns = clock_ns() + ABSENT_MS * 1000000u;
    for (;;) {
        int rc = nng_dial(socket, url, NULL, 0);
        uint64_t now_ns = clock_ns();
        bool absent = rc == NNG_ECONNREFUSED || rc == NNG_ENOENT;
        if (now_ns >= end_ns || (absent && now_ns >= absent_end_ns) ||
            (!absent && !worth_another_dial(rc)))
            return rc;
        nng_msleep(RETRY_DIAL_MS);
    }
}

static enum error_code call_error(struct error *e, const char *url, const char *step, int rc)
{
    if (rc == NNG_ETIMEDOUT)
        return error_set(e, ERROR_TIMEOUT, "'%s' did not answer in time", peer_rpc_path_of(url));
    if (rc == NNG_ECONNREFUSED || rc == NNG_ENOENT)
        return error_set(e, ERROR_UNAVAILABLE, "no process answers at '%s'", peer_rpc_path_of(url));
    if (rc == NNG_ENOMEM)
        return error_set(e, ERROR_MEMORY, "%s '%s': out of memory", step, peer_rpc_path_of(url));
    if (worth_another_dial(rc))
        return error_set(e, ERROR_UNAVAILABLE, "'%s' went away before it answered",
                         peer_rpc_path_of(url));
    if (rc == NNG_EINVAL || rc == NNG_EADDRINVAL || rc == NNG_ENOTSUP)
        return error_set(e, ERROR_USAGE, "%s '%s': %s", step, peer_rpc_path_of(url),
                         nng_strerror(rc));
    if (rc == NNG_EPERM)
        return error_set(e, ERROR_IO, "%s '%s': %s", step, peer_rpc_path_of(url), nng_strerror(rc));
    return error_set(e, ERROR_UNAVAILABLE, "%s '%s': %s", step, peer_rpc_path_of(url),
                     nng_strerror(rc));
}

static int exchange(nng_socket socket, const uint8_t *request, size_t len, uint64_t end_ns,
                    nng_msg **reply)
{
    nng_msg *m = NULL;
    int rc = nng_msg_alloc(&m, 0);
    if (rc == 0 && len > 0)
        rc = nng_msg_append(m, request, len);
    if (rc == 0)
        rc = nng_socket_set_ms(socket, NNG_OPT_SENDTIMEO, clock_ms_until(end_ns));
    if (rc == 0)
        rc = nng_sendmsg(socket, m, 0);
    if (rc != 0) {
        nng_msg_free(m);
        return rc;
    }
    rc = nng_socket_set_ms(socket, NNG_OPT_RECVTIMEO, clock_ms_until(end_ns));
    return rc == 0 ? nng_recvmsg(socket, reply, 0) : rc;
}

enum error_code peer_rpc_call(const char *url, const uint8_t *request, size_t len, int timeout_ms,
                              uint8_t **reply, size_t *reply_len, struct error *e)
{
    if (len > RPC_MESSAGE_BYTES)
        return error_set(e, ERROR_LIMIT, "request of %zu bytes, at most %u are possible", len,
                         RPC_MESSAGE_BYTES);
    enum error_code code = peer_rpc_check_start(e);
    if (code)
        return code;
    uint64_t end_ns = clock_end_ns(timeout_ms);
    nng_socket socket;
    int rc = nng_req0_open(&socket);
    if (rc != 0)
        return call_error(e, url, "socket for", rc);
    rc = set_options(socket);
    if (rc == 0)
        rc = dial(socket, url, end_ns);
    code = rc == 0 ? ERROR_OK : call_error(e, url, "connection to", rc);
    nng_msg *answer = NULL;
    if (code == ERROR_OK) {
        rc = exchange(socket, request, len, end_ns, &answer);
        code = rc == 0 ? ERROR_OK : call_error(e, url, "request to", rc);
    }
    nng_close(socket);
    if (code != ERROR_OK)
        return code;

    size_t n = nng_msg_len(answer);
    uint8_t *copy = malloc(n > 0 ? n : 1);
    if (copy == NULL) {
        code = error_set(e, ERROR_MEMORY, "reply of '%s': %zu bytes: out of memory",
                         peer_rpc_path_of(url), n);
    } else {
        memcpy(copy, nng_msg_body(answer), n);
        *reply = copy;
        *reply_len = n;
    }
    nng_msg_free(answer);
    return code;
}
