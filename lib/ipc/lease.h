/* Leases: raw unix sockets (SOCK_SEQPACKET) beside nng, for what nng cannot do: carry file
 * descriptors, and have the kernel tell at once that a peer has died. One connection is one lease:
 * when it closes, whatever was lent over it is to be freed. */
#ifndef MOED_IPC_LEASE_H
#define MOED_IPC_LEASE_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define LEASE_MAGIC   0x4d4f4c34u /* "MOL4" */
#define LEASE_MAX_FDS 5

/* Fixed size on the wire, same machine, same byte order. Fields' meaning depends on kind. */
struct lease_message {
    uint32_t magic;
    uint32_t kind;
    uint64_t value[10];
    uint8_t bytes[64]; /* likewise; zero where it has none */
};
_Static_assert(sizeof(struct lease_message) == 152, "wire layout");

struct lease_peer {
    pid_t pid;
    uid_t uid;
    int pidfd; /* owned by the caller; -1 where the kernel has none */
};

/* Listen at path (an old socket file nobody listens on is replaced; one in use: ERROR_EXISTS). */
enum error_code lease_listen(const char *path, int *fd, struct error *e);
enum error_code lease_accept(int listen_fd, int *fd, struct lease_peer *peer, struct error *e);
/* Retries until timeout_ms while nobody listens. */
enum error_code lease_connect(const char *path, int timeout_ms, int *fd, struct error *e);
enum error_code lease_send(int fd, const struct lease_message *m, const int *fds, unsigned n_fds,
                           struct error *e);
/* ERROR_UNAVAILABLE at end of file, ERROR_PROTOCOL for a wrong size or magic (fds received are
 * closed), ERROR_TIMEOUT. fds received are owned by the caller, close-on-exec. */
enum error_code lease_receive(int fd, struct lease_message *m, int *fds, unsigned max_fds,
                              unsigned *n_fds, int timeout_ms, struct error *e);

/* A thread that watches descriptors: on_readable runs on it when the descriptor is readable (new
 * connection, message) or closed; it returns false to have the descriptor removed (not closed). */
struct watch;
typedef bool watch_callback(void *arg, int fd);
enum error_code watch_new(const char *thread_name, struct watch **out, struct error *e);
enum error_code watch_add(struct watch *w, int fd, watch_callback *on_readable, void *arg,
                          struct error *e);
/* After it returns the callback for fd runs no more (waits for a running one, unless called by it).
 */
void watch_remove(struct watch *w, int fd);
void watch_free(struct watch *w); /* stops and joins; takes NULL */

#endif
