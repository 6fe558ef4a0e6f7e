/* Answers; see answer.h. */
#include "client/http/api/answer.h"

#include "client/chat/no_event.h"
#include "client/http/api/answer_scores.h"
#include "client/http/api/answer_start.h"
#include "client/http/api/answer_usage.h"
#include "client/http/api/budget.h"
#include "client/http/api/failure.h"
#include "client/http/api/refusal.h"
#include "client/http/api/stream.h"
#include "client/http/api/worker_limit.h"
#include "client/http/server/bodies.h"

#include "base/checksum.h"
#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of one choice, before others get a turn: events, and log-probabilities that are written. */
#define EVENTS_A_TURN 32
#define SCORES_A_TURN 8192

static void free_answer(struct answer *a)
{
    for (unsigned i = 0; i < a->n_choices; i++) {
        struct choice *c = &a->choices[i];
        output_fini(&c->output);
        budget_fini(&c->budget);
        scores_fini(&c->scores);
        scores_fini(&c->early);
        scores_fini(&c->held.scores);
        strbuf_fini(&c->held.text);
    }
    free(a->choices);
    vocabulary_release(a->vocabulary);
    structure_fini(&a->structure);
    worker_limit_fini(&a->limit);
    ask_fini(&a->ask);
    deployment_release(a->deployment);
    *a->link = a->next;
    if (a->next)
        a->next->link = a->link;
    a->app->answers--;
    gauge_set(a->app->metrics.running, a->app->answers);
    free(a);
}

static void drop_requests(struct answer *a)
{
    for (unsigned i = 0; i < a->n_choices; i++) {
        struct choice *c = &a->choices[i];
        loop_remove(a->app->server->loop, &c->watch);
        loop_remove(a->app->server->loop, &c->scoring);
        moed_request_free(c->request); /* and cancels it */
        moed_request_free(c->score_request);
        c->request = c->score_request = NULL;
    }
}

bool choice_is_cut(const struct choice *c)
{
    return c->answer->ask.prompt_only || c->result.reason == MOED_REASON_LENGTH ||
           c->result.reason == MOED_REASON_CONTEXT;
}

bool choice_has_calls(const struct choice *c)
{
    return output_has_calls(&c->output) && !choice_is_cut(c);
}

/* Puts what is known about the tokens into the access log. */
static void note_usage(struct answer *a)
{
    struct answer_usage u = answer_usage(a);
    struct access_entry *log = &a->x->log;
    log->tokens = true;
    log->in_known = u.in_known;
    log->tokens_in = u.in;
    log->cached_known = u.cached_known;
    log->tokens_cached = u.cached;
    log->tokens_out = u.out;
    log->tokens_drafted = u.drafted;
    log->tokens_accepted = u.accepted;
}

/* ---- The end ---- */

/* Whether an earlier end of a choice has counted the prompt's tokens. */
static bool prompt_is_counted(const struct choice *c)
{
    const struct answer *a = c->answer;
    for (unsigned i = 0; i < a->n_choices; i++)
        if (a->choices[i].prompt == c->prompt && a->choices[i].counts_prompt)
            return true;
    return false;
}

static void count_choice(struct choice *c, enum moed_reason why, uint64_t tokens)
{
    struct answer_metrics *m = &c->answer->app->metrics;
    unsigned reason = (unsigned)why;
    counter_add(m->ended[reason < 6 ? reason : 0], 1);
    counter_add(m->tokens_out, tokens);
    if (prompt_is_counted(c))
        return;
    counter_add(m->tokens_in, choice_prompt_tokens(c));
    c->counts_prompt = true;
}

static void count_cancelled(struct answer *a)
{
    for (unsigned i = 0; i < a->n_choices; i++)
        if (!a->choices[i].done)
            count_choice(&a->choices[i], MOED_REASON_CANCELLED,
                         choice_shown(&a->choices[i], a->choices[i].tokens));
}

/* The exchange is over, or gone. The last job that still has the answer frees it. */
static void release(struct answer *a)
{
    a->x = NULL;
    drop_requests(a);
    if (!a->jobs)
        free_answer(a);
}

