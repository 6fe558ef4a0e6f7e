/* The rows of a batch by the times of earlier ones, against lines known in advance. */
#include "worker/serve/prompt_pace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define STALL 250e6
enum { LEAST = 16, MOST = 2048 };

static uint32_t rows_of(const struct prompt_pace *p)
{
    return prompt_pace_rows(p, STALL, LEAST, MOST);
}

/* Adds batches of these sizes, of a ns and b ns a row. */
static void add_line(struct prompt_pace *p, double a, double b)
{
    static const uint32_t sizes[] = {2048, 256, 512, 64, 1024, 300, 2048, 128};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
        prompt_pace_add(p, sizes[i], a + b * sizes[i]);
}

static void test_nothing_known(void **state)
{
    struct prompt_pace p = {0};
    (void)state;
    assert_int_equal(rows_of(&p), MOST);
    prompt_pace_add(&p, 0, 5);
    assert_int_equal(rows_of(&p), MOST);
}

/* One size: the time is taken to grow with the rows. */
static void test_one_size(void **state)
{
    struct prompt_pace p = {0};
    (void)state;
    for (int i = 0; i < 5; i++)
        prompt_pace_add(&p, 256, 256 * 1e6);
    assert_in_range(rows_of(&p), 249, 250);
    p = (struct prompt_pace){0};
    prompt_pace_add(&p, 256, 256 * 50e6); /* a row takes 50 ms */
    assert_int_equal(rows_of(&p), LEAST);
    p = (struct prompt_pace){0};
    prompt_pace_add(&p, 256, 256 * 1e3);
    assert_int_equal(rows_of(&p), MOST);
}

static void test_line(void **state)
{
    struct prompt_pace p = {0};
    (void)state;
    add_line(&p, 50e6, 0.4e6);
    assert_in_range(rows_of(&p), 499, 501); /* (250 - 50) / 0.4 */
    p = (struct prompt_pace){0};
    add_line(&p, 0, 2e6);
    assert_in_range(rows_of(&p), 124, 126);
    p = (struct prompt_pace){0};
    add_line(&p, 120e6, 20e6);
    assert_int_equal(rows_of(&p), LEAST);
}

/* Each batch takes long, whatever its rows: many rows make fewer batches. */
static void test_long_batches(void **state)
{
    struct prompt_pace p = {0};
    (void)state;
    add_line(&p, 400e6, 0.02e6);
    assert_int_equal(rows_of(&p), MOST);
    add_line(&p, 126e6, 1e6);
    add_line(&p, 126e6, 1e6);
    add_line(&p, 126e6, 1e6);
    add_line(&p, 126e6, 1e6);
    assert_int_equal(rows_of(&p), MOST);
    for (int i = 0; i < 8; i++) /* it adapts */
        add_line(&p, 50e6, 1e6);
    assert_in_range(rows_of(&p), 198, 202);
}

/* Times that no line from above 0 on fits: more rows took less. */
static void test_falling(void **state)
{
    struct prompt_pace p = {0};
    (void)state;
    prompt_pace_add(&p, 64, 40e6);
    prompt_pace_add(&p, 256, 30e6);
    assert_int_equal(rows_of(&p), MOST);
    p = (struct prompt_pace){0}; /* steeper than the rows: through 0 */
    prompt_pace_add(&p, 64, 10e6);
    prompt_pace_add(&p, 256, 300e6);
    assert_true(rows_of(&p) > 100 && rows_of(&p) < 300);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_known), cmocka_unit_test(test_one_size),
        cmocka_unit_test(test_line),          cmocka_unit_test(test_long_batches),
        cmocka_unit_test(test_falling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
