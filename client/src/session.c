/* Sessions; see session.h. */
#include "client/src/session.h"

#include "client/src/error.h"
#include "ipc/rpc.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct moed_session *session_new(int timeout_ms)
{
    struct moed_session *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->send_lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&s->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    s->references = 1;
    s->mailboxes_end = &s->mailboxes;
    s->next_id = 1;
    s->alive = true;
    s->timeout_ms = timeout_ms;
    s->pid = getpid();
    return s;
}

/* NULL or a copy. False: no memory. */
static bool copy_text(const char *text, char **out)
{
    *out = text ? strdup(text) : NULL;
    return !text || *out;
}

bool session_name(struct moed_session *s, const char *deployment, const char *client)
{
    return copy_text(deployment, &s->deployment) && copy_text(client, &s->client);
}

struct moed_session *session_new_link(const struct moed_session *front)
{
    struct moed_session *s = session_new(front->timeout_ms);
    if (s && !session_name(s, front->deployment, front->client)) {
        session_unref(s);
        s = NULL;
    }
    if (!s)
        return NULL;
    s->router = front->router;
    s->workers = front->workers;
    s->receive = front->receive;
    s->resume_ms = front->resume_ms;
    s->model = front->model;
    memcpy(s->dir, front->dir, sizeof s->dir);
    return s;
}

bool session_is_foreign(const struct moed_session *s, struct moed_error *error)
{
    if (s->pid == getpid())
        return false;
    error_report(error, MOED_ERROR_USAGE, false,
                 "the session is that of process %d, from which this one was forked: attach again",
                 (int)s->pid);
    return true;
}

void session_ref(struct moed_session *s)
{
    pthread_mutex_lock(&s->lock);
    s->references++;
    pthread_mutex_unlock(&s->lock);
}

void session_unref(struct moed_session *s)
{
    pthread_mutex_lock(&s->lock);
    bool last = --s->references == 0;
    pthread_mutex_unlock(&s->lock);
    if (!last)
        return;
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->send_lock);
    pthread_cond_destroy(&s->changed);
    free(s->deployment);
    free(s->client);
    free(s);
}

uint64_t session_new_id(struct moed_session *s)
{
    pthread_mutex_lock(&s->lock);
    uint64_t id = s->next_id++;
    pthread_mutex_unlock(&s->lock);
    return id;
}

static void append(struct moed_session *s, struct mailbox *m)
{
    m->next = NULL;
    m->link = s->mailboxes_end;
    *m->link = m;
    s->mailboxes_end = &m->next;
}

enum moed_code session_add(struct moed_session *s, struct mailbox *m, uint64_t *epoch,
                           struct moed_error *error)
{
    struct moed_error why = {0};
    pthread_mutex_lock(&s->lock);
    if (s->alive) {
        s->references++;
        append(s, m);
        m->owed = s->resuming;
        *epoch = s->resuming ? UINT64_MAX : atomic_load(&s->epoch);
    } else {
        why = s->death;
    }
    pthread_mutex_unlock(&s->lock);
    return why.code ? error_copy(error, &why) : MOED_OK;
}

void session_remove(struct moed_session *s, struct mailbox *m)
{
    if (!m->link)
        return;
    *m->link = m->next;
    *(m->next ? &m->next->link : &s->mailboxes_end) = m->link;
    m->link = NULL;
}

void session_note_sent(struct moed_session *s, struct mailbox *m, uint64_t epoch)
{
    if (epoch == atomic_load(&s->epoch))
        m->sent = true;
    else
        m->workers_lost++;
}

