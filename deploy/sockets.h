/* The supervisor's two sockets: notifications from its processes, commands from its clients. No
 * function here blocks, whatever the other side does. */
#ifndef MOED_DEPLOY_SOCKETS_H
#define MOED_DEPLOY_SOCKETS_H

#include "base/error.h"
#include "base/strbuf.h"
#include "daemon/supervisor_protocol.h"

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Binds the datagram socket of the notification protocol at path, and replaces an old file there.
 */
enum error_code notify_socket_open(const char *path, int *fd, struct error *e);
/* Receives one datagram: its text, NUL-terminated, and the pid of its sender, from the kernel.
 * False: none waits. */
bool notify_socket_receive(int fd, char *text, size_t bytes, pid_t *pid);

#define CLIENTS_MAX 16

/* A connection; fd -1: free. */
struct client {
    int fd;
    uint64_t active_ns; /* when the last byte came or went */
    char in[SUPERVISE_LINE_BYTES];
    size_t in_len;
    char out[SUPERVISE_ANSWER_BYTES];
    size_t out_len, out_sent;
    bool closing; /* close it once out is sent */
};

struct clients {
    int listen_fd;
    struct client slots[CLIENTS_MAX];
};

/* Answers one command, which has no newline: lines, then "ok" or "error TEXT", each with a newline.
 */
typedef void command_handler(void *arg, const char *command, struct strbuf *answer);

enum error_code clients_open(struct clients *c, const char *path, struct error *e);
/* Fills fds for poll: 1 + CLIENTS_MAX entries, unused ones with fd -1. */
void clients_poll_set(const struct clients *c, struct pollfd *fds);
/* Call it after poll: accepts, reads, answers and writes. */
void clients_serve(struct clients *c, const struct pollfd *fds, command_handler *handler,
                   void *arg);
/* Listens at path again, after the socket's file has vanished. Connections stay. */
enum error_code clients_listen(struct clients *c, const char *path, struct error *e);
void clients_close(struct clients *c);

#endif
