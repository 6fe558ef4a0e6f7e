/* The watching thread; see watch.h. epoll over descriptors, one callback at a time.
 *
 * Invariants, under `lock`:
 * 1. An entry in the list is in the epoll set, unless its owner closed the descriptor too early.
 * 2. Events carry an entry's id, never a pointer or a descriptor: an event fetched before a removal
 * finds no entry and is dropped, even if the descriptor's number is in use again.
 * 3. running_id is the entry whose callback runs now (0: none). The callback runs without the lock.
 */
#include "ipc/watch.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define EVENTS_AT_ONCE 32
#define WAKE_ID        0 /* the eventfd that ends the thread */

struct entry {
    uint64_t id;
    int fd;
    watch_callback *on_readable;
    void *arg;
    struct entry *next;
};

struct watch {
    int epoll_fd, wake_fd;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t finished; /* a callback has returned */
    struct entry *entries;
    uint64_t next_id, running_id;
    bool stop;
};

static struct entry *find(struct watch *w, uint64_t id)
{
    struct entry *n = w->entries;
    while (n != NULL && n->id != id)
        n = n->next;
    return n;
}

static struct entry *find_fd(struct watch *w, int fd)
{
    struct entry *n = w->entries; /* newest first */
    while (n != NULL && n->fd != fd)
        n = n->next;
    return n;
}

static void drop(struct watch *w, struct entry *gone)
{
    struct entry **p = &w->entries;
    while (*p != gone)
        p = &(*p)->next;
    *p = gone->next;
    /* Where a newer entry has the same number, the kernel dropped the old one when it was closed.
     * If the descriptor is closed and has no newer entry, epoll_ctl fails, which is right. */
    if (find_fd(w, gone->fd) == NULL)
        epoll_ctl(w->epoll_fd, EPOLL_CTL_DEL, gone->fd, NULL);
    free(gone);
}

static void dispatch(struct watch *w, uint64_t id)
{
    pthread_mutex_lock(&w->lock);
    struct entry *n = find(w, id);
    if (n != NULL && !w->stop) {
        watch_callback *on_readable = n->on_readable;
        void *arg = n->arg;
        int fd = n->fd;
        w->running_id = id;
        pthread_mutex_unlock(&w->lock);
        bool keep = on_readable(arg, fd);
        pthread_mutex_lock(&w->lock);
        w->running_id = 0;
        n = find(w, id); /* the callback may have removed it */
        if (!keep && n != NULL)
            drop(w, n);
        pthread_cond_broadcast(&w->finished);
    }
    pthread_mutex_unlock(&w->lock);
}

static void *watch_main(void *arg)
{
    struct watch *w = arg;
    for (;;) {
        struct epoll_event events[EVENTS_AT_ONCE];
        int n = epoll_wait(w->epoll_fd, events, EVENTS_AT_ONCE, -1);
        if (n < 0 && errno != EINTR)
            return NULL; /* EBADF or EINVAL: only by a fault in this file */
        for (int i = 0; i < n; i++) {
            if (events[i].data.u64 == WAKE_ID)
                return NULL;
            dispatch(w, events[i].data.u64);
        }
    }
}

static enum error_code start(struct watch *w, const char *thread_name, struct error *e)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.u64 = WAKE_ID};
    if (epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, w->wake_fd, &ev) != 0)
        return error_set(e, ERROR_IO, "watch '%s': epoll_ctl: %m", thread_name);
    int rc = pthread_create(&w->thread, NULL, watch_main, w);
    if (rc != 0) {
        errno = rc;
        return error_set(e, ERROR_MEMORY, "watch '%s': cannot start its thread: %m", thread_name);
    }
    char name[16]; /* the kernel's limit */
    snprintf(name, sizeof name, "%s", thread_name);
    pthread_setname_np(w->thread, name);
    return ERROR_OK;
}

static void release(struct watch *w)
{
    while (w->entries != NULL) {
        struct entry *next = w->entries->next;
        free(w->entries);
        w->entries = next;
    }
    if (w->epoll_fd >= 0)
        close(w->epoll_fd);
    if (w->wake_fd >= 0)
        close(w->wake_fd);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->finished);
    free(w);
}

enum error_code watch_new(const char *thread_name, struct watch **out, struct error *e)
{
    struct watch *w = calloc(1, sizeof *w);
    if (w == NULL)
        return error_set(e, ERROR_MEMORY, "watch '%s': out of memory", thread_name);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->finished, NULL);
    w->next_id = WAKE_ID + 1;
    w->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    w->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    enum error_code code;
    if (w->epoll_fd < 0 || w->wake_fd < 0)
        code = error_set(e, ERROR_IO, "watch '%s': epoll: %m", thread_name);
    else
        code = start(w, thread_name, e);
    if (code != ERROR_OK) {
        release(w);
        return code;
    }
    *out = w;
    return ERROR_OK;
}

enum error_code watch_add(struct watch *w, int fd, watch_callback *on_readable, void *arg,
                          struct error *e)
{
    struct entry *n = malloc(sizeof *n);
    if (n == NULL)
        return error_set(e, ERROR_MEMORY, "watch: out of memory");
    pthread_mutex_lock(&w->lock);
    *n = (struct entry){w->next_id++, fd, on_readable, arg, w->entries};
    struct epoll_event ev = {.events = EPOLLIN | EPOLLRDHUP, .data.u64 = n->id};
    enum error_code code = ERROR_OK;
    if (epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, fd, &ev) == 0) {
        w->entries = n;
    } else {
        code = error_set(e, errno == EEXIST ? ERROR_EXISTS : ERROR_IO,
                         "watch: cannot add descriptor %d: %m", fd);
        free(n);
    }
    pthread_mutex_unlock(&w->lock);
    return code;
}

void watch_remove(struct watch *w, int fd)
{
    pthread_mutex_lock(&w->lock);
    struct entry *n = find_fd(w, fd);
    if (n != NULL) {
        uint64_t id = n->id;
        drop(w, n);
        while (w->running_id == id && !pthread_equal(pthread_self(), w->thread))
            pthread_cond_wait(&w->finished, &w->lock);
    }
    pthread_mutex_unlock(&w->lock);
}

void watch_free(struct watch *w)
{
    if (w == NULL)
        return;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_mutex_unlock(&w->lock);
    uint64_t one = 1;
    while (write(w->wake_fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
    pthread_join(w->thread, NULL);
    release(w);
}
