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

static bool id_is_in_use(const struct frontend *f, uint64_t id)
{
    for (const struct frontend_request *q = f->requests; q; q = q->next)
        if (q->id == id && !q->over)
            return true;
    return false;
}

/* What a process has that runs or waits. */
static struct request_load process_load(const struct frontends *s, uint64_t process)
{
    struct request_load n = {0};
    for (const struct frontend *f = s->all; f; f = f->next)
        if (f->process == process) {
            n.requests += f->n_requests;
            n.bytes += f->request_bytes;
        }
    return n;
}

/* What one of its clients has. */
static struct request_load client_load(const struct frontends *s, uint64_t process, uint64_t client)
{
    struct request_load n = {0};
    for (const struct frontend *f = s->all; f; f = f->next)
        for (const struct frontend_request *q = f->process == process ? f->requests : NULL; q;
             q = q->next)
            if (q->client == client && !q->over) {
                n.requests++;
                n.bytes += q->bytes;
            }
    return n;
}

static enum error_code too_many(uint32_t n, const char *whose, struct error *e)
{
    return error_set(e, ERROR_BUSY,
                     "%" PRIu32 " requests of this %s run or wait already, which is the limit: "
                     "try again later",
                     n, whose);
}

/* Under frontends->lock. */
static enum error_code check_request(const struct frontend *f, const struct frontend_request *q,
                                     struct error *e)
{
    const struct frontends *s = f->frontends;
    const struct frontends_model *most = &s->model;
    if (id_is_in_use(f, q->id))
        return error_set(e, ERROR_EXISTS, "a request with the id %" PRIu64 " runs already", q->id);
    struct request_load process = process_load(s, f->process);
    if (process.requests < most->client.requests &&
        process.bytes + q->bytes <= most->client.bytes &&
        s->request_bytes + q->bytes <= most->most_bytes_all)
        return ERROR_OK; /* its client has less */
    struct request_load client = client_load(s, f->process, q->client);
    /* requests of a worker that has gone come beside those that the process has here */
    bool limited = !request_is_taken(q->request);
    if (limited && process.requests >= most->process.requests)
        return too_many(process.requests, "process", e);
    if (limited && client.requests >= most->client.requests)
        return too_many(client.requests, "client", e);
    if ((limited && (process.bytes + q->bytes > most->process.bytes ||
                     client.bytes + q->bytes > most->client.bytes)) ||
        s->request_bytes + q->bytes > most->most_bytes_all)
        return error_set(e, ERROR_BUSY,
                         "the requests that run or wait hold %" PRIu64 " KiB of memory, %" PRIu64
                         " KiB of them this process's, %" PRIu64 " KiB this client's, and this "
                         "one needs %" PRIu64 " KiB more: try again later",
                         s->request_bytes >> 10, process.bytes >> 10, client.bytes >> 10,
                         q->bytes >> 10);
    return ERROR_OK;
}

enum error_code frontend_add_request(struct frontend *f, struct frontend_request *q,
                                     struct error *e)
{
    struct frontends *s = f->frontends;
    q->bytes = request_bytes(q->request);
    q->client = q->request->client;
    pthread_mutex_lock(&s->lock);
    enum error_code code = check_request(f, q, e);
    if (!code) {
        q->request->process = f->process;
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
