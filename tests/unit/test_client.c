/* libmoed with a stand-in worker (stand_in_worker.h): attaching, questions, errors, the ends of
 * sessions and requests, a worker that misbehaves, many threads in one session. */
#include "client_session.h"

/* ---- Attaching ---- */

static void test_not_running(void **state)
{
    struct moed_session *s = NULL;
    struct moed_error error;
    assert_int_equal(moed_attach(NULL, &s, &error), MOED_ERROR_NOT_FOUND);
    assert_int_equal(error.code, MOED_ERROR_NOT_FOUND);
    assert_false(error.retry);
    assert_non_null(strstr(error.message, "not running"));
    assert_non_null(strstr(error.message, "moed up"));
    assert_null(s);
    assert_int_equal(moed_attach(NULL, &s, NULL), MOED_ERROR_NOT_FOUND);
    char *text;
    assert_int_equal(moed_metrics(NULL, "worker", &text, &error), MOED_ERROR_NOT_FOUND);
    assert_int_equal(moed_metrics(NULL, "../x", &text, &error), MOED_ERROR_USAGE);
}

static void test_worker_restarts(void **state)
{
    /* Any live process of the deployment changes the result. */
    struct error e;
    assert_int_equal(run_dir_lock(run_dir, "supervise", &e), ERROR_OK);
    struct moed_session *s;
    struct moed_error error;
    assert_int_equal(moed_attach(NULL, &s, &error), MOED_ERROR_UNAVAILABLE);
    assert_true(error.retry);
}

static void test_attach(void **state)
{
    assert_true(moed_session_alive(session));
    assert_string_equal(worker.client, "test");
    assert_int_equal(worker.pid, getpid());
    struct moed_session *s;
    struct moed_error error;
    struct error e; /* as a worker that lives does */
    assert_int_equal(run_dir_lock(run_dir, "worker", &e), ERROR_OK);
    worker.refusal = "loading 3 of 62 layers";
    assert_int_equal(moed_attach(NULL, &s, &error), MOED_ERROR_UNAVAILABLE);
    assert_true(error.retry);
    assert_non_null(strstr(error.message, "loading 3 of 62 layers"));
    worker.refusal = NULL;
    worker.window = 0;
    assert_int_equal(moed_attach(NULL, &s, &error), MOED_ERROR_PROTOCOL);
}

static void test_bad_name(void **state)
{
    struct moed_attach_options options = {.size = sizeof options, .deployment = "a/b"};
    struct moed_session *s;
    struct moed_error error;
    unsetenv("MOED_RUN");
    enum moed_code code = moed_attach(&options, &s, &error);
    setenv("MOED_RUN", run_dir, 1);
    assert_int_equal(code, MOED_ERROR_USAGE);
}

/* ---- Questions ---- */

static void test_model(void **state)
{
    struct moed_model *m;
    assert_int_equal(moed_model_get(session, &m, NULL), MOED_OK);
    assert_string_equal(m->name, "Stand-in 1T");
    assert_string_equal(m->architecture, "qwen3moe");
    assert_string_equal(m->chat_template, "");
    assert_string_equal(m->quantization, "Q4_K_M");
    assert_string_equal(m->kv_type, "q8_0");
    assert_true(m->reproducible && m->identity == 77);
    assert_true(m->parameters == 1000000000000u);
    assert_int_equal(m->vocab, STAND_IN_VOCAB);
    assert_int_equal(m->context, 4096);
    assert_int_equal(m->experts, 128);
    assert_int_equal(m->experts_used, 8);
    assert_true(m->bos == -1 && m->eos == 2);
    assert_true(m->fim.prefix == 3 && m->fim.suffix == 4 && m->fim.middle == 5);
    assert_true(m->fim.pad == -1 && m->fim.repository == 7 && m->fim.file == 8);
    moed_model_free(m);
    moed_model_free(NULL);
}

