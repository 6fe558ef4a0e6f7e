/* A worker's engine in this process, with a golden model and real parts on the host, and a sink
 * that records what the engine delivers; for test_engine.c. */
#ifndef MOED_TESTS_ENGINE_BENCH_H
#define MOED_TESTS_ENGINE_BENCH_H

#include "loaded_model.h"

#include "base/clock.h"
#include "worker/experts/experts_metrics.h"
#include "worker/kv/state_snapshots.h"
#include "worker/serve/engine_internal.h"

#include "base/checked.h"
#include "model/memory_need.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

enum { GOLDEN_TOKENS = 32, GOLDEN_PROMPT = 8, GOLDEN_ANSWER = 16, VOCAB = 320 };
enum { MOST_RECORDED = 256, MOST_SCORED = 640, WAIT_S = 60 };

#define GOLDEN(name) MOED_SOURCE_DIR "/tests/golden/" name
#define GREEDY       GOLDEN("olmoe.greedy") /* the answer of bench_open's model */

/* ---- The model and its engine ---- */

struct engine_bench {
    struct loaded_model model;
    struct memory_client memory;
    struct cuda_device cuda; /* none */
    struct metrics *metrics;
    struct tokenizer *tokenizer;
    struct pool *pool;
    struct exec *exec;
    struct model_weights weights;
    struct dense *dense;
    struct dense_ops ops; /* dense's, of which a test may replace some before bench_start */
    struct experts *experts;
    struct forward *forward;
    void *kv_memory; /* of the KV pool */
    struct kv_pool kv_pool;
    struct prefix_cache *prefixes;
    struct state_snapshots *snapshots; /* NULL: the model has no recurrent layers */
    struct engine *engine;
    uint32_t context;
};

static inline void bench_make_compute(struct engine_bench *b, uint32_t parallel,
                                      enum tensor_type kv_type)
{
    struct error e;
    const struct model_params *p = &b->memory.map.params;
    uint32_t max_tokens = serving_batch_tokens(BATCH_IN_MEMORY, parallel);
    struct exec_limits limits = {max_tokens, params_widest_input(p), max_tokens * p->router.n_used,
                                 p->d_expert};
    struct dense_options dense = {.map = &b->memory.map,
                                  .max_tokens = max_tokens,
                                  .kv_type = kv_type,
                                  .n_slots = parallel,
                                  .context = b->context};
    must(pool_new("test", 2, false, 0, &b->pool, &e), &e);
    must(exec_new(b->pool, &limits, false, &b->exec, &e), &e);
    must(weights_bind(&b->memory.map, b->memory.map.base, &b->weights, &e), &e);
    must(dense_host_new(&dense, b->exec, &b->dense, &e), &e);
    b->ops = *b->dense->ops;
    b->dense->ops = &b->ops;
    struct experts_options options = {.max_tokens = max_tokens, .device = {.kind = DEVICE_HOST}};
    struct experts_counters counters = experts_metrics_counters(b->metrics, &b->memory, &b->cuda);
    must(experts_new("/nonexistent", &b->memory, b->exec, &options, &counters, &b->experts, &e),
         &e);
    must(forward_new(p, &b->weights, b->dense, b->experts, b->context, &b->forward, &e), &e);
}

/* A KV pool of n_pages, empty. */
static inline void bench_make_kv_pool(struct engine_bench *b, uint32_t n_pages,
                                      enum tensor_type kv_type)
{
    struct error e;
    uint64_t page_bytes = b->dense->kv.page_bytes;
    size_t bytes = kv_pool_bytes(n_pages, page_bytes);
    b->kv_memory = aligned_alloc(KV_POOL_ALIGN, round_up(bytes, KV_POOL_ALIGN));
    assert_non_null(b->kv_memory);
    memset(b->kv_memory, 0, kv_pool_bytes(n_pages, 0));
    kv_pool_init(b->kv_memory, n_pages, page_bytes, 1);
    must(kv_pool_attach(&b->kv_pool, b->kv_memory, bytes, &e), &e);
}

struct bench_options {
    const char *path;
    uint32_t parallel;
    uint32_t n_pages;   /* of the KV pool; 0: enough */
    bool shared_events; /* else each token is an event of its own */
    uint32_t queue;     /* 0: enough */
    uint32_t speculate; /* of model/speculate.h */
    enum tensor_type kv_type;
    uint32_t context;      /* 0: that of short answers */
    bool groups;           /* prompts are computed in groups, as where products round otherwise */
    struct kv_store store; /* header NULL: none */
};

