/* What a frontend is sent: the sink of its requests, whose calls become messages on its channel.
 * See response_sink.h and docs/protocol.md. The credits of all its requests are one window. */
#include "frontends_internal.h"

#include "base/log.h"
#include "ipc/rpc.h"
#include "worker/forward/recording.h"

#include <inttypes.h>
#include <stdlib.h>

/* A lost event would be a wrong answer, so a frontend that cannot be sent to is dropped. */
void frontend_send(struct frontend *f, Moed__V1__FromWorker *m)
{
    if (atomic_load(&f->closed))
        return;
    m->abi = CONTROL_ABI;
    uint8_t small[2048], *data = small; /* tokens fit; rows and routing do not */
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
    error.retry = code == ERROR_UNAVAILABLE || code == ERROR_BUSY;
    Moed__V1__FromWorker m = MOED__V1__FROM_WORKER__INIT;
    m.id = id;
    m.body_case = MOED__V1__FROM_WORKER__BODY_ERROR;
    m.error = &error;
    frontend_send(f, &m);
}

/* A frontend that has gone takes everything, so that its requests come to their end. */
static bool take_credit(void *arg)
{
    struct frontend *f = ((struct frontend_request *)arg)->frontend;
    if (atomic_fetch_sub(&f->window, 1) > 0 || atomic_load(&f->closed))
        return true;
    atomic_fetch_add(&f->window, 1);
    return false;
}

static void return_credit(void *arg)
{
    atomic_fetch_add(&((struct frontend_request *)arg)->frontend->window, 1);
}

static ProtobufCBinaryData floats(const float *values, size_t n)
{
    return (ProtobufCBinaryData){n * sizeof *values, (uint8_t *)values};
}

static Moed__V1__Logprobs logprobs_message(const struct response_logprobs *l)
{
    Moed__V1__Logprobs message = MOED__V1__LOGPROBS__INIT;
    message.logprobs = floats(l->logprobs, l->n);
    message.n_top_tokens = (size_t)l->n * l->n_top;
    message.top_tokens = (uint32_t *)l->top_tokens;
    message.top_logprobs = floats(l->top_logprobs, (size_t)l->n * l->n_top);
    return message;
}

static void send_progress(void *arg, uint32_t n_past, uint32_t n_prompt, uint32_t n_cached,
                          uint64_t ns)
{
    const struct frontend_request *q = arg;
    Moed__V1__Progress event = MOED__V1__PROGRESS__INIT;
    event.computed = n_past;
    event.prompt_tokens = n_prompt;
    event.ns = ns;
    event.cached_tokens = n_cached;
    Moed__V1__FromWorker m = MOED__V1__FROM_WORKER__INIT;
    m.id = q->id;
    m.body_case = MOED__V1__FROM_WORKER__BODY_PROGRESS;
    m.progress = &event;
    frontend_send(q->frontend, &m);
}

static void send_tokens(void *arg, const struct response_tokens *tokens)
{
    const struct frontend_request *q = arg;
    const struct response_logprobs *l = &tokens->logprobs;
    Moed__V1__Tokens event = MOED__V1__TOKENS__INIT;
    event.n_tokens = tokens->n_tokens;
    event.tokens = (uint32_t *)tokens->tokens;
    event.n_token_bytes = tokens->token_bytes ? tokens->n_tokens : 0;
    event.token_bytes = (uint32_t *)tokens->token_bytes;
    event.text = (ProtobufCBinaryData){tokens->text_bytes, (uint8_t *)tokens->text};
    event.logprobs = floats(l->logprobs, l->n);
    event.n_top_tokens = (size_t)l->n * l->n_top;
    event.top_tokens = (uint32_t *)l->top_tokens;
    event.top_logprobs = floats(l->top_logprobs, (size_t)l->n * l->n_top);
    event.mirostat_mu = tokens->mirostat_mu;
    Moed__V1__Begun begun = MOED__V1__BEGUN__INIT;
    begun.prompt_tokens = tokens->prompt_tokens;
    begun.cached_tokens = tokens->cached_tokens;
    begun.queue_ns = tokens->queue_ns;
    if (tokens->first)
        event.begun = &begun;
    event.forced = tokens->forced;
    Moed__V1__FromWorker m = MOED__V1__FROM_WORKER__INIT;
    m.id = q->id;
    m.body_case = MOED__V1__FROM_WORKER__BODY_TOKENS;
    m.tokens = &event;
    frontend_send(q->frontend, &m);
}

