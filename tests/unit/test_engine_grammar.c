/* Answers under a grammar (worker/sample/grammar_cursor.h), by the engine. The model is random, so
 * every token that fits comes by the grammar; the truth is the definition, worked by hand. */
#include "engine_bench.h"

#include "worker/sample/grammar_cursor.h"

#include <jansson.h>
#include <math.h>
#include <time.h>

static struct engine_bench b;
static struct grammars *grammars;

static int open_bench(void **state)
{
    (void)state;
    bench_open(&b, 3);
    bench_start(&b);
    grammars = grammars_new(b.tokenizer, NULL);
    assert_non_null(grammars);
    return 0;
}

static int close_bench(void **state)
{
    (void)state;
    bench_close(&b);
    grammars_free(grammars);
    return 0;
}

static void bind(struct request *r, enum grammar_kind kind, const char *text,
                 const struct grammar_start *start)
{
    struct error e;
    struct shared_grammar *g;
    struct grammar_definition d = {.kind = kind, .text = text, .len = strlen(text)};
    must(grammars_get(grammars, &d, &g, &e), &e);
    must(grammar_cursor_new(g, start, &r->stop_tokens, VOCAB, &r->grammar, &e), &e);
    r->guard = grammar_cursor_guard(r->grammar);
    r->ignore_end = false;
}

/* A request of the golden prompt under a grammar, long enough for any answer of these tests. */
static struct request *bound(struct recorder *c, enum grammar_kind kind, const char *text,
                             float temperature, uint64_t seed)
{
    struct request *r = bench_request(&b, c, REQUEST_GENERATE, GOLDEN_PROMPT);
    bind(r, kind, text, NULL);
    r->max_tokens = 0;
    r->sampling.temperature = temperature;
    r->sampling.seed = seed;
    return r;
}

/* The answer's text; the caller frees it. */
static char *text_of(const struct recorder *c)
{
    struct strbuf text;
    struct error e;
    strbuf_init(&text);
    must(tokenizer_decode(b.tokenizer, c->tokens, c->n_tokens, true, &text, &e), &e);
    strbuf_append(&text, "", 1);
    return text.data;
}

static void check_text(const struct recorder *c, const char *expected)
{
    char *text = text_of(c);
    assert_string_equal(text, expected);
    free(text);
}

#define SCHEMA                                                                                     \
    "{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"integer\",\"minimum\":10,"             \
    "\"maximum\":99},\"word\":{\"enum\":[\"yes\",\"no\"]},\"s\":{\"type\":\"string\","             \
    "\"maxLength\":6},\"list\":{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},"              \
    "\"maxItems\":3}},\"required\":[\"n\",\"word\",\"s\",\"list\"],"                               \
    "\"additionalProperties\":false}"

static void check_object(const struct recorder *c)
{
    char *text = text_of(c);
    json_t *o = json_loads(text, 0, NULL);
    if (!o)
        fail_msg("not JSON: %s", text);
    json_int_t n = json_integer_value(json_object_get(o, "n"));
    const char *word = json_string_value(json_object_get(o, "word"));
    assert_int_equal(json_object_size(o), 4);
    assert_true(n >= 10 && n <= 99);
    assert_true(word && (strcmp(word, "yes") == 0 || strcmp(word, "no") == 0));
    assert_true(json_is_string(json_object_get(o, "s")));
    assert_true(json_array_size(json_object_get(o, "list")) <= 3);
    json_decref(o);
    free(text);
}

/* At every temperature, several at once, with log-probabilities: they are of the model, before the
 * grammar. The answer ends with its last byte, without an end token. */
