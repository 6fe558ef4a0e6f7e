/* Log-probabilities as OpenAI's text completions have them. The vocabulary has two tokens of one
 * text and one that is a part of a character. */
#include "client/http/api/scores.h"
#include "client/http/api/text_place.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

enum { A, B, C, SECOND_A, PART };

static void make_vocabulary(struct vocabulary *v, size_t ends[5])
{
    *v = (struct vocabulary){.count = 5, .ends = ends};
    strbuf_init(&v->text);
    strbuf_append(&v->text, "abca\xc3", 5);
    for (size_t i = 0; i < 5; i++)
        ends[i] = i + 1;
}

static void expect(const struct scores *s, const char *expected)
{
    size_t ends[5];
    struct vocabulary v;
    struct strbuf out;
    make_vocabulary(&v, ends);
    strbuf_init(&out);
    scores_columns_json(s, 0, s->count, &v, &out);
    assert_string_equal(out.data, expected);
    strbuf_fini(&out);
    strbuf_fini(&v.text);
}

/* "There may be up to logprobs + 1 elements": the chosen token is one of them. */
static void test_the_chosen_token_is_among_the_top(void **state)
{
    struct scores s = {.top = 2};
    scores_add(&s, (uint32_t[]){A, C}, 2, (float[]){-1, -4}, (uint32_t[]){A, B, A, B},
               (float[]){-1, -2, -1, -2});
    scores_place(&s, (uint32_t[]){0, 1}, 2);
    expect(&s, "{\"tokens\":[\"a\",\"c\"],\"token_logprobs\":[-1,-4],"
               "\"top_logprobs\":[{\"a\":-1,\"b\":-2},{\"a\":-1,\"b\":-2,\"c\":-4}],"
               "\"text_offset\":[0,1]}");
    scores_fini(&s);
}

static void test_the_chosen_token_alone(void **state)
{
    struct scores s = {.top = 0};
    scores_add(&s, (uint32_t[]){B}, 1, NULL, NULL, NULL); /* of a prompt: the first one */
    scores_add(&s, (uint32_t[]){C, PART}, 2, (float[]){-4, -3}, NULL, NULL);
    scores_place(&s, (uint32_t[]){0, 1, 2}, 3);
    expect(&s, "{\"tokens\":[\"b\",\"c\",\"bytes:\\\\xc3\"],\"token_logprobs\":[null,-4,-3],"
               "\"top_logprobs\":[null,{\"c\":-4},{\"bytes:\\\\xc3\":-3}],"
               "\"text_offset\":[0,1,2]}");
    scores_fini(&s);
}

/* A member of an object stands there once, with the more probable token's value. */
static void test_two_tokens_of_one_text(void **state)
{
    struct scores s = {.top = 2};
    scores_add(&s, (uint32_t[]){SECOND_A, SECOND_A}, 2, (float[]){-3, -2},
               (uint32_t[]){A, B, A, SECOND_A}, (float[]){-1, -2, -1, -2});
    scores_place(&s, (uint32_t[]){0, 1}, 2);
    expect(&s, "{\"tokens\":[\"a\",\"a\"],\"token_logprobs\":[-3,-2],"
               "\"top_logprobs\":[{\"a\":-1,\"b\":-2},{\"a\":-1}],\"text_offset\":[0,1]}");
    scores_fini(&s);
}

static void test_ids_as_names(void **state)
{
    struct scores s = {.top = 2, .as_ids = true};
    scores_add(&s, (uint32_t[]){SECOND_A, C}, 2, (float[]){-3, -4}, (uint32_t[]){A, SECOND_A, A, B},
               (float[]){-1, -3, -1, -2});
    expect(&s, "{\"tokens\":[\"token_id:3\",\"token_id:2\"],\"token_logprobs\":[-3,-4],"
               "\"top_logprobs\":[{\"token_id:0\":-1,\"token_id:3\":-3},"
               "{\"token_id:0\":-1,\"token_id:1\":-2,\"token_id:2\":-4}],\"text_offset\":[0,0]}");
    scores_fini(&s);
}

static void test_no_token(void **state)
{
    struct scores s = {.top = 1};
    expect(&s, "{\"tokens\":[],\"token_logprobs\":[],\"top_logprobs\":[],\"text_offset\":[]}");
    scores_fini(&s);
}

