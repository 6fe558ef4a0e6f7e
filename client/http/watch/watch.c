/* Watching; see watch.h.
 *
 * Invariants:
 *  1. The timer of a deployment runs exactly while it has viewers.
 *  2. At most one poll of a deployment is under way. It belongs to the deployment's thread from
 *     jobs_post until `done`; so do the map and the texts.
 *  3. A deployment without viewers stays until the next viewer of another one joins.
 *  4. A viewer that joins during a poll gets nothing of it: the next poll follows at once. */
#include "client/http/watch/watch.h"

#include "base/clock.h"
#include "client/state/placement_map.h"
#include "client/http/server/jobs.h"
#include "client/http/watch/figures.h"
#include "client/http/watch/processes.h"
#include "daemon/run_dir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define MOST_VIEWERS 64 /* each may hold a full buffer */
#define POLL_NS      250000000
#define FIGURES_NS   1000000000ull
#define PROCESSES_NS 2000000000ull
#define EARLY_NS     (POLL_NS / 2) /* a poll this early counts as in time */

struct poll {
    struct job job; /* first */
    /* in: what to ask for beside the changes */
    bool map, figures, processes;
    /* out */
    struct strbuf map_text, change_text, figures_text;
    struct strbuf processes_text, processes_all; /* the second one for admins */
    struct error failed;                         /* code 0: the map was fetched */
    bool has_change;
};

struct deployment_watch {
    struct watch timer; /* first */
    struct poll poll;
    struct watches *all;
    char name[40], run[RUN_DIR_BYTES];
    struct job_queue queue;
    struct placement_map map;
    struct viewer *viewers;
    uint64_t figures_ns, processes_ns; /* when they are due */
    bool polling;
    struct deployment_watch *next;
};

static struct deployment_watch *watch_of_poll(struct job *job)
{
    return (struct deployment_watch *)((char *)job - offsetof(struct deployment_watch, poll));
}

/* ---- On the deployment's thread ---- */

static void poll_work(struct job *job)
{
    struct deployment_watch *d = watch_of_poll(job);
    struct poll *p = &d->poll;
    p->failed = (struct error){0};
    p->has_change = false;
    strbuf_clear(&p->map_text);
    strbuf_clear(&p->change_text);
    strbuf_clear(&p->figures_text);
    strbuf_clear(&p->processes_text);
    strbuf_clear(&p->processes_all);
    enum error_code code = placement_map_fetch(&d->map, d->run, &p->failed);
    if (!code && (p->map || d->map.is_new))
        placement_map_json(&d->map, d->name, &p->map_text);
    if (!code && !d->map.is_new)
        p->has_change = placement_map_change_json(&d->map, &p->change_text);
    if (p->figures)
        figures_json(d->run, &p->figures_text);
    if (p->processes)
        processes_json(d->run, &p->processes_all, &p->processes_text);
}

/* ---- On the loop's thread ---- */

static void start_poll(struct deployment_watch *d)
{
    struct poll *p = &d->poll;
    uint64_t now_ns = clock_ns();
    bool newcomer = false;
    if (d->polling || !d->viewers)
        return;
    p->map = false;
    for (struct viewer *v = d->viewers; v; v = v->next) {
        v->polled = true;
        p->map |= !v->has_map;
        newcomer |= !v->had_all;
    }
    p->figures = newcomer || now_ns + EARLY_NS >= d->figures_ns;
    p->processes = newcomer || now_ns + EARLY_NS >= d->processes_ns;
    if (p->figures)
        d->figures_ns = now_ns + FIGURES_NS;
    if (p->processes)
        d->processes_ns = now_ns + PROCESSES_NS;
    d->polling = true;
    counter_add(d->all->polls, 1);
    jobs_post(&d->queue, &p->job);
}

/* NULL where there was no memory for the text. */
static const struct strbuf *text_or_null(bool has, const struct strbuf *text)
{
    return has && text->len && !text->failed ? text : NULL;
}

static void show(const struct deployment_watch *d, struct viewer *v)
{
    const struct poll *p = &d->poll;
    bool whole = !v->has_map || d->map.is_new;
    struct watch_view view = {
        .map = text_or_null(whole, &p->map_text),
        .change = text_or_null(!whole && p->has_change, &p->change_text),
        .figures = text_or_null(p->figures, &p->figures_text),
        .processes = text_or_null(p->processes, v->admin ? &p->processes_all : &p->processes_text),
        .failed = p->failed.code && !v->failed ? p->failed.text : NULL,
    };
    v->had_all = true;
    v->failed = p->failed.code != 0;
    if (whole || p->failed.code || p->map_text.failed || p->change_text.failed)
        v->has_map = view.map != NULL; /* one that missed a change needs a whole map */
    v->see(v, &view);
}

static void poll_done(struct job *job)
{
    struct deployment_watch *d = watch_of_poll(job);
    bool late = false;
    d->polling = false;
    for (struct viewer *v = d->viewers, *next; v; v = next) {
        next = v->next;
        if (v->polled)
            show(d, v);
        else
            late = true;
    }
    if (late)
        start_poll(d);
}