static void test_tokenize(void **state)
{
    uint32_t *tokens;
    size_t n;
    const char text[] = {'a', '\0', '\xff', '\n'};
    assert_int_equal(moed_tokenize(session, text, 4, 0, &tokens, &n, NULL), MOED_OK);
    assert_int_equal(n, 4);
    const uint32_t expected[] = {'a', 0, 0xff, '\n'};
    assert_memory_equal(tokens, expected, sizeof expected);
    char *back;
    size_t bytes;
    assert_int_equal(moed_detokenize(session, tokens, n, true, &back, &bytes, NULL), MOED_OK);
    assert_int_equal(bytes, 4);
    assert_memory_equal(back, text, 4);
    assert_int_equal(back[4], '\0');
    moed_free(back);
    moed_free(tokens);

    size_t *ends;
    const uint32_t some[] = {'x', 'y', 'z'};
    assert_int_equal(moed_token_texts(session, some, 2, &back, &ends, NULL), MOED_OK);
    assert_string_equal(back, "xy");
    assert_int_equal(ends[0], 1);
    assert_int_equal(ends[1], 2);
    moed_free(back);
    moed_free(ends);
    assert_int_equal(moed_token_texts(session, some, 3, &back, &ends, NULL), MOED_ERROR_PROTOCOL);
    assert_int_equal(moed_token_texts(session, some, 65537, &back, &ends, NULL), MOED_ERROR_LIMIT);

    unsigned flags = MOED_ADD_SPECIAL | MOED_PARSE_SPECIAL;
    assert_int_equal(moed_tokenize(session, "", 0, flags, &tokens, &n, NULL), MOED_OK);
    assert_int_equal(n, 2);
    assert_int_equal(tokens[0], 1000);
    assert_int_equal(tokens[1], 2000);
    moed_free(tokens);
}

static void test_question_limits(void **state)
{
    uint32_t *tokens;
    size_t n;
    struct moed_error error;
    size_t large = 5u << 20;
    char *text = calloc(1, large);
    assert_int_equal(moed_tokenize(session, text, large, 0, &tokens, &n, &error), MOED_ERROR_LIMIT);
    free(text);
    assert_true(moed_session_alive(session));

    struct moed_session *hasty;
    struct moed_attach_options options = {.size = sizeof options, .timeout_ms = 100};
    enum moed_code code;
    do /* the machine may be slow for it */
        code = moed_attach(&options, &hasty, &error);
    while (code == MOED_ERROR_TIMEOUT);
    assert_int_equal(code, MOED_OK);
    assert_int_equal(moed_tokenize(hasty, "quiet", 5, 0, &tokens, &n, &error), MOED_ERROR_TIMEOUT);
    assert_true(error.retry);
    do
        code = moed_tokenize(hasty, "x", 1, 0, &tokens, &n, &error);
    while (code == MOED_ERROR_TIMEOUT);
    assert_int_equal(code, MOED_OK);
    moed_free(tokens);
    moed_detach(hasty);
}

static void test_metrics(void **state)
{
    char *text;
    assert_int_equal(moed_metrics(NULL, "worker", &text, NULL), MOED_OK);
    assert_string_equal(text, "moed_stand_in 1\n");
    moed_free(text);
}

/* ---- Errors and ends ---- */

