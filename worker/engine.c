/* The engine; see engine.h. What a step does stands in step.c.
 *
 * A request's life:
 *   submit --> inbox --> waiting (no slot) --admit--> running: prefill --> decode --> finished, freed
 * The inbox alone is shared (lock); lists and requests belong to the engine thread. Who waits is admitted in order, when there are a
 * slot and room in the KV cache for all that the request may become.
 */
#include "engine.h"
#include "engine_internal.h"

#include "base/clock.h"
#include "session.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define IDLE_NS       50000000 /* between two looks at what memd wants, while there is nothing to compute */
#define STOPPING_TEXT "the worker is stopping: try again"

enum event_kind { EVENT_SUBMIT, EVENT_CANCEL, EVENT_CLOSE };

struct event {
    struct event *next;
    enum event_kind kind;
    struct request *request;
    struct frontend *frontend;
    uint64_t id;
};

static void post(struct engine *g, struct event event)
{
    struct event *copy = malloc(sizeof *copy);
    if (!copy)
        abort(); /* a few bytes: the process is lost, its supervisor starts it again */
    *copy = event;
    copy->next = NULL;
    pthread_mutex_lock(&g->lock);
    *g->inbox_end = copy;
    g->inbox_end = &copy->next;
    pthread_cond_signal(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

void engine_submit(struct engine *g, struct request *r)
{
    r->submitted_ns = clock_ns();
    r->random_state = sampler_seed(r->sampling.seed);
    post(g, (struct event){.kind = EVENT_SUBMIT, .request = r});
}

void engine_cancel(struct engine *g, struct frontend *f, uint64_t id)
{
    post(g, (struct event){.kind = EVENT_CANCEL, .frontend = f, .id = id});
}

void engine_close_frontend(struct engine *g, struct frontend *f)
{
    post(g, (struct event){.kind = EVENT_CLOSE, .frontend = f});
}

void engine_wake(struct engine *g)
{
    pthread_mutex_lock(&g->lock);
    g->woken = true;
    pthread_cond_signal(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

static void append(struct request **list, struct request *r)
{
    while (*list)
        list = &(*list)->next;
    r->next = NULL;
    *list = r;
}

static void cancel_in(struct request *list, const struct frontend *f, bool all, uint64_t id)
{
    for (struct request *r = list; r; r = r->next)
        if (r->frontend == f && (all || r->id == id))
            r->cancelled = true;
}

static void take_event(struct engine *g, const struct event *event)
{
    switch (event->kind) {
    case EVENT_SUBMIT:
        append(&g->waiting, event->request);
        break;
    case EVENT_CANCEL:
        cancel_in(g->waiting, event->frontend, false, event->id);
        cancel_in(g->running, event->frontend, false, event->id);
        break;
    case EVENT_CLOSE:
        cancel_in(g->waiting, event->frontend, true, 0);
        cancel_in(g->running, event->frontend, true, 0);
        engine_end_cancelled(g); /* none of them is left when the frontend is freed */
        frontend_release(event->frontend);
        break;
    }
}

static struct event *take_inbox(struct engine *g)
{
    struct event *list = g->inbox;
    g->inbox = NULL;
    g->inbox_end = &g->inbox;
    g->woken = false;
    return list;
}

static void drain(struct engine *g, struct event *list)
{
    while (list) {
        struct event *next = list->next;
        take_event(g, list);
        free(list);
        list = next;
    }
}

static void publish_status(struct engine *g)
{
    uint32_t running = 0, waiting = 0;
    for (struct request *r = g->running; r; r = r->next)
        running++;
    for (struct request *r = g->waiting; r; r = r->next)
        waiting++;
    atomic_store(&g->n_running, running);
    atomic_store(&g->n_waiting, waiting);
    gauge_set(g->counters.running, running);
    gauge_set(g->counters.waiting, waiting);
    if (!g->paged)
        return;
    struct dense_kv_use use = g->config.dense->ops->kv_use(g->config.dense);
    gauge_set(g->counters.pages_reserved, use.pages_reserved);
    gauge_set(g->counters.pages_free, use.pages_free);
}

static int64_t free_slot(struct engine *g)
{
    for (uint32_t slot = 0; slot < g->config.parallel; slot++)
        if (!g->slot_used[slot])
            return slot;
    return -1;
}

static void start_request(struct engine *g, struct request *r, int64_t slot)
{
    g->waiting = r->next;
    g->slot_used[slot] = true;
    r->slot = slot;
    r->serial = ++g->n_admitted;
    r->started_ns = clock_ns();
    append(&g->running, r);
}

static void refuse_positions(struct engine *g, struct request *r, uint32_t positions)
{
    struct error e;
    uint64_t most = g->config.dense->ops->kv_use(g->config.dense).most_positions;
    error_set(&e, ERROR_LIMIT,
              "the request may have %" PRIu32 " positions, the KV cache has room for %" PRIu64
              " in all: ask for fewer tokens, or give the device's experts less",
              positions, most);
    engine_refuse(g, r, &e);
}

static void admit(struct engine *g)
{
    struct dense *d = g->config.dense;
    int64_t slot;
    while (g->waiting && (slot = free_slot(g)) >= 0) {
        struct request *r = g->waiting;
        uint32_t positions = request_positions(r, g->config.context);
        enum dense_room room = d->ops->reserve(d, (uint32_t)slot, positions);
        if (room == ROOM_LATER)
            break;
        if (room == ROOM_NOW)
            start_request(g, r, slot);
        else
            refuse_positions(g, r, positions);
    }
}

/* The KV cache as large as memd lets it be. What is taken is said before, and looked at again after: whoever lowers the limit
 * meanwhile sees it, or we do. */
static void follow_kv_limit(struct engine *g)
{
    struct experts *x = g->config.experts;
    struct dense *d = g->config.dense;
    for (uint64_t limit; (limit = experts_kv_limit(x)) != g->kv_limit;) {
        if (limit > g->kv_limit) {
            uint64_t has = d->ops->kv_use(d).bytes; /* at the start perhaps more than that */
            experts_tell_kv(x, limit > has ? limit : has);
            if (experts_kv_limit(x) != limit)
                continue;
        }
        d->ops->kv_resize(d, limit);
        g->kv_limit = limit;
    }
    experts_tell_kv(x, d->ops->kv_use(d).bytes);
}

/* Until something may have changed. The lock is held, but for what is done meanwhile. Where memory is memd's an idle worker
 * looks from time to time whether memd wants some back, and whether there is room for who waits. */
static void wait_for_work(struct engine *g)
{
    struct experts *x = g->config.experts;
    struct timespec until;
    if (!experts_share_memory(x)) {
        pthread_cond_wait(&g->changed, &g->lock);
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += IDLE_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    if (pthread_cond_timedwait(&g->changed, &g->lock, &until) != ETIMEDOUT)
        return;
    pthread_mutex_unlock(&g->lock);
    experts_follow(x);
    pthread_mutex_lock(&g->lock);
    if (g->paged && (g->waiting || experts_kv_limit(x) != g->kv_limit))
        g->woken = true;
}

static void *engine_main(void *arg)
{
    struct engine *g = arg;
    pthread_setname_np(pthread_self(), "worker/engine");
    pool_settle_caller(g->config.pool);
    bool busy = false;
    for (;;) {
        pthread_mutex_lock(&g->lock);
        while (!busy && !g->inbox && !g->woken && !g->stopping)
            wait_for_work(g);
        bool stopping = g->stopping;
        struct event *events = take_inbox(g);
        pthread_mutex_unlock(&g->lock);
        drain(g, events);
        if (stopping)
            break;
        engine_end_cancelled(g);
        follow_kv_limit(g);
        admit(g);
        publish_status(g);
        busy = engine_step(g);
    }
    return NULL;
}

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
    k->prompt_tokens = metrics_counter(m, "moed_worker_prompt_tokens_total", NULL, 1,
                                       "Tokens of prompts computed.");
    k->generated_tokens =
        metrics_counter(m, "moed_worker_generated_tokens_total", NULL, 1, "Tokens generated.");
    k->token_events = metrics_counter(m, "moed_worker_token_events_total", NULL, 1,
                                      "Messages in which they were sent.");
    k->prefill_ns = metrics_counter(m, "moed_worker_prefill_seconds_total", NULL, 1e-9,
                                    "Time in prefill steps.");
    k->decode_ns =
        metrics_counter(m, "moed_worker_decode_seconds_total", NULL, 1e-9, "Time in decode steps.");
    k->decode_steps =
        metrics_counter(m, "moed_worker_decode_steps_total", NULL, 1, "Decode steps.");
    k->decode_paused = metrics_counter(m, "moed_worker_paused_total", NULL, 1,
                                       "Times that a request sat out a decode step because its "
                                       "frontend was behind.");
    static const char *const rows = "Rows of logits sampled, by what of them was brought to host memory.";
    k->rows_largest = metrics_counter(m, "moed_worker_sampled_rows_total", "logits=\"largest\"", 1, rows);
    k->rows_whole = metrics_counter(m, "moed_worker_sampled_rows_total", "logits=\"all\"", 1, rows);
    k->running = metrics_gauge(m, "moed_worker_requests_running", NULL, "Requests with a slot.");
    k->waiting = metrics_gauge(m, "moed_worker_requests_waiting", NULL, "Requests without one.");
    if (g->paged) {
        const char *name = "moed_worker_kv_pages", *help = "Pages of the KV cache in the device's memory.";
        k->pages_reserved = metrics_gauge(m, name, "state=\"reserved\"", help);
        k->pages_free = metrics_gauge(m, name, "state=\"free\"", help);
    }
    k->first_token = metrics_histogram(m, "moed_worker_time_to_first_token_seconds", NULL,
                                       histogram_seconds_bounds, histogram_seconds_count,
                                       "Submitted to first token.");
    k->token =
        metrics_histogram(m, "moed_worker_inter_token_seconds", NULL, histogram_seconds_bounds,
                          histogram_seconds_count, "From one token of a request to its next.");
}

enum error_code engine_new(const struct engine_config *config, struct engine **out, struct error *e)
{
    struct engine *g = calloc(1, sizeof *g);
    if (!g)
        return error_set(e, ERROR_MEMORY, "no memory for the engine");
    g->config = *config;
    g->paged = config->dense->ops->kv_use(config->dense).bytes > 0;
    g->inbox_end = &g->inbox;
    pthread_mutex_init(&g->lock, NULL);
    pthread_condattr_t by_clock;
    pthread_condattr_init(&by_clock);
    pthread_condattr_setclock(&by_clock, CLOCK_MONOTONIC);
    pthread_cond_init(&g->changed, &by_clock);
    pthread_condattr_destroy(&by_clock);
    uint32_t rows = config->parallel > LOGPROBS_ROWS ? config->parallel : LOGPROBS_ROWS;
    g->slot_used = calloc(config->parallel, sizeof *g->slot_used);
    g->batch = calloc(PREFILL_TOKENS > config->parallel ? PREFILL_TOKENS : config->parallel,
                      sizeof *g->batch);
    g->batch_requests = calloc(config->parallel, sizeof *g->batch_requests);
    g->logits = malloc((size_t)rows * config->vocab * sizeof *g->logits);
    g->sampler = sampler_new(config->vocab);
    g->picked = calloc(config->parallel, sizeof *g->picked);
    g->largest = calloc((size_t)config->parallel * SAMPLER_LARGEST, sizeof *g->largest);
    g->largest_tokens = calloc((size_t)config->parallel * SAMPLER_LARGEST, sizeof *g->largest_tokens);
    if (!g->slot_used || !g->batch || !g->batch_requests || !g->logits || !g->sampler || !g->picked ||
        !g->largest || !g->largest_tokens) {
        engine_free(g);
        return error_set(e, ERROR_MEMORY, "no memory for %u requests at once", config->parallel);
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
    struct event *events = take_inbox(g);
    pthread_mutex_unlock(&g->lock);
    drain(g, events);
    engine_end_all(g, ERROR_UNAVAILABLE, STOPPING_TEXT);
}

void engine_free(struct engine *g)
{
    if (!g)
        return;
    for (struct event *event = take_inbox(g), *next; event; event = next) {
        next = event->next; /* came after the engine had stopped */
        if (event->kind == EVENT_SUBMIT)
            request_free(event->request);
        free(event);
    }
    free(g->slot_used);
    free(g->batch);
    free(g->batch_requests);
    free(g->logits);
    free(g->picked);
    free(g->largest);
    free(g->largest_tokens);
    sampler_free(g->sampler);
    strbuf_fini(&g->text);
    pthread_mutex_destroy(&g->lock);
    pthread_cond_destroy(&g->changed);
    free(g);
}

struct engine_status engine_status(struct engine *g)
{
    struct engine_status s = {.running = atomic_load(&g->n_running),
                              .waiting = atomic_load(&g->n_waiting),
                              .tokens_total = counter_read(g->counters.generated_tokens),
                              .decode_ns = counter_read(g->counters.decode_ns)};
    uint64_t second = clock_ns() / 1000000000u, sum = 0;
    for (uint64_t back = 1; back <= RATE_SECONDS; back++) {
        struct rate_second *r = &g->rate[(second - back) % (RATE_SECONDS + 1)];
        if (atomic_load(&r->second) == second - back)
            sum += atomic_load(&r->tokens);
    }
    s.tokens_per_s = (double)sum / RATE_SECONDS;
    return s;
}
