/* The engine's steps; see engine.h.
 *
 * A step computes one batch: rows of every request that generates (answers.c), then rows of
 * prompts, as many as there are and the pace allows. Requests that want something of each position
 * have a batch of their own.
 *
 * Of the rows of prompts the one that started first gets half, or what the others leave. The others
 * get the rest, the one with the fewest tokens left first. So a short prompt does not wait for a
 * long one, and the long one takes at most twice its time.
 *
 * A prompt's rows come in whole groups (kv_kind), which a batch never cuts: the rows of a group are
 * computed by themselves where products may round otherwise (batch_kind).
 *
 * The tokens that prompts give need their grammars' steps, as those of answers do (answers.c). The
 * batch has as many of these prompts' ends as fit within GRAMMAR_STEPS, and at least one; the
 * others are computed in later steps.
 *
 * A conversation that comes back from a file is read in steps of their own, which alternate with
 * those of other prompts. No step reads for longer than a batch with a prompt takes, but for one
 * page. Of several conversations the one that started first and the one with the fewest tokens left
 * take turns.
 *
 * Pace: a batch with rows of a prompt takes longer than one without, and the answers wait for it.
 * After each such batch the answers get the time of `decode_share` in batches without a prompt; and
 * while there are answers a prompt's rows are as few as take STALL_NS, unless every batch takes
 * long (prompt_pace.h). */
#include "engine_internal.h"

#include "base/clock.h"

#define STALL_NS 250000000.0
enum { LEAST_ROWS = 16 /* fewer rows of a prompt share too few reads of experts */ };

static void average(double *mean, double value)
{
    *mean = *mean > 0 ? *mean + (value - *mean) / 8 : value;
}

/* ---- Prompts ---- */

static bool has_prompt(const struct request *r)
{
    return r->n_past < r->n_prefill && !engine_reads_pages(r) && !engine_has_rows(r) &&
           !engine_has_routing(r);
}

static bool shares_batch(const struct request *r)
{
    return has_prompt(r) && r->shares_batch;
}

/* Positions of a prompt that are computed in the same way. */
struct part {
    enum kv_kind kind;
    uint32_t n;
};

/* The part of r's prompt that begins at a position below n_prefill: a whole group, or all that is
 * left. */
static struct part part_at(const struct engine *g, const struct request *r, uint32_t position)
{
    uint32_t left = r->n_prefill - position;
    enum kv_kind kind = r->stepwise || r->recording
                            ? KV_DEFINED
                            : kv_kind_of(position, r->n_prompt, g->config.exact);
    uint32_t group = kind == KV_LARGE_GROUP   ? KV_LARGE_TOKENS
                     : kind == KV_SMALL_GROUP ? KV_SMALL_TOKENS
                                              : left;
    return (struct part){kind, group < left ? group : left};
}

/* The first part of positions [position, end). */
static struct part first_part(const struct engine *g, const struct request *r, uint32_t position,
                              uint32_t end)
{
    struct part p = part_at(g, r, position);
    if (p.n > end - position)
        p.n = end - position;
    return p;
}

/* Tokens of the next chunk of r's prompt, at most `most`: groups are whole. */
static uint32_t chunk_tokens(const struct engine *g, const struct request *r, uint32_t most)
{
    uint32_t n = 0, left = r->n_prefill - r->n_past;
    if (r->stepwise)
        most = 1;
    else if (r->recording)
        most = recording_capacity(r->recording);
    while (n < left) {
        struct part p = part_at(g, r, r->n_past + n);
        if (p.kind == KV_DEFINED && p.n > most - n)
            p.n = most - n;
        if (p.n == 0 || p.n > most - n)
            break;
        n += p.n;
    }
    return n;
}

/* Whether a chunk of n tokens gives the answer's next token. */
static bool gives_token(const struct request *r, uint32_t n)
{
    return r->kind == REQUEST_GENERATE && !r->prompt_only && r->n_past + n == r->n_prefill;
}

