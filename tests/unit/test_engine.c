/* The worker's engine (worker/serve/engine.h) with the golden models. The truth: the answers and
 * logits that PyTorch's transformers gave for them; and the rules of response_sink.h. */
#include "bench_wait.h"
#include "engine_bench.h"

#include <math.h>

/* ---- Answers ---- */

static void test_golden_answers(void **state)
{
    static const char *const models[] = {"olmoe",        "qwen3moe", "mixtral",
                                         "deepseek2-v3", "gpt-oss",  "gemma4"};
    static struct engine_bench b;
    static struct recorder c;
    (void)state;
    for (uint32_t i = 0; i < sizeof models / sizeof *models; i++) {
        char model[256], greedy[256];
        snprintf(model, sizeof model, GOLDEN("%s.gguf"), models[i]);
        snprintf(greedy, sizeof greedy, GOLDEN("%s.greedy"), models[i]);
        bench_open_model(&b, model, 1, false);
        bench_start(&b);
        bench_ask(&b, &c, MOST_RECORDED);
        check_done(&c, FINISH_LENGTH);
        check_golden(&c, greedy, GOLDEN_ANSWER);
        assert_int_equal(c.events, GOLDEN_ANSWER);
        assert_int_equal(c.summary.prompt_tokens, GOLDEN_PROMPT);
        bench_close(&b);
    }
}

/* Several tokens may share an event; the tokens are the same. */
static void test_shared_events(void **state)
{
    static struct engine_bench b;
    static struct recorder c;
    (void)state;
    bench_open_model(&b, GOLDEN("olmoe.gguf"), 1, true);
    bench_start(&b);
    bench_ask(&b, &c, MOST_RECORDED);
    check_done(&c, FINISH_LENGTH);
    check_golden(&c, GREEDY, GOLDEN_ANSWER);
    assert_true(c.events <= GOLDEN_ANSWER);
    bench_close(&b);
}

static void test_ways_to_end(void **state)
{
    static struct engine_bench b;
    static struct recorder unlimited, stepwise, prompt_only;
    (void)state;
    bench_open(&b, 3);
    bench_request(&b, &unlimited, REQUEST_GENERATE, GOLDEN_PROMPT)->max_tokens = 0;
    bench_request(&b, &stepwise, REQUEST_GENERATE, GOLDEN_PROMPT)->stepwise = true;
    bench_request(&b, &prompt_only, REQUEST_GENERATE, GOLDEN_PROMPT)->prompt_only = true;
    bench_submit(&unlimited);
    bench_submit(&stepwise);
    bench_submit(&prompt_only);
    bench_start(&b);
    check_done(&prompt_only, FINISH_LENGTH);
    assert_int_equal(prompt_only.events, 0);
    check_done(&stepwise, FINISH_LENGTH);
    check_golden(&stepwise, GREEDY, GOLDEN_ANSWER);
    check_done(&unlimited, FINISH_CONTEXT);
    assert_int_equal(unlimited.n_tokens, b.context - GOLDEN_PROMPT);
    assert_memory_equal(unlimited.tokens, stepwise.tokens, GOLDEN_ANSWER * sizeof *stepwise.tokens);
    bench_close(&b);
}

static void read_golden_logits(float logits[GOLDEN_TOKENS][VOCAB])
{
    FILE *f = fopen(GOLDEN("olmoe.logits"), "rb");
    assert_non_null(f);
    assert_int_equal(fread(logits, sizeof logits[0], GOLDEN_TOKENS, f), GOLDEN_TOKENS);
    fclose(f);
}

static double golden_logprob(const float *logits, uint32_t token)
{
    double sum = 0;
    for (uint32_t i = 0; i < VOCAB; i++)
        sum += exp((double)logits[i]);
    return (double)logits[token] - log(sum);
}

