/* Answers with drafts (worker/serve/answers.c) are those without, to the bit: tokens, text events,
 * log-probabilities and mirostat's mu; greedy and sampled; whatever else is in the batch; from a
 * warm cache; with every type of the KV cache. */
#include "engine_bench.h"

#include "model/speculate.h"

#include <unistd.h>

enum { N = 4, CONTEXT = 512, LENGTH = 150 };

static struct engine_bench b;

static void open_bench(const char *model, uint32_t speculate, enum tensor_type kv_type,
                       uint32_t n_pages)
{
    bench_open_with(&b, &(struct bench_options){.path = model,
                                                .parallel = N,
                                                .n_pages = n_pages,
                                                .speculate = speculate,
                                                .kv_type = kv_type,
                                                .context = CONTEXT});
}

/* A prompt that repeats: the golden tokens some times. */
static struct request *repeating(struct recorder *c, uint32_t n_prompt, uint32_t times)
{
    struct request *r = bench_request(&b, c, REQUEST_GENERATE, n_prompt);
    for (uint32_t i = n_prompt; i < times * n_prompt; i++)
        assert_true(token_list_push(&r->tokens, r->tokens.ids[i - n_prompt]));
    r->n_prompt = r->n_prefill = (uint32_t)r->tokens.count;
    r->max_tokens = LENGTH;
    return r;
}

/* Requests of all kinds, by number. */
static struct request *request_of(struct recorder *c, uint32_t i)
{
    struct request *r = repeating(c, i % 2 ? GOLDEN_TOKENS : GOLDEN_PROMPT + i, 1 + i % 3);
    r->sampling.seed = i;
    r->max_tokens = LENGTH - 7 * (i % 5);
    if (i % 4 == 1) { /* tokens of few, so that drafts are right now and then */
        r->sampling.temperature = 0.7f;
        r->sampling.top_k = 3;
    }
    if (i % 4 == 2) {
        r->sampling.temperature = 0.5f;
        r->sampling.min_p = 0.3f;
        r->sampling.repetition_penalty = 1.1f;
        r->sampling.dry_multiplier = 0.1f;
        assert_true(breakers_add(&r->breakers, "a", 1));
        r->logprobs = true;
        r->n_top = 3;
    }
    if (i % 4 == 3) {
        r->sampling.temperature = 0.3f;
        r->sampling.mirostat = 2;
        r->mirostat_mu = 4;
    }
    if (i == 4) { /* what ends it may not come before, which takes part in the choice */
        r->min_tokens = 90;
        r->ends = malloc(sizeof *r->ends);
        r->ends[0] = 17;
        r->n_ends = 1;
        assert_true(token_list_push(&r->stop_tokens, 17));
    }
    return r;
}

static void assert_same(const struct recorder *with, const struct recorder *without)
{
    assert_int_equal(with->n_tokens, without->n_tokens);
    assert_memory_equal(with->tokens, without->tokens, with->n_tokens * sizeof *with->tokens);
    assert_memory_equal(with->mus, without->mus, with->n_tokens * sizeof *with->mus);
    assert_memory_equal(with->token_logprobs, without->token_logprobs, sizeof with->token_logprobs);
    assert_memory_equal(with->best, without->best, sizeof with->best);
    assert_memory_equal(with->best_logprobs, without->best_logprobs, sizeof with->best_logprobs);
    assert_int_equal(with->summary.reason, without->summary.reason);
    assert_int_equal(with->summary.end_token, without->summary.end_token);
}

static struct recorder expected[3 * N], with[3 * N];

/* Each request in an engine without drafts, one after the other. */
static void answer_plainly(const char *model, enum tensor_type kv_type)
{
    open_bench(model, SPECULATE_OFF, kv_type, 0);
    bench_start(&b);
    for (uint32_t i = 0; i < 3 * N; i++) {
        request_of(&expected[i], i);
        bench_submit(&expected[i]);
        check_end(&expected[i], 1, 0);
        assert_int_equal(expected[i].summary.drafted_tokens, 0);
    }
    assert_int_equal(engine_status(b.engine).drafted, 0);
    bench_close(&b);
}

