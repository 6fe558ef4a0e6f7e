/* Frontends' lives; see session.h. Their messages stand in frontend.c.
 *
 *   attach (control thread) --> open --frontend_close--> closed --reaper--> quiet --engine--> freed
 *
 * frontend_close is called by whoever sees first that the frontend has gone: its channel's thread, or a thread that
 * cannot send to it. The reaper takes the channel away and closes it (which may wait, so it is nobody else's
 * job): from then on no message can come in. Only then it tells the engine, which ends the frontend's requests and
 * releases it: nothing refers to it any more.
 */
#include "session_internal.h"

#include "base/log.h"
#include "engine.h"
#include "ipc/channel.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PEER_TIMEOUT_MS 10000
#define MAX_FRONTENDS   256

enum error_code frontend_write(struct frontend *f, const uint8_t *data, size_t len, struct error *e)
{
    pthread_mutex_lock(&f->lock);
    enum error_code code = f->channel ? channel_send(f->channel, data, len, e)
                                      : error_set(e, ERROR_UNAVAILABLE, "the frontend has gone");
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
        engine_close_frontend(s->engine, f);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

enum error_code sessions_new(const char *run, const struct session_model *model,
                             struct sessions **out, struct error *e)
{
    struct sessions *s = calloc(1, sizeof *s);
    if (!s)
        return error_set(e, ERROR_MEMORY, "no memory for the table of frontends");
    memcpy(s->run, run, strnlen(run, sizeof s->run - 1));
    s->model = *model;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    if (pthread_create(&s->reaper, NULL, reaper_main, s)) {
        sessions_free(s);
        return error_set(e, ERROR_MEMORY, "cannot start the reaper thread");
    }
    s->reaper_started = true;
    *out = s;
    return ERROR_OK;
}

void sessions_set_engine(struct sessions *s, struct engine *engine)
{
    s->engine = engine;
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
    while (s->all) { /* the engine has ended their requests and released none since */
        struct frontend *f = s->all;
        s->all = f->next;
        close_channel(f);
        free_frontend(f);
    }
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    free(s);
}

uint32_t sessions_count(struct sessions *s)
{
    pthread_mutex_lock(&s->lock);
    uint32_t n = s->n_all;
    pthread_mutex_unlock(&s->lock);
    return n;
}

void frontend_release(struct frontend *f)
{
    struct sessions *s = f->sessions;
    pthread_mutex_lock(&s->lock);
    struct frontend **p = &s->all;
    while (*p != f)
        p = &(*p)->next;
    *p = f->next;
    s->n_all--;
    pthread_mutex_unlock(&s->lock);
    free_frontend(f);
}

/* A number and a place in the table; 0 when full. */
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

enum error_code sessions_attach(struct sessions *s, const char *client, uint32_t pid, char *url,
                                size_t url_bytes, struct error *e)
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
        return error_set(e, ERROR_LIMIT, "%d frontends are attached: no more are taken",
                         MAX_FRONTENDS);
    }
    char file[32], own_url[RUN_URL_BYTES];
    uint32_t number = f->number; /* a frontend that comes and goes at once takes f with it */
    snprintf(file, sizeof file, "session-%" PRIu32 ".sock", number);
    run_dir_url(s->run, file, own_url);
    pthread_mutex_lock(&f->lock); /* a reply to a quick peer waits for f->channel */
    enum error_code code = channel_listen(own_url, PEER_TIMEOUT_MS, on_channel, f, &f->channel, e);
    pthread_mutex_unlock(&f->lock);
    if (code) {
        frontend_close(f);
        return code;
    }
    log_info("frontend %" PRIu32 " attached: %.40s (pid %" PRIu32 ")", number,
             client[0] ? client : "a program", pid);
    snprintf(url, url_bytes, "%s", own_url);
    return ERROR_OK;
}
