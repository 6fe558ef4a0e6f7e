/* The engine's thread, its inbox, and admission to the KV cache; see engine.h.
 *
 * A request's way:
 *
 *   engine_submit --> inbox --take_inbox--> waiting --admit--> running --> ended, freed
 *                                              ^--engine_suspend--'
 *
 * step.c computes the running requests; respond.c ends waiting and running ones.
 *
 * Invariants:
 * 1. Other threads touch only what `lock` guards, a request's `cancelled`, and the atomics of
 *    engine_status. All else is the engine thread's; after it has ended, engine_stop's caller's.
 * 2. Waiting requests are admitted in the order that queue.h gives, each when a slot is free and
 *    there are pages for its prompt. A request that waits for pages is overtaken only by those that
 *    do not make it wait longer than those before it (engine_may_overtake). A request whose prompt
 *    another one is computing waits for that (shared_prompts.c), and holds up no other.
 * 3. Once `stopping` is set, nothing enters the inbox. So engine_stop finds all requests. */
#include "engine.h"
#include "engine_internal.h"

#include "base/arrays.h"
#include "base/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* How often an idle engine looks at what memd wants. */
#define IDLE_NS      50000000 /* of wait_for_work: at first, and at most */
#define IDLE_MOST_NS 400000000
#define PAGES_NS     10000000   /* how often to look for pages that other workers leave */
#define KV_RETRY_NS  1000000000 /* how often to try for device memory that other programs have */
#define ERRAND_S     20         /* for a step to end: less than a client waits for its reply */
#define OVERTAKING   8          /* requests that are looked at behind one that waits for pages */

/* ---- Other threads ---- */

enum posting { POSTED, STOPPING, FULL };

static enum posting post(struct engine *g, struct request *r)
{
    bool limited = !request_is_taken(r);
    pthread_mutex_lock(&g->lock);
    enum posting p = g->stopping                                 ? STOPPING
                     : limited && g->n_queued >= g->config.queue ? FULL
                                                                 : POSTED;
    if (p == POSTED) {
        g->n_queued++;
        r->next = NULL;
        *g->inbox_end = r;
        g->inbox_end = &r->next;
        pthread_cond_signal(&g->changed);
    }
    pthread_mutex_unlock(&g->lock);
    return p;
}

enum error_code engine_submit(struct engine *g, struct request *r, struct error *e)
{
    r->submitted_ns = clock_ns();
    switch (post(g, r)) {
    case POSTED:
        return ERROR_OK;
    case STOPPING:
        return error_set(e, ERROR_UNAVAILABLE, ENGINE_STOPPING);
    case FULL:
        break;
    }
    return error_set(e, ERROR_BUSY,
                     "%" PRIu32 " requests wait already, which is the limit: try again later",
                     g->config.queue);
}

/* Under the lock. */
static void wake(struct engine *g)
{
    g->woken = true;
    pthread_cond_signal(&g->changed);
}

void engine_cancel(struct engine *g, struct request *r)
{
    atomic_store(&r->cancelled, true);
    pthread_mutex_lock(&g->lock);
    g->cancels = true;
    wake(g);
    pthread_mutex_unlock(&g->lock);
}

void engine_complete(struct engine *g, struct request *r)
{
    atomic_store(&r->complete, true);
    engine_cancel(g, r);
}

void engine_resume(struct engine *g)
{
    pthread_mutex_lock(&g->lock);
    wake(g);
    pthread_mutex_unlock(&g->lock);
}

/* On the caller's stack; the lock guards it. */
struct engine_errand {
    struct engine_errand *next;
    void (*work)(void *arg);
    void *arg;
    bool done, refused;
};

/* Takes the errand back, unless the engine has it. */
static void withdraw(struct engine *g, struct engine_errand *errand)
{
    struct engine_errand **at = &g->errands;
    while (*at && *at != errand)
        at = &(*at)->next;
    errand->refused = *at != NULL;
    if (*at)
        *at = errand->next;
}

