/* Prompts that are computed at once (worker/serve/step.c, shared_prompts.c): a short one does not
 * wait for a long one, and the long one ends; a common beginning is computed once. Answers have the
 * same bits as alone. */
#include "engine_turns.h"

enum { LONG = 1500, SHORT = 80, MOST = 12 };

static const char *const models[] = {GOLDEN("olmoe.gguf"), GOLDEN("qwen35moe.gguf"),
                                     GOLDEN("gpt-oss.gguf")};
enum { N_MODELS = sizeof models / sizeof *models };

static struct recorder cold[N], c[MOST];
static struct request *long_request; /* of the engine's thread, while it runs */
static uint32_t past_of_long, n_ended, long_ended;

static void note_first_token(void *arg, const struct response_tokens *event)
{
    if (past_of_long == 0)
        past_of_long = long_request->n_past;
    record_tokens(arg, event);
}

static void note_end(void *arg, const struct response_summary *summary)
{
    long_ended = arg == &c[0] ? n_ended : long_ended;
    n_ended++;
    record_done(arg, summary);
}

static void test_short_with_long(void **state)
{
    struct response_sink sink = recording_sink;
    const char *model = GOLDEN("olmoe.gguf");
    (void)state;
    turns_context = 2048;
    answer_cold(model, &cold[0], LONG, LONG, NULL);
    answer_cold(model, &cold[1], SHORT, 1, NULL);
    open_bench_stopped(model, 0);
    long_request = request_of(&c[0], LONG, LONG);
    sink.tokens = note_first_token;
    request_of(&c[1], SHORT, 1)->sink = &sink;
    bench_submit(&c[0]);
    bench_submit(&c[1]);
    bench_start(&b);
    for (int i = 0; i < 2; i++) {
        check_done(&c[i], FINISH_LENGTH);
        assert_same(&c[i], &cold[i]);
    }
    assert_in_range(past_of_long, 1, BATCH_IN_MEMORY);
    bench_close(&b);
}

/* Short prompts that keep coming do not hold up the long one. */
static void test_long_with_many(void **state)
{
    enum { MIDDLE = 600 };
    struct response_sink sink = recording_sink;
    (void)state;
    sink.done = note_end;
    open_bench_stopped(GOLDEN("olmoe.gguf"), 0);
    for (uint32_t i = 0; i < MOST; i++) {
        struct request *r = request_of(&c[i], i ? MIDDLE : LONG, i ? i : LONG);
        r->sink = &sink;
        r->max_tokens = 1;
        bench_submit(&c[i]);
    }
    bench_start(&b);
    for (uint32_t i = 0; i < MOST; i++)
        check_done(&c[i], FINISH_LENGTH);
    assert_int_equal(n_ended, MOST);
    assert_true(long_ended < MOST / 2);
    bench_close(&b);
}

static uint32_t n_computed(void)
{
    return (uint32_t)engine_status(b.engine).prompt_tokens;
}

/* Prompts of which the pool holds two at once: none starts that takes the pages which those that
 * run still need, so each is computed once. */
static void test_scarce_pages(void **state)
{
    enum { PROMPTS = 4, PAGES = 2 * ((LONG + LENGTH) / KV_POOL_TOKENS + 1) + 8 };
    (void)state;
    turns_context = 2048;
    open_bench_stopped(GOLDEN("olmoe.gguf"), PAGES);
    for (uint32_t i = 0; i < PROMPTS; i++) {
        request_of(&c[i], LONG, i + 1);
        bench_submit(&c[i]);
    }
    bench_start(&b);
    for (uint32_t i = 0; i < PROMPTS; i++)
        check_done(&c[i], FINISH_LENGTH);
    assert_true(n_computed() <= PROMPTS * LONG);
    assert_int_equal(counter_read(b.engine->counters.suspended), 0);
    bench_close(&b);
}

/* ---- Forks: prompts that begin alike ---- */

enum { FORKS = N, FORK = 1000, COMMON = FORK - 40 };

static void answer_forks_cold(const char *model)
{
    turns_context = 1200;
    for (uint32_t i = 0; i < FORKS; i++)
        answer_cold(model, &cold[i], FORK, COMMON + i, NULL);
}

