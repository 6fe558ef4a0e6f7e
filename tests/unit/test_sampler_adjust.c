/* Samplers that change single logits, against hand-worked cases and DRY's quadratic definition;
 * guards; the breakers of DRY. */
#include "worker/sample/breakers.h"
#include "worker/sample/sampler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CONTEXT = 512 };

static uint32_t pick(const struct sampling *settings, const struct sampler_turn *turn,
                     const float *logits, uint32_t n)
{
    float row[64];
    struct sampler *s = sampler_new(n, CONTEXT);
    memcpy(row, logits, n * sizeof *row);
    uint32_t token = sampler_pick(s, settings, turn, row);
    assert_memory_equal(row, logits, n * sizeof *row);
    sampler_free(s);
    return token;
}

/* What temperature 0 chooses after these tokens. */
static uint32_t greedy_after(const struct sampling *settings, const uint32_t *tokens, uint32_t n,
                             const float *logits, uint32_t vocab)
{
    return pick(settings, &(struct sampler_turn){.tokens = tokens, .n_tokens = n, .n_unbroken = n},
                logits, vocab);
}

static void test_repetition(void **state)
{
    struct sampling s = sampling_neutral();
    (void)state;
    s.repetition_penalty = 2;
    /* 4 / 2 < 3; once only, though it stands twice; negative logits are multiplied */
    assert_int_equal(greedy_after(&s, (uint32_t[]){0, 0}, 2, (float[]){4, 3, 1}, 3), 1);
    assert_int_equal(greedy_after(&s, (uint32_t[]){0, 0}, 2, (float[]){7, 3, 1}, 3), 0);
    assert_int_equal(greedy_after(&s, (uint32_t[]){0}, 1, (float[]){-2, -3, -9}, 3), 1);
    s.repetition_window = 1; /* only the newest */
    assert_int_equal(greedy_after(&s, (uint32_t[]){0, 2}, 2, (float[]){4, 3, 1}, 3), 0);
    assert_int_equal(greedy_after(&s, (uint32_t[]){99, 0}, 2, (float[]){4, 3, 1}, 3), 1);
    s.repetition_window = 0; /* all */
    assert_int_equal(greedy_after(&s, (uint32_t[]){0, 2, 2, 2}, 4, (float[]){4, 3, 1}, 3), 1);
    s.order[0] = 0; /* no letter e */
    assert_int_equal(greedy_after(&s, (uint32_t[]){0, 2}, 2, (float[]){4, 3, 1}, 3), 0);
}

static void test_presence_and_frequency(void **state)
{
    const uint32_t tokens[] = {0, 1, 0, 0};
    const float logits[] = {4, 3.5f, 3.42f};
    struct sampling s = sampling_neutral();
    (void)state;
    s.frequency_penalty = 0.2f; /* 4 - 0.6 = 3.4; 3.5 - 0.2 = 3.3; 3.42 */
    assert_int_equal(greedy_after(&s, tokens, 4, logits, 3), 2);
    assert_int_equal(greedy_after(&s, tokens, 3, logits, 3), 0); /* 4 - 0.4 = 3.6 */
    s.presence_penalty = 0.25f;                                  /* 3.35 */
    assert_int_equal(greedy_after(&s, tokens, 3, logits, 3), 2);
    s.frequency_penalty = 0;
    assert_int_equal(greedy_after(&s, tokens, 4, logits, 3), 0); /* 3.75: once, not three times */
    s.presence_penalty = -1;                                     /* brings seen tokens up */
    assert_int_equal(greedy_after(&s, (uint32_t[]){2}, 1, logits, 3), 2);
    s.presence_penalty = 0.25f, s.repetition_penalty = 1.1f; /* 4 / 1.1 - 0.25 = 3.386 */
    assert_int_equal(greedy_after(&s, (uint32_t[]){0}, 1, (float[]){4, 3.38f}, 2), 0);
    assert_int_equal(greedy_after(&s, (uint32_t[]){0}, 1, (float[]){4, 3.39f}, 2), 1);
}

/* arg: a set of tokens. */
static bool is_breaking(void *arg, uint32_t token)
{
    return *(const uint32_t *)arg >> token & 1;
}