/* Rows [first, first + n) of the batch are the next positions of r's prompt. */
static void add_rows(struct engine *g, struct request *r, uint32_t first, uint32_t n)
{
    struct part p;
    for (uint32_t i = 0; i < n; i++)
        g->batch[first + i] = (struct batch_token){r->tokens.ids[r->n_past + i],
                                                   (uint32_t)r->slot,
                                                   r->serial,
                                                   r->n_past + i,
                                                   r->recording,
                                                   engine_snapshot_after(g, r, r->n_past + i)};
    for (uint32_t i = 0; i < n; i += p.n) {
        p = first_part(g, r, r->n_past + i, r->n_past + n);
        if (p.kind != KV_DEFINED)
            g->groups[g->n_groups++] = (struct row_group){first + i, p.n};
    }
    if (r->recording)
        recording_begin(r->recording, r->n_past, n);
}

/* The rows of a prompt have been computed, in this time. */
static void finish_rows(struct engine *g, const struct prompt_rows *p, const float *hidden,
                        uint64_t ns)
{
    struct request *r = p->request;
    struct error e;
    struct part part;
    hidden += (size_t)p->first * g->config.d_model;
    for (uint32_t end = r->n_past + p->n; r->n_past < end;) {
        part = first_part(g, r, r->n_past, end);
        r->n_past += part.n;
        engine_share_pages(g, r, part.kind, ns * part.n / p->n);
    }
    counter_add(g->counters.prompt_tokens, p->n);
    engine_report_progress(r);
    engine_keep_snapshots(g, r);
    if (r->kind != REQUEST_GENERATE) {
        engine_keep_rows(g, r, hidden, p->n);
    } else if (r->n_past == r->n_prefill && r->prompt_only) {
        engine_end(g, r, FINISH_LENGTH);
    } else if (r->n_past == r->n_prefill) {
        const struct answer_rows last = {.request = r, .n = 1};
        uint32_t token;
        hidden += (size_t)(p->n - 1) * g->config.d_model;
        engine_begin_tokens(g, r);
        if (engine_begin_picking(g, &last, 1, hidden, &e) && engine_pick_token(g, r, 0, &token, &e))
            engine_take_token(g, r, token);
        else
            engine_fail_step(g, r, true, &e);
        engine_observe_tokens(g);
    }
}

static struct batch_kind kind_of_batch(const struct engine *g, uint32_t prompt_rows)
{
    return (struct batch_kind){.groups = {g->groups, g->n_groups}, .prompt_rows = prompt_rows};
}

/* A batch of rows of one prompt. */
static void run_apart(struct engine *g, const struct prompt_rows *p)
{
    struct request *r = p->request;
    uint64_t started = clock_ns();
    struct error e;
    g->n_groups = 0;
    add_rows(g, r, 0, p->n);
    struct batch_kind kind = kind_of_batch(g, p->n);
    kind.stepwise = r->stepwise;
    const float *hidden =
        forward_run(g->config.forward, g->batch, p->n, kind, r->kind != REQUEST_GENERATE, &e);
    if (hidden)
        finish_rows(g, p, hidden, clock_ns() - started);
    else
        engine_fail_step(g, r, p->has_credit, &e);
}

/* Sets *p to the next chunk of r's prompt. False: its sink takes no token now. */
static bool take_chunk(struct request *r, uint32_t first, uint32_t n, struct prompt_rows *p)
{
    *p = (struct prompt_rows){r, first, n, gives_token(r, n)};
    return !p->has_credit || engine_take_credit(r);
}

/* The oldest prompt whose next chunk has a batch of its own. */
static bool find_apart(struct engine *g, struct prompt_rows *p)
{
    for (struct request *r = g->running; r; r = r->next) {
        if (!has_prompt(r) || r->shares_batch)
            continue;
        if (!engine_find_beginning(g, r))
            return false; /* the list has changed: look again in the next step */
        if (engine_reads_pages(r))
            continue;
        uint32_t n = chunk_tokens(g, r, g->config.batch);
        if (!engine_need_pages(g, r, r->n_past + n))
            return false; /* as above */
        if (take_chunk(r, 0, n, p))
            return true;
    }
    return false;
}

/* Tokens of r's next chunk, at most `most`, for which it has pages or gets some. 0: there are none.
 */
static uint32_t tokens_with_pages(struct engine *g, struct request *r, uint32_t most)
{
    uint32_t n = chunk_tokens(g, r, most);
    if (engine_extend_pages(g, r, r->n_past + n))
        return n;
    uint32_t has = r->n_put * KV_POOL_TOKENS - r->n_past;
    return chunk_tokens(g, r, has < n ? has : n);
}

