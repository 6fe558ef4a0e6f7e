/* A frontend's messages: what it asks is answered or handed to the engine, and what the engine has for it is sent.
 * Its life is session.c's. */
#include "session_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "daemon/decode_limit.h"
#include "engine.h"
#include "ipc/channel.h"
#include "ipc/rpc.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- sending ---- */

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
        code = frontend_write(f, data, len, &e);
    }
    if (code && code != ERROR_UNAVAILABLE)
        log_warn("frontend %" PRIu32 " is dropped: %s", f->number, e.text);
    if (code)
        frontend_close(f);
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

void frontend_send_logprobs(struct frontend *f, uint64_t id, uint32_t first, const float *logprobs,
                            uint32_t n)
{
    Moed__V1__Logprobs event = MOED__V1__LOGPROBS__INIT;
    event.first = first;
    event.logprobs = (ProtobufCBinaryData){n * sizeof *logprobs, (uint8_t *)logprobs};
    Moed__V1__FromWorker m = MOED__V1__FROM_WORKER__INIT;
    m.id = id;
    m.body_case = MOED__V1__FROM_WORKER__BODY_LOGPROBS;
    m.logprobs = &event;
    send_message(f, &m);
}

void frontend_send_routing(struct frontend *f, uint64_t id, const struct recording_part *part)
{
    Moed__V1__Routing event = MOED__V1__ROUTING__INIT;
    event.first = part->first;
    event.tokens = part->n;
    event.selected = (ProtobufCBinaryData){part->selected_values * sizeof *part->selected,
                                           (uint8_t *)part->selected};
    event.gate =
        (ProtobufCBinaryData){part->gate_values * sizeof *part->gate, (uint8_t *)part->gate};
    event.n_hidden_at = part->n_hidden;
    event.hidden_at = (uint32_t *)part->hidden_at;
    event.hidden =
        (ProtobufCBinaryData){part->hidden_values * sizeof *part->hidden, (uint8_t *)part->hidden};
    Moed__V1__FromWorker m = MOED__V1__FROM_WORKER__INIT;
    m.id = id;
    m.body_case = MOED__V1__FROM_WORKER__BODY_ROUTING;
    m.routing = &event;
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
    enum error_code code = tokenizer_encode(
        f->sessions->model.tokenizer, (const char *)q->text.data, q->text.len, flags, &list, &e);
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

static void answer_detokenize(struct frontend *f, uint64_t id, const Moed__V1__DetokenizeRequest *q)
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
    reply.experts = p->router.n_experts;
    reply.experts_used = p->router.n_used;
    reply.dense_layers = p->n_dense;
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

static enum error_code check_tokens(const struct session_model *model,
                                    const struct token_list *list, bool answers, struct error *e)
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

/* After the prompt, whose length limits what a step computes. */
static enum error_code take_recording(struct frontend *f, struct request *r,
                                      const Moed__V1__Record *q, struct error *e)
{
    if (!q)
        return ERROR_OK;
    uint32_t most = r->tokens.count < PREFILL_TOKENS ? (uint32_t)r->tokens.count : PREFILL_TOKENS;
    struct recording_options options = {
        .gate = q->gate, .hidden_every = q->hidden_every, .hidden_phase = q->hidden_phase};
    r->stepwise = q->stepwise;
    r->prompt_only = q->prompt_only;
    return recording_new(&f->sessions->model.map->params, &options, r->stepwise ? 1 : most,
                         &r->recording, e);
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
    if (!code)
        code =
            check_tokens(&f->sessions->model, &r->tokens, !q->record || !q->record->prompt_only, e);
    return code ? code : take_recording(f, r, q->record, e);
}

static enum error_code build_logits(struct frontend *f, struct request *r,
                                    const Moed__V1__LogitsRequest *q, struct error *e)
{
    r->stepwise = q->stepwise;
    uint64_t row_bytes = f->sessions->model.map->params.vocab * (uint64_t)sizeof(float);
    if (row_bytes + 64 > RPC_MESSAGE_BYTES)
        return error_set(e, ERROR_LIMIT,
                         "a row of logits has %" PRIu64 " bytes, a message at most %u", row_bytes,
                         RPC_MESSAGE_BYTES);
    enum error_code code = copy_tokens(r, q->tokens, q->n_tokens, e);
    return code ? code : check_tokens(&f->sessions->model, &r->tokens, false, e);
}

static enum error_code build_logprobs(struct frontend *f, struct request *r,
                                      const Moed__V1__LogprobsRequest *q, struct error *e)
{
    uint32_t first = q->first ? q->first : 1;
    enum error_code code = copy_tokens(r, q->tokens, q->n_tokens, e);
    if (!code)
        code = check_tokens(&f->sessions->model, &r->tokens, false, e);
    if (!code && first >= r->tokens.count)
        code =
            error_set(e, ERROR_USAGE,
                      "logprobs are asked for from token %" PRIu32 " on, of %zu tokens: expected "
                      "at least one with another before it",
                      first, r->tokens.count);
    r->next_row = first - 1;
    return code;
}

static enum error_code build(struct frontend *f, struct request *r, const Moed__V1__ToWorker *m,
                             struct error *e)
{
    switch (r->kind) {
    case REQUEST_GENERATE:
        return build_generate(f, r, m->generate, e);
    case REQUEST_LOGITS:
        return build_logits(f, r, m->logits, e);
    case REQUEST_LOGPROBS:
        return build_logprobs(f, r, m->logprobs, e);
    }
    return error_set(e, ERROR_INTERNAL, "a request of no kind");
}

static void submit(struct frontend *f, const Moed__V1__ToWorker *m, enum request_kind kind)
{
    struct error e;
    struct request *r = request_new(f->sessions->model.tokenizer, f, m->id, kind);
    enum error_code code =
        r ? build(f, r, m, &e) : error_set(&e, ERROR_MEMORY, "no memory for the request");
    if (code) {
        refuse(f, m->id, code, &e);
        request_free(r);
        return;
    }
    r->n_prompt = (uint32_t)r->tokens.count;
    /* Nothing follows the last token where only the probability of given ones is asked for. */
    r->n_prefill = kind == REQUEST_LOGPROBS ? r->n_prompt - 1 : r->n_prompt;
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
        submit(f, m, REQUEST_GENERATE);
        break;
    case MOED__V1__TO_WORKER__BODY_LOGITS:
        submit(f, m, REQUEST_LOGITS);
        break;
    case MOED__V1__TO_WORKER__BODY_LOGPROBS:
        submit(f, m, REQUEST_LOGPROBS);
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

void frontend_handle(struct frontend *f, const uint8_t *data, size_t len)
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