static void test_dry(void **state)
{
    /* "abc" stands at the end, and before "d": the repetition of 3 tokens would become 4. */
    const uint32_t tokens[] = {0, 1, 2, 3, 0, 1, 2};
    struct sampling s = sampling_neutral();
    (void)state;
    s.dry_multiplier = 1;
    s.dry_base = 2; /* 2^(3 - 2) = 2 */
    assert_int_equal(greedy_after(&s, tokens, 7, (float[]){0, 0, 0, 5, 2.9f}, 5), 3);
    assert_int_equal(greedy_after(&s, tokens, 7, (float[]){0, 0, 0, 5, 3.1f}, 5), 4);
    s.dry_allowed_length = 3; /* 2^0 = 1 */
    assert_int_equal(greedy_after(&s, tokens, 7, (float[]){0, 0, 0, 5, 3.9f}, 5), 3);
    assert_int_equal(greedy_after(&s, tokens, 7, (float[]){0, 0, 0, 5, 4.1f}, 5), 4);
    s.dry_allowed_length = 4;
    assert_int_equal(greedy_after(&s, tokens, 7, (float[]){0, 0, 0, 5, 4.9f}, 5), 3);
    s.dry_allowed_length = 2;
    s.dry_window = 6; /* the first "a" is outside: 2 tokens, 2^0 = 1 */
    assert_int_equal(greedy_after(&s, tokens, 7, (float[]){0, 0, 0, 5, 3.9f}, 5), 3);
    assert_int_equal(greedy_after(&s, tokens, 7, (float[]){0, 0, 0, 5, 4.1f}, 5), 4);
    s.dry_window = 0;
    struct sampler_turn turn = {.tokens = tokens, .n_tokens = 7, .n_unbroken = 2};
    assert_int_equal(pick(&s, &turn, (float[]){0, 0, 0, 5, 3.9f}, 5), 3); /* 2 since a breaker */
    assert_int_equal(pick(&s, &turn, (float[]){0, 0, 0, 5, 4.1f}, 5), 4);
    turn.n_unbroken = 1;
    assert_int_equal(pick(&s, &turn, (float[]){0, 0, 0, 5, 4.9f}, 5), 3);
    turn.n_unbroken = 7;
    turn.breaks = is_breaking; /* the next token has a breaker in its text: it is free */
    turn.breaks_arg = &(uint32_t){1 << 3};
    assert_int_equal(pick(&s, &turn, (float[]){0, 0, 0, 5, 4.9f}, 5), 3);
    uint32_t same[CONTEXT] = {0}; /* an endless penalty leaves a number */
    s.dry_base = 100;
    assert_int_equal(greedy_after(&s, same, CONTEXT, (float[]){5, -1e30f}, 2), 1);
}

/* DRY by its definition: every place compared with the end, token by token. breaking: the tokens
 * whose text has a breaker. */
static void dry_slowly(const struct sampling *s, const uint32_t *tokens, uint32_t n,
                       uint32_t n_unbroken, uint32_t breaking, float *logits, uint32_t vocab)
{
    uint32_t window = s->dry_window && s->dry_window < n ? s->dry_window : n, first = n - window;
    for (uint32_t token = 0; token < vocab; token++) {
        uint32_t longest = 0;
        bool found = false;
        for (uint32_t at = first; at + 1 < n; at++) {
            uint32_t length = 0;
            while (length < n_unbroken && length <= at - first &&
                   tokens[at - length] == tokens[n - 1 - length])
                length++;
            if (tokens[at + 1] != token || length < s->dry_allowed_length)
                continue;
            found = true;
            longest = length > longest ? length : longest;
        }
        if (found && n_unbroken >= s->dry_allowed_length && !(breaking >> token & 1))
            logits[token] -=
                (float)((double)s->dry_multiplier *
                        pow((double)s->dry_base, (double)longest - (double)s->dry_allowed_length));
    }
}

