/* The client's side of rpc.h: one request over nng's req0.
 *
 * A socket a call: there is no state to share between threads, a request cannot outlive its call,
 * and a connection to a server that has died is never found in a pool. */
#include "ipc/rpc.h"

#include "base/clock.h"
#include "ipc/rpc_wire.h"

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

static int ms_until(uint64_t end_ns)
{
    uint64_t now = clock_ns();
    return now >= end_ns ? 0 : (int)((end_ns - now + 999999u) / 1000000u);
}

static int set_options(nng_socket socket)
{
    int rc = nng_socket_set_size(socket, NNG_OPT_RECVMAXSZ, RPC_MESSAGE_BYTES + RPC_WIRE_SLACK);
    if (rc == 0) /* never send a request twice: a restarted server would execute it again */
        rc = nng_socket_set_ms(socket, NNG_OPT_REQ_RESENDTIME, NNG_DURATION_INFINITE);
    if (rc == 0)
        rc = nng_socket_set_ms(socket, NNG_OPT_RECONNMINT, RECONNECT_NEVER_MS);
    if (rc == 0)
        rc = nng_socket_set_ms(socket, NNG_OPT_RECONNMAXT, RECONNECT_NEVER_MS);
    return rc;
}

/* The connection broke before a request went over it, so trying again is safe: the listener's
 * backlog was full, or it was replaced (rpc_server.c). */
static bool worth_another_dial(int rc)
{
    return rc == NNG_EAGAIN || rc == NNG_ESYSERR + EAGAIN || rc == NNG_ECONNRESET ||
           rc == NNG_ECONNSHUT || rc == NNG_ECLOSED;
}

/* Dials and waits for the connection, so that an absent server is noticed at once. (nng gives a
 * process that accepts but does not speak, a stopped one, 10 s here whatever our timeout says.) */
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
        return error_set(e, ERROR_TIMEOUT, "'%s' has not answered in time", rpc_path_of(url));
    if (rc == NNG_ECONNREFUSED || rc == NNG_ENOENT)
        return error_set(e, ERROR_UNAVAILABLE, "nobody answers at '%s'", rpc_path_of(url));
    if (rc == NNG_ENOMEM)
        return error_set(e, ERROR_MEMORY, "%s '%s': out of memory", step, rpc_path_of(url));
    if (worth_another_dial(rc))
        return error_set(e, ERROR_UNAVAILABLE, "'%s' went away before it answered",
                         rpc_path_of(url));
    if (rc == NNG_EINVAL || rc == NNG_EADDRINVAL || rc == NNG_ENOTSUP)
        return error_set(e, ERROR_USAGE, "%s '%s': %s", step, rpc_path_of(url), nng_strerror(rc));
    if (rc == NNG_EPERM)
        return error_set(e, ERROR_IO, "%s '%s': %s", step, rpc_path_of(url), nng_strerror(rc));
    return error_set(e, ERROR_UNAVAILABLE, "%s '%s': %s", step, rpc_path_of(url), nng_strerror(rc));
}

static int exchange(nng_socket socket, const uint8_t *request, size_t len, uint64_t end_ns,
                    nng_msg **reply)
{
    nng_msg *m = NULL;
    int rc = nng_msg_alloc(&m, 0);
    if (rc == 0 && len > 0)
        rc = nng_msg_append(m, request, len);
    if (rc == 0)
        rc = nng_socket_set_ms(socket, NNG_OPT_SENDTIMEO, ms_until(end_ns));
    if (rc == 0)
        rc = nng_sendmsg(socket, m, 0);
    if (rc != 0) {
        nng_msg_free(m);
        return rc;
    }
    rc = nng_socket_set_ms(socket, NNG_OPT_RECVTIMEO, ms_until(end_ns));
    return rc == 0 ? nng_recvmsg(socket, reply, 0) : rc;
}

enum error_code rpc_call(const char *url, const uint8_t *request, size_t len, int timeout_ms,
                         uint8_t **reply, size_t *reply_len, struct error *e)
{
    if (len > RPC_MESSAGE_BYTES)
        return error_set(e, ERROR_LIMIT, "request of %zu bytes, at most %u are possible", len,
                         RPC_MESSAGE_BYTES);
    uint64_t end_ns = clock_ns() + (uint64_t)(timeout_ms > 0 ? timeout_ms : 0) * 1000000u;
    nng_socket socket;
    int rc = nng_req0_open(&socket);
    if (rc != 0)
        return call_error(e, url, "socket for", rc);
    rc = set_options(socket);
    if (rc == 0)
        rc = dial(socket, url, end_ns);
    enum error_code code = rc == 0 ? ERROR_OK : call_error(e, url, "connection to", rc);
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
                         rpc_path_of(url), n);
    } else {
        memcpy(copy, nng_msg_body(answer), n);
        *reply = copy;
        *reply_len = n;
    }
    nng_msg_free(answer);
    return code;
}
