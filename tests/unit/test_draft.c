/* Drafts out of a conversation, against a search without an index; and what drafting learns. */
#include "random_numbers.h"

#include "worker/serve/draft.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const struct draft_rates EVEN = {{0.5f, 0.5f, 0.5f, 0.5f, 0.5f}};

/* ---- The search ---- */

struct found {
    uint32_t match, at;
};

static struct found find_naively(const uint32_t *tokens, uint32_t n)
{
    struct found best = {0, 0};
    uint32_t looks = 0;
    for (uint32_t end = n - 1; end >= DRAFT_LEAST_MATCH && looks < DRAFT_LOOKS; end--) {
        uint32_t same = 0;
        while (same < end && same < DRAFT_LONGEST_MATCH &&
               tokens[end - 1 - same] == tokens[n - 1 - same])
            same++;
        looks += same >= DRAFT_LEAST_MATCH;
        if (same >= DRAFT_LEAST_MATCH && same > best.match)
            best = (struct found){same, end};
    }
    return best;
}

/* n tokens of an alphabet, of which some parts repeat earlier ones. */
static void make_tokens(uint32_t *tokens, uint32_t n, uint32_t alphabet)
{
    for (uint32_t i = 0; i < n;) {
        uint32_t length = 1 + below(30);
        bool copies = i > 40 && below(2);
        uint32_t from = copies ? below(i - 30) : 0;
        for (uint32_t k = 0; k < length && i < n; k++, i++)
            tokens[i] = copies ? tokens[from + k] : below(alphabet) * 7919;
    }
}

static void test_naive(void **state)
{
    enum { N = 3000, ROUNDS = 12 };
    static uint32_t tokens[N];
    static const uint32_t alphabets[] = {1, 2, 5, 40, 100000};
    uint32_t n_found = 0;
    random_state = 1;
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        make_tokens(tokens, N, alphabets[round % 5]);
        struct draft *d = draft_new(N, &EVEN);
        assert_non_null(d);
        for (uint32_t n = 1; n <= N; n += 1 + below(4)) {
            struct found expected = find_naively(tokens, n);
            assert_int_equal(draft_find(d, tokens, n), expected.match);
            for (uint32_t i = 0; expected.match && i < 2 * N; i += 1 + i * 3)
                assert_int_equal(draft_token(d, tokens, i),
                                 tokens[expected.at + i % (n - expected.at)]);
            n_found += expected.match > 0;
        }
        draft_free(d);
    }
    assert_true(n_found > 2000);
    draft_free(NULL);
}

static void test_examples(void **state)
{
    /* two places with 1 2; before the second more is equal; a later one, 9 2, is no place */
    static const uint32_t text[] = {1, 2, 5, 4, 1, 2, 6, 7, 9, 2, 3, 4, 1, 2};
    static const uint32_t loop[] = {8, 3, 4, 5, 3, 4, 5, 3, 4};
    (void)state;
    struct draft *d = draft_new(20, &EVEN);
    assert_int_equal(draft_find(d, text, 14), 3);
    assert_int_equal(draft_token(d, text, 0), 6);
    assert_int_equal(draft_token(d, text, 1), 7);
    draft_free(d);
    d = draft_new(9, &EVEN);
    assert_int_equal(draft_find(d, loop, 9), 5);
    for (uint32_t i = 0; i < 9; i++) /* it goes on */
        assert_int_equal(draft_token(d, loop, i), 3 + (i + 2) % 3);
    draft_free(d);
    d = draft_new(4, &EVEN);
    assert_int_equal(draft_find(d, text, 1), 0);
    assert_int_equal(draft_find(d, text, 3), 0);
    draft_free(d);
}

static void test_learning(void **state)
{
    static const uint32_t loop[] = {3, 4, 5, 3, 4, 5, 3, 4};
    struct draft_rates all = EVEN;
    (void)state;
    struct draft *d = draft_new(8, &EVEN);
    draft_learn(d, loop, 0, 5, &all); /* there is no draft yet */
    assert_true(all.right[2] == 0.5f);
    assert_int_equal(draft_find(d, loop, 8), 5);
    assert_true(draft_rate(d, 0) == 0.5f);
    for (int i = 0; i < 50; i++)
        draft_learn(d, loop, 0, 5, &all);
    assert_true(draft_rate(d, 0) > 0.99f);
    assert_true(all.right[2] > 0.7f && all.right[2] < 0.99f);
    assert_true(draft_rate(d, 3) == 0.5f); /* as of a longer match */
    for (int i = 0; i < 50; i++)
        draft_learn(d, loop, 0, 6, &all);
    assert_true(draft_rate(d, 0) < 0.01f);
    draft_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_naive),
        cmocka_unit_test(test_examples),
        cmocka_unit_test(test_learning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
