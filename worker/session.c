/* Frontends and their channels; see session.h.
 *
 * A frontend's life: attach (control thread) makes it and its channel; messages come on the channel's thread;
 * when the channel closes, that thread posts it to the engine, which ends its requests and releases it; the
 * reaper thread then closes the channel (that may wait, so it is nobody else's job) and frees it.
 */
#include "session.h"

#include "base/clock.h"
#include "base/log.h"
#include "daemon/decode_limit.h"
#include "daemon/run_dir.h"
#include "engine.h"
#include "ipc/channel.h"
#include "ipc/rpc.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PEER_TIMEOUT_MS 10000
#define MAX_FRONTENDS   256

struct frontend {
    struct frontend *next; /* in the list of all, or of those to reap; guarded by sessions->lock */
    struct sessions *sessions;
    struct channel *channel;
    pthread_mutex_t ready; /* held while the channel is being made: no message is handled before */
    uint32_t number;
    _Atomic int64_t window; /* events that may still be sent */
    _Atomic bool closed;
};

struct sessions {
    char run[RUN_DIR_BYTES];
    struct session_model model;
    struct engine *engine;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct frontend *all, *to_reap;
    uint32_t n_all, last_number;
    bool stopping;
    pthread_t reaper;
    bool reaper_started;
};

/* ---- sending ---- */

/* Once, whoever sees it first: the channel's thread, or the engine that cannot send. */
static void close_frontend(struct frontend *f)
{
    if (atomic_exchange(&f->closed, true))
        return;
    pthread_mutex_lock(&f->sessions->lock);
    bool stopping = f->sessions->stopping; /* then sessions_free frees it, and the engine has ended */
    pthread_mutex_unlock(&f->sessions->lock);
    if (!stopping)
        engine_close_frontend(f->sessions->engine, f);
}

/* An event lost would be a wrong answer: a frontend that cannot be sent to is dropped. */
static void send_message(struct frontend *f, Moed__V1__FromWorker *m)
{
    if (atomic_load(&f->closed))
        return;
    m->abi = CONTROL_ABI;
    uint8_t small[2048], *data = small;
    size_t len = moed__v1__from_worker__get_packed_size(m);
    struct error e;
    enum error_code code = ERROR_OK;
    if (len > sizeof small && !(data = malloc(len)))
        code = error_set(&e, ERROR_MEMORY, "no memory for an event of %zu bytes", len);
    if (!code) {
        moed__v1__from_worker__pack(m, data);
        code = channel_send(f->channel, data, len, &e);
    }
    if (code && code != ERROR_UNAVAILABLE)
        log_warn("frontend %" PRIu32 " is dropped: %s", f->number, e.text);
    if (code)
        close_frontend(f);
    if (data != small)
        free(data);
}

void frontend_send_error(struct frontend *f, uint64_t id, enum error_code code, const char *text)
{
    Moed__V1__Error error = MOED__V1__ERROR__INIT;
    error.code = code;
    error.message = (char *)text;
    error.retry = code == ERROR_UNAVAILABLE;
    Moed__V1__FromWorker m = MOED__V1__FROM_WORKER__INIT;
    m.id = id;
    m.body_case = MOED__V1__FROM_WORKER__BODY_ERROR;
    m.error = &error;
    send_message(f, &m);
}

void frontend_send_tokens(struct frontend *f, uint64_t id, const uint32_t *tokens, size_t n_tokens,
                          const struct strbuf *text)
{
    Moed__V1__Tokens event = MOED__V1__TOKENS__INIT;
    event.n_tokens = n_tokens;
    event.tokens = (uint32_t *)tokens;
    event.text = (ProtobufCBinaryData){text->len, (uint8_t *)text->data};
    Moed__V1__FromWorker m = MOED__V1__FROM_WORKER__INIT;
    m.id = id;
    m.body_case = MOED__V1__FROM_WORKER__BODY_TOKENS;
    m.tokens = &event;
    send_message(f, &m);
}

