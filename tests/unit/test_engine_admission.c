/* Which requests the worker's engine (worker/serve/engine.h) starts, and which wait, are suspended
 * or refused: for pages of the KV cache, its own and other workers', and in the queue. */
#include "bench_wait.h"
#include "engine_bench.h"

/* ---- Pages of the KV cache ---- */

static void bench_open_pages(struct engine_bench *b, uint32_t parallel, uint32_t n_pages)
{
    bench_open_with(b, &(struct bench_options){
                           .path = GOLDEN("olmoe.gguf"), .parallel = parallel, .n_pages = n_pages});
}

/* A prompt that needs more pages than there are; a later request is answered. */
static void test_never_fits(void **state)
{
    static struct engine_bench b;
    static struct recorder large, small;
    (void)state;
    bench_open_pages(&b, 2, 1);
    bench_start(&b);
    struct request *r = bench_request(&b, &large, REQUEST_GENERATE, GOLDEN_TOKENS);
    for (uint32_t i = 0; i < GOLDEN_TOKENS; i++)
        assert_true(token_list_push(&r->tokens, i));
    r->n_prompt = r->n_prefill = (uint32_t)r->tokens.count;
    bench_submit(&large);
    bench_ask(&b, &small, MOST_RECORDED);
    check_failed(&large, ERROR_CONTEXT);
    assert_int_equal(large.events, 0);
    check_done(&small, FINISH_LENGTH);
    check_golden(&small, GREEDY, GOLDEN_ANSWER);
    bench_close(&b);
}

/* A request for which there is no page yet waits, and no later one overtakes it that would
 * need its page. */
static void test_fits_later(void **state)
{
    static struct engine_bench b;
    static struct recorder first, large, last;
    (void)state;
    bench_open_pages(&b, 3, 1);
    bench_start(&b);
    bench_ask(&b, &first, 1);
    bench_await(&first, 1);
    bench_request(&b, &large, REQUEST_GENERATE, GOLDEN_TOKENS);
    bench_submit(&large);
    bench_ask(&b, &last, MOST_RECORDED);
    assert_int_equal(recorder_read(&large, &large.taken), 0);
    assert_int_equal(recorder_read(&last, &last.taken), 0);
    bench_acknowledge(&first, MOST_RECORDED);
    check_done(&first, FINISH_LENGTH);
    check_done(&large, FINISH_LENGTH);
    check_done(&last, FINISH_LENGTH);
    check_golden(&first, GREEDY, GOLDEN_ANSWER);
    check_golden(&last, GREEDY, GOLDEN_ANSWER);
    bench_close(&b);
}

/* A request that shares its prompt's pages with one that runs needs no others for them. */
static void test_shared_pages_suffice(void **state)
{
    enum { PAGES = 6, PROMPT = 4 * KV_POOL_TOKENS };
    static struct engine_bench b;
    static struct recorder first, fork;
    (void)state;
    bench_open_with(&b, &(struct bench_options){.path = GOLDEN("olmoe.gguf"),
                                                .parallel = 2,
                                                .n_pages = PAGES,
                                                .context = PAGES * KV_POOL_TOKENS});
    bench_start(&b);
    bench_push_tokens(bench_request(&b, &first, REQUEST_GENERATE, GOLDEN_TOKENS), PROMPT, 1);
    first.window = 1;
    bench_submit(&first);
    bench_await(&first, 1);
    bench_push_tokens(bench_request(&b, &fork, REQUEST_GENERATE, GOLDEN_TOKENS), PROMPT, 2);
    bench_submit(&fork);
    check_done(&fork, FINISH_LENGTH);
    assert_int_equal(fork.summary.cached_tokens, PROMPT);
    assert_int_equal(recorder_read(&first, &first.n_tokens), 1);
    bench_acknowledge(&first, MOST_RECORDED);
    check_done(&first, FINISH_LENGTH);
    bench_close(&b);
}

