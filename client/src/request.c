/* Requests: what was asked, the queue of what has come for it, and handing that to the program.
 *
 *     started --(events: queued)--> started --(Done, Error, a reply: queued)--> ended
 *        '--(request_fail)--> ended, failed                moed_request_next empties the queue,
 * then returns the result or the failure for good
 *
 * The channel's thread appends (request_deliver, request_fail); the one thread that consumes takes
 * from the front (moed_request_next). Both hold session->lock. */
#include "client/src/internal.h"

#include "ipc/rpc.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "logits travel as little-endian floats and are not converted"
#endif

/* ---- The channel's side; session->lock is held ---- */

static void unlink_request(struct moed_request *r)
{
    struct moed_request **link = &r->session->requests;
    while (*link && *link != r)
        link = &(*link)->next;
    if (*link)
        *link = r->next;
}

static void wake(struct moed_request *r)
{
    if (r->event_fd >= 0 && !r->signalled)
        r->signalled = eventfd_write(r->event_fd, 1) == 0;
    pthread_cond_broadcast(&r->changed);
}

static void end(struct moed_request *r)
{
    r->ended = true;
    unlink_request(r);
}

void request_fail(struct moed_request *r, const struct moed_error *why)
{
    if (r->ended)
        return;
    r->failed = true;
    r->failure = *why;
    end(r);
    wake(r);
}

/* Rows come in order and have one length, whole floats. */
static bool row_fits(struct moed_request *r, const Moed__V1__LogitsRow *row)
{
    size_t values = row->logits.len / sizeof(float);
    if (!values || row->logits.len % sizeof(float) || row->row != r->next_row ||
        (r->next_row && values != r->vocab))
        return false;
    r->vocab = values;
    r->next_row++;
    return true;
}

/* They come in order and are no more than were asked for. */
static bool logprobs_fit(struct moed_request *r, const Moed__V1__Logprobs *some)
{
    size_t n = some->logprobs.len / sizeof(float);
    if (!n || some->logprobs.len % sizeof(float) || some->first != r->next_row ||
        n > r->end_row - r->next_row)
        return false;
    r->next_row += n;
    return true;
}

/* Tokens come in order; what is told of them are whole numbers, the same for each. */
static bool routing_fits(struct moed_request *r, const Moed__V1__Routing *some)
{
    size_t n = some->tokens, n_hidden = some->n_hidden_at;
    if (!n || some->first != r->next_row || !some->selected.len ||
        some->selected.len % (n * sizeof(uint16_t)) || some->gate.len % (n * sizeof(float)))
        return false;
    if (n_hidden ? !some->hidden.len || some->hidden.len % (n_hidden * sizeof(uint16_t))
                 : some->hidden.len > 0)
        return false;
    for (size_t i = 0; i < n_hidden; i++)
        if (some->hidden_at[i] < some->first || some->hidden_at[i] - some->first >= n)
            return false;
    r->next_row += n;
    return true;
}

static bool legal(struct moed_request *r, const Moed__V1__FromWorker *body)
{
    bool streams = r->kind == MOED__V1__TO_WORKER__BODY_GENERATE ||
                   r->kind == MOED__V1__TO_WORKER__BODY_LOGITS ||
                   r->kind == MOED__V1__TO_WORKER__BODY_LOGPROBS;
    switch (body->body_case) {
    case MOED__V1__FROM_WORKER__BODY_ERROR:
        return true;
    case MOED__V1__FROM_WORKER__BODY_DONE:
        return streams;
    case MOED__V1__FROM_WORKER__BODY_TOKENS:
        return r->kind == MOED__V1__TO_WORKER__BODY_GENERATE;
    case MOED__V1__FROM_WORKER__BODY_LOGITS:
        return r->kind == MOED__V1__TO_WORKER__BODY_LOGITS && row_fits(r, body->logits);
    case MOED__V1__FROM_WORKER__BODY_LOGPROBS:
        return r->kind == MOED__V1__TO_WORKER__BODY_LOGPROBS && logprobs_fit(r, body->logprobs);
    case MOED__V1__FROM_WORKER__BODY_ROUTING:
        return r->records && routing_fits(r, body->routing);
    case MOED__V1__FROM_WORKER__BODY_TOKENIZE:
        return r->kind == MOED__V1__TO_WORKER__BODY_TOKENIZE;
    case MOED__V1__FROM_WORKER__BODY_DETOKENIZE:
        return r->kind == MOED__V1__TO_WORKER__BODY_DETOKENIZE;
    case MOED__V1__FROM_WORKER__BODY_MODEL:
        return r->kind == MOED__V1__TO_WORKER__BODY_MODEL;
    default:
        return false;
    }
}

bool request_deliver(struct moed_request *r, Moed__V1__FromWorker *body)
{
    if (!legal(r, body))
        return false;
    struct message *m = malloc(sizeof *m);
    if (!m) {
        struct moed_error why;
        error_report(&why, MOED_ERROR_MEMORY, false, "no memory for the worker's answer");
        request_fail(r, &why);
        moed__v1__from_worker__free_unpacked(body, NULL);
        return true;
    }
    *m = (struct message){.body = body};
    if (r->last)
        r->last->next = m;
    else
        r->first = m;
    r->last = m;
    if (!message_is_event(body))
        end(r);
    wake(r);
    return true;
}