static void test_schema(void **state)
{
    enum { N = 6 };
    static struct recorder c[N];
    (void)state;
    for (uint32_t i = 0; i < N; i++) {
        struct request *r = bound(&c[i], GRAMMAR_JSON_SCHEMA, SCHEMA, (float)i * 0.5f, i);
        r->logprobs = true;
        r->n_top = 1;
        r->sampling.mirostat = i == 5 ? 2 : 0;
        r->mirostat_mu = 10;
        bench_submit(&c[i]);
    }
    uint32_t less = 0;
    for (uint32_t i = 0; i < N; i++) {
        check_done(&c[i], FINISH_END);
        assert_int_equal(c[i].summary.end_token, -1);
        check_object(&c[i]);
        for (uint32_t k = 0; k < c[i].n_tokens; k++) {
            assert_true(isfinite(c[i].token_logprobs[k]));
            less += c[i].token_logprobs[k] < c[i].best_logprobs[k];
        }
    }
    assert_true(less > 0); /* the grammar took others than the most probable tokens */
    assert_int_equal(grammars_compiled(grammars), 1);
}

/* Requests that lose their pages go on where they were. */
static void test_suspended(void **state)
{
    enum { N = 3 };
    static struct recorder expected[N], c[N];
    static const char digits[] = "[0-9]{100}";
    (void)state;
    for (uint32_t i = 0; i < N; i++) {
        bound(&expected[i], GRAMMAR_REGEX, digits, 1, i);
        bench_submit(&expected[i]);
        check_done(&expected[i], FINISH_END);
    }
    close_bench(state);
    bench_open_with(
        &b, &(struct bench_options){.path = GOLDEN("olmoe.gguf"), .parallel = N, .n_pages = 3});
    grammars = grammars_new(b.tokenizer, NULL);
    for (uint32_t i = 0; i < N; i++) {
        bound(&c[i], GRAMMAR_REGEX, digits, 1, i);
        bench_submit(&c[i]);
    }
    bench_start(&b);
    for (uint32_t i = 0; i < N; i++) {
        check_done(&c[i], FINISH_END);
        assert_int_equal(c[i].n_tokens, expected[i].n_tokens);
        assert_memory_equal(c[i].tokens, expected[i].tokens, c[i].n_tokens * sizeof c[i].tokens[0]);
    }
    assert_true(counter_read(b.engine->counters.suspended) > 0);
}

static void bias(struct request *r, uint32_t token, float value)
{
    r->biases = realloc(r->biases, (r->n_biases + 1) * sizeof *r->biases);
    r->biases[r->n_biases++] = (struct sampler_bias){token, value};
}

/* A stop token comes only where the answer may end; an end of the grammar ends it before
 * min_tokens, which elsewhere forbids the end. */
static void test_stop_tokens(void **state)
{
    static struct recorder c;
    (void)state;
    for (uint32_t min = 0; min <= 6; min += 6) {
        struct request *r = bound(&c, GRAMMAR_REGEX, "(ab){2,5}", 0, 0);
        assert_true(token_list_push(&r->stop_tokens, 'z'));
        bias(r, 'a', 100);
        bias(r, 'z', 1000);
        r->ends = malloc(sizeof *r->ends);
        r->ends[0] = 'z';
        r->n_ends = 1;
        r->min_tokens = min;
        bench_submit(&c);
        check_done(&c, FINISH_END);
        check_text(&c, min ? "ababab" : "abab");
        assert_int_equal(c.summary.end_token, 'z');
    }
    bound(&c, GRAMMAR_CHOICE, "[\"yes\"]", 0, 0)->min_tokens = 50;
    bench_submit(&c);
    check_done(&c, FINISH_END);
    check_text(&c, "yes");
}

/* A stop string and max_tokens still cut the answer. */
static void test_cut(void **state)
{
    static struct recorder c;
    (void)state;
    struct request *r = bound(&c, GRAMMAR_CHOICE, "[\"yes, sir\"]", 0, 0);
    strbuf_append(&r->stops[r->n_stops++], ",", 1);
    bench_submit(&c);
    check_done(&c, FINISH_STOP);
    bound(&c, GRAMMAR_CHOICE, "[\"yes, sir\"]", 0, 0)->max_tokens = 3;
    bench_submit(&c);
    check_done(&c, FINISH_LENGTH);
    check_text(&c, "yes");
}

