/* The rows of answers in a step: each request's last token, and drafts of those that may follow it;
 * see engine.h.
 *
 * A draft is a row as any other: the token after each row is picked as it would be in a step of its
 * own, because a row's bits depend on its own request alone. As long as the picked token is the one
 * that the next row was computed with, that row counts too. The positions behind are computed again
 * by later steps, which overwrite their keys and values: n_past does not include them, so neither
 * attention nor the prefix cache sees them.
 *
 * Grammars run in the engine's thread, between two steps. Where they need many steps of their own,
 * a batch has as many of their requests as fit within GRAMMAR_STEPS, and at least one; the others
 * miss a turn. Those that started first go first. They cannot go on for long: an answer's steps
 * are limited (lib/grammar/matcher.c). */
#include "engine_internal.h"

#include "model/speculate.h"

void engine_fail_step(struct engine *g, struct request *r, bool credit, const struct error *e)
{
    if (credit)
        engine_return_credit(r);
    engine_fail(g, r, e->code, e->text);
}

bool engine_generates(const struct request *r)
{
    return r->kind == REQUEST_GENERATE && r->n_past >= r->n_prefill && !r->prompt_only;
}

/* Makes sure that every request that generates has a page for its next position. */
static void find_decode_pages(struct engine *g)
{
    for (struct request *r = g->running, *next; r; r = next) {
        next = r->next;
        if (!engine_generates(r) || r->n_past < r->n_put * KV_POOL_TOKENS)
            continue;
        engine_need_pages(g, r, r->n_past + 1);
        next = g->running; /* the list may have changed: all that have their page are skipped */
    }
}

/* Whether r's grammar is one of those that share a step's time, by its last step. */
static bool has_long_grammar(const struct request *r)
{
    return r->grammar_steps > GRAMMAR_LONG;
}

/* The requests that may generate now, a credit taken for each. */
static uint32_t list_answers(struct engine *g)
{
    uint32_t n = 0;
    uint64_t steps = 0;
    for (struct request *r = g->running; r; r = r->next) {
        if (!engine_generates(r))
            continue;
        bool waits = steps > GRAMMAR_STEPS && has_long_grammar(r);
        if (waits || engine_has_routing(r) || !engine_take_credit(r)) {
            counter_add(g->counters.decode_stalled, 1);
            engine_send_unsent(g, r);
            continue;
        }
        g->answers[n++] =
            (struct answer_rows){.request = r, .n = 1, .long_grammar = has_long_grammar(r)};
        steps += r->grammar_steps;
        r->grammar_steps = 0;
    }
    return n;
}

/* ---- Drafts ---- */

/* Drafts that r may have: its answer may still need their positions, and it has their pages. No
 * request loses pages for drafts of another. */
static uint32_t most_drafts(struct engine *g, struct request *r, uint32_t most)
{
    uint32_t left = r->n_most - r->n_past - 1, chosen;
    most = left < most ? left : most;
    most = r->max_drafts < most ? r->max_drafts : most;
    chosen = reasoning_limit_free_tokens(r->reasoning, most + 1);
    most = chosen ? chosen - 1 : 0; /* behind them the tokens are known */
    if (engine_extend_pages(g, r, r->n_past + 1 + most))
        return most;
    uint32_t has = r->n_put * KV_POOL_TOKENS - r->n_past - 1;
    most = has < most ? has : most;
    return most ? most : draft_metrics_decline(&g->draft_metrics, DRAFT_NO_PAGES);
}

/* Rows that drafts may take. */
static uint32_t draft_rows(const struct engine *g, uint32_t n_answers)
{
    uint32_t most = g->rows_most;
    if (g->paged && g->speculation.automatic) /* more rows leave the device's fast way */
        most = WORKER_DEVICE_ONLY_TOKENS;
    return n_answers < most ? most - n_answers : 0;
}

/* A token that r's grammar refuses is never right, and one that it forces is likely to be. `most`
 * drafts are looked at. */
static void bind_draft(const struct engine *g, struct request *r, uint32_t most)
{
    uint32_t tokens[SPECULATE_MOST], n = draft_length(r->draft);
    struct forced_tokens forced;
    _Static_assert((int)FORCED_TOKENS_MOST >= (int)SPECULATE_MOST, "a step has no more drafts");
    n = n < most ? n : most;
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = draft_token(r->draft, r->tokens.ids, i);
    if (n)
        draft_cut(r->draft, grammar_cursor_try(r->grammar, tokens, n));
    grammar_cursor_forced(r->grammar, g->config.tokenizer, &forced);
    draft_force(r->draft, &forced, most);
}

/* Finds the draft of an answer, of which the step may compute `most` tokens. Returns how many
 * there are. */
