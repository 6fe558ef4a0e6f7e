/* The choice of workers; see router.h. */
#include "client/src/router.h"

#include "base/checksum.h"
#include "base/clock.h"
#include "daemon/control.h"
#include "daemon/run_dir.h"
#include "daemon/supervisor_protocol.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* How long what memd said counts: of one worker, of several. */
#define ALONE_NS   1000000000u
#define SEVERAL_NS 50000000u
/* After memd did not answer. */
#define RETRY_NS       2000000000u
#define ASK_TIMEOUT_MS 250

/* A worker that has a prompt's beginning may have so many requests more than another one. */
#define SLACK 1

/* Prompts are remembered in blocks of so many bytes: after 1, 2, 4, ... and all of them. */
#define BLOCK_BYTES 256
enum { SEEN = 1024, MARKS = 24 };

struct known_worker {
    char process[SESSION_WORKER_BYTES];
    uint32_t load; /* requests that run or wait, and those started here since */
};

struct seen_prefix {
    uint64_t hash; /* 0: none */
    char process[SESSION_WORKER_BYTES];
};

struct router {
    pthread_mutex_t lock;
    struct moed_session *front;
    struct moed_session *links[SUPERVISE_WORKERS];
    unsigned n_links;
    struct known_worker known[SUPERVISE_WORKERS];
    unsigned n_known;
    uint64_t ask_ns; /* when to ask memd next */
    bool closed;
    struct seen_prefix *seen; /* [SEEN], the oldest at `next` */
    unsigned next;
};

struct router *router_new(struct moed_session *front)
{
    struct router *r = calloc(1, sizeof *r);
    struct seen_prefix *seen = calloc(SEEN, sizeof *seen);
    if (!r || !seen) {
        free(r);
        free(seen);
        return NULL;
    }
    pthread_mutex_init(&r->lock, NULL);
    r->front = front;
    r->seen = seen;
    return r;
}

void router_free(struct router *r)
{
    if (!r)
        return;
    pthread_mutex_destroy(&r->lock);
    free(r->seen);
    free(r);
}

/* ---- What memd knows ---- */

static void know(struct router *r, const char *process, uint32_t load)
{
    if (r->n_known == SUPERVISE_WORKERS || !supervise_is_worker(process) ||
        strlen(process) >= SESSION_WORKER_BYTES)
        return;
    struct known_worker *k = &r->known[r->n_known++];
    snprintf(k->process, sizeof k->process, "%s", process);
    k->load = load;
}

/* Without memd's answer: the workers whose pid files are locked. */
static void look_for_workers(struct router *r, const char *dir)
{
    for (unsigned i = 1; i <= SUPERVISE_WORKERS; i++)
        if (run_dir_hint_at(dir, supervise_worker_name(i)))
            know(r, supervise_worker_name(i), 0);
}

/* Asks without the lock. NULL: memd does not answer. */
static Moed__V1__Reply *ask_memd(const char *dir)
{
    Moed__V1__WorkersRequest workers = MOED__V1__WORKERS_REQUEST__INIT;
    Moed__V1__Request request = MOED__V1__REQUEST__INIT;
    request.body_case = MOED__V1__REQUEST__BODY_WORKERS;
    request.workers = &workers;
    Moed__V1__Reply *reply;
    return control_call_at(dir, "memd", &request, MOED__V1__REPLY__BODY_WORKERS, ASK_TIMEOUT_MS,
                           &reply, NULL)
               ? NULL
               : reply;
}

static bool must_ask(struct router *r)
{
    pthread_mutex_lock(&r->lock);
    uint64_t now = clock_ns();
    bool must = now >= r->ask_ns;
    if (must) /* other threads need not ask meanwhile */
        r->ask_ns = now + SEVERAL_NS;
    pthread_mutex_unlock(&r->lock);
    return must;
}

