/* libmoed against a stand-in worker (stand_in_worker.h): order, acknowledging, cancelling, the ends
 * of sessions and requests, a worker that misbehaves, many threads on one session. */
#include "client/include/moed.h"
#include "tests/unit/stand_in_worker.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>
#include <cmocka.h>

enum { WINDOW = 8 };

static char run_dir[] = "/tmp/moed-test-client-XXXXXX";
static struct stand_in worker;
static struct moed_session *session;

static int setup(void **state)
{
    stand_in_start(&worker, run_dir, WINDOW);
    struct moed_attach_options options = {.client = "test", .timeout_ms = 5000};
    struct moed_error error;
    if (moed_attach(&options, &session, &error)) {
        fprintf(stderr, "%s\n", error.message);
        return -1;
    }
    return 0;
}

static int teardown(void **state)
{
    moed_detach(session);
    stand_in_stop(&worker);
    session = NULL;
    return 0;
}

static struct moed_generate_options prompt_of(const char *text)
{
    return (struct moed_generate_options){.prompt = text, .prompt_bytes = strlen(text)};
}

static struct moed_request *start(const char *prompt)
{
    struct moed_generate_options options = prompt_of(prompt);
    struct moed_request *r = NULL;
    struct moed_error error;
    assert_int_equal(moed_generate_start(session, &options, &r, &error), MOED_OK);
    return r;
}

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
    /* Any of the deployment's processes that lives makes the difference. */
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
    struct moed_attach_options options = {.deployment = "a/b"};
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
    assert_true(m->parameters == 1000000000000u);
    assert_int_equal(m->vocab, STAND_IN_VOCAB);
    assert_int_equal(m->context, 4096);
    assert_int_equal(m->experts, 128);
    assert_int_equal(m->experts_used, 8);
    assert_true(m->bos == -1 && m->eos == 2);
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
    struct moed_attach_options options = {.timeout_ms = 100};
    assert_int_equal(moed_attach(&options, &hasty, &error), MOED_OK);
    assert_int_equal(moed_tokenize(hasty, "quiet", 5, 0, &tokens, &n, &error), MOED_ERROR_TIMEOUT);
    assert_true(error.retry);
    assert_int_equal(moed_tokenize(hasty, "x", 1, 0, &tokens, &n, &error), MOED_OK);
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

/* ---- Generating ---- */

struct collected {
    uint32_t events, stop_after;
    bool in_order;
};

static int collect(void *arg, const struct moed_event *event)
{
    struct collected *c = arg;
    char text[16];
    size_t len = (size_t)snprintf(text, sizeof text, "%u ", c->events);
    c->in_order = c->in_order && event->kind == MOED_EVENT_TOKENS && event->token_count == 1 &&
                  event->tokens[0] == c->events && event->text_bytes == len &&
                  memcmp(event->text, text, len) == 0;
    c->events++;
    return c->events == c->stop_after;
}

static void test_generate(void **state)
{
    struct moed_generate_options options = prompt_of("count 1000");
    struct collected c = {.in_order = true};
    struct moed_result result;
    assert_int_equal(moed_generate(session, &options, collect, &c, &result, NULL), MOED_OK);
    assert_int_equal(c.events, 1000);
    assert_true(c.in_order);
    assert_int_equal(result.reason, MOED_REASON_LENGTH);
    assert_int_equal(result.prompt_tokens, 7);
    assert_int_equal(result.generated_tokens, 1000);
    assert_true(result.queue_ns == 11 && result.prefill_ns == 12 && result.decode_ns == 13);
    struct peer p = stand_in_look(&worker, 0);
    assert_int_equal(p.sent, 1000);
    assert_in_range(p.most_outstanding, 1, WINDOW);
    /* Acknowledged in batches of a quarter of the window, not one by one. */
    assert_in_range(p.acks, 1, 1000 / (WINDOW / 4));
}