/* Rows and probabilities of a prompt, to a sink that takes `window` of them at first. */
static void check_rows(uint32_t window)
{
    static float golden[GOLDEN_TOKENS][VOCAB];
    static struct engine_bench b;
    static struct recorder rows, probabilities;
    read_golden_logits(golden);
    bench_open(&b, 2);
    bench_start(&b);
    bench_request(&b, &rows, REQUEST_LOGITS, GOLDEN_TOKENS);
    bench_request(&b, &probabilities, REQUEST_LOGPROBS, GOLDEN_TOKENS);
    uint32_t ids[GOLDEN_TOKENS];
    memcpy(ids, rows.request->tokens.ids, sizeof ids);
    rows.window = window;
    bench_submit(&rows);
    bench_submit(&probabilities);
    check_done(&probabilities, FINISH_LENGTH);
    assert_true(recorder_read(&rows, &rows.n_rows) <= window);
    bench_acknowledge(&rows, GOLDEN_TOKENS);
    check_done(&rows, FINISH_LENGTH);
    assert_int_equal(rows.n_rows, GOLDEN_TOKENS);
    assert_int_equal(probabilities.n_logprobs, GOLDEN_TOKENS - 1);
    for (uint32_t i = 0; i < GOLDEN_TOKENS; i++)
        for (uint32_t k = 0; k < VOCAB; k++)
            assert_true(fabsf(rows.logits[i][k] - golden[i][k]) < 1e-3f);
    for (uint32_t i = 1; i < GOLDEN_TOKENS; i++)
        assert_true(
            fabs((double)probabilities.logprobs[i] - golden_logprob(golden[i - 1], ids[i])) < 1e-3);
    bench_close(&b);
}

static void test_rows(void **state)
{
    (void)state;
    check_rows(MOST_RECORDED);
    check_rows(3);
}

/* The answer to the whole golden prompt, with no other request. */
static void answer_single(struct recorder *c)
{
    static struct engine_bench b;
    bench_open(&b, 1);
    bench_start(&b);
    bench_request(&b, c, REQUEST_GENERATE, GOLDEN_TOKENS);
    bench_submit(c);
    check_done(c, FINISH_LENGTH);
    bench_close(&b);
}

/* Several requests at once get the same answers as single ones, whether they have slots or wait for
 * one. */
static void test_at_once(void **state)
{
    enum { N = 6 };
    static struct recorder single, c[N];
    static struct engine_bench b;
    (void)state;
    answer_single(&single);
    for (uint32_t parallel = 1; parallel <= N; parallel += 2) {
        bench_open(&b, parallel);
        for (uint32_t i = 0; i < N; i++) {
            bench_request(&b, &c[i], REQUEST_GENERATE, i % 2 ? GOLDEN_TOKENS : GOLDEN_PROMPT);
            bench_submit(&c[i]);
        }
        bench_start(&b);
        for (uint32_t i = 0; i < N; i++) {
            check_done(&c[i], FINISH_LENGTH);
            if (i % 2 == 0)
                check_golden(&c[i], GREEDY, GOLDEN_ANSWER);
            else
                assert_memory_equal(c[i].tokens, single.tokens, sizeof single.tokens);
        }
        struct engine_status s = engine_status(b.engine);
        assert_int_equal(s.tokens_total, N * GOLDEN_ANSWER);
        bench_close(&b);
    }
}

/* Routing of all positions but the last token's comes before the end, however few events the sink
 * takes at a time. */
static void test_routing(void **state)
{
    static struct engine_bench b;
    static struct recorder c;
    struct error e;
    (void)state;
    bench_open(&b, 1);
    bench_start(&b);
    struct request *r = bench_request(&b, &c, REQUEST_GENERATE, GOLDEN_PROMPT);
    struct recording_options options = {.gate = false};
    must(recording_new(&b.memory.map.params, &options, GOLDEN_PROMPT, &r->recording, &e), &e);
    c.window = 2;
    bench_submit(&c);
    bench_await(&c, 1); /* the prompt's routing and token have used both */
    bench_acknowledge(&c, 2 * (GOLDEN_ANSWER - 1) - 1);
    bench_await(&c, GOLDEN_ANSWER); /* the last token is here, its step's routing is not */
    assert_int_equal(recorder_read(&c, &c.n_positions), GOLDEN_PROMPT + GOLDEN_ANSWER - 2);
    assert_int_equal(recorder_read(&c, &c.n_done), 0);
    bench_acknowledge(&c, 1);
    check_done(&c, FINISH_LENGTH);
    check_golden(&c, GREEDY, GOLDEN_ANSWER);
    assert_int_equal(c.n_positions, GOLDEN_PROMPT + GOLDEN_ANSWER - 1);
    bench_close(&b);
}

