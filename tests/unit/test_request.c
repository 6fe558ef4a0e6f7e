/* What a request may fill of the KV cache. */
#include "worker/request.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

enum { CONTEXT = 100 };

static uint32_t positions(enum request_kind kind, uint32_t n_prompt, uint32_t n_prefill, uint32_t max_tokens,
                          bool prompt_only)
{
    struct request r = {
        .kind = kind, .n_prompt = n_prompt, .n_prefill = n_prefill, .max_tokens = max_tokens, .prompt_only = prompt_only};
    return request_positions(&r, CONTEXT);
}

static void test_positions(void **state)
{
    (void)state;
    /* the prompt's, and those of all tokens that are computed: not the last one's */
    assert_int_equal(positions(REQUEST_GENERATE, 10, 10, 1, false), 10);
    assert_int_equal(positions(REQUEST_GENERATE, 10, 10, 8, false), 17);
    assert_int_equal(positions(REQUEST_GENERATE, 10, 10, 90, false), 99);
    /* until the context is full */
    assert_int_equal(positions(REQUEST_GENERATE, 10, 10, 91, false), CONTEXT);
    assert_int_equal(positions(REQUEST_GENERATE, 10, 10, UINT32_MAX, false), CONTEXT);
    assert_int_equal(positions(REQUEST_GENERATE, 10, 10, 0, false), CONTEXT);
    assert_int_equal(positions(REQUEST_GENERATE, 99, 99, 0, false), CONTEXT);
    /* nothing is generated */
    assert_int_equal(positions(REQUEST_GENERATE, 100, 100, 0, true), 100);
    assert_int_equal(positions(REQUEST_LOGITS, 7, 7, 0, false), 7);
    assert_int_equal(positions(REQUEST_LOGPROBS, 7, 6, 0, false), 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_positions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