static void test_options_arrive(void **state)
{
    uint32_t tokens[] = {5, 6};
    struct moed_bytes stop[] = {{"a\0b", 3}, {"c", 1}};
    struct moed_generate_options options = {
        .tokens = tokens,
        .token_count = 2,
        .parse_special = true,
        .ignore_end = true,
        .max_tokens = 9,
        .sampling = {.temperature = 0.5f,
                     .top_k = 40,
                     .top_p = 0.25f,
                     .min_p = 0.125f,
                     .repetition_penalty = 1.5f,
                     .repetition_window = 32,
                     .seed = UINT64_MAX},
        .stop = stop,
        .stop_count = 2,
    };
    struct moed_request *r;
    assert_int_equal(moed_generate_start(session, &options, &r, NULL), MOED_OK);
    uint32_t *ids;
    size_t n; /* an answered question: the one before it has arrived */
    assert_int_equal(moed_tokenize(session, "x", 1, 0, &ids, &n, NULL), MOED_OK);
    moed_free(ids);
    Moed__V1__Generate *g = worker.peers[0].last;
    assert_int_equal(g->prompt.len, 0);
    assert_int_equal(g->n_tokens, 2);
    assert_int_equal(g->tokens[1], 6);
    assert_true(g->parse_special && g->ignore_end);
    assert_int_equal(g->max_tokens, 9);
    assert_true(g->sampling->temperature == 0.5f && g->sampling->top_p == 0.25f &&
                g->sampling->min_p == 0.125f && g->sampling->repetition_penalty == 1.5f);
    assert_int_equal(g->sampling->top_k, 40);
    assert_int_equal(g->sampling->repetition_window, 32);
    assert_true(g->sampling->seed == UINT64_MAX);
    assert_int_equal(g->n_stop, 2);
    assert_int_equal(g->stop[0].len, 3);
    assert_memory_equal(g->stop[0].data, "a\0b", 3);
    moed_request_free(r);
}

static void test_callback_stops(void **state)
{
    struct moed_generate_options options = prompt_of("count 1000000");
    struct collected c = {.in_order = true, .stop_after = 5};
    struct moed_result result;
    assert_int_equal(moed_generate(session, &options, collect, &c, &result, NULL), MOED_OK);
    assert_int_equal(c.events, 5);
    assert_true(c.in_order);
    assert_int_equal(result.reason, MOED_REASON_CANCELLED);
    assert_int_equal(stand_in_look(&worker, 0).cancels, 1);
}

static void test_poll(void **state)
{
    struct moed_request *r = start("quiet");
    struct moed_event event;
    struct moed_error error;
    assert_int_equal(moed_request_next(r, 0, &event, &error), MOED_ERROR_TIMEOUT);
    assert_int_equal(moed_request_next(r, 20, &event, &error), MOED_ERROR_TIMEOUT);
    struct pollfd fd = {.fd = moed_request_fd(r), .events = POLLIN};
    assert_int_equal(poll(&fd, 1, 20), 0);
    moed_request_cancel(r);
    assert_int_equal(poll(&fd, 1, 5000), 1);
    assert_int_equal(moed_request_next(r, 0, &event, &error), MOED_OK);
    assert_int_equal(event.kind, MOED_EVENT_DONE);
    assert_int_equal(event.result.reason, MOED_REASON_CANCELLED);
    /* The end stays. */
    assert_int_equal(poll(&fd, 1, 0), 1);
    assert_int_equal(moed_request_next(r, -1, &event, &error), MOED_OK);
    assert_int_equal(event.kind, MOED_EVENT_DONE);
    assert_int_equal(event.result.reason, MOED_REASON_CANCELLED);
    moed_request_cancel(r); /* does nothing */
    moed_request_free(r);

    r = start("hold");
    fd.fd = moed_request_fd(r);
    assert_int_equal(poll(&fd, 1, 5000), 1);
    assert_int_equal(moed_request_next(r, 0, &event, &error), MOED_OK);
    assert_int_equal(event.kind, MOED_EVENT_TOKENS);
    assert_int_equal(poll(&fd, 1, 20), 0); /* taken: quiet again */
    moed_request_free(r);
}