/* ---- Cancelling ---- */

static void test_cancel_before(void **state)
{
    static struct engine_bench b;
    static struct recorder running, inbox, waiting;
    (void)state;
    bench_open(&b, 1);
    bench_ask(&b, &inbox, MOST_RECORDED);
    bench_cancel(&inbox);
    bench_start(&b);
    check_done(&inbox, FINISH_CANCELLED);
    assert_int_equal(inbox.n_tokens, 0);
    /* one that waits for the only slot */
    bench_ask(&b, &running, 1);
    bench_ask(&b, &waiting, MOST_RECORDED);
    bench_await(&running, 1);
    bench_cancel(&waiting);
    check_done(&waiting, FINISH_CANCELLED);
    assert_int_equal(waiting.n_tokens, 0);
    bench_acknowledge(&running, MOST_RECORDED);
    check_done(&running, FINISH_LENGTH);
    check_golden(&running, GREEDY, GOLDEN_ANSWER);
    bench_close(&b);
}

static void submit_and_cancel(void *arg)
{
    bench_submit(arg);
    bench_cancel(arg);
}

/* The request comes and is cancelled after the engine has taken its inbox, before it ends cancelled
 * requests. */
static void test_cancel_in_inbox(void **state)
{
    static struct engine_bench b;
    static struct recorder c;
    (void)state;
    bench_open(&b, 1);
    bench_start(&b);
    bench_request(&b, &c, REQUEST_GENERATE, GOLDEN_PROMPT);
    assert_true(engine_call(b.engine, submit_and_cancel, &c));
    check_done(&c, FINISH_CANCELLED);
    assert_int_equal(c.n_tokens, 0);
    bench_close(&b);
}

/* The computed tokens have arrived; the slot is free again. */
static void test_cancel_during(void **state)
{
    static struct engine_bench b;
    static struct recorder c, next;
    (void)state;
    bench_open(&b, 1);
    bench_start(&b);
    bench_ask(&b, &c, 3);
    bench_await(&c, 3);
    bench_cancel(&c);
    bench_cancel(&c);
    check_done(&c, FINISH_CANCELLED);
    check_golden(&c, GREEDY, 3);
    bench_ask(&b, &next, MOST_RECORDED);
    check_done(&next, FINISH_LENGTH);
    check_golden(&next, GREEDY, GOLDEN_ANSWER);
    bench_close(&b);
}

/* A cancel at any time, perhaps after the end: the sink gets one end, and the tokens before it are
 * right. */
static void test_cancel_at_any_time(void **state)
{
    enum { ROUNDS = 200 };
    static struct engine_bench b;
    static struct recorder c, other;
    uint32_t ends[FINISH_CANCELLED + 1] = {0};
    (void)state;
    bench_open(&b, 2);
    bench_start(&b);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        bench_ask(&b, &c, MOST_RECORDED);
        bench_ask(&b, &other, MOST_RECORDED);
        bench_await(&c, i % (GOLDEN_ANSWER + 2));
        bench_cancel(&c);
        check_end(&c, 1, 0);
        check_golden(&c, GREEDY, c.n_tokens);
        check_done(&other, FINISH_LENGTH);
        check_golden(&other, GREEDY, GOLDEN_ANSWER);
        ends[c.summary.reason]++;
    }
    assert_true(ends[FINISH_CANCELLED] >= ROUNDS / (GOLDEN_ANSWER + 2)); /* await of no token */
    assert_true(ends[FINISH_LENGTH] >= ROUNDS / (GOLDEN_ANSWER + 2));    /* of more than come */
    assert_int_equal(ends[FINISH_CANCELLED] + ends[FINISH_LENGTH], ROUNDS);
    bench_close(&b);
}

