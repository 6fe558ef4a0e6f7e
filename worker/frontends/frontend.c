/* What a frontend sends: questions are answered here, requests go to the engine. frontends.c has
 * the frontend's life, frontend_sink.c what it is sent. All on the thread of the frontend's
 * channel. */
#include "frontends_internal.h"

#include "base/clock.h"
#include "daemon/decode_limit.h"
#include "worker/serve/engine.h"
#include "ipc/rpc.h"

#include <inttypes.h>
#include <stdlib.h>

/* Positions of a step whose routing is recorded. */
enum { RECORDED_TOKENS = 256 };

static void refuse(struct frontend *f, uint64_t id, enum error_code code, const struct error *e)
{
    frontend_send_error(f, id, code, e->text);
}

static enum error_code too_long(struct error *e)
{
    return error_set(e, ERROR_LIMIT,
                     "the reply has more than %u bytes: ask for a part of the text at a time",
                     RPC_MESSAGE_BYTES);
}

/* Sends a reply, or an error if it is larger than a message may be. */
static void send_reply(struct frontend *f, Moed__V1__FromWorker *m)
{
    struct error e;
    m->abi = CONTROL_ABI;
    if (moed__v1__from_worker__get_packed_size(m) > RPC_MESSAGE_BYTES)
        refuse(f, m->id, too_long(&e), &e);
    else
        frontend_send(f, m);
}

/* The pairs of q->plain; NULL: no memory. */
static struct plain_range *plain_ranges(const Moed__V1__TokenizeRequest *q)
{
    size_t n = q->n_plain / 2;
    struct plain_range *ranges = calloc(n + 1, sizeof *ranges);
    for (size_t i = 0; ranges && i < n; i++)
        ranges[i] = (struct plain_range){.start = q->plain[2 * i], .end = q->plain[2 * i + 1]};
    return ranges;
}

static enum error_code tokenize(const struct tokenizer *t, const Moed__V1__TokenizeRequest *q,
                                struct token_list *list, struct error *e)
{
    unsigned flags = (q->add_special ? TOKENIZE_ADD_SPECIAL : 0u) |
                     (q->add_begin ? TOKENIZE_ADD_BEGIN : 0u) |
                     (q->parse_special ? TOKENIZE_PARSE_SPECIAL : 0u);
    struct plain_range *ranges = plain_ranges(q);
    if (!ranges)
        return error_set(e, ERROR_MEMORY, "no memory for the ranges of a text");
    enum error_code code = tokenizer_encode_ranges(t, (const char *)q->text.data, q->text.len,
                                                   flags, ranges, q->n_plain / 2, list, e);
    free(ranges);
    return code;
}

static void answer_tokenize(struct frontend *f, uint64_t id, const Moed__V1__TokenizeRequest *q)
{
    struct token_list list = {0};
    struct error e;
    enum error_code code = tokenize(f->frontends->model.tokenizer, q, &list, &e);
    if (code) {
        refuse(f, id, code, &e);
    } else {
        Moed__V1__TokenizeReply tokens = MOED__V1__TOKENIZE_REPLY__INIT;
        tokens.n_tokens = list.count;
        tokens.tokens = list.ids;
        Moed__V1__FromWorker m = MOED__V1__FROM_WORKER__INIT;
        m.id = id;
        m.body_case = MOED__V1__FROM_WORKER__BODY_TOKENIZE;
        m.tokenize = &tokens;
        send_reply(f, &m);
    }
    token_list_fini(&list);
}

/* Appends the bytes of each token by itself; ends: [n_tokens], where they end. rows: tokens that
 * the model has; those beyond the vocabulary have no text. */
static enum error_code pieces(const struct tokenizer *t, uint32_t rows,
                              const Moed__V1__DetokenizeRequest *q, uint32_t *ends,
                              struct strbuf *text, struct error *e)
{
    if (!ends)
        return error_set(e, ERROR_MEMORY, "no memory for the texts of %zu tokens", q->n_tokens);
    for (size_t i = 0; i < q->n_tokens; i++) {
        bool padding = q->tokens[i] >= tokenizer_vocab_size(t) && q->tokens[i] < rows;
        if (!padding && !tokenizer_piece(t, q->tokens[i], q->special, text))
            return error_set(e, ERROR_USAGE, "token id %u is not in the vocabulary of %u tokens",
                             q->tokens[i], tokenizer_vocab_size(t));
        if (text->len > RPC_MESSAGE_BYTES)
            return too_long(e);
        ends[i] = (uint32_t)text->len;
    }
    return text->failed ? error_set(e, ERROR_MEMORY, "no memory for the texts of tokens")
                        : ERROR_OK;
}