bool engine_call(struct engine *g, void (*work)(void *arg), void *arg)
{
    struct engine_errand errand = {.work = work, .arg = arg};
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ERRAND_S;
    pthread_mutex_lock(&g->lock);
    errand.refused = g->stopping;
    errand.next = g->errands;
    g->errands = errand.refused ? g->errands : &errand;
    g->woken = true;
    pthread_cond_broadcast(&g->changed);
    while (!errand.done && !errand.refused)
        if (pthread_cond_timedwait(&g->errand_done, &g->lock, &until) == ETIMEDOUT) {
            withdraw(g, &errand);
            until.tv_sec += ERRAND_S; /* the engine has it: it is done soon */
        }
    pthread_mutex_unlock(&g->lock);
    return errand.done;
}

/* ---- The engine's thread ---- */

static void run_errands(struct engine *g)
{
    pthread_mutex_lock(&g->lock);
    for (struct engine_errand *errand; (errand = g->errands) != NULL;) {
        g->errands = errand->next;
        if (g->stopping) {
            errand->refused = true;
            continue;
        }
        pthread_mutex_unlock(&g->lock);
        errand->work(errand->arg);
        pthread_mutex_lock(&g->lock);
        errand->done = true;
    }
    pthread_cond_broadcast(&g->errand_done);
    pthread_mutex_unlock(&g->lock);
}

