/* A growing string: texts at the ends of its capacity, numbers against the C library, JSON strings
 * against the plain definition. */
#include "base/strbuf.h"
#include "base/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* A text that leaves `free_bytes` of the capacity, its NUL not counted. */
static void fill_up(struct strbuf *b, size_t free_bytes)
{
    strbuf_init(b);
    strbuf_append(b, "x", 1);
    while (b->len + free_bytes + 1 < b->capacity)
        strbuf_append(b, "x", 1);
    assert_int_equal(b->capacity - b->len - 1, free_bytes);
}

static void check_printf(size_t free_bytes, size_t len)
{
    struct strbuf b;
    char *text = malloc(len + 1);
    memset(text, 'y', len);
    text[len] = 0;
    fill_up(&b, free_bytes);
    size_t before = b.len, capacity = b.capacity;
    strbuf_printf(&b, "%s", text);
    assert_false(b.failed);
    assert_int_equal(b.len, before + len);
    assert_int_equal(strlen(b.data), b.len);
    assert_string_equal(b.data + before, text);
    assert_true((len <= free_bytes) == (b.capacity == capacity));
    strbuf_fini(&b);
    free(text);
}

static void test_texts_that_fit_and_not(void **state)
{
    static const size_t lengths[] = {0, 1, 2, 9, 10, 11, 255, 256, 257, 5000};
    (void)state;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        check_printf(0, lengths[i]);
        check_printf(1, lengths[i]);
        check_printf(10, lengths[i]);
    }
}

static void test_the_first_text(void **state)
{
    struct strbuf b;
    (void)state;
    strbuf_init(&b);
    strbuf_printf(&b, "%s", "");
    assert_string_equal(b.data, "");
    strbuf_printf(&b, "%d %s", 7, "eight");
    assert_string_equal(b.data, "7 eight");
    strbuf_clear(&b);
    strbuf_printf(&b, "%c", 'z');
    assert_string_equal(b.data, "z");
    strbuf_fini(&b);
}

static void test_nothing_follows_a_failure(void **state)
{
    struct strbuf b;
    (void)state;
    strbuf_init(&b);
    strbuf_text(&b, "abc");
    b.failed = true;
    strbuf_printf(&b, "%d", 1);
    strbuf_uint(&b, 2);
    strbuf_float(&b, 3);
    strbuf_json_string(&b, "d", 1);
    assert_string_equal(b.data, "abc");
    strbuf_fini(&b);
}

static void test_integers(void **state)
{
    static const uint64_t values[] = {0,   1,   9,          10,         99,
                                      100, 255, UINT32_MAX, 1ull << 32, UINT64_MAX};
    struct strbuf b;
    char expected[32];
    (void)state;
    strbuf_init(&b);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        strbuf_clear(&b);
        strbuf_uint(&b, values[i]);
        snprintf(expected, sizeof expected, "%llu", (unsigned long long)values[i]);
        assert_string_equal(b.data, expected);
    }
    strbuf_fini(&b);
}

static void check_float(struct strbuf *b, uint32_t bits)
{
    char expected[64];
    float v;
    memcpy(&v, &bits, sizeof v);
    snprintf(expected, sizeof expected, "%.6g", (double)v);
    strbuf_clear(b);
    strbuf_float(b, v);
    assert_string_equal(b->data, expected);
}

/* A sample of all floats; those near powers of ten and of two, and small sums of halves, whose
 * seventh digit is a 5 with nothing behind it. */
static void test_floats(void **state)
{
    static const float edges[] = {0,      1e-5f,  9.9999e-5f, 1e-4f,    1e-3f,     1e-2f,  0.1f,
                                  1,      10,     100,        1000,     9999,      1e4f,   1e5f,
                                  999999, 1e6f,   1e7f,       1.5f,     99999.95f, 0.125f, 0.25f,
                                  1e38f,  1e-38f, 1e-45f,     999999.5f};
    struct strbuf b;
    (void)state;
    strbuf_init(&b);
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 65521 / 8)
        check_float(&b, (uint32_t)bits);
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++)
        for (int near = -40; near <= 40; near++) {
            uint32_t bits;
            memcpy(&bits, &edges[i], sizeof bits);
            check_float(&b, bits + (uint32_t)near);
            check_float(&b, (bits + (uint32_t)near) ^ 1u << 31);
        }
    for (uint32_t i = 0; i < 200000; i++) {
        float tie = (float)(i * 8 + 1) / 16; /* of 6 digits before the 5, some */
        uint32_t bits;
        memcpy(&bits, &tie, sizeof bits);
        check_float(&b, bits);
    }
    strbuf_fini(&b);
}

