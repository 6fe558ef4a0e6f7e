/* The event loop: one thread, one epoll instance. A watch is a descriptor with the function that
 * handles it. All functions are for the loop's thread. */
#ifndef MOED_HTTP_LOOP_H
#define MOED_HTTP_LOOP_H

#include "base/error.h"
#include "base/heartbeat.h"

#include <stdint.h>
#include <sys/epoll.h>

#define LOOP_BATCH 8

struct watch {
    int fd; /* -1: not in the loop */
    void (*ready)(struct watch *w, uint32_t events);
};

struct loop {
    int epoll_fd;
    struct epoll_event batch[LOOP_BATCH]; /* what loop_wait is handling */
    int batch_count;
    struct heartbeat heartbeat; /* of the loop's thread */
};

enum error_code loop_init(struct loop *l, struct error *e);
void loop_fini(struct loop *l);

/* Adds w->fd with EPOLL* events. Borrows w until loop_remove. */
enum error_code loop_add(struct loop *l, struct watch *w, uint32_t events, struct error *e);
/* Takes w off; it is not called any more, also for events that came already. Does not close the
 * descriptor. Does nothing where w is not in the loop. */
void loop_remove(struct loop *l, struct watch *w);

/* Waits at most timeout_ms (-1: no limit) and handles what is ready. */
void loop_wait(struct loop *l, int timeout_ms);

#endif