static void test_back_pressure(void **state)
{
    struct moed_request *r = start("count 100");
    pause_ms(200);
    assert_int_equal(stand_in_look(&worker, 0).sent, WINDOW); /* nobody consumes: no more come */
    struct moed_event event;
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_equal(moed_request_next(r, 5000, &event, NULL), MOED_OK);
        assert_int_equal(event.tokens[0], i);
        /* The event that the program holds is not consumed yet. */
        assert_true(stand_in_look(&worker, 0).acknowledged <= i);
    }
    assert_int_equal(moed_request_next(r, 5000, &event, NULL), MOED_OK);
    assert_int_equal(event.kind, MOED_EVENT_DONE);
    moed_request_free(r);
    assert_int_equal(stand_in_look(&worker, 0).most_outstanding, WINDOW);
}

static void test_freed_requests_give_the_window_back(void **state)
{
    for (int i = 0; i < 50; i++) {
        struct moed_request *r = start("count 1000000");
        struct moed_event event;
        for (int k = 0; k < i % 4; k++)
            assert_int_equal(moed_request_next(r, 5000, &event, NULL), MOED_OK);
        moed_request_free(r);
    }
    moed_request_free(NULL);
    struct moed_generate_options options = prompt_of("count 100");
    struct collected c = {.in_order = true};
    assert_int_equal(moed_generate(session, &options, collect, &c, NULL, NULL), MOED_OK);
    assert_int_equal(c.events, 100);
    assert_true(c.in_order);
    assert_int_equal(stand_in_look(&worker, 0).cancels, 50);
    assert_in_range(stand_in_look(&worker, 0).most_outstanding, 1, WINDOW);
}

static void test_empty_prompt(void **state)
{
    struct moed_generate_options options = {0};
    struct moed_request *r;
    assert_int_equal(moed_generate_start(session, &options, &r, NULL), MOED_ERROR_USAGE);
}

/* ---- Logits ---- */

struct rows {
    uint32_t n, stop_after;
    bool right;
};

static int check_row(void *arg, const struct moed_event *event)
{
    struct rows *rows = arg;
    rows->right = rows->right && event->kind == MOED_EVENT_ROW && event->row == rows->n &&
                  event->logit_count == STAND_IN_VOCAB;
    for (uint32_t i = 0; rows->right && i < STAND_IN_VOCAB; i++)
        rows->right = event->logits[i] == (float)(rows->n * 1000 + i);
    rows->n++;
    return rows->n == rows->stop_after;
}

static void test_logits(void **state)
{
    uint32_t tokens[30] = {1};
    struct rows rows = {.right = true};
    assert_int_equal(moed_logits(session, tokens, 30, false, check_row, &rows, NULL), MOED_OK);
    assert_int_equal(rows.n, 30);
    assert_true(rows.right);
    rows = (struct rows){.right = true, .stop_after = 2};
    assert_int_equal(moed_logits(session, tokens, 30, true, check_row, &rows, NULL),
                     MOED_ERROR_CANCELLED);
    assert_int_equal(rows.n, 2);
    assert_int_equal(moed_logits(session, tokens, 0, true, check_row, &rows, NULL),
                     MOED_ERROR_USAGE);
}

static void test_logits_malformed(void **state)
{
    for (uint32_t bad = 666; bad <= 667; bad++) {
        struct moed_session *s;
        uint32_t tokens[3] = {bad};
        struct rows rows = {.right = true};
        assert_int_equal(moed_attach(NULL, &s, NULL), MOED_OK);
        assert_int_equal(moed_logits(s, tokens, 3, false, check_row, &rows, NULL),
                         MOED_ERROR_PROTOCOL);
        assert_int_equal(rows.n, 1);
        assert_false(moed_session_alive(s));
        moed_detach(s);
    }
}

/* ---- Logprobs ---- */

struct logprobs {
    size_t next, events, stop_after;
    bool right;
};

