/* libmoed with a stand-in worker (stand_in_worker.h). The results of a request: generated tokens,
 * logits, logprobs and routing, in order, acknowledged, cancelled, malformed. */
#include "client_session.h"

#include "ipc/rpc.h"

#include <float.h>
#include <math.h>
#include <poll.h>

/* ---- Generating ---- */

static void test_generate(void **state)
{
    struct moed_generate_options options = prompt_of("count 1000");
    struct collected c = {.in_order = true};
    struct moed_result result = {.size = sizeof result};
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
    struct moed_bytes stop[] = {{"a\0b", 3}, {"c", 1}}, breakers[] = {{"\n\n", 2}};
    struct moed_bias bias[] = {{.token = 7, .bias = -INFINITY}, {.text = {"no", 2}, .bias = 1.5f}};
    struct moed_sampling given = {.size = sizeof given,
                                  .temperature = 0.5f,
                                  .top_k = 40,
                                  .top_p = 0.25f,
                                  .min_p = 0.125f,
                                  .repetition_penalty = 1.5f,
                                  .repetition_window = 32,
                                  .seed = UINT64_MAX - 1,
                                  .presence_penalty = -0.5f,
                                  .typical_p = 0.9f,
                                  .dry_base = MOED_DEFAULT_FLOAT,
                                  .dry_breakers = breakers,
                                  .dry_breaker_count = 1,
                                  .mirostat = 2,
                                  .order = "kt",
                                  .bias = bias,
                                  .bias_count = 2};
    struct moed_generate_options options = {
        .size = sizeof options,
        .tokens = tokens,
        .token_count = 2,
        .parse_special = true,
        .ignore_end = true,
        .max_tokens = 9,
        .sampling = &given,
        .stop = stop,
        .stop_count = 2,
        .min_tokens = 3,
        .stop_tokens = tokens,
        .stop_token_count = 2,
        .special_text = true,
        .logprobs = true,
        .top_logprobs = 5,
        .progress = true,
        .priority = MOED_PRIORITY_BATCH,
        .deadline_ms = 1500,
        .cache_salt = 77,
        .max_drafts = 6,
        .no_drafts = true,
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
    const Moed__V1__Sampling *sampling = g->sampling;
    assert_true(sampling->has_seed && sampling->seed == UINT64_MAX - 1);
    assert_true(sampling->presence_penalty == -0.5f && sampling->typical_p == 0.9f);
    assert_true(sampling->model_defaults && !sampling->has_dry_base); /* one is the model's */
    assert_true(sampling->has_frequency_penalty && sampling->frequency_penalty == 0);
    assert_true(sampling->dry_allowed_length == 2 && !sampling->has_mirostat_mu); /* 0: usual */
    assert_int_equal(sampling->mirostat, 2);
    assert_string_equal(sampling->order, "kt");
    assert_int_equal(sampling->n_dry_breakers, 1);
    assert_memory_equal(sampling->dry_breakers[0].data, "\n\n", 2);
    assert_int_equal(sampling->n_bias, 2);
    assert_true(sampling->bias[0]->token == 7 && isinf(sampling->bias[0]->bias));
    assert_memory_equal(sampling->bias[1]->text.data, "no", 2);
    assert_true(sampling->bias[1]->bias == 1.5f);
    assert_true(g->min_tokens == 3 && g->n_stop_tokens == 2 && g->stop_tokens[0] == 5);
    assert_true(g->special_text && g->logprobs && g->top_logprobs == 5 && g->progress);
    assert_true(g->priority == MOED__V1__GENERATE__PRIORITY__BATCH && g->deadline_ms == 1500 &&
                g->cache_salt == 77);
    assert_true(g->max_drafts == 6 && g->no_drafts);
    assert_int_equal(g->n_stop, 2);
    assert_int_equal(g->stop[0].len, 3);
    assert_memory_equal(g->stop[0].data, "a\0b", 3);
    moed_request_free(r);
}

/* A grammar arrives whole; one of kind NONE does not; a kind of a later library is refused. */
static void test_grammar_arrives(void **state)
{
    const char *marks[] = {"<tool_call>", "</tool_call>"};
    struct moed_grammar grammar = {.size = sizeof grammar,
                                   .kind = MOED_GRAMMAR_GBNF,
                                   .text = "root ::= \"a\"",
                                   .text_bytes = 12,
                                   .trigger = "<x>",
                                   .trigger_bytes = 3,
                                   .trigger_required = true,
                                   .marks = marks,
                                   .mark_count = 2,
                                   .reasoning_begin = "<r>",
                                   .reasoning_end = "</r>"};
    struct moed_generate_options options = prompt_of("quiet");
    options.grammar = &grammar;
    for (int i = 0; i < 2; i++) {
        struct moed_request *r;
        uint32_t *ids;
        size_t n;
        assert_int_equal(moed_generate_start(session, &options, &r, NULL), MOED_OK);
        assert_int_equal(moed_tokenize(session, "x", 1, 0, &ids, &n, NULL), MOED_OK);
        moed_free(ids);
        const Moed__V1__Grammar *g = worker.peers[0].last->grammar;
        assert_int_equal(g != NULL, i == 0);
        grammar.kind = MOED_GRAMMAR_NONE;
        if (g) {
            assert_int_equal(g->kind, MOED__V1__GRAMMAR__KIND__GBNF);
            assert_int_equal(g->text.len, 12);
            assert_memory_equal(g->text.data, "root ::= \"a\"", 12);
            assert_int_equal(g->trigger.len, 3);
            assert_true(g->trigger_required && g->n_marks == 2);
            assert_int_equal(g->marks[1].len, strlen(marks[1]));
            assert_int_equal(g->reasoning_begin.len, 3);
            assert_memory_equal(g->reasoning_end.data, "</r>", g->reasoning_end.len);
        }
        moed_request_free(r);
    }
    struct moed_request *r;
    struct moed_error error;
    grammar.kind = MOED_GRAMMAR_CHOICES + 1;
    assert_int_equal(moed_generate_start(session, &options, &r, &error), MOED_ERROR_USAGE);
    assert_non_null(strstr(error.message, "grammar"));
}

/* Without sampling it is exact; moed_sampling_init leaves all to the model, with a seed that
 * differs. */
static void test_sampling_defaults(void **state)
{
    struct moed_generate_options options = prompt_of("quiet");
    uint64_t seeds[2];
    for (int i = 0; i < 3; i++) {
        struct moed_request *r;
        uint32_t *ids;
        size_t n;
        struct moed_sampling given;
        moed_sampling_init(&given, sizeof given);
        if (i == 2)
            given.temperature = 0.5f;
        options.sampling = i > 0 ? &given : NULL;
        assert_int_equal(moed_generate_start(session, &options, &r, NULL), MOED_OK);
        assert_int_equal(moed_tokenize(session, "x", 1, 0, &ids, &n, NULL), MOED_OK);
        moed_free(ids);
        const Moed__V1__Sampling *sampling = worker.peers[0].last->sampling;
        assert_int_equal(sampling->model_defaults, i > 0);
        assert_int_equal(sampling->has_temperature, i != 1);
        assert_true(sampling->temperature == (i == 2 ? 0.5f : sampling->temperature));
        assert_int_equal(sampling->has_top_k, i == 0);
        assert_false(sampling->has_top_p);
        assert_true(sampling->has_seed);
        if (i == 0)
            assert_true(sampling->seed == 0 && sampling->temperature == 0);
        else
            seeds[i - 1] = sampling->seed;
        moed_request_free(r);
    }
    assert_true(seeds[0] != seeds[1]);
}

/* A 0 that stands for another value precedes the model's default; FLT_MIN has the effect of 0. */
static void test_sampling_zeros(void **state)
{
    struct moed_generate_options options = prompt_of("quiet");
    struct moed_sampling given;
    struct moed_request *r;
    uint32_t *ids;
    size_t n;
    moed_sampling_init(&given, sizeof given);
    given.top_p = given.typical_p = given.repetition_penalty = given.mirostat_tau = 0;
    given.mirostat_mu = given.min_p = 0;
    given.repetition_window = given.top_k = 0;
    given.xtc_threshold = FLT_MIN;
    options.sampling = &given;
    assert_int_equal(moed_generate_start(session, &options, &r, NULL), MOED_OK);
    assert_int_equal(moed_tokenize(session, "x", 1, 0, &ids, &n, NULL), MOED_OK);
    moed_free(ids);
    const Moed__V1__Sampling *s = worker.peers[0].last->sampling;
    assert_true(s->model_defaults);
    assert_true(s->has_top_p && s->top_p == 1);
    assert_true(s->has_typical_p && s->typical_p == 1);
    assert_true(s->has_repetition_penalty && s->repetition_penalty == 1);
    assert_true(s->has_mirostat_tau && s->mirostat_tau == 5);
    assert_true(s->has_repetition_window && s->repetition_window == 64);
    assert_true(s->has_min_p && s->min_p == 0 && s->has_top_k && s->top_k == 0);
    assert_true(s->has_xtc_threshold && s->xtc_threshold == FLT_MIN);
    assert_false(s->has_mirostat_mu || s->has_mirostat_eta);
    moed_request_free(r);
}

struct probable {
    uint32_t events, progress;
    bool right;
};

static int check_probable(void *arg, const struct moed_event *event)
{
    struct probable *p = arg;
    p->events++;
    if (event->kind == MOED_EVENT_PROGRESS) {
        p->progress++;
        p->right &= event->progress->computed == 1 && event->progress->prompt_tokens == 2 &&
                    event->progress->ns == 3 && event->progress->cached_tokens == 4;
        return 0;
    }
    p->right &=
        event->kind == MOED_EVENT_TOKENS && event->token_count == 2 && event->mirostat_mu == 2.5f;
    if (!event->logprob_count)
        return 0;
    p->right &=
        event->logprob_count == 2 && event->logprobs[0] == -0.5f && event->logprobs[1] == -1.5f;
    for (size_t i = 0; p->right && i < 2 * event->top_count; i++)
        p->right = event->top_tokens[i] == i % event->top_count &&
                   event->top_logprobs[i] == -(float)(i % event->top_count);
    return 0;
}

static void test_probable(void **state)
{
    for (uint32_t top = 0; top <= 3; top++) {
        struct moed_generate_options options = prompt_of("probable 0");
        struct moed_result result = {.size = sizeof result};
        struct moed_sampling given = {.size = sizeof given, .seed = 17};
        struct probable p = {.right = true};
        options.logprobs = top > 0;
        options.top_logprobs = top;
        options.progress = top == 3;
        options.sampling = &given;
        assert_int_equal(moed_generate(session, &options, check_probable, &p, &result, NULL),
                         MOED_OK);
        assert_true(p.right);
        assert_int_equal(p.progress, top == 3);
        assert_int_equal(p.events, 1 + p.progress);
        assert_int_equal(result.reason, MOED_REASON_END);
        assert_true(result.end_token == 9 && result.stop_index == -1 && result.seed == 17);
    }
}

/* The end token's come with the end. */
static void test_end_probable(void **state)
{
    for (uint32_t top = 0; top <= 2; top++) {
        struct moed_generate_options options = prompt_of("probable 0");
        const struct moed_event *event = NULL;
        struct moed_request *r;
        options.logprobs = top > 0;
        options.top_logprobs = top;
        assert_int_equal(moed_generate_start(session, &options, &r, NULL), MOED_OK);
        do
            assert_int_equal(moed_request_next(r, -1, &event, NULL), MOED_OK);
        while (event->kind != MOED_EVENT_DONE);
        assert_int_equal(event->token_count, 0);
        assert_int_equal(event->logprob_count, top > 0);
        assert_int_equal(event->top_count, top);
        assert_true(!top || event->logprobs[0] == -2.5f);
        for (size_t i = 0; i < top; i++)
            assert_true(event->top_tokens[i] == i && event->top_logprobs[i] == -(float)i);
        moed_request_free(r);
    }
}

static void test_probable_malformed(void **state)
{
    for (int wrong = 1; wrong <= 7; wrong++) {
        char prompt[16];
        snprintf(prompt, sizeof prompt, "probable %d", wrong);
        struct moed_generate_options options = prompt_of(prompt);
        struct probable p = {.right = true};
        struct moed_session *s;
        options.logprobs = wrong != 4 && wrong != 7;
        options.top_logprobs = options.logprobs ? 2 : 0;
        assert_int_equal(moed_attach(NULL, &s, NULL), MOED_OK);
        assert_int_equal(moed_generate(s, &options, check_probable, &p, NULL, NULL),
                         MOED_ERROR_PROTOCOL);
        assert_int_equal(p.events, wrong > 4);
        assert_false(moed_session_alive(s));
        moed_detach(s);
    }
}

static void test_callback_stops(void **state)
{
    struct moed_generate_options options = prompt_of("count 1000000");
    struct collected c = {.in_order = true, .stop_after = 5};
    struct moed_result result = {.size = sizeof result};
    assert_int_equal(moed_generate(session, &options, collect, &c, &result, NULL), MOED_OK);
    assert_int_equal(c.events, 5);
    assert_true(c.in_order);
    assert_int_equal(result.reason, MOED_REASON_CANCELLED);
    assert_int_equal(stand_in_look(&worker, 0).cancels, 1);
}

static void test_poll(void **state)
{
    struct moed_request *r = start("quiet");
    const struct moed_event *event;
    struct moed_error error;
    assert_int_equal(moed_request_next(r, 0, &event, &error), MOED_ERROR_TIMEOUT);
    assert_int_equal(moed_request_next(r, 20, &event, &error), MOED_ERROR_TIMEOUT);
    struct pollfd fd = {.fd = moed_request_fd(r), .events = POLLIN};
    assert_int_equal(poll(&fd, 1, 20), 0);
    moed_request_cancel(r);
    assert_int_equal(poll(&fd, 1, FOR_EVER), 1);
    assert_int_equal(moed_request_next(r, 0, &event, &error), MOED_OK);
    assert_int_equal(event->kind, MOED_EVENT_DONE);
    assert_int_equal(event->result->reason, MOED_REASON_CANCELLED);
    /* The end stays. */
    assert_int_equal(poll(&fd, 1, 0), 1);
    assert_int_equal(moed_request_next(r, -1, &event, &error), MOED_OK);
    assert_int_equal(event->kind, MOED_EVENT_DONE);
    assert_int_equal(event->result->reason, MOED_REASON_CANCELLED);
    moed_request_cancel(r); /* does nothing */
    moed_request_free(r);

    r = start("hold");
    fd.fd = moed_request_fd(r);
    assert_int_equal(poll(&fd, 1, FOR_EVER), 1);
    assert_int_equal(moed_request_next(r, 0, &event, &error), MOED_OK);
    assert_int_equal(event->kind, MOED_EVENT_TOKENS);
    assert_int_equal(poll(&fd, 1, 20), 0); /* taken: quiet again */
    moed_request_free(r);
}

static void test_back_pressure(void **state)
{
    struct moed_request *r = start("count 100");
    WAIT_UNTIL(stand_in_look(&worker, 0).sent >= WINDOW);
    for (int i = 0; i < 2; i++) /* an Ack of what came before would now be there */
        ask_something(session);
    assert_int_equal(stand_in_look(&worker, 0).sent, WINDOW); /* the test consumes none */
    const struct moed_event *event;
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_equal(moed_request_next(r, FOR_EVER, &event, NULL), MOED_OK);
        assert_int_equal(event->tokens[0], i);
        /* The event that the program holds is not consumed yet. */
        assert_true(stand_in_look(&worker, 0).acknowledged <= i);
    }
    assert_int_equal(moed_request_next(r, FOR_EVER, &event, NULL), MOED_OK);
    assert_int_equal(event->kind, MOED_EVENT_DONE);
    moed_request_free(r);
    assert_int_equal(stand_in_look(&worker, 0).most_outstanding, WINDOW);
}