/* The fewest rows of r's prompt that a batch may have. */
static uint32_t least_tokens(const struct engine *g, const struct request *r)
{
    struct part p = part_at(g, r, r->n_past);
    return p.kind == KV_DEFINED ? 1 : p.n;
}

/* The rows of prompts in a batch. */
struct gathered {
    uint32_t begin, n; /* rows [begin, n) */
    uint32_t n_prompts;
    uint64_t grammar_steps; /* of long grammars, for the tokens that the prompts give */
};

/* Steps that r's grammar may need for the token that the next n rows of its prompt give. 0: few.
 * Where none of its answers has begun yet, two such prompts fit. */
static uint64_t long_grammar_steps(const struct request *r, uint32_t n)
{
    if (!r->grammar || !gives_token(r, n))
        return 0;
    uint64_t steps = r->grammar_steps ? r->grammar_steps
                                      : grammar_cursor_first_steps(r->grammar, GRAMMAR_STEPS / 2);
    return steps > GRAMMAR_LONG ? steps : 0;
}

static bool waits_for_grammars(const struct request *r, uint32_t n, const struct gathered *b)
{
    uint64_t steps = long_grammar_steps(r, n);
    return steps > 0 && b->grammar_steps > 0 && b->grammar_steps + steps > GRAMMAR_STEPS;
}

/* Adds the next n rows of r's prompt, unless its sink takes no token now, or there is no time for
 * its grammar. */
static void add_chunk(struct engine *g, struct request *r, uint32_t n, struct gathered *b)
{
    if (n == 0 || waits_for_grammars(r, n, b) || !take_chunk(r, b->n, n, &g->prompts[b->n_prompts]))
        return;
    b->grammar_steps += long_grammar_steps(r, n);
    if (gives_token(r, n))
        r->grammar_steps = 0;
    add_rows(g, r, b->n, n);
    b->n += n;
    b->n_prompts++;
}

/* Whether a later batch has the next rows of r's prompt. */
static bool must_wait(const struct engine *g, const struct request *r, uint32_t most,
                      const struct gathered *b)
{
    uint32_t n = chunk_tokens(g, r, most);
    return n == 0 || engine_reads_pages(r) || waits_for_grammars(r, n, b);
}

static bool has_rows(const struct engine *g, const struct request *r, const struct gathered *b)
{
    uint32_t i = 0;
    while (i < b->n_prompts && g->prompts[i].request != r)
        i++;
    return i < b->n_prompts;
}

/* Adds at most `most` rows of r's prompt, but for a first group of the batch that has more; or of
 * the prompt that r follows. False: neither has rows in the batch. */
static bool add_prompt(struct engine *g, struct request *r, uint32_t most, struct gathered *b)
{
    uint32_t least = least_tokens(g, r);
    if (has_rows(g, r, b))
        return true;
    if (r->follows && add_prompt(g, r->follows, most, b))
        return true;
    if (engine_reads_pages(r))
        return false;
    if (b->n == b->begin && most < least)
        most = least;
    for (const struct request *f = r->follows; f; f = f->follows)
        if (must_wait(g, f, most, b))
            return false; /* it gets rows first in another step */
    add_chunk(g, r, tokens_with_pages(g, r, most), b);
    return has_rows(g, r, b);
}

/* Nothing moves: the first prompt without a page takes one from other requests. */
static void add_without_pages(struct engine *g, struct gathered *b)
{
    for (struct request *r = g->running; r; r = r->next) {
        if (!shares_batch(r) || tokens_with_pages(g, r, least_tokens(g, r)) > 0)
            continue;
        if (engine_need_pages(g, r, r->n_past + least_tokens(g, r)))
            add_chunk(g, r, least_tokens(g, r), b);
        return; /* the list may have changed */
    }
}

static uint32_t tokens_left(const struct request *r)
{
    return r->n_prefill - r->n_past;
}

/* Fills g->order with the prompts that may share a batch: the one that started first, then those
 * with the fewest tokens left. Returns how many they are. */
static uint32_t order_prompts(struct engine *g)
{
    uint32_t n = 0;
    for (struct request *r = g->running; r; r = r->next) {
        uint32_t at = n;
        if (!shares_batch(r))
            continue;
        for (; at > 1 && tokens_left(g->order[at - 1]) > tokens_left(r); at--)
            g->order[at] = g->order[at - 1];
        g->order[at] = r;
        n++;
    }
    return n;
}

