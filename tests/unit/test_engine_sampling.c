/* What the worker's engine does with sampling: log-probabilities, what ends an answer, progress,
 * and that an answer can be continued by another worker. The truth: a Logits request's rows, and
 * the golden answer. */
#include "engine_bench.h"

#include <math.h>

static struct engine_bench b;

static int open_bench(void **state)
{
    (void)state;
    bench_open(&b, 2); /* each token is an event: it has its own mu */
    bench_start(&b);
    return 0;
}

static int close_bench(void **state)
{
    (void)state;
    bench_close(&b);
    return 0;
}

/* Each token's log-probability, and the most probable token's, against the rows of logits that
 * precede them. */
static void test_logprobs(void **state)
{
    static struct recorder c, rows, again;
    (void)state;
    struct request *r = bench_request(&b, &c, REQUEST_GENERATE, GOLDEN_PROMPT);
    r->logprobs = true;
    r->n_top = 3;
    r->sampling.temperature = 1.5f;
    r->sampling.repetition_penalty = 1.3f; /* does not change what is reported */
    r->sampling.seed = 5;
    bench_submit(&c);
    check_done(&c, FINISH_LENGTH);
    assert_int_equal(c.n_tokens, GOLDEN_ANSWER);

    r = bench_request(&b, &rows, REQUEST_LOGITS, GOLDEN_PROMPT);
    for (uint32_t i = 0; i < GOLDEN_ANSWER; i++)
        assert_true(token_list_push(&r->tokens, c.tokens[i]));
    bench_set_prompt(r);
    r->stepwise = true;
    bench_submit(&rows);
    check_done(&rows, FINISH_LENGTH);
    uint32_t others = 0;
    for (uint32_t i = 0; i < GOLDEN_ANSWER; i++) {
        const float *row = rows.logits[GOLDEN_PROMPT - 1 + i];
        double sum = 0;
        uint32_t best = 0;
        for (uint32_t k = 0; k < VOCAB; k++) {
            sum += exp((double)row[k]);
            best = row[k] > row[best] ? k : best;
        }
        assert_true(fabs((double)c.token_logprobs[i] - ((double)row[c.tokens[i]] - log(sum))) <
                    1e-3);
        assert_int_equal(c.best[i], best);
        assert_true(fabs((double)c.best_logprobs[i] - ((double)row[best] - log(sum))) < 1e-3);
        others += best != c.tokens[i];
    }
    assert_true(others > 0); /* it was sampled */

    /* Of the same tokens as a prompt. */
    r = bench_request(&b, &again, REQUEST_LOGPROBS, GOLDEN_PROMPT);
    for (uint32_t i = 0; i < GOLDEN_ANSWER; i++)
        assert_true(token_list_push(&r->tokens, c.tokens[i]));
    bench_set_prompt(r);
    r->n_top = 2;
    bench_submit(&again);
    check_done(&again, FINISH_LENGTH);
    for (uint32_t i = 0; i < GOLDEN_ANSWER; i++)
        assert_true(fabsf(again.logprobs[GOLDEN_PROMPT + i] - c.token_logprobs[i]) < 1e-3f);
}

/* A token that ends the answer has the log-probability that it has within one, be it the first, or
 * behind others that were not sent yet. */
static void test_logprobs_of_end(void **state)
{
    static struct recorder c, ended;
    (void)state;
    struct request *r = bench_request(&b, &c, REQUEST_GENERATE, GOLDEN_PROMPT);
    r->logprobs = true;
    r->n_top = 3;
    bench_submit(&c);
    check_done(&c, FINISH_LENGTH);
    assert_int_equal(c.n_end, 0);
    for (uint32_t end = 0, before; end < GOLDEN_ANSWER; end++) {
        for (before = 0; c.tokens[before] != c.tokens[end]; before++)
            ;
        for (int logprobs = 0; logprobs < 2; logprobs++) {
            r = bench_request(&b, &ended, REQUEST_GENERATE, GOLDEN_PROMPT);
            r->logprobs = logprobs;
            r->n_top = logprobs ? 3 : 0;
            assert_true(token_list_push(&r->stop_tokens, c.tokens[end]));
            bench_submit(&ended);
            check_done(&ended, FINISH_END);
            assert_int_equal(ended.n_tokens, before);
            assert_int_equal(ended.summary.end_token, c.tokens[end]);
            assert_int_equal(ended.n_end, logprobs);
        }
        assert_true(ended.end_logprob == c.token_logprobs[before]);
        assert_int_equal(ended.end_best, c.best[before]);
        assert_true(ended.end_best_logprob == c.best_logprobs[before]);
    }
}

