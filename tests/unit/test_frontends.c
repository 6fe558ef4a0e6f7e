/* Frontends (worker/frontends/frontends.h) with a real engine and real channels. The truth: the
 * golden answer, docs/protocol.md, and that a closed frontend leaves nothing behind.
 * ThreadSanitizer and AddressSanitizer check its end. */
#include "frontend_client.h"

/* ---- Tests ---- */

/* Cancel ends the requests of this frontend that have the id, and no others. */
static void test_cancel(void **state)
{
    static struct client one, other;
    (void)state;
    client_attach(&one);
    client_attach(&other);
    client_generate(&one, 1, 0);
    client_await(&one, &one.answers[1].n_tokens, 1);
    client_generate(&other, 2, GOLDEN_ANSWER);
    client_cancel(&other, 1); /* not its own */
    client_cancel(&one, 2);   /* nor this */
    client_cancel(&one, 7);
    client_await(&other, &other.answers[2].n_done, 1);
    check_answer(&other.answers[2], GOLDEN_ANSWER);
    pthread_mutex_lock(&one.lock);
    assert_int_equal(one.answers[1].n_done, 0);
    pthread_mutex_unlock(&one.lock);
    client_generate(&one, 3, GOLDEN_ANSWER);
    client_cancel(&one, 1);
    client_acknowledge(&one, 64);
    client_await(&one, &one.answers[1].n_done, 1);
    client_await(&one, &one.answers[3].n_done, 1);
    check_answer(&one.answers[3], GOLDEN_ANSWER);
    assert_int_equal(one.answers[1].reason, FINISH_CANCELLED);
    assert_int_equal(one.answers[3].reason, FINISH_LENGTH);
    client_cancel(&one, 3); /* the request has ended: no effect */
    client_generate(&one, 5, 0);
    client_await(&one, &one.answers[5].n_tokens, 1);
    client_end(&one, 5, true);
    client_await(&one, &one.answers[5].n_done, 1);
    assert_int_equal(one.answers[5].reason, FINISH_END);
    client_generate(&one, 4, GOLDEN_ANSWER);
    client_acknowledge(&one, 64);
    client_await(&one, &one.answers[4].n_done, 1);
    for (uint32_t id = 1; id <= 5; id++)
        assert_int_equal(one.answers[id].n_done, id != 2);
    channel_close(one.channel, 0);
    channel_close(other.channel, 0);
    await_count(count_frontends, 0);
}

/* All requests of a frontend share one window. */
static void test_window(void **state)
{
    static struct client c;
    (void)state;
    client_attach(&c);
    client_generate(&c, 1, 0);
    client_generate(&c, 2, 0);
    client_await(&c, &c.events, FRONTEND_WINDOW);
    client_acknowledge(&c, 10);
    client_await(&c, &c.events, FRONTEND_WINDOW + 10);
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL); /* for events that must not arrive */
    pthread_mutex_lock(&c.lock);
    assert_int_equal(c.events, FRONTEND_WINDOW + 10);
    pthread_mutex_unlock(&c.lock);
    client_acknowledge(&c, 1000); /* counts as the window: the rest of both answers is longer */
    client_await(&c, &c.events, 2 * FRONTEND_WINDOW + 10);
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    pthread_mutex_lock(&c.lock);
    assert_int_equal(c.events, 2 * FRONTEND_WINDOW + 10);
    pthread_mutex_unlock(&c.lock);
    channel_close(c.channel, 0);
    await_count(count_frontends, 0);
}

/* A frontend closes with requests in all states: waiting, computing, behind, just ended. The worker
 * frees it, and serves another one. */
static void test_gone(void **state)
{
    enum { ROUNDS = 60 };
    static struct client c, other;
    (void)state;
    client_attach(&other);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        client_attach(&c);
        for (uint32_t id = 1; id <= round % 6; id++)
            client_generate(&c, id, id % 2 ? 3 + round / 6 : 0);
        if (round % 6)
            client_await(&c, &c.answers[1].n_tokens, round % 3);
        channel_close(c.channel, round % 4 ? 0 : 100);
        await_count(count_frontends, 1);
    }
    client_generate(&other, 1, GOLDEN_ANSWER);
    client_await(&other, &other.answers[1].n_done, 1);
    check_answer(&other.answers[1], GOLDEN_ANSWER);
    await_count(count_requests, 0);
    channel_close(other.channel, 0);
    await_count(count_frontends, 0);
}