static void test_dry_definition(void **state)
{
    enum { VOCAB = 5 };
    struct sampling s = sampling_neutral();
    (void)state;
    srand(5);
    s.dry_base = 1.5f;
    for (int round = 0; round < 3000; round++) {
        uint32_t tokens[60], n = 1 + (uint32_t)rand() % 60, kinds = 1 + (uint32_t)rand() % VOCAB;
        for (uint32_t i = 0; i < n; i++)
            tokens[i] = (uint32_t)rand() % kinds;
        float logits[VOCAB], slow[VOCAB];
        for (int i = 0; i < VOCAB; i++)
            slow[i] = logits[i] = (float)(rand() % 1000) * 0.01f;
        s.dry_multiplier = (float)(1 + rand() % 3);
        s.dry_allowed_length = (uint32_t)rand() % 4;
        s.dry_window = rand() % 2 ? (uint32_t)rand() % 40 : 0;
        uint32_t breaking = (uint32_t)rand() % 4 ? (uint32_t)rand() % (1 << VOCAB) : 0;
        struct sampler_turn turn = {.tokens = tokens,
                                    .n_tokens = n,
                                    .n_unbroken = (uint32_t)rand() % (n + 1),
                                    .breaks = breaking ? is_breaking : NULL,
                                    .breaks_arg = &breaking};
        dry_slowly(&s, tokens, n, turn.n_unbroken, breaking, slow, VOCAB);
        uint32_t want = 0;
        for (uint32_t i = 1; i < VOCAB; i++)
            want = slow[i] > slow[want] ? i : want;
        assert_int_equal(pick(&s, &turn, logits, VOCAB), want);
    }
}

static void test_biases(void **state)
{
    struct sampling s = sampling_neutral();
    struct sampler_bias biases[] = {{2, 3}, {0, -INFINITY}, {99, 5}, {2, 1.5f}};
    uint32_t banned[] = {1, 77};
    struct sampler_turn turn = {.biases = biases, .n_biases = 1, .banned = banned};
    (void)state;
    assert_int_equal(pick(&s, &turn, (float[]){4, 3.5f, 2}, 3), 2); /* 2 + 3 */
    turn.n_biases = 2;
    assert_int_equal(pick(&s, &turn, (float[]){40, 3.5f, 0}, 3), 1);
    turn.n_biases = 4; /* the last one of a token counts */
    assert_int_equal(pick(&s, &turn, (float[]){40, 3.6f, 2}, 3), 1);
    turn.n_banned = 2;
    assert_int_equal(pick(&s, &turn, (float[]){40, 3.6f, 2}, 3), 2);
}

/* ---- Guards ---- */

struct allowed {
    uint32_t mask;
    int asked, masked;
};

static bool accepts(void *arg, uint32_t token)
{
    struct allowed *a = arg;
    a->asked++;
    return a->mask >> token & 1;
}

static const uint32_t *mask_of(void *arg)
{
    struct allowed *a = arg;
    a->masked++;
    return &a->mask;
}

/* A draw that is repeated among the allowed tokens where it was refused has their probabilities. */
static void test_guard(void **state)
{
    enum { DRAWS = 30000 };
    const float logits[] = {0, (float)-M_LN2, (float)(-2 * M_LN2), (float)(-2 * M_LN2)};
    struct allowed allowed = {.mask = 0x6}; /* tokens 1 and 2: 2/3 and 1/3 */
    struct sampler_guard guard = {accepts, mask_of, &allowed};
    struct sampling s = sampling_neutral();
    struct sampler *sampler = sampler_new(4, CONTEXT);
    int counts[4] = {0};
    (void)state;
    s.temperature = 1;
    for (uint32_t i = 0; i < DRAWS; i++) {
        float row[4];
        struct sampler_turn turn = {.n_tokens = i, .guard = &guard};
        memcpy(row, logits, sizeof row);
        counts[sampler_pick(sampler, &s, &turn, row)]++;
    }
    assert_int_equal(counts[0] + counts[3], 0);
    double off = (counts[1] - DRAWS * 2 / 3.) / sqrt(DRAWS * 2 / 9.);
    assert_true(fabs(off) < 5);
    assert_int_equal(allowed.asked, DRAWS);
    /* 1/2 and 1/8 are refused at first */
    assert_true(fabs((allowed.masked - DRAWS * 0.625) / sqrt(DRAWS * 0.234375)) < 5);

    const float values[] = {5, 4, 3, 2};
    const uint32_t tokens[] = {1, 0, 2, 3};
    struct sampler_turn turn = {.guard = &guard};
    s.temperature = 0;
    assert_int_equal(sampler_pick_largest(sampler, &s, &turn, values, tokens, 1), 1);
    allowed.mask = 0x8;
    assert_int_equal(sampler_pick_largest(sampler, &s, &turn, values, tokens, 1),
                     SAMPLER_UNDECIDED);
    float row[] = {4, 5, 3, 2};
    assert_int_equal(sampler_pick(sampler, &s, &turn, row), 3);
    sampler_free(sampler);
}