/* Under the lock: every request that was cancelled before has been taken, too. */
static struct request *take_inbox(struct engine *g)
{
    struct request *list = g->inbox;
    g->inbox = NULL;
    g->inbox_end = &g->inbox;
    g->woken = false;
    g->ends_cancelled |= g->cancels;
    g->cancels = false;
    return list;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The list of an inbox, into the queue. */
static void enqueue(struct engine *g, struct request *list)
{
    for (struct request *r = list, *next; r; r = next) {
        next = r->next;
        request_queue_append(&g->waiting, r);
        if (r->deadline_ns)
            g->deadline_ns = earlier(g->deadline_ns, r->deadline_ns);
    }
}

static void publish_status(struct engine *g)
{
    atomic_store(&g->n_running, g->n_slots_used);
    atomic_store(&g->n_waiting, g->waiting.n);
    siblings_report(&g->config.siblings, g->n_slots_used, g->waiting.n);
    gauge_set(g->counters.running, g->n_slots_used);
    gauge_set(g->counters.waiting, g->waiting.n);
    if (!g->paged)
        return;
    struct dense_kv_use use = g->config.dense->ops->kv_use(g->config.dense);
    gauge_set(g->counters.pages_reserved, use.pages_reserved);
    gauge_set(g->counters.pages_free, use.pages_free);
}

/* ---- Slots ---- */

static int64_t free_slot(const struct engine *g)
{
    for (uint32_t slot = 0; slot < g->config.parallel; slot++)
        if (!g->slot_used[slot])
            return slot;
    return -1;
}

/* A recording has each position once. */
static bool reserve_drafts(struct engine *g, struct request *r)
{
    if (!g->speculation.most || !r->max_drafts || !r->shares_batch || r->prompt_only)
        return true;
    r->draft = draft_new(r->n_most + 1, &g->speculation.rates);
    if (r->draft)
        draft_expect(r->draft, r->expected);
    return r->draft != NULL;
}

/* What r may need of the context, and its grammar, when it starts for the first time. */
static enum error_code reserve(struct engine *g, struct request *r, struct error *e)
{
    r->shares_pages = r->kind != REQUEST_LOGITS && !r->recording && !r->stepwise;
    r->shares_batch = r->shares_pages && r->kind == REQUEST_GENERATE;
    if (r->n_most)
        return ERROR_OK;
    if (!request_reserve(r, request_positions(r, g->config.context), g->config.batch,
                         g->config.d_model) ||
        !reserve_drafts(g, r))
        return error_set(e, ERROR_MEMORY, "no memory for the request's tokens");
    return request_begin_grammar(r, e);
}

/* A continued answer may be whole already: then its grammar's end comes before its length. */
static enum error_code begin(struct engine *g, struct request *r, struct error *e)
{
    if (!r->ended_before)
        return reserve(g, r, e);
    return r->ended_before == FINISH_STOP ? ERROR_OK : request_begin_grammar(r, e);
}

static void append(struct request **list, struct request *r)
{
    while (*list)
        list = &(*list)->next;
    *list = r;
}

static void start_request(struct engine *g, struct request *r, int64_t slot)
{
    g->slot_used[slot] = true;
    g->n_slots_used++;
    atomic_store(&g->n_running, g->n_slots_used); /* before: engine_is_idle always finds r */
    engine_leave_queue(g, r);
    request_queue_start(&g->waiting, r);
    r->next = NULL;
    r->slot = slot;
    r->overtaken_from = 0;
    r->serial = ++g->n_admitted;
    append(&g->running, r);
    if (!engine_open_pages(g, r)) { /* the device has lost memory just now */
        engine_suspend(g, r);
        return;
    }
    engine_note_start(r);
}

static void refuse(struct engine *g, struct request *r)
{
    struct error e;
    error_set(&e, ERROR_CONTEXT,
              "the request may need %" PRIu32 " positions, but the KV cache holds at most %" PRIu64
              ": ask for fewer tokens, or give a larger --kv-cache, or the experts less of the "
              "device's memory",
              r->n_most, engine_most_positions(g));
    engine_fail(g, r, e.code, e.text);
}

/* Ends r, which waits, if it need not or cannot run. True: it has ended. */
static bool end_early(struct engine *g, struct request *r)
{
    struct error e;
    if (begin(g, r, &e))
        engine_fail(g, r, e.code, e.text);
    else if (r->ended_before)
        engine_finish(g, r, r->ended_before);
    else
        return false;
    return true;
}

static void end_late_in(struct engine *g, struct request *list, uint64_t now)
{
    for (struct request *r = list, *next; r; r = next) {
        next = r->next;
        if (!r->deadline_ns || r->started_ns)
            continue;
        if (now < r->deadline_ns)
            g->deadline_ns = earlier(g->deadline_ns, r->deadline_ns);
        else
            engine_fail(g, r, ERROR_TIMEOUT, "the request waited beyond its deadline");
    }
}

/* Ends the requests that are late, whether a slot is free or not: also those that have one, but
 * wait for pages of the conversations' file. */
static void end_late(struct engine *g)
{
    uint64_t now = g->deadline_ns == UINT64_MAX ? 0 : clock_ns();
    if (now < g->deadline_ns)
        return;
    g->deadline_ns = UINT64_MAX;
    end_late_in(g, g->waiting.first, now);
    end_late_in(g, g->running, now);
}

/* Looks at the queue anew. */
static void begin_admission(struct engine *g)
{
    end_late(g);
    if (!g->waiting.aside)
        return;
    engine_end_waits(g);
    request_queue_look_again(&g->waiting);
}

static void admit(struct engine *g)
{
    int64_t slot;
    struct request *r, *first = NULL; /* that waits for pages */
    uint64_t for_pool_ns = 0;         /* when the first was submitted that waits for the pool's */
    begin_admission(g);
    for (int passed = 0; passed < OVERTAKING && (slot = free_slot(g)) >= 0 &&
                         (r = request_queue_next(&g->waiting)) != NULL;) {
        if (end_early(g, r))
            continue;
        if (engine_waits_for_prompt(g, r)) {
            request_queue_set_aside(&g->waiting, r);
            continue;
        }
        enum page_supply supply = engine_page_supply(g, r);
        if (supply == PAGES_NEVER) {
            refuse(g, r);
        } else if (supply == PAGES_NOW && (!first || engine_may_overtake(g, r, first))) {
            start_request(g, r, slot);
        } else {
            if (!first)
                request_queue_keep_turn(&g->waiting, r);
            request_queue_set_aside(&g->waiting, r);
            passed++;
            if (!first && !r->overtaken_from)
                r->overtaken_from = g->n_admitted + 1;
            first = first ? first : r;
            if (!for_pool_ns && supply == PAGES_FROM_POOL &&
                (r == first || engine_may_overtake(g, r, first)))
                for_pool_ns = r->submitted_ns;
        }
    }
    siblings_wait(&g->config.siblings, for_pool_ns);
    g->waits_for_pages = first != NULL;
}

/* The device had no memory for the KV cache some time ago. */
static bool should_retry_kv(const struct engine *g, const struct dense_kv_use *use)
{
    return g->paged && use->lacks_memory && clock_ns() >= g->kv_retry_ns;
}

/* Makes the KV cache as large as memd allows. Growing reports the new size first and then reads the
 * limit again: so either memd, which may lower the limit at the same time, sees the report, or this
 * function sees the lower limit. */
static void follow_kv_limit(struct engine *g)
{
    struct experts *x = g->config.experts;
    struct dense *d = g->config.dense;
    for (uint64_t limit; (limit = experts_kv_limit(x)) != g->kv_limit;) {
        if (limit > g->kv_limit) {
            uint64_t has = d->ops->kv_use(d).bytes; /* at start perhaps above the limit */
            experts_report_kv(x, limit > has ? limit : has);
            if (experts_kv_limit(x) != limit)
                continue;
        }
        d->ops->kv_resize(d, limit);
        g->kv_limit = limit;
    }
    struct dense_kv_use use = d->ops->kv_use(d);
    if (should_retry_kv(g, &use)) {
        d->ops->kv_resize(d, g->kv_limit);
        g->kv_retry_ns = clock_ns() + KV_RETRY_NS;
        use = d->ops->kv_use(d);
    }
    experts_report_kv(x, use.bytes);
}

/* When an engine that waits looks again without being woken; UINT64_MAX: never. */
static uint64_t next_look_ns(const struct engine *g)
{
    uint64_t look_ns = UINT64_MAX;
    if (g->waits_for_pages)
        look_ns = clock_ns() + PAGES_NS;
    else if (experts_share_memory(g->config.experts))
        look_ns = clock_ns() + (uint64_t)g->idle_ns;
    return earlier(look_ns, g->deadline_ns);
}

/* Waits until something may have changed; under the lock. Other workers may leave pages that a
 * request waits for, and its deadline may pass. Where the experts share the device's memory with
 * memd, an idle engine also follows what memd wants, now and then without the lock: memd may want
 * memory back, or allow a KV cache in which a waiting request fits. The longer nothing changes, the
 * less often. */
static void wait_for_work(struct engine *g)
{
    struct experts *x = g->config.experts;
    uint64_t until_ns = next_look_ns(g);
    struct timespec until = {(time_t)(until_ns / 1000000000), (long)(until_ns % 1000000000)};
    heartbeat_rest(g->config.heartbeat);
    if (until_ns == UINT64_MAX) {
        pthread_cond_wait(&g->changed, &g->lock);
        return;
    }
    if (pthread_cond_timedwait(&g->changed, &g->lock, &until) != ETIMEDOUT)
        return;
    g->woken |= g->waits_for_pages || clock_ns() >= g->deadline_ns;
    if (!experts_share_memory(x))
        return;
    pthread_mutex_unlock(&g->lock);
    bool changed = experts_follow(x);
    pthread_mutex_lock(&g->lock);
    struct dense_kv_use use = g->config.dense->ops->kv_use(g->config.dense);
    if (g->paged &&
        (g->waiting.n || experts_kv_limit(x) != g->kv_limit || should_retry_kv(g, &use)))
        g->woken = changed = true;
    g->idle_ns = changed ? IDLE_NS : 2 * g->idle_ns < IDLE_MOST_NS ? 2 * g->idle_ns : IDLE_MOST_NS;
}

static void *engine_main(void *arg)
{
    struct engine *g = arg;
    pthread_setname_np(pthread_self(), "worker/engine");
    pool_settle_caller(g->config.pool);
    bool busy = false;
    for (;;) {
        pthread_mutex_lock(&g->lock);
        g->idle_ns = IDLE_NS;
        while (!busy && !g->inbox && !g->woken && !g->stopping)
            wait_for_work(g);
        bool stopping = g->stopping;
        struct request *submitted = take_inbox(g);
        pthread_mutex_unlock(&g->lock);
        heartbeat_beat(g->config.heartbeat);
        enqueue(g, submitted);
        if (stopping)
            break;
        run_errands(g);
        engine_end_cancelled(g);
        follow_kv_limit(g);
        admit(g);
        publish_status(g);
        siblings_share_cores(&g->config.siblings, g->config.pool);
        busy = engine_step(g);
    }
    heartbeat_rest(g->config.heartbeat);
    return NULL;
}

/* ---- Making and ending it ---- */

static void register_counters(struct engine *g)
{
    struct metrics *m = g->config.metrics;
    struct engine_counters *k = &g->counters;
    static const char *const reasons[] = {"", "end", "stop", "length", "context", "cancelled"};
    for (int i = FINISH_END; i <= FINISH_CANCELLED; i++) {
        char *label = g->reason_labels[i];
        snprintf(label, sizeof g->reason_labels[i], "reason=\"%s\"", reasons[i]);
        k->finished[i] = metrics_counter(m, "moed_worker_requests_total", label, 1,
                                         "Requests ended, by reason.");
    }
    k->prompt_tokens =
        metrics_counter(m, "moed_worker_prompt_tokens_total", NULL, 1, "Prompt tokens computed.");
    k->generated_tokens =
        metrics_counter(m, "moed_worker_generated_tokens_total", NULL, 1, "Tokens generated.");
    k->token_events = metrics_counter(m, "moed_worker_token_events_total", NULL, 1,
                                      "Events in which generated tokens were sent.");
    k->prefill_ns = metrics_counter(m, "moed_worker_prefill_seconds_total", NULL, 1e-9,
                                    "Time in prefill steps.");
    k->decode_ns =
        metrics_counter(m, "moed_worker_decode_seconds_total", NULL, 1e-9, "Time in decode steps.");
    k->decode_steps =
        metrics_counter(m, "moed_worker_decode_steps_total", NULL, 1, "Decode steps.");
    k->decode_stalled = metrics_counter(m, "moed_worker_decode_stalls_total", NULL, 1,
                                        "Times that a request sat out a decode step because its "
                                        "frontend was behind, or its grammar takes long.");
    draft_metrics_register(&g->draft_metrics, m, &g->speculation);
    k->cached_tokens = metrics_counter(m, "moed_worker_cached_prompt_tokens_total", NULL, 1,
                                       "Prompt tokens that the prefix cache had.");
    k->suspended = metrics_counter(m, "moed_worker_suspended_total", NULL, 1,
                                   "Times that a running request's pages were needed for others, "
                                   "so that it had to begin again.");
    static const char *const rows =
        "Rows of logits sampled, by which of their logits were copied to host memory.";
    k->rows_largest =
        metrics_counter(m, "moed_worker_sampled_rows_total", "logits=\"largest\"", 1, rows);
    k->rows_whole = metrics_counter(m, "moed_worker_sampled_rows_total", "logits=\"all\"", 1, rows);
    k->grammar_ns = metrics_counter(m, "moed_worker_grammar_seconds_total", NULL, 1e-9,
                                    "Time of the engine's thread in grammars of answers.");
    k->grammar_masks =
        metrics_counter(m, "moed_worker_grammar_masks_total", NULL, 1,
                        "Tokens chosen again because a grammar refused the first choice.");
    k->running = metrics_gauge(m, "moed_worker_requests_running", NULL,
                               "Requests that have a slot of the KV cache.");
    k->waiting =
        metrics_gauge(m, "moed_worker_requests_waiting", NULL, "Requests that wait for a slot.");
    if (g->paged) {
        const char *name = "moed_worker_kv_pages",
                   *help = "Pages of the KV cache in the device's memory.";
        k->pages_reserved = metrics_gauge(m, name, "state=\"reserved\"", help);
        k->pages_free = metrics_gauge(m, name, "state=\"free\"", help);
    }
    k->first_token = metrics_histogram(m, "moed_worker_time_to_first_token_seconds", NULL,
                                       histogram_seconds_bounds, histogram_seconds_count,
                                       "Time from a request to its first token.");
    k->token =
        metrics_histogram(m, "moed_worker_inter_token_seconds", NULL, histogram_seconds_bounds,
                          histogram_seconds_count, "Time from one token of a request to its next.");
}

static bool make_tables(struct engine *g)
{
    uint32_t parallel = g->config.parallel;
    uint32_t batch = serving_batch_tokens(g->config.batch, parallel);
    size_t rows = g->rows_most = parallel > LOGPROBS_ROWS ? parallel : LOGPROBS_ROWS;
    g->tables = ARRAYS_NEW(ARRAY(g->slot_used, parallel), ARRAY(g->batch, batch),
                           ARRAY(g->groups, batch / KV_SMALL_TOKENS + 1),
                           ARRAY(g->answers, parallel), ARRAY(g->prompts, parallel),
                           ARRAY(g->order, parallel), ARRAY(g->largest, rows * SAMPLER_LARGEST),
                           ARRAY(g->largest_tokens, rows * SAMPLER_LARGEST));
    g->logits = malloc(rows * g->config.vocab * sizeof *g->logits);
    g->sampler = sampler_new(g->config.vocab, g->config.context);
    return g->tables && g->logits && g->sampler;
}

enum error_code engine_new(const struct engine_config *config, struct engine **out, struct error *e)
{
    struct engine *g = calloc(1, sizeof *g);
    if (!g)
        return error_set(e, ERROR_MEMORY, "no memory for the engine");
    g->config = *config;
    g->paged = config->dense->ops->kv_use(config->dense).bytes > 0;
    g->inbox_end = &g->inbox;
    g->deadline_ns = UINT64_MAX;
    request_queue_init(&g->waiting);
    /* A draft that is wrong cannot be taken out of a state. */
    speculation_init(&g->speculation, config->snapshots ? 0 : config->speculate);
    pthread_mutex_init(&g->lock, NULL);
    pthread_condattr_t by_clock;
    pthread_condattr_init(&by_clock);
    pthread_condattr_setclock(&by_clock, CLOCK_MONOTONIC);
    pthread_cond_init(&g->changed, &by_clock);
    pthread_cond_init(&g->errand_done, &by_clock);
    pthread_condattr_destroy(&by_clock);
    if (!make_tables(g)) {
        engine_free(g);
        return error_set(e, ERROR_MEMORY, "no memory for %" PRIu32 " requests at once",
                         config->parallel);
    }
    register_counters(g);
    *out = g;
    return ERROR_OK;
}

enum error_code engine_start(struct engine *g, struct error *e)
{
    int failed = pthread_create(&g->thread, NULL, engine_main, g);
    if (failed)
        return error_set(e, ERROR_MEMORY, "cannot start the engine's thread: %s", strerror(failed));
    g->started = true;
    return ERROR_OK;
}

void engine_stop(struct engine *g)
{
    pthread_mutex_lock(&g->lock);
    g->stopping = true;
    pthread_cond_signal(&g->changed);
    pthread_mutex_unlock(&g->lock);
    if (g->started)
        pthread_join(g->thread, NULL);
    g->started = false;
    pthread_mutex_lock(&g->lock);
    struct request *submitted = take_inbox(g);
    pthread_mutex_unlock(&g->lock);
    run_errands(g);
    enqueue(g, submitted);
    engine_fail_all(g, ERROR_UNAVAILABLE, ENGINE_STOPPING);
}

void engine_free(struct engine *g)
{
    if (!g)
        return;
    free(g->tables);
    free(g->logits);
    sampler_free(g->sampler);
    strbuf_fini(&g->text);
    pthread_mutex_destroy(&g->lock);
    pthread_cond_destroy(&g->changed);
    pthread_cond_destroy(&g->errand_done);
    free(g);
}

bool engine_is_idle(struct engine *g)
{
    pthread_mutex_lock(&g->lock);
    bool idle = g->n_queued == 0 && atomic_load(&g->n_running) == 0;
    pthread_mutex_unlock(&g->lock);
    return idle;
}

struct engine_status engine_status(struct engine *g)
{
    struct engine_status s = {.running = atomic_load(&g->n_running),
                              .waiting = atomic_load(&g->n_waiting),
                              .tokens_total = counter_read(g->counters.generated_tokens),
                              .prompt_tokens = counter_read(g->counters.prompt_tokens),
                              .cached_tokens = counter_read(g->counters.cached_tokens),
                              .decode_ns = counter_read(g->counters.decode_ns),
                              .drafted = counter_read(g->draft_metrics.drafted),
                              .accepted = counter_read(g->draft_metrics.accepted),
                              .tokens_per_s = token_rate_read(&g->rate, clock_ns())};
    return s;
}
