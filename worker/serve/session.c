/* Frontends' lives; see session.h.
 *
 *   open --frontend_close--> closed --reaper--> silent --last request ended--> freed
 *
 * sessions_attach and sessions_open, on the control plane's thread, make an open frontend. The
 * thread that first sees that the frontend has gone calls frontend_close: its channel's thread, or
 * a thread that cannot send to it. The reaper closes the channel, which may wait, and from then on
 * no message comes in; then it cancels the frontend's requests. The frontend is freed when it is
 * silent and has no requests: by the reaper, or by the engine's thread when it ends the last one.
 *
 * sessions->lock guards the lists. The engine ends a request in frontend_remove_request under this
 * lock, so a request in a frontend's list may be cancelled under it. */
#include "session_internal.h"

#include "base/log.h"
#include "engine.h"
#include "grammars.h"

#include <inttypes.h>
#include <stdlib.h>

#define MAX_FRONTENDS 256

enum error_code frontend_write(struct frontend *f, const uint8_t *data, size_t len, struct error *e)
{
    pthread_mutex_lock(&f->lock);
    enum error_code code = f->channel ? channel_send(f->channel, data, len, e)
                                      : error_set(e, ERROR_UNAVAILABLE, "the frontend is gone");
    pthread_mutex_unlock(&f->lock);
    return code;
}

