/* People who watch deployments, and the one poller of each deployment that they share.
 *
 *     viewers join ---> the loop's timer, 4 times a second ---> a poll on the deployment's thread
 *     viewer->see() <--------------- the loop <------------------- (memd, worker, supervisor)
 *
 * Without viewers there is no timer and no poll. A poll asks for the placement map; once a second
 * it also asks for the figures, and once in two seconds for the processes. The loop never waits.
 * All functions are for the loop's thread. */
#ifndef MOED_HTTP_WATCH_H
#define MOED_HTTP_WATCH_H

#include "base/strbuf.h"
#include "client/http/server/loop.h"
#include "metrics/metrics.h"

#include <stdbool.h>

struct deployment_watch;

/* What a poll has brought; NULL: nothing. JSON. */
struct watch_view {
    const struct strbuf *map;    /* whole: the viewer's first, or another model or policy */
    const struct strbuf *change; /* since the viewer's last map or change */
    const struct strbuf *figures, *processes;
    const char *failed; /* why there is no map; once, until there is one */
    bool ending;        /* the last view */
};

/* The caller sets `see`, which may call watch_leave for this viewer, and `admin`. */
struct viewer {
    void (*see)(struct viewer *v, const struct watch_view *view);
    bool admin; /* sees the log of moed-http too */
    /* watch.c's */
    struct deployment_watch *watch;
    struct viewer *next, **link;
    bool polled;           /* joined before the poll under way was posted */
    bool has_map, had_all; /* a whole map; its first view */
    bool failed;           /* its last view said that there is no map */
};

struct watches {
    struct loop *loop;
    struct deployment_watch *first;
    unsigned viewers;
    bool ending;
    unsigned interruptions; /* calls of watches_interrupt */
    struct gauge *n_viewers;
    struct counter *polls;
};

void watches_init(struct watches *w, struct loop *loop, struct metrics *m);
/* Gives each viewer its last view; it must leave. Nobody joins after that. */
void watches_end(struct watches *w);
/* The same, but viewers may join again; why: the last view's `failed`. */
void watches_interrupt(struct watches *w, const char *why);
/* Ends the threads; nobody may be watching. */
void watches_fini(struct watches *w);

/* The first view comes with the next poll, which is at once. */
enum error_code watch_join(struct watches *w, const char *deployment, struct viewer *v,
                           struct error *e);
void watch_leave(struct viewer *v);

#endif