static void check_metrics(const struct engine_status *s)
{
    const struct draft_metrics *m = &b.engine->draft_metrics;
    uint64_t by_place = 0;
    for (int i = 0; i < SPECULATE_MOST; i++) {
        uint64_t here = counter_read(m->accepted_at[i]);
        assert_true(i == 0 || here <= counter_read(m->accepted_at[i - 1]));
        by_place += here;
    }
    assert_int_equal(by_place, s->accepted);
    assert_true(counter_read(m->steps) <= s->drafted);
    assert_true(counter_read(m->steps) > 0 || s->drafted == 0);
}

/* All requests at once, with drafts; twice: then the prompts are in the cache. Returns how many
 * tokens were accepted. */
static uint64_t check_drafted(const char *model, uint32_t speculate, enum tensor_type kv_type,
                              uint32_t n_pages)
{
    uint64_t drafted = 0, accepted = 0;
    open_bench(model, speculate, kv_type, n_pages);
    bench_start(&b);
    for (int turn = 0; turn < 2; turn++) {
        for (uint32_t i = 0; i < 3 * N; i++) {
            request_of(&with[i], i);
            bench_submit(&with[i]);
        }
        for (uint32_t i = 0; i < 3 * N; i++) {
            check_end(&with[i], 1, 0);
            assert_same(&with[i], &expected[i]);
            drafted += with[i].summary.drafted_tokens;
            accepted += with[i].summary.accepted_tokens;
            assert_true(with[i].summary.accepted_tokens <= with[i].summary.drafted_tokens);
            assert_true(with[i].summary.accepted_tokens < with[i].summary.generated_tokens);
        }
    }
    struct engine_status s = engine_status(b.engine);
    assert_int_equal(s.drafted, drafted);
    assert_int_equal(s.accepted, accepted);
    check_metrics(&s);
    assert_true(n_pages == 0 || counter_read(b.engine->counters.suspended) > 0);
    bench_close(&b);
    return accepted;
}

static void test_same_answers(void **state)
{
    static const char *const models[] = {GOLDEN("olmoe.gguf"), GOLDEN("deepseek.gguf"),
                                         GOLDEN("gpt-oss.gguf"), GOLDEN("gemma4.gguf")};
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        answer_plainly(models[i], TENSOR_F32);
        assert_true(check_drafted(models[i], SPECULATE_MOST, TENSOR_F32, 0) > 0);
    }
    answer_plainly(models[0], TENSOR_F32);
    assert_true(check_drafted(models[0], 1, TENSOR_F32, 0) > 0);
    check_drafted(models[0], SPECULATE_AUTO, TENSOR_F32, 0);
}

static void test_kv_types(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        enum tensor_type type = i ? TENSOR_Q8_0 : TENSOR_F16;
        const char *model = i ? GOLDEN("quant-Q8_0.gguf") : GOLDEN("olmoe.gguf");
        answer_plainly(model, type);
        assert_true(check_drafted(model, 5, type, 0) > 0);
    }
}

/* Answers that outgrow the pool are suspended and begin again; drafts take no page of others. */
static void test_few_pages(void **state)
{
    (void)state;
    answer_plainly(GOLDEN("olmoe.gguf"), TENSOR_F32);
    assert_true(check_drafted(GOLDEN("olmoe.gguf"), SPECULATE_MOST, TENSOR_F32, 9) > 0);
}

/* A sink that takes one token at a time gets the same tokens, and the credits add up. */
static void test_few_credits(void **state)
{
    static struct recorder plain, c;
    (void)state;
    for (uint32_t speculate = 0; speculate <= SPECULATE_MOST; speculate += SPECULATE_MOST) {
        struct recorder *to = speculate ? &c : &plain;
        open_bench(GOLDEN("olmoe.gguf"), speculate, TENSOR_F32, 0);
        bench_start(&b);
        repeating(to, GOLDEN_PROMPT, 4);
        to->window = 1;
        bench_submit(to);
        for (uint32_t i = 1; i < LENGTH; i++) {
            bench_await(to, i);
            bench_acknowledge(to, 1 + i % 3);
        }
        check_done(to, FINISH_LENGTH);
        bench_close(&b);
    }
    assert_same(&c, &plain);
    assert_true(c.summary.accepted_tokens > 0);
}

/* The next turn finds positions that steps with drafts computed, wrong ones among them; its answer
 * is as from an empty cache without drafts. */