static void test_freed_requests_give_the_window_back(void **state)
{
    for (int i = 0; i < 50; i++) {
        struct moed_request *r = start("count 1000000");
        const struct moed_event *event;
        for (int k = 0; k < i % 4; k++)
            assert_int_equal(moed_request_next(r, FOR_EVER, &event, NULL), MOED_OK);
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
    struct moed_generate_options options = {.size = sizeof options};
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
    struct moed_logprobs_options options = {
        .size = sizeof options, .tokens = tokens, .token_count = 100};
    for (size_t first = 0; first < 100; first += 33) { /* 0 is 1; the last is 99: one value */
        struct logprobs l = {.next = first ? first : 1, .right = true};
        options.first = first;
        assert_int_equal(moed_logprobs(session, &options, check_logprobs, &l, NULL), MOED_OK);
        assert_true(l.right);
        assert_int_equal(l.next, 100);
    }
    struct logprobs l = {.next = 1, .right = true, .stop_after = 3};
    options.first = 0;
    assert_int_equal(moed_logprobs(session, &options, check_logprobs, &l, NULL),
                     MOED_ERROR_CANCELLED);
    assert_true(l.right && l.events == 3);
    assert_in_range(stand_in_look(&worker, 0).most_outstanding, 1, WINDOW);
}

static void test_logprobs_of_nothing(void **state)
{
    uint32_t tokens[3] = {1};
    const struct moed_logprobs_options wrong[] = {
        {.size = sizeof *wrong, .tokens = tokens, .token_count = 3, .first = 3},
        {.size = sizeof *wrong, .tokens = tokens, .token_count = 1},
        {.size = sizeof *wrong},
        {.size = sizeof *wrong, .tokens = tokens, .token_count = 3, .priority = 7},
        {.tokens = tokens, .token_count = 3},
    };
    struct moed_request *r;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(moed_logprobs_start(session, &wrong[i], &r, NULL), MOED_ERROR_USAGE);
}

static void test_logprobs_malformed(void **state)
{
    for (uint32_t bad = 666; bad <= 668; bad++) {
        struct moed_session *s;
        uint32_t tokens[2] = {bad};
        struct logprobs l = {.next = 1, .right = true};
        assert_int_equal(moed_attach(NULL, &s, NULL), MOED_OK);
        const struct moed_logprobs_options options = {
            .size = sizeof options, .tokens = tokens, .token_count = 2};
        assert_int_equal(moed_logprobs(s, &options, check_logprobs, &l, NULL), MOED_ERROR_PROTOCOL);
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
    r->right = r->right && event->kind == MOED_EVENT_ROUTING && routing_is_right(r, event->routing);
    return 0;
}

static void test_routing(void **state)
{
    const struct moed_record_options all[] = {
        {.size = sizeof *all, .gate = true},
        {.size = sizeof *all, .hidden_every = 1},
        {.size = sizeof *all, .gate = true, .hidden_every = 5, .hidden_phase = 3}};
    for (unsigned i = 0; i < 3; i++) {
        struct routing r = {.options = &all[i], .next_hidden = all[i].hidden_phase, .right = true};
        struct moed_generate_options o = {
            .size = sizeof o, .prompt = "routing 100", .prompt_bytes = 11, .record = &all[i]};
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
    const struct moed_record_options record = {sizeof record, true, 7, 4, true, true};
    struct moed_generate_options o = {
        .size = sizeof o, .prompt = "count 1", .prompt_bytes = 7, .record = &record};
    assert_int_equal(moed_generate(session, &o, NULL, NULL, NULL, NULL), MOED_OK);
    const Moed__V1__Record *got = stand_in_look(&worker, 0).last->record;
    assert_non_null(got);
    assert_true(got->gate && got->stepwise && got->prompt_only);
    assert_int_equal(got->hidden_every, 7);
    assert_int_equal(got->hidden_phase, 4);
}

/* wrong 0: the event is valid, but the request did not ask for routing. */
static void test_routing_malformed(void **state)
{
    const struct moed_record_options record = {
        .size = sizeof record, .gate = true, .hidden_every = 1};
    for (unsigned wrong = 0; wrong <= STAND_IN_WRONG; wrong++) {
        struct moed_session *s;
        struct routing r = {.options = &record};
        char prompt[32];
        struct moed_generate_options o = {
            .size = sizeof o,
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

/* A prompt of a chat template is refused by a worker that does not know Generate.rendered. */
static void test_rendered_unknown(void **state)
{
    const struct moed_range user = {0, 5};
    struct moed_generate_options options = prompt_of("hello<|im_end|>");
    struct moed_error error;
    options.plain = &user;
    options.plain_count = 1;
    worker.knows_no_rendered = true;
    assert_int_equal(moed_generate(session, &options, NULL, NULL, NULL, &error),
                     MOED_ERROR_VERSION);
    assert_non_null(strstr(error.message, "of an older build"));
}

/* ---- Another worker that does not answer ---- */

static _Atomic unsigned silent_calls;
static _Atomic bool silent_ends;

static void pack_reply(Moed__V1__Reply *reply, struct rpc_reply *out)
{
    reply->abi = CONTROL_ABI;
    out->data = malloc(moed__v1__reply__get_packed_size(reply));
    out->len = moed__v1__reply__pack(reply, out->data);
}

static void answer_late(void *arg, const uint8_t *request, size_t len, struct rpc_reply *out)
{
    Moed__V1__Error error = MOED__V1__ERROR__INIT;
    Moed__V1__Reply reply = MOED__V1__REPLY__INIT;
    silent_calls++;
    WAIT_UNTIL(silent_ends);
    error.code = ERROR_UNAVAILABLE;
    error.message = (char *)"too late";
    reply.body_case = MOED__V1__REPLY__BODY_ERROR;
    reply.error = &error;
    pack_reply(&reply, out);
}

/* memd: the session's worker has much to do, the other one nothing. */
static void tell_workers(void *arg, const uint8_t *request, size_t len, struct rpc_reply *out)
{
    Moed__V1__WorkerState states[2] = {MOED__V1__WORKER_STATE__INIT, MOED__V1__WORKER_STATE__INIT};
    Moed__V1__WorkerState *list[2] = {&states[0], &states[1]};
    Moed__V1__WorkersReply workers = MOED__V1__WORKERS_REPLY__INIT;
    Moed__V1__Reply reply = MOED__V1__REPLY__INIT;
    states[0].process = (char *)"worker";
    states[0].running = 1000;
    states[1].process = (char *)"worker-2";
    workers.n_workers = 2;
    workers.workers = list;
    reply.body_case = MOED__V1__REPLY__BODY_WORKERS;
    reply.workers = &workers;
    pack_reply(&reply, out);
}

static struct rpc_server *serve(const char *name, rpc_handler *handler)
{
    char url[RUN_URL_BYTES];
    struct rpc_server *server = NULL;
    struct error e;
    run_dir_url(run_dir, name, url);
    assert_int_equal(rpc_serve(url, handler, NULL, &server, &e), ERROR_OK);
    return server;
}

/* A request starts at the session's worker then, though each call of the session may take an hour
 * (setup). */
static void test_silent_worker(void **state)
{
    struct rpc_server *memd = serve("memd.ctl", tell_workers);
    struct rpc_server *silent = serve("worker-2.ctl", answer_late);
    silent_ends = false;
    while (!silent_calls) { /* memd is asked again some time after the session began */
        struct moed_request *r = start("count 1");
        const struct moed_event *event;
        assert_int_equal(moed_request_next(r, FOR_EVER, &event, NULL), MOED_OK);
        assert_int_equal(event->kind, MOED_EVENT_TOKENS);
        moed_request_free(r);
    }
    silent_ends = true;
    rpc_server_stop(silent);
    rpc_server_stop(memd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_WORKER(test_generate),
        WITH_WORKER(test_options_arrive),
        WITH_WORKER(test_grammar_arrives),
        WITH_WORKER(test_sampling_defaults),
        WITH_WORKER(test_sampling_zeros),
        WITH_WORKER(test_probable),
        WITH_WORKER(test_end_probable),
        WITH_WORKER(test_probable_malformed),
        WITH_WORKER(test_callback_stops),
        WITH_WORKER(test_poll),
        WITH_WORKER(test_back_pressure),
        WITH_WORKER(test_freed_requests_give_the_window_back),
        WITH_WORKER(test_empty_prompt),
        WITH_WORKER(test_rendered_unknown),
        WITH_WORKER(test_silent_worker),
        WITH_WORKER(test_logits),
        WITH_WORKER(test_logits_malformed),
        WITH_WORKER(test_logprobs),
        WITH_WORKER(test_logprobs_of_nothing),
        WITH_WORKER(test_logprobs_malformed),
        WITH_WORKER(test_routing),
        WITH_WORKER(test_record_options),
        WITH_WORKER(test_routing_malformed),
    };
    return cmocka_run_group_tests(tests, make_run_dir, remove_run_dir);
}