static uint32_t find_draft(const struct engine *g, const struct answer_rows *a, uint32_t most)
{
    struct request *r = a->request;
    if (!r->draft)
        return 0;
    draft_find(r->draft, r->tokens.ids, (uint32_t)r->tokens.count);
    most = most < g->speculation.most ? most : g->speculation.most;
    most = most < r->max_drafts ? most : r->max_drafts;
    if (a->long_grammar)
        draft_cut(r->draft, 0);
    else if (r->grammar && most)
        bind_draft(g, r, most);
    uint32_t length = draft_length(r->draft);
    return length < most ? length : most;
}

/* Finds each answer's draft, and chooses how much of it the step computes. A draft of which it
 * computes nothing is still compared with what is picked. */
static void choose_drafts(struct engine *g, uint32_t n_answers, bool drafts)
{
    struct speculation *s = &g->speculation;
    struct speculation_step step = speculation_begin(s, n_answers);
    uint32_t rows = drafts ? draft_rows(g, n_answers) : 0;
    for (uint32_t i = 0; i < n_answers; i++) {
        struct request *r = g->answers[i].request;
        uint32_t most = find_draft(g, &g->answers[i], step.drafts ? rows : 0);
        if (!r->draft || !draft_length(r->draft))
            continue;
        uint32_t n = speculation_choose(s, &step, r->draft, most);
        n = n ? most_drafts(g, r, n)
              : draft_metrics_decline(&g->draft_metrics, speculation_declined(&step, rows));
        g->answers[i].n += n;
        rows -= n;
    }
}

/* ---- The batch ---- */

static void add_rows(struct engine *g, struct answer_rows *a, uint32_t first)
{
    struct request *r = a->request;
    const uint32_t *tokens = r->tokens.ids;
    a->first = first;
    for (uint32_t i = 0; i < a->n; i++) {
        uint32_t token = i ? draft_token(r->draft, tokens, i - 1) : tokens[r->n_past];
        g->batch[first + i] = (struct batch_token){token,         (uint32_t)r->slot, r->serial,
                                                   r->n_past + i, r->recording,      NULL};
    }
    if (r->recording)
        recording_begin(r->recording, r->n_past, a->n);
}

uint32_t engine_gather_answers(struct engine *g, bool drafts, uint32_t *n_answers)
{
    uint32_t n = 0;
    find_decode_pages(g);
    *n_answers = list_answers(g);
    if (g->speculation.most)
        choose_drafts(g, *n_answers, drafts);
    for (uint32_t i = 0; i < *n_answers; i++) {
        add_rows(g, &g->answers[i], n);
        n += g->answers[i].n;
    }
    return n;
}

/* ---- The tokens ---- */

/* Adds the token after row i of a to its answer. Returns whether row i + 1 was computed with that
 * token and counts too. False, too: r has ended. */
static bool take_row(struct engine *g, const struct answer_rows *a, uint32_t i)
{
    struct request *r = a->request;
    struct error e;
    uint32_t token;
    r->n_accepted += i > 0;
    if (i > 0)
        draft_metrics_accept(&g->draft_metrics, i - 1);
    r->n_past++;
    engine_share_pages(g, r, KV_DEFINED, (uint64_t)g->token_ns);
    engine_keep_state(g, r);
    if (!engine_pick_token(g, r, a->first + i, &token, &e)) {
        engine_fail_step(g, r, true, &e);
        return false;
    }
    bool right = i + 1 < a->n && g->batch[a->first + i + 1].token == token;
    if (r->draft)
        draft_learn(r->draft, r->tokens.ids, i, token, &g->speculation.rates);
    return engine_take_token(g, r, token) && right && !has_long_grammar(r) && engine_take_credit(r);
}

/* Returns how many drafts were right. */
static uint32_t finish_answer(struct engine *g, const struct answer_rows *a)
{
    uint32_t i = 0;
    a->request->n_drafted += a->n - 1;
    counter_add(g->draft_metrics.drafted, a->n - 1);
    engine_begin_tokens(g, a->request);
    while (take_row(g, a, i))
        i++;
    engine_observe_tokens(g);
    return i;
}

uint32_t engine_finish_answers(struct engine *g, uint32_t n_answers, const float *hidden)
{
    struct error e;
    uint32_t n_accepted = 0;
    bool done = engine_begin_picking(g, g->answers, n_answers, hidden, &e);
    for (uint32_t i = 0; i < n_answers; i++)
        if (done)
            n_accepted += finish_answer(g, &g->answers[i]);
        else
            engine_fail_step(g, g->answers[i].request, true, &e);
    return n_accepted;
}
