/* Requests: what was asked, the checks of what comes for it, and handing that to the program.
 *
 *     started --(the mailbox ends: Done, Error, a reply, a failure)--> ended
 *
 * The channel's thread appends to the mailbox (request_deliver); the one thread that consumes takes
 * from it (moed_request_next). Once the mailbox is empty, moed_request_next returns the result or
 * the failure for good. */
#include "client/src/request.h"

#include "client/src/chat_reader.h"
#include "client/src/error.h"
#include "client/src/event.h"
#include "base/clock.h"
#include "ipc/rpc.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct moed_request {
    struct mailbox mailbox; /* first: request_find converts */
    struct moed_session *session;
    Moed__V1__ToWorker__BodyCase kind; /* decides which answers are legal */
    struct message *held;              /* the latest event points into it */
    bool done;                         /* MOED_EVENT_DONE was returned */
    struct event_box box;              /* the latest event; result.seed is set from the start */
    struct chat_reader *reader;        /* of a chat\'s answer; owned. NULL: of no chat */
    _Atomic bool complete;             /* moed_request_finish was called */
    bool over;                         /* of the chat's answer nothing more is needed; changes under
                                          session->lock */
    size_t taken;                      /* tokens of the chat's answer */
    uint64_t next_row; /* of the next event: a row, else the first token that it speaks of */
    uint64_t end_row;  /* of logprobs: behind the last */
    bool records, logprobs, progress; /* of a generation: what was asked for */
    bool rendered;                    /* of a generation: a chat template made its prompt */
    size_t top;                       /* most probable tokens at each place */
    size_t vocab;                     /* values of the first row of logits */

    /* To continue with another worker; session->lock guards them. */
    uint8_t *sent; /* the packed message; owned */
    size_t sent_bytes;
    uint32_t *answer; /* the tokens that have come; owned */
    size_t n_answer, answer_capacity;
    uint64_t text_bytes; /* of the answer, that have come */
    float mirostat_mu;   /* the last */
    bool answer_lost;    /* there was no memory for a token */
    bool cancelled;
    uint32_t resumed;
    uint32_t deadline_ms;                     /* of a generation; 0: none */
    uint64_t submitted_ns, first_ns, last_ns; /* of the answer's tokens; 0: none yet */
    bool started;                             /* tokens or progress have come */
    bool begun;                               /* the first worker that sent tokens said: */
    uint32_t prompt_tokens, cached_tokens;
    uint64_t queue_ns;
    uint32_t lost_before; /* mailbox.workers_lost when the last token came */
};

/* ---- The channel's side; session->lock is held ---- */

struct moed_request *request_find(struct moed_session *s, uint64_t id)
{
    struct mailbox *m = s->mailboxes;
    while (m && m->id != id)
        m = m->next;
    return (struct moed_request *)m;
}

/* Rows come in order and have the same whole number of floats. */
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

/* Values for n places, and as many most probable tokens at each as the program asked for. */
static bool tops_fit(const struct moed_request *r, size_t n, const ProtobufCBinaryData *values,
                     size_t n_top_tokens, const ProtobufCBinaryData *tops)
{
    return values->len == n * sizeof(float) && n_top_tokens == n * r->top &&
           tops->len == n * r->top * sizeof(float);
}

static bool done_fits(const struct moed_request *r, const Moed__V1__Done *done)
{
    const Moed__V1__Logprobs *end = done->end_logprobs;
    return !end || (r->logprobs && done->end_token >= 0 &&
                    tops_fit(r, 1, &end->logprobs, end->n_top_tokens, &end->top_logprobs));
}

static bool tokens_fit(const struct moed_request *r, const Moed__V1__Tokens *some)
{
    size_t n = r->logprobs && !some->forced ? some->n_tokens : 0;
    bool sized = !some->n_token_bytes || some->n_token_bytes == some->n_tokens;
    return sized && tops_fit(r, n, &some->logprobs, some->n_top_tokens, &some->top_logprobs);
}

/* Logprobs come in order, at most as many as the program asked for. */
static bool logprobs_fit(struct moed_request *r, const Moed__V1__Logprobs *some)
{
    size_t n = some->logprobs.len / sizeof(float);
    if (!n || some->logprobs.len % sizeof(float) || some->first != r->next_row ||
        n > r->end_row - r->next_row ||
        !tops_fit(r, n, &some->logprobs, some->n_top_tokens, &some->top_logprobs))
        return false;
    r->next_row += n;
    return true;
}

/* Tokens come in order. Each has the same whole number of choices and probabilities. */
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