static void test_worker_errors(void **state)
{
    struct moed_error error;
    struct moed_generate_options options = prompt_of("error");
    assert_int_equal(moed_generate(session, &options, NULL, NULL, NULL, &error), MOED_ERROR_LIMIT);
    assert_string_equal(error.message, "the stand-in?refuses");
    assert_false(error.retry);
    options = prompt_of("error-retry");
    assert_int_equal(moed_generate(session, &options, NULL, NULL, NULL, &error),
                     MOED_ERROR_UNAVAILABLE);
    assert_true(error.retry);
    static const struct {
        const char *prompt;
        enum moed_code code;
    } codes[] = {
        {"error-code 0", MOED_ERROR_INTERNAL},
        {"error-code 1", MOED_ERROR_USAGE},
        {"error-code 15", MOED_ERROR_BUSY},
        {"error-code 16", MOED_ERROR_CONTEXT},
        {"error-code 4000000000", MOED_ERROR_INTERNAL},
    };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        options = prompt_of(codes[i].prompt);
        assert_int_equal(moed_generate(session, &options, NULL, NULL, NULL, &error), codes[i].code);
    }
    /* An error ends one request and not the session; it stays. */
    assert_true(moed_session_alive(session));
    struct moed_request *r = start("error");
    const struct moed_event *event;
    assert_int_equal(moed_request_next(r, FOR_EVER, &event, &error), MOED_ERROR_LIMIT);
    assert_int_equal(moed_request_next(r, FOR_EVER, &event, &error), MOED_ERROR_LIMIT);
    moed_request_free(r);
}

static void test_late_messages(void **state)
{
    for (int i = 0; i < 20; i++) { /* beyond the window: it acknowledges dropped events */
        struct moed_generate_options options = prompt_of("late");
        struct moed_result result = {.size = sizeof result};
        assert_int_equal(moed_generate(session, &options, NULL, NULL, &result, NULL), MOED_OK);
        assert_int_equal(result.reason, MOED_REASON_END);
    }
    ask_something(session); /* they have all been read */
    assert_true(moed_session_alive(session));
}

static void test_worker_misbehaves(void **state)
{
    static const char *const ways[] = {"garbage",    "flood",   "wrong-id",
                                       "wrong-body", "no-body", "wrong-abi"};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct moed_session *s;
        struct moed_error error;
        assert_int_equal(moed_attach(NULL, &s, &error), MOED_OK);
        struct moed_generate_options options = prompt_of("quiet");
        struct moed_request *other;
        assert_int_equal(moed_generate_start(s, &options, &other, &error), MOED_OK);
        options = prompt_of(ways[i]);
        enum moed_code expected =
            strcmp(ways[i], "wrong-abi") == 0 ? MOED_ERROR_VERSION : MOED_ERROR_PROTOCOL;
        /* A flood that the program consumes at once is no flood: wait until it has arrived. */
        struct moed_request *r;
        assert_int_equal(moed_generate_start(s, &options, &r, &error), MOED_OK);
        const struct moed_event *event;
        assert_int_equal(moed_request_next(other, FOR_EVER, &event, &error), expected);
        assert_false(error.retry);
        enum moed_code code;
        while ((code = moed_request_next(r, FOR_EVER, &event, &error)) == MOED_OK)
            assert_int_equal(event->kind, MOED_EVENT_TOKENS);
        assert_int_equal(code, expected);
        assert_false(moed_session_alive(s));
        moed_request_free(other);
        moed_request_free(r);
        assert_int_equal(moed_generate_start(s, &options, &r, &error), expected);
        moed_detach(s);
    }
    assert_true(moed_session_alive(session)); /* the other sessions continue */
}

static void test_worker_goes(void **state)
{
    struct moed_request *quiet = start("quiet"), *hold = start("hold");
    ask_something(session); /* hold's token has been read */
    stand_in_hang_up(&worker, 0);
    const struct moed_event *event;
    struct moed_error error;
    assert_int_equal(moed_request_next(quiet, FOR_EVER, &event, &error), MOED_ERROR_UNAVAILABLE);
    assert_true(error.retry);
    assert_non_null(strstr(error.message, "try again"));
    assert_false(moed_session_alive(session));
    /* The events before it are not lost. */
    assert_int_equal(moed_request_next(hold, FOR_EVER, &event, &error), MOED_OK);
    assert_int_equal(event->kind, MOED_EVENT_TOKENS);
    assert_int_equal(moed_request_next(hold, FOR_EVER, &event, &error), MOED_ERROR_UNAVAILABLE);
    moed_request_free(hold);
    moed_request_free(quiet);
    struct moed_model *m;
    assert_int_equal(moed_model_get(session, &m, &error), MOED_ERROR_UNAVAILABLE);
    assert_true(error.retry);
}