/* ---- Sampling parameters, which are a peer's ---- */

/* The model's defaults (open_worker: the usual ones, and a repetition penalty) are the same as
 * naming them; what is named replaces its default alone; temperature 0 switches all of them off. */
static void test_model_defaults(void **state)
{
    static struct client c;
    Moed__V1__Sampling s[5];
    (void)state;
    client_attach(&c);
    for (int i = 0; i < 5; i++) {
        s[i] = (Moed__V1__Sampling)MOED__V1__SAMPLING__INIT;
        s[i].has_seed = s[i].has_model_defaults = true;
        s[i].seed = 12;
        s[i].model_defaults = i % 2 == 0;
    }
    s[1].has_temperature = s[1].has_min_p = s[1].has_repetition_penalty = true;
    s[1].temperature = 0.8f, s[1].min_p = 0.05f, s[1].repetition_penalty = 1.5f;
    s[2].has_temperature = true; /* 0 */
    s[3] = s[1];
    s[3].temperature = 2;
    s[4].has_temperature = true;
    s[4].temperature = 2;
    for (uint32_t i = 0; i < 5; i++) {
        client_generate_sampled(&c, i + 1, GOLDEN_ANSWER, &s[i]);
        client_await(&c, &c.answers[i + 1].n_done, 1);
        client_acknowledge(&c, GOLDEN_ANSWER);
    }
    const struct answer *a = c.answers + 1;
    assert_memory_equal(a[0].tokens, a[1].tokens, sizeof a[0].tokens);
    check_answer(&a[2], GOLDEN_ANSWER);
    assert_memory_equal(a[3].tokens, a[4].tokens, sizeof a[0].tokens);
    assert_memory_not_equal(a[0].tokens, a[3].tokens, sizeof a[0].tokens);
    channel_close(c.channel, 0);
    await_count(count_frontends, 0);
}

/* ---- What a frontend may have at once ---- */

/* An id that is in use is refused with an error about the channel, and the request that has the id
 * goes on. After its end the id is free. */
static void test_same_id(void **state)
{
    static struct client c;
    (void)state;
    client_attach(&c);
    client_generate(&c, 1, 0);
    client_generate(&c, 1, GOLDEN_ANSWER);
    client_await(&c, &c.answers[0].n_errors, 1);
    assert_non_null(strstr(c.answers[0].message, "id 1"));
    client_cancel(&c, 1);
    client_await(&c, &c.answers[1].n_done, 1);
    for (uint32_t round = 0; round < 40; round++) { /* at once after each end */
        client_acknowledge(&c, 64);
        c.answers[1] = (struct answer){0};
        client_generate(&c, 1, 1);
        client_await(&c, &c.answers[1].n_done, 1);
    }
    assert_int_equal(c.answers[0].n_errors, 1);
    channel_close(c.channel, 0);
    await_count(count_frontends, 0);
}

/* A frontend that has many requests is refused more, and another one gets in. */
static void test_most_requests(void **state)
{
    static struct client c, other;
    (void)state;
    client_attach(&c);
    client_attach(&other);
    for (uint32_t id = 1; id <= MOST_WAITING + 1; id++)
        client_generate(&c, id, 0);
    client_await(&c, &c.answers[MOST_WAITING + 1].n_errors, 1);
    assert_true(c.answers[MOST_WAITING + 1].retry);
    client_generate(&other, 1, GOLDEN_ANSWER);
    client_generate(&other, 2, GOLDEN_ANSWER);
    client_cancel(&c, 1);
    client_cancel(&c, 2);
    client_await(&c, &c.answers[1].n_done, 1);
    client_await(&c, &c.answers[2].n_done, 1);
    client_generate(&c, 7, 1); /* there is room again */
    for (uint32_t id = 3; id <= MOST_WAITING; id++)
        client_cancel(&c, id);
    client_acknowledge(&c, 64);
    client_await(&c, &c.answers[7].n_done, 1);
    client_await(&other, &other.answers[1].n_done, 1);
    client_await(&other, &other.answers[2].n_done, 1);
    check_answer(&other.answers[1], GOLDEN_ANSWER);
    channel_close(c.channel, 0);
    channel_close(other.channel, 0);
    await_count(count_frontends, 0);
}

