/* Sizes with units, and shares of a whole, worked by hand. */
#include "base/quantity.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void test_sizes(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {{"0", 0},
                {"1.5k", 1500},
                {"16G", 16000000000},
                {"2T", 2000000000000},
                {"3mi", 3145728},
                {"0.5Ki", 512},
                {"1152921504606846976", 1ull << 60}};
    static const char *const bad[] = {"", "G", "-1", "1 G", "1e9", "5%", "2000000T", ".5G", "1Gb"};
    uint64_t bytes = 7;
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(quantity_parse_size(good[i].text, strlen(good[i].text), &bytes));
        assert_int_equal(bytes, good[i].bytes);
        assert_true(quantity_parse_size_of(good[i].text, strlen(good[i].text), 1, &bytes));
        assert_int_equal(bytes, good[i].bytes);
    }
    bytes = 7;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(quantity_parse_size(bad[i], strlen(bad[i]), &bytes));
    assert_true(quantity_parse_size("4G,link=1", 2, &bytes)); /* a part of a text */
    assert_int_equal(bytes, 4000000000);
}

static void test_shares(void **state)
{
    const uint64_t whole = (1ull << 59) + 1;
    uint64_t bytes = 7;
    (void)state;
    assert_true(quantity_parse_size_of("25%", 3, 1000, &bytes));
    assert_int_equal(bytes, 250);
    assert_true(quantity_parse_size_of("0%", 2, 1000, &bytes));
    assert_int_equal(bytes, 0);
    assert_true(quantity_parse_size_of("100%", 4, whole, &bytes));
    assert_int_equal(bytes, whole);
    assert_false(quantity_parse_size_of("101%", 4, 1000, &bytes));
    assert_false(quantity_parse_size_of("2000000T", 8, 1000, &bytes));
    assert_int_equal(bytes, whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sizes), cmocka_unit_test(test_shares)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
