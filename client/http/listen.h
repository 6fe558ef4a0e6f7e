/* The socket that the server listens at. */
#ifndef MOED_HTTP_LISTEN_H
#define MOED_HTTP_LISTEN_H

#include "base/error.h"

#include <stdbool.h>
#include <sys/types.h>

struct listen_address {
    char host[256]; /* "127.0.0.1" */
    char port[8];
};

/* Parses [HOST:]PORT, where HOST may be an IPv6 address in brackets; without HOST: 127.0.0.1. */
enum error_code listen_parse(const char *text, struct listen_address *out, struct error *e);
/* *loopback: only this machine can reach it. *port: the one that was bound, where 0 was asked.
 * ERROR_EXISTS: another program has the port. */
enum error_code listen_tcp(const struct listen_address *a, int *fd, bool *loopback, unsigned *port,
                           struct error *e);
/* A unix socket of this process in the file system. */
struct unix_socket {
    const char *path; /* borrowed; NULL: none */
    dev_t device;
    ino_t inode;
};

/* A unix socket with mode 0600. Replaces one that nothing listens at; ERROR_EXISTS: another process
 * does, or the path is no socket. */
enum error_code listen_unix(const char *path, struct unix_socket *out, int *fd, struct error *e);
/* Removes the socket's file. Call it while the process still listens: from then on the path is free
 * for another process. A file that has taken its place stays. */
void listen_unix_remove(struct unix_socket *u);

#endif