/* By the definition, a character at a time. */
static void json_by_definition(struct strbuf *b, const char *data, size_t len)
{
    strbuf_append(b, "\"", 1);
    for (size_t i = 0; i < len;) {
        unsigned char c = (unsigned char)data[i];
        size_t n = utf8_valid_length(data + i, len - i);
        char text[8];
        if (n == 0)
            snprintf(text, sizeof text, "\\ufffd");
        else if (c == '\n' || c == '\t' || c == '\r')
            snprintf(text, sizeof text, "\\%c", c == '\n' ? 'n' : c == '\t' ? 't' : 'r');
        else if (c == '"' || c == '\\')
            snprintf(text, sizeof text, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            snprintf(text, sizeof text, "\\u%04x", c);
        else
            snprintf(text, sizeof text, "%.*s", (int)n, data + i);
        strbuf_append(b, text, strlen(text));
        i += n ? n : 1;
    }
    strbuf_append(b, "\"", 1);
}

static void test_json_strings(void **state)
{
    static const char *const parts[] = {"a",
                                        "plain text",
                                        "\"",
                                        "\\",
                                        "\n",
                                        "\x01",
                                        "\x7f",
                                        "\xc3\xa9",
                                        "\xc3",
                                        "\xe4\xb8\xad",
                                        "\xf0\x9f\x98\x80",
                                        "\xff",
                                        "\x1f",
                                        " "};
    struct strbuf text, one, other;
    uint32_t random = 1;
    (void)state;
    strbuf_init(&text);
    strbuf_init(&one);
    strbuf_init(&other);
    for (int i = 0; i < 5000; i++) {
        strbuf_clear(&text);
        strbuf_clear(&one);
        strbuf_clear(&other);
        for (random = random * 1664525 + 1013904223; random >> 24 > 20;
             random = random * 1664525 + 1013904223)
            strbuf_text(&text, parts[(random >> 16) % (sizeof parts / sizeof *parts)]);
        strbuf_json_string(&one, text.data, text.len);
        json_by_definition(&other, text.data, text.len);
        assert_string_equal(one.data, other.data);
    }
    strbuf_clear(&one);
    strbuf_json_string(&one, "a\0b", 3);
    assert_string_equal(one.data, "\"a\\u0000b\"");
    strbuf_fini(&text);
    strbuf_fini(&one);
    strbuf_fini(&other);
}

static void test_json_bytes(void **state)
{
    struct strbuf b;
    (void)state;
    strbuf_init(&b);
    strbuf_json_bytes(&b, "", 0);
    strbuf_json_bytes(&b, "\x01", 1);
    strbuf_json_bytes(&b, "\xff\0a", 3);
    assert_string_equal(b.data, "[][1][255,0,97]");
    strbuf_fini(&b);
}

static void test_moves(void **state)
{
    struct strbuf a, b;
    (void)state;
    strbuf_init(&a);
    strbuf_init(&b);
    strbuf_text(&a, "one");
    const char *memory = a.data;
    strbuf_move(&b, &a);
    assert_ptr_equal(b.data, memory);
    assert_null(a.data);
    strbuf_text(&a, "two");
    strbuf_move(&b, &a);
    assert_string_equal(b.data, "onetwo");
    assert_int_equal(a.len, 0);
    a.failed = true;
    strbuf_move(&b, &a);
    assert_true(b.failed);
    strbuf_fini(&a);
    strbuf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts_that_fit_and_not),
        cmocka_unit_test(test_the_first_text),
        cmocka_unit_test(test_nothing_follows_a_failure),
        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_floats),
        cmocka_unit_test(test_json_strings),
        cmocka_unit_test(test_json_bytes),
        cmocka_unit_test(test_moves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
