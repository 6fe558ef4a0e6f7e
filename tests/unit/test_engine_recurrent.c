/* Answers of models with recurrent layers (worker/serve/states.c) are the same to the bit: alone
 * from a cold cache; in batches among others; with a chunk of the prompt per position; from
 * snapshots, at a prompt's beginning that others share, at the end of a turn, and at an earlier
 * turn of the user; after a suspension that restarts the state. Batches and chunks also of a model
 * whose layers have two kinds of heads and rotations. */
#include "engine_turns.h"

enum { PROMPT = 150 };

static const char *const models[] = {GOLDEN("qwen35moe.gguf"), GOLDEN("qwen3next.gguf"),
                                     GOLDEN("qwen3next-early.gguf"), GOLDEN("lfm2moe.gguf"),
                                     GOLDEN("nemotron_h_moe.gguf")};
enum { N_MODELS = sizeof models / sizeof *models };

static struct recorder cold[4], warm[4];

static void test_snapshots(void **state)
{
    (void)state;
    for (int m = 0; m < N_MODELS; m++) {
        answer_cold(models[m], &cold[0], PROMPT, PROMPT, NULL);
        answer_cold(models[m], &cold[1], PROMPT, PROMPT, &cold[0]);
        answer_cold(models[m], &cold[2], PROMPT, 100, NULL);
        answer_cold(models[m], &cold[3], PROMPT, 90, NULL);
        open_bench(models[m], 0);
        request_of(&warm[0], PROMPT, PROMPT);
        answer(&warm[0]);
        assert_same(&warm[0], &cold[0]);
        /* again: from the last page's beginning */
        request_of(&warm[0], PROMPT, PROMPT);
        answer(&warm[0]);
        assert_int_equal(warm[0].summary.cached_tokens, PROMPT - PROMPT % KV_POOL_TOKENS);
        assert_same(&warm[0], &cold[0]);
        /* the next turn: from the end of this one; the last token was not computed */
        continue_turn(request_of(&warm[1], PROMPT, PROMPT), &warm[0]);
        answer(&warm[1]);
        assert_int_equal(warm[1].summary.cached_tokens, PROMPT + LENGTH - 1);
        assert_same(&warm[1], &cold[1]);
        /* another end of the prompt: no snapshot there yet, but the next one finds it */
        request_of(&warm[2], PROMPT, 100);
        answer(&warm[2]);
        assert_int_equal(warm[2].summary.cached_tokens, 0);
        assert_same(&warm[2], &cold[2]);
        request_of(&warm[3], PROMPT, 90);
        answer(&warm[3]);
        assert_int_equal(warm[3].summary.cached_tokens, KV_POOL_TOKENS);
        assert_same(&warm[3], &cold[3]);
        bench_close(&b);
    }
}

/* A template writes the last tokens of a prompt otherwise once the answer is there, also where they
 * are the first ones of a page. */
static void test_tail_of_prompt(void **state)
{
    enum { END = 5 * KV_POOL_TOKENS + 3, TAIL = 5 };
    (void)state;
    open_bench(models[0], 0);
    request_of(&warm[0], END, END);
    answer(&warm[0]);
    request_of(&warm[1], END + 40, END - TAIL);
    answer(&warm[1]);
    assert_int_equal(warm[1].summary.cached_tokens, 4 * KV_POOL_TOKENS);
    bench_close(&b);
}

/* What another API key's request computed does not show in cached_tokens, not even as the place
 * where two prompts part. */
static void test_salts(void **state)
{
    enum { COMMON = 150, N_PROMPT = 250 };
    (void)state;
    open_bench(models[0], 0);
    request_of(&warm[0], COMMON, COMMON)->cache_salt = 1;
    answer(&warm[0]);
    for (uint32_t i = 1; i < 3; i++) {
        request_of(&warm[i], N_PROMPT, COMMON + i)->cache_salt = 2;
        answer(&warm[i]);
        assert_int_equal(warm[i].summary.cached_tokens, 0);
    }
    request_of(&warm[3], N_PROMPT, COMMON + 3)->cache_salt = 2;
    answer(&warm[3]);
    assert_int_equal(warm[3].summary.cached_tokens, COMMON - COMMON % KV_POOL_TOKENS);
    bench_close(&b);
}

/* A template may leave out the reasoning of earlier turns: the prompt of the user's next turn then
 * differs from the steps of the last one at their beginning. Short requests come between. */