/* A small request overtakes a large one that waits for pages, if both fit at once. */
static void test_overtaking(void **state)
{
    enum { PAGES = 6, PROMPT = 3 * KV_POOL_TOKENS };
    static struct engine_bench b;
    static struct recorder first, large, small, other;
    (void)state;
    bench_open_with(&b, &(struct bench_options){.path = GOLDEN("olmoe.gguf"),
                                                .parallel = 4,
                                                .n_pages = PAGES,
                                                .context = PAGES * KV_POOL_TOKENS});
    bench_start(&b);
    bench_push_tokens(bench_request(&b, &first, REQUEST_GENERATE, GOLDEN_TOKENS), PROMPT, 1);
    first.window = 1;
    bench_submit(&first);
    bench_await(&first, 1);
    struct request *r = bench_request(&b, &large, REQUEST_GENERATE, GOLDEN_TOKENS);
    r->tokens.ids[0]++;
    bench_push_tokens(r, PROMPT + KV_POOL_TOKENS, 1); /* 5 pages */
    bench_submit(&large);
    bench_ask(&b, &small, MOST_RECORDED);
    check_done(&small, FINISH_LENGTH);
    check_golden(&small, GREEDY, GOLDEN_ANSWER);
    /* two pages are free; with this one's second page they would not both fit */
    bench_request(&b, &other, REQUEST_GENERATE, GOLDEN_PROMPT)->max_tokens = 2 * KV_POOL_TOKENS;
    bench_submit(&other);
    assert_int_equal(recorder_read(&large, &large.taken), 0);
    assert_int_equal(recorder_read(&other, &other.taken), 0);
    bench_acknowledge(&first, MOST_RECORDED);
    check_done(&first, FINISH_LENGTH);
    check_done(&large, FINISH_LENGTH);
    check_done(&other, FINISH_LENGTH);
    bench_close(&b);
}

/* Answers that outgrow the pool: the last ones are suspended and begin again, with the same tokens.
 */
static void test_suspended(void **state)
{
    enum { N = 3, LENGTH = 110 }; /* two pages each; there are three */
    static struct engine_bench b;
    static struct recorder expected, c[N];
    (void)state;
    bench_open(&b, 1);
    bench_start(&b);
    bench_request(&b, &expected, REQUEST_GENERATE, GOLDEN_PROMPT)->max_tokens = LENGTH;
    bench_submit(&expected);
    check_done(&expected, FINISH_LENGTH);
    bench_close(&b);
    bench_open_pages(&b, N, 3);
    for (uint32_t i = 0; i < N; i++) {
        bench_request(&b, &c[i], REQUEST_GENERATE, GOLDEN_PROMPT)->max_tokens = LENGTH;
        bench_submit(&c[i]);
    }
    bench_start(&b);
    for (uint32_t i = 0; i < N; i++) {
        check_done(&c[i], FINISH_LENGTH);
        assert_int_equal(c[i].n_tokens, LENGTH);
        assert_memory_equal(c[i].tokens, expected.tokens, LENGTH * sizeof expected.tokens[0]);
    }
    assert_true(counter_read(b.engine->counters.suspended) > 0);
    bench_close(&b);
}

static void await_suspension(const struct engine_bench *b)
{
    for (int ms = 0; !counter_read(b->engine->counters.suspended); ms++) {
        assert_true(ms < 1000 * WAIT_S);
        usleep(1000);
    }
}

/* Credits that the request has and no event of it has used. */
static uint32_t credits_held(struct recorder *c)
{
    pthread_mutex_lock(&c->lock);
    uint32_t held = c->taken - c->returned - c->events;
    pthread_mutex_unlock(&c->lock);
    return held;
}

/* A request is suspended because another worker has the pages, and goes on once that worker has
 * left them, of which nothing tells. While it waits it holds no credit: all its tokens are sent. */
