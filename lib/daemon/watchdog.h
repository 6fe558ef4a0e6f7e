/* Whether a daemon may notify its service manager's watchdog: its threads get on, and its control
 * socket greets who connects. The thread "signals" decides it, a few times in each interval. */
#ifndef MOED_DAEMON_WATCHDOG_H
#define MOED_DAEMON_WATCHDOG_H

#include "base/heartbeat.h"
#include "daemon/run_dir.h"

#include <stdbool.h>
#include <stdint.h>

#define WATCHDOG_BEATS   4 /* notifications in an interval: one may be lost */
#define WATCHDOG_THREADS 4
/* Intervals that a thread may work without getting on. The worker's engine gets on with each layer,
 * whose experts may come from a slow disk. */
#define WATCHDOG_THREAD_LIMIT 4

struct watchdog {
    uint64_t interval_ns;        /* 0: the manager expects nothing */
    char socket[RUN_PATH_BYTES]; /* the control socket's path; written before `serving` */
    _Atomic bool serving;        /* the control socket is open */
    struct heartbeat control;    /* the request being handled */
    const struct heartbeat *_Atomic threads[WATCHDOG_THREADS];
    struct heartbeat start; /* of the main thread, from daemon_serve to daemon_ready */
    /* of the thread "signals" */
    int probe_fd;         /* a connection that waits for the greeting, for poll; -1: none */
    uint64_t answered_ns; /* the last greeting; 0: none was expected yet */
    bool complained;
};

void watchdog_init(struct watchdog *w, uint64_t interval_us);
/* The time between two calls of watchdog_lives, for poll; -1: no watchdog. */
int watchdog_pause_ms(const struct watchdog *w);
/* Probes the control socket. False: a thread hangs, or the socket has not answered for an
 * interval. */
bool watchdog_lives(struct watchdog *w);
/* Ends the probe; call it where probe_fd is readable. */
void watchdog_take_greeting(struct watchdog *w);

#endif