static int check_logprobs(void *arg, const struct moed_event *event)
{
    struct logprobs *l = arg;
    l->right = l->right && event->kind == MOED_EVENT_LOGPROBS && event->first == l->next &&
               event->logprob_count > 0;
    for (size_t i = 0; l->right && i < event->logprob_count; i++)
        l->right = event->logprobs[i] == -(float)l->next++ / 4;
    return ++l->events == l->stop_after;
}

static void test_logprobs(void **state)
{
    uint32_t tokens[100] = {1};
    for (size_t first = 0; first < 100; first += 33) { /* 0 is 1; the last is 99: one value */
        struct logprobs l = {.next = first ? first : 1, .right = true};
        assert_int_equal(moed_logprobs(session, tokens, 100, first, check_logprobs, &l, NULL),
                         MOED_OK);
        assert_true(l.right);
        assert_int_equal(l.next, 100);
    }
    struct logprobs l = {.next = 1, .right = true, .stop_after = 3};
    assert_int_equal(moed_logprobs(session, tokens, 100, 0, check_logprobs, &l, NULL),
                     MOED_ERROR_CANCELLED);
    assert_true(l.right && l.events == 3);
    assert_in_range(stand_in_look(&worker, 0).most_outstanding, 1, WINDOW);
}

static void test_logprobs_of_nothing(void **state)
{
    uint32_t tokens[3] = {1};
    struct moed_request *r;
    struct moed_error error;
    assert_int_equal(moed_logprobs_start(session, tokens, 3, 3, &r, &error), MOED_ERROR_USAGE);
    assert_int_equal(moed_logprobs_start(session, tokens, 1, 0, &r, &error), MOED_ERROR_USAGE);
    assert_int_equal(moed_logprobs_start(session, tokens, 0, 0, &r, &error), MOED_ERROR_USAGE);
}

static void test_logprobs_malformed(void **state)
{
    for (uint32_t bad = 666; bad <= 668; bad++) {
        struct moed_session *s;
        uint32_t tokens[2] = {bad};
        struct logprobs l = {.next = 1, .right = true};
        assert_int_equal(moed_attach(NULL, &s, NULL), MOED_OK);
        assert_int_equal(moed_logprobs(s, tokens, 2, 0, check_logprobs, &l, NULL),
                         MOED_ERROR_PROTOCOL);
        assert_int_equal(l.events, 0);
        assert_false(moed_session_alive(s));
        moed_detach(s);
    }
}

/* ---- Routing ---- */

struct routing {
    size_t next, next_hidden, events;
    const struct moed_record_options *options;
    bool right;
};

static bool routing_is_right(struct routing *r, const struct moed_routing *some)
{
    if (some->first != r->next || some->selected_count != 2 * some->token_count ||
        !some->gate != !r->options->gate ||
        some->gate_count != (r->options->gate ? 2 * some->token_count : 0) ||
        some->hidden_count != some->hidden_at_count)
        return false;
    for (size_t i = 0; i < some->token_count; i++, r->next++)
        if (some->selected[2 * i] != r->next || some->selected[2 * i + 1] != r->next + 1 ||
            (some->gate &&
             (some->gate[2 * i] != (float)r->next / 1024 || some->gate[2 * i + 1] != 0.5f)))
            return false;
    for (size_t i = 0; i < some->hidden_at_count; i++, r->next_hidden += r->options->hidden_every)
        if (some->hidden_at[i] != r->next_hidden || some->hidden[i] != r->next_hidden)
            return false;
    return true;
}

static int check_routing(void *arg, const struct moed_event *event)
{
    struct routing *r = arg;
    r->events++;
    r->right =
        r->right && event->kind == MOED_EVENT_ROUTING && routing_is_right(r, &event->routing);
    return 0;
}