static void look(struct router *r)
{
    const char *dir = r->front->dir; /* it does not change once requests can be routed */
    if (!dir[0] || run_dir_check(dir, NULL))
        return;
    Moed__V1__Reply *reply = ask_memd(dir);
    pthread_mutex_lock(&r->lock);
    if (reply)
        r->n_known = 0;
    for (size_t i = 0; reply && i < reply->workers->n_workers; i++) {
        const Moed__V1__WorkerState *w = reply->workers->workers[i];
        if (!w->leaving)
            know(r, w->process, w->running + w->waiting);
    }
    if (!reply && r->n_known == 0)
        look_for_workers(r, dir);
    r->ask_ns = clock_ns() + (!reply ? RETRY_NS : r->n_known > 1 ? SEVERAL_NS : ALONE_NS);
    pthread_mutex_unlock(&r->lock);
    if (reply)
        moed__v1__reply__free_unpacked(reply, NULL);
}

/* ---- The choice; under the lock ---- */

static struct known_worker *find_known(struct router *r, const char *process)
{
    for (unsigned i = 0; i < r->n_known; i++)
        if (strcmp(r->known[i].process, process) == 0)
            return &r->known[i];
    return NULL;
}

/* The one with least to do; of equals `preferred`, else any: other programs choose at the same
 * time. NULL: none is known. */
static struct known_worker *least_busy(struct router *r, const char *preferred)
{
    uint32_t least = UINT32_MAX;
    unsigned n = 0, choice = 0;
    struct known_worker *best = find_known(r, preferred);
    for (unsigned i = 0; i < r->n_known; i++)
        least = r->known[i].load < least ? r->known[i].load : least;
    if (best && best->load == least)
        return best;
    for (unsigned i = 0; i < r->n_known; i++)
        n += r->known[i].load == least;
    if (n > 1 && getrandom(&choice, sizeof choice, GRND_NONBLOCK) != sizeof choice)
        choice = 0;
    choice = n ? choice % n : 0;
    for (unsigned i = 0; i < r->n_known; i++)
        if (r->known[i].load == least && choice-- == 0)
            return &r->known[i];
    return NULL;
}

/* Hashes of a prompt's beginnings, each a number of whole blocks. */
struct marks {
    uint64_t hash[MARKS];
    size_t blocks[MARKS];
    unsigned n;
    size_t all; /* blocks of the prompt */
};

static void mark_prompt(const void *prompt, size_t bytes, struct marks *m)
{
    uint64_t hash = 1;
    size_t next = 1;
    *m = (struct marks){.all = bytes / BLOCK_BYTES};
    for (size_t i = 0; i < m->all && m->n < MARKS; i++) {
        hash = checksum64(hash, (const uint8_t *)prompt + i * BLOCK_BYTES, BLOCK_BYTES);
        if (i + 1 != next && i + 1 != m->all)
            continue;
        m->hash[m->n] = hash ? hash : 1;
        m->blocks[m->n++] = i + 1;
        next *= i + 1 == next ? 2 : 1;
    }
}

static const struct seen_prefix *find_seen(const struct router *r, uint64_t hash)
{
    for (unsigned i = 0; i < SEEN; i++)
        if (r->seen[i].hash == hash)
            return &r->seen[i];
    return NULL;
}

/* The worker that computed at least half of the prompt. NULL: none did, or it has left. */
static struct known_worker *who_has(struct router *r, const struct marks *m)
{
    for (unsigned i = m->n; i-- > 0;) {
        if (2 * m->blocks[i] < m->all)
            return NULL;
        const struct seen_prefix *seen = find_seen(r, m->hash[i]);
        if (seen)
            return find_known(r, seen->process);
    }
    return NULL;
}

static void remember(struct router *r, const struct marks *m, const char *process)
{
    for (unsigned i = 0; i < m->n; i++) {
        struct seen_prefix *seen = (struct seen_prefix *)find_seen(r, m->hash[i]);
        if (!seen) {
            seen = &r->seen[r->next];
            r->next = (r->next + 1) % SEEN;
        }
        seen->hash = m->hash[i];
        snprintf(seen->process, sizeof seen->process, "%s", process);
    }
}