/* ---- Back-pressure ---- */

static void test_behind(void **state)
{
    static struct engine_bench b;
    static struct recorder none, few, other;
    (void)state;
    bench_open(&b, 3);
    bench_start(&b);
    bench_ask(&b, &none, 0);
    bench_ask(&b, &few, 2);
    bench_await(&few, 2);
    bench_ask(&b, &other, MOST_RECORDED);
    check_done(&other, FINISH_LENGTH);
    check_golden(&other, GREEDY, GOLDEN_ANSWER);
    assert_int_equal(recorder_read(&none, &none.events), 0);
    assert_int_equal(recorder_read(&few, &few.n_tokens), 2);
    assert_true(counter_read(b.engine->counters.decode_stalled) > 0);
    bench_acknowledge(&few, 5);
    bench_await(&few, 7);
    bench_acknowledge(&none, MOST_RECORDED);
    check_done(&none, FINISH_LENGTH);
    assert_int_equal(recorder_read(&few, &few.n_tokens), 7);
    bench_acknowledge(&few, MOST_RECORDED);
    check_done(&few, FINISH_LENGTH);
    check_golden(&none, GREEDY, GOLDEN_ANSWER);
    check_golden(&few, GREEDY, GOLDEN_ANSWER);
    bench_close(&b);
}

/* ---- Failures, made in the operations of the dense part ---- */

static _Atomic int calls_until_failure;
static enum error_code (*real_logits)(struct dense *d, const struct matrix *m, const float *bias,
                                      const float *hidden, uint32_t n, bool bulk, float *logits,
                                      struct error *e);

static enum error_code failing_logits(struct dense *d, const struct matrix *m, const float *bias,
                                      const float *hidden, uint32_t n, bool bulk, float *logits,
                                      struct error *e)
{
    if (atomic_fetch_sub(&calls_until_failure, 1) == 1)
        return error_set(e, ERROR_IO, "no logits");
    return real_logits(d, m, bias, hidden, n, bulk, logits, e);
}

static void bench_fail_logits(struct engine_bench *b, int call)
{
    atomic_store(&calls_until_failure, call);
    real_logits = b->ops.logits;
    b->ops.logits = failing_logits;
}

/* Each request of the failed step fails once, with the cause; the next request is answered. Calls:
 * 1 and 2 end a prompt each, 3 and later ones are batches of both. */
static void test_failed_step(void **state)
{
    static struct engine_bench b;
    static struct recorder c[2], next;
    (void)state;
    for (int call = 1; call <= 8; call++) {
        bench_open(&b, 2);
        bench_fail_logits(&b, call);
        for (uint32_t i = 0; i < 2; i++)
            bench_ask(&b, &c[i], MOST_RECORDED);
        bench_start(&b);
        for (uint32_t i = 0; i < 2; i++) {
            bool fails = call >= 3 || i == (call == 2) * 1u;
            if (fails)
                check_failed(&c[i], ERROR_UNAVAILABLE);
            else
                check_done(&c[i], FINISH_LENGTH);
            if (fails)
                assert_non_null(strstr(c[i].text, "no logits"));
            check_golden(&c[i], GREEDY, fails ? c[i].n_tokens : GOLDEN_ANSWER);
            assert_true(!fails || c[i].n_tokens < (uint32_t)call);
        }
        bench_ask(&b, &next, MOST_RECORDED);
        check_done(&next, FINISH_LENGTH);
        check_golden(&next, GREEDY, GOLDEN_ANSWER);
        bench_close(&b);
    }
}