static void test_second_turn(void **state)
{
    static struct recorder first, second, cold;
    (void)state;
    answer_plainly(GOLDEN("olmoe.gguf"), TENSOR_F32);
    for (uint32_t with_drafts = 0; with_drafts < 2; with_drafts++) {
        open_bench(GOLDEN("olmoe.gguf"), with_drafts ? SPECULATE_MOST : SPECULATE_OFF, TENSOR_F32,
                   0);
        bench_start(&b);
        struct recorder *c = with_drafts ? &second : &cold;
        if (with_drafts) {
            request_of(&first, 1);
            bench_submit(&first);
            check_end(&first, 1, 0);
            assert_true(first.summary.accepted_tokens < first.summary.drafted_tokens);
        }
        struct request *r = request_of(c, 1);
        for (uint32_t i = 0; i < expected[1].n_tokens; i++)
            assert_true(token_list_push(&r->tokens, expected[1].tokens[i]));
        r->n_prompt = r->n_prefill = (uint32_t)r->tokens.count;
        bench_submit(c);
        check_end(c, 1, 0);
        bench_close(&b);
    }
    assert_int_equal(cold.summary.cached_tokens, 0);
    assert_true(second.summary.cached_tokens + 2 >= second.summary.prompt_tokens);
    assert_same(&second, &cold);
}

/* A stop string that comes in the middle of a draft ends the answer there. */
static void test_stop_string(void **state)
{
    static struct recorder plain, c;
    (void)state;
    for (uint32_t speculate = 0; speculate <= SPECULATE_MOST; speculate += SPECULATE_MOST) {
        struct recorder *to = speculate ? &c : &plain;
        open_bench(GOLDEN("olmoe.gguf"), speculate, TENSOR_F32, 0);
        bench_start(&b);
        for (uint32_t min = 0; min < LENGTH; min += 9) { /* the first stop after as many tokens */
            struct request *r = repeating(to, GOLDEN_PROMPT, 4);
            r->min_tokens = min;
            r->n_stops = 2;
            strbuf_printf(&r->stops[0], "e");
            strbuf_printf(&r->stops[1], " ");
            bench_submit(to);
            check_end(to, 1, 0);
            static uint32_t ends[LENGTH];
            if (speculate)
                assert_int_equal(to->n_tokens, ends[min]);
            ends[min] = to->n_tokens;
        }
        bench_close(&b);
    }
}

/* Of the golden prompt; predicted [n] is expected. */
static struct request *request_of_golden(struct recorder *c, const uint32_t *predicted, uint32_t n)
{
    struct request *r = bench_request(&b, c, REQUEST_GENERATE, GOLDEN_PROMPT);
    r->max_tokens = LENGTH;
    r->sampling.temperature = 1; /* so that the conversation tells little */
    r->expected = n ? expected_answer_new(predicted, n) : NULL;
    return r;
}

/* The decode steps that its answer takes. */
static uint32_t steps_of(struct recorder *c, const uint32_t *predicted, uint32_t n)
{
    request_of_golden(c, predicted, n);
    bench_submit(c);
    check_end(c, 1, 0);
    assert_int_equal(c->summary.prediction_tokens, n);
    return c->n_tokens - 1 - c->summary.accepted_tokens;
}

/* A prediction saves steps as far as it is right, and changes no token. */
static void test_prediction(void **state)
{
    static struct recorder plain, c;
    static uint32_t text[LENGTH];
    (void)state;
    open_bench(GOLDEN("olmoe.gguf"), 7, TENSOR_F32, 0);
    bench_start(&b);
    uint32_t steps = steps_of(&plain, NULL, 0);
    assert_true(steps > LENGTH / 2 && plain.n_tokens == LENGTH);
    memcpy(text, plain.tokens, sizeof text);
    assert_true(steps_of(&c, text, LENGTH) <= (LENGTH + 7) / 8 + 1);
    assert_same(&c, &plain);
    assert_int_equal(c.summary.predicted_tokens, LENGTH);
    struct request *r = request_of_golden(&c, text, LENGTH); /* another worker began the answer */
    assert_true(request_continue(r, plain.tokens, LENGTH / 2, 0, CONTEXT));
    r->n_prefill = (uint32_t)r->tokens.count;
    bench_submit(&c);
    check_end(&c, 1, 0);
    assert_int_equal(c.n_tokens, LENGTH - LENGTH / 2);
    assert_memory_equal(c.tokens, plain.tokens + LENGTH / 2, c.n_tokens * sizeof *c.tokens);
    assert_int_equal(c.summary.predicted_tokens, LENGTH);
    for (uint32_t i = 70; i < 80; i++) /* another line in the middle */
        text[i] = (plain.tokens[i] + 1) % VOCAB;
    assert_true(steps_of(&c, text, LENGTH) <= (LENGTH + 7) / 8 + 16);
    assert_same(&c, &plain);
    assert_in_range(c.summary.predicted_tokens, LENGTH - 12, LENGTH - 8);
    for (uint32_t i = 0; i < LENGTH; i++)
        text[i] = i % 5;
    steps_of(&c, text, LENGTH);
    assert_same(&c, &plain);
    assert_true(c.summary.predicted_tokens < LENGTH / 5);
    bench_close(&b);
}