/* The exchange is gone: the client left. */
static void on_exchange_left(struct exchange *x)
{
    struct answer *a = x->work;
    if (a->n_choices && !a->starting) { /* else the prompts are the job's */
        note_usage(a);
        count_cancelled(a);
    }
    deployments_cancel(&a->app->deployments, &a->waiter);
    if (a->starting && jobs_withdraw(&a->deployment->queue, &a->job)) {
        a->jobs--;
        a->starting = false;
    }
    if (a->starting)
        a->x = NULL; /* the job's end releases it */
    else
        release(a);
}

/* A full queue is load, not a fault; and with another status below 500 the request was wrong. */
static void count_failure(const struct answer *a, const struct problem *p)
{
    if (p->busy && !a->begun)
        counter_add(a->app->metrics.refused, 1);
    else if (p->status >= 500 || a->begun)
        counter_add(a->app->metrics.failed, 1);
}

/* Says to a client that asked for a larger context why it does not have it. */
static void explain_context(const struct ask *ask, struct problem *p)
{
    size_t n = strlen(p->message);
    if (ask->num_ctx && p->code && strcmp(p->code, "context_length_exceeded") == 0)
        snprintf(p->message + n, sizeof p->message - n,
                 "; num_ctx %u is not used: the context is that of --ctx", ask->num_ctx);
}

static void fail(struct answer *a, const struct problem *why)
{
    struct exchange *x = a->x;
    struct problem explained = *why, *p = &explained;
    explain_context(&a->ask, p);
    count_failure(a, p);
    if (a->headed) {
        a->dialect->fail(a, p);
        x->log.outcome = "failed";
        x->left = NULL;
        exchange_stream_push(x);
        exchange_stream_end(x);
    } else {
        exchange_fail(x, p);
    }
    release(a);
}

static void observe(struct choice *c)
{
    uint64_t now = clock_ns(), begin = c->answer->x->log.begin_ns;
    count_choice(c, c->result.reason, c->result.generated_tokens);
    histogram_observe(c->answer->app->metrics.whole, (double)(now - begin) * 1e-9);
}

static void finish(struct answer *a)
{
    struct exchange *x = a->x;
    note_usage(a);
    if (a->ask.stream) {
        a->dialect->end(a);
        x->left = NULL; /* what comes now is the exchange's own */
        exchange_stream_push(x);
        exchange_stream_end(x);
    } else {
        a->dialect->whole(a);
        exchange_reply(x, 200, "application/json");
    }
    release(a);
}

/* ---- Events ---- */

static void begin_head(struct answer *a)
{
    if (!a->headed)
        exchange_stream_begin(a->x, a->dialect->stream_type);
    a->headed = true;
}

static void begin_stream(struct answer *a)
{
    if (a->begun || !a->ask.stream)
        return;
    begin_head(a);
    a->begun = true;
    a->dialect->begin(a);
}

static void note_first_token(struct choice *c, uint64_t now)
{
    struct answer *a = c->answer;
    c->first_ns = now;
    histogram_observe(a->app->metrics.first_token, (double)(now - a->x->log.begin_ns) * 1e-9);
    if (!a->x->log.first_token_ns)
        a->x->log.first_token_ns = now;
}

/* The time since the tokens before is the sum of the gaps before those that come together. */
static void note_tokens(struct choice *c, size_t n)
{
    uint64_t now = clock_ns();
    if (!c->first_ns)
        note_first_token(c, now);
    else if (n)
        histogram_observe_times(c->answer->app->metrics.between_tokens,
                                (double)(now - c->last_ns) * 1e-9 / (double)n, (uint32_t)n);
    c->last_ns = n ? now : c->last_ns;
}

/* Token by token: so the reasoning ends at its budget, and the answer with its only call. Returns
 * how many were read. Each is counted before its text is written: a chunk has the usage so far. */
static uint32_t take_each(struct choice *c, const struct moed_event *e)
{
    size_t at = 0;
    for (uint32_t i = 0; i < e->token_count; i++) {
        answer_add_scores(c, e, i, 1);
        c->tokens++;
        at += output_take_token(&c->output, e->token_bytes[i], e->text + at, e->text_bytes - at);
        bool over = budget_counts(c) && !e->forced && output_is_over_budget(&c->output);
        if (over || output_is_over(&c->output))
            return i + 1;
    }
    output_take_rest(&c->output, e->text + at, e->text_bytes - at);
    return (uint32_t)e->token_count;
}

