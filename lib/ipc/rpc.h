/* The control plane's transport: nng over ipc://, bytes in and out. The only header behind
 * which nng stands; protobuf is the layer above (daemon/control.h, client).
 *
 * Known faults of nng 1.5.2 that this module handles: requests are not re-sent to a restarted
 * server (resend time infinite), receive size is capped, every call has a timeout, processes never
 * fork after the first socket, sockets are closed by the thread that owns them. */
#ifndef MOED_IPC_RPC_H
#define MOED_IPC_RPC_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

#define CONTROL_ABI       1u
#define RPC_MESSAGE_BYTES (4u << 20) /* largest message either way */

/* Server: one thread receives, calls handler, sends what it put in reply. So handlers run one at a
 * time and the thread may own a daemon's state. A handler must always give a reply (an error
 * message too). */
struct rpc_server;
struct rpc_reply {
    uint8_t *data; /* malloc'ed by the handler; freed by the server after sending */
    size_t len;
};
typedef void rpc_handler(void *arg, const uint8_t *request, size_t len, struct rpc_reply *reply);
enum error_code rpc_serve(const char *url, rpc_handler *handler, void *arg, struct rpc_server **out,
                          struct error *e);
void rpc_server_stop(struct rpc_server *s); /* joins; takes NULL */

/* One request, one reply: dials, sends, waits. *reply is malloc'ed, owned by the caller.
 * ERROR_UNAVAILABLE: nobody there, or gone before it answered. Any thread. */
enum error_code rpc_call(const char *url, const uint8_t *request, size_t len, int timeout_ms,
                         uint8_t **reply, size_t *reply_len, struct error *e);

#endif