static void test_many_steps(void **state)
{
    enum { STEPS = 8, USER = 700, SHORT = 90 };
    (void)state;
    turns_context = 2048;
    open_bench(models[0], 0);
    static struct recorder steps[STEPS + 1];
    for (uint32_t n = 0; n <= STEPS; n++) {
        struct request *r = request_of(&steps[n], USER, USER);
        for (uint32_t i = 0; i < n; i++)
            continue_turn(r, &steps[i]);
        answer(&steps[n]);
        uint32_t cached = steps[n].summary.cached_tokens;
        assert_int_equal(cached, n ? steps[n - 1].summary.prompt_tokens + LENGTH - 1 : 0);
        request_of(&warm[0], SHORT, n);
        answer(&warm[0]);
    }
    request_of(&warm[1], USER + 50, USER);
    answer(&warm[1]);
    assert_int_equal(warm[1].summary.cached_tokens, USER - USER % KV_POOL_TOKENS);
    bench_close(&b);
    turns_context = 512;
}

/* Log-probabilities of many prompts leave the snapshots of a conversation; a prompt of them that is
 * then asked is reused. */
static void test_many_scores(void **state)
{
    enum { SCORES = 20 };
    (void)state;
    open_bench(models[0], 0);
    request_of(&warm[0], PROMPT, PROMPT);
    answer(&warm[0]);
    for (uint32_t i = 0; i < SCORES; i++) {
        request_of_kind(&warm[1], REQUEST_LOGPROBS, PROMPT, 1 + i);
        bench_submit(&warm[1]);
        check_done(&warm[1], FINISH_LENGTH);
    }
    continue_turn(request_of(&warm[2], PROMPT, PROMPT), &warm[0]);
    answer(&warm[2]);
    assert_int_equal(warm[2].summary.cached_tokens, PROMPT + LENGTH - 1);
    request_of(&warm[3], PROMPT, SCORES);
    answer(&warm[3]);
    assert_int_equal(warm[3].summary.cached_tokens, PROMPT - PROMPT % KV_POOL_TOKENS);
    bench_close(&b);
}

/* All at once, more than there are slots, some a token of the prompt at a time; with few pages they
 * suspend one another. */
static void check_together(const char *model, uint32_t n_pages)
{
    static struct recorder alone[3 * N], together[3 * N];
    for (uint32_t i = 0; i < 3 * N; i++)
        answer_cold(model, &alone[i], PROMPT - 9 * i, 60 + i, NULL);
    open_bench(model, n_pages);
    for (uint32_t i = 0; i < 3 * N; i++) {
        request_of(&together[i], PROMPT - 9 * i, 60 + i)->stepwise = i % 5 == 3 && !n_pages;
        bench_submit(&together[i]);
    }
    for (uint32_t i = 0; i < 3 * N; i++) {
        check_done(&together[i], FINISH_LENGTH);
        assert_same(&together[i], &alone[i]);
    }
    assert_true(n_pages == 0 || counter_read(b.engine->counters.suspended) > 0);
    bench_close(&b);
}

static void test_together(void **state)
{
    (void)state;
    for (int m = 0; m < N_MODELS; m++)
        check_together(models[m], 0);
    check_together(GOLDEN("gemma4.gguf"), 0);
}

static void test_suspended(void **state)
{
    (void)state;
    check_together(models[0], 8);
}

/* A request that loses its last page in an answer computes that one again, not all of the answer.
 */
static void test_suspended_in_answer(void **state)
{
    enum { SHORT = 90, ANSWER = 250, PAGES = 6 };
    static struct recorder alone[2], together[2];
    (void)state;
    for (int turn = 0; turn < 2; turn++) {
        struct recorder *c = turn ? together : alone;
        open_bench_stopped(models[0], turn ? PAGES : 0);
        for (uint32_t i = 0; i < 2; i++) {
            struct request *r = request_of(&c[i], SHORT, i);
            r->max_tokens = i ? ANSWER : ANSWER / 2;
            bench_submit(&c[i]);
        }
        bench_start(&b);
        for (uint32_t i = 0; i < 2; i++)
            check_done(&c[i], FINISH_LENGTH);
        uint64_t again = engine_status(b.engine).prompt_tokens - 2 * SHORT;
        uint64_t suspended = counter_read(b.engine->counters.suspended);
        assert_int_equal(suspended > 0, turn);
        assert_true(again <= suspended * (KV_POOL_TOKENS + 1));
        bench_close(&b);
    }
    for (uint32_t i = 0; i < 2; i++)
        assert_same(&together[i], &alone[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_snapshots),           cmocka_unit_test(test_tail_of_prompt),
        cmocka_unit_test(test_many_steps),          cmocka_unit_test(test_together),
        cmocka_unit_test(test_suspended),           cmocka_unit_test(test_salts),
        cmocka_unit_test(test_suspended_in_answer), cmocka_unit_test(test_many_scores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