void frontend_send_logits(struct frontend *f, uint64_t id, uint32_t row, const float *logits,
                          uint32_t n)
{
    Moed__V1__LogitsRow event = MOED__V1__LOGITS_ROW__INIT;
    event.row = row;
    event.logits = (ProtobufCBinaryData){n * sizeof *logits, (uint8_t *)logits};
    Moed__V1__FromWorker m = MOED__V1__FROM_WORKER__INIT;
    m.id = id;
    m.body_case = MOED__V1__FROM_WORKER__BODY_LOGITS;
    m.logits = &event;
    send_message(f, &m);
}

void frontend_send_done(struct frontend *f, const struct request *r, enum finish_reason reason)
{
    Moed__V1__Done done = MOED__V1__DONE__INIT;
    done.reason = (Moed__V1__Done__Reason)reason;
    done.prompt_tokens = r->n_prompt;
    done.generated_tokens = r->n_generated;
    uint64_t started = r->started_ns ? r->started_ns : clock_ns();
    done.queue_ns = started - r->submitted_ns;
    done.prefill_ns = (r->first_ns ? r->first_ns : clock_ns()) - started;
    done.decode_ns = r->last_ns > r->first_ns ? r->last_ns - r->first_ns : 0;
    Moed__V1__FromWorker m = MOED__V1__FROM_WORKER__INIT;
    m.id = r->id;
    m.body_case = MOED__V1__FROM_WORKER__BODY_DONE;
    m.done = &done;
    send_message(f, &m);
}

bool frontend_take_credit(struct frontend *f)
{
    if (atomic_fetch_sub(&f->window, 1) > 0 || atomic_load(&f->closed))
        return true;
    atomic_fetch_add(&f->window, 1);
    return false;
}

void frontend_return_credit(struct frontend *f)
{
    atomic_fetch_add(&f->window, 1);
}

/* ---- what a frontend asks ---- */

static void refuse(struct frontend *f, uint64_t id, enum error_code code, const struct error *e)
{
    frontend_send_error(f, id, code, e->text);
}

static void answer_tokenize(struct frontend *f, uint64_t id, const Moed__V1__TokenizeRequest *q)
{
    struct token_list list = {0};
    struct error e;
    unsigned flags = (q->add_special ? TOKENIZE_ADD_SPECIAL : 0u) |
                     (q->parse_special ? TOKENIZE_PARSE_SPECIAL : 0u);
    enum error_code code = tokenizer_encode(f->sessions->model.tokenizer, (const char *)q->text.data,
                                            q->text.len, flags, &list, &e);
    if (code) {
        refuse(f, id, code, &e);
    } else {
        Moed__V1__TokenizeReply reply = MOED__V1__TOKENIZE_REPLY__INIT;
        reply.n_tokens = list.count;
        reply.tokens = list.ids;
        Moed__V1__FromWorker m = MOED__V1__FROM_WORKER__INIT;
        m.id = id;
        m.body_case = MOED__V1__FROM_WORKER__BODY_TOKENIZE;
        m.tokenize = &reply;
        send_message(f, &m);
    }
    token_list_fini(&list);
}

static void answer_detokenize(struct frontend *f, uint64_t id,
                              const Moed__V1__DetokenizeRequest *q)
{
    struct strbuf text;
    struct error e;
    strbuf_init(&text);
    enum error_code code = tokenizer_decode(f->sessions->model.tokenizer, q->tokens, q->n_tokens,
                                            q->special, &text, &e);
    if (code) {
        refuse(f, id, code, &e);
    } else {
        Moed__V1__DetokenizeReply reply = MOED__V1__DETOKENIZE_REPLY__INIT;
        reply.text = (ProtobufCBinaryData){text.len, (uint8_t *)text.data};
        Moed__V1__FromWorker m = MOED__V1__FROM_WORKER__INIT;
        m.id = id;
        m.body_case = MOED__V1__FROM_WORKER__BODY_DETOKENIZE;
        m.detokenize = &reply;
        send_message(f, &m);
    }
    strbuf_fini(&text);
}

