/* Unix sockets that are bound to a file: naming, listening, accepting, connecting. Used in lib/ipc
 * by rpc_server.c and rpc_client.c (stream sockets), lease.c (packet sockets) and
 * peer_rpc_server.c; the supervisor and its client use only the address.
 *
 * Only processes of this user, and root, get a connection: the file has mode 0600, and the kernel's
 * record of the peer is checked at both ends. */
#ifndef MOED_IPC_LOCAL_SOCKET_H
#define MOED_IPC_LOCAL_SOCKET_H

#include "base/error.h"

#include <stdint.h>
#include <sys/types.h>
#include <sys/un.h>

/* The address of the socket file `path`. ERROR_LIMIT: path is empty or too long. */
enum error_code local_socket_address(const char *path, struct sockaddr_un *out, struct error *e);

/* Remove the socket file of a process that has died. ERROR_EXISTS where a process listens on it
 * (which does not notice the probe), or where the file is no socket. */
enum error_code local_socket_remove_stale(const char *path, struct error *e);

/* type: SOCK_STREAM or SOCK_SEQPACKET, with SOCK_NONBLOCK where accepting must not block. Replaces
 * a stale file; ERROR_EXISTS where one is in use, ERROR_LIMIT where path is too long. */
enum error_code local_socket_listen(const char *path, int type, int backlog, int *fd,
                                    struct error *e);
/* Close the listening socket and remove its file. The kernel ends connections that nobody accepted.
 */
void local_socket_unlisten(const char *path, int fd);

struct local_peer {
    pid_t pid;
    uid_t uid;
};

/* flags: 0 or SOCK_NONBLOCK, for the new socket. ERROR_UNAVAILABLE: no connection waits (of a
 * non-blocking listener). ERROR_PROTOCOL: another user's process, whose connection is closed.
 * ERROR_IO: descriptors or memory are short; the connection still waits. */
enum error_code local_socket_accept(int listen_fd, int flags, int *fd, struct local_peer *peer,
                                    struct error *e);

/* Connect, trying again until absent_end_ns (clock_ns) while no process listens there, and until
 * end_ns while the listener's backlog is full. The new socket does not block. ERROR_UNAVAILABLE: no
 * process listens; ERROR_TIMEOUT: the listener does not accept; ERROR_PROTOCOL: another user's
 * process listens. */
enum error_code local_socket_connect(const char *path, int type, uint64_t absent_end_ns,
                                     uint64_t end_ns, int *fd, struct error *e);

#endif
