/* The engine's steps: prefill, decode, rows of logits; see engine.h. */
#include "engine_internal.h"

#include "base/clock.h"
#include "logprob.h"
#include "session.h"

#include <stdlib.h>
#include <string.h>

static void count_token(struct engine *g)
{
    counter_add(g->counters.generated_tokens, 1);
    uint64_t second = clock_ns() / 1000000000u;
    struct rate_second *r = &g->rate[second % (RATE_SECONDS + 1)];
    if (atomic_load(&r->second) != second) {
        atomic_store(&r->tokens, 0);
        atomic_store(&r->second, second);
    }
    atomic_fetch_add(&r->tokens, 1);
}

static void unlink_request(struct engine *g, struct request *r)
{
    struct request **lists[] = {&g->running, &g->waiting};
    for (int i = 0; i < 2; i++)
        for (struct request **p = lists[i]; *p; p = &(*p)->next)
            if (*p == r) {
                *p = r->next;
                return;
            }
}

/* ---- Sending tokens ---- */

/* A request's tokens go in one event as long as they come faster than this, a picture of a screen. Each event wakes a thread here and
 * the frontend, which take some 40 us of the cores that compute, where a token of a small model takes 200. */
#define SEND_NS 16000000u

static bool has_unsent(const struct request *r)
{
    return r->n_unsent || r->unsent.len;
}

static void send_unsent(struct engine *g, struct request *r)
{
    if (!has_unsent(r))
        return;
    frontend_send_tokens(r->frontend, r->id, r->tokens.ids + r->tokens.count - r->n_unsent, r->n_unsent, &r->unsent);
    counter_add(g->counters.token_events, 1);
    strbuf_clear(&r->unsent);
    r->n_unsent = 0;
    r->sent_ns = r->last_ns;
}

/* Before what may take long. */
static void send_all_unsent(struct engine *g)
{
    for (struct request *r = g->running; r; r = r->next)
        send_unsent(g, r);
}

/* The last n tokens of r, and text; a credit was taken for them. */
static void add_unsent(struct request *r, uint32_t n, const struct strbuf *text)
{
    if (has_unsent(r) || (!n && !text->len))
        frontend_return_credit(r->frontend);
    r->n_unsent += n;
    strbuf_append(&r->unsent, text->data, text->len);
}

static void drop(struct engine *g, struct request *r)
{
    unlink_request(g, r);
    if (r->slot >= 0) {
        g->slot_used[r->slot] = false;
        g->config.dense->ops->release_slot(g->config.dense, (uint32_t)r->slot);
    }
    request_free(r);
}

static void finish(struct engine *g, struct request *r, enum finish_reason reason)
{
    counter_add(g->counters.finished[reason], 1);
    send_unsent(g, r);
    frontend_send_done(r->frontend, r, reason);
    drop(g, r);
}

/* What was computed is sent all the same. */
static void end_with_error(struct engine *g, struct request *r, enum error_code code, const char *text)
{
    send_unsent(g, r);
    frontend_send_error(r->frontend, r->id, code, text);
    drop(g, r);
}

void engine_end_cancelled(struct engine *g)
{
    struct request *lists[] = {g->waiting, g->running};
    for (int i = 0; i < 2; i++)
        for (struct request *r = lists[i], *next; r; r = next) {
            next = r->next;
            if (r->cancelled)
                finish(g, r, FINISH_CANCELLED);
        }
}

void engine_end_all(struct engine *g, enum error_code code, const char *text)
{
    struct request *lists[] = {g->waiting, g->running};
    for (int i = 0; i < 2; i++)
        for (struct request *r = lists[i], *next; r; r = next) {
            next = r->next;
            end_with_error(g, r, code, text);
        }
}

static bool has_routing(const struct request *r)
{
    return r->recording && recording_pending(r->recording);
}

/* The end, once what was recorded has been sent. */
static void end_request(struct engine *g, struct request *r, enum finish_reason reason)
{
    if (has_routing(r))
        r->ending = reason;
    else
        finish(g, r, reason);
}

static void observe_token(struct engine *g, struct request *r)
{
    uint64_t now = clock_ns();
    if (r->n_generated == 0) {
        r->first_ns = now;
        histogram_observe(g->counters.first_token, (double)(now - r->submitted_ns) * 1e-9);
    } else {
        histogram_observe(g->counters.token, (double)(now - r->last_ns) * 1e-9);
    }
    r->last_ns = now;
    r->n_generated++;
    count_token(g);
}