/* They have the same bits, and computed their beginning once, but for a page. */
static void check_forks(void)
{
    for (uint32_t i = 0; i < FORKS; i++) {
        check_done(&c[i], FINISH_LENGTH);
        assert_same(&c[i], &cold[i]);
        assert_true(i == 0 || c[i].summary.cached_tokens >= COMMON - KV_POOL_TOKENS);
    }
    assert_in_range(n_computed(), FORK, FORK + (FORKS - 1) * (FORK - COMMON + KV_POOL_TOKENS));
}

static void check_forks_at_once(const char *model)
{
    answer_forks_cold(model);
    open_bench_stopped(model, 0);
    for (uint32_t i = 0; i < FORKS; i++) {
        request_of(&c[i], FORK, COMMON + i);
        bench_submit(&c[i]);
    }
    bench_start(&b);
    check_forks();
    bench_close(&b);
}

static void test_forks_at_once(void **state)
{
    (void)state;
    for (int m = 0; m < N_MODELS; m++) {
        check_forks_at_once(models[m]);
        turns_groups = true;
        check_forks_at_once(models[m]);
        turns_groups = false;
    }
}

/* Two prompts part from a third one at different places, the earlier one first or last: each begins
 * there. A state is there only where a snapshot is taken. */
static void check_two_places(const char *model, bool earlier_first)
{
    static const uint32_t places[] = {700, 1400};
    turns_context = 2048;
    open_bench_stopped(model, 0);
    for (uint32_t i = 0; i < 3; i++) {
        request_of(&c[i], LONG, i ? places[(i == 2) == earlier_first] : LONG);
        bench_submit(&c[i]);
    }
    bench_start(&b);
    for (uint32_t i = 0; i < 3; i++)
        check_done(&c[i], FINISH_LENGTH);
    for (uint32_t i = 1; i < 3; i++) {
        uint32_t place = places[(i == 2) == earlier_first];
        assert_true(c[i].summary.cached_tokens >= place - place % KV_POOL_TOKENS);
    }
    bench_close(&b);
}

static void test_forks_at_two_places(void **state)
{
    (void)state;
    for (int m = 0; m < N_MODELS; m++) {
        check_two_places(models[m], false);
        check_two_places(models[m], true);
    }
}

/* Requests with other salts share nothing, so none waits for another. */
static void test_forks_apart(void **state)
{
    (void)state;
    open_bench_stopped(models[0], 0);
    for (uint32_t i = 0; i < 2; i++) {
        request_of(&c[i], FORK, COMMON + i)->cache_salt = 1 + i;
        bench_submit(&c[i]);
    }
    bench_start(&b);
    for (uint32_t i = 0; i < 2; i++) {
        check_done(&c[i], FINISH_LENGTH);
        assert_int_equal(c[i].summary.cached_tokens, 0);
    }
    assert_int_equal(n_computed(), 2 * FORK);
    bench_close(&b);
}

/* The others come while the first one's prompt is computed, each after the next chunk. */
static void submit_fork(void *arg, uint32_t n_past, uint32_t n_prompt, uint64_t ns)
{
    static uint32_t next;
    next = n_past <= BATCH_IN_MEMORY ? 1 : next;
    if (next < FORKS)
        bench_submit(&c[next++]);
    record_progress(arg, n_past, n_prompt, ns);
}

static void test_forks_later(void **state)
{
    struct response_sink sink = recording_sink;
    (void)state;
    sink.progress = submit_fork;
    for (int m = 0; m < N_MODELS; m++) {
        answer_forks_cold(models[m]);
        open_bench_stopped(models[m], 0);
        for (uint32_t i = 0; i < FORKS; i++)
            request_of(&c[i], FORK, COMMON + i);
        c[0].request->sink = &sink;
        c[0].request->progress = true;
        bench_submit(&c[0]);
        bench_start(&b);
        check_forks();
        bench_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_short_with_long),     cmocka_unit_test(test_long_with_many),
        cmocka_unit_test(test_forks_at_once),       cmocka_unit_test(test_forks_later),
        cmocka_unit_test(test_forks_apart),         cmocka_unit_test(test_scarce_pages),
        cmocka_unit_test(test_forks_at_two_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
