/* Gives up what the frontend does not need, before it reads a byte from a client: capabilities, new
 * programs, files beyond the deployments' runtime directories, connections to other machines. What
 * a fault in it can reach is then what its clients can ask for anyway. */
#ifndef MOED_HTTP_CONFINE_H
#define MOED_HTTP_CONFINE_H

#include "client/http/server/renewal.h"

#include <stddef.h>

/* Capabilities, files and memory. run: the frontend's runtime directory. unix_path: a socket that
 * the process removes at its end, or NULL; it could then remove other files beneath that directory,
 * too. again: n sets of files that are read again when they change; the process keeps the right to
 * read their directories (renewal_directories_find). A set with a directory that is for other
 * files, too, is read at the start only: ends its renewal, and logs that. Call it after the
 * listening sockets are open, while the process has one thread. */
void frontend_confine_files(const char *run, const char *unix_path, struct renewal *const *again,
                            size_t n);
/* System calls; before a client's data is handled. */
void frontend_confine_calls(void);

#endif
