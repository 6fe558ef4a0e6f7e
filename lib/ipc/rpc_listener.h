/* The listening end of an rpc server, watched. Internal to lib/ipc.
 *
 * nng 1.5.2 stops accepting for ever when a peer goes away between its connect and the server's
 * greeting, which a client killed at the wrong instant does (nng issue 1518, mended in 1.6). It
 * looks alive: it even greets further clients, but nobody ever hears them. */
#ifndef MOED_IPC_RPC_LISTENER_H
#define MOED_IPC_RPC_LISTENER_H

#include <nng/nng.h>
#include <stdbool.h>
#include <stdint.h>

struct rpc_listener {
    nng_socket socket;
    const char *url; /* borrowed */
    nng_listener listener;
    bool open;      /* false after it could not be replaced */
    int64_t excess; /* failures beyond those of ended connections, at the last healthy look */
    int suspicious; /* looks since there are more; 0: healthy */
};

/* Is there a live server at path? Asked with a complete greeting and not by nng, whose way (connect
 * and close) would stop the other server's listener. Removes a socket file that nobody listens on.
 */
bool rpc_listener_in_use(const char *path);

int rpc_listener_open(struct rpc_listener *l, nng_socket socket, const char *url); /* nng's codes */

/* To be called every 100 ms or so while no request comes: replaces the listener if it is stuck. Its
 * clients then see their connection close. */
void rpc_listener_check(struct rpc_listener *l);

#endif