static void test_detach_with_requests(void **state)
{
    struct moed_session *s;
    assert_int_equal(moed_attach(NULL, &s, NULL), MOED_OK);
    struct moed_generate_options options = prompt_of("hold");
    struct moed_request *r;
    assert_int_equal(moed_generate_start(s, &options, &r, NULL), MOED_OK);
    const struct moed_event *event;
    assert_int_equal(moed_request_next(r, FOR_EVER, &event, NULL), MOED_OK);
    moed_detach(s);
    assert_int_equal(moed_request_next(r, FOR_EVER, &event, NULL), MOED_ERROR_CANCELLED);
    moed_request_cancel(r);
    moed_request_free(r);
    moed_detach(NULL);
    WAIT_UNTIL(stand_in_look(&worker, 1).closed); /* the worker sees the end */
}

/* What lib/ipc would log of a peer that breaks the protocol does not come out at the program's
 * standard error. */
static void test_prints_nothing(void **state)
{
    struct moed_attach_options options = {.size = sizeof options, .resume_ms = -1};
    struct moed_session *s;
    struct moed_error error;
    FILE *file = tmpfile();
    assert_non_null(file);
    int saved = dup(STDERR_FILENO);
    assert_true(saved >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0);
    worker.closes = worker.babbles = true;
    enum moed_code code = moed_attach(&options, &s, &error);
    for (int ms = 0; !code && moed_session_alive(s) && ms < 60000; ms++)
        pause_ms(1);
    dup2(saved, STDERR_FILENO);
    close(saved);
    assert_int_equal(code, MOED_OK);
    assert_false(moed_session_alive(s));
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    assert_int_equal(ftell(file), 0);
    fclose(file);
    moed_detach(s);
}

/* ---- Threads ---- */

static void *generate_often(void *arg)
{
    unsigned number = *(unsigned *)arg;
    for (unsigned i = 0; i < 20; i++) {
        char prompt[32];
        uint32_t n = (number * 7 + i * 13) % 40;
        snprintf(prompt, sizeof prompt, "count %u", n);
        struct moed_generate_options options = prompt_of(prompt);
        struct collected c = {.in_order = true};
        struct moed_result result = {.size = sizeof result};
        if (moed_generate(session, &options, collect, &c, &result, NULL) || !c.in_order ||
            c.events != n || result.generated_tokens != n)
            return (void *)"a generation went wrong";
    }
    return NULL;
}

static void *ask_often(void *arg)
{
    for (unsigned i = 0; i < 100; i++) {
        uint32_t *tokens;
        size_t n;
        char text[16];
        size_t len = (size_t)snprintf(text, sizeof text, "%u", i);
        if (moed_tokenize(session, text, len, 0, &tokens, &n, NULL))
            return (void *)"a question went wrong";
        bool right = n == len && tokens[0] == (uint32_t)text[0];
        moed_free(tokens);
        if (!right)
            return (void *)"an answer went to another question";
    }
    return NULL;
}

static void *cancel_it(void *arg)
{
    pause_ms(20);
    moed_request_cancel(arg);
    return NULL;
}

static void test_threads(void **state)
{
    enum { N = 6 };
    pthread_t threads[N + 2];
    unsigned numbers[N];
    for (unsigned i = 0; i < N; i++) {
        numbers[i] = i;
        pthread_create(&threads[i], NULL, generate_often, &numbers[i]);
    }
    pthread_create(&threads[N], NULL, ask_often, NULL);
    struct moed_request *r = start("quiet");
    pthread_create(&threads[N + 1], NULL, cancel_it, r);
    const struct moed_event *event;
    assert_int_equal(moed_request_next(r, FOR_EVER, &event, NULL), MOED_OK);
    assert_int_equal(event->result->reason, MOED_REASON_CANCELLED);
    for (unsigned i = 0; i < N + 2; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        if (wrong)
            fail_msg("%s", (const char *)wrong);
    }
    moed_request_free(r);
    assert_in_range(stand_in_look(&worker, 0).most_outstanding, 1, WINDOW);
}