/* What records its routing has each position once, and no drafts. */
static void test_recorded(void **state)
{
    static struct recorder c;
    struct error e;
    (void)state;
    open_bench(GOLDEN("olmoe.gguf"), SPECULATE_MOST, TENSOR_F32, 0);
    bench_start(&b);
    struct request *r = repeating(&c, GOLDEN_PROMPT, 4);
    struct recording_options options = {.gate = false};
    must(recording_new(&b.memory.map.params, &options, 4 * GOLDEN_PROMPT, &r->recording, &e), &e);
    c.window = 4 * MOST_RECORDED;
    bench_submit(&c);
    check_done(&c, FINISH_LENGTH);
    assert_int_equal(c.n_positions, 4 * GOLDEN_PROMPT + LENGTH - 1);
    assert_int_equal(c.summary.drafted_tokens, 0);
    bench_close(&b);
}

/* A request's own limit: of no drafts, of fewer than the engine's, of more. */
static void test_limit(void **state)
{
    static struct recorder unlimited, c;
    (void)state;
    open_bench(GOLDEN("olmoe.gguf"), 4, TENSOR_F32, 0);
    bench_start(&b);
    repeating(&unlimited, GOLDEN_PROMPT, 4);
    bench_submit(&unlimited);
    check_done(&unlimited, FINISH_LENGTH);
    for (uint32_t limit = 0; limit <= 8; limit = limit ? 4 * limit : 2) {
        repeating(&c, GOLDEN_PROMPT, 4)->max_drafts = limit;
        bench_submit(&c);
        check_done(&c, FINISH_LENGTH);
        assert_same(&c, &unlimited);
        uint32_t steps = c.summary.generated_tokens - 1 - c.summary.accepted_tokens;
        uint32_t most = limit < 4 ? limit : 4;
        assert_true(c.summary.drafted_tokens <= most * steps);
        assert_true((c.summary.drafted_tokens > 0) == (limit > 0));
    }
    bench_close(&b);
}

static enum error_code (*real_logits)(struct dense *d, const struct matrix *m, const float *bias,
                                      const float *hidden, uint32_t n, bool bulk, float *logits,
                                      struct error *e);

static enum error_code slow_logits(struct dense *d, const struct matrix *m, const float *bias,
                                   const float *hidden, uint32_t n, bool bulk, float *logits,
                                   struct error *e)
{
    usleep(5000);
    return real_logits(d, m, bias, hidden, n, bulk, logits, e);
}

/* Tokens of a step share its time: none takes less than a quarter of the shortest step. */
static void test_time_between(void **state)
{
    static struct recorder c;
    (void)state;
    open_bench(GOLDEN("olmoe.gguf"), 3, TENSOR_F32, 0);
    real_logits = b.ops.logits;
    b.ops.logits = slow_logits;
    bench_start(&b);
    repeating(&c, GOLDEN_PROMPT, 4)->max_tokens = 40;
    bench_submit(&c);
    check_done(&c, FINISH_LENGTH);
    assert_true(c.summary.accepted_tokens > 0);
    const struct histogram *h = b.engine->counters.token;
    assert_int_equal(histogram_count(h), 39);
    assert_true(h->bounds[1] < 0.00125);
    assert_int_equal(atomic_load(&h->buckets[0]) + atomic_load(&h->buckets[1]), 0);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_answers), cmocka_unit_test(test_kv_types),
        cmocka_unit_test(test_second_turn),  cmocka_unit_test(test_few_pages),
        cmocka_unit_test(test_few_credits),  cmocka_unit_test(test_stop_string),
        cmocka_unit_test(test_recorded),     cmocka_unit_test(test_time_between),
        cmocka_unit_test(test_limit),        cmocka_unit_test(test_prediction),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
