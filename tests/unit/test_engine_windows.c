/* Models with windows (model/kv_layout.h): a request pays for a window and not for its context, and
 * answers are the same to the bit from a cold cache and from a warm one, in batches, and after
 * suspensions. The dense part on the host forgets pages that are passed, so that reading one is a
 * fault. tests/golden compares with another implementation. */
#include "engine_turns.h"

enum { LONG = 700, CONTEXT = 1024, BATCH = BATCH_IN_MEMORY + N };

static const char *const models[] = {GOLDEN("gpt-oss.gguf"), GOLDEN("gemma4.gguf"),
                                     GOLDEN("exaone-moe.gguf")};
enum { N_MODELS = sizeof models / sizeof *models };

static struct recorder cold[4], warm[4];

/* Pages that a request of so many positions needs at once. */
static uint32_t pages_of(const char *model, uint32_t positions)
{
    struct kv_layout kv;
    struct loaded_model m;
    load_file(&m, model);
    kv_layout_make(&m.map.params, TENSOR_F16, &kv);
    assert_true(kv.window > 0 && kv.n_groups > 1);
    uint64_t pages = kv_layout_pages(&kv, positions, BATCH);
    assert_true(positions < 1000 || pages < kv.n_groups * positions / KV_POOL_TOKENS);
    unload_model(&m);
    return (uint32_t)pages;
}

/* With no more pages than that, a long request runs; its turns and other prompts begin where they
 * find windows. */
static void test_turns(void **state)
{
    (void)state;
    for (int m = 0; m < N_MODELS; m++) {
        uint32_t n_pages = pages_of(models[m], CONTEXT);
        answer_cold(models[m], &cold[0], LONG, LONG, NULL);
        answer_cold(models[m], &cold[1], LONG, LONG, &cold[0]);
        answer_cold(models[m], &cold[2], LONG, 600, NULL);
        open_bench(models[m], n_pages);
        request_of(&warm[0], LONG, LONG);
        answer(&warm[0]);
        assert_same(&warm[0], &cold[0]);
        request_of(&warm[0], LONG, LONG); /* again: the end of the prompt has its window */
        answer(&warm[0]);
        assert_int_equal(warm[0].summary.cached_tokens, LONG - 1);
        assert_same(&warm[0], &cold[0]);
        continue_turn(request_of(&warm[1], LONG, LONG), &warm[0]);
        answer(&warm[1]);
        assert_int_equal(warm[1].summary.cached_tokens, LONG + LENGTH - 1);
        assert_same(&warm[1], &cold[1]);
        request_of(&warm[2], LONG, 600);
        answer(&warm[2]);
        assert_same(&warm[2], &cold[2]);
        bench_close(&b);
    }
}

/* A prompt that has the first tokens of LONG ones alone, then others. */
static void branch_of(struct recorder *c, uint32_t branch, uint32_t other)
{
    struct request *r = request_of(c, LONG - 200 + other, branch);
    r->tokens.ids[branch] = (r->tokens.ids[branch] + other) % 256;
}

/* Prompts with a common beginning whose windows went: the first computes it again and leaves its
 * windows there, the next one begins there. */
static void test_branch(void **state)
{
    enum { BRANCH = 400 };
    (void)state;
    for (int m = 0; m < N_MODELS; m++) {
        for (uint32_t i = 0; i < 2; i++) {
            open_bench(models[m], 0);
            branch_of(&cold[i], BRANCH, i);
            answer(&cold[i]);
            bench_close(&b);
        }
        open_bench(models[m], 5 * pages_of(models[m], CONTEXT) / 4);
        request_of(&warm[0], LONG, LONG);
        answer(&warm[0]);
        request_of(&warm[1], LONG / 2, 0)->tokens.ids[0]++; /* shares nothing, and needs memory */
        answer(&warm[1]);
        branch_of(&warm[2], BRANCH, 0);
        answer(&warm[2]);
        assert_true(warm[2].summary.cached_tokens < BRANCH);
        assert_same(&warm[2], &cold[0]);
        branch_of(&warm[3], BRANCH, 1);
        answer(&warm[3]);
        assert_int_equal(warm[3].summary.cached_tokens, BRANCH);
        assert_same(&warm[3], &cold[1]);
        bench_close(&b);
    }
}

/* Several at once, of which some have all their pages from the beginning (stepwise) and use those
 * of their windows again; with few pages they suspend one another. */
static void check_together(const char *model, uint32_t n_prompt, uint32_t n_pages)
{
    static struct recorder alone[2 * N], together[2 * N];
    for (uint32_t i = 0; i < 2 * N; i++)
        answer_cold(model, &alone[i], n_prompt - 3 * i, 3 + i, NULL);
    open_bench(model, n_pages);
    for (uint32_t i = 0; i < 2 * N; i++) {
        request_of(&together[i], n_prompt - 3 * i, 3 + i)->stepwise = i % 4 == 3 && !n_pages;
        bench_submit(&together[i]);
    }
    for (uint32_t i = 0; i < 2 * N; i++) {
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
        check_together(models[m], LONG / 2, 0);
}

static void test_suspended(void **state)
{
    (void)state;
    for (int m = 0; m < N_MODELS; m++)
        check_together(models[m], 60, 5 * pages_of(models[m], KV_POOL_TOKENS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_branch),
        cmocka_unit_test(test_together),
        cmocka_unit_test(test_suspended),
    };
    turns_context = CONTEXT;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