/* The engine is made, but not started. */
static inline void bench_open_with(struct engine_bench *b, const struct bench_options *options)
{
    struct error e;
    uint32_t parallel = options->parallel;
    *b = (struct engine_bench){0};
    load_file(&b->model, options->path);
    b->memory = (struct memory_client){.lease_fd = -1, .map = b->model.map};
    const struct model_params *p = &b->memory.map.params;
    assert_int_equal(p->vocab, VOCAB);
    b->context = options->context ? options->context : 4 * GOLDEN_TOKENS;
    b->metrics = metrics_new();
    must(tokenizer_new(b->model.g, NULL, &b->tokenizer, &e), &e);
    bench_make_compute(b, parallel, options->kv_type);
    uint64_t enough = kv_layout_pages(&b->dense->kv, 2 * b->context,
                                      serving_batch_tokens(BATCH_IN_MEMORY, parallel));
    bench_make_kv_pool(b, options->n_pages ? options->n_pages : (uint32_t)enough * 2 * parallel,
                       options->kv_type);
    struct prefix_cache_options prefixes = {.pool = b->kv_pool,
                                            .format = 1,
                                            .vocab = VOCAB,
                                            .exact = !options->groups,
                                            .n_windowed = kv_layout_windowed(&b->dense->kv),
                                            .window = b->dense->kv.window,
                                            .store = options->store};
    must(prefix_cache_new(&prefixes, &b->prefixes, &e), &e);
    struct state_snapshots_options snapshots = {.count = memory_state_snapshots(parallel),
                                                .context = b->context,
                                                .state_bytes = params_state_bytes(p),
                                                .exact = !options->groups};
    if (snapshots.state_bytes)
        must(state_snapshots_new(&snapshots, &b->snapshots, &e), &e);
    struct engine_config config = {.forward = b->forward,
                                   .dense = b->dense,
                                   .experts = b->experts,
                                   .pool = b->pool,
                                   .tokenizer = b->tokenizer,
                                   .vocab = p->vocab,
                                   .d_model = p->d_model,
                                   .prefixes = b->prefixes,
                                   .snapshots = b->snapshots,
                                   .exact = !options->groups,
                                   .parallel = parallel,
                                   .queue = options->queue ? options->queue : 1000,
                                   .batch = BATCH_IN_MEMORY,
                                   .decode_share = 50,
                                   .speculate = options->speculate,
                                   .context = b->context,
                                   .waits_for_disk = !options->shared_events,
                                   .metrics = b->metrics};
    must(engine_new(&config, &b->engine, &e), &e);
}

static inline void bench_open_model(struct engine_bench *b, const char *path, uint32_t parallel,
                                    bool shared_events)
{
    bench_open_with(b, &(struct bench_options){
                           .path = path, .parallel = parallel, .shared_events = shared_events});
}

static inline void bench_open(struct engine_bench *b, uint32_t parallel)
{
    bench_open_model(b, GOLDEN("olmoe.gguf"), parallel, false);
}

static inline void bench_start(struct engine_bench *b)
{
    struct error e;
    must(engine_start(b->engine, &e), &e);
}

static inline void bench_close(struct engine_bench *b)
{
    engine_stop(b->engine);
    engine_free(b->engine);
    prefix_cache_free(b->prefixes);
    state_snapshots_free(b->snapshots);
    free(b->kv_memory);
    forward_free(b->forward);
    experts_free(b->experts);
    dense_free(b->dense);
    weights_free(&b->weights);
    exec_free(b->exec);
    pool_free(b->pool);
    tokenizer_free(b->tokenizer);
    metrics_free(b->metrics);
    unload_model(&b->model);
}

/* ---- A sink that records ---- */

struct recorder {
    pthread_mutex_t lock; /* guards the rest */
    pthread_cond_t changed;
    struct engine *engine;
    struct request *request; /* NULL once it has ended */
    uint32_t window;         /* credits left */
    uint32_t taken, returned, events;
    uint32_t tokens[MOST_RECORDED], n_tokens;
    float token_logprobs[MOST_RECORDED], best_logprobs[MOST_RECORDED];
    uint32_t best[MOST_RECORDED]; /* the most probable tokens */
    bool forced[MOST_RECORDED];   /* of the tokens; reasoning_limit.h */
    float mus[MOST_RECORDED];     /* mirostat's, after the event of the token */
    uint32_t n_progress;          /* positions of the prompt reported */
    float logits[GOLDEN_TOKENS][VOCAB], logprobs[MOST_SCORED];
    uint32_t n_rows, n_logprobs; /* of consecutive rows, tokens */
    uint32_t n_positions;        /* consecutive ones with routing */
    uint32_t n_done, n_failed;
    uint32_t n_wrong;                /* calls out of order, or after the end */
    struct response_summary summary; /* its end_logprobs are gone: */
    uint32_t n_end, end_best;
    float end_logprob, end_best_logprob;
    enum error_code code;
    char text[256];
};

