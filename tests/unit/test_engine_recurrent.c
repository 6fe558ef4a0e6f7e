/* Answers of models with recurrent layers (worker/serve/states.c) are the same to the bit: alone
 * from a cold cache; in batches among others; with a chunk of the prompt per position; from
 * snapshots, at a prompt's beginning that others share and at the end of a turn; after a suspension
 * that restarts the state. Batches, chunks and suspensions also of a model whose layers have two
 * kinds of heads and rotations. */
#include "engine_bench.h"

#include "model/speculate.h"

enum { N = 4, CONTEXT = 512, LENGTH = 40, PROMPT = 150 };

static const char *const models[] = {GOLDEN("qwen35moe.gguf"), GOLDEN("qwen3next.gguf"),
                                     GOLDEN("qwen3next-early.gguf"), GOLDEN("lfm2moe.gguf")};
enum { N_MODELS = sizeof models / sizeof *models };

static struct engine_bench b;

static void open_bench(const char *model, uint32_t n_pages)
{
    bench_open_with(&b, &(struct bench_options){.path = model,
                                                .parallel = N,
                                                .n_pages = n_pages,
                                                .speculate = SPECULATE_MOST,
                                                .kv_type = TENSOR_F16,
                                                .context = CONTEXT});
    bench_start(&b);
}

/* The golden tokens, turned by one at each repetition, so that no page is like another; from token
 * `differs` on another sequence. */
static struct request *request_of(struct recorder *c, uint32_t n_prompt, uint32_t differs)
{
    struct request *r = bench_request(&b, c, REQUEST_GENERATE, GOLDEN_TOKENS);
    for (uint32_t i = GOLDEN_TOKENS; i < n_prompt; i++)
        assert_true(
            token_list_push(&r->tokens, r->tokens.ids[(i + i / GOLDEN_TOKENS) % GOLDEN_TOKENS]));
    for (uint32_t i = differs; i < n_prompt; i++)
        r->tokens.ids[i] = (r->tokens.ids[i] + differs) % 256;
    r->n_prompt = r->n_prefill = n_prompt;
    r->max_tokens = LENGTH;
    r->logprobs = true;
    return r;
}

/* Appends a turn: the answer of `before` and some tokens. */
static void continue_turn(struct request *r, const struct recorder *before)
{
    for (uint32_t i = 0; i < before->n_tokens; i++)
        assert_true(token_list_push(&r->tokens, before->tokens[i]));
    for (uint32_t i = 0; i < 20; i++)
        assert_true(token_list_push(&r->tokens, 65 + i));
    r->n_prompt = r->n_prefill = (uint32_t)r->tokens.count;
}

static void answer(struct recorder *c)
{
    bench_submit(c);
    check_done(c, FINISH_LENGTH);
    assert_int_equal(c->n_tokens, LENGTH);
    if (b.snapshots) /* no draft can be undone in their states */
        assert_int_equal(c->summary.drafted_tokens, 0);
}

static void assert_same(const struct recorder *a, const struct recorder *reference)
{
    assert_int_equal(a->n_tokens, reference->n_tokens);
    assert_memory_equal(a->tokens, reference->tokens, a->n_tokens * sizeof *a->tokens);
    assert_memory_equal(a->token_logprobs, reference->token_logprobs, sizeof a->token_logprobs);
}

/* In an engine of its own. */
static void answer_cold(const char *model, struct recorder *c, uint32_t n_prompt, uint32_t differs,
                        const struct recorder *before)
{
    open_bench(model, 0);
    struct request *r = request_of(c, n_prompt, differs);
    if (before)
        continue_turn(r, before);
    answer(c);
    assert_int_equal(c->summary.cached_tokens, 0);
    bench_close(&b);
}

static struct recorder cold[4], warm[4];

static void test_snapshots(void **state)
{
    (void)state;
    for (int m = 0; m < N_MODELS; m++) {
        answer_cold(models[m], &cold[0], PROMPT, PROMPT, NULL);
        answer_cold(models[m], &cold[1], PROMPT, PROMPT, &cold[0]);
        answer_cold(models[m], &cold[2], PROMPT, 100, NULL);
        answer_cold(models[m], &cold[3], PROMPT, 90, NULL);
        open_bench(models[m], 0);
        request_of(&warm[0], PROMPT, PROMPT);
        answer(&warm[0]);
        assert_same(&warm[0], &cold[0]);
        /* again: from the last page's beginning */
        request_of(&warm[0], PROMPT, PROMPT);
        answer(&warm[0]);
        assert_int_equal(warm[0].summary.cached_tokens, PROMPT - PROMPT % KV_POOL_TOKENS);
        assert_same(&warm[0], &cold[0]);
        /* the next turn: from the end of this one; the last token was not computed */
        continue_turn(request_of(&warm[1], PROMPT, PROMPT), &warm[0]);
        answer(&warm[1]);
        assert_int_equal(warm[1].summary.cached_tokens, PROMPT + LENGTH - 1);
        assert_same(&warm[1], &cold[1]);
        /* another end of the prompt: no snapshot there yet, but the next one finds it */
        request_of(&warm[2], PROMPT, 100);
        answer(&warm[2]);
        assert_int_equal(warm[2].summary.cached_tokens, 0);
        assert_same(&warm[2], &cold[2]);
        request_of(&warm[3], PROMPT, 90);
        answer(&warm[3]);
        assert_int_equal(warm[3].summary.cached_tokens, KV_POOL_TOKENS);
        assert_same(&warm[3], &cold[3]);
        bench_close(&b);
    }
}

/* All at once, more than there are slots, some a token of the prompt at a time; with few pages they
 * suspend one another. */
static void check_together(const char *model, uint32_t n_pages)
{
    static struct recorder alone[3 * N], together[3 * N];
    for (uint32_t i = 0; i < 3 * N; i++)
        answer_cold(model, &alone[i], PROMPT - 9 * i, 60 + i, NULL);
    open_bench(model, n_pages);
    for (uint32_t i = 0; i < 3 * N; i++) {
        request_of(&together[i], PROMPT - 9 * i, 60 + i)->stepwise = i % 5 == 3 && !n_pages;
        bench_submit(&together[i]);
    }
    for (uint32_t i = 0; i < 3 * N; i++) {
        check_done(&together[i], FINISH_LENGTH);
        assert_same(&together[i], &alone[i]);
    }
    assert_true(n_pages == 0 || counter_read(b.engine->counters.suspended) > 0);
    bench_close(&b);
}

static void test_together(void **state)
{
    (void)state;
    for (int m = 0; m < N_MODELS; m++)
        check_together(models[m], 0);
    check_together(GOLDEN("gemma4.gguf"), 0);
}

static void test_suspended(void **state)
{
    (void)state;
    check_together(models[0], 8);
    check_together(GOLDEN("gemma4.gguf"), 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_snapshots),
        cmocka_unit_test(test_together),
        cmocka_unit_test(test_suspended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