/* The grammar binds behind the trigger, before which the answer may end, unless it is required. */
static void test_trigger(void **state)
{
    static struct recorder c;
    uint32_t end = (uint32_t)tokenizer_eos(b.tokenizer);
    (void)state;
    for (int required = 0; required < 2; required++)
        for (int ends = 0; ends < 2; ends++) {
            struct request *r = bench_request(&b, &c, REQUEST_GENERATE, GOLDEN_PROMPT);
            struct grammar_start start = {.trigger = "q", .required = required};
            bind(r, GRAMMAR_CHOICE, "[\"yes\",\"no\"]", &start);
            bias(r, 'q', 500);
            bias(r, 'n', 100);
            bias(r, end, ends ? 1000 : 0);
            bench_submit(&c);
            check_done(&c, FINISH_END);
            check_text(&c, ends && !required ? "" : "qno");
            assert_int_equal(c.summary.end_token, ends && !required ? (int)end : -1);
        }
}

/* No token that the grammar allows is left: the request fails with one line, the others go on. */
static void test_nothing_left(void **state)
{
    static struct recorder c, other;
    (void)state;
    for (int temperature = 0; temperature < 2; temperature++) {
        struct request *r = bound(&c, GRAMMAR_REGEX, "a+b", (float)temperature, 0);
        bias(r, 'a', -INFINITY);
        bias(r, 'b', -INFINITY);
        bench_submit(&c);
        bound(&other, GRAMMAR_JSON_SCHEMA, SCHEMA, 1, 3);
        bench_submit(&other);
        check_failed(&c, ERROR_USAGE);
        assert_non_null(strstr(c.text, "excluded"));
        check_done(&other, FINISH_END);
        check_object(&other);
    }
}

/* The last grammars stay compiled; one in use outlives its place in the list. */
static void test_cache(void **state)
{
    struct shared_grammar *first, *g;
    struct error e;
    char text[32];
    struct grammar_definition d = {.kind = GRAMMAR_REGEX, .text = "first", .len = 5};
    (void)state;
    must(grammars_get(grammars, &d, &first, &e), &e);
    for (uint32_t round = 0; round < 2; round++)
        for (uint32_t i = 0; i < GRAMMARS_CACHED; i++) {
            snprintf(text, sizeof text, "number %u", i);
            must(grammars_get(grammars,
                              &(struct grammar_definition){
                                  .kind = GRAMMAR_REGEX, .text = text, .len = strlen(text)},
                              &g, &e),
                 &e);
            grammars_release(g);
        }
    assert_int_equal(grammars_compiled(grammars), GRAMMARS_CACHED + 1);
    assert_true(grammar_states(shared_grammar_compiled(first)) > 0);
    must(grammars_get(grammars, &d, &g, &e), &e); /* it left the list, and is compiled again */
    assert_int_equal(grammars_compiled(grammars), GRAMMARS_CACHED + 2);
    assert_true(g != first);
    grammars_release(g);
    grammars_release(first);
    d.text = "[{", d.len = 2;
    assert_int_equal(grammars_get(grammars, &d, &g, &e), ERROR_USAGE);
}

/* A schema that a new grammar cannot follow counts once. */
static void test_replaced(void **state)
{
    static const char text[] =
        "root ::= %json {\"not\":{}} %else any | %json {\"type\":\"null\"} %else "
        "any\nany ::= \"a\"\n";
    struct grammar_definition d = {.kind = GRAMMAR_GBNF, .text = text, .len = strlen(text)};
    struct metrics *m = metrics_new();
    struct counter *c = metrics_counter(m, "moed_test_schemas_total", NULL, 1, "Schemas.");
    struct grammars *counting = grammars_new(b.tokenizer, c);
    struct shared_grammar *g;
    struct error e;
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        must(grammars_get(counting, &d, &g, &e), &e);
        grammars_release(g);
        assert_int_equal(counter_read(c), 1);
    }
    grammars_free(counting);
    metrics_free(m);
}