static struct request *sampled(struct recorder *c, uint32_t n_prompt)
{
    struct request *r = bench_request(&b, c, REQUEST_GENERATE, n_prompt);
    r->sampling.temperature = 1.2f;
    r->sampling.min_p = 0.01f;
    r->sampling.xtc_probability = 0.5f;
    r->sampling.repetition_penalty = 1.2f;
    r->sampling.frequency_penalty = 0.1f;
    r->sampling.dry_multiplier = 0.8f;
    r->sampling.seed = 42;
    r->mirostat_mu = 10;
    return r;
}

/* An answer cut anywhere goes on as if it had not been: the tokens so far are the prompt. */
static void test_continued(void **state)
{
    static struct recorder whole, rest;
    (void)state;
    for (uint32_t mirostat = 0; mirostat <= 2; mirostat += 2)
        for (uint32_t cut = 1; cut < GOLDEN_ANSWER; cut += 5) {
            sampled(&whole, GOLDEN_PROMPT)->sampling.mirostat = mirostat;
            bench_submit(&whole);
            check_done(&whole, FINISH_LENGTH);
            struct request *r = sampled(&rest, GOLDEN_PROMPT);
            for (uint32_t i = 0; i < cut; i++)
                assert_true(token_list_push(&r->tokens, whole.tokens[i]));
            r->n_prompt = r->n_prefill = GOLDEN_PROMPT + cut;
            r->max_tokens = GOLDEN_ANSWER - cut;
            r->stepwise = true; /* the same bits as decoding */
            r->sampling.mirostat = mirostat;
            r->mirostat_mu = whole.mus[cut - 1];
            bench_submit(&rest);
            check_done(&rest, FINISH_LENGTH);
            assert_int_equal(rest.n_tokens, GOLDEN_ANSWER - cut);
            assert_memory_equal(rest.tokens, whole.tokens + cut,
                                (GOLDEN_ANSWER - cut) * sizeof *rest.tokens);
        }
}

/* The golden answer's token i, and the first place where it stands. */
static uint32_t golden_token(uint32_t i, uint32_t *first)
{
    static struct recorder c;
    bench_request(&b, &c, REQUEST_GENERATE, GOLDEN_PROMPT);
    bench_submit(&c);
    check_done(&c, FINISH_LENGTH);
    check_golden(&c, GREEDY, GOLDEN_ANSWER);
    for (*first = 0; c.tokens[*first] != c.tokens[i]; (*first)++)
        ;
    return c.tokens[i];
}

/* A stop token ends the answer before itself, but not before min_tokens: until then it cannot be
 * chosen. */
static void test_stop_tokens(void **state)
{
    static struct recorder c;
    uint32_t at, token = golden_token(4, &at);
    (void)state;
    struct request *r = bench_request(&b, &c, REQUEST_GENERATE, GOLDEN_PROMPT);
    assert_true(token_list_push(&r->stop_tokens, token));
    bench_submit(&c);
    check_done(&c, FINISH_END);
    assert_int_equal(c.n_tokens, at);
    assert_int_equal(c.summary.end_token, token);
    assert_int_equal(c.summary.stop_index, -1);

    r = bench_request(&b, &c, REQUEST_GENERATE, GOLDEN_PROMPT);
    assert_true(token_list_push(&r->stop_tokens, token));
    r->ends = malloc(sizeof *r->ends);
    r->ends[0] = token;
    r->n_ends = 1;
    r->min_tokens = GOLDEN_ANSWER;
    bench_submit(&c);
    check_done(&c, FINISH_LENGTH);
    assert_int_equal(c.n_tokens, GOLDEN_ANSWER);
    for (uint32_t i = 0; i < c.n_tokens; i++)
        assert_int_not_equal(c.tokens[i], token);
    assert_int_equal(c.summary.end_token, -1);
}

