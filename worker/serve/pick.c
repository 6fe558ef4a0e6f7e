/* The next tokens of requests: their choice from rows of logits, and what each adds to its answer;
 * see engine_internal.h. */
#include "engine_internal.h"

#include "base/clock.h"
#include "worker/sample/logprob.h"

/* The tokens of a request go in one event as long as they come within this time: a frame of a
 * screen. Each event wakes a thread here and the frontend, which takes some 40 us of the cores that
 * compute; a token of a small model takes 200. */
#define SEND_NS 16000000u

/* ---- The next token ---- */

static void count_token(struct engine *g, uint64_t now_ns)
{
    counter_add(g->counters.generated_tokens, 1);
    token_rate_add(&g->rate, now_ns);
}

static void note_token(struct engine *g, struct request *r)
{
    uint64_t now = clock_ns();
    if (r->first_ns) {
        g->fresh.n++;
    } else {
        r->first_ns = now;
        if (r->n_generated == 0) /* else the answer is continued */
            histogram_observe(g->counters.first_token, (double)(now - r->submitted_ns) * 1e-9);
    }
    r->last_ns = now;
    r->n_generated++;
    count_token(g, now);
}

/* Whether memory was short for the text of r's answer; then r has ended. */
static bool is_text_lost(struct engine *g, struct request *r)
{
    bool lost = g->text.failed || request_has_lost_text(r) || r->unsent.failed ||
                r->unsent_bytes.failed || r->breakers.text.failed || r->breakers.piece.failed;
    if (lost)
        engine_fail(g, r, ERROR_MEMORY, "no memory for another token's text");
    return lost;
}

/* At a token that ends the answer: sends the text that was held back. The token goes with the
 * summary. */
static void end_answer(struct engine *g, struct request *r, uint32_t token)
{
    r->end_token = token;
    r->end_place = r->n_unsent;
    r->end_forced = r->unsent_forced; /* then it alone: the text is of tokens before it */
    r->unsent_forced = false;
    if (!r->first_ns)
        r->first_ns = r->last_ns = clock_ns();
    strbuf_clear(&g->text);
    request_flush(r, &g->text);
    engine_add_unsent(r, 0, &g->text);
    if (is_text_lost(g, r))
        return;
    engine_send_unsent(g, r);
    engine_end(g, r, FINISH_END);
}

/* ---- Sampling ---- */

_Static_assert((int)SAMPLER_LARGEST <= (int)DEVICE_LARGEST, "the device finds as many");

static struct sampler_turn turn_of(struct engine *g, struct request *r)
{
    if (r->sampling.dry_multiplier > 0)
        breakers_follow(&r->breakers, g->config.tokenizer, r->tokens.ids,
                        (uint32_t)r->tokens.count);
    bool early = r->n_generated < r->min_tokens;
    return (struct sampler_turn){.tokens = r->tokens.ids,
                                 .n_tokens = (uint32_t)r->tokens.count,
                                 .n_unbroken = r->breakers.n_unbroken,
                                 .breaks = breakers_has,
                                 .breaks_arg = &r->breakers,
                                 .biases = r->biases,
                                 .n_biases = r->n_biases,
                                 .banned = r->ends,
                                 .n_banned = early ? r->n_ends : 0,
                                 .guard = r->guard,
                                 .mu = &r->mirostat_mu};
}

/* How many of its largest logits each row of an answer needs to choose as it would from all. 0: all
 * of them. A later row's conversation is longer. */
static uint32_t wanted_logits(struct engine *g, const struct answer_rows *a)
{
    struct sampler_turn turn = turn_of(g, a->request);
    if (a->request->logprobs)
        return 0;
    uint32_t most = sampler_reads(g->sampler, &a->request->sampling, &turn);
    for (uint32_t i = 1; i < a->n && most; i++) {
        turn.n_tokens++;
        uint32_t k = sampler_reads(g->sampler, &a->request->sampling, &turn);
        most = k > most || !k ? k : most;
    }
    return most;
}

/* 0: a row needs all, or the device does not find the largest. */
static uint32_t most_wanted(struct engine *g, const struct answer_rows *answers, uint32_t n)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < n && forward_gives_largest(g->config.forward); i++) {
        uint32_t k = wanted_logits(g, &answers[i]);
        if (!k)
            return 0;
        most = k > most ? k : most;
    }
    return most;
}

static bool find_largest(struct engine *g, struct error *e)
{
    counter_add(g->counters.rows_largest, g->rows.n);
    return forward_largest(g->config.forward, g->rows.hidden, g->rows.n, g->rows.k, g->largest,
                           g->largest_tokens, e);
}

static bool compute_rows(struct engine *g, struct error *e)
{
    counter_add(g->counters.rows_whole, g->rows.n);
    g->rows.computed = true;
    return forward_logits(g->config.forward, g->rows.hidden, g->rows.n, false, g->logits, e);
}

bool engine_begin_picking(struct engine *g, const struct answer_rows *answers, uint32_t n,
                          const float *hidden, struct error *e)
{
    uint32_t rows = answers[n - 1].first + answers[n - 1].n;
    g->rows = (struct picked_rows){.hidden = hidden, .n = rows, .k = most_wanted(g, answers, n)};
    return g->rows.k ? find_largest(g, e) : compute_rows(g, e);
}

static uint32_t pick_of_largest(struct engine *g, struct request *r, uint32_t row)
{
    struct sampler_turn turn = turn_of(g, r);
    size_t first = (size_t)row * g->rows.k;
    return sampler_pick_largest(g->sampler, &r->sampling, &turn, g->largest + first,
                                g->largest_tokens + first, g->rows.k);
}