/* ---- Breakers ---- */

static uint32_t unbroken_after(const struct tokenizer *t, const char *text, const char *breaker,
                               bool at_once)
{
    struct token_list ids = {0};
    struct breakers b = {0};
    assert_int_equal(tokenizer_encode(t, text, strlen(text), 0, &ids, NULL), ERROR_OK);
    if (breaker)
        assert_true(breakers_add(&b, breaker, strlen(breaker)));
    else
        breakers_add_usual(&b);
    for (uint32_t n = at_once ? (uint32_t)ids.count : 1; n <= ids.count; n++)
        breakers_follow(&b, t, ids.ids, n);
    uint32_t unbroken = b.n_unbroken;
    assert_int_equal(b.n_tokens, ids.count);
    breakers_fini(&b);
    token_list_fini(&ids);
    return unbroken;
}

static uint32_t count_tokens(const struct tokenizer *t, const char *text)
{
    struct token_list ids = {0};
    assert_int_equal(tokenizer_encode(t, text, strlen(text), 0, &ids, NULL), ERROR_OK);
    uint32_t n = (uint32_t)ids.count;
    token_list_fini(&ids);
    return n;
}

static void test_breakers(void **state)
{
    struct gguf *g;
    struct tokenizer *t;
    struct error e;
    (void)state;
    assert_int_equal(gguf_open(MOED_SOURCE_DIR "/tests/golden/vocab-small.gguf", &g, &e), ERROR_OK);
    assert_int_equal(tokenizer_new(g, NULL, &t, &e), ERROR_OK);
    gguf_close(g);
    for (int at_once = 0; at_once < 2; at_once++) {
        assert_int_equal(unbroken_after(t, "one two three", NULL, at_once),
                         count_tokens(t, "one two three"));
        assert_int_equal(unbroken_after(t, "one two\nthree four", NULL, at_once),
                         count_tokens(t, "three four"));
        assert_int_equal(unbroken_after(t, "he said:", NULL, at_once), 0);
        /* a breaker of several tokens */
        assert_true(count_tokens(t, "two three") > 1);
        assert_int_equal(unbroken_after(t, "one two three four five", "two three", at_once),
                         count_tokens(t, " four five"));
        assert_int_equal(unbroken_after(t, "one two thre", "two three", at_once),
                         count_tokens(t, "one two thre"));
    }
    struct breakers b = {0};
    struct token_list ids = {0};
    breakers_add_usual(&b);
    assert_int_equal(tokenizer_encode(t, "a:b", 3, 0, &ids, NULL), ERROR_OK);
    assert_int_equal(ids.count, 3);
    breakers_follow(&b, t, ids.ids, 3);
    assert_false(breakers_has(&b, ids.ids[0]) || breakers_has(&b, ids.ids[2]));
    assert_true(breakers_has(&b, ids.ids[1]));
    token_list_fini(&ids);
    breakers_fini(&b);
    b = (struct breakers){0};
    assert_false(breakers_add(&b, "", 0));
    assert_false(breakers_add(&b, "12345678901234567890123456789012345678901", 41));
    for (int i = 0; i < BREAKERS_MOST; i++)
        assert_true(breakers_add(&b, "x", 1));
    assert_false(breakers_add(&b, "x", 1));
    breakers_fini(&b);
    tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_repetition), cmocka_unit_test(test_presence_and_frequency),
        cmocka_unit_test(test_dry),        cmocka_unit_test(test_dry_definition),
        cmocka_unit_test(test_biases),     cmocka_unit_test(test_guard),
        cmocka_unit_test(test_breakers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
