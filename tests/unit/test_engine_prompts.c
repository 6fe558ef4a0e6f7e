/* Prompts that are computed at once (worker/serve/step.c, shared_prompts.c): a short one does not
 * wait for a long one, and the long one ends. Answers have the same bits as alone. */
#include "engine_turns.h"

enum { LONG = 1500, SHORT = 80, MOST = 12 };

static struct recorder cold[2], c[MOST];
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_short_with_long),
        cmocka_unit_test(test_long_with_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