static void generate_with_stop(struct client *c, uint64_t id)
{
    static uint8_t text[REQUEST_STOP_BYTES];
    uint32_t prompt = 1;
    ProtobufCBinaryData stop = {sizeof text, text};
    Moed__V1__Generate generate = MOED__V1__GENERATE__INIT;
    generate.n_stop = 1;
    generate.stop = &stop;
    generate.n_tokens = 1;
    generate.tokens = &prompt;
    generate.ignore_end = true;
    client_submit(c, id, &generate);
}

/* So it is with their memory; and all frontends together have a limit. */
static void test_most_bytes(void **state)
{
    static struct client c, other;
    (void)state;
    client_attach(&c);
    client_attach(&other);
    for (uint32_t id = 1; id <= 4; id++) /* of 128 KiB: strbufs double */
        generate_with_stop(&c, id);
    client_await(&c, &c.answers[4].n_errors, 1);
    assert_true(c.answers[4].retry);
    generate_with_stop(&other, 1);
    generate_with_stop(&other, 2);
    client_await(&other, &other.answers[2].n_errors, 1);
    for (uint32_t id = 1; id <= 3; id++) {
        client_cancel(&c, id);
        client_await(&c, &c.answers[id].n_done, 1);
        assert_int_equal(c.answers[id].n_errors, 0);
    }
    other.answers[2] = (struct answer){0};
    generate_with_stop(&other, 2);
    client_cancel(&other, 2);
    client_await(&other, &other.answers[2].n_done, 1);
    assert_int_equal(other.answers[1].n_errors + other.answers[2].n_errors, 0);
    channel_close(c.channel, 0);
    channel_close(other.channel, 0);
    await_count(count_frontends, 0);
}

/* A deadline is for the start of an answer, not for that of its continuation. It ends a request
 * while all slots are in use. */
static void test_deadline(void **state)
{
    static uint32_t before = 7;
    static struct client c, other;
    (void)state;
    client_attach(&c);
    client_attach(&other);
    client_generate(&c, 1, 0);
    client_generate(&c, 2, 0);
    await_count(count_running, 2);                /* the first alone may use up the window */
    client_await(&c, &c.events, FRONTEND_WINDOW); /* they keep both slots */
    for (uint32_t id = 2; id >= 1; id--) {
        Moed__V1__Generate generate = MOED__V1__GENERATE__INIT;
        generate.max_tokens = 4;
        generate.deadline_ms = 1;
        generate.n_answer = id - 1;
        generate.answer = &before;
        client_submit_short(&other, id, &generate);
        if (id == 2)
            await_count(count_requests, 3);
    }
    client_await(&other, &other.answers[1].n_errors, 1);
    client_cancel(&c, 1);
    client_cancel(&c, 2);
    client_await(&other, &other.answers[2].n_done, 1);
    assert_non_null(strstr(other.answers[1].message, "deadline"));
    channel_close(c.channel, 0);
    channel_close(other.channel, 0);
    await_count(count_frontends, 0);
}

/* ---- The prompt of a chat template ---- */

/* It is the prompt that its text gives; what the client sends as tokens for workers that do not
 * know the field is not read. */
static void test_rendered(void **state)
{
    static struct client c;
    static uint8_t text[] = "the cat";
    uint32_t none = UINT32_MAX;
    Moed__V1__TokenizeRequest rendered = MOED__V1__TOKENIZE_REQUEST__INIT;
    rendered.text = (ProtobufCBinaryData){sizeof text - 1, text};
    rendered.add_special = true;
    (void)state;
    client_attach(&c);
    for (uint64_t id = 1; id <= 2; id++) {
        Moed__V1__Generate generate = MOED__V1__GENERATE__INIT;
        if (id == 1) {
            generate.prompt = rendered.text;
        } else {
            generate.rendered = &rendered;
            generate.tokens = &none;
            generate.n_tokens = 1;
        }
        generate.max_tokens = 4;
        generate.ignore_end = true;
        client_submit(&c, id, &generate);
        client_await(&c, &c.answers[id].n_done, 1);
    }
    assert_int_equal(c.answers[1].n_tokens, 4);
    assert_int_equal(c.answers[2].n_tokens, 4);
    assert_memory_equal(c.answers[2].tokens, c.answers[1].tokens, 4 * sizeof *c.answers[1].tokens);
    channel_close(c.channel, 0);
    await_count(count_frontends, 0);
}

