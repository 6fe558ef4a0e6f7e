/* The tokenizer, compared with ids of other implementations: the committed cases (Hugging Face's
 * tokenizers and sentencepiece, see tests/golden/make_vocab.py) and, if the shared folder exists,
 * llama.cpp's ids for published vocabularies. */
#include "gguf/gguf.h"
#include "json_reader.h"
#include "tokenizer/tokenizer.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define SMALL_CASES    2539
#define SHARED_SETS    13
#define CASES_IN_A_SET 59

static struct tokenizer *load(const char *path, const char *pre)
{
    struct gguf *g;
    struct tokenizer *t;
    struct error e;
    if (gguf_open(path, &g, &e))
        fail_msg("%s", e.text);
    if (tokenizer_new(g, pre, &t, &e))
        fail_msg("%s", e.text);
    gguf_close(g);
    return t;
}

static char *read_file(const char *path, size_t *len)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    size_t capacity = 1 << 20;
    char *text = malloc(capacity + 1);
    assert_non_null(text);
    *len = fread(text, 1, capacity, f);
    assert_true(*len < capacity);
    text[*len] = 0;
    fclose(f);
    return text;
}

/* The ids as "1,2,3", to compare and to show. */
static char *list_text(const uint32_t *ids, size_t count)
{
    char *text = calloc(count + 1, 11), *at = text;
    assert_non_null(text);
    for (size_t i = 0; i < count; i++)
        at += sprintf(at, "%s%u", i ? "," : "", ids[i]);
    return text;
}

/* True when text gives the ids expected and comes back from them. */
static bool check(const struct tokenizer *t, const char *text, size_t len, const char *expected,
                  const char *what)
{
    struct token_list ids = {0};
    struct strbuf back;
    struct error e;
    strbuf_init(&back);
    assert_int_equal(tokenizer_encode(t, text, len, TOKENIZE_PARSE_SPECIAL, &ids, &e), ERROR_OK);
    assert_int_equal(tokenizer_decode(t, ids.ids, ids.count, true, &back, &e), ERROR_OK);
    char *got = list_text(ids.ids, ids.count);
    bool equal = strcmp(got, expected) == 0;
    bool same_text = back.len == len && memcmp(back.data ? back.data : "", text, len) == 0;
    if (!equal)
        print_error("%s: '%.*s' gave\n  %s, expected\n  %s\n", what, (int)len, text, got, expected);
    if (!same_text)
        print_error("%s: '%.*s' came back as '%.*s'\n", what, (int)len, text, (int)back.len,
                    back.data ? back.data : "");
    free(got);
    strbuf_fini(&back);
    token_list_fini(&ids);
    return equal && same_text;
}

static size_t from_hex(char *hex)
{
    size_t len = strlen(hex) / 2;
    for (size_t i = 0; i < len; i++) {
        char digits[3] = {hex[2 * i], hex[2 * i + 1], 0};
        hex[i] = (char)strtol(digits, NULL, 16);
    }
    return len;
}

static void test_committed_cases(void **state)
{
    size_t len, cases = 0, wrong = 0;
    char *text = read_file(MOED_SOURCE_DIR "/tests/golden/vocab-small.cases", &len);
    assert_non_null(text);
    struct tokenizer *t = NULL;
    char loaded[256] = "";
    for (char *rest = text, *line; (line = strsep(&rest, "\n")) && *line; cases++) {
        const char *file = strsep(&line, "\t"), *pre = strsep(&line, "\t");
        char *hex = strsep(&line, "\t");
        assert_non_null(line);
        char path[256], wanted[256];
        snprintf(path, sizeof path, "%s/tests/golden/%s", MOED_SOURCE_DIR, file);
        snprintf(wanted, sizeof wanted, "%s %s", file, pre);
        if (strcmp(wanted, loaded) != 0) {
            tokenizer_free(t);
            t = load(path, strcmp(pre, "-") ? pre : NULL);
            strcpy(loaded, wanted);
        }
        size_t bytes = from_hex(hex);
        wrong += !check(t, hex, bytes, line, wanted);
    }
    tokenizer_free(t);
    free(text);
    assert_int_equal(cases, SMALL_CASES);
    assert_int_equal(wrong, 0);
}

