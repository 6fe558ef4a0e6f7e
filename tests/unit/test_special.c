/* The search for special tokens (tokenizer/special.h). The truth: trying every token at every byte.
 * The number of steps is bounded by the text's length, whatever the tokens are. */
#include "tokenizer/special.h"

#include "random_numbers.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_TOKENS = 40, LONG_TOKEN = 1023, LONG_TEXT = 1 << 20 };

static struct symbol_table symbols;
static struct special_set set;

static void add(const char *text, size_t len)
{
    uint32_t id;
    assert_true(symbol_table_add(&symbols, text, len, &id));
}

static void begin(void)
{
    assert_true(symbol_table_init(&symbols, 16, 64));
}

static void make_set(void)
{
    uint32_t *ids = malloc((symbols.count + 1) * sizeof *ids);
    assert_non_null(ids);
    for (uint32_t i = 0; i < symbols.count; i++)
        ids[i] = symbols.count - 1 - i;
    assert_true(special_set_init(&set, ids, symbols.count, &symbols));
    free(ids);
}

static void end(void)
{
    special_set_fini(&set);
    symbol_table_fini(&symbols);
}

/* The longest token at the start of text, of equal ones the first. */
static uint32_t naive_at(const uint8_t *text, size_t len)
{
    uint32_t best = SYMBOL_NONE, best_len = 0;
    for (uint32_t id = 0; id < symbols.count; id++) {
        uint32_t n = symbols.symbols[id].length;
        if (n > best_len && n <= len && memcmp(symbol_bytes(&symbols, id), text, n) == 0) {
            best = id;
            best_len = n;
        }
    }
    return best;
}

/* Goes through the text as the tokenizer does; now and then on from within a token. */
static void compare(const char *text, size_t len, unsigned skip)
{
    static struct special_scan scan;
    special_scan_init(&scan, &set, &symbols, text, len);
    size_t from = 0, at = 0;
    struct special_match match;
    bool found;
    do {
        for (at = from; at < len && naive_at((const uint8_t *)text + at, len - at) == SYMBOL_NONE;)
            at++;
        found = special_scan_find(&scan, from, &match);
        assert_int_equal(found, at < len);
        if (!found)
            break;
        assert_int_equal(match.start, at);
        assert_int_equal(match.id, naive_at((const uint8_t *)text + at, len - at));
        assert_int_equal(match.length, symbols.symbols[match.id].length);
        from = skip ? match.start + 1 : match.start + match.length;
    } while (found);
}

static void test_random(void **state)
{
    char text[400], token[12];
    (void)state;
    for (int round = 0; round < 300; round++) {
        begin();
        for (uint32_t n = below(MOST_TOKENS); n > 0; n--) {
            size_t len = below(sizeof token);
            for (size_t i = 0; i < len; i++)
                token[i] = (char)("ab\xff"[below(3)]);
            add(token, len);
        }
        make_set();
        for (int i = 0; i < 10; i++) {
            size_t len = below(sizeof text);
            for (size_t k = 0; k < len; k++)
                text[k] = "abc\xff"[below(round % 2 ? 2 : 4)];
            compare(text, len, (unsigned)i % 2);
        }
        end();
    }
}

/* A token that lies across two blocks of the search, at every place. */
static void test_blocks(void **state)
{
    size_t len = SPECIAL_BLOCK_BYTES + 100;
    char *text = malloc(len);
    (void)state;
    assert_non_null(text);
    begin();
    add("<|token|>", 9);
    add("<|", 2);
    make_set();
    for (size_t at = SPECIAL_BLOCK_BYTES - 12; at < SPECIAL_BLOCK_BYTES + 3; at++) {
        static struct special_scan scan;
        struct special_match match;
        memset(text, '.', len);
        memcpy(text + at, "<|token|>", 9);
        special_scan_init(&scan, &set, &symbols, text, len);
        assert_true(special_scan_find(&scan, 0, &match));
        assert_int_equal(match.start, at);
        assert_int_equal(match.id, 0);
        assert_false(special_scan_find(&scan, at + 9, &match));
    }
    free(text);
    end();
}

/* Tokens that agree with the text almost to their end: a search that begins again at each byte
 * takes LONG_TOKEN steps for each. */
static void test_steps(void **state)
{
    static char token[LONG_TOKEN], text[LONG_TEXT];
    static struct special_scan scan;
    struct special_match match;
    (void)state;
    for (int last = 0; last < 2; last++) {
        begin();
        memset(token, 'a', sizeof token);
        token[last ? LONG_TOKEN - 1 : 0] = 'b';
        add(token, sizeof token);
        add("a", last); /* found at each byte, or empty */
        make_set();
        memset(text, 'a', sizeof text);
        special_scan_init(&scan, &set, &symbols, text, sizeof text);
        size_t from = 0;
        while (special_scan_find(&scan, from, &match))
            from = match.start + match.length;
        assert_int_equal(from, last ? LONG_TEXT : 0);
        assert_in_range(scan.n_moves, LONG_TEXT, 3 * LONG_TEXT);
        end();
    }
}

static void test_too_many_bytes(void **state)
{
    char *text = calloc(1, SPECIAL_BYTES_MAX);
    uint32_t ids[] = {0, 1};
    (void)state;
    assert_non_null(text);
    begin();
    add(text, SPECIAL_BYTES_MAX);
    add("x", 1);
    assert_false(special_set_init(&set, ids, 2, &symbols));
    assert_int_equal(errno, E2BIG);
    free(text);
    symbol_table_fini(&symbols);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random), cmocka_unit_test(test_blocks),
                                       cmocka_unit_test(test_steps),
                                       cmocka_unit_test(test_too_many_bytes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
