/* A session and its links; see router.h. */
#include "client/src/router.h"

#include "daemon/supervisor_protocol.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long the start of a request waits for another worker than its session's. */
#define LINK_TIMEOUT_MS 250

struct router {
    pthread_mutex_t lock;
    struct moed_session *front;
    struct moed_session *links[SUPERVISE_WORKERS];
    unsigned n_links;
    bool closed;
    struct worker_choice *workers;
};

struct router *router_new(struct moed_session *front)
{
    struct router *r = calloc(1, sizeof *r);
    struct worker_choice *workers = worker_choice_new();
    if (!r || !workers) {
        free(r);
        worker_choice_free(workers);
        return NULL;
    }
    pthread_mutex_init(&r->lock, NULL);
    r->front = front;
    r->workers = front->workers = workers;
    return r;
}

void router_free(struct router *r)
{
    if (!r)
        return;
    pthread_mutex_destroy(&r->lock);
    worker_choice_free(r->workers);
    free(r);
}

/* What a session is attached to; "": nothing now. Returns whether it lives. idle: it has no
 * request, and no thread is about to use it: references are taken under the router's lock. */
static bool attached_to(struct moed_session *s, char process[WORKER_NAME_BYTES], bool *idle)
{
    pthread_mutex_lock(&s->lock);
    bool alive = s->alive;
    snprintf(process, WORKER_NAME_BYTES, "%s", s->resuming ? "" : s->worker);
    *idle = s->mailboxes == NULL && s->references == 1;
    pthread_mutex_unlock(&s->lock);
    return alive;
}

/* A session before link i is attached to the worker. Under the lock. */
static bool is_second(const struct router *r, unsigned i, const char *process)
{
    char its[WORKER_NAME_BYTES];
    bool idle;
    for (unsigned k = 0; k < i; k++)
        if (attached_to(r->links[k], its, &idle) && strcmp(its, process) == 0)
            return true;
    return false;
}

/* Takes a link out that is of no use: dead, or idle at a worker that another session is attached
 * to, or that takes no requests. Not one that looks for another worker: to end it may take as long
 * as an attempt. NULL: there is none. Under the lock. */
static struct moed_session *take_useless(struct router *r, const char *front)
{
    for (unsigned i = 0; i < r->n_links; i++) {
        char process[WORKER_NAME_BYTES];
        bool idle, alive = attached_to(r->links[i], process, &idle);
        bool useless = process[0] && (strcmp(process, front) == 0 || is_second(r, i, process) ||
                                      !worker_choice_knows(r->workers, process));
        if (alive && !(idle && useless))
            continue;
        struct moed_session *link = r->links[i];
        r->links[i] = r->links[--r->n_links];
        return link;
    }
    return NULL;
}

static void drop_link(struct moed_session *link)
{
    session_detach(link);
    session_unref(link);
}

/* A session that is attached to the worker, with a reference. NULL: there is none. Under the lock.
 */
static struct moed_session *find_session(struct router *r, const char *process)
{
    for (int i = -1; i < (int)r->n_links; i++) {
        struct moed_session *s = i < 0 ? r->front : r->links[i];
        char its[WORKER_NAME_BYTES];
        bool idle;
        if (attached_to(s, its, &idle) && strcmp(its, process) == 0) {
            session_ref(s);
            return s;
        }
    }
    return NULL;
}

/* Opens a session to the worker. NULL: it does not answer. */
static struct moed_session *open_link(struct router *r, const char *process)
{
    struct moed_error why;
    struct moed_session *link = session_new_link(r->front);
    if (!link)
        return NULL;
    int most_ms = link->timeout_ms < LINK_TIMEOUT_MS ? link->timeout_ms : LINK_TIMEOUT_MS;
    enum moed_code code = session_open_to(link, process, most_ms, &why);
    if (code == MOED_ERROR_TIMEOUT)
        worker_choice_avoid(r->workers, process);
    if (code) {
        session_unref(link);
        return NULL;
    }
    pthread_mutex_lock(&r->lock);
    bool kept = !r->closed && r->n_links < SUPERVISE_WORKERS;
    if (kept) {
        r->links[r->n_links++] = link;
        session_ref(link);
    }
    pthread_mutex_unlock(&r->lock);
    if (!kept) {
        drop_link(link);
        return NULL;
    }
    return link;
}

static bool has_links(struct router *r)
{
    pthread_mutex_lock(&r->lock);
    bool has = r->n_links > 0;
    pthread_mutex_unlock(&r->lock);
    return has;
}

static struct moed_session *find_route(struct moed_session *session,
                                       const struct choice_prompt *prompt)
{
    struct router *r = session->router;
    struct moed_session *useless = NULL, *found = NULL;
    char process[WORKER_NAME_BYTES], front[WORKER_NAME_BYTES];
    bool idle;
    if (!r || r->front != session || !attached_to(session, front, &idle)) {
        session_ref(session);
        return session;
    }
    worker_choice_refresh(r->workers, session->dir); /* which has been set since it attached */
    if (has_links(r) || !worker_choice_is_only(r->workers, front)) {
        worker_choice_for_prompt(r->workers, front, prompt, process);
        pthread_mutex_lock(&r->lock);
        found = process[0] ? find_session(r, process) : NULL;
        useless = take_useless(r, front);
        pthread_mutex_unlock(&r->lock);
        if (useless)
            drop_link(useless);
        if (!found && process[0])
            found = open_link(r, process);
    }
    if (found)
        return found;
    session_ref(session);
    return session;
}

enum moed_code router_route(struct moed_session *session, const struct choice_prompt *prompt,
                            struct moed_session **out, struct moed_error *error)
{
    if (session_is_foreign(session, error))
        return MOED_ERROR_USAGE;
    *out = find_route(session, prompt);
    return MOED_OK;
}

static void abandon(struct moed_session *s)
{
    channel_abandon(s->channel);
    s->channel = NULL;
}

/* Without the lock, which a thread of the parent may hold. */
void router_abandon(struct router *r)
{
    abandon(r->front);
    for (unsigned i = 0; i < r->n_links; i++)
        abandon(r->links[i]);
}

void router_close(struct router *r)
{
    if (!r)
        return;
    pthread_mutex_lock(&r->lock);
    r->closed = true;
    pthread_mutex_unlock(&r->lock);
    while (r->n_links) /* nobody else has the session any more */
        drop_link(r->links[--r->n_links]);
}
