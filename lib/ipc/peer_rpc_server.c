/* The server's side of peer_rpc.h: one thread around nng's rep0.
 *
 * The thread receives with a time limit, checks the listener, handles, and replies. To stop it,
 * another thread cancels the receive. It closes the socket itself: nng 1.5.2 can deadlock in
 * nng_close from another thread. */
#include "ipc/peer_rpc.h"

#include "base/clock.h"
#include "base/log.h"
#include "ipc/local_socket.h"
#include "ipc/peer_rpc_listener.h"
#include "ipc/peer_rpc_wire.h"

#include <nng/nng.h>
#include <nng/protocol/reqrep0/rep.h>
#include <nng/supplemental/util/platform.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CANCEL_NS        10000000
#define SHORTAGE_MS      100  /* between tries while memory or descriptors are short */
#define REPLY_TIMEOUT_MS 5000 /* a client that does not read its reply for so long loses it */
#define LINGER_MS        50 /* nng sends asynchronously: closing at once would cut off the reply */

struct peer_rpc_server {
    nng_socket socket;
    struct peer_rpc_listener listener;
    char *url;
    rpc_handler *handler;
    void *arg;
    nng_aio *receive;
    pthread_t thread;
    atomic_bool stop;
};

static void send_reply(struct peer_rpc_server *s, struct rpc_reply *reply)
{
    if (reply->len > RPC_MESSAGE_BYTES)
        log_error("peers: a reply of %zu bytes is over the limit of %u: its client drops it",
                  reply->len, RPC_MESSAGE_BYTES);
    nng_msg *m = NULL;
    int rc = nng_msg_alloc(&m, 0);
    if (rc == 0 && reply->len > 0)
        rc = nng_msg_append(m, reply->data, reply->len);
    if (rc == 0)
        rc = nng_sendmsg(s->socket, m, 0);
    if (rc != 0) {
        log_warn("peers: reply not sent: %s", nng_strerror(rc));
        nng_msg_free(m); /* takes NULL */
    }
}

static void *server_main(void *arg)
{
    struct peer_rpc_server *s = arg;
    uint64_t last_reply_ns = 0;
    while (!atomic_load_explicit(&s->stop, memory_order_acquire)) {
        nng_msg *request = NULL;
        nng_aio_set_timeout(s->receive, peer_rpc_listener_check_ms(&s->listener));
        nng_recv_aio(s->socket, s->receive);
        nng_aio_wait(s->receive);
        int rc = (int)nng_aio_result(s->receive);
        if (rc == 0)
            request = nng_aio_get_msg(s->receive);
        if (rc == NNG_ETIMEDOUT || rc == NNG_ECANCELED) {
            peer_rpc_listener_check(&s->listener);
            continue;
        }
        if (rc != 0) {
            /* Memory or descriptors are short for a moment: the server must survive that. */
            log_warn("peers: receive: %s", nng_strerror(rc));
            nng_msleep(SHORTAGE_MS);
            continue;
        }
        if (peer_rpc_listener_is_probe(&s->listener, nng_msg_body(request), nng_msg_len(request))) {
            nng_msg_free(request);
            continue;
        }
        struct rpc_reply reply = {0};
        s->handler(s->arg, nng_msg_body(request), nng_msg_len(request), &reply);
        nng_msg_free(request);
        send_reply(s, &reply);
        free(reply.data);
        last_reply_ns = clock_ns();
    }
    while (clock_ns() < last_reply_ns + LINGER_MS * 1000000u)
        nng_msleep(5);
    peer_rpc_listener_end(&s->listener);
    nng_close(s->socket);
    return NULL;
}

static int set_options(nng_socket socket)
{
    int rc = nng_socket_set_size(socket, NNG_OPT_RECVMAXSZ, RPC_MESSAGE_BYTES + PEER_RPC_SLACK);
    if (rc == 0)
        rc = nng_socket_set_ms(socket, NNG_OPT_SENDTIMEO, REPLY_TIMEOUT_MS);
    return rc;
}

static enum error_code serve_error(struct error *e, const char *url, int rc)
{
    if (rc == NNG_EADDRINUSE)
        return error_set(e, ERROR_EXISTS, "cannot listen on '%s': another process does",
                         peer_rpc_path_of(url));
    return error_set(e, rc == NNG_ENOMEM ? ERROR_MEMORY : ERROR_IO, "cannot listen on '%s': %s",
                     peer_rpc_path_of(url), nng_strerror(rc));
}

enum error_code peer_rpc_serve(const char *url, rpc_handler *handler, void *arg,
                               struct peer_rpc_server **out, struct error *e)
{
    /* nng's own probe (connect and close) would stop another server's listener; see
     * peer_rpc_listener.h.
     */
    enum error_code code = local_socket_remove_stale(peer_rpc_path_of(url), e);
    if (!code)
        code = peer_rpc_check_start(e);
    if (code)
        return code;
    struct peer_rpc_server *s = calloc(1, sizeof *s);
    int rc = s == NULL || (s->url = strdup(url)) == NULL ? NNG_ENOMEM : 0;
    if (rc == 0)
        rc = nng_rep0_open(&s->socket);
    if (rc != 0)
        goto free_server;
    s->handler = handler;
    s->arg = arg;
    rc = set_options(s->socket);
    if (rc == 0)
        rc = nng_aio_alloc(&s->receive, NULL, NULL);
    if (rc == 0)
        rc = peer_rpc_listener_open(&s->listener, s->socket, s->url);
    if (rc == 0 && pthread_create(&s->thread, NULL, server_main, s) != 0)
        rc = NNG_ENOMEM;
    if (rc != 0)
        goto close_socket;
    pthread_setname_np(s->thread, "peers");
    *out = s;
    return ERROR_OK;

close_socket:
    nng_aio_free(s->receive);
    nng_close(s->socket);
free_server:
    if (s != NULL)
        free(s->url);
    free(s);
    return serve_error(e, url, rc);
}

void peer_rpc_server_stop(struct peer_rpc_server *s)
{
    if (s == NULL)
        return;
    atomic_store_explicit(&s->stop, true, memory_order_release);
    int rc;
    do { /* the thread may be about to receive: what is cancelled before does not count */
        nng_aio_cancel(s->receive);
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += CANCEL_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        rc = pthread_timedjoin_np(s->thread, NULL, &until);
    } while (rc == ETIMEDOUT);
    nng_aio_free(s->receive);
    free(s->url);
    free(s);
}
