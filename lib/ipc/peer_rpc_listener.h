/* The listening end of an rpc server, and its replacement when nng's listener has stopped. Internal
 * to lib/ipc.
 *
 * nng 1.5.2 stops accepting for ever when a peer goes away between its connect and the server's
 * greeting, as a client does that is killed at that instant (nng issue 1518, fixed in 1.6). Such a
 * listener still greets further clients, but the server never receives from them. */
#ifndef MOED_IPC_PEER_RPC_LISTENER_H
#define MOED_IPC_PEER_RPC_LISTENER_H

#include <nng/nng.h>
#include <stdbool.h>
#include <stdint.h>

struct peer_rpc_listener {
    nng_socket socket;
    const char *url; /* borrowed */
    nng_listener listener;
    bool open;      /* false after a replacement failed */
    int64_t excess; /* failures beyond those of ended connections, at the last healthy check */
    int suspicious; /* checks since there are more; 0: healthy */
};

int peer_rpc_listener_open(struct peer_rpc_listener *l, nng_socket socket,
                           const char *url); /* nng's codes */

/* Call it now and then while no request comes. It replaces a listener that has stopped;
 * clients of the old one see their connection close. */
void peer_rpc_listener_check(struct peer_rpc_listener *l);

#endif