void frontend_close(struct frontend *f)
{
    struct sessions *s = f->sessions;
    if (atomic_exchange(&f->closed, true))
        return;
    pthread_mutex_lock(&s->lock);
    f->next_reap = s->to_reap;
    s->to_reap = f;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static void on_channel(void *arg, const uint8_t *data, size_t len)
{
    struct frontend *f = arg;
    if (data)
        frontend_handle(f, data, len);
    else
        frontend_close(f);
}

static void close_channel(struct frontend *f)
{
    pthread_mutex_lock(&f->lock);
    struct channel *channel = f->channel;
    f->channel = NULL;
    pthread_mutex_unlock(&f->lock);
    channel_close(channel, 200);
}

static void free_frontend(struct frontend *f)
{
    pthread_mutex_destroy(&f->lock);
    free(f);
}

/* ---- Its requests, and its end ---- */

/* Under sessions->lock. True: it may be freed, which the caller does after unlocking. */
static bool leave_if_over(struct frontend *f)
{
    struct sessions *s = f->sessions;
    if (!f->silent || f->requests)
        return false;
    struct frontend **p = &s->all;
    while (*p != f)
        p = &(*p)->next;
    *p = f->next;
    s->n_all--;
    return true;
}

/* Under sessions->lock. A frontend may have a part of what all may, so that others get in. */
static enum error_code check_request(const struct frontend *f, const struct frontend_request *q,
                                     struct error *e)
{
    const struct sessions *s = f->sessions;
    for (const struct frontend_request *other = f->requests; other; other = other->next)
        if (other->id == q->id && !other->over)
            return error_set(e, ERROR_EXISTS, "a request with the id %" PRIu64 " runs already",
                             q->id);
    if (f->n_requests >= s->model.most_requests)
        return error_set(e, ERROR_BUSY,
                         "%" PRIu32 " requests of this frontend run or wait already, which is the "
                         "limit: try again later",
                         f->n_requests);
    if (q->bytes > s->model.most_bytes - f->request_bytes ||
        q->bytes > s->model.most_bytes_all - s->request_bytes)
        return error_set(e, ERROR_BUSY,
                         "the requests that run or wait hold %" PRIu64 " KiB of memory, %" PRIu64
                         " KiB of them this frontend's, and this one "
                         "needs %" PRIu64 " KiB more: try again later",
                         s->request_bytes >> 10, f->request_bytes >> 10, q->bytes >> 10);
    return ERROR_OK;
}

enum error_code frontend_add_request(struct frontend *f, struct frontend_request *q,
                                     struct error *e)
{
    struct sessions *s = f->sessions;
    q->bytes = request_bytes(q->request);
    pthread_mutex_lock(&s->lock);
    enum error_code code = check_request(f, q, e);
    if (!code) {
        q->next = f->requests;
        f->requests = q;
        f->n_requests++;
        f->request_bytes += q->bytes;
        s->request_bytes += q->bytes;
    }
    pthread_mutex_unlock(&s->lock);
    return code;
}

/* Under sessions->lock. */
static void end_request(struct frontend_request *q)
{
    struct frontend *f = q->frontend;
    if (q->over)
        return;
    q->over = true;
    f->n_requests--;
    f->request_bytes -= q->bytes;
    f->sessions->request_bytes -= q->bytes;
}

void frontend_end_request(struct frontend_request *q)
{
    struct sessions *s = q->frontend->sessions;
    pthread_mutex_lock(&s->lock);
    end_request(q);
    pthread_mutex_unlock(&s->lock);
}

void frontend_remove_request(struct frontend_request *q)
{
    struct frontend *f = q->frontend;
    struct sessions *s = f->sessions;
    pthread_mutex_lock(&s->lock);
    struct frontend_request **p = &f->requests;
    while (*p != q)
        p = &(*p)->next;
    *p = q->next;
    end_request(q);
    bool over = leave_if_over(f);
    pthread_mutex_unlock(&s->lock);
    free(q);
    if (over)
        free_frontend(f);
}

void frontend_cancel_requests(struct frontend *f, uint64_t id)
{
    struct sessions *s = f->sessions;
    pthread_mutex_lock(&s->lock);
    for (struct frontend_request *q = f->requests; q; q = q->next)
        if (q->id == id)
            engine_cancel(s->engine, q->request);
    pthread_mutex_unlock(&s->lock);
}

/* The channel is closed, so no message adds a request any more. */
static void end_requests(struct frontend *f)
{
    struct sessions *s = f->sessions;
    pthread_mutex_lock(&s->lock);
    f->silent = true;
    for (struct frontend_request *q = f->requests; q; q = q->next)
        engine_cancel(s->engine, q->request);
    bool over = leave_if_over(f);
    pthread_mutex_unlock(&s->lock);
    if (over)
        free_frontend(f);
}

static void *reaper_main(void *arg)
{
    struct sessions *s = arg;
    pthread_setname_np(pthread_self(), "worker/reaper");
    pthread_mutex_lock(&s->lock);
    while (!s->stopping) {
        struct frontend *f = s->to_reap;
        if (!f) {
            pthread_cond_wait(&s->changed, &s->lock);
            continue;
        }
        s->to_reap = f->next_reap;
        pthread_mutex_unlock(&s->lock);
        close_channel(f);
        end_requests(f);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- All frontends ---- */

enum error_code sessions_new(const struct session_model *model, struct engine *engine,
                             struct sessions **out, struct error *e)
{
    struct sessions *s = calloc(1, sizeof *s);
    if (!s)
        return error_set(e, ERROR_MEMORY, "no memory for the table of frontends");
    s->model = *model;
    s->channels.limit = SESSIONS_BYTES;
    s->engine = engine;
    s->grammars = grammars_new(model->tokenizer, model->schemas_replaced);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    if (!s->grammars) {
        sessions_free(s);
        return error_set(e, ERROR_MEMORY, "no memory for the table of grammars");
    }
    if (pthread_create(&s->reaper, NULL, reaper_main, s)) {
        sessions_free(s);
        return error_set(e, ERROR_MEMORY, "cannot start the reaper thread");
    }
    s->reaper_started = true;
    *out = s;
    return ERROR_OK;
}

void sessions_free(struct sessions *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
    if (s->reaper_started)
        pthread_join(s->reaper, NULL);
    while (s->all) { /* the engine has ended their requests */
        struct frontend *f = s->all;
        s->all = f->next;
        close_channel(f);
        free_frontend(f);
    }
    grammars_free(s->grammars);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    free(s);
}

void sessions_end(struct sessions *s)
{
    if (s)
        atomic_store(&s->ending, true);
}

uint32_t sessions_count(struct sessions *s)
{
    pthread_mutex_lock(&s->lock);
    uint32_t n = s->n_all;
    pthread_mutex_unlock(&s->lock);
    return n;
}

/* Enters f in the table. Returns its number; 0: the table is full. */
static uint32_t enter(struct sessions *s, struct frontend *f)
{
    pthread_mutex_lock(&s->lock);
    uint32_t number = 0;
    if (s->n_all < MAX_FRONTENDS && !s->stopping) {
        number = ++s->last_number;
        f->next = s->all;
        s->all = f;
        s->n_all++;
    }
    pthread_mutex_unlock(&s->lock);
    return number;
}

enum error_code sessions_attach(struct sessions *s, const char *client, uint32_t pid,
                                struct frontend **out, struct error *e)
{
    struct frontend *f = calloc(1, sizeof *f);
    if (!f)
        return error_set(e, ERROR_MEMORY, "no memory for another frontend");
    f->sessions = s;
    atomic_store(&f->window, SESSION_WINDOW);
    pthread_mutex_init(&f->lock, NULL);
    f->number = enter(s, f);
    if (!f->number) {
        free_frontend(f);
        return error_set(e, ERROR_LIMIT,
                         "%d frontends are attached, which is the limit: detach one",
                         MAX_FRONTENDS);
    }
    log_info("frontend %" PRIu32 " attached: %.40s (pid %" PRIu32 ")", f->number,
             client[0] ? client : "a program", pid);
    *out = f;
    return ERROR_OK;
}

void sessions_open(void *frontend, int fd)
{
    struct frontend *f = frontend;
    struct error e;
    enum error_code code = ERROR_UNAVAILABLE;
    if (fd >= 0) {
        pthread_mutex_lock(&f->lock); /* a reply to a fast peer waits for f->channel */
        code = channel_open(fd, &f->sessions->channels, on_channel, f, &f->channel, &e);
        pthread_mutex_unlock(&f->lock);
        if (code) /* where it succeeded, f may be gone already */
            log_warn("frontend %" PRIu32 ": %s", f->number, e.text);
    }
    if (code)
        frontend_close(f);
}