/* True: r has ended for it. */
static bool is_text_lost(struct engine *g, struct request *r)
{
    bool lost = g->text.failed || r->unsent.failed;
    if (lost)
        end_with_error(g, r, ERROR_MEMORY, "no memory for another token's text");
    return lost;
}

/* An end-of-generation token: what was held back is sent, the token itself is not. */
static void end_answer(struct engine *g, struct request *r)
{
    if (r->n_generated == 0)
        r->first_ns = r->last_ns = clock_ns();
    strbuf_clear(&g->text);
    request_flush(r, &g->text);
    add_unsent(r, 0, &g->text);
    if (is_text_lost(g, r))
        return;
    send_unsent(g, r);
    end_request(g, r, FINISH_END);
}

/* ---- Sampling ---- */

_Static_assert((int)SAMPLER_LARGEST <= (int)DEVICE_LARGEST, "what is asked for");

/* Of how many of its largest logits each of these requests chooses as it would of all; 0: they are not had alone. */
static uint32_t wanted_logits(const struct engine *g, struct request *const *requests, uint32_t n)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < n && forward_gives_largest(g->config.forward); i++) {
        uint32_t k = sampler_reads(g->sampler, &requests[i]->sampling);
        if (!k)
            return 0;
        most = k > most ? k : most;
    }
    return most;
}

/* The next token of each request, into g->picked, by the rows of hidden. False: as forward_logits. */
static bool pick_tokens(struct engine *g, struct request *const *requests, const float *hidden, uint32_t n,
                        struct error *e)
{
    uint32_t k = wanted_logits(g, requests, n);
    if (k ? !forward_largest(g->config.forward, hidden, n, k, g->largest, g->largest_tokens, e)
          : !forward_logits(g->config.forward, hidden, n, false, g->logits, e))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        struct request *r = requests[i];
        g->picked[i] = k ? sampler_pick_largest(g->sampler, &r->sampling, &r->random_state,
                                                g->largest + (size_t)i * k, g->largest_tokens + (size_t)i * k)
                         : sampler_pick(g->sampler, &r->sampling, &r->random_state,
                                        g->logits + (size_t)i * g->config.vocab, r->tokens.ids,
                                        (uint32_t)r->tokens.count);
    }
    counter_add(k ? g->counters.rows_largest : g->counters.rows_whole, n);
    return true;
}

/* Take the next token of r, and the text that can be shown now, for which a credit was taken; then perhaps the end. */
static void take_token(struct engine *g, struct request *r, uint32_t token)
{
    if (!r->ignore_end && tokenizer_is_end(g->config.tokenizer, token)) {
        end_answer(g, r);
        return;
    }
    if (!token_list_push(&r->tokens, token)) {
        frontend_return_credit(r->frontend);
        end_with_error(g, r, ERROR_MEMORY, "no memory for another token");
        return;
    }
    observe_token(g, r);
    strbuf_clear(&g->text);
    enum finish_reason reason = FINISH_NONE;
    if (request_push_token(r, token, &g->text))
        reason = FINISH_STOP;
    else if (r->max_tokens && r->n_generated >= r->max_tokens)
        reason = FINISH_LENGTH;
    else if (r->tokens.count >= g->config.context)
        reason = FINISH_CONTEXT;
    if (reason == FINISH_LENGTH || reason == FINISH_CONTEXT)
        request_flush(r, &g->text);
    add_unsent(r, 1, &g->text);
    if (is_text_lost(g, r))
        return;
    if (r->n_generated == 1 || r->recording || g->config.waits_for_disk || reason != FINISH_NONE || r->last_ns - r->sent_ns >= SEND_NS)
        send_unsent(g, r);
    if (reason != FINISH_NONE)
        end_request(g, r, reason);
}

/* Of the last step, as many events as the frontends take. True: something was sent. */
static bool send_routing(struct engine *g)
{
    bool did = false;
    for (struct request *r = g->running, *next; r; r = next) {
        next = r->next;
        while (has_routing(r) && frontend_take_credit(r->frontend)) {
            struct recording_part part = recording_next(r->recording);
            frontend_send_routing(r->frontend, r->id, &part);
            recording_sent(r->recording, &part);
            did = true;
        }
        if (r->ending != FINISH_NONE && !has_routing(r)) {
            finish(g, r, r->ending);
            did = true;
        }
    }
    return did;
}

