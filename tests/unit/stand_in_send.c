#include "tests/unit/stand_in_send.h"

#include "ipc/rpc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void stand_in_send(struct peer *p, uint64_t id, Moed__V1__FromWorker *body)
{
    uint8_t data[8192];
    body->abi = body->abi ? body->abi : CONTROL_ABI;
    body->id = id;
    if (moed__v1__from_worker__get_packed_size(body) > sizeof data)
        abort();
    size_t len = moed__v1__from_worker__pack(body, data);
    if (p->channel)
        channel_send(p->channel, data, len, NULL);
}

void stand_in_send_tokens(struct peer *p, uint64_t id, uint32_t number, bool first, uint32_t cached)
{
    char text[16];
    Moed__V1__Begun begun = MOED__V1__BEGUN__INIT;
    begun.prompt_tokens = 7;
    begun.cached_tokens = cached;
    Moed__V1__Tokens tokens = MOED__V1__TOKENS__INIT;
    tokens.n_tokens = 1;
    tokens.tokens = &number;
    tokens.text.len = (size_t)snprintf(text, sizeof text, "%u ", number);
    tokens.text.data = (uint8_t *)text;
    if (first)
        tokens.begun = &begun;
    Moed__V1__FromWorker body = MOED__V1__FROM_WORKER__INIT;
    body.body_case = MOED__V1__FROM_WORKER__BODY_TOKENS;
    body.tokens = &tokens;
    p->sent++;
    stand_in_send(p, id, &body);
}

void stand_in_send_row(struct peer *p, const struct stand_in_job *j)
{
    float values[STAND_IN_VOCAB];
    for (uint32_t i = 0; i < STAND_IN_VOCAB; i++)
        values[i] = (float)(j->next * 1000 + i);
    Moed__V1__LogitsRow row = MOED__V1__LOGITS_ROW__INIT;
    row.row = j->next + (j->bad_order && j->next == 1);
    row.logits.data = (uint8_t *)values;
    row.logits.len = sizeof values - (j->bad_length && j->next == 1);
    Moed__V1__FromWorker body = MOED__V1__FROM_WORKER__INIT;
    body.body_case = MOED__V1__FROM_WORKER__BODY_LOGITS;
    body.logits = &row;
    p->sent++;
    stand_in_send(p, j->id, &body);
}

uint32_t stand_in_send_logprobs(struct peer *p, const struct stand_in_job *j)
{
    float values[4];
    uint32_t n = 1 + p->sent % 3;
    if (n > j->total - j->next)
        n = j->total - j->next;
    for (uint32_t i = 0; i < n + j->too_many; i++)
        values[i] = -(float)(j->next + i) / 4;
    Moed__V1__Logprobs some = MOED__V1__LOGPROBS__INIT;
    some.first = j->next + j->bad_order;
    some.logprobs.data = (uint8_t *)values;
    some.logprobs.len = (n + j->too_many) * sizeof *values - j->bad_length;
    Moed__V1__FromWorker body = MOED__V1__FROM_WORKER__INIT;
    body.body_case = MOED__V1__FROM_WORKER__BODY_LOGPROBS;
    body.logprobs = &some;
    p->sent++;
    stand_in_send(p, j->id, &body);
    return n;
}

static void spoil_routing(Moed__V1__Routing *some, uint32_t how)
{
    switch (how) {
    case 1:
        some->first++;
        break;
    case 2:
        some->tokens = 0;
        break;
    case 3:
        some->selected.len = 0;
        break;
    case 4:
        some->selected.len--;
        break;
    case 5:
        some->gate.len = 6;
        break;
    case 6:
        some->n_hidden_at = 0; /* with gate inputs */
        break;
    case 7:
        some->hidden.len = 0; /* without them */
        break;
    case 8:
        some->hidden.len = 1;
        break;
    case 9:
        some->hidden_at[0] = some->tokens;
        break;
    case STAND_IN_WRONG:
        some->hidden_at[0] = UINT32_MAX;
        break;
    }
}

uint32_t stand_in_send_routing(struct peer *p, struct stand_in_job *j)
{
    uint16_t selected[8], hidden[4];
    float gate[8];
    uint32_t hidden_at[4], n_hidden = 0, n = 1 + p->sent % 3;
    if (n > j->total - j->next)
        n = j->total - j->next;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t t = j->next + i;
        selected[2 * i] = (uint16_t)t;
        selected[2 * i + 1] = (uint16_t)(t + 1);
        gate[2 * i] = (float)t / 1024;
        gate[2 * i + 1] = 0.5f;
        if (j->hidden_every && t % j->hidden_every == j->hidden_phase) {
            hidden[n_hidden] = (uint16_t)t;
            hidden_at[n_hidden++] = t;
        }
    }
    Moed__V1__Routing some = MOED__V1__ROUTING__INIT;
    some.first = j->next;
    some.tokens = n;
    some.selected = (ProtobufCBinaryData){2 * n * sizeof *selected, (uint8_t *)selected};
    some.gate = (ProtobufCBinaryData){j->gate ? 2 * n * sizeof *gate : 0, (uint8_t *)gate};
    some.n_hidden_at = n_hidden;
    some.hidden_at = hidden_at;
    some.hidden = (ProtobufCBinaryData){n_hidden * sizeof *hidden, (uint8_t *)hidden};
    spoil_routing(&some, j->wrong);
    Moed__V1__FromWorker body = MOED__V1__FROM_WORKER__INIT;
    body.body_case = MOED__V1__FROM_WORKER__BODY_ROUTING;
    body.routing = &some;
    p->sent++;
    stand_in_send(p, j->id, &body);
    return n;
}

