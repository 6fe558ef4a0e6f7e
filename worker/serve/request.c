/* Requests: their memory, and the text of their answers; see request.h. */
#include "request.h"

#include "queue.h"
#include "worker/forward/recording.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct request *request_new(const struct tokenizer *t, enum request_kind kind,
                            const struct response_sink *sink, void *sink_arg)
{
    struct request *r = calloc(1, sizeof *r);
    if (!r || !(r->place.spare = queue_shares_new())) {
        free(r);
        return NULL;
    }
    r->sink = sink;
    r->sink_arg = sink_arg;
    r->kind = kind;
    r->slot = r->end_token = r->stop_index = -1;
    r->max_drafts = UINT32_MAX;
    token_stream_init(&r->stream, t, 0);
    return r;
}

void request_free(struct request *r)
{
    if (!r)
        return;
    for (uint32_t i = 0; i < r->n_stops; i++)
        strbuf_fini(&r->stops[i]);
    queue_shares_free(r->place.spare);
    free(r->biases);
    free(r->token_logprobs);
    free(r->top_tokens);
    free(r->top_logprobs);
    free(r->ends);
    token_list_fini(&r->stop_tokens);
    breakers_fini(&r->breakers);
    draft_free(r->draft);
    expected_answer_free(r->expected);
    reasoning_limit_free(r->reasoning);
    token_list_fini(&r->tokens);
    strbuf_fini(&r->text);
    strbuf_fini(&r->unsent);
    strbuf_fini(&r->unsent_bytes);
    recording_free(r->recording);
    grammar_cursor_free(r->grammar);
    free(r->path.pages);
    free(r->hidden);
    free(r);
}

uint64_t request_bytes(const struct request *r)
{
    uint64_t bytes = sizeof *r + r->text.capacity + r->unsent.capacity + r->unsent_bytes.capacity;
    bytes += (r->tokens.capacity + r->stop_tokens.capacity) * sizeof *r->tokens.ids;
    bytes += recording_bytes(r->recording) + expected_answer_bytes(r->expected);
    bytes += r->reasoning ? sizeof *r->reasoning : 0;
    bytes += r->n_biases * sizeof *r->biases + r->n_ends * sizeof *r->ends;
    for (uint32_t i = 0; i < r->n_stops; i++)
        bytes += r->stops[i].capacity;
    return bytes;
}

uint32_t request_positions(const struct request *r, uint32_t context)
{
    if (r->kind != REQUEST_GENERATE || r->prompt_only)
        return r->n_prefill;
    if (!r->max_tokens || r->max_tokens > context - r->n_prompt)
        return context;
    return r->n_prompt + r->max_tokens - 1;
}

static bool reserve_tokens(struct token_list *l, size_t capacity)
{
    if (capacity <= l->capacity)
        return true;
    uint32_t *ids = realloc(l->ids, capacity * sizeof *ids);
    if (!ids)
        return false;
    l->ids = ids;
    l->capacity = capacity;
    return true;
}

static bool reserve_logprobs(struct request *r)
{
    if (!r->logprobs && r->kind != REQUEST_LOGPROBS)
        return true;
    size_t places = REQUEST_EVENT_LOGPROBS, top = r->n_top ? r->n_top : 1;
    r->token_logprobs = calloc(places, sizeof *r->token_logprobs);
    r->top_tokens = calloc(places * top, sizeof *r->top_tokens);
    r->top_logprobs = calloc(places * top, sizeof *r->top_logprobs);
    return r->token_logprobs && r->top_tokens && r->top_logprobs;
}

bool request_reserve(struct request *r, uint32_t positions, uint32_t batch, uint32_t d_model)
{
    r->n_most = positions;
    r->path.capacity = positions / KV_POOL_TOKENS + 1;
    r->path.pages = calloc(r->path.capacity, sizeof *r->path.pages);
    r->path.salt = r->cache_salt;
    r->path.passing = r->kind == REQUEST_LOGPROBS;
    if (!r->path.pages || !reserve_tokens(&r->tokens, (size_t)positions + 1) ||
        !reserve_logprobs(r))
        return false;
    if (r->kind == REQUEST_GENERATE)
        return true;
    size_t rows = r->n_prefill < batch ? r->n_prefill : batch;
    r->hidden = calloc(rows * d_model, sizeof *r->hidden);
    return r->hidden != NULL;
}

