/* The private part of a daemon, for daemon.c (life) and serve.c (control socket). */
#ifndef MOED_DAEMON_INTERNAL_H
#define MOED_DAEMON_INTERNAL_H

#include "daemon/daemon.h"
#include "daemon/watchdog.h"

#include <pthread.h>

#define DAEMON_STATE_BYTES 256

struct daemon_internal {
    struct metrics *metrics; /* reachable after main's frame is gone: threads may still count */
    struct rpc_server *server;
    struct peer_rpc_server *peers;    /* NULL: none */
    pthread_mutex_t request_lock;     /* a request is being handled */
    void (*adopt)(void *arg, int fd); /* of that request; NULL: none */
    void *adopt_arg;
    const struct daemon_handlers *handlers;
    void *handlers_arg;

    pthread_mutex_t state_lock;
    char state[DAEMON_STATE_BYTES]; /* guarded by state_lock */

    int stop_event;     /* eventfd, readable once stopping */
    int shutdown_event; /* eventfd: a client requested it; the signals thread stops the process */
    int thread_event;   /* eventfd: ends the signals thread */
    int drain_event;    /* eventfd: SIGUSR1 came */
    int removals;       /* inotify: a file in RUN was removed; -1: not watched */
    bool has_log;       /* standard error is RUN/PROCESS.log */
    int signal_event;   /* eventfd: the signal handler has set last_signal */
    _Atomic int last_signal;
    bool signals_running;
    pthread_t signals;
    _Atomic int exit_code;
    struct watchdog watchdog;
};

void daemon_copy_state(struct daemon *d, char out[DAEMON_STATE_BYTES]);

#endif