static bool is_legal(struct moed_request *r, const Moed__V1__FromWorker *body)
{
    bool streams = r->kind == MOED__V1__TO_WORKER__BODY_GENERATE ||
                   r->kind == MOED__V1__TO_WORKER__BODY_LOGITS ||
                   r->kind == MOED__V1__TO_WORKER__BODY_LOGPROBS;
    switch (body->body_case) {
    case MOED__V1__FROM_WORKER__BODY_ERROR:
        return true;
    case MOED__V1__FROM_WORKER__BODY_DONE:
        return streams && done_fits(r, body->done);
    case MOED__V1__FROM_WORKER__BODY_TOKENS:
        return r->kind == MOED__V1__TO_WORKER__BODY_GENERATE && tokens_fit(r, body->tokens);
    case MOED__V1__FROM_WORKER__BODY_PROGRESS:
        return r->progress;
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

static void note_begin(struct moed_request *r, const Moed__V1__Begun *begun)
{
    if (r->begun)
        return;
    r->begun = true;
    r->prompt_tokens = begun->prompt_tokens;
    r->cached_tokens = begun->cached_tokens;
    r->queue_ns = begun->queue_ns;
}

static void remember_tokens(struct moed_request *r, const Moed__V1__Tokens *some)
{
    size_t n = r->n_answer + some->n_tokens;
    if (some->n_tokens) {
        r->last_ns = clock_ns();
        r->first_ns = r->first_ns ? r->first_ns : r->last_ns;
        r->lost_before = r->mailbox.workers_lost;
    }
    if (some->begun)
        note_begin(r, some->begun);
    r->text_bytes += some->text.len;
    r->mirostat_mu = some->mirostat_mu;
    if (n > r->answer_capacity && !r->answer_lost) {
        size_t capacity = n + r->answer_capacity + 64;
        uint32_t *more = realloc(r->answer, capacity * sizeof *more);
        r->answer_lost = !more;
        r->answer = more ? more : r->answer;
        r->answer_capacity = more ? capacity : r->answer_capacity;
    }
    for (size_t i = 0; i < some->n_tokens && !r->answer_lost; i++)
        r->answer[r->n_answer++] = some->tokens[i];
}

/* No single worker knows these of an answer that several generated. */
static void measure_whole(const struct moed_request *r, Moed__V1__Done *done)
{
    uint64_t first_ns = r->first_ns ? r->first_ns : clock_ns(), until = first_ns - r->submitted_ns;
    if (r->begun) {
        done->prompt_tokens = r->prompt_tokens;
        done->cached_tokens = r->cached_tokens;
    }
    done->queue_ns = r->queue_ns < until ? r->queue_ns : until;
    done->prefill_ns = until - done->queue_ns;
    done->decode_ns = r->last_ns - r->first_ns;
}

enum delivery request_deliver(struct moed_request *r, Moed__V1__FromWorker *body)
{
    if (!is_legal(r, body))
        return DELIVERY_ILLEGAL;
    if (r->over && body->body_case == MOED__V1__FROM_WORKER__BODY_TOKENS)
        return DELIVERY_SURPLUS;
    if (body->body_case == MOED__V1__FROM_WORKER__BODY_DONE && r->resumed)
        measure_whole(r, body->done);
    if (body->body_case == MOED__V1__FROM_WORKER__BODY_TOKENS)
        remember_tokens(r, body->tokens);
    r->started |= body->body_case == MOED__V1__FROM_WORKER__BODY_TOKENS ||
                  body->body_case == MOED__V1__FROM_WORKER__BODY_PROGRESS;
    mailbox_append(&r->mailbox, body);
    if (r->mailbox.ended)
        session_remove(r->session, &r->mailbox);
    return DELIVERY_QUEUED;
}

/* ---- Another worker ---- */

/* A request that kills its worker must not kill every next one: so many workers may go after the
 * last token of it, the one that sent it included. */
#define MOST_FRUITLESS 3

static bool is_question(const struct moed_request *r)
{
    return r->kind == MOED__V1__TO_WORKER__BODY_TOKENIZE ||
           r->kind == MOED__V1__TO_WORKER__BODY_DETOKENIZE ||
           r->kind == MOED__V1__TO_WORKER__BODY_MODEL;
}

/* What is left of the deadline; 0: there is none, or the request has started. False: nothing. */
static bool deadline_left(const struct moed_request *r, uint32_t *left_ms)
{
    uint64_t waited_ms = (clock_ns() - r->submitted_ns) / 1000000;
    bool counts = r->deadline_ms && !r->started;
    *left_ms = counts && waited_ms < r->deadline_ms ? r->deadline_ms - (uint32_t)waited_ms : 0;
    return !counts || *left_ms;
}

/* A generation continues behind the tokens that have come, a question is asked again; others cannot
 * be continued. */
struct resend request_resend(struct moed_request *r)
{
    struct resend out = {.id = r->mailbox.id};
    uint32_t left_ms;
    bool generates = r->kind == MOED__V1__TO_WORKER__BODY_GENERATE && !r->records;
    if (!r->sent || r->cancelled || r->answer_lost || !(generates || is_question(r)) ||
        !deadline_left(r, &left_ms) || r->mailbox.workers_lost - r->lost_before > MOST_FRUITLESS)
        return out;
    Moed__V1__ToWorker *body = moed__v1__to_worker__unpack(NULL, r->sent_bytes, r->sent);
    if (!body)
        return out;
    if (generates) {
        body->generate->answer = r->answer;
        body->generate->n_answer = r->n_answer;
        body->generate->answer_bytes = r->text_bytes;
        body->generate->resumed = r->mailbox.workers_lost > 0;
        body->generate->deadline_ms = left_ms;
        if (body->generate->sampling && r->n_answer) {
            body->generate->sampling->has_mirostat_mu = true;
            body->generate->sampling->mirostat_mu = r->mirostat_mu;
        }
    }
    out.len = moed__v1__to_worker__get_packed_size(body);
    out.data = malloc(out.len);
    if (out.data)
        moed__v1__to_worker__pack(body, out.data);
    if (generates) {
        body->generate->answer = NULL;
        body->generate->n_answer = 0;
    }
    moed__v1__to_worker__free_unpacked(body, NULL);
    r->resumed += out.data != NULL;
    return out;
}

/* The end of a cancelled generation, as the worker would have sent it. NULL: no memory. */
static Moed__V1__FromWorker *make_cancelled(const struct moed_request *r)
{
    Moed__V1__FromWorker *body = calloc(1, sizeof *body);
    Moed__V1__Done *done = calloc(1, sizeof *done);
    if (!body || !done) {
        free(body);
        free(done);
        return NULL;
    }
    moed__v1__from_worker__init(body);
    moed__v1__done__init(done);
    done->reason = MOED__V1__DONE__REASON__CANCELLED;
    done->generated_tokens = (uint32_t)r->n_answer;
    measure_whole(r, done);
    body->body_case = MOED__V1__FROM_WORKER__BODY_DONE;
    body->done = done;
    return body;
}

void request_give_up(struct moed_request *r, const struct moed_error *why)
{
    Moed__V1__FromWorker *end = r->cancelled ? make_cancelled(r) : NULL;
    struct moed_error usual;
    uint32_t left_ms;
    if (deadline_left(r, &left_ms))
        error_report(&usual, MOED_ERROR_UNAVAILABLE, true, SESSION_GONE);
    else
        error_report(&usual, MOED_ERROR_TIMEOUT, false,
                     "the worker has gone, and nothing of the answer came before the deadline");
    session_remove(r->session, &r->mailbox);
    if (end)
        mailbox_append(&r->mailbox, end);
    else
        mailbox_fail(&r->mailbox, why ? why : &usual);
}

void request_end_cancelled(struct moed_request *r)
{
    if (r->cancelled && r->mailbox.owed && !r->mailbox.ended && !is_question(r))
        request_give_up(r, NULL);
}

bool request_is_cancelled(const struct moed_request *r)
{
    return r->cancelled;
}

bool request_is_complete(const struct moed_request *r)
{
    return r->complete;
}

/* ---- The program's side ---- */

static struct moed_request *request_new(struct moed_session *s, const Moed__V1__ToWorker *body)
{
    struct moed_request *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    mailbox_init(&r->mailbox);
    r->session = s;
    r->kind = body->body_case;
    if (r->kind == MOED__V1__TO_WORKER__BODY_LOGPROBS) {
        r->next_row = body->logprobs->first;
        r->end_row = body->logprobs->n_tokens;
        r->top = body->logprobs->top;
    } else if (r->kind == MOED__V1__TO_WORKER__BODY_GENERATE) {
        r->records = body->generate->record;
        r->rendered = body->generate->rendered;
        r->logprobs = body->generate->logprobs;
        r->progress = body->generate->progress;
        r->deadline_ms = body->generate->deadline_ms;
        r->top = body->generate->logprobs ? body->generate->top_logprobs : 0;
        r->box.result.seed = body->generate->sampling->seed;
    }
    return r;
}

/* Takes the request off its session and frees it; sends nothing. Returns how many events were
 * never handed out. */
static uint32_t request_destroy(struct moed_request *r)
{
    struct moed_session *s = r->session;
    pthread_mutex_lock(&s->lock);
    session_remove(s, &r->mailbox);
    pthread_mutex_unlock(&s->lock);
    /* No other thread knows the request now. */
    uint32_t events = r->held && message_is_event(r->held->body);
    message_free(r->held);
    events += mailbox_fini(&r->mailbox);
    chat_reader_free(r->reader);
    free(r->sent);
    free(r->answer);
    free(r);
    return events;
}

/* Packs the message, under an id of its own, for the worker and for those after it. */
static enum moed_code request_pack(struct moed_request *r, Moed__V1__ToWorker *body,
                                   struct moed_error *error)
{
    body->abi = CONTROL_ABI;
    body->id = r->mailbox.id = session_new_id(r->session);
    r->sent_bytes = moed__v1__to_worker__get_packed_size(body);
    if (r->sent_bytes > RPC_MESSAGE_BYTES)
        return error_report(error, MOED_ERROR_LIMIT, false,
                            "the request has %zu bytes; a message may have at most %u",
                            r->sent_bytes, RPC_MESSAGE_BYTES);
    r->sent = malloc(r->sent_bytes);
    if (!r->sent)
        return error_report(error, MOED_ERROR_MEMORY, false, "no memory for a request of %zu bytes",
                            r->sent_bytes);
    moed__v1__to_worker__pack(body, r->sent);
    return MOED_OK;
}

enum moed_code request_start(struct moed_session *s, Moed__V1__ToWorker *body,
                             struct moed_request **out, struct moed_error *error)
{
    if (session_is_foreign(s, error))
        return MOED_ERROR_USAGE;
    struct moed_request *r = request_new(s, body);
    if (!r)
        return error_report(error, MOED_ERROR_MEMORY, false, "no memory for a request");
    uint64_t epoch;
    r->submitted_ns = clock_ns();
    enum moed_code code = request_pack(r, body, error);
    if (!code)
        code = session_add(s, &r->mailbox, &epoch, error);
    if (code) {
        request_destroy(r);
        return code;
    }
    code = session_send_new(s, &r->mailbox, epoch, r->sent, r->sent_bytes, error);
    if (code) {
        request_destroy(r);
        session_unref(s);
        return code;
    }
    *out = r;
    return MOED_OK;
}

/* Moves the front of the queue to `held`, in place of the message that the program has consumed.
 * MOED_OK with held NULL: the request has ended and its queue is empty. */
static enum moed_code take(struct moed_request *r, int timeout_ms, struct moed_error *error)
{
    struct moed_session *s = r->session;
    struct message *old = r->held;
    r->held = NULL;
    if (old && message_is_event(old->body))
        session_consumed(s, 1);
    message_free(old);

    pthread_mutex_lock(&s->lock);
    bool ready = mailbox_wait(&r->mailbox, &s->lock, timeout_ms);
    r->held = mailbox_take(&r->mailbox);
    pthread_mutex_unlock(&s->lock);
    if (!ready)
        return error_report(error, MOED_ERROR_TIMEOUT, true, "no answer within %d ms", timeout_ms);
    return MOED_OK;
}

/* A worker that does not know Generate.rendered refuses the token in its place. */
static bool refuses_rendered(const struct moed_request *r, const struct moed_error *why)
{
    char text[48];
    int n = snprintf(text, sizeof text, "token %" PRIu32 " is not in the vocabulary", UINT32_MAX);
    return r->rendered && why->code == MOED_ERROR_USAGE &&
           strncmp(why->message, text, (size_t)n) == 0;
}

/* Turns what take() found into MOED_OK (an event, an answer, the end) or the failure, which stays.
 * Reads `failed` and `failure` without the lock: with nothing held the mailbox has ended. */
static enum moed_code settle(struct moed_request *r, struct moed_error *error)
{
    if (r->held && r->held->body->body_case != MOED__V1__FROM_WORKER__BODY_ERROR)
        return MOED_OK;
    if (r->held) {
        struct moed_error *why = &r->mailbox.failure;
        error_from_wire(why, r->held->body->error);
        if (refuses_rendered(r, why))
            error_report(why, MOED_ERROR_VERSION, false,
                         "the worker is of an older build, which takes no chats of this one: "
                         "`moed upgrade` replaces it");
        r->mailbox.failed = true;
    }
    return r->mailbox.failed ? error_copy(error, &r->mailbox.failure) : MOED_OK;
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

static void end_complete(struct moed_result *result)
{
    result->reason = MOED_REASON_END;
    result->end_token = result->stop_index = -1;
}

/* The events that the worker sends until it has been cancelled are not the program's. */
static void drop_surplus(struct moed_request *r)
{
    struct moed_session *s = r->session;
    pthread_mutex_lock(&s->lock);
    r->over = true;
    uint32_t events = mailbox_drop(&r->mailbox, MOED__V1__FROM_WORKER__BODY_TOKENS);
    pthread_mutex_unlock(&s->lock);
    if (events)
        session_consumed(s, events);
}

/* The one call is complete, with the event's tokens or with the end. How far the worker has come
 * meanwhile has no part in the result. */
static void end_over(struct moed_request *r)
{
    struct moed_result *result = &r->box.result;
    bool cut = result->reason == MOED_REASON_LENGTH || result->reason == MOED_REASON_CONTEXT;
    if (!r->done && !r->over) {
        drop_surplus(r);
        r->taken -= chat_reader_surplus(r->reader);
        moed_request_finish(r);
    } else if (r->over) {
        result->generated_tokens = (uint32_t)r->taken;
    } else if (cut) {
        end_complete(result);
    }
}

/* Adds the parts of a chat's answer to the event. */
static enum moed_code read_parts(struct moed_request *r, struct moed_error *error)
{
    if (!chat_reader_take(r->reader, &r->box.event))
        return error_report(error, MOED_ERROR_MEMORY, false, "no memory for the answer");
    r->box.result.reasoning_tokens = chat_reader_reasoning_tokens(r->reader);
    r->taken += r->box.event.token_count;
    if (chat_reader_is_over(r->reader))
        end_over(r);
    return MOED_OK;
}

enum moed_code moed_request_next(struct moed_request *r, int timeout_ms,
                                 const struct moed_event **event, struct moed_error *error)
{
    if (session_is_foreign(r->session, error))
        return MOED_ERROR_USAGE;
    enum moed_code code = take(r, timeout_ms, error);
    if (!code && !r->done)
        code = settle(r, error);
    if (code)
        return code;
    const Moed__V1__FromWorker *body = r->held ? r->held->body : NULL;
    if (body && body->body_case == MOED__V1__FROM_WORKER__BODY_DONE) {
        event_fill_result(&r->box, body->done, r->kind == MOED__V1__TO_WORKER__BODY_GENERATE);
        r->box.result.resumed = r->resumed;
        if (r->complete)
            end_complete(&r->box.result);
        r->done = true;
    }
    event_fill(&r->box, body, r->logprobs, r->top);
    if (r->done && r->complete)
        r->box.event.logprob_count = 0; /* of the end token, which had no part in it */
    code = r->reader ? read_parts(r, error) : MOED_OK;
    if (!code)
        *event = &r->box.event;
    return code;
}

void request_set_reader(struct moed_request *r, struct chat_reader *reader)
{
    r->reader = reader;
}

const struct chat_reader *request_reader(const struct moed_request *r)
{
    return r->reader;
}

int moed_request_fd(struct moed_request *r)
{
    if (session_is_foreign(r->session, NULL))
        return -1;
    pthread_mutex_lock(&r->session->lock);
    int fd = mailbox_fd(&r->mailbox);
    pthread_mutex_unlock(&r->session->lock);
    return fd;
}

enum moed_code request_send_cancel(struct moed_session *s, uint64_t id, bool complete)
{
    Moed__V1__Cancel cancel = MOED__V1__CANCEL__INIT;
    cancel.complete = complete;
    Moed__V1__ToWorker body = MOED__V1__TO_WORKER__INIT;
    body.abi = CONTROL_ABI;
    body.id = id;
    body.body_case = MOED__V1__TO_WORKER__BODY_CANCEL;
    body.cancel = &cancel;
    return session_send(s, &body, NULL);
}

void moed_request_cancel(struct moed_request *r)
{
    if (session_is_foreign(r->session, NULL))
        return;
    pthread_mutex_lock(&r->session->lock);
    r->cancelled = true;
    request_end_cancelled(r);
    bool running = !r->mailbox.ended;
    pthread_mutex_unlock(&r->session->lock);
    if (running) /* a closed channel cancels as well */
        (void)request_send_cancel(r->session, r->mailbox.id, r->complete);
}

void moed_request_finish(struct moed_request *r)
{
    r->complete = true;
    moed_request_cancel(r);
}

void moed_request_free(struct moed_request *r)
{
    if (!r || session_is_foreign(r->session, NULL))
        return;
    struct moed_session *s = r->session;
    moed_request_cancel(r);
    uint32_t events = request_destroy(r);
    if (events)
        session_consumed(s, events);
    session_unref(s);
}