/* The next answer gets the matcher of an earlier one, of the four grammars used last. */
static void test_idle_matchers(void **state)
{
    enum { N = GRAMMARS_IDLE + 1 };
    struct shared_grammar *g[N];
    struct grammar_matcher *m[N], *again;
    struct error e;
    char text[N][2];
    (void)state;
    for (int i = 0; i < N; i++) {
        snprintf(text[i], sizeof text[i], "%c", 'a' + i);
        struct grammar_definition d = {.kind = GRAMMAR_REGEX, .text = text[i], .len = 1};
        must(grammars_get(grammars, &d, &g[i], &e), &e);
        must(shared_grammar_take_matcher(g[i], NULL, &m[i], &e), &e);
    }
    for (int i = 0; i < N; i++) {
        assert_true(grammar_matcher_advance(m[i], (uint32_t)('a' + i)));
        shared_grammar_give_matcher(g[i], m[i]);
    }
    for (int i = 0; i < N; i++) {
        must(shared_grammar_take_matcher(g[i], NULL, &again, &e), &e);
        if (i > 0)
            assert_ptr_equal(again, m[i]);
        assert_true(grammar_matcher_accepts(again, (uint32_t)('a' + i)));
        assert_false(grammar_matcher_is_complete(again));
        shared_grammar_give_matcher(g[i], again);
        grammars_release(g[i]);
    }
}

/* Large grammars leave the list sooner. */
static void test_large_in_cache(void **state)
{
    enum { CHARACTERS = 60000 };
    static char text[CHARACTERS];
    static const char names[] = "xyzyzx"; /* x left the list for z */
    struct shared_grammar *g;
    struct error e;
    (void)state;
    memset(text, 'a', sizeof text);
    memcpy(text, "[\"", 2);
    memcpy(text + CHARACTERS - 2, "\"]", 2);
    for (uint32_t i = 0; names[i]; i++) {
        struct grammar_definition d = {.kind = GRAMMAR_CHOICE, .text = text, .len = sizeof text};
        text[2] = names[i];
        must(grammars_get(grammars, &d, &g, &e), &e);
        grammars_release(g);
    }
    assert_int_equal(grammars_compiled(grammars), 4);
}

/* What requests hold is limited, and a grammar that is refused costs nothing later. */
static void test_held(void **state)
{
    enum { CHARACTERS = 60000, MOST = GRAMMARS_HELD / CHARACTERS };
    static char text[CHARACTERS];
    struct shared_grammar *g[MOST + 1], *again;
    struct error e;
    int held = 0;
    (void)state;
    memset(text, 'a', sizeof text);
    memcpy(text, "[\"", 2);
    memcpy(text + CHARACTERS - 2, "\"]", 2);
    struct grammar_definition d = {.kind = GRAMMAR_CHOICE, .text = text, .len = sizeof text};
    for (int round = 0; round < 2; round++) {
        for (held = 0; held <= MOST; held++) {
            text[2] = (char)('a' + held);
            if (grammars_get(grammars, &d, &g[held], &e))
                break;
        }
        assert_int_equal(e.code, ERROR_BUSY);
        assert_in_range(held, MOST - 1, MOST);
        text[2] = 'a' + 1; /* it is held, and perhaps not in the list any more */
        grammars_release(g[0]);
        must(grammars_get(grammars, &d, &again, &e), &e);
        grammars_release(again);
        for (int i = 1; i < held; i++)
            grammars_release(g[i]);
    }
}

/* Answers to a grammar that needs many steps for each token. */
static void bind_long(struct recorder *c, int n, uint32_t tokens)
{
    enum { CALLERS = 6000, LETTERS = 26 };
    struct strbuf text;
    strbuf_init(&text);
    strbuf_printf(&text, "letters ::= %%all(");
    for (int i = 0; i < LETTERS; i++)
        strbuf_printf(&text, "%s\"%c\"", i ? "|" : "", 'a' + i);
    strbuf_printf(&text, ")\nroot ::= letters \"0\"");
    for (int i = 1; i < CALLERS; i++)
        strbuf_printf(&text, "|letters \"%d\"", i);
    for (int i = 0; i < n; i++)
        bound(&c[i], GRAMMAR_GBNF, text.data, 1, (uint64_t)i)->max_tokens = tokens;
    strbuf_fini(&text);
}