/* The request that computes next what r needs. */
static const struct request *leader_of(const struct request *r)
{
    while (r->follows)
        r = r->follows;
    return r;
}

/* The first of n prompts that does not follow the one that `first` follows, nor first itself. n:
 * there is none. */
static uint32_t find_other(const struct engine *g, uint32_t n, const struct request *first)
{
    uint32_t i = 0;
    while (i < n && leader_of(g->order[i]) == leader_of(first))
        i++;
    return i;
}

/* The rows of `all` that the first of n prompts may have. */
static uint32_t share_of_first(const struct engine *g, uint32_t n, uint32_t all)
{
    const struct request *first = leader_of(g->order[0]);
    uint64_t others = 0;
    for (uint32_t i = 1; i < n; i++)
        if (!g->order[i]->follows && g->order[i] != first)
            others += tokens_left(g->order[i]);
    return others < all / 2 ? all - (uint32_t)others : all - all / 2;
}

/* How many rows of prompts the batch may have, of which the first are r's. */
static uint32_t rows_at_once(const struct engine *g, const struct request *r,
                             const struct gathered *b)
{
    uint32_t most = g->config.batch, least = least_tokens(g, r);
    if (b->begin == 0)
        return most;
    return prompt_pace_rows(&g->prompt_pace, STALL_NS, least > LEAST_ROWS ? least : LEAST_ROWS,
                            most);
}

/* Adds rows of prompts to the batch. Where a group takes the whole batch the first prompt and the
 * others take turns. */
static void gather_prompts(struct engine *g, struct gathered *b)
{
    engine_share_beginnings(g);
    uint32_t n = order_prompts(g);
    if (n == 0)
        return;
    struct request *oldest = g->order[0];
    uint32_t other = find_other(g, n, oldest);
    if (g->others_first && other < n) {
        g->order[0] = g->order[other];
        g->order[other] = oldest;
    }
    uint32_t most = rows_at_once(g, leader_of(g->order[0]), b);
    uint32_t first = share_of_first(g, n, most);
    for (uint32_t i = 0; i < n && b->n - b->begin < most; i++) {
        uint32_t left = most - (b->n - b->begin);
        add_prompt(g, g->order[i], i == 0 ? first : left, b);
    }
    if (b->n == 0)
        add_without_pages(g, b);
    g->others_first = other < n && b->n_prompts == 1 && g->prompts[0].request == leader_of(oldest);
}

/* ---- A step ---- */

/* What a batch has. */
struct step_rows {
    uint32_t n;                   /* rows */
    uint32_t n_answers, n_decode; /* requests that generate, their rows: the first */
    uint32_t n_prompts;           /* requests */
    uint32_t n_accepted;          /* drafts that were right */
};

/* A batch of rows that generate, and rows of prompts after them. */
static void run_shared(struct engine *g, struct step_rows *s)
{
    uint64_t started = clock_ns();
    struct error e;
    struct batch_kind kind = kind_of_batch(g, s->n - s->n_decode);
    kind.drafts = s->n_decode > s->n_answers;
    const float *hidden = forward_run(g->config.forward, g->batch, s->n, kind, false, &e);
    uint64_t ns = clock_ns() - started;
    for (uint32_t i = 0; i < s->n_answers && !hidden; i++)
        engine_fail_step(g, g->answers[i].request, true, &e);
    for (uint32_t i = 0; i < s->n_prompts && !hidden; i++)
        engine_fail_step(g, g->prompts[i].request, g->prompts[i].has_credit, &e);
    if (!hidden)
        return;
    if (s->n_answers)
        s->n_accepted = engine_finish_answers(g, s->n_answers, hidden);
    for (uint32_t i = 0; i < s->n_prompts; i++)
        finish_rows(g, &g->prompts[i], hidden, ns * g->prompts[i].n / s->n);
}

/* Answers waited so long for prompts: they get their share of time next. */
static void owe_answers(struct engine *g, bool answers_wait, uint64_t ns)
{
    uint32_t share = g->config.decode_share;
    g->prefill_debt_ns = answers_wait ? ns * share / (100 - share) : 0;
}

