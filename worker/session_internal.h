/* What session.c (a frontend's life) and frontend.c (its messages) share. */
#ifndef MOED_WORKER_SESSION_INTERNAL_H
#define MOED_WORKER_SESSION_INTERNAL_H

#include "session.h"

#include "daemon/run_dir.h"

#include <pthread.h>
#include <stdatomic.h>

struct channel;

struct frontend {
    struct frontend *next;      /* in the list of all; guarded by sessions->lock */
    struct frontend *next_reap; /* in the reaper's; the same */
    struct sessions *sessions;
    pthread_mutex_t lock;       /* guards channel: held while it is made, used or taken away */
    struct channel *channel;    /* NULL once the reaper has it */
    uint32_t number;
    _Atomic int64_t window;     /* events that may still be sent */
    _Atomic bool closed;
};

struct sessions {
    char run[RUN_DIR_BYTES];
    struct session_model model;
    struct engine *engine;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct frontend *all, *to_reap;
    uint32_t n_all, last_number;
    bool stopping;
    pthread_t reaper;
    bool reaper_started;
};

/* A message from the frontend, on its channel's thread. */
void frontend_handle(struct frontend *f, const uint8_t *data, size_t len);
/* Queue bytes to it; any thread. */
enum error_code frontend_write(struct frontend *f, const uint8_t *data, size_t len,
                               struct error *e);
/* It has gone, or cannot be sent to: begin its end. Any thread, any number of times. */
void frontend_close(struct frontend *f);

#endif