static void send_logits(void *arg, uint32_t row, const float *logits, uint32_t vocab)
{
    const struct frontend_request *q = arg;
    Moed__V1__LogitsRow event = MOED__V1__LOGITS_ROW__INIT;
    event.row = row;
    event.logits = (ProtobufCBinaryData){vocab * sizeof *logits, (uint8_t *)logits};
    Moed__V1__FromWorker m = MOED__V1__FROM_WORKER__INIT;
    m.id = q->id;
    m.body_case = MOED__V1__FROM_WORKER__BODY_LOGITS;
    m.logits = &event;
    frontend_send(q->frontend, &m);
}

static void send_logprobs(void *arg, uint32_t first, const struct response_logprobs *l)
{
    const struct frontend_request *q = arg;
    Moed__V1__Logprobs event = logprobs_message(l);
    event.first = first;
    Moed__V1__FromWorker m = MOED__V1__FROM_WORKER__INIT;
    m.id = q->id;
    m.body_case = MOED__V1__FROM_WORKER__BODY_LOGPROBS;
    m.logprobs = &event;
    frontend_send(q->frontend, &m);
}

static void send_routing(void *arg, const struct recording_part *part)
{
    const struct frontend_request *q = arg;
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
    m.id = q->id;
    m.body_case = MOED__V1__FROM_WORKER__BODY_ROUTING;
    m.routing = &event;
    frontend_send(q->frontend, &m);
}

static void send_done(void *arg, const struct response_summary *summary)
{
    struct frontend_request *q = arg;
    Moed__V1__Done done = MOED__V1__DONE__INIT;
    done.reason = (Moed__V1__Done__Reason)summary->reason;
    done.prompt_tokens = summary->prompt_tokens;
    done.cached_tokens = summary->cached_tokens;
    done.generated_tokens = summary->generated_tokens;
    done.drafted_tokens = summary->drafted_tokens;
    done.accepted_tokens = summary->accepted_tokens;
    done.prediction_tokens = summary->prediction_tokens;
    done.predicted_tokens = summary->predicted_tokens;
    done.queue_ns = summary->queue_ns;
    done.prefill_ns = summary->prefill_ns;
    done.decode_ns = summary->decode_ns;
    done.end_token = summary->end_token;
    Moed__V1__Logprobs end = logprobs_message(&summary->end_logprobs);
    if (summary->end_logprobs.n)
        done.end_logprobs = &end;
    done.stop_index = summary->stop_index;
    Moed__V1__FromWorker m = MOED__V1__FROM_WORKER__INIT;
    m.id = q->id;
    m.body_case = MOED__V1__FROM_WORKER__BODY_DONE;
    m.done = &done;
    frontend_end_request(q);
    frontend_send(q->frontend, &m);
    frontend_remove_request(q);
}

static void send_failed(void *arg, enum error_code code, const char *text)
{
    struct frontend_request *q = arg;
    frontend_end_request(q);
    if (code != ERROR_UNAVAILABLE || !atomic_load(&q->frontend->frontends->ending))
        frontend_send_error(q->frontend, q->id, code, text);
    frontend_remove_request(q);
}

const struct response_sink frontend_sink = {
    .take_credit = take_credit,
    .return_credit = return_credit,
    .progress = send_progress,
    .tokens = send_tokens,
    .logits = send_logits,
    .logprobs = send_logprobs,
    .routing = send_routing,
    .done = send_done,
    .failed = send_failed,
};