static void test_routing(void **state)
{
    const struct moed_record_options all[] = {
        {.gate = true}, {.hidden_every = 1}, {.gate = true, .hidden_every = 5, .hidden_phase = 3}};
    for (unsigned i = 0; i < 3; i++) {
        struct routing r = {.options = &all[i], .next_hidden = all[i].hidden_phase, .right = true};
        struct moed_generate_options o = {
            .prompt = "routing 100", .prompt_bytes = 11, .record = &all[i]};
        assert_int_equal(moed_generate(session, &o, check_routing, &r, NULL, NULL), MOED_OK);
        assert_true(r.right);
        assert_int_equal(r.next, 100);
        assert_in_range(r.events, 50, 60); /* 1, 2 and 3 tokens in turn */
        if (all[i].hidden_every)
            assert_in_range(r.next_hidden, 100, 99 + all[i].hidden_every);
    }
    assert_in_range(stand_in_look(&worker, 0).most_outstanding, 1, WINDOW);
}

static void test_record_options(void **state)
{
    const struct moed_record_options record = {true, 7, 4, true, true};
    struct moed_generate_options o = {.prompt = "count 1", .prompt_bytes = 7, .record = &record};
    assert_int_equal(moed_generate(session, &o, NULL, NULL, NULL, NULL), MOED_OK);
    const Moed__V1__Record *got = stand_in_look(&worker, 0).last->record;
    assert_non_null(got);
    assert_true(got->gate && got->stepwise && got->prompt_only);
    assert_int_equal(got->hidden_every, 7);
    assert_int_equal(got->hidden_phase, 4);
}

/* 0: nothing is wrong with it, but nobody asked for it. */
static void test_routing_malformed(void **state)
{
    const struct moed_record_options record = {.gate = true, .hidden_every = 1};
    for (unsigned wrong = 0; wrong <= STAND_IN_WRONG; wrong++) {
        struct moed_session *s;
        struct routing r = {.options = &record};
        char prompt[32];
        struct moed_generate_options o = {
            .prompt = prompt,
            .prompt_bytes = (size_t)snprintf(prompt, sizeof prompt, "routing 3 %u", wrong),
            .record = wrong ? &record : NULL};
        assert_int_equal(moed_attach(NULL, &s, NULL), MOED_OK);
        assert_int_equal(moed_generate(s, &o, check_routing, &r, NULL, NULL), MOED_ERROR_PROTOCOL);
        assert_int_equal(r.events, 0);
        assert_false(moed_session_alive(s));
        moed_detach(s);
    }
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
    options = prompt_of("error-code");
    assert_int_equal(moed_generate(session, &options, NULL, NULL, NULL, &error),
                     MOED_ERROR_INTERNAL);
    /* An error ends one request and not the session; it stays. */
    assert_true(moed_session_alive(session));
    struct moed_request *r = start("error");
    struct moed_event event;
    assert_int_equal(moed_request_next(r, 5000, &event, &error), MOED_ERROR_LIMIT);
    assert_int_equal(moed_request_next(r, 5000, &event, &error), MOED_ERROR_LIMIT);
    moed_request_free(r);
}

static void test_late_messages(void **state)
{
    for (int i = 0; i < 20; i++) { /* more than the window: what is dropped is acknowledged */
        struct moed_generate_options options = prompt_of("late");
        struct moed_result result;
        assert_int_equal(moed_generate(session, &options, NULL, NULL, &result, NULL), MOED_OK);
        assert_int_equal(result.reason, MOED_REASON_END);
    }
    uint32_t *ids;
    size_t n; /* answered after them: they have all been read */
    assert_int_equal(moed_tokenize(session, "x", 1, 0, &ids, &n, NULL), MOED_OK);
    moed_free(ids);
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
        /* A flood that is consumed while it comes is none: let it come first. */
        struct moed_request *r;
        assert_int_equal(moed_generate_start(s, &options, &r, &error), MOED_OK);
        struct moed_event event;
        assert_int_equal(moed_request_next(other, 5000, &event, &error), expected);
        assert_false(error.retry);
        enum moed_code code;
        while ((code = moed_request_next(r, 5000, &event, &error)) == MOED_OK)
            assert_int_equal(event.kind, MOED_EVENT_TOKENS);
        assert_int_equal(code, expected);
        assert_false(moed_session_alive(s));
        moed_request_free(other);
        moed_request_free(r);
        assert_int_equal(moed_generate_start(s, &options, &r, &error), expected);
        moed_detach(s);
    }
    assert_true(moed_session_alive(session)); /* the other sessions do not notice */
}