/* A failure in the first computed rows or in later ones: the rows sent before it are right. */
static void check_failed_rows(enum request_kind kind, int call)
{
    static struct engine_bench b;
    static struct recorder c;
    bench_open(&b, 1);
    bench_fail_logits(&b, call);
    bench_request(&b, &c, kind, GOLDEN_TOKENS);
    bench_submit(&c);
    bench_start(&b);
    check_failed(&c, ERROR_UNAVAILABLE);
    assert_int_equal(c.events, (uint32_t)(call - 1) * LOGITS_ROWS);
    assert_int_equal(c.n_rows, c.events);
    bench_close(&b);
}

static void test_failed_rows(void **state)
{
    (void)state;
    check_failed_rows(REQUEST_LOGITS, 1);
    check_failed_rows(REQUEST_LOGITS, 2);
    check_failed_rows(REQUEST_LOGITS, 4);
    check_failed_rows(REQUEST_LOGPROBS, 1);
}

/* ---- The prefix cache ---- */

/* A second turn finds the first one's prompt and answer, and its answer is as from an empty cache.
 */
static void test_second_turn(void **state)
{
    static struct engine_bench b;
    static struct recorder first, second, cold;
    (void)state;
    for (int turn = 0; turn < 2; turn++) {
        bench_open(&b, 1);
        bench_start(&b);
        if (turn == 0) {
            bench_ask(&b, &first, MOST_RECORDED);
            check_done(&first, FINISH_LENGTH);
            assert_int_equal(first.summary.cached_tokens, 0);
        }
        struct recorder *c = turn == 0 ? &second : &cold;
        struct request *r = bench_request(&b, c, REQUEST_GENERATE, GOLDEN_PROMPT);
        for (uint32_t i = 0; i < GOLDEN_ANSWER; i++)
            assert_true(token_list_push(&r->tokens, first.tokens[i]));
        assert_true(token_list_push(&r->tokens, 7));
        r->n_prompt = r->n_prefill = (uint32_t)r->tokens.count;
        bench_submit(c);
        check_done(c, FINISH_LENGTH);
        bench_close(&b);
    }
    /* the last token of the first answer was never computed */
    assert_int_equal(second.summary.cached_tokens, GOLDEN_PROMPT + GOLDEN_ANSWER - 1);
    assert_int_equal(cold.summary.cached_tokens, 0);
    assert_memory_equal(second.tokens, cold.tokens, GOLDEN_ANSWER * sizeof *cold.tokens);
}

/* An answer that another worker began: the times are of what is computed here, and only positions
 * of the prompt count as cached. */
static void test_continued(void **state)
{
    enum { BEFORE = 6 };
    static struct engine_bench b;
    static struct recorder whole, rest;
    (void)state;
    bench_open(&b, 1);
    bench_start(&b);
    bench_ask(&b, &whole, MOST_RECORDED);
    check_done(&whole, FINISH_LENGTH);
    struct request *r = bench_request(&b, &rest, REQUEST_GENERATE, GOLDEN_PROMPT);
    assert_true(request_continue(r, whole.tokens, BEFORE, 0, b.context));
    r->n_prefill = (uint32_t)r->tokens.count;
    uint64_t begin = clock_ns();
    bench_submit(&rest);
    check_end(&rest, 1, 0);
    uint64_t ns = clock_ns() - begin;
    assert_int_equal(rest.n_tokens, GOLDEN_ANSWER - BEFORE);
    assert_memory_equal(rest.tokens, whole.tokens + BEFORE, rest.n_tokens * sizeof *rest.tokens);
    assert_int_equal(rest.summary.cached_tokens, GOLDEN_PROMPT);
    assert_int_equal(engine_status(b.engine).cached_tokens, GOLDEN_PROMPT);
    assert_true(rest.summary.prefill_ns > 0 && rest.summary.decode_ns > 0);
    assert_true(rest.summary.queue_ns + rest.summary.prefill_ns + rest.summary.decode_ns <= ns);
    bench_close(&b);
}

