/* Limits of reasoning (worker/serve/reasoning_limit.h). The truth is what two requests give: one
 * for the tokens up to the limit, and one behind these and the forced tokens. The limited one gives
 * the same tokens to the bit, and computes no position twice. */
#include "engine_turns.h"

#include "worker/sample/grammar_cursor.h"

#include <math.h>

#define END "</t>"

enum { PROMPT = 150, LIMIT = 13, FORCED = sizeof END - 1 };

static struct recorder first, second, whole, rest;

static void set_text(struct strbuf *mark, const char *text)
{
    strbuf_append(mark, text, strlen(text));
}

/* The tokenizer's first tokens are bytes. */
static struct reasoning_limit *limit_of(const struct tokenizer *t, uint32_t tokens,
                                        const char *begin)
{
    struct reasoning_limit *l = reasoning_limit_new(t);
    assert_non_null(l);
    l->tokens = tokens;
    set_text(&l->begin, begin);
    set_text(&l->ends[l->n_ends++], END);
    for (uint32_t i = 0; i < FORCED; i++)
        assert_true(token_list_push(&l->forced, (uint32_t)END[i]));
    return l;
}

static struct request *limited(struct recorder *c, uint32_t n_prompt)
{
    struct request *r = request_of(c, n_prompt, n_prompt);
    r->reasoning = limit_of(b.tokenizer, LIMIT, "");
    return r;
}

static void assert_part(const struct recorder *a, uint32_t at, const struct recorder *part)
{
    assert_memory_equal(a->tokens + at, part->tokens, part->n_tokens * sizeof *a->tokens);
    assert_memory_equal(a->token_logprobs + at, part->token_logprobs,
                        part->n_tokens * sizeof *a->token_logprobs);
}

/* The answer is that of the two requests, and exactly the tokens between them are forced. */
static void assert_limited(const struct recorder *a)
{
    assert_int_equal(a->n_tokens, first.n_tokens + FORCED + second.n_tokens);
    assert_part(a, 0, &first);
    assert_part(a, LIMIT + FORCED, &second);
    for (uint32_t i = 0; i < a->n_tokens; i++)
        assert_int_equal(a->forced[i], i >= LIMIT && i < LIMIT + FORCED);
    for (uint32_t i = 0; i < FORCED; i++)
        assert_int_equal(a->tokens[LIMIT + i], END[i]);
}

/* Returns how many positions they computed. */
static uint64_t answer_in_two(uint32_t n_prompt)
{
    request_of(&first, n_prompt, n_prompt)->max_tokens = LIMIT;
    bench_submit(&first);
    check_done(&first, FINISH_LENGTH);
    struct request *r = request_of(&second, n_prompt, n_prompt);
    for (uint32_t i = 0; i < LIMIT; i++)
        assert_true(token_list_push(&r->tokens, first.tokens[i]));
    for (uint32_t i = 0; i < FORCED; i++)
        assert_true(token_list_push(&r->tokens, (uint32_t)END[i]));
    r->n_prompt = r->n_prefill = (uint32_t)r->tokens.count;
    r->max_tokens = LENGTH - LIMIT - FORCED;
    bench_submit(&second);
    check_done(&second, FINISH_LENGTH);
    return engine_status(b.engine).prompt_tokens;
}

static void test_same_tokens(void **state)
{
    static const char *const models[] = {GOLDEN("olmoe.gguf"),     GOLDEN("gpt-oss.gguf"),
                                         GOLDEN("qwen35moe.gguf"), GOLDEN("qwen3next.gguf"),
                                         GOLDEN("lfm2moe.gguf"),   GOLDEN("nemotron_h_moe.gguf")};
    (void)state;
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        open_bench(models[m], 0);
        uint64_t computed = answer_in_two(PROMPT);
        assert_true(computed > PROMPT);
        bench_close(&b);
        open_bench(models[m], 0);
        limited(&whole, PROMPT);
        answer(&whole);
        assert_int_equal(engine_status(b.engine).prompt_tokens, PROMPT);
        assert_limited(&whole);
        bench_close(&b);
    }
}