/* ---- Grammars ---- */

static Moed__V1__Grammar grammar_of(Moed__V1__Grammar__Kind kind, const char *text)
{
    Moed__V1__Grammar g = MOED__V1__GRAMMAR__INIT;
    g.kind = kind;
    g.text = (ProtobufCBinaryData){strlen(text), (uint8_t *)text};
    return g;
}

/* An answer under a grammar that its worker left anywhere goes on to the same tokens; one that was
 * whole already only ends. */
static void test_grammar_continued(void **state)
{
    static struct client c;
    const struct answer *whole = &c.answers[0], *rest = &c.answers[1];
    Moed__V1__Grammar grammar = grammar_of(MOED__V1__GRAMMAR__KIND__JSON_SCHEMA,
                                           "{\"type\":\"array\",\"minItems\":3,\"maxItems\":3,"
                                           "\"items\":{\"enum\":[\"yes\",\"no\",17]}}");
    Moed__V1__Sampling sampling = MOED__V1__SAMPLING__INIT;
    Moed__V1__Generate generate = MOED__V1__GENERATE__INIT;
    (void)state;
    client_attach(&c);
    sampling.has_temperature = true;
    sampling.temperature = 2;
    generate.sampling = &sampling;
    generate.grammar = &grammar;
    client_submit_short(&c, 0, &generate);
    client_await(&c, &whole->n_done, 1);
    assert_int_equal(whole->reason, FINISH_END);
    for (uint32_t cut = 1; cut <= whole->n_tokens; cut++) {
        c.answers[1] = (struct answer){0};
        generate.answer = (uint32_t *)whole->tokens;
        generate.n_answer = cut;
        client_submit_short(&c, 1, &generate);
        client_await(&c, &rest->n_done, 1);
        assert_int_equal(rest->reason, FINISH_END);
        assert_int_equal(rest->n_tokens, whole->n_tokens - cut);
        assert_memory_equal(rest->tokens, whole->tokens + cut,
                            rest->n_tokens * sizeof *rest->tokens);
        client_acknowledge(&c, 64);
    }
    uint32_t strange[] = {whole->tokens[0], 'x'};
    generate.answer = strange;
    generate.n_answer = 2;
    client_submit_short(&c, 1, &generate);
    client_await(&c, &rest->n_errors, 1);
    assert_non_null(strstr(rest->message, "does not follow its grammar"));
    channel_close(c.channel, 0);
    await_count(count_frontends, 0);
}

/* Reasoning begins where the model writes the begin, and ends at its limit; what is forbidden comes
 * up to there. Also where the answer is continued. */
static void test_reasoning_limit(void **state)
{
    enum { LIMIT = 5 };
    static struct client c;
    static uint8_t begin[] = "tt", end[] = "</t>";
    const struct answer *whole = &c.answers[0], *rest = &c.answers[1];
    uint32_t forced[] = {'<', '/', 't', '>'}, forbidden = 't';
    ProtobufCBinaryData ends = {4, end};
    Moed__V1__LogitBias bias = MOED__V1__LOGIT_BIAS__INIT, *biases = &bias;
    Moed__V1__Sampling sampling = MOED__V1__SAMPLING__INIT;
    Moed__V1__ReasoningLimit limit = MOED__V1__REASONING_LIMIT__INIT;
    Moed__V1__Generate generate = MOED__V1__GENERATE__INIT;
    (void)state;
    client_attach(&c);
    bias.has_token = bias.has_bias = true;
    bias.token = 't';
    bias.bias = 1000;
    sampling.n_bias = 1;
    sampling.bias = &biases;
    limit.tokens = LIMIT;
    limit.begin = (ProtobufCBinaryData){2, begin};
    limit.n_ends = 1;
    limit.ends = &ends;
    limit.n_forced = 4;
    limit.forced = forced;
    limit.n_forbidden = 1;
    limit.forbidden = &forbidden;
    generate.max_tokens = 20;
    generate.ignore_end = true;
    generate.sampling = &sampling;
    generate.reasoning = &limit;
    client_submit_short(&c, 0, &generate);
    client_await(&c, &whole->n_done, 1);
    assert_int_equal(whole->n_tokens, 20);
    for (uint32_t i = 0; i < 20; i++) { /* the begin's second token is the first of reasoning */
        assert_int_equal(whole->forced[i], i > LIMIT && i <= LIMIT + 4);
        if (whole->forced[i])
            assert_int_equal(whole->tokens[i], forced[i - LIMIT - 1]);
        else
            assert_int_equal(whole->tokens[i] == 't', i <= LIMIT);
    }
    for (uint32_t cut = 1; cut <= 12; cut++) {
        c.answers[1] = (struct answer){0};
        generate.answer = (uint32_t *)whole->tokens;
        generate.n_answer = cut;
        client_submit_short(&c, 1, &generate);
        client_await(&c, &rest->n_done, 1);
        assert_int_equal(rest->n_tokens, 20 - cut);
        assert_memory_equal(rest->tokens, whole->tokens + cut,
                            rest->n_tokens * sizeof *rest->tokens);
        assert_memory_equal(rest->forced, whole->forced + cut,
                            rest->n_tokens * sizeof *rest->forced);
        client_acknowledge(&c, 64);
    }
    channel_close(c.channel, 0);
    await_count(count_frontends, 0);
}