static void answer_model(struct frontend *f, uint64_t id)
{
    const struct session_model *model = &f->sessions->model;
    const struct pool_header *h = model->map->header;
    const struct model_params *p = &model->map->params;
    Moed__V1__ModelReply reply = MOED__V1__MODEL_REPLY__INIT;
    reply.name = (char *)p->name;
    reply.architecture = (char *)p->arch->name;
    reply.path = (char *)h->path;
    reply.parameters = h->parameters;
    reply.file_bytes = h->file_bytes;
    reply.layers = p->n_layers;
    reply.d_model = p->d_model;
    reply.experts = p->n_experts;
    reply.experts_used = p->n_used;
    reply.vocab = p->vocab;
    reply.context = model->context;
    reply.context_trained = p->context_trained;
    reply.device = (char *)model->device;
    reply.bos = tokenizer_bos(model->tokenizer);
    reply.eos = tokenizer_eos(model->tokenizer);
    reply.chat_template = (char *)model->chat_template;
    Moed__V1__FromWorker m = MOED__V1__FROM_WORKER__INIT;
    m.id = id;
    m.body_case = MOED__V1__FROM_WORKER__BODY_MODEL;
    m.model = &reply;
    send_message(f, &m);
}

static enum error_code check_tokens(const struct session_model *model, const struct token_list *list,
                                    bool answers, struct error *e)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->ids[i] >= model->map->params.vocab)
            return error_set(e, ERROR_USAGE,
                             "token %" PRIu32 " is not in the vocabulary of %" PRIu32, list->ids[i],
                             model->map->params.vocab);
    if (list->count == 0)
        return error_set(e, ERROR_USAGE, "the prompt is empty: give at least one token");
    if (list->count + (answers ? 1 : 0) > model->context)
        return error_set(e, ERROR_LIMIT,
                         "the prompt has %zu tokens, the context is %" PRIu32
                         ": shorten it, or start the deployment with a larger --ctx",
                         list->count, model->context);
    return ERROR_OK;
}

static enum error_code copy_tokens(struct request *r, const uint32_t *ids, size_t n,
                                   struct error *e)
{
    for (size_t i = 0; i < n; i++)
        if (!token_list_push(&r->tokens, ids[i]))
            return error_set(e, ERROR_MEMORY, "no memory for the prompt");
    return ERROR_OK;
}

static float or_default(float value, float absent)
{
    return value == 0 ? absent : value;
}

static enum error_code take_sampling(struct request *r, const Moed__V1__Sampling *s,
                                     struct error *e)
{
    r->sampling = (struct sampling){.top_p = 1, .repetition_penalty = 1};
    if (!s)
        return ERROR_OK;
    r->sampling = (struct sampling){
        .temperature = s->temperature,
        .top_k = s->top_k,
        .top_p = or_default(s->top_p, 1),
        .min_p = s->min_p,
        .repetition_penalty = or_default(s->repetition_penalty, 1),
        .repetition_window = s->repetition_window ? s->repetition_window : 64,
        .seed = s->seed,
    };
    if (!(s->temperature >= 0 && s->temperature <= 100) || !(s->top_p >= 0 && s->top_p <= 1) ||
        !(s->min_p >= 0 && s->min_p <= 1) ||
        !(s->repetition_penalty >= 0 && s->repetition_penalty <= 100))
        return error_set(e, ERROR_USAGE,
                         "sampling: expected temperature 0-100, top-p and min-p 0-1, repetition "
                         "penalty 0-100");
    return ERROR_OK;
}

