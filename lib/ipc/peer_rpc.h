/* Calls between the daemons of a deployment, which are few and long-lived: bytes over nng's req/rep
 * and ipc://. No other header uses nng. Clients use rpc.h: nng 1.5.2 has no deadline for a
 * handshake, and leaks connections whose client is killed at the wrong instant.
 *
 * What this module does about known faults of nng 1.5.2: it never sends a request again to a
 * restarted server (resend time infinite), it limits the receive size, every call has a timeout,
 * and the thread that owns a socket closes it. A process must not fork after its first socket. */
#ifndef MOED_IPC_PEER_RPC_H
#define MOED_IPC_PEER_RPC_H

#include "ipc/rpc.h"

/* As rpc_serve, with the same limits of sizes. The handler cannot take the connection over. */
struct peer_rpc_server;
enum error_code peer_rpc_serve(const char *url, rpc_handler *handler, void *arg,
                               struct peer_rpc_server **out, struct error *e);
void peer_rpc_server_stop(struct peer_rpc_server *s); /* joins; takes NULL */

/* As rpc_call. */
enum error_code peer_rpc_call(const char *url, const uint8_t *request, size_t len, int timeout_ms,
                              uint8_t **reply, size_t *reply_len, struct error *e);

#endif