void stand_in_send_done(struct peer *p, uint64_t id, Moed__V1__Done__Reason reason,
                        uint32_t generated)
{
    Moed__V1__Done done = MOED__V1__DONE__INIT;
    done.reason = reason;
    done.prompt_tokens = 7;
    done.cached_tokens = 6;
    done.generated_tokens = generated;
    done.queue_ns = 11;
    done.prefill_ns = 12;
    done.decode_ns = 13;
    Moed__V1__FromWorker body = MOED__V1__FROM_WORKER__INIT;
    body.body_case = MOED__V1__FROM_WORKER__BODY_DONE;
    body.done = &done;
    stand_in_send(p, id, &body);
}

void stand_in_send_progress(struct peer *p, uint64_t id)
{
    Moed__V1__Progress progress = MOED__V1__PROGRESS__INIT;
    progress.computed = 1;
    progress.prompt_tokens = 2;
    progress.ns = 3;
    progress.cached_tokens = 4;
    Moed__V1__FromWorker body = MOED__V1__FROM_WORKER__INIT;
    body.body_case = MOED__V1__FROM_WORKER__BODY_PROGRESS;
    body.progress = &progress;
    p->sent++;
    stand_in_send(p, id, &body);
}

void stand_in_send_probable(struct peer *p, uint64_t id, const Moed__V1__Generate *g,
                            unsigned wrong)
{
    uint32_t ids[] = {5, 6}, top = g->top_logprobs, top_tokens[16];
    float values[] = {-0.5f, -1.5f}, top_values[16];
    for (uint32_t i = 0; i < 2 * top && i < 16; i++) {
        top_tokens[i] = i % top;
        top_values[i] = -(float)(i % top);
    }
    if (g->progress || wrong == 4)
        stand_in_send_progress(p, id);
    Moed__V1__Tokens tokens = MOED__V1__TOKENS__INIT;
    tokens.n_tokens = 2;
    tokens.tokens = ids;
    tokens.logprobs.data = (uint8_t *)values;
    tokens.logprobs.len = (g->logprobs || wrong == 4 ? sizeof values : 0) - (wrong == 1);
    tokens.n_top_tokens = 2 * top - (wrong == 2);
    tokens.top_tokens = top_tokens;
    tokens.top_logprobs.data = (uint8_t *)top_values;
    tokens.top_logprobs.len = 2 * top * sizeof *top_values - 4 * (wrong == 3);
    tokens.mirostat_mu = 2.5f;
    Moed__V1__FromWorker body = MOED__V1__FROM_WORKER__INIT;
    body.body_case = MOED__V1__FROM_WORKER__BODY_TOKENS;
    body.tokens = &tokens;
    p->sent++;
    stand_in_send(p, id, &body);
    Moed__V1__Done done = MOED__V1__DONE__INIT;
    done.reason = MOED__V1__DONE__REASON__END;
    done.end_token = 9;
    done.stop_index = -1;
    float end_value = -2.5f;
    Moed__V1__Logprobs end = MOED__V1__LOGPROBS__INIT;
    end.logprobs = (ProtobufCBinaryData){sizeof end_value - (wrong == 5), (uint8_t *)&end_value};
    end.n_top_tokens = top - (wrong == 6);
    end.top_tokens = top_tokens;
    end.top_logprobs = (ProtobufCBinaryData){top * sizeof *top_values, (uint8_t *)top_values};
    if (g->logprobs || wrong == 7)
        done.end_logprobs = &end;
    body = (Moed__V1__FromWorker)MOED__V1__FROM_WORKER__INIT;
    body.body_case = MOED__V1__FROM_WORKER__BODY_DONE;
    body.done = &done;
    stand_in_send(p, id, &body);
}

void stand_in_send_error_text(struct peer *p, uint64_t id, uint32_t code, bool retry,
                              const char *text)
{
    Moed__V1__Error error = MOED__V1__ERROR__INIT;
    error.code = code;
    error.retry = retry;
    error.message = (char *)text;
    Moed__V1__FromWorker body = MOED__V1__FROM_WORKER__INIT;
    body.body_case = MOED__V1__FROM_WORKER__BODY_ERROR;
    body.error = &error;
    stand_in_send(p, id, &body);
}

void stand_in_send_error(struct peer *p, uint64_t id, uint32_t code, bool retry)
{
    stand_in_send_error_text(p, id, code, retry, "the stand-in\nrefuses");
}

uint32_t stand_in_send_text(struct peer *p, const struct stand_in_job *j)
{
    size_t each = p->worker->answer_bytes, at = j->next * each, left = strlen(j->text) - at;
    uint32_t ids[64], bytes[64], n = p->worker->answer_tokens, len = 0;
    n = !n ? 1 : n < j->total - j->next ? n : j->total - j->next;
    n = n < 64 ? n : 64;
    for (uint32_t i = 0; i < n; i++, len += bytes[i - 1]) {
        ids[i] = j->next + i;
        bytes[i] = (uint32_t)(left - len < each ? left - len : each);
    }
    Moed__V1__Tokens tokens = MOED__V1__TOKENS__INIT;
    tokens.n_tokens = tokens.n_token_bytes = n;
    tokens.tokens = ids;
    tokens.token_bytes = bytes;
    tokens.text = (ProtobufCBinaryData){len, (uint8_t *)j->text + at};
    Moed__V1__FromWorker body = MOED__V1__FROM_WORKER__INIT;
    body.body_case = MOED__V1__FROM_WORKER__BODY_TOKENS;
    body.tokens = &tokens;
    p->sent++;
    stand_in_send(p, j->id, &body);
    return n;
}