void session_fail(struct moed_session *s, const struct moed_error *why)
{
    pthread_mutex_lock(&s->lock);
    if (s->alive) {
        s->alive = false;
        s->death = *why;
        for (struct mailbox *m; (m = s->mailboxes);) {
            session_remove(s, m);
            mailbox_fail(m, why);
        }
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
}

enum moed_code session_send(struct moed_session *s, const Moed__V1__ToWorker *body,
                            struct moed_error *error)
{
    size_t len = moed__v1__to_worker__get_packed_size(body);
    if (len > RPC_MESSAGE_BYTES)
        return error_report(error, MOED_ERROR_LIMIT, false,
                            "the request has %zu bytes; a message may have at most %u", len,
                            RPC_MESSAGE_BYTES);
    uint8_t *data = malloc(len ? len : 1);
    if (!data)
        return error_report(error, MOED_ERROR_MEMORY, false, "no memory for a request of %zu bytes",
                            len);
    moed__v1__to_worker__pack(body, data);
    enum moed_code code = session_send_packed(s, data, len, error);
    free(data);
    return code;
}

/* Under send_lock. */
static enum moed_code send_locked(struct moed_session *s, const uint8_t *data, size_t len,
                                  struct moed_error *error)
{
    struct error why = {0};
    enum error_code code = ERROR_UNAVAILABLE;
    if (s->channel)
        code = channel_send(s->channel, data, len, &why);
    if (code == ERROR_UNAVAILABLE)
        return error_report(error, MOED_ERROR_UNAVAILABLE, true, SESSION_GONE);
    return code ? error_convert(error, &why) : MOED_OK;
}

enum moed_code session_send_packed(struct moed_session *s, const uint8_t *data, size_t len,
                                   struct moed_error *error)
{
    pthread_mutex_lock(&s->send_lock);
    enum moed_code code = send_locked(s, data, len, error);
    pthread_mutex_unlock(&s->send_lock);
    return code;
}

enum moed_code session_send_new(struct moed_session *s, struct mailbox *m, uint64_t epoch,
                                const uint8_t *data, size_t len, struct moed_error *error)
{
    pthread_mutex_lock(&s->send_lock);
    bool current = atomic_load(&s->epoch) == epoch;
    enum moed_code code = current ? send_locked(s, data, len, error) : MOED_OK;
    pthread_mutex_unlock(&s->send_lock);
    if (current && !code) {
        pthread_mutex_lock(&s->lock);
        session_note_sent(s, m, epoch);
        pthread_mutex_unlock(&s->lock);
    }
    /* the channel has closed: its callback will say so, and the request is sent to the next worker
     */
    return code == MOED_ERROR_UNAVAILABLE && s->resume_ms ? MOED_OK : code;
}

void session_consumed(struct moed_session *s, uint32_t events)
{
    pthread_mutex_lock(&s->lock);
    uint32_t stale = events < s->stale ? events : s->stale;
    s->stale -= stale;
    s->consumed += events - stale;
    uint32_t worth = s->window / 4 ? s->window / 4 : 1;
    uint32_t acknowledge = s->alive && !s->resuming && s->consumed >= worth ? s->consumed : 0;
    s->consumed -= acknowledge;
    s->outstanding -= acknowledge;
    pthread_mutex_unlock(&s->lock);
    if (!acknowledge)
        return;
    Moed__V1__Ack ack = MOED__V1__ACK__INIT;
    ack.events = acknowledge;
    Moed__V1__ToWorker body = MOED__V1__TO_WORKER__INIT;
    body.abi = CONTROL_ABI;
    body.body_case = MOED__V1__TO_WORKER__BODY_ACK;
    body.ack = &ack;
    struct moed_error why;
    /* a worker that is not told would wait for ever; one that has gone does not */
    if (session_send(s, &body, &why) && why.code != MOED_ERROR_UNAVAILABLE)
        session_fail(s, &why);
}

bool moed_session_alive(const struct moed_session *session)
{
    if (session_is_foreign(session, NULL))
        return false;
    /* const is a promise to the caller; the lock changes. */
    struct moed_session *s = (struct moed_session *)session;
    pthread_mutex_lock(&s->lock);
    bool alive = s->alive;
    pthread_mutex_unlock(&s->lock);
    return alive;
}
