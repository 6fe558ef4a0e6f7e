/* The event loop; see loop.h. */
#include "client/http/server/loop.h"

#include <stddef.h>
#include <unistd.h>

enum error_code loop_init(struct loop *l, struct error *e)
{
    *l = (struct loop){.epoll_fd = epoll_create1(EPOLL_CLOEXEC)};
    if (l->epoll_fd < 0)
        return error_set(e, ERROR_IO, "cannot create an epoll instance: %m");
    return ERROR_OK;
}

void loop_fini(struct loop *l)
{
    close(l->epoll_fd);
    l->epoll_fd = -1;
}

enum error_code loop_add(struct loop *l, struct watch *w, uint32_t events, struct error *e)
{
    struct epoll_event event = {.events = events, .data.ptr = w};
    if (epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, w->fd, &event) != 0) {
        error_set(e, ERROR_IO, "cannot watch a descriptor: %m");
        w->fd = -1;
        return ERROR_IO;
    }
    return ERROR_OK;
}

void loop_remove(struct loop *l, struct watch *w)
{
    if (w->fd < 0)
        return;
    epoll_ctl(l->epoll_fd, EPOLL_CTL_DEL, w->fd, NULL);
    w->fd = -1;
    for (int i = 0; i < l->batch_count; i++)
        if (l->batch[i].data.ptr == w)
            l->batch[i].data.ptr = NULL;
}

void loop_wait(struct loop *l, int timeout_ms)
{
    heartbeat_rest(&l->heartbeat);
    int n = epoll_wait(l->epoll_fd, l->batch, LOOP_BATCH, timeout_ms);
    l->batch_count = n > 0 ? n : 0;
    heartbeat_beat(&l->heartbeat);
    for (int i = 0; i < l->batch_count; i++) {
        struct watch *w = l->batch[i].data.ptr;
        if (w)
            w->ready(w, l->batch[i].events);
    }
    l->batch_count = 0;
}