/* Grammars that need many steps for each token miss turns, and all answers are whole. */
static void test_long_grammars_share_a_step(void **state)
{
    enum { N = 6, TOKENS = 8 };
    static struct recorder c[N];
    (void)state;
    bench_open(&b, N);
    grammars = grammars_new(b.tokenizer, NULL);
    bind_long(c, N, TOKENS);
    for (int i = 0; i < N; i++)
        bench_submit(&c[i]);
    bench_start(&b);
    for (int i = 0; i < N; i++) {
        check_done(&c[i], FINISH_LENGTH);
        assert_int_equal(c[i].n_tokens, TOKENS);
    }
    assert_true(counter_read(b.engine->counters.decode_stalled) > 0);
}

enum { FIRST_TOKENS = 6 };
static struct recorder plain, long_ones[FIRST_TOKENS];
static uint32_t n_first, most_first; /* since the plain answer's last token, and at most */

static void count_first_tokens(void *arg, const struct response_tokens *event)
{
    struct recorder *c = arg;
    if (c == &plain && c->n_tokens == 0)
        for (int i = 0; i < FIRST_TOKENS; i++)
            bench_submit(&long_ones[i]);
    n_first = c == &plain ? 0 : n_first + event->first;
    most_first = n_first > most_first ? n_first : most_first;
    record_tokens(c, event);
}

/* Prompts that end in one batch share its time, too: for their first tokens. */
static void test_long_grammars_begin(void **state)
{
    enum { PLAIN = 100 };
    static struct response_sink sink;
    (void)state;
    bench_open(&b, FIRST_TOKENS + 1);
    grammars = grammars_new(b.tokenizer, NULL);
    sink = recording_sink;
    sink.tokens = count_first_tokens;
    bind_long(long_ones, FIRST_TOKENS, 1);
    for (int i = 0; i < FIRST_TOKENS; i++)
        long_ones[i].request->sink = &sink;
    struct request *r = bench_request(&b, &plain, REQUEST_GENERATE, GOLDEN_PROMPT);
    r->sink = &sink;
    r->max_tokens = PLAIN;
    n_first = most_first = 0;
    bench_submit(&plain);
    bench_start(&b);
    for (int i = 0; i < FIRST_TOKENS; i++)
        check_done(&long_ones[i], FINISH_LENGTH);
    check_done(&plain, FINISH_LENGTH);
    assert_in_range(most_first, 1, FIRST_TOKENS - 1);
}

static uint32_t tokens_at_stop;
static struct recorder *other_at_stop;

