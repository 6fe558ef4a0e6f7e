/* The server's side of rpc.h: one thread around nng's rep0.
 *
 * The thread receives with a short limit, looks at the stop flag and at the listener, handles,
 * replies. It closes the socket itself (nng 1.5.2 can deadlock in nng_close from another thread).
 */
#include "ipc/rpc.h"

#include "base/clock.h"
#include "base/log.h"
#include "ipc/rpc_listener.h"
#include "ipc/rpc_wire.h"

#include <nng/nng.h>
#include <nng/protocol/reqrep0/rep.h>
#include <nng/supplemental/util/platform.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STOP_POLL_MS     100  /* how long rpc_server_stop may wait for the thread to look */
#define REPLY_TIMEOUT_MS 5000 /* a client that does not read its reply for so long loses it */
#define LINGER_MS        50   /* nng sends behind our back; closing at once would cut the reply */

struct rpc_server {
    nng_socket socket;
    struct rpc_listener listener;
    char *url;
    rpc_handler *handler;
    void *arg;
    pthread_t thread;
    atomic_bool stop;
};

static void send_reply(struct rpc_server *s, struct rpc_reply *reply)
{
    if (reply->len > RPC_MESSAGE_BYTES)
        log_error("rpc: a reply of %zu bytes is over the limit of %u, its client drops it",
                  reply->len, RPC_MESSAGE_BYTES);
    nng_msg *m = NULL;
    int rc = nng_msg_alloc(&m, 0);
    if (rc == 0 && reply->len > 0)
        rc = nng_msg_append(m, reply->data, reply->len);
    if (rc == 0)
        rc = nng_sendmsg(s->socket, m, 0);
    if (rc != 0) {
        log_warn("rpc: reply not sent: %s", nng_strerror(rc));
        nng_msg_free(m); /* takes NULL */
    }
}

static void *server_main(void *arg)
{
    struct rpc_server *s = arg;
    uint64_t last_reply_ns = 0;
    while (!atomic_load_explicit(&s->stop, memory_order_acquire)) {
        nng_msg *request = NULL;
        int rc = nng_recvmsg(s->socket, &request, 0);
        if (rc == NNG_ETIMEDOUT) {
            rpc_listener_check(&s->listener);
            continue;
        }
        if (rc != 0) {
            /* Out of memory or descriptors for a moment: the server must outlive it. */
            log_warn("rpc: receive: %s", nng_strerror(rc));
            nng_msleep(STOP_POLL_MS);
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
    nng_close(s->socket);
    return NULL;
}

static int set_options(nng_socket socket)
{
    int rc = nng_socket_set_size(socket, NNG_OPT_RECVMAXSZ, RPC_MESSAGE_BYTES + RPC_WIRE_SLACK);
    if (rc == 0)
        rc = nng_socket_set_ms(socket, NNG_OPT_RECVTIMEO, STOP_POLL_MS);
    if (rc == 0)
        rc = nng_socket_set_ms(socket, NNG_OPT_SENDTIMEO, REPLY_TIMEOUT_MS);
    return rc;
}

static enum error_code serve_error(struct error *e, const char *url, int rc)
{
    if (rc == NNG_EADDRINUSE)
        return error_set(e, ERROR_EXISTS, "cannot listen on '%s': another process does",
                         rpc_path_of(url));
    return error_set(e, rc == NNG_ENOMEM ? ERROR_MEMORY : ERROR_IO, "cannot listen on '%s': %s",
                     rpc_path_of(url), nng_strerror(rc));
}

enum error_code rpc_serve(const char *url, rpc_handler *handler, void *arg, struct rpc_server **out,
                          struct error *e)
{
    struct rpc_server *s = calloc(1, sizeof *s);
    int rc = s == NULL || (s->url = strdup(url)) == NULL ? NNG_ENOMEM : 0;
    if (rc == 0 && rpc_listener_in_use(rpc_path_of(url)))
        rc = NNG_EADDRINUSE;
    if (rc == 0)
        rc = nng_rep0_open(&s->socket);
    if (rc != 0)
        goto free_server;
    s->handler = handler;
    s->arg = arg;
    rc = set_options(s->socket);
    if (rc == 0)
        rc = rpc_listener_open(&s->listener, s->socket, s->url);
    if (rc == 0 && pthread_create(&s->thread, NULL, server_main, s) != 0)
        rc = NNG_ENOMEM;
    if (rc != 0)
        goto close_socket;
    pthread_setname_np(s->thread, "rpc");
    *out = s;
    return ERROR_OK;

close_socket:
    nng_close(s->socket);
free_server:
    if (s != NULL)
        free(s->url);
    free(s);
    return serve_error(e, url, rc);
}

void rpc_server_stop(struct rpc_server *s)
{
    if (s == NULL)
        return;
    atomic_store_explicit(&s->stop, true, memory_order_release);
    pthread_join(s->thread, NULL);
    free(s->url);
    free(s);
}