/* Another worker continues the answer, from any token on. */
static void test_continued(void **state)
{
    static const char *const models[] = {GOLDEN("olmoe.gguf"), GOLDEN("qwen35moe.gguf")};
    (void)state;
    for (int m = 0; m < 2; m++) {
        open_bench(models[m], 0);
        limited(&whole, PROMPT);
        answer(&whole);
        for (uint32_t cut = LIMIT - 2; cut < LIMIT + FORCED + 2; cut++) {
            struct request *r = limited(&rest, PROMPT);
            assert_true(request_continue(r, whole.tokens, cut, 0, b.context));
            r->n_prefill = (uint32_t)r->tokens.count;
            bench_submit(&rest);
            check_end(&rest, 1, 0);
            assert_int_equal(rest.n_tokens, LENGTH - cut);
            assert_part(&whole, cut, &rest);
            assert_memory_equal(rest.forced, whole.forced + cut,
                                rest.n_tokens * sizeof *rest.forced);
        }
        bench_close(&b);
    }
}

/* A request that loses its pages in the midst of the forced tokens. */
static void test_suspended(void **state)
{
    enum { LONG = 3 * KV_POOL_TOKENS - LIMIT - 2, PAGES = 7 /* two prompts, and one more page */ };
    static const char *const models[] = {GOLDEN("olmoe.gguf"), GOLDEN("qwen35moe.gguf")};
    static struct recorder alone[N], together[N];
    (void)state;
    for (int m = 0; m < 2; m++) {
        for (int turn = 0; turn < 2; turn++) {
            open_bench_stopped(models[m], turn ? PAGES : 0);
            struct recorder *c = turn ? together : alone;
            for (uint32_t i = 0; i < N; i++) {
                struct request *r = request_of(&c[i], LONG, 60 + i);
                r->reasoning = limit_of(b.tokenizer, LIMIT, "");
                bench_submit(&c[i]);
            }
            bench_start(&b);
            for (uint32_t i = 0; i < N; i++)
                check_done(&c[i], FINISH_LENGTH);
            assert_int_equal(counter_read(b.engine->counters.suspended) > 0, turn);
            bench_close(&b);
        }
        for (uint32_t i = 0; i < N; i++) {
            assert_same(&together[i], &alone[i]);
            assert_memory_equal(together[i].forced, alone[i].forced, sizeof alone[i].forced);
        }
    }
}

/* Tokens that share events keep their log-probabilities; one credit at a time suffices. */
static void test_events(void **state)
{
    (void)state;
    bench_open_with(&b, &(struct bench_options){.path = GOLDEN("olmoe.gguf"),
                                                .parallel = 1,
                                                .shared_events = true,
                                                .speculate = SPECULATE_MOST,
                                                .context = turns_context});
    bench_start(&b);
    answer_in_two(PROMPT);
    limited(&whole, PROMPT);
    answer(&whole);
    assert_limited(&whole);
    assert_true(whole.events < LENGTH);
    limited(&whole, PROMPT);
    whole.window = 1;
    bench_submit(&whole);
    for (uint32_t events = 1; !recorder_read(&whole, &whole.n_done); events++) {
        while (!recorder_read(&whole, &whole.n_done) &&
               recorder_read(&whole, &whole.events) < events)
            sched_yield();
        bench_acknowledge(&whole, 1);
    }
    check_done(&whole, FINISH_LENGTH);
    assert_limited(&whole);
    bench_close(&b);
}

