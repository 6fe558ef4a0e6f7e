/* A frontend's channel, the requests that it has, and its end; see frontends_internal.h, and
 * frontends.c for a frontend's states. */
#include "frontends_internal.h"

#include "worker/serve/engine.h"

#include <inttypes.h>
#include <stdlib.h>

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
    struct frontends *s = f->frontends;
    if (atomic_exchange(&f->closed, true))
        return;
    pthread_mutex_lock(&s->lock);
    f->next_reap = s->to_reap;
    s->to_reap = f;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

void frontend_close_channel(struct frontend *f)
{
    pthread_mutex_lock(&f->lock);
    struct channel *channel = f->channel;
    f->channel = NULL;
    pthread_mutex_unlock(&f->lock);
    channel_close(channel, 200);
}

void frontend_free(struct frontend *f)
{
    pthread_mutex_destroy(&f->lock);
    free(f);
}

/* Under frontends->lock. True: it may be freed, which the caller does after unlocking. */
static bool leave_if_over(struct frontend *f)
{
    struct frontends *s = f->frontends;
    if (!f->silent || f->requests)
        return false;
    struct frontend **p = &s->all;
    while (*p != f)
        p = &(*p)->next;
    *p = f->next;
    s->n_all--;
    return true;
}

/* Under frontends->lock. A frontend may have a part of what all may, so that others get in. */
static enum error_code check_request(const struct frontend *f, const struct frontend_request *q,
                                     struct error *e)
{
    const struct frontends *s = f->frontends;
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
    struct frontends *s = f->frontends;
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

/* Under frontends->lock. */
static void end_request(struct frontend_request *q)
{
    struct frontend *f = q->frontend;
    if (q->over)
        return;
    q->over = true;
    f->n_requests--;
    f->request_bytes -= q->bytes;
    f->frontends->request_bytes -= q->bytes;
}

void frontend_end_request(struct frontend_request *q)
{
    struct frontends *s = q->frontend->frontends;
    pthread_mutex_lock(&s->lock);
    end_request(q);
    pthread_mutex_unlock(&s->lock);
}

void frontend_remove_request(struct frontend_request *q)
{
    struct frontend *f = q->frontend;
    struct frontends *s = f->frontends;
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
        frontend_free(f);
}

void frontend_cancel_requests(struct frontend *f, uint64_t id, bool complete)
{
    struct frontends *s = f->frontends;
    pthread_mutex_lock(&s->lock);
    for (struct frontend_request *q = f->requests; q; q = q->next)
        if (q->id == id && complete)
            engine_complete(s->engine, q->request);
        else if (q->id == id)
            engine_cancel(s->engine, q->request);
    pthread_mutex_unlock(&s->lock);
}

void frontend_end(struct frontend *f)
{
    struct frontends *s = f->frontends;
    frontend_close_channel(f); /* from now on no message adds a request */
    pthread_mutex_lock(&s->lock);
    f->silent = true;
    for (struct frontend_request *q = f->requests; q; q = q->next)
        engine_cancel(s->engine, q->request);
    bool over = leave_if_over(f);
    pthread_mutex_unlock(&s->lock);
    if (over)
        frontend_free(f);
}
