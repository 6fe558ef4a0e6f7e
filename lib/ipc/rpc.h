/* Requests to a daemon's control socket: bytes over a unix stream socket. Protobuf is the layer
 * above (daemon/control.h, client). Clients come and go, may be killed at any instant, and may be
 * hostile; so this module accepts, limits and times out connections itself. The daemons' own calls
 * among each other go over nng (peer_rpc.h).
 *
 * On the wire: the server sends a greeting of 4 bytes ("mct1"). Then each side sends frames: a
 * 32-bit length, 1 or more, in the machine's byte order, and as many bytes. The client sends a
 * request, the server its reply, any number of times. A request may turn the connection into
 * another protocol: a frontend's session does (channel.h). */
#ifndef MOED_IPC_RPC_H
#define MOED_IPC_RPC_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

#define CONTROL_ABI       1u
#define RPC_REQUEST_BYTES (64u << 10) /* largest request */
#define RPC_MESSAGE_BYTES (4u << 20)  /* largest reply, and largest message of a channel */

/* A server's limits. A connection that breaks one is closed; other connections do not notice. */
#define RPC_CONNECTIONS 256 /* beyond it a new one replaces the one with the least time left */
/* From accepting, or from a reply that has been read, to the next whole request; and from a reply
 * until the client has read it. */
#define RPC_DEADLINE_MS  5000
#define RPC_QUEUED_BYTES (32u << 20) /* replies that clients have not read, all together */

struct rpc_reply {
    uint8_t *data; /* the handler allocates it with malloc, the server frees it */
    size_t len;
    /* Where set: the server calls it on its thread once the reply is in the socket, and the
     * connection is no longer the server's: takes fd, a non-blocking socket whose next byte follows
     * the request. fd -1: the client has gone. */
    void (*adopt)(void *arg, int fd);
    void *adopt_arg;
};

/* Server: one thread for all connections. It also runs the handler, so requests are handled one at
 * a time and that thread may own a daemon's state; a client that does not read its reply delays no
 * other. A handler must always give a reply, if only an error. */
struct rpc_server;
typedef void rpc_handler(void *arg, const uint8_t *request, size_t len, struct rpc_reply *reply);
/* url: ipc://PATH, borrowed for the call. The socket has mode 0600; only processes of this user and
 * of root get in. ERROR_EXISTS: another process listens there. */
enum error_code rpc_serve(const char *url, rpc_handler *handler, void *arg, struct rpc_server **out,
                          struct error *e);
/* Sends replies that wait, for a moment; joins; removes the socket. Takes NULL. */
void rpc_server_stop(struct rpc_server *s);

/* One request, one reply: connect, send, wait. Any thread. The caller frees *reply.
 * ERROR_UNAVAILABLE: no server there, or it went away before it answered. */
enum error_code rpc_call(const char *url, const uint8_t *request, size_t len, int timeout_ms,
                         uint8_t **reply, size_t *reply_len, struct error *e);
/* The same; hands over the connection as *fd, non-blocking, for what the request made of it. */
enum error_code rpc_call_open(const char *url, const uint8_t *request, size_t len, int timeout_ms,
                              uint8_t **reply, size_t *reply_len, int *fd, struct error *e);

#endif
