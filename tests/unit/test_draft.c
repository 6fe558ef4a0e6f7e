/* Drafts out of a conversation, against a search without an index; what drafting learns; and when a
 * step has drafts: steps whose times and tokens the test makes up. */
#include "random_numbers.h"

#include "model/speculate.h"
#include "worker/serve/draft.h"
#include "worker/serve/speculation.h"

#include <setjmp.h>
#include <stdarg.h>
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

/* ---- Whether it pays ---- */

/* A machine and a text: what a step of `streams` takes, and how probable drafts are. */
struct setting {
    uint32_t streams;
    double row; /* what a draft adds to a step, as a share of it */
    double right;
    double noise; /* of a step's time */
};

struct outcome {
    double time, tokens; /* without drafts a token of each stream takes 1 */
    uint32_t drafted;
};

static const uint32_t LOOP[] = {3, 4, 5, 3, 4, 5, 3, 4};

static struct outcome run(const struct setting *t, uint32_t speculate, uint32_t n_steps)
{
    static struct speculation s;
    struct outcome o = {0, 0, 0};
    random_state = 7;
    speculation_init(&s, speculate);
    struct draft *d = draft_new(8, &s.rates);
    for (uint32_t step = 0; step < n_steps; step++) {
        struct speculation_step begun = speculation_begin(&s, t->streams);
        uint32_t drafts = 0, accepted = 0;
        for (uint32_t stream = 0; stream < t->streams; stream++) {
            assert_int_equal(draft_find(d, LOOP, 8), 5);
            uint32_t n = speculation_choose(&s, &begun, d, 100), i = 0;
            bool right = true;
            while (right && i <= n) {
                right = below(1000) < t->right * 1000;
                draft_learn(d, LOOP, i, right ? draft_token(d, LOOP, i) : 99, &s.rates);
                i++;
            }
            accepted += i - 1;
            drafts += n;
        }
        double ns = 1e6 * (1 + t->row * drafts);
        ns *= 1 + t->noise * (below(2001) / 1000.0 - 1);
        speculation_account(&s, t->streams, drafts, accepted, ns);
        o.time += ns * 1e-6;
        o.tokens += 1 + (double)accepted / t->streams;
        o.drafted += drafts;
    }
    draft_free(d);
    return o;
}

static void test_pays(void **state)
{
    static const struct setting cheap = {1, 0.1, 0.9, 0}, copy = {1, 0.6, 0.99, 0.1},
                                streams = {4, 0.1, 0.9, 0.1};
    (void)state;
    struct outcome o = run(&cheap, SPECULATE_AUTO, 2000);
    assert_true(o.tokens > 2.5 * o.time);
    o = run(&copy, SPECULATE_AUTO, 2000);
    assert_true(o.tokens > 1.25 * o.time);
    o = run(&streams, SPECULATE_AUTO, 2000);
    assert_true(o.tokens > 1.5 * o.time);
}

/* Where it cannot pay it costs little, whatever made it look well before. */
static void test_costs_little(void **state)
{
    static const struct setting settings[] = {{1, 0.9, 0.6, 0.1},  {1, 0.6, 0.5, 0.3},
                                              {4, 0.5, 0.4, 0.1},  {1, 1.5, 0.99, 0.1},
                                              {2, 0.3, 0.05, 0.1}, {16, 0.4, 0.5, 0.1}};
    (void)state;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        struct setting still = settings[i];
        still.noise = settings[i].noise;
        struct outcome with = run(&still, SPECULATE_AUTO, 4000);
        struct outcome without = run(&still, SPECULATE_OFF, 4000);
        assert_int_equal(without.drafted, 0);
        assert_true(with.tokens / with.time > 0.975 * without.tokens / without.time);
    }
}

static void test_fixed(void **state)
{
    static const struct setting poor = {20, 1, 0.1, 0};
    (void)state;
    assert_int_equal(run(&poor, 3, 10).drafted, 3 * 20 * 10);
    assert_int_equal(run(&poor, SPECULATE_AUTO, 100).drafted, 0); /* too many streams */
}

static void test_option(void **state)
{
    static const char *const wrong[] = {"", "0", "16", "-1", "3x", "on", "99999999999999999999"};
    uint32_t n = 77;
    struct error e;
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(speculate_parse(wrong[i], &n, &e), ERROR_USAGE);
    assert_int_equal(n, 77);
    assert_non_null(strstr(e.text, SPECULATE_VALUES));
    assert_int_equal(speculate_parse("auto", &n, &e), ERROR_OK);
    assert_int_equal(n, SPECULATE_AUTO);
    assert_int_equal(speculate_parse("off", &n, &e), ERROR_OK);
    assert_int_equal(n, SPECULATE_OFF);
    assert_int_equal(speculate_parse("15", &n, &e), ERROR_OK);
    assert_int_equal(n, SPECULATE_MOST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_naive),        cmocka_unit_test(test_examples),
        cmocka_unit_test(test_learning),     cmocka_unit_test(test_pays),
        cmocka_unit_test(test_costs_little), cmocka_unit_test(test_fixed),
        cmocka_unit_test(test_option),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