static void on_timer(struct watch *w, uint32_t events)
{
    uint64_t expired;
    if (read(w->fd, &expired, sizeof expired) == sizeof expired)
        start_poll((struct deployment_watch *)w);
}

static void set_timer(struct deployment_watch *d, bool on)
{
    struct itimerspec every = {{0}, {0}};
    if (on)
        every.it_interval.tv_nsec = every.it_value.tv_nsec = POLL_NS;
    timerfd_settime(d->timer.fd, 0, &every, NULL);
}

static enum error_code watch_new(struct watches *w, const char *deployment,
                                 struct deployment_watch **out, struct error *e)
{
    char thread[16];
    struct deployment_watch *d = calloc(1, sizeof *d);
    if (!d)
        return error_set(e, ERROR_MEMORY, "no memory to watch a deployment");
    *d = (struct deployment_watch){
        .timer = {.fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK),
                  .ready = on_timer},
        .poll.job = {.work = poll_work, .done = poll_done},
        .all = w};
    int fd = d->timer.fd;
    snprintf(d->name, sizeof d->name, "%s", deployment);
    snprintf(thread, sizeof thread, "watch/%.8s", deployment);
    placement_map_init(&d->map);
    enum error_code code = fd < 0 ? error_set(e, ERROR_IO, "cannot create a timer: %m")
                                  : run_dir_path(deployment, d->run, e);
    if (!code)
        code = loop_add(w->loop, &d->timer, EPOLLIN, e);
    if (!code && (code = jobs_start(&d->queue, w->loop, thread, e)))
        loop_remove(w->loop, &d->timer);
    if (code) {
        if (fd >= 0)
            close(fd);
        free(d);
        return code;
    }
    d->next = w->first;
    w->first = d;
    *out = d;
    return ERROR_OK;
}

static void watch_free(struct deployment_watch *d)
{
    int fd = d->timer.fd;
    jobs_stop(&d->queue);
    loop_remove(d->all->loop, &d->timer);
    close(fd);
    placement_map_fini(&d->map);
    strbuf_fini(&d->poll.map_text);
    strbuf_fini(&d->poll.change_text);
    strbuf_fini(&d->poll.figures_text);
    strbuf_fini(&d->poll.processes_text);
    strbuf_fini(&d->poll.processes_all);
    free(d);
}

void watches_init(struct watches *w, struct loop *loop, struct metrics *m)
{
    *w = (struct watches){.loop = loop};
    w->n_viewers = metrics_gauge(m, "moed_http_viewers", NULL,
                                 "Clients that watch a deployment (/moed/events, /moed/map).");
    w->polls = metrics_counter(m, "moed_http_watch_polls_total", NULL, 1,
                               "Polls of deployments for clients that watch.");
}

void watches_interrupt(struct watches *w, const char *why)
{
    const struct watch_view last = {.failed = why, .ending = true};
    w->interruptions++;
    for (struct deployment_watch *d = w->first; d; d = d->next)
        for (struct viewer *v = d->viewers, *next; v; v = next) {
            next = v->next;
            v->see(v, &last);
        }
}

void watches_end(struct watches *w)
{
    w->ending = true;
    watches_interrupt(w, "the server stops");
}

void watches_fini(struct watches *w)
{
    for (struct deployment_watch *d = w->first, *next; d; d = next) {
        next = d->next;
        watch_free(d);
    }
    w->first = NULL;
}

/* Frees those that nobody watches and that have no poll under way; not that of the deployment. */
static void free_unwatched(struct watches *w, const char *deployment)
{
    for (struct deployment_watch **link = &w->first, *d; (d = *link);) {
        if (d->viewers || !jobs_are_done(&d->queue) || strcmp(d->name, deployment) == 0) {
            link = &d->next;
            continue;
        }
        *link = d->next;
        watch_free(d);
    }
}

enum error_code watch_join(struct watches *w, const char *deployment, struct viewer *v,
                           struct error *e)
{
    if (w->ending)
        return error_set(e, ERROR_UNAVAILABLE, "the server stops");
    if (w->viewers >= MOST_VIEWERS)
        return error_set(e, ERROR_BUSY, "%d programs watch already", MOST_VIEWERS);
    free_unwatched(w, deployment);
    struct deployment_watch *d = w->first;
    while (d && strcmp(d->name, deployment) != 0)
        d = d->next;
    enum error_code code = d ? ERROR_OK : watch_new(w, deployment, &d, e);
    if (code)
        return code;
    if (!d->viewers)
        set_timer(d, true);
    v->watch = d;
    v->has_map = v->had_all = v->failed = v->polled = false;
    v->next = d->viewers;
    v->link = &d->viewers;
    if (v->next)
        v->next->link = &v->next;
    d->viewers = v;
    gauge_set(w->n_viewers, (int64_t)++w->viewers);
    start_poll(d);
    return ERROR_OK;
}

void watch_leave(struct viewer *v)
{
    struct deployment_watch *d = v->watch;
    *v->link = v->next;
    if (v->next)
        v->next->link = v->link;
    v->watch = NULL;
    gauge_set(d->all->n_viewers, (int64_t)--d->all->viewers);
    if (!d->viewers)
        set_timer(d, false);
}