static void answer_detokenize(struct frontend *f, uint64_t id, const Moed__V1__DetokenizeRequest *q)
{
    const struct tokenizer *t = f->frontends->model.tokenizer;
    uint32_t *ends = q->each ? malloc((q->n_tokens + 1) * sizeof *ends) : NULL;
    struct strbuf text;
    struct error e;
    strbuf_init(&text);
    enum error_code code =
        q->each ? pieces(t, f->frontends->model.map->params.vocab, q, ends, &text, &e)
                : tokenizer_decode(t, q->tokens, q->n_tokens, q->special, &text, &e);
    if (code) {
        refuse(f, id, code, &e);
    } else {
        Moed__V1__DetokenizeReply texts = MOED__V1__DETOKENIZE_REPLY__INIT;
        texts.text = (ProtobufCBinaryData){text.len, (uint8_t *)text.data};
        texts.ends = ends;
        texts.n_ends = ends ? q->n_tokens : 0;
        Moed__V1__FromWorker m = MOED__V1__FROM_WORKER__INIT;
        m.id = id;
        m.body_case = MOED__V1__FROM_WORKER__BODY_DETOKENIZE;
        m.detokenize = &texts;
        send_reply(f, &m);
    }
    free(ends);
    strbuf_fini(&text);
}

static void answer_model(struct frontend *f, uint64_t id)
{
    const struct frontends_model *model = &f->frontends->model;
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
    Moed__V1__Sampling sampling = MOED__V1__SAMPLING__INIT;
    frontend_describe_sampling(&model->sampling, &sampling);
    reply.sampling = &sampling;
    reply.n_end_tokens = model->end_tokens->count;
    reply.end_tokens = model->end_tokens->ids;
    reply.chat_template_tools = (char *)model->chat_template_tools;
    int64_t fim[FIM_ROLES];
    for (int role = 0; role < FIM_ROLES; role++)
        fim[role] = tokenizer_fim(model->tokenizer, role);
    reply.n_fim = FIM_ROLES;
    reply.fim = fim;
    reply.quantization = (char *)model->quantization;
    reply.chat_template_kwargs = (char *)model->chat_template_kwargs;
    reply.reasoning_budget = model->reasoning_budget;
    reply.kv_type = (char *)model->kv_type;
    reply.reproducible = model->reproducible;
    reply.identity = model->identity;
    Moed__V1__FromWorker m = MOED__V1__FROM_WORKER__INIT;
    m.id = id;
    m.body_case = MOED__V1__FROM_WORKER__BODY_MODEL;
    m.model = &reply;
    frontend_send(f, &m);
}

static enum error_code check_tokens(const struct frontends_model *model,
                                    const struct token_list *list, bool answers, struct error *e)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->ids[i] >= model->map->params.vocab)
            return error_set(e, ERROR_USAGE,
                             "token %" PRIu32 " is not in the vocabulary of %" PRIu32, list->ids[i],
                             model->map->params.vocab);
    if (list->count == 0)
        return error_set(e, ERROR_USAGE, "the prompt is empty: give at least one token");
    uint32_t most = model->context - (answers ? 1 : 0); /* one is the answer's */
    if (list->count > most)
        return error_set(e, ERROR_CONTEXT, /* LiteLLM and Claude Code know it by these words */
                         "this model's maximum context length is %" PRIu32
                         " tokens, but the prompt is too long: %zu tokens > %" PRIu32
                         " maximum: shorten it, or start the deployment with a larger --ctx",
                         model->context, list->count, most);
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

