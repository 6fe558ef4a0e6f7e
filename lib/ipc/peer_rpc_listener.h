/* The listening end of an rpc server, and its replacement when nng's listener has stopped. Internal
 * to lib/ipc.
 *
 * nng 1.5.2 stops accepting for ever when a peer goes away between its connect and the server's
 * greeting, as a client does that is killed at that instant (nng issue 1518, fixed in 1.6). Such a
 * listener still greets further clients, but the server never receives from them. So an idle server
 * sends itself a request, the probe, and replaces a listener that does not deliver it. */
#ifndef MOED_IPC_PEER_RPC_LISTENER_H
#define MOED_IPC_PEER_RPC_LISTENER_H

#include <nng/nng.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct peer_rpc_listener {
    nng_socket socket;
    const char *url; /* borrowed */
    nng_listener listener;
    bool open;         /* false after a replacement failed */
    int probe_fd;      /* -1: no probe is under way */
    int looks;         /* checks since the probe was sent */
    unsigned arrived;  /* probes, of this listener */
    uint8_t probe[16]; /* its body: random, new for each listener */
};

int peer_rpc_listener_open(struct peer_rpc_listener *l, nng_socket socket,
                           const char *url); /* nng's codes */
void peer_rpc_listener_end(struct peer_rpc_listener *l);

/* How long to wait for a request before the next check. */
int peer_rpc_listener_check_ms(const struct peer_rpc_listener *l);
/* Call it while no request comes. It replaces a listener that has stopped;
 * clients of the old one see their connection close. */
void peer_rpc_listener_check(struct peer_rpc_listener *l);

/* Whether a request is the probe, which has thereby arrived. It gets no reply. */
bool peer_rpc_listener_is_probe(struct peer_rpc_listener *l, const void *body, size_t len);

#endif