/* A conversation that repeats is drafted, but not across the limit. */
static void test_drafted(void **state)
{
    static struct recorder plain;
    (void)state;
    for (uint32_t speculate = 0; speculate <= SPECULATE_MOST; speculate += SPECULATE_MOST) {
        struct recorder *c = speculate ? &whole : &plain;
        bench_open_with(&b, &(struct bench_options){.path = GOLDEN("olmoe.gguf"),
                                                    .parallel = 1,
                                                    .speculate = speculate,
                                                    .context = turns_context});
        bench_start(&b);
        struct request *r = request_of(c, PROMPT, PROMPT);
        for (uint32_t i = GOLDEN_PROMPT; i < PROMPT; i++)
            r->tokens.ids[i] = r->tokens.ids[i % GOLDEN_PROMPT];
        r->max_tokens = 150;
        r->reasoning = limit_of(b.tokenizer, 60, "");
        bench_submit(c);
        check_done(c, FINISH_LENGTH);
        bench_close(&b);
    }
    assert_true(whole.summary.accepted_tokens > 0);
    assert_same(&whole, &plain);
    assert_memory_equal(whole.forced, plain.forced, sizeof plain.forced);
    assert_true(plain.forced[60] && !plain.forced[60 + FORCED]);
}

/* The forced tokens come only where there is space for them and one more. */
static void test_space(void **state)
{
    (void)state;
    open_bench(GOLDEN("olmoe.gguf"), 0);
    for (uint32_t most = LIMIT - 1; most <= LIMIT + FORCED + 1; most++) {
        bool fits = most > LIMIT + FORCED;
        limited(&whole, PROMPT)->max_tokens = most;
        bench_submit(&whole);
        check_done(&whole, FINISH_LENGTH);
        assert_int_equal(whole.n_tokens, fits || most < LIMIT ? most : LIMIT);
        for (uint32_t left = LIMIT - 1; most == LIMIT && left <= LIMIT + FORCED + 1; left++) {
            fits = left > LIMIT + FORCED;
            limited(&whole, b.context - left)->max_tokens = 0;
            bench_submit(&whole);
            check_done(&whole, FINISH_CONTEXT);
            assert_int_equal(whole.n_tokens, fits || left < LIMIT ? left : LIMIT);
        }
        if (most == LIMIT) { /* the same where another worker gave these tokens */
            struct request *r = limited(&rest, PROMPT);
            r->max_tokens = LIMIT + FORCED;
            assert_true(request_continue(r, whole.tokens, LIMIT, 0, b.context));
            r->n_prefill = (uint32_t)r->tokens.count;
            bench_submit(&rest);
            check_end(&rest, 1, 0);
            assert_int_equal(rest.n_tokens, 0);
            assert_int_equal(rest.summary.reason, FINISH_LENGTH);
        }
    }
    bench_close(&b);
}

static void bias(struct request *r, uint32_t token, float value)
{
    r->biases = realloc(r->biases, (r->n_biases + 2) * sizeof *r->biases);
    r->biases[r->n_biases++] = (struct sampler_bias){token, value};
}

/* Forbidden tokens come until then, also where the answer is continued behind it. */
static void test_forbidden(void **state)
{
    (void)state;
    open_bench(GOLDEN("olmoe.gguf"), 0);
    for (uint32_t cut = 0; cut < LENGTH; cut += LIMIT + FORCED) {
        struct request *r = limited(&rest, PROMPT);
        bias(r, 'q', 1000);
        assert_true(token_list_push(&r->reasoning->forbidden, 'q'));
        if (cut)
            assert_true(request_continue(r, whole.tokens, cut, 0, b.context));
        r->n_prefill = (uint32_t)r->tokens.count;
        bench_submit(&rest);
        check_end(&rest, 1, 0);
        for (uint32_t i = 0; i < rest.n_tokens; i++)
            if (cut + i < LIMIT || cut + i >= LIMIT + FORCED)
                assert_int_equal(rest.tokens[i] == 'q', cut + i < LIMIT);
        whole = cut ? whole : rest;
    }
    bench_close(&b);
}