static void test_pages_of_another_worker(void **state)
{
    enum { PAGES = 4, PROMPT = 2 * KV_POOL_TOKENS - 10, LENGTH = 20 };
    static struct engine_bench b;
    static struct recorder c;
    struct prefix_cache *other;
    struct error e;
    uint32_t pages[PAGES / 2];
    struct kv_path path = {.pages = pages, .capacity = PAGES / 2};
    (void)state;
    bench_open_with(&b, &(struct bench_options){.path = GOLDEN("olmoe.gguf"),
                                                .parallel = 1,
                                                .n_pages = PAGES,
                                                .shared_events = true,
                                                .context = PAGES * KV_POOL_TOKENS});
    bench_start(&b);
    struct request *r = bench_request(&b, &c, REQUEST_GENERATE, GOLDEN_TOKENS);
    bench_push_tokens(r, PROMPT, 1);
    r->max_tokens = LENGTH;
    c.window = 1;
    bench_submit(&c);
    bench_await(&c, 1);
    struct prefix_cache_options options = {
        .pool = b.kv_pool, .worker = 1, .format = 1, .vocab = VOCAB, .exact = true};
    must(prefix_cache_new(&options, &other, &e), &e);
    assert_true(prefix_cache_extend(other, &path, PAGES / 2 * KV_POOL_TOKENS));
    bench_acknowledge(&c, MOST_RECORDED);
    await_suspension(&b);
    assert_int_equal(credits_held(&c), 0);
    prefix_cache_close(other, &path);
    check_done(&c, FINISH_LENGTH);
    assert_int_equal(c.n_tokens, LENGTH);
    prefix_cache_free(other);
    bench_close(&b);
}

static struct dense_kv_use full_device(const struct dense *d)
{
    (void)d;
    return (struct dense_kv_use){.bytes = 1, .pages_most = 1000};
}

/* As if the dense part was on a device whose pages are all in use. */
static void fill_device(struct engine_bench *b)
{
    struct engine_counters *k = &b->engine->counters;
    k->pages_reserved = k->pages_free = metrics_gauge(b->metrics, "test_pages", NULL, "Pages.");
    b->engine->paged = true;
    b->ops.kv_use = full_device;
}

/* Whether another worker may start a request that comes now, while one of this worker waits for
 * pages: of its own device, or of the pool. */
static bool others_may_start(bool device)
{
    static struct engine_bench b;
    static struct recorder running, waiting;
    static struct kv_pool_worker entries[KV_POOL_WORKERS];
    const struct siblings other = {entries, 1};
    bench_open_pages(&b, 2, 1);
    b.engine->config.siblings = (struct siblings){entries, 0};
    if (device)
        fill_device(&b);
    bench_start(&b);
    if (!device) {
        bench_ask(&b, &running, 1);
        bench_await(&running, 1);
        assert_true(siblings_may_start(&other, clock_ns()));
    }
    bench_ask(&b, &waiting, MOST_RECORDED);
    BENCH_UNTIL(engine_status(b.engine).waiting == 1);
    bool may_start = siblings_may_start(&other, clock_ns());
    bench_cancel(&waiting);
    check_done(&waiting, FINISH_CANCELLED);
    bench_close(&b);
    return may_start;
}

static void test_other_workers_wait(void **state)
{
    (void)state;
    assert_false(others_may_start(false));
    assert_true(others_may_start(true));
}

static _Atomic uint32_t device_pages; /* free */

static struct dense_kv_use device_with_few(const struct dense *d)
{
    (void)d;
    return (struct dense_kv_use){.bytes = 1, .pages_free = device_pages, .pages_most = 1000};
}

/* The first request that waits lacks pages of the device, a smaller one behind it those of the
 * pool: no other worker takes them. */
static void test_other_workers_wait_for_second(void **state)
{
    enum { PAGES = 3 };
    static struct engine_bench b;
    static struct recorder running, first, second;
    static struct kv_pool_worker entries[KV_POOL_WORKERS];
    const struct siblings other = {entries, 1};
    (void)state;
    bench_open_with(&b, &(struct bench_options){.path = GOLDEN("olmoe.gguf"),
                                                .parallel = 3,
                                                .n_pages = PAGES,
                                                .context = PAGES * KV_POOL_TOKENS});
    b.engine->config.siblings = (struct siblings){entries, 0};
    fill_device(&b);
    b.ops.kv_use = device_with_few;
    device_pages = PAGES;
    bench_start(&b);
    bench_push_tokens(bench_request(&b, &running, REQUEST_GENERATE, GOLDEN_TOKENS),
                      (PAGES - 1) * KV_POOL_TOKENS, 1);
    running.window = 1;
    bench_submit(&running);
    bench_await(&running, 1);
    device_pages = 1;
    bench_push_tokens(bench_request(&b, &first, REQUEST_GENERATE, GOLDEN_PROMPT), KV_POOL_TOKENS,
                      2);
    bench_submit(&first);
    BENCH_UNTIL(engine_status(b.engine).waiting == 1);
    assert_true(siblings_may_start(&other, clock_ns()));
    bench_ask(&b, &second, MOST_RECORDED);
    BENCH_UNTIL(engine_status(b.engine).waiting == 2);
    assert_false(siblings_may_start(&other, clock_ns()));
    bench_close(&b);
}