/* The file says that no begin token is added; the last three tokens, user-defined, are <|turn>,
 * <turn|> and <|tool_response>. */
static void test_gemma_special(void **state)
{
    static const char text[] = "<|turn>a<turn|>";
    const struct plain_range plain = {0, sizeof text - 1};
    struct tokenizer *t = load(MOED_SOURCE_DIR "/tests/golden/vocab-small-gemma.gguf", NULL);
    struct token_list ids = {0};
    struct error e;
    uint32_t turn = tokenizer_vocab_size(t) - 3;
    assert_string_equal(tokenizer_model(t), "gemma4");
    assert_string_equal(tokenizer_pre(t), "gemma4");
    assert_false(tokenizer_is_end(t, turn));
    assert_true(tokenizer_is_end(t, turn + 1) && tokenizer_is_end(t, turn + 2));
    assert_true(tokenizer_is_end(t, (uint32_t)tokenizer_eos(t)));
    assert_int_equal(tokenizer_encode(t, text, sizeof text - 1, TOKENIZE_ADD_SPECIAL, &ids, &e), 0);
    assert_int_equal(ids.count, 4);
    assert_int_equal(ids.ids[0], tokenizer_bos(t));
    assert_int_equal(ids.ids[1], turn);
    assert_int_equal(ids.ids[3], turn + 1);
    ids.count = 0;
    assert_int_equal(tokenizer_encode_ranges(t, text, sizeof text - 1, 0, &plain, 1, &ids, &e), 0);
    for (size_t i = 0; i < ids.count; i++)
        assert_true(ids.ids[i] < turn);
    token_list_fini(&ids);
    tokenizer_free(t);
}

static size_t check_set(const struct json *set)
{
    const struct json *vocab = json_get(set, "vocab"), *pre = json_get(set, "pre");
    const struct json *cases = json_get(set, "cases");
    size_t wrong = 0;
    char path[512];
    assert_true(vocab && pre && cases);
    assert_int_equal(cases->count, CASES_IN_A_SET);
    snprintf(path, sizeof path, "%s/golden/vocab/%s", MOED_SHARED_DIR, vocab->text);
    struct tokenizer *t = load(path, pre->type == JSON_STRING ? pre->text : NULL);
    for (size_t i = 0; i < cases->count; i++) {
        const struct json *text = json_get(&cases->values[i], "text");
        const struct json *list = json_get(&cases->values[i], "ids");
        uint32_t *ids = calloc(list->count + 1, sizeof *ids);
        assert_non_null(ids);
        for (size_t k = 0; k < list->count; k++)
            ids[k] = (uint32_t)list->values[k].number;
        char *expected = list_text(ids, list->count);
        wrong += !check(t, text->text, text->text_len, expected, path);
        free(expected);
        free(ids);
    }
    tokenizer_free(t);
    return wrong;
}

static void test_shared_cases(void **state)
{
    size_t len = 0, wrong = 0;
    char *text = read_file(MOED_SHARED_DIR "/golden/vocab/cases.json", &len);
    if (!text) {
        print_message("skipped: %s/golden/vocab/cases.json: %s\n", MOED_SHARED_DIR,
                      strerror(errno));
        skip();
    }
    struct json sets;
    assert_true(json_parse(text, len, &sets));
    assert_int_equal(sets.count, SHARED_SETS);
    for (size_t i = 0; i < sets.count; i++)
        wrong += check_set(&sets.values[i]);
    json_free(&sets);
    free(text);
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_committed_cases),
        cmocka_unit_test(test_gemma_special),
        cmocka_unit_test(test_shared_cases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
