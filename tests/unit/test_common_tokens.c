/* What two prompts have in common (worker/serve/common_tokens.h), against the definition. */
#include "worker/serve/common_tokens.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { MOST = 400 };

static uint32_t below(uint32_t n)
{
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % n;
}

static uint32_t by_definition(const uint32_t *a, const uint32_t *b, uint32_t n, uint32_t from)
{
    uint32_t same = 0;
    while (same < n && a[same] == b[same])
        same++;
    return same < from + KV_POOL_TOKENS ? 0 : same;
}

static void test_random_prompts(void **state)
{
    uint32_t a[MOST], b[MOST], found = 0;
    (void)state;
    for (int i = 0; i < 20000; i++) {
        uint32_t n = below(MOST + 1), from = below(MOST), other = below(2 * MOST);
        for (uint32_t k = 0; k < MOST; k++)
            a[k] = b[k] = below(3);
        if (other < MOST)
            b[other] = 7;
        uint32_t expected = by_definition(a, b, n, from);
        assert_int_equal(common_tokens(a, b, n, from), expected);
        found += expected > 0;
    }
    assert_true(found > 1000);
}

/* All places of the first difference about those that decide. */
static void test_edges(void **state)
{
    uint32_t a[MOST] = {0}, b[MOST] = {0};
    (void)state;
    for (uint32_t n = 0; n < 200; n++)
        for (uint32_t at = 0; at <= n; at++) {
            b[at] = 1;
            for (uint32_t from = 0; from < 200; from += 31)
                assert_int_equal(common_tokens(a, b, n, from), by_definition(a, b, n, from));
            b[at] = 0;
        }
}

/* The memory before and behind the page at `from` is not looked at where that page differs. */
static void test_looks_at_the_page_first(void **state)
{
    uint32_t *a = malloc(KV_POOL_TOKENS * sizeof *a), *b = malloc(KV_POOL_TOKENS * sizeof *b);
    (void)state;
    memset(a, 0, KV_POOL_TOKENS * sizeof *a);
    memset(b, 1, KV_POOL_TOKENS * sizeof *b);
    /* The page is all that there is of these prompts: an address sanitizer sees any other access.
     */
    uintptr_t before = 1000 * sizeof *a;
    assert_int_equal(common_tokens((const uint32_t *)((uintptr_t)a - before),
                                   (const uint32_t *)((uintptr_t)b - before), 5000, 1000),
                     0);
    free(a);
    free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_prompts),
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_looks_at_the_page_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