typedef void write_scores(const struct scores *s, size_t to, const struct vocabulary *v,
                          struct strbuf *out);

static void write_rows(const struct scores *s, size_t to, const struct vocabulary *v,
                       struct strbuf *out)
{
    scores_json(s, 0, to, v, out);
}

static void write_id_rows(const struct scores *s, size_t to, const struct vocabulary *v,
                          struct strbuf *out)
{
    scores_id_json(s, 0, to, v, out);
}

static void write_columns(const struct scores *s, size_t to, const struct vocabulary *v,
                          struct strbuf *out)
{
    scores_columns_json(s, 0, to, v, out);
}

/* What is written as it comes is in the end what is written at once, also where the end is before
 * what was written. */
static void test_scores_kept(void **state)
{
    write_scores *const writers[] = {write_rows, write_id_rows, write_columns};
    size_t ends[5];
    struct vocabulary v;
    make_vocabulary(&v, ends);
    for (enum scores_form form = SCORES_ROWS; form <= SCORES_COLUMNS; form++) {
        struct scores kept = {.top = 2}, plain = {.top = 2};
        for (uint32_t i = 0; i < 9; i++) {
            const float top[] = {-0.5f, -1.0f / 3};
            const uint32_t token = i % 5, top_tokens[] = {(i + 1) % 5, i % 3};
            const float value = -1.25f * (float)i;
            scores_add(&kept, &token, 1, i || form != SCORES_COLUMNS ? &value : NULL, top_tokens,
                       top);
            scores_add(&plain, &token, 1, i || form != SCORES_COLUMNS ? &value : NULL, top_tokens,
                       top);
            scores_place(&kept, &i, 1);
            scores_place(&plain, &i, 1);
            scores_keep(&kept, i < 7 ? i / 2 * 2 : 7, &v, form); /* not always, and not all */
        }
        for (size_t to = 6; to <= 9; to++) {
            struct strbuf one, other;
            strbuf_init(&one);
            strbuf_init(&other);
            writers[form](&kept, to, &v, &one);
            writers[form](&plain, to, &v, &other);
            assert_string_equal(one.data, other.data);
            strbuf_fini(&one);
            strbuf_fini(&other);
        }
        scores_fini(&kept);
        scores_fini(&plain);
    }
    strbuf_fini(&v.text);
}

/* Without memory for a text the answer fails at once, and not when all of it was computed. */
static void test_no_memory_for_a_kept_text(void **state)
{
    size_t ends[5];
    struct vocabulary v;
    (void)state;
    make_vocabulary(&v, ends);
    for (int text = 0; text < SCORES_TEXTS; text++) {
        struct scores s = {.top = 0};
        struct strbuf out;
        scores_add(&s, (uint32_t[]){A, B}, 2, (float[]){-1, -2}, NULL, NULL);
        s.kept[text].failed = true;
        scores_keep(&s, 1, &v, SCORES_COLUMNS);
        assert_true(s.failed);
        strbuf_init(&out);
        scores_columns_json(&s, 0, 2, &v, &out);
        assert_true(out.failed);
        strbuf_fini(&out);
        scores_fini(&s);
    }
    strbuf_fini(&v.text);
}

/* Those of a beginning that two prompts share. */
static void test_scores_appended(void **state)
{
    struct scores from = {.top = 1}, s = {.top = 1};
    (void)state;
    scores_add(&from, (uint32_t[]){A}, 1, NULL, NULL, NULL);
    scores_add(&from, (uint32_t[]){B, C}, 2, (float[]){-1, -2}, (uint32_t[]){B, A},
               (float[]){-1, -0.5f});
    scores_place(&from, (uint32_t[]){0, 1, 2}, 3);
    scores_append(&s, &from, 1, 3);
    scores_append(&s, &from, 3, 3);
    expect(&s, "{\"tokens\":[\"b\",\"c\"],\"token_logprobs\":[-1,-2],"
               "\"top_logprobs\":[{\"b\":-1},{\"a\":-0.5,\"c\":-2}],\"text_offset\":[1,2]}");
    scores_fini(&from);
    scores_fini(&s);
}

/* ---- Places in a text ---- */

/* Token i is texts[i]; the last one has the rest. Checks their offsets in a text. */
#define EXPECT_OFFSETS(text, texts, ...)                                                           \
    expect_offsets(text, texts, sizeof texts / sizeof *texts, (const uint32_t[]){__VA_ARGS__},     \
                   sizeof(uint32_t[]){__VA_ARGS__} / sizeof(uint32_t))