static uint32_t take_all(struct choice *c, const struct moed_event *e)
{
    answer_add_scores(c, e, 0, e->token_count);
    c->tokens += e->token_count;
    c->text_come += (uint32_t)e->text_bytes;
    output_take(&c->output, e->text, e->text_bytes, (uint32_t)e->token_count);
    return (uint32_t)e->token_count;
}

static void hold_back(struct choice *c, const struct moed_event *e)
{
    answer_add_scores(c, e, 0, e->token_count);
    c->tokens += e->token_count;
    strbuf_append(&c->held.text, e->text, e->text_bytes);
    c->held.tokens += (uint32_t)e->token_count;
}

/* Ends an answer that takes too long, but not within its first line, as llama-server. */
static void limit_time(struct choice *c, const struct moed_event *e)
{
    uint64_t limit = c->answer->ask.predict_ms;
    if (!limit)
        return;
    c->lines = c->lines || (e->text_bytes && memchr(e->text, '\n', e->text_bytes));
    c->late = c->lines && clock_ns() - c->first_ns > limit * 1000000;
    if (c->late)
        moed_request_cancel(c->request);
}

/* The one call that was allowed is complete. How far the worker has come meanwhile has no part in
 * the answer. */
static void end_over(struct choice *c)
{
    size_t surplus = output_surplus(&c->output), n = c->scores.count;
    c->tokens -= surplus;
    c->scores.count = answer_keeps_tokens(c) ? n - (surplus < n ? surplus : n) : n;
    c->over = true;
    moed_request_finish(c->request);
}

static void take_tokens(struct choice *c, const struct moed_event *event)
{
    note_tokens(c, event->token_count);
    if (c->over || budget_stops_before(c, event) || c->late || c->answer->ask.prompt_only)
        return; /* they came while the request was being ended, or nobody asked for them */
    if (c->awaits_scores) {
        hold_back(c, event);
    } else {
        /* else the worker is of an earlier release */
        bool sized = event->token_bytes || !event->token_count;
        uint32_t n = c->output.parser && sized ? take_each(c, event) : take_all(c, event);
        if (!output_is_over(&c->output))
            budget_note(c, event, n);
    }
    if (output_is_over(&c->output))
        end_over(c);
    else if (!budget_is_reached(c))
        limit_time(c, event);
}

/* The choice is complete. */
static void end_choice(struct choice *c)
{
    struct answer *a = c->answer;
    if (c->late) /* the request was cancelled, but the answer has an end */
        c->result.reason = MOED_REASON_LENGTH;
    output_finish(&c->output, choice_is_cut(c));
    if (output_is_over(&c->output) && choice_is_cut(c))
        c->result.reason = MOED_REASON_END; /* nothing is missing of the one call */
    if (c->over || c->late || a->ask.prompt_only)
        c->result.generated_tokens = (uint32_t)c->tokens;
    c->done = true;
    a->n_running--;
    observe(c);
    if (a->ask.stream)
        a->dialect->end_choice(c);
}

static void take_done(struct choice *c, const struct moed_event *event)
{
    loop_remove(c->answer->app->server->loop, &c->watch);
    if (budget_resume(c, event->result))
        return;
    answer_add_end_score(c, event);
    if (c->awaits_scores)
        c->held.done = true;
    else
        end_choice(c);
}

static bool is_out_of_memory(const struct choice *c)
{
    return c->budget.failed || c->output.failed || c->scores.failed || c->early.failed ||
           c->held.scores.failed || c->held.text.failed;
}

static void fail_memory(struct answer *a)
{
    struct problem p;
    problem_fill(&p, 503, "no memory for the answer");
    fail(a, &p);
}

/* Ends an answer whose choices are done. False: the answer is over. */
static bool go_on(struct answer *a)
{
    bool failed = false;
    for (unsigned i = 0; i < a->n_choices; i++)
        failed |= is_out_of_memory(&a->choices[i]);
    if (failed)
        fail_memory(a);
    else if (a->n_running == 0)
        finish(a);
    else
        return true;
    return false;
}

/* A request that goes on after its reasoning has its prompt computed again: the client knows that
 * the answer has begun. */
static void take_progress(struct choice *c, const struct moed_progress *progress)
{
    struct answer *a = c->answer;
    if (c->tokens || !a->dialect->progress)
        return;
    begin_stream(a);
    a->dialect->progress(c, progress);
}