/* From a whole row. Its log-probabilities take the place after those of the unsent tokens: they
 * count where the token becomes part of the answer. */
static uint32_t pick_of_row(struct engine *g, struct request *r, float *logits)
{
    struct sampler_turn turn = turn_of(g, r);
    uint32_t vocab = g->config.vocab, place = r->n_unsent;
    if (!r->logprobs)
        return sampler_pick(g->sampler, &r->sampling, &turn, logits);
    double norm = logprob_norm(logits, vocab);
    logprob_top(g->sampler, logits, norm, r->n_top, r->top_tokens + (size_t)place * r->n_top,
                r->top_logprobs + (size_t)place * r->n_top);
    uint32_t token = sampler_pick(g->sampler, &r->sampling, &turn, logits);
    r->token_logprobs[place] = logprob_of(logits, norm, token);
    return token;
}

/* A mask can take 20 ms, and a batch many: the thread is alive, and may have to stop. */
static bool goes_on(struct engine *g, struct error *e)
{
    heartbeat_beat(g->config.heartbeat);
    pthread_mutex_lock(&g->lock);
    bool stopping = g->stopping;
    pthread_mutex_unlock(&g->lock);
    if (stopping)
        error_set(e, ERROR_UNAVAILABLE, ENGINE_STOPPING);
    return !stopping;
}

/* Whether a token is forced. One that the grammar refuses is not; the submitter notices. */
static bool pick_forced(struct request *r, uint32_t *token)
{
    if (!reasoning_limit_forces(r->reasoning, token))
        return false;
    if (!r->guard || r->guard->accepts(r->guard->arg, *token))
        return true;
    reasoning_limit_give_up(r->reasoning);
    return false;
}

bool engine_pick_token(struct engine *g, struct request *r, uint32_t row, uint32_t *token,
                       struct error *e)
{
    if (r->grammar && !goes_on(g, e))
        return false;
    if (pick_forced(r, token))
        return true;
    *token = g->rows.k ? pick_of_largest(g, r, row) : SAMPLER_UNDECIDED;
    if (*token != SAMPLER_UNDECIDED)
        return true;
    if (!g->rows.computed && !compute_rows(g, e))
        return false;
    *token = pick_of_row(g, r, g->logits + (size_t)row * g->config.vocab);
    return true;
}

static bool is_due(const struct engine *g, const struct request *r, enum finish_reason reason)
{
    bool full = r->logprobs && r->n_unsent == REQUEST_EVENT_LOGPROBS;
    return full || r->unsent_forced || r->n_generated == 1 || r->recording ||
           g->config.waits_for_disk || reason != FINISH_NONE || r->last_ns - r->sent_ns >= SEND_NS;
}

static bool is_ending(const struct engine *g, const struct request *r, uint32_t token)
{
    for (size_t i = 0; i < r->stop_tokens.count; i++)
        if (r->stop_tokens.ids[i] == token)
            return true;
    return !r->ignore_end && tokenizer_is_end(g->config.tokenizer, token);
}

/* Whether the grammar allows the token, which then becomes part of the answer or ends it. It does
 * not only where no token may come; then r has failed. */
static bool follow_grammar(struct engine *g, struct request *r, uint32_t token, bool ending)
{
    struct error e;
    if (!r->grammar)
        return true;
    bool allowed =
        ending ? grammar_cursor_may_end(r->grammar) : grammar_cursor_advance(r->grammar, token);
    struct grammar_cursor_cost cost = grammar_cursor_take_cost(r->grammar);
    counter_add(g->counters.grammar_ns, cost.ns);
    counter_add(g->counters.grammar_masks, cost.masks);
    r->grammar_steps += cost.steps;
    if (r->n_generated == 0)
        grammar_cursor_note_first_steps(r->grammar, cost.steps);
    if (allowed)
        return true;
    engine_return_credit(r);
    (void)grammar_cursor_error(r->grammar, &e);
    engine_fail(g, r, e.code, e.text);
    return false;
}

static enum finish_reason reason_to_finish(const struct engine *g, const struct request *r)
{
    if (r->grammar && grammar_cursor_must_end(r->grammar))
        return FINISH_END;
    return request_is_full(r, g->config.context);
}

bool engine_take_token(struct engine *g, struct request *r, uint32_t token)
{
    bool ending = is_ending(g, r, token);
    uint32_t forced;
    if (reasoning_limit_forces(r->reasoning, &forced)) {
        engine_send_unsent(g, r); /* a forced token has an event of its own */
        r->unsent_forced = true;
    }
    if (!follow_grammar(g, r, token, ending))
        return false;
    if (ending) {
        end_answer(g, r, token);
        return false;
    }
    r->tokens.ids[r->tokens.count++] = token; /* request_reserve made space for it */
    note_token(g, r);
    strbuf_clear(&g->text);
    bool stopped = request_push_token(r, token, &g->text);
    enum finish_reason reason = stopped ? FINISH_STOP : reason_to_finish(g, r);
    if (reason != FINISH_NONE && reason != FINISH_STOP)
        request_flush(r, &g->text);
    engine_add_unsent(r, 1, &g->text);
    if (is_text_lost(g, r))
        return false;
    if (is_due(g, r, reason))
        engine_send_unsent(g, r);
    if (reason != FINISH_NONE)
        engine_end(g, r, reason);
    return reason == FINISH_NONE;
}
