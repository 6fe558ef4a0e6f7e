/* Rows of logits of a prompt, and the probabilities in them, for Logits and Logprobs requests; see
 * engine.h. Prefill keeps the hidden values of a chunk; engine_send_rows multiplies some of them
 * with the output head before each step, so that other requests need not wait for all. */
#include "engine_internal.h"

#include "worker/sample/logprob.h"

#include <string.h>

/* NOT_SENT: the sink takes nothing now. FAILED: the request has ended. */
enum sending { NOT_SENT, SENT, FAILED };

bool engine_has_rows(const struct request *r)
{
    return r->next_row < r->hidden_begin + r->n_hidden;
}

void engine_keep_rows(struct engine *g, struct request *r, const float *hidden, uint32_t n)
{
    if (r->n_past <= r->next_row) /* these all stand before the first wanted row */
        return;
    uint32_t begin = r->n_past - n, end = r->n_past < r->end_row ? r->n_past : r->end_row;
    memcpy(r->hidden, hidden, (size_t)(end - begin) * g->config.d_model * sizeof *hidden);
    r->hidden_begin = begin;
    r->n_hidden = end - begin;
}

static uint32_t take_credits(const struct request *r, uint32_t most)
{
    uint32_t n = 0;
    while (n < most && engine_take_credit(r))
        n++;
    return n;
}

static void return_credits(const struct request *r, uint32_t n)
{
    while (n--)
        engine_return_credit(r);
}

/* One event a row. one_request is false: how many rows are computed together depends on how fast
 * the receiver reads, and a row's bits must not. */
static enum sending send_logits(struct engine *g, struct request *r, uint32_t left,
                                const float *hidden)
{
    struct error e;
    uint32_t n = take_credits(r, left < LOGITS_ROWS ? left : LOGITS_ROWS);
    if (n == 0)
        return NOT_SENT;
    engine_send_all_unsent(g);
    if (!forward_logits(g->config.forward, hidden, n, false, g->logits, &e)) {
        return_credits(r, n);
        engine_fail(g, r, e.code, e.text);
        return FAILED;
    }
    for (uint32_t i = 0; i < n; i++)
        r->sink->logits(r->sink_arg, r->next_row++, g->logits + (size_t)i * g->config.vocab,
                        g->config.vocab);
    return SENT;
}

_Static_assert((int)LOGPROBS_ROWS <= (int)REQUEST_EVENT_LOGPROBS, "an event has as many");

static void find_logprobs(struct engine *g, struct request *r, const float *logits, uint32_t i)
{
    uint32_t vocab = g->config.vocab, token = r->tokens.ids[r->next_row + i + 1];
    double norm = logprob_norm(logits, vocab);
    r->token_logprobs[i] = logprob_of(logits, norm, token);
    logprob_top(g->sampler, logits, norm, r->n_top, r->top_tokens + (size_t)i * r->n_top,
                r->top_logprobs + (size_t)i * r->n_top);
}

/* One event for all rows. Row i has the probabilities of token i + 1. */
static enum sending send_logprobs(struct engine *g, struct request *r, uint32_t left,
                                  const float *hidden)
{
    struct error e;
    uint32_t n = left < LOGPROBS_ROWS ? left : LOGPROBS_ROWS;
    if (!engine_take_credit(r))
        return NOT_SENT;
    engine_send_all_unsent(g);
    if (!forward_logits(g->config.forward, hidden, n, true, g->logits, &e)) {
        engine_return_credit(r);
        engine_fail(g, r, e.code, e.text);
        return FAILED;
    }
    for (uint32_t i = 0; i < n; i++)
        find_logprobs(g, r, g->logits + (size_t)i * g->config.vocab, i);
    struct response_logprobs event = engine_logprobs(r, 0, n);
    r->sink->logprobs(r->sink_arg, r->next_row + 1, &event);
    r->next_row += n;
    return SENT;
}

bool engine_send_rows(struct engine *g)
{
    for (struct request *r = g->running; r; r = r->next) {
        if (!engine_has_rows(r))
            continue;
        uint32_t left = r->hidden_begin + r->n_hidden - r->next_row;
        const float *hidden =
            r->hidden + (size_t)(r->next_row - r->hidden_begin) * g->config.d_model;
        enum sending sent = r->kind == REQUEST_LOGITS ? send_logits(g, r, left, hidden)
                                                      : send_logprobs(g, r, left, hidden);
        if (sent == NOT_SENT)
            continue;
        if (sent == SENT && r->next_row == r->end_row)
            engine_finish(g, r, FINISH_LENGTH);
        return true;
    }
    return false;
}
