/* libmoed: a session whose worker has gone attaches to the next one and continues its requests.
 *
 *   channel closes --session_resume--> resuming --(a worker answers)--> requests are sent again
 *                                              '--(none in time, detach)--> session_fail
 *
 * A thread of its own does it, because the channel's thread may not close its channel. While it
 * runs the session has no channel: a request that starts then is sent with the others. Events that
 * the program has not consumed yet stay in the mailboxes; the new worker does not count them
 * (`stale`). */
#include "client/src/request.h"

#include "client/src/error.h"
#include "ipc/rpc.h"

#include <stdlib.h>
#include <time.h>

#define RETRY_MS   50
#define ATTEMPT_MS 1000
/* How often to ask the supervisor, which lets a process that died rest up to 10 s. */
#define STATE_EVERY_MS 200
/* Without a process and without a supervisor that restarts them. A service manager needs seconds.
 */
#define DEAD_MS 8000
/* How long session_detach waits for cancels to leave; the worker notices the closed channel anyway.
 */
#define FLUSH_MS 200

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void close_channel(struct moed_session *s, int flush_ms)
{
    pthread_mutex_lock(&s->send_lock);
    struct channel *channel = s->channel;
    s->channel = NULL;
    pthread_mutex_unlock(&s->send_lock);
    channel_close(channel, flush_ms);
}

/* Waits a moment, unless the session dies. True: it is alive. */
static bool pause_alive(struct moed_session *s)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += RETRY_MS * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&s->lock);
    if (s->alive)
        pthread_cond_timedwait(&s->changed, &s->lock, &until);
    bool alive = s->alive;
    pthread_mutex_unlock(&s->lock);
    return alive;
}

/* What speaks for another worker. */
struct hope {
    uint64_t end;        /* of waiting in any case */
    uint64_t alive, ask; /* when there was a sign of life; when to ask the supervisor next */
};

/* The deployment does not run, or its directory is not there: whoever starts it again makes it. */
static bool says_what_is_missing(enum moed_code code)
{
    return code == MOED_ERROR_NOT_FOUND || code == MOED_ERROR_IO;
}

/* A worker did not answer, for the reason *why. True: another may come. False: *why says why not.
 */
static bool may_come(struct moed_session *s, struct hope *h, struct moed_error *why)
{
    char reason[400];
    uint64_t now = now_ms();
    if (now >= h->ask) {
        enum supervisor_state state =
            session_supervisor_state(s, ATTEMPT_MS, reason, sizeof reason);
        if (state == SUPERVISOR_GAVE_UP) {
            error_report(why, MOED_ERROR_UNAVAILABLE, false, "the worker has gone, and %s", reason);
            return false;
        }
        now = now_ms();
        h->ask = now + STATE_EVERY_MS;
        if (state == SUPERVISOR_RESTARTS || state == SUPERVISOR_STARTS_FAIL ||
            (state == SUPERVISOR_NONE && session_has_processes(s)))
            h->alive = now;
    }
    if (now < h->end && now < h->alive + DEAD_MS)
        return true;
    if (!says_what_is_missing(why->code))
        error_report(why, MOED_ERROR_UNAVAILABLE, true, SESSION_GONE);
    why->code = MOED_ERROR_UNAVAILABLE; /* its text stays */
    why->retry = true;
    return false;
}

static bool may_pass(enum moed_code code)
{
    return code == MOED_ERROR_UNAVAILABLE || code == MOED_ERROR_TIMEOUT ||
           says_what_is_missing(code);
}

/* Gets a channel to the next worker. False: none came in time, or the session died; *why is set. */
static bool attach_again(struct moed_session *s, struct moed_error *why)
{
    uint64_t now = now_ms();
    struct hope hope = {.end = now + (uint64_t)s->resume_ms, .alive = now, .ask = now};
    while (pause_alive(s)) {
        enum moed_code code = session_open(s, ATTEMPT_MS, why);
        if (!code)
            return true;
        if (!may_pass(code) || session_lost_model(s, why) || !may_come(s, &hope, why))
            return false;
    }
    return false;
}

/* The message of the request that has waited longest, of those that the new worker is still to be
 * sent; ends those that cannot be continued. False: there is none, or that worker has gone, too. */
static bool next_resend(struct moed_session *s, struct resend *out)
{
    bool found = false;
    pthread_mutex_lock(&s->lock);
    for (struct mailbox *m = s->lost ? NULL : s->mailboxes, *next; m && !found; m = next) {
        next = m->next;
        if (!m->owed)
            continue;
        m->owed = false;
        *out = request_resend((struct moed_request *)m);
        out->epoch = atomic_load(&s->epoch);
        found = out->data != NULL;
        if (!found)
            request_give_up((struct moed_request *)m, NULL);
    }
    pthread_mutex_unlock(&s->lock);
    return found;
}