static enum error_code take_stops(struct request *r, const Moed__V1__Generate *q, struct error *e)
{
    if (q->n_stop > REQUEST_MAX_STOPS)
        return error_set(e, ERROR_LIMIT, "%zu stop strings: give at most %d", q->n_stop,
                         REQUEST_MAX_STOPS);
    size_t bytes = 0;
    for (size_t i = 0; i < q->n_stop; i++) {
        bytes += q->stop[i].len;
        if (bytes > REQUEST_STOP_BYTES)
            return error_set(e, ERROR_LIMIT, "stop strings of more than %u bytes together",
                             REQUEST_STOP_BYTES);
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
    const struct tokenizer *t = f->frontends->model.tokenizer;
    if (q->rendered) /* its `tokens` are for workers that do not know it */
        return tokenize(t, q->rendered, &r->tokens, e);
    if (q->prompt.len == 0 && q->n_tokens)
        return copy_tokens(r, q->tokens, q->n_tokens, e);
    unsigned flags = TOKENIZE_ADD_SPECIAL | (q->parse_special ? TOKENIZE_PARSE_SPECIAL : 0u);
    return tokenizer_encode(t, (const char *)q->prompt.data, q->prompt.len, flags, &r->tokens, e);
}

/* After take_prompt: a step computes at most the prompt's tokens. */
static enum error_code take_recording(struct frontend *f, struct request *r,
                                      const Moed__V1__Record *q, struct error *e)
{
    if (!q)
        return ERROR_OK;
    uint32_t most = r->tokens.count < RECORDED_TOKENS ? (uint32_t)r->tokens.count : RECORDED_TOKENS;
    struct recording_options options = {
        .gate = q->gate, .hidden_every = q->hidden_every, .hidden_phase = q->hidden_phase};
    r->stepwise = q->stepwise;
    r->prompt_only = q->prompt_only;
    return recording_new(&f->frontends->model.map->params, &options, r->stepwise ? 1 : most,
                         &r->recording, e);
}

/* A longer prediction than the context is of no use behind it. After take_prompt. */
static enum error_code take_prediction(struct frontend *f, struct request *r,
                                       const Moed__V1__Generate *q, struct error *e)
{
    const struct frontends_model *model = &f->frontends->model;
    size_t most = model->context - r->tokens.count;
    size_t n = q->n_prediction < most ? q->n_prediction : most;
    if (n == 0)
        return ERROR_OK;
    for (size_t i = 0; i < n; i++)
        if (q->prediction[i] >= model->map->params.vocab)
            return error_set(e, ERROR_USAGE,
                             "prediction: token %" PRIu32 " is not in the vocabulary of %" PRIu32,
                             q->prediction[i], model->map->params.vocab);
    r->expected = expected_answer_new(q->prediction, (uint32_t)n);
    return r->expected ? ERROR_OK : error_set(e, ERROR_MEMORY, "no memory for the prediction");
}

/* The answer's beginning, which another worker generated. After the prompt. */
static enum error_code take_answer(struct frontend *f, struct request *r,
                                   const Moed__V1__Generate *q, struct error *e)
{
    const struct frontends_model *model = &f->frontends->model;
    r->n_prompt = (uint32_t)r->tokens.count;
    if (q->n_answer == 0)
        return ERROR_OK;
    if (r->recording || q->n_answer > model->context - r->n_prompt)
        return error_set(e, ERROR_USAGE, "this generation cannot be continued");
    for (size_t i = 0; i < q->n_answer; i++)
        if (q->answer[i] >= model->map->params.vocab)
            return error_set(e, ERROR_USAGE, "token %" PRIu32 " is not in the vocabulary",
                             q->answer[i]);
    return request_continue(r, q->answer, q->n_answer, q->answer_bytes, model->context)
               ? ERROR_OK
               : error_set(e, ERROR_MEMORY, "no memory for the answer");
}

static enum request_priority priority_of(Moed__V1__Generate__Priority priority)
{
    return priority == MOED__V1__GENERATE__PRIORITY__BATCH ? PRIORITY_BATCH : PRIORITY_INTERACTIVE;
}

static enum error_code build_generate(struct frontend *f, struct request *r,
                                      const Moed__V1__Generate *q, struct error *e)
{
    r->max_tokens = q->max_tokens;
    r->ignore_end = q->ignore_end;
    r->progress = q->progress;
    r->cache_salt = q->cache_salt;
    r->client = q->client ? q->client : q->cache_salt;
    if (q->max_drafts || q->no_drafts)
        r->max_drafts = q->no_drafts ? 0 : q->max_drafts;
    r->stream.flags = q->special_text ? TOKEN_STREAM_SPECIAL : 0;
    enum error_code code = frontend_take_sampling(f, r, q, e);
    if (!code)
        code = frontend_take_reasoning(f, r, q->reasoning, e);
    if (!code)
        code = take_stops(r, q, e);
    if (!code)
        code = take_prompt(f, r, q, e);
    if (!code)
        code = check_tokens(&f->frontends->model, &r->tokens, !q->record || !q->record->prompt_only,
                            e);
    if (!code)
        code = take_recording(f, r, q->record, e);
    if (!code)
        code = take_prediction(f, r, q, e);
    r->priority = priority_of(q->priority);
    r->resumed = q->resumed;
    r->deadline_ns =
        q->deadline_ms && !q->n_answer ? clock_ns() + (uint64_t)q->deadline_ms * 1000000 : 0;
    if (!code)
        code = take_answer(f, r, q, e);
    return code ? code : frontend_take_grammar(f, r, q, e); /* last: it may take seconds */
}

static enum error_code build_logits(struct frontend *f, struct request *r,
                                    const Moed__V1__LogitsRequest *q, struct error *e)
{
    r->stepwise = q->stepwise;
    uint64_t row_bytes = f->frontends->model.map->params.vocab * (uint64_t)sizeof(float);
    if (row_bytes + 64 > RPC_MESSAGE_BYTES)
        return error_set(e, ERROR_LIMIT,
                         "a row of logits has %" PRIu64
                         " bytes, but a message at most %u: ask for logprobs",
                         row_bytes, RPC_MESSAGE_BYTES);
    enum error_code code = copy_tokens(r, q->tokens, q->n_tokens, e);
    return code ? code : check_tokens(&f->frontends->model, &r->tokens, false, e);
}

static enum error_code build_logprobs(struct frontend *f, struct request *r,
                                      const Moed__V1__LogprobsRequest *q, struct error *e)
{
    uint32_t first = q->first ? q->first : 1;
    enum error_code code = copy_tokens(r, q->tokens, q->n_tokens, e);
    if (!code)
        code = check_tokens(&f->frontends->model, &r->tokens, false, e);
    if (!code && first >= r->tokens.count)
        code = error_set(e, ERROR_USAGE,
                         "logprobs start at token %" PRIu32 ", but there are %zu tokens: "
                         "start between token 1 and the last",
                         first, r->tokens.count);
    r->next_row = first - 1;
    r->n_top = q->top;
    r->cache_salt = q->cache_salt;
    r->client = q->client ? q->client : q->cache_salt;
    r->priority = priority_of(q->priority);
    return code ? code : frontend_check_top(&f->frontends->model, q->top, e);
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
    return error_set(e, ERROR_INTERNAL, "request of unknown kind %d", (int)r->kind);
}

static void free_request(struct frontend_request *q)
{
    if (q)
        request_free(q->request);
    free(q);
}

/* NULL: out of memory. */
static struct frontend_request *new_request(struct frontend *f, uint64_t id, enum request_kind kind)
{
    struct frontend_request *q = malloc(sizeof *q);
    if (!q)
        return NULL;
    *q = (struct frontend_request){.frontend = f, .id = id};
    q->request = request_new(f->frontends->model.tokenizer, kind, &frontend_sink, q);
    if (q->request)
        return q;
    free_request(q);
    return NULL;
}

static void submit(struct frontend *f, const Moed__V1__ToWorker *m, enum request_kind kind)
{
    struct error e;
    struct frontend_request *q = new_request(f, m->id, kind);
    enum error_code code =
        q ? build(f, q->request, m, &e) : error_set(&e, ERROR_MEMORY, "no memory for the request");
    if (code) {
        refuse(f, m->id, code, &e);
        free_request(q);
        return;
    }
    struct request *r = q->request;
    r->submitter = f->number;
    if (kind != REQUEST_GENERATE)
        r->n_prompt = (uint32_t)r->tokens.count;
    r->n_prefill = (uint32_t)r->tokens.count;
    /* the last token's probability needs no row after it */
    r->end_row = r->n_prompt - (kind == REQUEST_LOGPROBS);
    code = frontend_add_request(f, q, &e); /* before the engine can end it */
    if (code) { /* an error with an id that is in use would end the other request */
        refuse(f, code == ERROR_EXISTS ? 0 : m->id, code, &e);
        free_request(q);
        return;
    }
    code = engine_submit(f->frontends->engine, r, &e);
    if (code) {
        refuse(f, m->id, code, &e);
        request_free(r);
        frontend_remove_request(q);
    }
}

static void acknowledge(struct frontend *f, uint32_t events)
{
    int64_t window = atomic_load(&f->window), more;
    do { /* never above the window: a frontend cannot lift its own limit */
        more = window + events > FRONTEND_WINDOW ? FRONTEND_WINDOW : window + events;
    } while (!atomic_compare_exchange_weak(&f->window, &window, more));
    if (window <= 0)
        engine_resume(f->frontends->engine);
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
        frontend_cancel_requests(f, m->id, m->cancel->complete);
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
        error_set(&e, ERROR_PROTOCOL, "message of unknown kind %d", (int)m->body_case);
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
        error_set(&e, ERROR_PROTOCOL, "message of %zu bytes: it cannot be decoded", len);
        refuse(f, 0, ERROR_PROTOCOL, &e);
        return;
    }
    if (m->abi != CONTROL_ABI) {
        error_set(&e, ERROR_VERSION, "message of protocol version %" PRIu32 ": expected %u", m->abi,
                  CONTROL_ABI);
        refuse(f, m->id, ERROR_VERSION, &e);
    } else {
        dispatch(f, m);
    }
    moed__v1__to_worker__free_unpacked(m, NULL);
}
