/* Bracketed paste: the end mark in any division of the bytes, and the text that is left. */
#include "client/cli/chat/paste.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

static void the_end_in_any_division(void **state)
{
    static const char bytes[] = "one\033[20" PASTE_END "two" PASTE_END;
    size_t len = sizeof bytes - 1;
    for (size_t cut = 0; cut <= len; cut++) {
        struct strbuf text, behind;
        strbuf_init(&text);
        strbuf_init(&behind);
        strbuf_append(&text, bytes, cut);
        bool ended = paste_ends(&text, 0, &behind);
        assert_int_equal(ended, cut >= 7 + strlen(PASTE_END));
        if (ended) {
            strbuf_append(&behind, bytes + cut, len - cut);
        } else {
            strbuf_append(&text, bytes + cut, len - cut);
            assert_true(paste_ends(&text, cut, &behind));
        }
        assert_string_equal(text.data, "one\033[20");
        assert_int_equal(text.len, 7);
        assert_string_equal(behind.data, "two" PASTE_END);
        strbuf_fini(&text);
        strbuf_fini(&behind);
    }
}

static void no_end(void **state)
{
    struct strbuf text, behind;
    strbuf_init(&text);
    strbuf_init(&behind);
    assert_false(paste_ends(&text, 0, &behind));
    strbuf_append(&text, "\033[201", 5);
    assert_false(paste_ends(&text, 0, &behind));
    assert_int_equal(behind.len, 0);
    strbuf_fini(&text);
    strbuf_fini(&behind);
}

static void the_text(void **state)
{
    static const struct {
        const char *bytes, *text;
    } cases[] = {
        {"", ""},
        {"a\r\nb\rc\nd\r", "a\nb\nc\nd\n"},
        {"\tif x:\r\r\t\ty", "\tif x:\n\n\t\ty"},
        {"\033[31mred\a\b\x7f.", "[31mred."},
        {"\xc3\xa4\xc2\x9b\xc2\xa0\xe2\x82\xac", "\xc3\xa4\xc2\xa0\xe2\x82\xac"},
        {"Zw\xf6lf\xc3", "Zw\xef\xbf\xbdlf\xef\xbf\xbd"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct strbuf text;
        strbuf_init(&text);
        strbuf_append(&text, cases[i].bytes, strlen(cases[i].bytes));
        paste_clean(&text);
        assert_false(text.failed);
        assert_string_equal(text.data, cases[i].text);
        assert_int_equal(text.len, strlen(cases[i].text));
        strbuf_fini(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_end_in_any_division),
        cmocka_unit_test(no_end),
        cmocka_unit_test(the_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
