/* Notices that the runtime directory, or a file in it that the deployment needs, has been removed
 * by someone else: without them no client reaches the processes and `moed down` does not find them.
 *
 * inotify reports each removal. The supervisor then waits a second, because its own processes
 * remove their sockets when they end, and looks at what is missing. It also looks every few
 * seconds: the directory may be out of reach without an event, and inotify has limits that other
 * programs of the user may have used up. */
#ifndef MOED_DEPLOY_RUN_WATCH_H
#define MOED_DEPLOY_RUN_WATCH_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define RUN_WATCH_NAMES 64
#define RUN_WATCH_NAME  32

struct run_watch {
    int fd; /* for poll: readable when something was removed. -1: none */
    dev_t device;
    ino_t inode;
    uint64_t due_ns; /* when to look; UINT64_MAX: nothing was removed */
    unsigned n_names;
    /* of removed files; without inotify: of sockets that were there */
    char names[RUN_WATCH_NAMES][RUN_WATCH_NAME];
};

/* Watches run, which exists. Without inotify this costs a warning. */
enum error_code run_watch_open(struct run_watch *w, const char *run, struct error *e);
/* Reads the events. */
void run_watch_take(struct run_watch *w);
/* Looks without an event. Sets due_ns to a second from now if run does not lead to the directory
 * that was opened. Without inotify it sets due_ns to now if run leads there and is acceptable. No
 * effect if due_ns is set already. */
void run_watch_look(struct run_watch *w, const char *run);
/* True if the directory at run is still the one that was opened, and still acceptable
 * (run_dir_open). True as well if the system has no descriptor or no memory to find that out. */
bool run_watch_is_there(const struct run_watch *w, const char *run);
/* Whether one of `process`'s sockets (.ctl, .peers, .lease) was removed and is missing. */
bool run_watch_misses_socket(const struct run_watch *w, const char *run, const char *process);
/* Forgets what was removed before. */
void run_watch_clear(struct run_watch *w, const char *run);

#endif
