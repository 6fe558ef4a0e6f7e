/* Clients that take turns at the slots of an engine whose KV cache is full. The truth:
 * docs/conversations.md, "Waiting requests". */
#include "engine_bench.h"

enum { ALICE = 1, BOB, CAROL, PAGES = 6 };

static struct engine_bench b;

static void nothing(void *arg)
{
    (void)arg;
}

/* Each call comes after another look at the queue. */
static void let_engine_work(void)
{
    for (int i = 0; i < 20; i++)
        assert_true(engine_call(b.engine, nothing, NULL));
}

/* The prompt has so many tokens before `last`, and begins as no other client's. */
static struct request *long_request(struct recorder *c, uint64_t client, uint32_t n, uint32_t last)
{
    struct request *r = bench_request(&b, c, REQUEST_GENERATE, GOLDEN_TOKENS);
    r->client = client;
    r->tokens.ids[0] += (uint32_t)client;
    bench_push_tokens(r, n, last);
    return r;
}

/* Alice's large request waits for the pages of Bob's, and her small one overtakes it. That is not
 * her turn: Carol's request, which does not fit into the KV cache together with these, waits. */
static void test_overtaken_by_own(void **state)
{
    static struct recorder bob, large, small, carol;
    (void)state;
    bench_open_with(&b, &(struct bench_options){.path = GOLDEN("olmoe.gguf"),
                                                .parallel = 4,
                                                .n_pages = PAGES,
                                                .context = PAGES * KV_POOL_TOKENS});
    bench_start(&b);
    long_request(&bob, BOB, 3 * KV_POOL_TOKENS, 1);
    bob.window = 1;
    bench_submit(&bob);
    bench_await(&bob, 1);
    long_request(&large, ALICE, 4 * KV_POOL_TOKENS, 1); /* 5 pages; 2 are free */
    bench_submit(&large);
    bench_request(&b, &small, REQUEST_GENERATE, GOLDEN_PROMPT)->client = ALICE;
    small.window = 1;
    bench_submit(&small);
    bench_await(&small, 1);
    bench_request(&b, &carol, REQUEST_GENERATE, GOLDEN_PROMPT)->client = CAROL;
    carol.window = 1;
    bench_submit(&carol);
    let_engine_work();
    assert_int_equal(recorder_read(&large, &large.taken), 0);
    assert_int_equal(recorder_read(&carol, &carol.taken), 0);
    bench_acknowledge(&bob, MOST_RECORDED);
    check_done(&bob, FINISH_LENGTH);
    check_done(&large, FINISH_LENGTH);
    bench_acknowledge(&small, MOST_RECORDED);
    bench_acknowledge(&carol, MOST_RECORDED);
    check_done(&small, FINISH_LENGTH);
    check_done(&carol, FINISH_LENGTH);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_overtaken_by_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