/* ---- The queue ---- */

static void test_full_queue(void **state)
{
    enum { QUEUE = 3 };
    static struct engine_bench b;
    static struct recorder c[QUEUE], late;
    struct error e;
    (void)state;
    bench_open_with(
        &b, &(struct bench_options){.path = GOLDEN("olmoe.gguf"), .parallel = 1, .queue = QUEUE});
    for (uint32_t i = 0; i < QUEUE; i++)
        bench_ask(&b, &c[i], MOST_RECORDED);
    struct request *r = bench_request(&b, &late, REQUEST_GENERATE, GOLDEN_PROMPT);
    assert_int_equal(engine_submit(b.engine, r, &e), ERROR_BUSY);
    assert_non_null(strstr(e.text, "3 requests wait"));
    request_free(r);
    bench_start(&b);
    for (uint32_t i = 0; i < QUEUE; i++)
        check_done(&c[i], FINISH_LENGTH);
    bench_close(&b);
}

/* Requests that a worker which has gone had taken are not refused where the queue is full. Those
 * with a part of their answer go before all others, in order. */
static void test_continued_queue(void **state)
{
    enum { BEFORE = 6, N = 4 };
    static struct engine_bench b;
    static struct recorder whole, waiting, taken, begun[2], late;
    struct recorder *const submitted[N] = {&waiting, &taken, &begun[0], &begun[1]};
    struct recorder *const order[N] = {&begun[0], &begun[1], &waiting, &taken};
    struct error e;
    (void)state;
    bench_open(&b, 1);
    bench_start(&b);
    bench_ask(&b, &whole, MOST_RECORDED);
    check_done(&whole, FINISH_LENGTH);
    bench_close(&b);
    bench_open_with(
        &b, &(struct bench_options){.path = GOLDEN("olmoe.gguf"), .parallel = 1, .queue = 1});
    for (uint32_t i = 0; i < N; i++) {
        struct request *r = bench_request(&b, submitted[i], REQUEST_GENERATE, GOLDEN_PROMPT);
        submitted[i]->window = 1;
        r->resumed = i == 1;
        if (i > 1) {
            assert_true(request_continue(r, whole.tokens, BEFORE, 0, b.context));
            r->n_prefill = (uint32_t)r->tokens.count;
        }
        bench_submit(submitted[i]);
    }
    struct request *r = bench_request(&b, &late, REQUEST_GENERATE, GOLDEN_PROMPT);
    assert_int_equal(engine_submit(b.engine, r, &e), ERROR_BUSY);
    request_free(r);
    bench_start(&b);
    for (uint32_t i = 0; i < N; i++) {
        uint32_t before = i < 2 ? BEFORE : 0;
        bench_await(order[i], 1); /* has the slot, and no credit any more */
        for (uint32_t j = i + 1; j < N; j++)
            assert_int_equal(recorder_read(order[j], &order[j]->taken), 0);
        bench_acknowledge(order[i], MOST_RECORDED);
        check_end(order[i], 1, 0);
        assert_int_equal(order[i]->n_tokens, GOLDEN_ANSWER - before);
        assert_memory_equal(order[i]->tokens, whole.tokens + before,
                            order[i]->n_tokens * sizeof *whole.tokens);
    }
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_never_fits),
        cmocka_unit_test(test_fits_later),
        cmocka_unit_test(test_shared_pages_suffice),
        cmocka_unit_test(test_overtaking),
        cmocka_unit_test(test_suspended),
        cmocka_unit_test(test_pages_of_another_worker),
        cmocka_unit_test(test_other_workers_wait),
        cmocka_unit_test(test_other_workers_wait_for_second),
        cmocka_unit_test(test_full_queue),
        cmocka_unit_test(test_continued_queue),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
