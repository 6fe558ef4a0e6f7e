/* Where an answer stands in its prediction: equal ones, edited ones, others. */
#include "random_numbers.h"

#include "worker/serve/expected_answer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

enum { N = 600, MOST = 2 * N };

/* What the prediction said of an answer's tokens. */
struct outcome {
    uint32_t right, wrong, silent; /* of the next tokens: as drafted, other ones, without a draft */
    uint32_t found;
    float last_rate;
};

static struct outcome follow(const uint32_t *predicted, uint32_t n_predicted,
                             const uint32_t *answer, uint32_t n)
{
    struct outcome o = {0};
    struct expected_answer *p = expected_answer_new(predicted, n_predicted);
    assert_non_null(p);
    assert_int_equal(expected_answer_length(p), n_predicted);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t *next;
        uint32_t rest = expected_answer_rest(p, &next);
        assert_true(rest <= n_predicted);
        o.silent += rest == 0;
        o.right += rest && next[0] == answer[i];
        o.wrong += rest && next[0] != answer[i];
        o.last_rate = expected_answer_rate(p, 0);
        expected_answer_follow(p, answer, i + 1);
        assert_true(expected_answer_found(p) <= n_predicted);
    }
    o.found = expected_answer_found(p);
    expected_answer_free(p);
    return o;
}

static void make_text(uint32_t *tokens, uint32_t n, uint32_t alphabet)
{
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = below(alphabet);
}

static void test_equal(void **state)
{
    static uint32_t text[N];
    (void)state;
    random_state = 1;
    make_text(text, N, 5000);
    struct outcome o = follow(text, N, text, N);
    assert_true(o.right == N && o.found == N && o.last_rate > 0.95f);
    o = follow(text, N / 2, text, N); /* it ends, and the answer goes on */
    assert_int_equal(o.right, N / 2);
    assert_true(o.found >= N / 2 - 2 && o.found <= N / 2);
    expected_answer_free(NULL);
    expected_answer_follow(NULL, text, 1);
    assert_int_equal(expected_answer_length(NULL) + expected_answer_found(NULL), 0);
}

/* The answer has n_new other tokens in place of n_old of the prediction's at `at`. */
static struct outcome edited(const uint32_t *text, uint32_t at, uint32_t n_old, uint32_t n_new)
{
    static uint32_t answer[MOST];
    uint32_t n = at;
    memcpy(answer, text, at * sizeof *text);
    for (uint32_t i = 0; i < n_new; i++)
        answer[n++] = 100000 + i;
    memcpy(answer + n, text + at + n_old, (N - at - n_old) * sizeof *text);
    n += N - at - n_old;
    struct outcome o = follow(text, N, answer, n);
    assert_int_equal(o.right + o.wrong + o.silent, n);
    assert_int_equal(o.found, N - n_old);
    return o;
}

/* It comes back two tokens behind the edit, and at once where one token took another's place. */
static void test_edits(void **state)
{
    static uint32_t text[N];
    (void)state;
    random_state = 2;
    make_text(text, N, 5000);
    for (uint32_t n_old = 0; n_old < 40; n_old += 13)
        for (uint32_t n_new = 0; n_new < 40; n_new += 13) {
            if (n_old + n_new == 0)
                continue;
            struct outcome o = edited(text, 200, n_old, n_new);
            assert_true(o.right >= N - n_old - EXPECTED_LEAST_MATCH);
            assert_true(o.wrong <= 3);
        }
    struct outcome one = edited(text, 200, 1, 1);
    assert_true(one.right == N - 1 && one.wrong == 1);
}

/* The answer has what the prediction has, in another order, and behind words of its own. */
static void test_moved(void **state)
{
    static uint32_t text[N], answer[N + 50];
    (void)state;
    random_state = 3;
    make_text(text, N, 5000);
    for (uint32_t i = 0; i < 50; i++) /* as reasoning does */
        answer[i] = 200000 + i;
    memcpy(answer + 50, text + N / 2, N / 2 * sizeof *text);
    memcpy(answer + 50 + N / 2, text, N / 2 * sizeof *text);
    struct outcome o = follow(text, N, answer, N + 50);
    assert_true(o.right >= N - 2 * EXPECTED_LEAST_MATCH - 1);
    assert_true(o.wrong <= 6);
    assert_int_equal(o.found, N);
}

/* Of two equal places the one behind the difference is taken. */
static void test_nearest(void **state)
{
    static const uint32_t text[] = {7, 8, 1, 9, 9, 2, 7, 8, 3, 4, 7, 8, 5};
    static const uint32_t answer[] = {7, 8, 1, 6, 6, 7, 8};
    const uint32_t *next;
    (void)state;
    struct expected_answer *p = expected_answer_new(text, sizeof text / sizeof *text);
    for (uint32_t i = 1; i <= sizeof answer / sizeof *answer; i++)
        expected_answer_follow(p, answer, i);
    assert_int_equal(expected_answer_rest(p, &next), 5);
    assert_true(next[0] == 3 && next[1] == 4);
    expected_answer_free(p);
}

/* What never comes is soon not believed. */
static void test_rubbish(void **state)
{
    static uint32_t text[N], answer[N];
    (void)state;
    random_state = 4;
    make_text(text, N, 30);
    make_text(answer, N, 30);
    struct outcome o = follow(text, N, answer, N);
    assert_true(o.last_rate < 0.3f);
    for (uint32_t i = 0; i < N; i++)
        answer[i] = 1000 + i;
    o = follow(text, N, answer, N);
    assert_true(o.wrong == 2 && o.found == 0 && o.silent == N - 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal),   cmocka_unit_test(test_edits),
        cmocka_unit_test(test_moved),   cmocka_unit_test(test_nearest),
        cmocka_unit_test(test_rubbish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