/* The first answer's end: from here on the engine stops. */
static void stop_begins(void *arg, const struct response_summary *summary)
{
    struct recorder *c = arg;
    tokens_at_stop = recorder_read(other_at_stop, &other_at_stop->n_tokens);
    record_done(c, summary);
    for (bool stopping = false; !stopping;) {
        pthread_mutex_lock(&c->engine->lock);
        stopping = c->engine->stopping;
        pthread_mutex_unlock(&c->engine->lock);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

/* An engine that stops computes no mask more. */
static void test_stop_between_masks(void **state)
{
    static struct response_sink sink;
    static struct recorder c[2];
    (void)state;
    bench_open(&b, 2);
    grammars = grammars_new(b.tokenizer, NULL);
    struct request *first = bound(&c[0], GRAMMAR_REGEX, "a{3}", 0, 0);
    sink = recording_sink;
    sink.done = stop_begins;
    first->sink = &sink;
    bound(&c[1], GRAMMAR_REGEX, "b{100}", 0, 0);
    other_at_stop = &c[1];
    bench_submit(&c[0]);
    bench_submit(&c[1]);
    bench_start(&b);
    check_done(&c[0], FINISH_END);
    engine_stop(b.engine);
    check_failed(&c[1], ERROR_UNAVAILABLE);
    assert_int_equal(c[1].n_tokens, tokens_at_stop);
}

static void *use_grammars(void *arg)
{
    unsigned seed = *(const unsigned *)arg;
    for (unsigned i = 0; i < 200; i++) {
        struct shared_grammar *g;
        struct grammar_matcher *m;
        struct error e;
        char text = (char)('a' + (seed * 7 + i * (seed + 3)) % (GRAMMARS_CACHED + 4));
        struct grammar_definition d = {.kind = GRAMMAR_REGEX, .text = &text, .len = 1};
        must(grammars_get(grammars, &d, &g, &e), &e);
        must(shared_grammar_take_matcher(g, NULL, &m, &e), &e);
        if (!grammar_matcher_advance(m, (uint32_t)text) || !grammar_matcher_is_final(m))
            abort();
        shared_grammar_give_matcher(g, m);
        grammars_release(g);
    }
    return NULL;
}

/* Frontends' threads share the grammars. */
static void test_threads(void **state)
{
    enum { N = 4 };
    pthread_t threads[N];
    unsigned seeds[N] = {0, 1, 2, 3};
    (void)state;
    for (int i = 0; i < N; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use_grammars, &seeds[i]), 0);
    for (int i = 0; i < N; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
}

#define SENTENCE                                                                                   \
    "root ::= \"The quick brown fox jumps over the lazy dog and the owl hunts at night.\""

/* Drafts change no token. What a grammar forces is drafted, and no token that it refuses. */
static void test_drafts(void **state)
{
    enum { N = 5 };
    static struct recorder without[N], c;
    (void)state;
    for (uint32_t drafts = 0; drafts < 8; drafts += 7) {
        bench_open_with(&b, &(struct bench_options){
                                .path = GOLDEN("olmoe.gguf"), .parallel = 1, .speculate = drafts});
        bench_start(&b);
        grammars = grammars_new(b.tokenizer, NULL);
        for (uint32_t i = 0; i < N; i++) {
            struct recorder *to = drafts ? &c : &without[i];
            bound(to, i ? GRAMMAR_JSON_SCHEMA : GRAMMAR_GBNF, i ? SCHEMA : SENTENCE,
                  (float)i * 0.4f, i);
            bench_submit(to);
            check_end(to, 1, 0);
            assert_int_equal(to->summary.reason, FINISH_END);
            if (!drafts)
                continue;
            assert_int_equal(c.n_tokens, without[i].n_tokens);
            assert_memory_equal(c.tokens, without[i].tokens, c.n_tokens * sizeof *c.tokens);
            assert_true(c.summary.accepted_tokens > 0);
            assert_true(i || c.n_tokens - c.summary.accepted_tokens <= 20); /* steps */
        }
        if (!drafts)
            close_bench(state);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_schema, open_bench, close_bench),
        cmocka_unit_test_setup_teardown(test_suspended, open_bench, close_bench),
        cmocka_unit_test_setup_teardown(test_stop_tokens, open_bench, close_bench),
        cmocka_unit_test_setup_teardown(test_cut, open_bench, close_bench),
        cmocka_unit_test_setup_teardown(test_trigger, open_bench, close_bench),
        cmocka_unit_test_setup_teardown(test_nothing_left, open_bench, close_bench),
        cmocka_unit_test_setup_teardown(test_cache, open_bench, close_bench),
        cmocka_unit_test_setup_teardown(test_threads, open_bench, close_bench),
        cmocka_unit_test_setup_teardown(test_replaced, open_bench, close_bench),
        cmocka_unit_test_setup_teardown(test_idle_matchers, open_bench, close_bench),
        cmocka_unit_test_setup_teardown(test_held, open_bench, close_bench),
        cmocka_unit_test_setup_teardown(test_large_in_cache, open_bench, close_bench),
        cmocka_unit_test_teardown(test_drafts, close_bench),
        cmocka_unit_test_teardown(test_long_grammars_share_a_step, close_bench),
        cmocka_unit_test_teardown(test_long_grammars_begin, close_bench),
        cmocka_unit_test_teardown(test_stop_between_masks, close_bench),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
