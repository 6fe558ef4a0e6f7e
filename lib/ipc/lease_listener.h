/* Accepting lease connections: a listening lease socket on a watching thread (watch.h). memd and
 * the CPU executor accept their workers with it.
 *
 * While descriptors or memory are short, accepting fails although a connection waits. The listener
 * logs the first failure, and tries again every few milliseconds; the watching thread sleeps in
 * between. The connection is accepted once the shortage is over. */
#ifndef MOED_IPC_LEASE_LISTENER_H
#define MOED_IPC_LEASE_LISTENER_H

#include "ipc/lease.h"
#include "ipc/watch.h"

/* Called on the watching thread for each accepted connection. Takes fd and peer->pidfd. */
typedef void lease_accepted(void *arg, int fd, const struct lease_peer *peer);

struct lease_listener {
    struct watch *watch; /* borrowed */
    lease_accepted *accepted;
    void *arg;
    int fd;
    bool failing; /* the last attempt to accept failed: it has been logged */
};

/* Listen at path (lease_listen). l must stay where it is until lease_listener_close. */
enum error_code lease_listener_open(struct lease_listener *l, const char *path, struct watch *watch,
                                    lease_accepted *accepted, void *arg, struct error *e);
/* After it returns `accepted` runs no more. Takes a zeroed one, and one that failed to open. The
 * socket's file stays: the next process that listens replaces it. */
void lease_listener_close(struct lease_listener *l);

#endif