static enum error_code take_stops(struct request *r, const Moed__V1__Generate *q, struct error *e)
{
    if (q->n_stop > REQUEST_MAX_STOPS)
        return error_set(e, ERROR_LIMIT, "%zu stop strings: at most %d are taken", q->n_stop,
                         REQUEST_MAX_STOPS);
    for (size_t i = 0; i < q->n_stop; i++) {
        if (q->stop[i].len == 0)
            continue;
        strbuf_append(&r->stops[r->n_stops], q->stop[i].data, q->stop[i].len);
        if (r->stops[r->n_stops++].failed)
            return error_set(e, ERROR_MEMORY, "no memory for the stop strings");
    }
    return ERROR_OK;
}

static enum error_code take_prompt(struct frontend *f, struct request *r,
                                   const Moed__V1__Generate *q, struct error *e)
{
    const struct tokenizer *t = f->sessions->model.tokenizer;
    if (q->prompt.len == 0 && q->n_tokens)
        return copy_tokens(r, q->tokens, q->n_tokens, e);
    unsigned flags = TOKENIZE_ADD_SPECIAL | (q->parse_special ? TOKENIZE_PARSE_SPECIAL : 0u);
    return tokenizer_encode(t, (const char *)q->prompt.data, q->prompt.len, flags, &r->tokens, e);
}

static enum error_code build_generate(struct frontend *f, struct request *r,
                                      const Moed__V1__Generate *q, struct error *e)
{
    r->max_tokens = q->max_tokens;
    r->ignore_end = q->ignore_end;
    enum error_code code = take_sampling(r, q->sampling, e);
    if (!code)
        code = take_stops(r, q, e);
    if (!code)
        code = take_prompt(f, r, q, e);
    return code ? code : check_tokens(&f->sessions->model, &r->tokens, true, e);
}

static enum error_code build_logits(struct frontend *f, struct request *r,
                                    const Moed__V1__LogitsRequest *q, struct error *e)
{
    r->stepwise = q->stepwise;
    enum error_code code = copy_tokens(r, q->tokens, q->n_tokens, e);
    return code ? code : check_tokens(&f->sessions->model, &r->tokens, false, e);
}

static void submit(struct frontend *f, const Moed__V1__ToWorker *m)
{
    bool generate = m->body_case == MOED__V1__TO_WORKER__BODY_GENERATE;
    struct error e;
    struct request *r = request_new(f->sessions->model.tokenizer, f, m->id,
                                    generate ? REQUEST_GENERATE : REQUEST_LOGITS);
    enum error_code code = r ? ERROR_OK : error_set(&e, ERROR_MEMORY, "no memory for the request");
    if (!code)
        code = generate ? build_generate(f, r, m->generate, &e) : build_logits(f, r, m->logits, &e);
    if (code) {
        refuse(f, m->id, code, &e);
        request_free(r);
        return;
    }
    r->n_prompt = (uint32_t)r->tokens.count;
    engine_submit(f->sessions->engine, r);
}

static void acknowledge(struct frontend *f, uint32_t events)
{
    int64_t window = atomic_load(&f->window), more;
    do { /* never above the window: a frontend cannot lift its own limit */
        more = window + events > SESSION_WINDOW ? SESSION_WINDOW : window + events;
    } while (!atomic_compare_exchange_weak(&f->window, &window, more));
    if (window <= 0)
        engine_wake(f->sessions->engine);
}

static void dispatch(struct frontend *f, const Moed__V1__ToWorker *m)
{
    struct error e;
    switch (m->body_case) {
    case MOED__V1__TO_WORKER__BODY_GENERATE:
    case MOED__V1__TO_WORKER__BODY_LOGITS:
        submit(f, m);
        break;
    case MOED__V1__TO_WORKER__BODY_CANCEL:
        engine_cancel(f->sessions->engine, f, m->id);
        break;
    case MOED__V1__TO_WORKER__BODY_ACK:
        acknowledge(f, m->ack->events);
        break;
    case MOED__V1__TO_WORKER__BODY_TOKENIZE:
        answer_tokenize(f, m->id, m->tokenize);
        break;
    case MOED__V1__TO_WORKER__BODY_DETOKENIZE:
        answer_detokenize(f, m->id, m->detokenize);
        break;
    case MOED__V1__TO_WORKER__BODY_MODEL:
        answer_model(f, m->id);
        break;
    default:
        error_set(&e, ERROR_PROTOCOL, "a message of no known kind");
        refuse(f, m->id, ERROR_PROTOCOL, &e);
    }
}