/* ---- Stopping ---- */

static bool (*real_put_page)(struct dense *, uint32_t, struct kv_place, uint8_t *, uint32_t);
static struct engine *watched;
static bool was_idle;

static bool put_page_and_look(struct dense *d, uint32_t slot, struct kv_place place, uint8_t *page,
                              uint32_t n)
{
    was_idle |= engine_is_idle(watched);
    return real_put_page(d, slot, place, page, n);
}

/* A request that leaves the queue for its slot is seen on one side or the other. */
static void test_not_idle_at_start(void **state)
{
    static struct engine_bench b;
    static struct recorder c;
    (void)state;
    bench_open(&b, 1);
    watched = b.engine;
    was_idle = false;
    real_put_page = b.ops.put_page;
    b.ops.put_page = put_page_and_look;
    assert_true(engine_is_idle(b.engine));
    bench_start(&b);
    bench_ask(&b, &c, MOST_RECORDED);
    check_done(&c, FINISH_LENGTH);
    assert_false(was_idle);
    bench_close(&b);
}

static void test_stop(void **state)
{
    enum { RUNNING = 2, N = 5 };
    static struct engine_bench b;
    static struct recorder c[N], late;
    struct error e;
    (void)state;
    bench_open(&b, RUNNING);
    bench_start(&b);
    for (uint32_t i = 0; i < N; i++)
        bench_ask(&b, &c[i], i < RUNNING ? 1 + i : 0);
    for (uint32_t i = 0; i < RUNNING; i++)
        bench_await(&c[i], 1 + i);
    engine_stop(b.engine);
    for (uint32_t i = 0; i < N; i++) {
        assert_int_equal(c[i].n_failed, 1); /* already, without waiting */
        check_failed(&c[i], ERROR_UNAVAILABLE);
        check_golden(&c[i], GREEDY, i < RUNNING ? 1 + i : 0);
    }
    struct request *r = bench_request(&b, &late, REQUEST_GENERATE, GOLDEN_PROMPT);
    assert_int_equal(engine_submit(b.engine, r, &e), ERROR_UNAVAILABLE);
    assert_int_equal(late.n_failed + late.n_done, 0); /* the request is still ours */
    request_free(r);
    bench_close(&b);
}

/* A started engine at any time, and one that never ran: each request has one end. */
static void test_stop_at_any_time(void **state)
{
    enum { N = 4, ROUNDS = 12 };
    static struct engine_bench b;
    static struct recorder c[N];
    (void)state;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        bench_open(&b, 2);
        if (round > 0)
            bench_start(&b);
        for (uint32_t i = 0; i < N; i++)
            bench_ask(&b, &c[i], MOST_RECORDED);
        if (round > 0)
            bench_await(&c[0], round - 1);
        engine_stop(b.engine);
        for (uint32_t i = 0; i < N; i++) {
            assert_int_equal(c[i].n_done + c[i].n_failed, 1);
            check_end(&c[i], c[i].n_done, c[i].n_failed);
            check_golden(&c[i], GREEDY, c[i].n_tokens);
            assert_true(round > 0 || c[i].n_failed);
        }
        bench_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_answers), cmocka_unit_test(test_shared_events),
        cmocka_unit_test(test_ways_to_end),    cmocka_unit_test(test_rows),
        cmocka_unit_test(test_at_once),        cmocka_unit_test(test_routing),
        cmocka_unit_test(test_cancel_before),  cmocka_unit_test(test_cancel_in_inbox),
        cmocka_unit_test(test_cancel_during),  cmocka_unit_test(test_cancel_at_any_time),
        cmocka_unit_test(test_behind),         cmocka_unit_test(test_failed_step),
        cmocka_unit_test(test_failed_rows),    cmocka_unit_test(test_second_turn),
        cmocka_unit_test(test_continued),      cmocka_unit_test(test_not_idle_at_start),
        cmocka_unit_test(test_stop),           cmocka_unit_test(test_stop_at_any_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