/* Which stop string was found. Before min_tokens they do not count. */
static void test_stop_strings(void **state)
{
    static struct recorder c;
    struct strbuf text;
    uint32_t at, token = golden_token(3, &at);
    (void)state;
    strbuf_init(&text);
    assert_true(tokenizer_piece(b.tokenizer, token, false, &text) && text.len > 0);
    for (uint32_t min_tokens = 0; min_tokens <= GOLDEN_ANSWER; min_tokens += GOLDEN_ANSWER) {
        struct request *r = bench_request(&b, &c, REQUEST_GENERATE, GOLDEN_PROMPT);
        while (r->n_stops < REQUEST_MAX_STOPS - 1)
            strbuf_append(&r->stops[r->n_stops++], "\1no such text", 13);
        strbuf_append(&r->stops[r->n_stops++], text.data, text.len);
        r->min_tokens = min_tokens ? GOLDEN_ANSWER + 1 : 0;
        bench_submit(&c);
        check_done(&c, min_tokens ? FINISH_LENGTH : FINISH_STOP);
        assert_int_equal(c.summary.stop_index, min_tokens ? -1 : REQUEST_MAX_STOPS - 1);
        assert_int_equal(c.summary.end_token, -1);
    }
    strbuf_fini(&text);
}

static void test_biases(void **state)
{
    static struct recorder c;
    (void)state;
    struct request *r = bench_request(&b, &c, REQUEST_GENERATE, GOLDEN_PROMPT);
    r->biases = malloc(sizeof *r->biases);
    r->biases[0] = (struct sampler_bias){77, 1e6f};
    r->n_biases = 1;
    bench_submit(&c);
    check_done(&c, FINISH_LENGTH);
    for (uint32_t i = 0; i < c.n_tokens; i++)
        assert_int_equal(c.tokens[i], 77);
}

struct parity {
    uint32_t mask[(VOCAB + 31) / 32];
    uint32_t refused, masked;
};

static bool is_even(void *arg, uint32_t token)
{
    struct parity *p = arg;
    p->refused += token % 2;
    return token % 2 == 0;
}

static const uint32_t *even_tokens(void *arg)
{
    struct parity *p = arg;
    p->masked++;
    memset(p->mask, 0x55, sizeof p->mask);
    return p->mask;
}

/* A guard's tokens alone come; those that it does not refuse cost no mask. */
static void test_guard(void **state)
{
    static struct recorder c;
    struct parity parity = {.refused = 0};
    const struct sampler_guard guard = {is_even, even_tokens, &parity};
    (void)state;
    for (uint32_t temperature = 0; temperature < 2; temperature++) {
        parity = (struct parity){.refused = 0};
        struct request *r = bench_request(&b, &c, REQUEST_GENERATE, GOLDEN_PROMPT);
        r->sampling.temperature = (float)temperature;
        r->guard = &guard;
        bench_submit(&c);
        check_done(&c, FINISH_LENGTH);
        for (uint32_t i = 0; i < c.n_tokens; i++)
            assert_int_equal(c.tokens[i] % 2, 0);
        assert_int_equal(parity.masked, parity.refused);
        assert_in_range(parity.masked, 1, GOLDEN_ANSWER - 1);
    }
}

/* Progress comes after each part of the prompt, only where it was asked for. */
static void test_progress(void **state)
{
    static struct recorder c;
    (void)state;
    struct request *r = bench_request(&b, &c, REQUEST_GENERATE, GOLDEN_PROMPT);
    r->progress = true;
    r->stepwise = true;
    bench_submit(&c);
    check_done(&c, FINISH_LENGTH);
    assert_int_equal(c.n_progress, GOLDEN_PROMPT);
    assert_true(c.events > GOLDEN_PROMPT);
    check_golden(&c, GREEDY, GOLDEN_ANSWER);
    bench_request(&b, &c, REQUEST_GENERATE, GOLDEN_PROMPT);
    bench_submit(&c);
    check_done(&c, FINISH_LENGTH);
    assert_int_equal(c.n_progress, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logprobs),        cmocka_unit_test(test_continued),
        cmocka_unit_test(test_logprobs_of_end), cmocka_unit_test(test_stop_tokens),
        cmocka_unit_test(test_stop_strings),    cmocka_unit_test(test_biases),
        cmocka_unit_test(test_guard),           cmocka_unit_test(test_progress),
    };
    return cmocka_run_group_tests(tests, open_bench, close_bench);
}