typedef void spoil(Moed__V1__Generate *g, Moed__V1__Sampling *s);

static void hot(Moed__V1__Generate *g, Moed__V1__Sampling *s)
{
    s->has_temperature = true;
    s->temperature = 101;
}

static void no_number(Moed__V1__Generate *g, Moed__V1__Sampling *s)
{
    s->has_min_p = true;
    s->min_p = NAN;
}

static void first_mirostat(Moed__V1__Generate *g, Moed__V1__Sampling *s)
{
    s->has_mirostat = true;
    s->mirostat = 1;
}

static void strange_order(Moed__V1__Generate *g, Moed__V1__Sampling *s)
{
    s->order = (char *)"kq";
}

static void long_breaker(Moed__V1__Generate *g, Moed__V1__Sampling *s)
{
    static uint8_t text[41];
    static ProtobufCBinaryData breaker = {sizeof text, text};
    s->n_dry_breakers = 1;
    s->dry_breakers = &breaker;
}

static void strange_bias(Moed__V1__Generate *g, Moed__V1__Sampling *s)
{
    static Moed__V1__LogitBias bias = MOED__V1__LOGIT_BIAS__INIT, *list = &bias;
    bias.has_token = true;
    bias.token = VOCAB;
    s->n_bias = 1;
    s->bias = &list;
}

static void endless_bias(Moed__V1__Generate *g, Moed__V1__Sampling *s)
{
    strange_bias(g, s);
    s->bias[0]->token = 1;
    s->bias[0]->has_bias = true;
    s->bias[0]->bias = INFINITY;
}

static void strange_stop_token(Moed__V1__Generate *g, Moed__V1__Sampling *s)
{
    static uint32_t token = VOCAB;
    g->n_stop_tokens = 1;
    g->stop_tokens = &token;
}

static void much_least(Moed__V1__Generate *g, Moed__V1__Sampling *s)
{
    g->min_tokens = g->max_tokens + 1;
}

static void many_tops(Moed__V1__Generate *g, Moed__V1__Sampling *s)
{
    g->logprobs = true;
    g->top_logprobs = 65;
}

static void tops_alone(Moed__V1__Generate *g, Moed__V1__Sampling *s)
{
    g->top_logprobs = 1;
}

#define SPOIL_REASONING(name, ...)                                                                 \
    static void name(Moed__V1__Generate *g, Moed__V1__Sampling *s)                                 \
    {                                                                                              \
        static uint8_t text[REASONING_MARK_BYTES + 1];                                             \
        static ProtobufCBinaryData marks[REASONING_ENDS_MAX + 1];                                  \
        static uint32_t tokens[REASONING_TOKENS_MAX + 1];                                          \
        static Moed__V1__ReasoningLimit limit;                                                     \
        moed__v1__reasoning_limit__init(&limit);                                                   \
        marks[0] = (ProtobufCBinaryData){1, text};                                                 \
        tokens[0] = 1;                                                                             \
        limit.tokens = 1;                                                                          \
        limit.n_forced = limit.n_ends = 1;                                                         \
        limit.forced = limit.forbidden = tokens;                                                   \
        limit.ends = marks;                                                                        \
        g->reasoning = &limit;                                                                     \
        __VA_ARGS__;                                                                               \
    }
