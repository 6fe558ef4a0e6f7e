/* The sockets under channel.h: naming, listening, letting in, dialling. Internal to lib/ipc.
 *
 * Both ends get a connected, non-blocking stream socket. Its first bytes, from the listener, are
 * the greeting: they tell the dialler that it is the one peer, as the kernel completes a connect
 * that nobody has accepted. */
#ifndef MOED_IPC_CHANNEL_SOCKET_H
#define MOED_IPC_CHANNEL_SOCKET_H

#include "base/error.h"

#include <stdbool.h>
#include <sys/un.h>

#define CHANNEL_SCHEME "ipc://"

/* A listening socket, its file of mode 0600 in place. A file that a dead process left is replaced;
 * ERROR_EXISTS where one listens. */
enum error_code channel_socket_listen(const char *url, struct sockaddr_un *address, int *fd,
                                      struct error *e);

/* Close a listening socket and remove its file. Who has connected and was not let in is cut off. */
void channel_socket_unlisten(const struct sockaddr_un *address, int fd);

/* A connection from a process of our user (or root's); -1 with errno set where there is none now,
 * errno EPERM for a stranger's, which is closed. */
int channel_socket_accept(int listen_fd);

/* Tell the other end that it is the peer; false when it has gone. */
bool channel_socket_greet(int fd);

/* Connect and be greeted, within timeout_ms; tries again while nobody listens yet.
 * ERROR_UNAVAILABLE: nobody there, or not let in. */
enum error_code channel_socket_dial(const char *url, int timeout_ms, int *fd, struct error *e);

#endif