/* A stop string is found in the forced text, too. */
static void test_stop_string(void **state)
{
    (void)state;
    open_bench(GOLDEN("olmoe.gguf"), 0);
    for (uint32_t n = 1; n <= FORCED; n++) {
        struct request *r = limited(&whole, PROMPT);
        strbuf_append(&r->stops[r->n_stops++], END, n);
        bench_submit(&whole);
        check_done(&whole, FINISH_STOP);
        assert_int_equal(whole.n_tokens, LIMIT + n);
    }
    bench_close(&b);
}

static uint32_t n_texts, n_forced_texts; /* events without tokens */

static void count_text(void *arg, const struct response_tokens *event)
{
    n_texts += event->n_tokens == 0;
    n_forced_texts += event->n_tokens == 0 && event->forced;
    record_tokens(arg, event);
}

/* A forced token that ends the answer has no log-probability, and the text that was held back is
 * not forced. */
static void test_stop_token(void **state)
{
    static struct response_sink sink;
    (void)state;
    sink = recording_sink;
    sink.tokens = count_text;
    n_texts = n_forced_texts = 0;
    open_bench(GOLDEN("olmoe.gguf"), 0);
    answer_in_two(PROMPT);
    for (uint32_t n = 0; n < FORCED; n++) {
        struct error e;
        struct request *r = limited(&whole, PROMPT);
        struct strbuf *stop = &r->stops[r->n_stops++];
        r->sink = &sink;
        assert_true(token_list_push(&r->stop_tokens, (uint32_t)END[n]));
        must(tokenizer_decode(b.tokenizer, &first.tokens[LIMIT - 1], 1, true, stop, &e), &e);
        strbuf_append(stop, END "more", strlen(END "more"));
        bench_submit(&whole);
        check_done(&whole, FINISH_END);
        assert_int_equal(whole.n_tokens, LIMIT + n);
        assert_int_equal(whole.summary.end_token, END[n]);
        assert_int_equal(whole.n_end, 0);
    }
    assert_true(n_texts > 0);
    assert_int_equal(n_forced_texts, 0);
    /* one that the model chose has */
    struct request *r = limited(&whole, PROMPT);
    assert_true(token_list_push(&r->stop_tokens, first.tokens[LIMIT - 1]));
    bench_submit(&whole);
    check_done(&whole, FINISH_END);
    assert_int_equal(whole.n_end, 1);
    bench_close(&b);
}

static struct request *bound(struct grammars *grammars, struct recorder *c, const char *regex)
{
    struct error e;
    struct shared_grammar *g;
    struct grammar_definition d = {.kind = GRAMMAR_REGEX, .text = regex, .len = strlen(regex)};
    struct request *r = limited(c, PROMPT);
    must(grammars_get(grammars, &d, &g, &e), &e);
    must(grammar_cursor_new(g, NULL, &r->stop_tokens, VOCAB, &r->grammar, &e), &e);
    r->guard = grammar_cursor_guard(r->grammar);
    r->ignore_end = false;
    r->logprobs = false;
    return r;
}

/* The grammar follows the forced tokens, or refuses them: then they do not come. */
static void test_grammar(void **state)
{
    (void)state;
    open_bench(GOLDEN("olmoe.gguf"), 0);
    struct grammars *grammars = grammars_new(b.tokenizer, NULL);
    static const char *const regexes[] = {"q+" END "z{5}", "q{20}", "q{13}<q{7}"};
    for (int i = 0; i < 3; i++) {
        bound(grammars, &whole, regexes[i]);
        bench_submit(&whole);
        check_done(&whole, FINISH_END);
        for (uint32_t k = 0; k < whole.n_tokens; k++) {
            bool forced = i == 0 ? k >= LIMIT && k < LIMIT + FORCED : i == 2 && k == LIMIT;
            assert_int_equal(whole.forced[k], forced);
        }
        assert_int_equal(whole.n_tokens, i == 0 ? LIMIT + FORCED + 5 : i == 1 ? 20 : 21);
        for (uint32_t k = LIMIT + FORCED; i == 0 && k < whole.n_tokens; k++)
            assert_int_equal(whole.tokens[k], 'z');
        uint32_t cut = LIMIT + 1; /* behind the first forced token, or the one that came instead */
        struct request *r = bound(grammars, &rest, regexes[i]);
        assert_true(request_continue(r, whole.tokens, cut, 0, b.context));
        r->n_prefill = (uint32_t)r->tokens.count;
        bench_submit(&rest);
        check_end(&rest, 1, 0);
        assert_part(&whole, cut, &rest);
    }
    bench_close(&b);
    grammars_free(grammars);
}

