/* lib/base/utf8.h: hiding control characters. Examples by hand, from ECMA-48 and RFC 3629. */
#include "base/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static void assert_hidden(const char *text, const char *allowed, const char *expected)
{
    char copy[64];
    size_t len = strlen(text);
    memcpy(copy, text, len + 1);
    utf8_hide_controls(copy, len, allowed);
    assert_string_equal(copy, expected);
}

static void hides_controls(void **state)
{
    assert_hidden("plain text: \xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80", "",
                  "plain text: \xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80");
    assert_hidden("\x1b]0;title\a\x1b[2J", "", "?]0;title??[2J");
    assert_hidden("a\nb\tc\rd\x7f", "\n\t", "a\nb\tc?d?");
    assert_hidden("a\nb", "", "a?b");
    assert_hidden("\xc2\x9b"
                  "31m",
                  "\n", "??31m"); /* CSI of Unicode */
    assert_hidden("\x9b"
                  "31m",
                  "\n", "?31m"); /* and of 8-bit encodings */
    assert_hidden("\xc2\xa0\xc2\xbf", "", "\xc2\xa0\xc2\xbf");
    assert_hidden("cut \xe2\x82", "", "cut \xe2?"); /* 0x82 is stray here */
    char zero[3] = {'a', 0, 'b'};
    utf8_hide_controls(zero, sizeof zero, "\n");
    assert_memory_equal(zero, "a?b", 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(hides_controls)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