/* False: the answer is over. */
static bool take_event(struct choice *c, const struct moed_event *event)
{
    if (event->kind == MOED_EVENT_PROGRESS)
        take_progress(c, event->progress);
    if (event->kind != MOED_EVENT_TOKENS && event->kind != MOED_EVENT_DONE)
        return true;
    begin_stream(c->answer);
    if (event->kind == MOED_EVENT_TOKENS)
        take_tokens(c, event);
    else
        take_done(c, event);
    if (!c->done)
        answer_keep_scores(c);
    return go_on(c->answer);
}

static void name_refused(const struct answer *a, struct problem *p)
{
    const struct moed_model *facts = a->deployment->facts; /* NULL: the worker was restarted */
    refusal_name(p, &a->ask, facts ? facts->vocab : 0, a->structure.grammar.kind);
}

/* Of several prompts: which one is wrong. */
static void name_prompt(const struct choice *c, struct moed_error *error)
{
    char message[sizeof error->message];
    bool wrong = error->code == MOED_ERROR_USAGE || error->code == MOED_ERROR_CONTEXT;
    int most = (int)sizeof message - 24;
    if (!wrong || c->answer->ask.prompt_count < 2)
        return;
    memcpy(message, error->message, sizeof message);
    snprintf(error->message, sizeof error->message, "prompt[%u]: %.*s", c->prompt, most, message);
}

/* The next event of a request of the choice. False: there is none now, or the answer has failed
 * with it. */
static bool next_event(struct choice *c, struct moed_request *r, const struct moed_event **event,
                       bool *failed)
{
    struct answer *a = c->answer;
    struct moed_error error;
    enum moed_code code = moed_request_next(r, 0, event, &error);
    *failed = code && !no_event_yet(&error);
    if (*failed) {
        struct problem p;
        name_prompt(c, &error);
        problem_from_moed(&p, &error);
        if (code == MOED_ERROR_USAGE)
            name_refused(a, &p);
        fail(a, &p);
    }
    return !code;
}

/* Log-probabilities of an event, for n choices. */
static size_t scores_in(const struct answer *a, const struct moed_event *e, size_t n)
{
    return e->logprob_count * (1 + a->ask.top_logprobs) * n;
}

static void on_choice(struct watch *w, uint32_t events)
{
    struct choice *c = (struct choice *)w;
    struct answer *a = c->answer;
    const struct moed_event *event;
    bool failed = false;
    size_t scores = 0;
    for (int i = 0;
         i < EVENTS_A_TURN && scores < SCORES_A_TURN && c->request && !c->done && !c->held.done;
         i++) {
        if (!next_event(c, c->request, &event, &failed))
            break;
        scores += scores_in(a, event, 1);
        if (!take_event(c, event))
            return;
    }
    if (!failed && a->begun)
        exchange_stream_push(a->x); /* the answer may be gone now */
}

static bool watch_request(struct answer *a, struct watch *w, struct moed_request *r)
{
    struct error e = {0};
    if (!r)
        return true;
    w->fd = moed_request_fd(r);
    if (w->fd >= 0 && !loop_add(a->app->server->loop, w, EPOLLIN, &e))
        return true;
    problem_fill(&a->problem, 503, "the server has no descriptor left");
    a->problem.retry_s = 5;
    return false;
}

/* ---- The scores of a prompt ---- */

/* What was held back follows the prompt now. */
static void release_held(struct choice *c)
{
    struct answer *a = c->answer;
    struct held *h = &c->held;
    c->awaits_scores = false;
    if (a->ask.stream && a->dialect->scored)
        a->dialect->scored(c);
    scores_append(&c->scores, &h->scores, 0, h->scores.count);
    output_take(&c->output, h->text.len ? h->text.data : "", h->text.len, h->tokens);
    if (h->done || a->only_echo)
        end_choice(c);
}

/* c: the first choice of the prompt, which has all scores. */
static void release_prompt(struct choice *c)
{
    struct answer *a = c->answer;
    for (unsigned i = c->index; i < a->n_choices && a->choices[i].prompt == c->prompt; i++)
        release_held(&a->choices[i]);
}

/* c: the first choice of the prompt, whose request is done. */
static void take_scored(struct choice *c, uint32_t cached)
{
    struct answer *a = c->answer;
    begin_stream(a);
    loop_remove(a->app->server->loop, &c->scoring);
    moed_request_free(c->score_request);
    c->score_request = NULL;
    for (unsigned i = c->index; i < a->n_choices && a->choices[i].prompt == c->prompt; i++) {
        a->choices[i].scored = true;
        a->choices[i].scored_cached = cached;
    }
    if (!c->n_shared)
        release_prompt(c);
}