SPOIL_REASONING(no_reasoning, limit.tokens = 0)
SPOIL_REASONING(none_forced, limit.n_forced = 0)
SPOIL_REASONING(many_forced, limit.n_forced = REASONING_TOKENS_MAX + 1)
SPOIL_REASONING(many_forbidden, limit.n_forbidden = REASONING_TOKENS_MAX + 1)
SPOIL_REASONING(many_ends, limit.n_ends = REASONING_ENDS_MAX + 1)
SPOIL_REASONING(strange_forced, tokens[0] = VOCAB)
SPOIL_REASONING(empty_end, marks[0].len = 0)
SPOIL_REASONING(long_end, marks[0].len = sizeof text)
SPOIL_REASONING(long_begin, limit.begin = ((ProtobufCBinaryData){sizeof text, text}))

#define SPOIL_GRAMMAR(name, kind, text, ...)                                                       \
    static void name(Moed__V1__Generate *g, Moed__V1__Sampling *s)                                 \
    {                                                                                              \
        static ProtobufCBinaryData mark = {3, (uint8_t *)"<x>"};                                   \
        static Moed__V1__Grammar grammar;                                                          \
        grammar = grammar_of(MOED__V1__GRAMMAR__KIND__##kind, text);                               \
        g->ignore_end = false;                                                                     \
        g->grammar = &grammar;                                                                     \
        (void)mark;                                                                                \
        __VA_ARGS__;                                                                               \
    }
SPOIL_GRAMMAR(no_schema, JSON_SCHEMA, "{\"properties\":{\"a\":{\"not\":{}}}}")
SPOIL_GRAMMAR(no_rules, GBNF, "root ::= missing")
SPOIL_GRAMMAR(no_regex, REGEX, "a(")
SPOIL_GRAMMAR(no_choices, CHOICES, "[]")
SPOIL_GRAMMAR(no_kind, CHOICES, "[]", grammar.kind = 9)
SPOIL_GRAMMAR(endless, CHOICES, "[\"a\"]", g->ignore_end = true)
SPOIL_GRAMMAR(no_trigger, CHOICES, "[\"a\"]", grammar.trigger_required = true)
SPOIL_GRAMMAR(marked_choice, CHOICES, "[\"a\"]", grammar.n_marks = 1; grammar.marks = &mark)
SPOIL_GRAMMAR(many_marks, GBNF, "root ::= \"a\"", grammar.n_marks = 12;
              static ProtobufCBinaryData marks[12]; grammar.marks = marks)
static void long_stops(Moed__V1__Generate *g, Moed__V1__Sampling *s)
{
    static uint8_t text[REQUEST_STOP_BYTES / 2 + 1];
    static ProtobufCBinaryData stops[2] = {{sizeof text, text}, {sizeof text, text}};
    g->n_stop = 2;
    g->stop = stops;
}
static void many_stops(Moed__V1__Generate *g, Moed__V1__Sampling *s)
{
    static uint8_t text[] = "x";
    static ProtobufCBinaryData stops[REQUEST_MAX_STOPS + 1];
    for (size_t i = 0; i <= REQUEST_MAX_STOPS; i++)
        stops[i] = (ProtobufCBinaryData){1, text};
    g->n_stop = REQUEST_MAX_STOPS + 1;
    g->stop = stops;
}

SPOIL_GRAMMAR(broken_trigger, CHOICES, "[\"a\"]",
              grammar.trigger = ((ProtobufCBinaryData){2, (uint8_t *)"a\0"}))

/* Each is refused with a message that names it, and the frontend goes on. */
static void test_refused(void **state)
{
    static const struct {
        spoil *how;
        const char *says;
    } cases[] = {{hot, "temperature is 101: expected 0 to 100"},
                 {no_number, "min_p"},
                 {first_mirostat, "mirostat is 1: expected 0 (off) or 2"},
                 {strange_order, "letter 'q'"},
                 {long_breaker, "dry_breakers"},
                 {strange_bias, "logit bias: token"},
                 {endless_bias, "logit bias is inf"},
                 {strange_stop_token, "stop token"},
                 {much_least, "min_tokens is 5: expected at most max_tokens, 4"},
                 {many_tops, "top_logprobs is 65: expected 0 to 64"},
                 {tops_alone, "top_logprobs without logprobs"},
                 {no_reasoning, "at least one token of reasoning"},
                 {none_forced, "at least one token of reasoning"},
                 {many_forced, "65 tokens are forced"},
                 {many_forbidden, "65 forbidden"},
                 {many_ends, "9 ends: give at most 8"},
                 {strange_forced, "reasoning limit: token 320"},
                 {empty_end, "0 bytes: expected 1 to 255"},
                 {long_end, "256 bytes: expected 1 to 255"},
                 {long_begin, "256 bytes: expected 0 to 255"},
                 {no_schema, "schema at \"#/properties/a/not\""},
                 {no_rules, "line 1, column 10 of the grammar"},
                 {no_regex, "column"},
                 {no_choices, "non-empty list"},
                 {no_kind, "unknown kind 9"},
                 {endless, "ignore_end together with a grammar"},
                 {no_trigger, "there is none"},
                 {marked_choice, "only GBNF can have marks"},
                 {many_marks, "12 marks: give at most 11"},
                 {broken_trigger, "NUL"},
                 {many_stops, "129 stop strings: give at most 128"},
                 {long_stops, "stop strings of more than 65536 bytes"}};
    enum { CASES = sizeof cases / sizeof cases[0] };
    static struct client c;
    uint32_t prompt = 1;
    (void)state;
    client_attach(&c);
    for (uint32_t i = 0; i <= CASES; i++) { /* the last one is not spoilt */
        uint32_t id = i % 4 + 1;
        Moed__V1__Sampling sampling = MOED__V1__SAMPLING__INIT;
        Moed__V1__Generate generate = MOED__V1__GENERATE__INIT;
        generate.n_tokens = 1;
        generate.tokens = &prompt;
        generate.max_tokens = 4;
        generate.ignore_end = true;
        generate.sampling = &sampling;
        if (i < CASES)
            cases[i].how(&generate, &sampling);
        struct answer *a = &c.answers[id];
        uint32_t errors = a->n_errors;
        client_submit(&c, id, &generate);
        if (i == CASES) {
            client_await(&c, &a->n_done, 1);
            assert_int_equal(a->n_tokens, 4);
            continue;
        }
        client_await(&c, &a->n_errors, errors + 1);
        if (!strstr(a->message, cases[i].says))
            fail_msg("'%s' does not say '%s'", a->message, cases[i].says);
    }
    channel_close(c.channel, 0);
    await_count(count_frontends, 0);
}

/* The engine stops first: running and later requests fail with an error that asks for a retry. A
 * frontend with a request may be closed or open when the test calls frontends_free. */
static void test_stop(void **state)
{
    static struct client c, gone;
    (void)state;
    client_attach(&c);
    client_attach(&gone);
    client_generate(&gone, 1, 0);
    client_generate(&c, 1, 0);
    client_await(&c, &c.answers[1].n_tokens, 1);
    channel_close(gone.channel, 0);
    engine_stop(b.engine);
    client_await(&c, &c.answers[1].n_errors, 1);
    client_generate(&c, 2, 1);
    client_await(&c, &c.answers[2].n_errors, 1);
    assert_true(c.answers[1].retry && c.answers[2].retry);
    assert_int_equal(c.answers[1].n_done + c.answers[2].n_done, 0);
    assert_int_equal(c.answers[2].n_tokens, 0);
    channel_close(c.channel, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_cancel, open_worker, close_worker),
        cmocka_unit_test_setup_teardown(test_refused, open_worker, close_worker),
        cmocka_unit_test_setup_teardown(test_rendered, open_worker, close_worker),
        cmocka_unit_test_setup_teardown(test_grammar_continued, open_worker, close_worker),
        cmocka_unit_test_setup_teardown(test_reasoning_limit, open_worker, close_worker),
        cmocka_unit_test_setup_teardown(test_model_defaults, open_worker, close_worker),
        cmocka_unit_test_setup_teardown(test_same_id, open_worker, close_worker),
        cmocka_unit_test_setup_teardown(test_most_requests, open_worker, close_worker),
        cmocka_unit_test_setup_teardown(test_most_bytes, open_worker, close_worker),
        cmocka_unit_test_setup_teardown(test_deadline, open_worker, close_worker),
        cmocka_unit_test_setup_teardown(test_window, open_worker, close_worker),
        cmocka_unit_test_setup_teardown(test_gone, open_worker, close_worker),
        cmocka_unit_test_setup_teardown(test_stop, open_worker, close_worker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