/* The earliest place in the held text where a whole stop string stands. False: there is none. */
static bool find_stop(struct request *r, size_t *at)
{
    bool found = false;
    for (uint32_t i = 0; i < r->n_stops; i++) {
        const struct strbuf *stop = &r->stops[i];
        const char *p =
            r->text.len ? memmem(r->text.data, r->text.len, stop->data, stop->len) : NULL;
        if (p && (!found || (size_t)(p - r->text.data) < *at)) {
            *at = (size_t)(p - r->text.data);
            r->stop_index = i;
            found = true;
        }
    }
    return found;
}

/* Bytes at the end of the held text that may be the start of a stop string. */
static size_t held_back(const struct request *r)
{
    size_t most = 0;
    for (uint32_t i = 0; i < r->n_stops; i++) {
        const struct strbuf *stop = &r->stops[i];
        size_t n = stop->len - 1 < r->text.len ? stop->len - 1 : r->text.len;
        while (n > most && memcmp(r->text.data + r->text.len - n, stop->data, n) != 0)
            n--;
        if (n > most)
            most = n;
    }
    return most;
}

static void release(struct request *r, size_t n, struct strbuf *out)
{
    if (n == 0)
        return;
    strbuf_append(out, r->text.data, n);
    memmove(r->text.data, r->text.data + n, r->text.len - n);
    r->text.len -= n;
}

/* The last of the forced tokens has come: the forbidden ones do not come any more. */
static void forbid(struct request *r)
{
    const struct token_list *tokens = &r->reasoning->forbidden;
    for (size_t i = 0; i < tokens->count; i++) /* the last bias of a token counts */
        r->biases[r->n_biases++] = (struct sampler_bias){tokens->ids[i], -INFINITY};
}

bool request_push_token(struct request *r, uint32_t token, struct strbuf *out)
{
    if (r->reasoning && reasoning_limit_push(r->reasoning, token))
        forbid(r);
    expected_answer_follow(r->expected, r->tokens.ids + r->n_prompt,
                           (uint32_t)r->tokens.count - r->n_prompt);
    size_t before = r->text.len + r->stream.kept_bytes, at = 0;
    token_stream_push(&r->stream, token, &r->text);
    r->token_bytes = (uint32_t)(r->text.len + r->stream.kept_bytes - before);
    if (r->n_generated >= r->min_tokens && find_stop(r, &at)) {
        release(r, at, out);
        strbuf_clear(&r->text);
        return true;
    }
    release(r, r->text.len - held_back(r), out);
    return false;
}

void request_flush(struct request *r, struct strbuf *out)
{
    token_stream_flush(&r->stream, &r->text);
    size_t at = 0;
    release(r, find_stop(r, &at) ? at : r->text.len, out);
}

enum finish_reason request_is_full(const struct request *r, uint32_t context)
{
    uint32_t forced = reasoning_limit_left(r->reasoning);
    if (r->max_tokens && r->n_generated + forced >= r->max_tokens)
        return FINISH_LENGTH;
    return r->tokens.count + forced >= context ? FINISH_CONTEXT : FINISH_NONE;
}

bool request_has_lost_text(const struct request *r)
{
    return r->text.failed || (r->reasoning && r->reasoning->text.failed);
}

bool request_continue(struct request *r, const uint32_t *answer, size_t n, uint64_t text_bytes,
                      uint32_t context)
{
    struct strbuf text;
    bool pushed = true;
    strbuf_init(&text);
    for (size_t i = 0; i < n && !r->ended_before; i++) {
        pushed = token_list_push(&r->tokens, answer[i]);
        if (!pushed)
            break; /* a prediction is compared with the list */
        r->n_generated++;
        if (request_push_token(r, answer[i], &text))
            r->ended_before = FINISH_STOP;
        else
            r->ended_before = request_is_full(r, context);
    }
    r->n_text_known = text_bytes > text.len ? text_bytes - text.len : 0;
    bool whole = pushed && !text.failed && !request_has_lost_text(r);
    strbuf_fini(&text);
    return whole;
}

enum error_code request_begin_grammar(struct request *r, struct error *e)
{
    if (!r->grammar)
        return ERROR_OK;
    enum error_code code = grammar_cursor_begin(r->grammar, r->tokens.ids + r->n_prompt,
                                                r->tokens.count - r->n_prompt, e);
    if (!code && grammar_cursor_must_end(r->grammar))
        r->ended_before = FINISH_END;
    return code;
}