static inline struct recorder *recorder_begin(void *arg)
{
    struct recorder *c = arg;
    pthread_mutex_lock(&c->lock);
    c->n_wrong += c->n_done + c->n_failed > 0;
    return c;
}

static inline void recorder_end(struct recorder *c)
{
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

static inline uint32_t recorder_read(struct recorder *c, const uint32_t *field)
{
    pthread_mutex_lock(&c->lock);
    uint32_t value = *field;
    pthread_mutex_unlock(&c->lock);
    return value;
}

static inline bool record_take_credit(void *arg)
{
    struct recorder *c = recorder_begin(arg);
    bool taken = c->window > 0;
    c->window -= taken;
    c->taken += taken;
    recorder_end(c);
    return taken;
}

static inline void record_return_credit(void *arg)
{
    struct recorder *c = recorder_begin(arg);
    c->window++;
    c->returned++;
    recorder_end(c);
}

static inline void record_progress(void *arg, uint32_t n_past, uint32_t n_prompt, uint32_t n_cached,
                                   uint64_t ns)
{
    struct recorder *c = recorder_begin(arg);
    c->events++;
    c->n_wrong += n_past <= c->n_progress || n_past > n_prompt || n_cached >= n_past || ns == 0;
    c->n_progress = n_past;
    recorder_end(c);
}

static inline void record_tokens(void *arg, const struct response_tokens *event)
{
    struct recorder *c = recorder_begin(arg);
    const struct response_logprobs *l = &event->logprobs;
    c->events++;
    c->n_wrong += event->n_tokens == 0 && event->text_bytes == 0;
    c->n_wrong += l->logprobs && (l->n != event->n_tokens || event->forced);
    for (uint32_t i = 0; i < event->n_tokens && c->n_tokens < MOST_RECORDED; i++) {
        if (l->logprobs) {
            c->token_logprobs[c->n_tokens] = l->logprobs[i];
            c->best[c->n_tokens] = l->n_top ? l->top_tokens[(size_t)i * l->n_top] : UINT32_MAX;
            c->best_logprobs[c->n_tokens] = l->n_top ? l->top_logprobs[(size_t)i * l->n_top] : 0;
        }
        c->mus[c->n_tokens] = event->mirostat_mu;
        c->forced[c->n_tokens] = event->forced;
        c->tokens[c->n_tokens++] = event->tokens[i];
    }
    recorder_end(c);
}

static inline void record_logits(void *arg, uint32_t row, const float *logits, uint32_t vocab)
{
    struct recorder *c = recorder_begin(arg);
    c->events++;
    if (row == c->n_rows && row < GOLDEN_TOKENS && vocab == VOCAB)
        memcpy(c->logits[c->n_rows++], logits, sizeof c->logits[0]);
    else
        c->n_wrong++;
    recorder_end(c);
}

static inline void record_logprobs(void *arg, uint32_t first, const struct response_logprobs *l)
{
    struct recorder *c = recorder_begin(arg);
    uint32_t n = l->n;
    c->events++;
    if (first == c->n_logprobs + 1 && first + n <= MOST_SCORED)
        memcpy(c->logprobs + first, l->logprobs, n * sizeof *l->logprobs);
    else
        c->n_wrong++;
    c->n_logprobs += n;
    recorder_end(c);
}

static inline void record_routing(void *arg, const struct recording_part *part)
{
    struct recorder *c = recorder_begin(arg);
    c->events++;
    c->n_wrong += part->first != c->n_positions || part->n == 0;
    c->n_positions += part->n;
    recorder_end(c);
}

static inline void record_done(void *arg, const struct response_summary *summary)
{
    struct recorder *c = recorder_begin(arg);
    c->n_done++;
    c->summary = *summary;
    const struct response_logprobs *l = &summary->end_logprobs;
    c->n_end = l->n;
    c->end_logprob = l->n ? l->logprobs[0] : 0;
    c->end_best = l->n && l->n_top ? l->top_tokens[0] : UINT32_MAX;
    c->end_best_logprob = l->n && l->n_top ? l->top_logprobs[0] : 0;
    c->request = NULL;
    recorder_end(c);
}

static inline void record_failed(void *arg, enum error_code code, const char *text)
{
    struct recorder *c = recorder_begin(arg);
    c->n_failed++;
    c->code = code;
    snprintf(c->text, sizeof c->text, "%s", text);
    c->request = NULL;
    recorder_end(c);
}

static const struct response_sink recording_sink = {
    .take_credit = record_take_credit,
    .return_credit = record_return_credit,
    .progress = record_progress,
    .tokens = record_tokens,
    .logits = record_logits,
    .logprobs = record_logprobs,
    .routing = record_routing,
    .done = record_done,
    .failed = record_failed,
};

/* ---- Requests ---- */

/* All its tokens are its prompt. */
static inline void bench_set_prompt(struct request *r)
{
    r->n_prompt = r->n_prefill = (uint32_t)r->tokens.count;
    r->end_row = r->n_prompt - (r->kind == REQUEST_LOGPROBS);
}

/* A request for the first n_prompt golden tokens: greedy, with an answer of GOLDEN_ANSWER tokens,
 * and no lack of credits. The caller may change it before bench_submit. */
static inline struct request *bench_request(struct engine_bench *b, struct recorder *c,
                                            enum request_kind kind, uint32_t n_prompt)
{
    *c = (struct recorder){.engine = b->engine, .window = MOST_RECORDED};
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    struct request *r = request_new(b->tokenizer, kind, &recording_sink, c);
    FILE *f = fopen(GOLDEN("tokens.txt"), "r");
    assert_true(r && f);
    uint32_t token;
    while (r->tokens.count < n_prompt && fscanf(f, "%u", &token) == 1)
        assert_true(token_list_push(&r->tokens, token));
    fclose(f);
    assert_int_equal(r->tokens.count, n_prompt);
    r->sampling = sampling_neutral();
    r->max_tokens = GOLDEN_ANSWER;
    r->ignore_end = true;
    bench_set_prompt(r);
    return c->request = r;
}

/* Lengthens the prompt to n tokens and `end`. */
static inline void bench_push_tokens(struct request *r, uint32_t n, uint32_t end)
{
    while (r->tokens.count < n)
        assert_true(token_list_push(&r->tokens, (uint32_t)(r->tokens.count * 7 % 256)));
    assert_true(token_list_push(&r->tokens, end));
    r->n_prompt = r->n_prefill = (uint32_t)r->tokens.count;
}

static inline void bench_submit(struct recorder *c)
{
    struct error e;
    must(engine_submit(c->engine, c->request, &e), &e);
}

/* A golden request with this many credits, submitted. */
static inline void bench_ask(struct engine_bench *b, struct recorder *c, uint32_t window)
{
    bench_request(b, c, REQUEST_GENERATE, GOLDEN_PROMPT);
    c->window = window;
    bench_submit(c);
}

/* As a frontend cancels: under the lock that the sink takes to report the end. */
static inline void bench_cancel(struct recorder *c)
{
    pthread_mutex_lock(&c->lock);
    if (c->request)
        engine_cancel(c->engine, c->request);
    pthread_mutex_unlock(&c->lock);
}

static inline void bench_acknowledge(struct recorder *c, uint32_t credits)
{
    pthread_mutex_lock(&c->lock);
    c->window += credits;
    pthread_mutex_unlock(&c->lock);
    engine_resume(c->engine);
}

/* Waits until the request has ended, or the sink has got n_tokens; fails after WAIT_S. */
static inline void bench_await(struct recorder *c, uint32_t n_tokens)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += WAIT_S;
    int rc = 0;
    pthread_mutex_lock(&c->lock);
    while (!c->n_done && !c->n_failed && c->n_tokens < n_tokens && !rc)
        rc = pthread_cond_timedwait(&c->changed, &c->lock, &until);
    pthread_mutex_unlock(&c->lock);
    assert_int_equal(rc, 0);
}