static void test_worker_goes(void **state)
{
    struct moed_request *quiet = start("quiet"), *hold = start("hold");
    uint32_t *ids;
    size_t n; /* answered after hold's token */
    assert_int_equal(moed_tokenize(session, "x", 1, 0, &ids, &n, NULL), MOED_OK);
    moed_free(ids);
    stand_in_hang_up(&worker, 0);
    struct moed_event event;
    struct moed_error error;
    assert_int_equal(moed_request_next(quiet, 5000, &event, &error), MOED_ERROR_UNAVAILABLE);
    assert_true(error.retry);
    assert_non_null(strstr(error.message, "try again"));
    assert_false(moed_session_alive(session));
    /* What came before is not lost. */
    assert_int_equal(moed_request_next(hold, 5000, &event, &error), MOED_OK);
    assert_int_equal(event.kind, MOED_EVENT_TOKENS);
    assert_int_equal(moed_request_next(hold, 5000, &event, &error), MOED_ERROR_UNAVAILABLE);
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
    struct moed_event event;
    assert_int_equal(moed_request_next(r, 5000, &event, NULL), MOED_OK);
    moed_detach(s);
    assert_int_equal(moed_request_next(r, 5000, &event, NULL), MOED_ERROR_CANCELLED);
    moed_request_cancel(r);
    moed_request_free(r);
    moed_detach(NULL);
    for (int i = 0; i < 500 && !stand_in_look(&worker, 1).closed; i++)
        pause_ms(10);
    assert_true(stand_in_look(&worker, 1).closed); /* the worker learns of it */
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
        struct moed_result result;
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
    struct moed_event event;
    assert_int_equal(moed_request_next(r, 30000, &event, NULL), MOED_OK);
    assert_int_equal(event.result.reason, MOED_REASON_CANCELLED);
    for (unsigned i = 0; i < N + 2; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        if (wrong)
            fail_msg("%s", (const char *)wrong);
    }
    moed_request_free(r);
    assert_in_range(stand_in_look(&worker, 0).most_outstanding, 1, WINDOW);
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
        pthread_join(threads[i], NULL); /* whatever each got: it ends */
    for (int i = 0; i < 500 && moed_session_alive(session); i++)
        pause_ms(10);
    assert_false(moed_session_alive(session));
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

#define WITH_WORKER(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    if (!mkdtemp(run_dir))
        return 1;
    setenv("MOED_RUN", run_dir, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_not_running),
        cmocka_unit_test(test_worker_restarts),
        cmocka_unit_test(test_bad_name),
        cmocka_unit_test(test_names),
        WITH_WORKER(test_attach),
        WITH_WORKER(test_model),
        WITH_WORKER(test_tokenize),
        WITH_WORKER(test_question_limits),
        WITH_WORKER(test_metrics),
        WITH_WORKER(test_generate),
        WITH_WORKER(test_options_arrive),
        WITH_WORKER(test_callback_stops),
        WITH_WORKER(test_poll),
        WITH_WORKER(test_back_pressure),
        WITH_WORKER(test_freed_requests_give_the_window_back),
        WITH_WORKER(test_empty_prompt),
        WITH_WORKER(test_logits),
        WITH_WORKER(test_logits_malformed),
        WITH_WORKER(test_logprobs),
        WITH_WORKER(test_logprobs_of_nothing),
        WITH_WORKER(test_logprobs_malformed),
        WITH_WORKER(test_routing),
        WITH_WORKER(test_record_options),
        WITH_WORKER(test_routing_malformed),
        WITH_WORKER(test_worker_errors),
        WITH_WORKER(test_late_messages),
        WITH_WORKER(test_worker_misbehaves),
        WITH_WORKER(test_worker_goes),
        WITH_WORKER(test_detach_with_requests),
        WITH_WORKER(test_threads),
        WITH_WORKER(test_worker_goes_under_threads),
    };
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    run_dir_sweep(run_dir);
    rmdir(run_dir);
    return failures;
}