/* Prompts that wait for the scores of a common beginning get those that have come. */
static void share_scores(struct answer *a)
{
    for (unsigned i = 0; i < a->n_choices; i++)
        if (answer_take_shared(&a->choices[i]) && a->choices[i].scored)
            release_prompt(&a->choices[i]);
}

static void on_score(struct watch *w, uint32_t events)
{
    struct choice *c = (struct choice *)((char *)w - offsetof(struct choice, scoring));
    struct answer *a = c->answer;
    const struct moed_event *event;
    bool failed = false;
    size_t scores = 0;
    for (int i = 0; i < EVENTS_A_TURN && scores < SCORES_A_TURN && c->score_request; i++) {
        if (!next_event(c, c->score_request, &event, &failed))
            break;
        scores += scores_in(a, event, a->n_choices);
        if (event->kind == MOED_EVENT_LOGPROBS)
            answer_add_prompt_scores(c, event);
        else if (event->kind == MOED_EVENT_DONE)
            take_scored(c, event->result->cached_tokens);
        share_scores(a);
        if (!go_on(a))
            return;
    }
    if (!failed && a->begun)
        exchange_stream_push(a->x);
}

/* Nothing was sent for some time: a client that waits for a slow prompt must not give up. */
static void on_tick(struct exchange *x)
{
    struct answer *a = x->work;
    if (a->waiter.demand.waits && strcmp(a->dialect->stream_type, EVENT_STREAM) == 0) {
        begin_head(a); /* the model is being loaded */
        strbuf_printf(&x->out, ": loading\n\n");
        exchange_stream_push(x);
        return;
    }
    if (a->starting || !a->n_choices) /* there are no choices yet, or they are the job's */
        return;
    begin_stream(a);
    if (a->begun && a->dialect->keep_alive)
        a->dialect->keep_alive(a);
    if (a->begun)
        exchange_stream_push(x);
}

/* ---- The start ---- */

static bool watch_choice(struct choice *c)
{
    return watch_request(c->answer, &c->watch, c->request) &&
           watch_request(c->answer, &c->scoring, c->score_request);
}

/* False: a->problem is set. */
static bool watch_all(struct answer *a)
{
    for (unsigned i = 0; i < a->n_choices; i++)
        if (!watch_choice(&a->choices[i]))
            return false;
    return true;
}

/* A choice goes on, or not; see struct budget. */
static void on_resumed(struct choice *c, const struct problem *p)
{
    struct answer *a = c->answer;
    struct problem failure = *p;
    a->jobs--;
    if (!a->x) {
        release(a);
    } else if (failure.status) {
        fail(a, &failure);
    } else if (is_out_of_memory(c)) {
        fail_memory(a);
    } else if (!c->request) { /* nothing can follow */
        end_choice(c);
        if (go_on(a) && a->begun)
            exchange_stream_push(a->x);
    } else if (!watch_choice(c)) {
        failure = a->problem;
        fail(a, &failure);
    }
}

/* Ends an answer that only repeats its prompt; one with log-probabilities waits for them. */
static void end_echo(struct answer *a)
{
    begin_stream(a);
    for (unsigned i = 0; i < a->n_choices; i++) {
        struct choice *c = &a->choices[i];
        c->result.reason = MOED_REASON_LENGTH;
        c->result.prompt_tokens = (uint32_t)a->ask.prompts[c->prompt].token_count;
        if (!c->awaits_scores)
            end_choice(c);
    }
    if (a->n_running == 0)
        finish(a);
}

/* Answers of one fingerprint come from the same file, KV cache type, --reproducible and kind of
 * device. m: NULL where the worker was restarted. */
static void take_fingerprint(struct answer *a, const struct moed_model *m)
{
    if (!m || !m->identity)
        return;
    uint64_t hash = checksum64(m->identity, m->kv_type, strlen(m->kv_type));
    hash = checksum64(hash + m->reproducible, m->device, strcspn(m->device, ":"));
    snprintf(a->fingerprint, sizeof a->fingerprint, "-%08x", (unsigned)(hash & UINT32_MAX));
}

