/* Requests (worker/serve/request.h): the positions that they may fill, and the memory reserved for
 * them. Their text is tested in test_sampler.c. */
#include "worker/serve/request.h"

#include "model/serving_limits.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

enum { CONTEXT = 100 };

static uint32_t positions(enum request_kind kind, uint32_t n_prompt, uint32_t n_prefill,
                          uint32_t max_tokens, bool prompt_only)
{
    struct request r = {.kind = kind,
                        .n_prompt = n_prompt,
                        .n_prefill = n_prefill,
                        .max_tokens = max_tokens,
                        .prompt_only = prompt_only};
    return request_positions(&r, CONTEXT);
}

static void test_positions(void **state)
{
    (void)state;
    /* the prompt's positions, and those of all tokens that the worker computes: all but the last */
    assert_int_equal(positions(REQUEST_GENERATE, 10, 10, 1, false), 10);
    assert_int_equal(positions(REQUEST_GENERATE, 10, 10, 8, false), 17);
    assert_int_equal(positions(REQUEST_GENERATE, 10, 10, 90, false), 99);
    /* until the context is full */
    assert_int_equal(positions(REQUEST_GENERATE, 10, 10, 91, false), CONTEXT);
    assert_int_equal(positions(REQUEST_GENERATE, 10, 10, UINT32_MAX, false), CONTEXT);
    assert_int_equal(positions(REQUEST_GENERATE, 10, 10, 0, false), CONTEXT);
    assert_int_equal(positions(REQUEST_GENERATE, 99, 99, 0, false), CONTEXT);
    /* a request without an answer */
    assert_int_equal(positions(REQUEST_GENERATE, 100, 100, 0, true), 100);
    assert_int_equal(positions(REQUEST_LOGITS, 7, 7, 0, false), 7);
    assert_int_equal(positions(REQUEST_LOGPROBS, 7, 6, 0, false), 6);
}

/* reserve keeps the prompt, and has memory for each position and one more token before the first
 * step */
static void test_reserve(void **state)
{
    (void)state;
    for (enum request_kind kind = REQUEST_GENERATE; kind <= REQUEST_LOGPROBS; kind++) {
        struct request *r = request_new(NULL, kind, NULL, NULL);
        for (uint32_t i = 0; i < 300; i++)
            assert_true(token_list_push(&r->tokens, i * 7));
        r->n_prompt = r->n_prefill = 300;
        assert_true(request_reserve(r, 1000, 256, 8));
        assert_int_equal(r->tokens.count, 300);
        assert_true(r->tokens.capacity >= 1001);
        for (uint32_t i = 0; i < 300; i++)
            assert_int_equal(r->tokens.ids[i], i * 7);
        memset(r->tokens.ids + 300, 0, 701 * sizeof *r->tokens.ids);
        assert_int_equal(r->hidden == NULL, kind == REQUEST_GENERATE);
        if (r->hidden)
            memset(r->hidden, 0, 256 * 8 * sizeof *r->hidden);
        request_free(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_positions),
        cmocka_unit_test(test_reserve),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