/* Waits while the channel's queue is full. */
static enum moed_code send_waiting(struct moed_session *s, const struct resend *m,
                                   struct moed_error *why)
{
    enum moed_code code;
    do
        code = session_send_packed(s, m->data, m->len, why);
    while (code == MOED_ERROR_LIMIT && m->len <= RPC_MESSAGE_BYTES && pause_alive(s));
    return code;
}

/* The message was sent. True: the request still wants its answer. *complete: it does not, because
 * it has all of it. */
static bool note_sent(struct moed_session *s, const struct resend *m, bool *complete)
{
    pthread_mutex_lock(&s->lock);
    struct moed_request *r = request_find(s, m->id);
    bool wanted = r && !request_is_cancelled(r);
    *complete = r && request_is_complete(r);
    if (r)
        session_note_sent(s, (struct mailbox *)r, m->epoch);
    pthread_mutex_unlock(&s->lock);
    return wanted;
}

static void fail_request(struct moed_session *s, uint64_t id, const struct moed_error *why)
{
    pthread_mutex_lock(&s->lock);
    struct moed_request *r = request_find(s, id);
    if (r)
        request_give_up(r, why);
    pthread_mutex_unlock(&s->lock);
}

/* The program may cancel or free the request before its message leaves: then its Cancel has come
 * too early, and is sent again. Where the worker has gone, too, the next one is sent the message.
 */
static void resend(struct moed_session *s, const struct resend *m)
{
    struct moed_error why;
    bool complete;
    enum moed_code code = send_waiting(s, m, &why);
    if (code && code != MOED_ERROR_UNAVAILABLE)
        fail_request(s, m->id, &why);
    else if (!code && !note_sent(s, m, &complete))
        while (request_send_cancel(s, m->id, complete) == MOED_ERROR_LIMIT && pause_alive(s))
            ;
}

static void continue_requests(struct moed_session *s)
{
    struct resend m;
    pthread_mutex_lock(&s->lock);
    s->stale += s->outstanding - s->consumed; /* received, and not consumed yet */
    s->outstanding = s->consumed = 0;
    s->resuming = s->lost; /* lost: this worker has gone, too */
    pthread_mutex_unlock(&s->lock);
    while (next_resend(s, &m)) {
        resend(s, &m);
        free(m.data);
    }
}

/* Waits until the channel has closed. False: the session is dead. */
static bool wait_for_loss(struct moed_session *s)
{
    pthread_mutex_lock(&s->lock);
    while (s->alive && !s->lost)
        pthread_cond_wait(&s->changed, &s->lock);
    s->lost = false;
    bool alive = s->alive;
    pthread_mutex_unlock(&s->lock);
    return alive;
}

static void *resumer_main(void *arg)
{
    struct moed_session *s = arg;
    pthread_setname_np(pthread_self(), "moed/resume");
    while (wait_for_loss(s)) {
        struct moed_error why;
        error_report(&why, MOED_ERROR_UNAVAILABLE, true, SESSION_GONE);
        close_channel(s, 0);
        if (attach_again(s, &why))
            continue_requests(s);
        else
            session_fail(s, &why);
    }
    return NULL;
}

/* The worker has gone with all that it was sent, Cancels too. Under the lock. */
static void owe_all(struct moed_session *s)
{
    for (struct mailbox *m = s->mailboxes, *next; m; m = next) {
        next = m->next;
        m->workers_lost += m->sent;
        m->sent = false;
        m->owed = true;
        request_end_cancelled((struct moed_request *)m);
    }
}

bool session_resume(struct moed_session *s)
{
    pthread_mutex_lock(&s->lock);
    if (s->alive && s->resume_ms > 0 && !s->has_resumer)
        s->has_resumer = pthread_create(&s->resumer, NULL, resumer_main, s) == 0;
    bool resumes = s->alive && s->has_resumer;
    if (resumes) {
        s->lost = s->resuming = true;
        owe_all(s);
        atomic_fetch_add(&s->epoch, 1);
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return resumes;
}

/* Waits for the thread, which ends soon once the session is dead. */
static void end_resumer(struct moed_session *s)
{
    pthread_mutex_lock(&s->lock);
    bool has = s->has_resumer;
    s->has_resumer = false;
    pthread_mutex_unlock(&s->lock);
    if (has)
        pthread_join(s->resumer, NULL);
}

void session_detach(struct moed_session *s)
{
    struct moed_error why;
    error_report(&why, MOED_ERROR_CANCELLED, false, "the session was detached");
    session_fail(s, &why);
    end_resumer(s);
    close_channel(s, FLUSH_MS);
}