/* A batch with rows of prompts took this long. */
static void account_prefill(struct engine *g, uint32_t rows, bool answers_wait, uint64_t ns)
{
    counter_add(g->counters.prefill_ns, ns);
    experts_count_disk_wait(g->config.experts, true);
    if (rows >= LEAST_ROWS) {
        average(&g->token_ns, (double)ns / rows);
        prompt_pace_add(&g->prompt_pace, rows, (double)ns);
    }
    owe_answers(g, answers_wait, ns);
}

static void account_decode(struct engine *g, const struct step_rows *s, uint64_t ns)
{
    counter_add(g->counters.decode_ns, ns);
    counter_add(g->counters.decode_steps, 1);
    experts_count_disk_wait(g->config.experts, false);
    g->prefill_debt_ns = g->prefill_debt_ns > ns ? g->prefill_debt_ns - ns : 0;
    speculation_account(&g->speculation, s->n_answers, s->n_decode - s->n_answers, s->n_accepted,
                        (double)ns);
    draft_metrics_note_step(&g->draft_metrics, &g->speculation, s->n_answers,
                            s->n_decode - s->n_answers);
}

static bool any_shares_batch(const struct engine *g)
{
    for (const struct request *r = g->running; r; r = r->next)
        if (shares_batch(r))
            return true;
    return false;
}

/* A batch of rows that generate and of prompts, or of either alone. False: there are none. */
static bool step_shared(struct engine *g, bool prompts)
{
    uint64_t started = clock_ns();
    struct step_rows s = {0};
    g->n_groups = 0;
    prompts = prompts && any_shares_batch(g);
    s.n = s.n_decode = engine_gather_answers(g, !prompts, &s.n_answers);
    if (prompts) {
        struct gathered b = {.begin = s.n, .n = s.n};
        gather_prompts(g, &b);
        s.n = b.n;
        s.n_prompts = b.n_prompts;
    }
    if (s.n == 0)
        return false;
    if (s.n_prompts)
        engine_send_all_unsent(g);
    run_shared(g, &s);
    if (s.n_prompts)
        account_prefill(g, s.n - s.n_decode, s.n_decode > 0, clock_ns() - started);
    else
        account_decode(g, &s, clock_ns() - started);
    return true;
}

static bool any_generates(const struct engine *g)
{
    for (const struct request *r = g->running; r; r = r->next)
        if (engine_generates(r))
            return true;
    return false;
}

static bool step_apart(struct engine *g)
{
    struct prompt_rows p;
    if (!find_apart(g, &p))
        return false;
    uint64_t started = clock_ns();
    engine_send_all_unsent(g);
    run_apart(g, &p);
    account_prefill(g, p.n, any_generates(g), clock_ns() - started);
    return true;
}

/* The request that reads pages next. NULL: none waits for any. */
static struct request *next_reader(struct engine *g)
{
    struct request *oldest = NULL, *shortest = NULL;
    for (struct request *r = g->running; r; r = r->next) {
        if (!engine_reads_pages(r))
            continue;
        oldest = oldest ? oldest : r;
        shortest = shortest && tokens_left(shortest) <= tokens_left(r) ? shortest : r;
    }
    g->oldest_read = !g->oldest_read || shortest == oldest;
    return g->oldest_read ? oldest : shortest;
}

/* Reads pages for a request that waits for them. False: there is none. */
static bool step_read(struct engine *g)
{
    struct request *r = next_reader(g);
    if (!r)
        return false;
    uint64_t started = clock_ns();
    engine_send_all_unsent(g);
    if (engine_read_pages(g, r) || engine_need_pages(g, r, r->n_past + 1))
        engine_note_start(r);
    owe_answers(g, any_generates(g), clock_ns() - started);
    return true;
}

bool engine_step(struct engine *g)
{
    bool did = engine_send_routing(g);
    did |= engine_send_rows(g);
    bool answers_first = g->prefill_debt_ns > 0;
    if (answers_first && step_shared(g, false))
        return true;
    g->read_last = !g->read_last && step_read(g);
    if (g->read_last || step_apart(g))
        return true;
    g->prefill_debt_ns = 0; /* no request generates now */
    if (step_shared(g, true))
        return true;
    g->read_last = step_read(g);
    return g->read_last || did;
}