/* ---- The program's side ---- */

static struct moed_request *request_new(struct moed_session *s, const Moed__V1__ToWorker *body)
{
    struct moed_request *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->session = s;
    r->kind = body->body_case;
    if (r->kind == MOED__V1__TO_WORKER__BODY_LOGPROBS) {
        r->next_row = body->logprobs->first;
        r->end_row = body->logprobs->n_tokens;
    }
    r->records = r->kind == MOED__V1__TO_WORKER__BODY_GENERATE && body->generate->record;
    r->event_fd = -1;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&r->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return r;
}

static void message_free(struct message *m)
{
    if (!m)
        return;
    moed__v1__from_worker__free_unpacked(m->body, NULL);
    free(m);
}

/* Take it off its session and free it; tells the worker nothing. Returns the events that were never
 * handed out. */
static uint32_t request_destroy(struct moed_request *r)
{
    struct moed_session *s = r->session;
    pthread_mutex_lock(&s->lock);
    if (!r->ended)
        end(r);
    pthread_mutex_unlock(&s->lock);
    /* No thread knows it any more. */
    uint32_t events = r->held && message_is_event(r->held->body);
    message_free(r->held);
    for (struct message *m = r->first, *next; m; m = next) {
        next = m->next;
        events += message_is_event(m->body);
        message_free(m);
    }
    if (r->event_fd >= 0)
        close(r->event_fd);
    pthread_cond_destroy(&r->changed);
    free(r);
    return events;
}

enum moed_code request_start(struct moed_session *s, Moed__V1__ToWorker *body,
                             struct moed_request **out, struct moed_error *error)
{
    struct moed_request *r = request_new(s, body);
    if (!r)
        return error_report(error, MOED_ERROR_MEMORY, false, "no memory for a request");
    struct moed_error why = {0};
    pthread_mutex_lock(&s->lock);
    if (s->alive) {
        s->references++;
        r->id = s->next_id++;
        r->next = s->requests;
        s->requests = r;
    } else {
        why = s->death;
        r->ended = true;
    }
    pthread_mutex_unlock(&s->lock);
    bool registered = why.code == MOED_OK;
    if (registered) {
        body->abi = CONTROL_ABI;
        body->id = r->id;
        session_send(s, body, &why);
    }
    if (why.code == MOED_OK) {
        *out = r;
        return MOED_OK;
    }
    request_destroy(r);
    if (registered)
        session_unref(s);
    return error_give(error, &why);
}

static struct timespec deadline_after(int timeout_ms)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += timeout_ms / 1000;
    t.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_nsec -= 1000000000;
        t.tv_sec++;
    }
    return t;
}

/* Wait for the front of the queue or the end. session->lock is held. */
static bool wait_for_change(struct moed_request *r, int timeout_ms)
{
    struct timespec deadline = deadline_after(timeout_ms > 0 ? timeout_ms : 0);
    int late = timeout_ms == 0;
    while (!r->first && !r->ended && !late)
        late = timeout_ms < 0 ? pthread_cond_wait(&r->changed, &r->session->lock)
                              : pthread_cond_timedwait(&r->changed, &r->session->lock, &deadline);
    return r->first || r->ended;
}

/* Move the front of the queue to `held`, whose last content is let go; MOED_OK with held NULL where
 * the request ended without more. */
static enum moed_code take(struct moed_request *r, int timeout_ms, struct moed_error *error)
{
    struct moed_session *s = r->session;
    struct message *old = r->held;
    r->held = NULL;
    if (old && message_is_event(old->body))
        session_consumed(s, 1);
    message_free(old);

    pthread_mutex_lock(&s->lock);
    bool ready = wait_for_change(r, timeout_ms);
    r->held = r->first;
    if (r->first) {
        r->first = r->first->next;
        if (!r->first)
            r->last = NULL;
    }
    if (!r->first && !r->ended && r->signalled) {
        eventfd_t bells;
        r->signalled = eventfd_read(r->event_fd, &bells) != 0;
    }
    pthread_mutex_unlock(&s->lock);
    if (!ready)
        return error_report(error, MOED_ERROR_TIMEOUT, true, "no answer within %d ms", timeout_ms);
    return MOED_OK;
}

/* What take() found: an event or an answer (MOED_OK), or the failure, which stays. Nobody writes
 * `failed` and `failure` any more once the request has ended, and it has where nothing is held. */
static enum moed_code settle(struct moed_request *r, struct moed_error *error)
{
    if (r->held && r->held->body->body_case != MOED__V1__FROM_WORKER__BODY_ERROR)
        return MOED_OK;
    if (r->held) {
        error_from_wire(&r->failure, r->held->body->error);
        r->failed = true;
    }
    return r->failed ? error_give(error, &r->failure) : MOED_OK;
}