/* The worker hangs up again and again, at once or after a while: every generation has all of its
 * tokens once and in order, and every question its answer. A request that makes no progress is
 * continued three times. */
static void test_continues(void **state)
{
    enum { N = 4, HANG_UPS = 3 };
    pthread_t threads[N + 1];
    unsigned numbers[N];
    struct moed_session *without = session;
    unsigned first = stand_in_peers(&worker);
    assert_int_equal(moed_attach(NULL, &session, NULL), MOED_OK);
    for (unsigned i = 0; i < N; i++) {
        numbers[i] = i;
        pthread_create(&threads[i], NULL, generate_often, &numbers[i]);
    }
    pthread_create(&threads[N], NULL, ask_often, NULL);
    struct moed_request *quiet = start("quiet");
    for (unsigned i = 0; i < HANG_UPS; i++) {
        unsigned peers = stand_in_peers(&worker);
        pause_ms(i % 2 ? 0 : 7);
        stand_in_hang_up_from(&worker, first);
        WAIT_UNTIL(stand_in_peers(&worker) > peers);
    }
    for (unsigned i = 0; i < N + 1; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        if (wrong)
            fail_msg("%s", (const char *)wrong);
    }
    moed_request_cancel(quiet);
    const struct moed_event *event;
    assert_int_equal(moed_request_next(quiet, FOR_EVER, &event, NULL), MOED_OK);
    assert_int_equal(event->result->reason, MOED_REASON_CANCELLED);
    moed_request_free(quiet);
    assert_true(moed_session_alive(session));
    assert_true(stand_in_peers(&worker) >= 2 + HANG_UPS);
    moed_detach(session);
    session = without;
    (void)state;
}

static void test_worker_goes_under_threads(void **state)
{
    enum { N = 4 };
    pthread_t threads[N];
    unsigned numbers[N];
    for (unsigned i = 0; i < N; i++) {
        numbers[i] = i;
        pthread_create(&threads[i], NULL, generate_often, &numbers[i]);
    }
    pause_ms(5);
    stand_in_hang_up(&worker, 0);
    for (unsigned i = 0; i < N; i++)
        pthread_join(threads[i], NULL); /* each request ends, with any result */
    WAIT_UNTIL(!moed_session_alive(session));
}

static void test_names(void **state)
{
    assert_string_equal(moed_code_name(MOED_OK), "ok");
    assert_string_equal(moed_code_name(MOED_ERROR_NOT_FOUND), "not_found");
    assert_string_equal(moed_code_name(MOED_ERROR_INTERNAL), "internal");
    assert_string_equal(moed_code_name((enum moed_code)99), "unknown");
    assert_string_equal(moed_reason_name(MOED_REASON_CANCELLED), "cancelled");
    assert_string_equal(moed_reason_name((enum moed_reason)99), "unknown");
    assert_true(strlen(moed_version()) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_not_running), cmocka_unit_test(test_worker_restarts),
        cmocka_unit_test(test_bad_name),    cmocka_unit_test(test_names),
        WITH_WORKER(test_attach),           WITH_WORKER(test_model),
        WITH_WORKER(test_tokenize),         WITH_WORKER(test_question_limits),
        WITH_WORKER(test_metrics),          WITH_WORKER(test_worker_errors),
        WITH_WORKER(test_late_messages),    WITH_WORKER(test_worker_misbehaves),
        WITH_WORKER(test_worker_goes),      WITH_WORKER(test_detach_with_requests),
        WITH_WORKER(test_prints_nothing),   WITH_WORKER(test_threads),
        WITH_WORKER(test_continues),        WITH_WORKER(test_worker_goes_under_threads),
    };
    return cmocka_run_group_tests(tests, make_run_dir, remove_run_dir);
}