static void start_done(struct job *job)
{
    struct answer *a = (struct answer *)job;
    take_fingerprint(a, a->deployment->facts);
    a->jobs--;
    a->starting = false;
    if (!a->x) {
        release(a);
    } else if (a->problem.status || !watch_all(a)) {
        struct problem p = a->problem;
        fail(a, &p);
    } else if (a->only_echo) {
        end_echo(a);
    }
}

static bool make_choices(struct answer *a)
{
    const struct ask *ask = &a->ask;
    size_t n = ask->prompt_count * ask->n;
    if (n > ASK_CHOICES_MAX)
        return problem_set(&a->problem, 400, "prompts times n are %zu; at most %d are allowed", n,
                           ASK_CHOICES_MAX);
    a->choices = calloc(n, sizeof *a->choices);
    if (!a->choices)
        return problem_set(&a->problem, 503, "no memory for the choices");
    for (size_t i = 0; i < n; i++) {
        struct choice *c = &a->choices[i];
        *c = (struct choice){.watch = {.fd = -1, .ready = on_choice},
                             .scoring = {.fd = -1, .ready = on_score},
                             .answer = a,
                             .index = (unsigned)i,
                             .prompt = (unsigned)(i / ask->n),
                             .budget.on_resumed = on_resumed};
        c->scores.top = c->held.scores.top = ask->top_logprobs;
        c->scores.as_ids = ask->names_are_ids;
        strbuf_init(&c->held.text);
    }
    a->n_choices = a->n_running = (unsigned)n;
    return true;
}

/* The deployments are known. */
static void on_deployments(struct deployments_waiter *w)
{
    struct answer *a = (struct answer *)((char *)w - offsetof(struct answer, waiter));
    struct deployment *d = deployments_find(&a->app->deployments, a->ask.model);
    if (!d) {
        struct problem p;
        problem_not_loaded(&p, w);
        fail(a, &p);
        return;
    }
    a->deployment = deployment_hold(d);
    a->found_ns = clock_ns();
    ask_take_budget(&a->ask, d->facts);
    snprintf(a->model, sizeof a->model, "%s", d->model);
    snprintf(a->x->log.model, sizeof a->x->log.model, "%s", d->model);
    if (!make_choices(a)) {
        struct problem p = a->problem;
        fail(a, &p);
        return;
    }
    a->jobs++;
    a->starting = true;
    jobs_post(&a->deployment->queue, &a->job);
}

static void too_many(struct exchange *x, struct ask *ask)
{
    struct problem p;
    counter_add(app_of(x)->metrics.refused, 1);
    problem_fill(&p, 429, "%u requests are being answered; try again later", app_busy(app_of(x)));
    p.retry_s = 1;
    ask_fini(ask);
    exchange_fail(x, &p);
}

/* Keys of one name are one user's. */
static uint64_t cache_salt(const struct app *app, const char *key)
{
    uint64_t salt = checksum64(0, key, strlen(key));
    return !*key || app->share_cache ? 0 : salt ? salt : 1;
}

void answer_start(struct exchange *x, struct ask *ask, const struct dialect *dialect,
                  const char *id_prefix)
{
    struct app *app = app_of(x);
    struct answer *a = app_busy(app) < app->answers_max ? calloc(1, sizeof *a) : NULL;
    if (!a) {
        too_many(x, ask);
        return;
    }
    *a = (struct answer){.job = {.work = answer_start_work, .done = start_done},
                         .waiter = {.ready = on_deployments},
                         .x = x,
                         .app = app,
                         .dialect = dialect,
                         .ask = *ask,
                         .only_echo = ask->echo && ask->max_tokens_given && !ask->max_tokens,
                         .created = time(NULL),
                         .cache_salt = cache_salt(app, x->log.key),
                         .client = bodies_client(x)};
    snprintf(a->id, sizeof a->id, "%s%s", id_prefix, x->log.id + strlen("req-"));
    memcpy(x->log.ignored, ask->ignored, sizeof x->log.ignored);
    ask_seed(&a->ask);
    a->next = app->first;
    a->link = &app->first;
    if (a->next)
        a->next->link = &a->next;
    app->first = a;
    gauge_set(app->metrics.running, ++app->answers);
    x->work = a;
    x->left = on_exchange_left;
    x->tick = a->ask.stream ? on_tick : NULL;
    deployments_want(&app->deployments, &a->waiter, a->ask.model,
                     a->ask.has_keep ? &a->ask.keep_s : NULL);
}