enum moed_code request_wait(struct moed_request *r, int timeout_ms,
                            const Moed__V1__FromWorker **out, struct moed_error *error)
{
    enum moed_code code = take(r, timeout_ms, error);
    if (!code)
        code = settle(r, error);
    if (!code)
        *out = r->held->body;
    return code;
}

static void remember_result(struct moed_request *r, const Moed__V1__Done *done)
{
    bool known = done->reason >= MOED__V1__DONE__REASON__NONE &&
                 done->reason <= MOED__V1__DONE__REASON__CANCELLED;
    r->done = true;
    r->result = (struct moed_result){
        .reason = known ? (enum moed_reason)done->reason : MOED_REASON_NONE,
        .prompt_tokens = done->prompt_tokens,
        .generated_tokens = done->generated_tokens,
        .queue_ns = done->queue_ns,
        .prefill_ns = done->prefill_ns,
        .decode_ns = done->decode_ns,
    };
}

static void fill_routing(const Moed__V1__Routing *from, struct moed_routing *out)
{
    *out = (struct moed_routing){
        .first = from->first,
        .token_count = from->tokens,
        .selected = (const uint16_t *)(const void *)from->selected.data, /* malloc'ed, as all are */
        .selected_count = from->selected.len / sizeof(uint16_t),
        .gate = from->gate.len ? (const float *)(const void *)from->gate.data : NULL,
        .gate_count = from->gate.len / sizeof(float),
        .hidden_at = from->hidden_at,
        .hidden_at_count = from->n_hidden_at,
        .hidden = (const uint16_t *)(const void *)from->hidden.data,
        .hidden_count = from->hidden.len / sizeof(uint16_t),
    };
}

static void fill_event(struct moed_request *r, struct moed_event *event)
{
    const Moed__V1__FromWorker *body = r->held ? r->held->body : NULL;
    *event = (struct moed_event){.kind = MOED_EVENT_DONE, .text = ""};
    if (body && body->body_case == MOED__V1__FROM_WORKER__BODY_TOKENS) {
        event->kind = MOED_EVENT_TOKENS;
        event->tokens = body->tokens->tokens;
        event->token_count = body->tokens->n_tokens;
        if (body->tokens->text.len) {
            event->text = (const char *)body->tokens->text.data;
            event->text_bytes = body->tokens->text.len;
        }
    } else if (body && body->body_case == MOED__V1__FROM_WORKER__BODY_LOGITS) {
        event->kind = MOED_EVENT_ROW;
        event->row = body->logits->row;
        event->logits = (const float *)(const void *)body->logits->logits.data; /* malloc'ed */
        event->logit_count = body->logits->logits.len / sizeof(float);
    } else if (body && body->body_case == MOED__V1__FROM_WORKER__BODY_LOGPROBS) {
        event->kind = MOED_EVENT_LOGPROBS;
        event->first = body->logprobs->first;
        event->logprobs = (const float *)(const void *)body->logprobs->logprobs.data;
        event->logprob_count = body->logprobs->logprobs.len / sizeof(float);
    } else if (body && body->body_case == MOED__V1__FROM_WORKER__BODY_ROUTING) {
        event->kind = MOED_EVENT_ROUTING;
        fill_routing(body->routing, &event->routing);
    } else {
        event->result = r->result;
    }
}

enum moed_code moed_request_next(struct moed_request *r, int timeout_ms, struct moed_event *event,
                                 struct moed_error *error)
{
    enum moed_code code = take(r, timeout_ms, error);
    if (!code && !r->done)
        code = settle(r, error);
    if (code)
        return code;
    if (r->held && r->held->body->body_case == MOED__V1__FROM_WORKER__BODY_DONE)
        remember_result(r, r->held->body->done);
    fill_event(r, event);
    return MOED_OK;
}

int moed_request_fd(struct moed_request *r)
{
    pthread_mutex_lock(&r->session->lock);
    if (r->event_fd < 0) {
        r->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (r->event_fd >= 0 && (r->first || r->ended))
            wake(r);
    }
    int fd = r->event_fd;
    pthread_mutex_unlock(&r->session->lock);
    return fd;
}

void moed_request_cancel(struct moed_request *r)
{
    pthread_mutex_lock(&r->session->lock);
    bool running = !r->ended;
    pthread_mutex_unlock(&r->session->lock);
    if (!running)
        return;
    Moed__V1__Cancel cancel = MOED__V1__CANCEL__INIT;
    Moed__V1__ToWorker body = MOED__V1__TO_WORKER__INIT;
    body.abi = CONTROL_ABI;
    body.id = r->id;
    body.body_case = MOED__V1__TO_WORKER__BODY_CANCEL;
    body.cancel = &cancel;
    session_send(r->session, &body, NULL); /* a closed channel cancels as well */
}

void moed_request_free(struct moed_request *r)
{
    if (!r)
        return;
    struct moed_session *s = r->session;
    moed_request_cancel(r);
    uint32_t events = request_destroy(r);
    if (events)
        session_consumed(s, events);
    session_unref(s);
}