static void handle_message(struct frontend *f, const uint8_t *data, size_t len)
{
    struct decode_limit limit;
    struct error e;
    decode_limit_init(&limit, DECODE_LIMIT_BYTES);
    Moed__V1__ToWorker *m = moed__v1__to_worker__unpack(&limit.allocator, len, data);
    if (!m) {
        error_set(&e, ERROR_PROTOCOL, "a message of %zu bytes that cannot be decoded", len);
        refuse(f, 0, ERROR_PROTOCOL, &e);
        return;
    }
    if (m->abi != CONTROL_ABI) {
        error_set(&e, ERROR_VERSION, "the message is of protocol version %" PRIu32 ", expected %u",
                  m->abi, CONTROL_ABI);
        refuse(f, m->id, ERROR_VERSION, &e);
    } else {
        dispatch(f, m);
    }
    moed__v1__to_worker__free_unpacked(m, NULL);
}

static void on_channel(void *arg, const uint8_t *data, size_t len)
{
    struct frontend *f = arg;
    pthread_mutex_lock(&f->ready); /* until attach has stored the channel */
    pthread_mutex_unlock(&f->ready);
    if (data) {
        handle_message(f, data, len);
        return;
    }
    close_frontend(f);
}

/* ---- making and reaping ---- */

static void reap(struct frontend *f)
{
    channel_close(f->channel, 200);
    pthread_mutex_destroy(&f->ready);
    free(f);
}

static void *reaper_main(void *arg)
{
    struct sessions *s = arg;
    pthread_setname_np(pthread_self(), "worker/reaper");
    pthread_mutex_lock(&s->lock);
    while (!s->stopping || s->to_reap) {
        struct frontend *f = s->to_reap;
        if (!f) {
            pthread_cond_wait(&s->changed, &s->lock);
            continue;
        }
        s->to_reap = f->next;
        pthread_mutex_unlock(&s->lock);
        reap(f);
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
    while (s->all) { /* still open: the engine has ended their requests */
        struct frontend *f = s->all;
        s->all = f->next;
        reap(f);
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
    for (struct frontend **p = &s->all; *p; p = &(*p)->next)
        if (*p == f) {
            *p = f->next;
            s->n_all--;
            break;
        }
    f->next = s->to_reap;
    s->to_reap = f;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
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
    pthread_mutex_init(&f->ready, NULL);
    f->number = enter(s, f);
    if (!f->number) {
        pthread_mutex_destroy(&f->ready);
        free(f);
        return error_set(e, ERROR_LIMIT, "%d frontends are attached: no more are taken",
                         MAX_FRONTENDS);
    }
    char file[32], own_url[RUN_URL_BYTES];
    snprintf(file, sizeof file, "session-%" PRIu32 ".sock", f->number);
    run_dir_url(s->run, file, own_url);
    pthread_mutex_lock(&f->ready);
    enum error_code code =
        channel_listen(own_url, PEER_TIMEOUT_MS, on_channel, f, &f->channel, e);
    pthread_mutex_unlock(&f->ready);
    if (code) {
        frontend_release(f);
        return code;
    }
    log_info("frontend %" PRIu32 " attached: %.40s (pid %" PRIu32 ")", f->number,
             client[0] ? client : "a program", pid);
    snprintf(url, url_bytes, "%s", own_url);
    return ERROR_OK;
}
