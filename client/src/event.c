/* libmoed: events; see event.h. */
#include "client/src/event.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "logits travel as little-endian floats and are not converted"
#endif

void event_fill_result(struct event_box *box, const Moed__V1__Done *done, bool generates)
{
    bool known = done->reason >= MOED__V1__DONE__REASON__NONE &&
                 done->reason <= MOED__V1__DONE__REASON__CANCELLED;
    box->result = (struct moed_result){
        .size = sizeof box->result,
        .reason = known ? (enum moed_reason)done->reason : MOED_REASON_NONE,
        .prompt_tokens = done->prompt_tokens,
        .cached_tokens = done->cached_tokens,
        .generated_tokens = done->generated_tokens,
        .drafted_tokens = done->drafted_tokens,
        .accepted_tokens = done->accepted_tokens,
        .prediction_tokens = done->prediction_tokens,
        .predicted_tokens = done->predicted_tokens,
        .queue_ns = done->queue_ns,
        .prefill_ns = done->prefill_ns,
        .decode_ns = done->decode_ns,
        .end_token = generates ? done->end_token : -1,
        .stop_index = generates ? done->stop_index : -1,
        .seed = box->result.seed,
    };
}

/* The values of a message are malloc'ed, so aligned for floats. */
static const float *floats_of(const ProtobufCBinaryData *data)
{
    return (const float *)(const void *)data->data;
}

static void fill_routing(struct event_box *box, const Moed__V1__Routing *from)
{
    box->routing = (struct moed_routing){
        .first = from->first,
        .token_count = from->tokens,
        .selected = (const uint16_t *)(const void *)from->selected.data,
        .selected_count = from->selected.len / sizeof(uint16_t),
        .gate = from->gate.len ? floats_of(&from->gate) : NULL,
        .gate_count = from->gate.len / sizeof(float),
        .hidden_at = from->hidden_at,
        .hidden_at_count = from->n_hidden_at,
        .hidden = (const uint16_t *)(const void *)from->hidden.data,
        .hidden_count = from->hidden.len / sizeof(uint16_t),
    };
    box->event.routing = &box->routing;
}

static void fill_logprobs(struct moed_event *event, size_t top, const ProtobufCBinaryData *logprobs,
                          const uint32_t *top_tokens, const ProtobufCBinaryData *top_logprobs)
{
    event->logprobs = floats_of(logprobs);
    event->logprob_count = logprobs->len / sizeof(float);
    event->top_count = top;
    event->top_tokens = top_tokens;
    event->top_logprobs = floats_of(top_logprobs);
}

static void fill_tokens(struct moed_event *event, const Moed__V1__Tokens *from)
{
    event->tokens = from->tokens;
    event->token_count = from->n_tokens;
    if (from->text.len) {
        event->text = (const char *)from->text.data;
        event->text_bytes = from->text.len;
    }
    event->mirostat_mu = from->mirostat_mu;
    event->forced = from->forced;
    event->token_bytes = from->n_token_bytes ? from->token_bytes : NULL;
}

void event_fill(struct event_box *box, const Moed__V1__FromWorker *body, bool logprobs, size_t top)
{
    struct moed_event *event = &box->event;
    *event = (struct moed_event){.text = ""};
    switch (body ? body->body_case : MOED__V1__FROM_WORKER__BODY_DONE) {
    case MOED__V1__FROM_WORKER__BODY_TOKENS:
        event->kind = MOED_EVENT_TOKENS;
        fill_tokens(event, body->tokens);
        if (logprobs && !body->tokens->forced)
            fill_logprobs(event, top, &body->tokens->logprobs, body->tokens->top_tokens,
                          &body->tokens->top_logprobs);
        break;
    case MOED__V1__FROM_WORKER__BODY_PROGRESS:
        event->kind = MOED_EVENT_PROGRESS;
        box->progress = (struct moed_progress){.computed = body->progress->computed,
                                               .prompt_tokens = body->progress->prompt_tokens,
                                               .ns = body->progress->ns,
                                               .cached_tokens = body->progress->cached_tokens};
        event->progress = &box->progress;
        break;
    case MOED__V1__FROM_WORKER__BODY_LOGITS:
        event->kind = MOED_EVENT_ROW;
        event->row = body->logits->row;
        event->logits = floats_of(&body->logits->logits);
        event->logit_count = body->logits->logits.len / sizeof(float);
        break;
    case MOED__V1__FROM_WORKER__BODY_LOGPROBS:
        event->kind = MOED_EVENT_LOGPROBS;
        event->first = body->logprobs->first;
        fill_logprobs(event, top, &body->logprobs->logprobs, body->logprobs->top_tokens,
                      &body->logprobs->top_logprobs);
        break;
    case MOED__V1__FROM_WORKER__BODY_ROUTING:
        event->kind = MOED_EVENT_ROUTING;
        fill_routing(box, body->routing);
        break;
    default:
        event->kind = MOED_EVENT_DONE;
        event->result = &box->result;
        if (body && body->done->end_logprobs)
            fill_logprobs(event, top, &body->done->end_logprobs->logprobs,
                          body->done->end_logprobs->top_tokens,
                          &body->done->end_logprobs->top_logprobs);
        break;
    }
}
