/* A thread that watches descriptors: connections, messages, and the end of a peer. */
#ifndef MOED_IPC_WATCH_H
#define MOED_IPC_WATCH_H

#include "base/error.h"

#include <stdbool.h>

struct watch;

/* Called on the watching thread while fd is readable (a connection or a message waits) or closed by
 * its peer. Returns false to have fd removed from the watch; the watch closes no descriptor. */
typedef bool watch_callback(void *arg, int fd);

enum error_code watch_new(const char *thread_name, struct watch **out, struct error *e);
/* Any thread. ERROR_EXISTS: fd is watched already. */
enum error_code watch_add(struct watch *w, int fd, watch_callback *on_readable, void *arg,
                          struct error *e);
/* Any thread. After it returns the callback for fd runs no more: it waits for a running one, unless
 * that callback called it. Without effect where fd is not watched. */
void watch_remove(struct watch *w, int fd);
void watch_free(struct watch *w); /* stops and joins the thread; takes NULL */

#endif