/* m NULL: for a session, not for a request. NULL: no worker is known. */
static const char *choose(struct router *r, const char *preferred, const struct marks *m)
{
    struct known_worker *best = least_busy(r, preferred), *has = m ? who_has(r, m) : NULL;
    if (has && best && has->load <= best->load + SLACK)
        best = has;
    if (!best)
        return NULL;
    if (m) {
        best->load++;
        remember(r, m, best->process);
    }
    return best->process;
}

void router_choose(struct router *r, char process[SESSION_WORKER_BYTES])
{
    look(r);
    pthread_mutex_lock(&r->lock);
    const char *best = choose(r, "", NULL);
    snprintf(process, SESSION_WORKER_BYTES, "%s", best ? best : "worker");
    pthread_mutex_unlock(&r->lock);
}

/* ---- Links ---- */

/* What a session is attached to; "": nothing now. Returns whether it lives. */
static bool attached_to(struct moed_session *s, char process[SESSION_WORKER_BYTES], bool *idle)
{
    pthread_mutex_lock(&s->lock);
    bool alive = s->alive;
    snprintf(process, SESSION_WORKER_BYTES, "%s", s->resuming ? "" : s->worker);
    *idle = s->mailboxes == NULL;
    pthread_mutex_unlock(&s->lock);
    return alive;
}

/* Takes a link out that is of no use: dead, or idle at a worker that another session is attached
 * to, or that takes no requests. NULL: there is none. Under the lock. */
static struct moed_session *take_useless(struct router *r, const char *front)
{
    for (unsigned i = 0; i < r->n_links; i++) {
        char process[SESSION_WORKER_BYTES];
        bool idle, alive = attached_to(r->links[i], process, &idle);
        bool useless = !process[0] || strcmp(process, front) == 0 || !find_known(r, process);
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
        char its[SESSION_WORKER_BYTES];
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
    if (session_open_to(link, process, link->timeout_ms, &why)) {
        session_unref(link);
        return NULL;
    }
    pthread_mutex_lock(&r->lock);
    bool kept = !r->closed && r->n_links < SUPERVISE_WORKERS;
    if (kept)
        r->links[r->n_links++] = link;
    pthread_mutex_unlock(&r->lock);
    if (!kept) {
        drop_link(link);
        return NULL;
    }
    session_ref(link);
    return link;
}

static struct moed_session *find_route(struct moed_session *session, const void *prompt,
                                       size_t bytes)
{
    struct router *r = session->router;
    struct moed_session *useless = NULL, *found = NULL;
    char process[SESSION_WORKER_BYTES] = "", front[SESSION_WORKER_BYTES];
    struct marks marks;
    bool idle;
    if (!r || r->front != session || !attached_to(session, front, &idle)) {
        session_ref(session);
        return session;
    }
    if (must_ask(r))
        look(r);
    mark_prompt(prompt, prompt ? bytes : 0, &marks);
    pthread_mutex_lock(&r->lock);
    if (r->n_known > 1 || r->n_links || !find_known(r, front)) {
        const char *best = choose(r, front, &marks);
        snprintf(process, sizeof process, "%s", best ? best : "");
        found = process[0] ? find_session(r, process) : NULL;
        useless = take_useless(r, front);
    }
    pthread_mutex_unlock(&r->lock);
    if (useless)
        drop_link(useless);
    if (!found && process[0])
        found = open_link(r, process);
    if (found)
        return found;
    session_ref(session);
    return session;
}

enum moed_code router_route(struct moed_session *session, const void *prompt, size_t bytes,
                            struct moed_session **out, struct moed_error *error)
{
    if (session_is_foreign(session, error))
        return MOED_ERROR_USAGE;
    *out = find_route(session, prompt, bytes);
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
