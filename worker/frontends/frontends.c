/* Frontends' lives; see frontends.h.
 *
 *   open --frontend_close--> closed --reaper--> silent --last request ended--> freed
 *
 * frontends_attach and frontends_open, on the control plane's thread, make an open frontend. The
 * thread that first sees that the frontend has gone calls frontend_close: its channel's thread, or
 * a thread that cannot send to it. The reaper closes the channel, which may wait, and from then on
 * no message comes in; then it cancels the frontend's requests. The frontend is freed when it is
 * silent and has no requests: by the reaper, or by the engine's thread when it ends the last one.
 *
 * frontends->lock guards the lists. The engine ends a request in frontend_remove_request under this
 * lock, so a request in a frontend's list may be cancelled under it. */
#include "frontends_internal.h"

#include "base/log.h"
#include "worker/serve/engine.h"
#include "worker/sample/grammars.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/socket.h>

#define MAX_FRONTENDS 256

static void on_channel(void *arg, const uint8_t *data, size_t len)
{
    struct frontend *f = arg;
    if (data)
        frontend_handle(f, data, len);
    else
        frontend_close(f);
}

/* Of a frontend whose process is not known: no other frontend has the number. PIDs are below 2^22.
 */
static uint64_t no_process(const struct frontend *f)
{
    return 1ull << 32 | f->number;
}

/* The kernel names the process, so a process cannot use another one's share. It gives 0 for a
 * process in a PID namespace that this one does not see. */
static void find_process(struct frontend *f, int fd)
{
    struct ucred peer;
    socklen_t len = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) || peer.pid <= 0)
        return;
    pthread_mutex_lock(&f->frontends->lock);
    f->process = (uint64_t)peer.pid;
    pthread_mutex_unlock(&f->frontends->lock);
}

static void *reaper_main(void *arg)
{
    struct frontends *s = arg;
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
        frontend_end(f);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

enum error_code frontends_new(const struct frontends_model *model, struct engine *engine,
                              struct frontends **out, struct error *e)
{
    struct frontends *s = calloc(1, sizeof *s);
    if (!s)
        return error_set(e, ERROR_MEMORY, "no memory for the table of frontends");
    s->model = *model;
    s->channels.limit = FRONTENDS_BYTES;
    s->engine = engine;
    s->grammars = grammars_new(model->tokenizer, model->schemas_replaced);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    if (!s->grammars) {
        frontends_free(s);
        return error_set(e, ERROR_MEMORY, "no memory for the table of grammars");
    }
    if (pthread_create(&s->reaper, NULL, reaper_main, s)) {
        frontends_free(s);
        return error_set(e, ERROR_MEMORY, "cannot start the reaper thread");
    }
    s->reaper_started = true;
    *out = s;
    return ERROR_OK;
}

void frontends_free(struct frontends *s)
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
        frontend_close_channel(f);
        frontend_free(f);
    }
    grammars_free(s->grammars);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    free(s);
}

void frontends_end(struct frontends *s)
{
    if (s)
        atomic_store(&s->ending, true);
}

/* An eighth of the queue, but at least one place, is for other processes; another eighth is for a
 * process's other clients. A queue of three or fewer is too short to keep places in it. */
void frontends_set_limits(struct frontends_model *model, uint32_t parallel, uint32_t queue)
{
    uint32_t eighth = queue / 8 || queue < 4 ? queue / 8 : 1;
    model->process = (struct request_load){parallel + queue - eighth, PROCESS_REQUEST_BYTES};
    model->client = (struct request_load){parallel + queue - queue / 4, CLIENT_REQUEST_BYTES};
    model->most_bytes_all = FRONTENDS_REQUEST_BYTES;
}

uint32_t frontends_count(struct frontends *s)
{
    pthread_mutex_lock(&s->lock);
    uint32_t n = s->n_all;
    pthread_mutex_unlock(&s->lock);
    return n;
}

/* Enters f in the table. False: it is full. */
static bool enter(struct frontends *s, struct frontend *f)
{
    pthread_mutex_lock(&s->lock);
    bool fits = s->n_all < MAX_FRONTENDS && !s->stopping;
    if (fits) {
        f->number = ++s->last_number;
        f->process = no_process(f);
        f->next = s->all;
        s->all = f;
        s->n_all++;
    }
    pthread_mutex_unlock(&s->lock);
    return fits;
}

enum error_code frontends_attach(struct frontends *s, const char *client, uint32_t pid,
                                 struct frontend **out, struct error *e)
{
    struct frontend *f = calloc(1, sizeof *f);
    if (!f)
        return error_set(e, ERROR_MEMORY, "no memory for another frontend");
    f->frontends = s;
    atomic_store(&f->window, FRONTEND_WINDOW);
    pthread_mutex_init(&f->lock, NULL);
    if (!enter(s, f)) {
        frontend_free(f);
        return error_set(e, ERROR_LIMIT,
                         "%d frontends are attached, which is the limit: detach one",
                         MAX_FRONTENDS);
    }
    log_info("frontend %" PRIu32 " attached: %.40s (pid %" PRIu32 ")", f->number,
             client[0] ? client : "a program", pid);
    *out = f;
    return ERROR_OK;
}

void frontends_open(void *frontend, int fd)
{
    struct frontend *f = frontend;
    struct error e;
    enum error_code code = ERROR_UNAVAILABLE;
    if (fd >= 0) {
        find_process(f, fd);
        pthread_mutex_lock(&f->lock); /* a reply to a fast peer waits for f->channel */
        code = channel_open(fd, &f->frontends->channels, on_channel, f, &f->channel, &e);
        pthread_mutex_unlock(&f->lock);
        if (code) /* where it succeeded, f may be gone already */
            log_warn("frontend %" PRIu32 ": %s", f->number, e.text);
    }
    if (code)
        frontend_close(f);
}