/* ---- rows of logits, and the probabilities in them ---- */

/* The step has failed: what it computed for this request is of no use. credit: one was taken for its token. */
static void fail_request(struct engine *g, struct request *r, bool credit, const struct error *e)
{
    if (credit)
        frontend_return_credit(r->frontend);
    end_with_error(g, r, e->code, e->text);
}

void engine_refuse(struct engine *g, struct request *r, const struct error *e)
{
    fail_request(g, r, false, e);
}

/* Whether hidden values of wanted rows are there and not sent. */
static bool has_rows(const struct request *r)
{
    return r->next_row < r->hidden_begin + r->n_hidden;
}

/* NOT_SENT: nothing can be sent now. FAILED: the request has ended. */
enum sending { NOT_SENT, SENT, FAILED };

/* One event for each row. */
static enum sending send_logits(struct engine *g, struct request *r, uint32_t left,
                                const float *hidden)
{
    uint32_t n = 0;
    while (n < left && n < LOGITS_ROWS && frontend_take_credit(r->frontend))
        n++;
    struct error e;
    if (n == 0)
        return NOT_SENT;
    send_all_unsent(g);
    /* not as one request's: how many are computed together hangs on who reads them, and a row shall not */
    if (!forward_logits(g->config.forward, hidden, n, false, g->logits, &e)) {
        while (--n)
            frontend_return_credit(r->frontend);
        fail_request(g, r, true, &e);
        return FAILED;
    }
    for (uint32_t i = 0; i < n; i++)
        frontend_send_logits(r->frontend, r->id, r->next_row++,
                             g->logits + (size_t)i * g->config.vocab, g->config.vocab);
    return SENT;
}

/* One event for all rows; row i has the probabilities of token i + 1. */
static enum sending send_logprobs(struct engine *g, struct request *r, uint32_t left,
                                  const float *hidden)
{
    if (!frontend_take_credit(r->frontend))
        return NOT_SENT;
    send_all_unsent(g);
    float logprobs[LOGPROBS_ROWS];
    uint32_t n = left < LOGPROBS_ROWS ? left : LOGPROBS_ROWS;
    struct error e;
    if (!forward_logits(g->config.forward, hidden, n, true, g->logits, &e)) {
        fail_request(g, r, true, &e);
        return FAILED;
    }
    for (uint32_t i = 0; i < n; i++)
        logprobs[i] = logprob_of(g->logits + (size_t)i * g->config.vocab, g->config.vocab,
                                 r->tokens.ids[r->next_row + i + 1]);
    frontend_send_logprobs(r->frontend, r->id, r->next_row + 1, logprobs, n);
    r->next_row += n;
    return SENT;
}

/* Some rows of one request whose frontend takes them: a step does not wait for more. True: something was sent. */
static bool send_rows(struct engine *g)
{
    for (struct request *r = g->running; r; r = r->next) {
        if (!has_rows(r))
            continue;
        uint32_t left = r->hidden_begin + r->n_hidden - r->next_row;
        const float *hidden =
            r->hidden + (size_t)(r->next_row - r->hidden_begin) * g->config.d_model;
        enum sending sent = r->kind == REQUEST_LOGITS ? send_logits(g, r, left, hidden)
                                                      : send_logprobs(g, r, left, hidden);
        if (sent == NOT_SENT)
            continue;
        if (sent == SENT && r->next_row == r->n_prefill)
            finish(g, r, FINISH_LENGTH);
        return true;
    }
    return false;
}

/* hidden: of the n positions before n_past. */
static bool keep_rows(struct engine *g, struct request *r, const float *hidden, uint32_t n)
{
    if (r->n_past <= r->next_row) /* only what stands before the first wanted row */
        return true;
    if (!r->hidden)
        r->hidden = malloc((size_t)PREFILL_TOKENS * g->config.d_model * sizeof *r->hidden);
    if (!r->hidden)
        return false;
    memcpy(r->hidden, hidden, (size_t)n * g->config.d_model * sizeof *hidden);
    r->hidden_begin = r->n_past - n;
    r->n_hidden = n;
    return true;
}

/* ---- prefill ---- */

/* Tokens of the next piece of prompt. */
static uint32_t piece_tokens(const struct request *r)
{
    uint32_t left = r->n_prefill - r->n_past, most = PREFILL_TOKENS;
    if (r->stepwise)
        most = 1;
    else if (r->recording)
        most = recording_room(r->recording);
    return left < most ? left : most;
}