/* After how many bytes of the text the end is forced; 0: it is not. */
static uint32_t forced_after(uint32_t tokens, const char *begin, const char *text)
{
    struct reasoning_limit *l = limit_of(b.tokenizer, tokens, begin);
    uint32_t n = 0, at = 0, token;
    set_text(&l->ends[l->n_ends++], "<c>");
    while (text[n] && !at) {
        assert_false(reasoning_limit_push(l, (unsigned char)text[n++]));
        at = reasoning_limit_forces(l, &token) ? n : 0;
        assert_int_equal(reasoning_limit_left(l), at ? FORCED : 0);
    }
    assert_true(!at || token == (uint32_t)END[0]);
    reasoning_limit_free(l);
    return at;
}

static void test_marks(void **state)
{
    char spaces[REASONING_SPACE_MAX + 8];
    (void)state;
    bench_open(&b, 1);
    assert_int_equal(forced_after(1, "", "abc"), 1);
    assert_int_equal(forced_after(9, "", "abcdefgh"), 0);
    assert_int_equal(forced_after(9, "", "abcdefghi"), 9);
    /* an end at the limit, before it, and cut by it */
    assert_int_equal(forced_after(6, "", "ab</t>xyz"), 0);
    assert_int_equal(forced_after(9, "", "ab</t>xyzxyz"), 0);
    assert_int_equal(forced_after(5, "", "ab</t>xyz"), 5);
    assert_int_equal(forced_after(9, "", "a<c>xyzxyz"), 0);
    assert_int_equal(forced_after(9, "", "<</<<</t>xyz"), 0);
    assert_int_equal(forced_after(9, "", "</x</t/t>xyz"), 9);
    /* a begin mark counts as one token where it is whole, and stands first */
    assert_int_equal(forced_after(1, "<t>", "<t>abc"), 3);
    assert_int_equal(forced_after(3, "<t>", " \n<t>abc"), 7);
    assert_int_equal(forced_after(1, "<t>", "a<t>abc"), 0);
    assert_int_equal(forced_after(1, "<t>", "<tt>abc"), 0);
    assert_int_equal(forced_after(5, "<t>", "<t>a</t>b"), 7);
    assert_int_equal(forced_after(6, "<t>", "<t>a</t>b"), 0);
    assert_int_equal(forced_after(1, "<t>", " \n "), 0);
    memset(spaces, ' ', sizeof spaces);
    strcpy(spaces + REASONING_SPACE_MAX, "<t>ab");
    assert_int_equal(forced_after(2, "<t>", spaces), REASONING_SPACE_MAX + 4);
    memset(spaces, ' ', sizeof spaces);
    strcpy(spaces + REASONING_SPACE_MAX + 1, "<t>ab");
    assert_int_equal(forced_after(2, "<t>", spaces), 0);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_tokens), cmocka_unit_test(test_continued),
        cmocka_unit_test(test_suspended),   cmocka_unit_test(test_events),
        cmocka_unit_test(test_drafted),     cmocka_unit_test(test_space),
        cmocka_unit_test(test_forbidden),   cmocka_unit_test(test_stop_string),
        cmocka_unit_test(test_grammar),     cmocka_unit_test(test_marks),
        cmocka_unit_test(test_stop_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