/* The end came once, nothing came after it, and each event had its credit. */
static inline void check_end(struct recorder *c, uint32_t n_done, uint32_t n_failed)
{
    bench_await(c, UINT32_MAX);
    pthread_mutex_lock(&c->lock);
    assert_int_equal(c->n_done, n_done);
    assert_int_equal(c->n_failed, n_failed);
    assert_int_equal(c->n_wrong, 0);
    assert_int_equal(c->taken - c->returned, c->events);
    pthread_mutex_unlock(&c->lock);
}

static inline void check_done(struct recorder *c, enum finish_reason reason)
{
    check_end(c, 1, 0);
    assert_int_equal(c->summary.reason, reason);
    assert_int_equal(c->summary.generated_tokens, c->n_tokens);
}

static inline void check_failed(struct recorder *c, enum error_code code)
{
    check_end(c, 0, 1);
    assert_int_equal(c->code, code);
}

/* The first n tokens of the answer are those of the other implementation (tests/golden/README.md).
 */
static inline void check_golden(const struct recorder *c, const char *greedy, uint32_t n)
{
    FILE *f = fopen(greedy, "r");
    assert_non_null(f);
    assert_int_equal(c->n_tokens, n);
    for (uint32_t i = 0, want; i < n; i++) {
        assert_int_equal(fscanf(f, "%u", &want), 1);
        assert_int_equal(c->tokens[i], want);
    }
    fclose(f);
}

#endif