/* The piece after which the answer's first token comes. */
static bool is_last_piece(const struct request *r)
{
    return r->kind == REQUEST_GENERATE && !r->prompt_only &&
           r->n_past + piece_tokens(r) == r->n_prefill;
}

/* The oldest request with a piece of prompt to compute; the last piece gives a token, so it needs a credit. */
static struct request *next_prefill(const struct engine *g)
{
    for (struct request *r = g->running; r; r = r->next) {
        if (r->n_past >= r->n_prefill || has_rows(r) || has_routing(r))
            continue;
        if (!is_last_piece(r) || frontend_take_credit(r->frontend))
            return r;
    }
    return NULL;
}

static void run_prefill(struct engine *g, struct request *r)
{
    send_all_unsent(g);
    uint64_t started = clock_ns();
    uint32_t n = piece_tokens(r);
    for (uint32_t i = 0; i < n; i++)
        g->batch[i] = (struct batch_token){r->tokens.ids[r->n_past + i], (uint32_t)r->slot,
                                           r->serial, r->n_past + i, r->recording};
    if (r->recording)
        recording_begin(r->recording, r->n_past, n);
    struct error e;
    const float *hidden = forward_run(g->config.forward, g->batch, n, true, &e);
    if (!hidden) {
        fail_request(g, r, is_last_piece(r), &e);
        counter_add(g->counters.prefill_ns, clock_ns() - started);
        return;
    }
    r->n_past += n;
    counter_add(g->counters.prompt_tokens, n);
    if (r->kind != REQUEST_GENERATE) {
        if (!keep_rows(g, r, hidden, n))
            end_with_error(g, r, ERROR_MEMORY, "no memory for rows of logits");
    } else if (r->n_past == r->n_prefill && r->prompt_only) {
        end_request(g, r, FINISH_LENGTH);
    } else if (r->n_past == r->n_prefill) {
        hidden += (size_t)(n - 1) * g->config.d_model;
        if (pick_tokens(g, &r, hidden, 1, &e))
            take_token(g, r, g->picked[0]);
        else
            fail_request(g, r, true, &e);
    }
    counter_add(g->counters.prefill_ns, clock_ns() - started);
}

/* ---- decode ---- */

static uint32_t gather_decode(struct engine *g)
{
    uint32_t n = 0;
    for (struct request *r = g->running; r; r = r->next) {
        if (r->kind != REQUEST_GENERATE || r->n_past < r->n_prefill || r->prompt_only)
            continue;
        if (has_routing(r) || !frontend_take_credit(r->frontend)) {
            counter_add(g->counters.decode_paused, 1);
            send_unsent(g, r);
            continue;
        }
        g->batch[n] = (struct batch_token){r->tokens.ids[r->n_past], (uint32_t)r->slot, r->serial,
                                           r->n_past, r->recording};
        if (r->recording)
            recording_begin(r->recording, r->n_past, 1);
        g->batch_requests[n++] = r;
    }
    return n;
}

static void run_decode(struct engine *g, uint32_t n)
{
    uint64_t started = clock_ns();
    struct error e;
    const float *hidden = forward_run(g->config.forward, g->batch, n, false, &e);
    bool done = hidden && pick_tokens(g, g->batch_requests, hidden, n, &e);
    for (uint32_t i = 0; i < n && !done; i++)
        fail_request(g, g->batch_requests[i], true, &e);
    if (!done) {
        counter_add(g->counters.decode_ns, clock_ns() - started);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        struct request *r = g->batch_requests[i];
        r->n_past++;
        take_token(g, r, g->picked[i]);
    }
    counter_add(g->counters.decode_steps, 1);
    counter_add(g->counters.decode_ns, clock_ns() - started);
}

bool engine_step(struct engine *g)
{
    bool did = send_routing(g);
    did |= send_rows(g);
    if (g->decode_next) {
        g->decode_next = false;
        uint32_t n = gather_decode(g);
        if (n)
            run_decode(g, n);
        return true;
    }
    g->decode_next = true;
    struct request *prefill = next_prefill(g);
    if (prefill) {
        run_prefill(g, prefill);
        return true;
    }
    uint32_t n = gather_decode(g);
    if (n)
        run_decode(g, n);
    return did || n;
}
