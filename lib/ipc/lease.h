/* Leases: unix packet sockets (SOCK_SEQPACKET), for what nng cannot do: carry file descriptors, and
 * have the kernel report a peer's death at once. One connection is one lease: when it closes, the
 * lender frees what it lent over it.
 *
 *     lease.h           one end: listen, accept, connect, one message with descriptors
 *     lease_listener.h  a daemon's listening socket on a watching thread
 *     lease_offer.h     a worker's offer of a shared region over a connection */
#ifndef MOED_IPC_LEASE_H
#define MOED_IPC_LEASE_H

#include "base/error.h"

#include <stdint.h>
#include <sys/types.h>

#define LEASE_MAGIC   0x4d4f4c37u /* "MOL7" */
#define LEASE_MAX_FDS 8

/* Fixed size; both ends are on one machine, so the byte order is its own. Each kind says what its
 * values and bytes mean (lib/memory/memory_client.h, lease_offer.h). */
struct lease_message {
    uint32_t magic;
    uint32_t kind;
    uint64_t value[16];
    uint8_t bytes[64]; /* zero where the kind has none */
};
_Static_assert(sizeof(struct lease_message) == 200, "wire layout");

struct lease_peer {
    pid_t pid;
    uid_t uid;
    int pidfd; /* owned by the caller; -1 where the kernel does not support it */
};

/* Replaces the socket file of a process that has died; ERROR_EXISTS where one listens. */
enum error_code lease_listen(const char *path, int *fd, struct error *e);
/* ERROR_PROTOCOL: another user's process, whose connection is closed. ERROR_IO: descriptors or
 * memory are short, and the connection still waits. */
enum error_code lease_accept(int listen_fd, int *fd, struct lease_peer *peer, struct error *e);
/* Tries again for timeout_ms while no process listens (ERROR_UNAVAILABLE). */
enum error_code lease_connect(const char *path, int timeout_ms, int *fd, struct error *e);
/* Sets m's magic. Borrows fds. ERROR_UNAVAILABLE: the peer has gone. ERROR_TIMEOUT: the peer does
 * not read, and the socket's buffer is full. */
enum error_code lease_send(int fd, const struct lease_message *m, const int *fds, unsigned n_fds,
                           struct error *e);
/* At most max_fds descriptors, owned by the caller and close-on-exec; n_fds may be NULL where
 * max_fds is 0. timeout_ms -1: no limit. ERROR_UNAVAILABLE: the peer has gone. ERROR_TIMEOUT.
 * ERROR_PROTOCOL: wrong size, magic or number of descriptors; all of them are closed. */
enum error_code lease_receive(int fd, struct lease_message *m, int *fds, unsigned max_fds,
                              unsigned *n_fds, int timeout_ms, struct error *e);

#endif