static void expect_offsets(const char *text, const char *const *texts, size_t n,
                           const uint32_t *expected, size_t n_expected)
{
    size_t ends[16];
    uint32_t tokens[16], offsets[16];
    struct vocabulary v = {.count = (uint32_t)n, .ends = ends};
    struct text_place end;
    strbuf_init(&v.text);
    assert_int_equal(n + 1, n_expected);
    for (uint32_t i = 0; i < n; i++) {
        strbuf_append(&v.text, texts[i], strlen(texts[i]));
        ends[i] = v.text.len;
        tokens[i] = i;
    }
    text_place_tokens(&v, tokens, n, (struct moed_bytes){text, strlen(text)}, offsets, &end);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(offsets[i], expected[i]);
    assert_int_equal(text_place_take(&end, "x", 1), expected[n]);
    strbuf_fini(&v.text);
}

static void test_offsets_in_a_text(void **state)
{
    static const char *const
        plain[] = {"On", "ce", " \xc3\xa9", "t"},
        *const begin[] = {"<s>", "ab", "c"}, *const space[] = {"<s>", " ab", " c"},
        *const marks[] = {"<s>", "<s>", "a"}, *const bytes[] = {"a", "\xe6\x97", "\xa5", "b"},
        *const unknown[] = {"a", "<unk>", "b"};
    (void)state;
    EXPECT_OFFSETS("Once \xc3\xa9t", plain, 0, 2, 4, 6, 7);
    EXPECT_OFFSETS("abc", begin, 0, 0, 2, 3);  /* a begin token is not in the text */
    EXPECT_OFFSETS("ab c", space, 0, 0, 2, 4); /* nor the space before the first word */
    EXPECT_OFFSETS("<s><s>a", marks, 0, 3, 6, 7);
    EXPECT_OFFSETS("a\xe6\x97\xa5"
                   "b",
                   bytes, 0, 1, 1, 2, 3); /* a token inside a character */
    EXPECT_OFFSETS("a\xc3\xbf"
                   "b",
                   unknown, 0, 1, 2, 3);
}

/* As JSON has them, U+FFFD each. */
static void test_offsets_of_stray_bytes(void **state)
{
    static const char *const stray[] = {"H", "\xa5", "\xa5", "i"}, *const cut[] = {"\xe6\x97", "A",
                                                                                   "B"};
    (void)state;
    EXPECT_OFFSETS("H\xa5\xa5i", stray, 0, 1, 2, 3, 4);
    EXPECT_OFFSETS("\xe6\x97"
                   "AB",
                   cut, 0, 2, 3, 4);
}

/* Texts that only look alike, and one that comes again. */
static void test_texts_that_look_alike(void **state)
{
    size_t ends[] = {3, 6, 9};
    struct vocabulary v = {.count = 3, .ends = ends};
    struct scores s = {.top = 3};
    struct strbuf out;
    strbuf_init(&v.text);
    strbuf_init(&out);
    strbuf_text(&v.text, "axbayb"
                         "axb");
    scores_add(&s, (uint32_t[]){2}, 1, (float[]){-3}, (uint32_t[]){0, 1, 2}, (float[]){-1, -2, -3});
    scores_columns_json(&s, 0, 1, &v, &out);
    assert_string_equal(out.data, "{\"tokens\":[\"axb\"],\"token_logprobs\":[-3],"
                                  "\"top_logprobs\":[{\"axb\":-1,\"ayb\":-2}],"
                                  "\"text_offset\":[0]}");
    scores_fini(&s);
    strbuf_fini(&v.text);
    strbuf_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_chosen_token_is_among_the_top),
        cmocka_unit_test(test_the_chosen_token_alone),
        cmocka_unit_test(test_two_tokens_of_one_text),
        cmocka_unit_test(test_ids_as_names),
        cmocka_unit_test(test_no_token),
        cmocka_unit_test(test_scores_kept),
        cmocka_unit_test(test_no_memory_for_a_kept_text),
        cmocka_unit_test(test_texts_that_look_alike),
        cmocka_unit_test(test_scores_appended),
        cmocka_unit_test(test_offsets_in_a_text),
        cmocka_unit_test(test_offsets_of_stray_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
