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
    assert_int_equal(rows_of(&p), 256);
    assert_int_equal(prompt_pace_rows(&p, STALL, LEAST, 64), 64);
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
    assert_int_equal(rows_of(&p), 512); /* twice as many */
    prompt_pace_add(&p, 1536, 1536 * 1e3);
    assert_int_equal(rows_of(&p), MOST);
}

/* After so many batches of one size, a smaller one shows what a row takes. */
static void test_smaller_one(void **state)
{
    struct prompt_pace p = {0};
    (void)state;
    for (int i = 0; i < PROMPT_PACE_KEPT; i++)
        prompt_pace_add(&p, 250, 250e6);
    assert_int_equal(rows_of(&p), 125);
    prompt_pace_add(&p, 125, 125e6);
    assert_int_equal(rows_of(&p), 250);
    for (int i = 0; i < PROMPT_PACE_KEPT; i++)
        prompt_pace_add(&p, MOST, 100e6); /* nothing to learn */
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

/* The times of batches: each takes base_ms, and a row first_ms, and deeper_ms more for each row
 * before it; all up to `noise` longer or shorter. */
struct machine {
    double base_ms, first_ms, deeper_ms, noise;
    uint32_t random;
};

static double batch_ns(struct machine *m, uint32_t rows, double depth)
{
    m->random = m->random * 1664525 + 1013904223;
    double off = (m->random >> 8) / 8388608.0 - 1; /* [-1, 1) */
    return (m->base_ms + rows * (m->first_ms + m->deeper_ms * depth)) * (1 + m->noise * off) * 1e6;
}

/* Computes a prompt; returns the longest time of a batch but the first. */
static double run_prompt(struct machine *m, double tokens)
{
    struct prompt_pace p = {0};
    double longest = 0;
    for (double depth = 0; depth < tokens;) {
        uint32_t rows = rows_of(&p);
        double ns = batch_ns(m, rows, depth);
        if (depth > 0 && ns > longest)
            longest = ns;
        prompt_pace_add(&p, rows, ns);
        depth += rows;
    }
    return longest;
}

/* The pace holds the time while a row takes ever longer: it is not a time that every batch takes.
 */
static void test_deeper(void **state)
{
    static const struct machine machines[] = {
        {2, 1.4, 0.0002, 0, 0}, {2, 1.4, 0.0002, 0.04, 0}, {2, 1.4, 0.0002, 0.2, 0},
        {0, 3, 0.0003, 0.1, 0}, {50, 0.4, 0.0001, 0.1, 0}, {20, 0.4, 0.0001, 0.1, 0},
        {100, 1, 0.0001, 0, 0},
    };
    (void)state;
    for (unsigned i = 0; i < sizeof machines / sizeof *machines; i++)
        for (uint32_t seed = 1; seed <= 20; seed++) {
            struct machine m = machines[i];
            m.random = seed;
            assert_true(run_prompt(&m, 32768) < 2.2 * STALL);
        }
}

/* How many batches until one has MOST rows. */
static unsigned batches_to_most(struct machine m, struct prompt_pace *p)
{
    unsigned n = 0;
    for (uint32_t rows = 0; rows < MOST && n < 100; n++) {
        rows = rows_of(p);
        prompt_pace_add(p, rows, batch_ns(&m, rows, 0));
    }
    return n;
}

/* Each batch takes long, whatever its rows: many rows make fewer batches. */
static void test_long_batches(void **state)
{
    struct prompt_pace p = {0};
    (void)state;
    assert_in_range(batches_to_most((struct machine){.base_ms = 400, .first_ms = 0.02}, &p), 4, 12);
    p = (struct prompt_pace){0};
    assert_in_range(batches_to_most((struct machine){.base_ms = 200, .first_ms = 0.4}, &p), 4, 16);
    struct machine m = {.base_ms = 50, .first_ms = 1};
    for (int i = 0; i < 3; i++) /* it adapts */
        prompt_pace_add(&p, rows_of(&p), batch_ns(&m, rows_of(&p), 0));
    assert_in_range(rows_of(&p), 198, 202);
}

/* Computes batches of `group` rows, or of several such groups, of b ns a row. Returns the rows of
 * the last one. */
static uint32_t run_groups(struct prompt_pace *p, uint32_t group, double b)
{
    uint32_t rows = 0;
    for (unsigned i = 0; i < 3 * PROMPT_PACE_KEPT; i++) {
        rows = prompt_pace_rows(p, STALL, group > LEAST ? group : LEAST, MOST);
        rows = rows < group ? group : rows - rows % group;
        prompt_pace_add(p, rows, b * rows);
    }
    return rows;
}

/* Batches of the fewest rows, of which half as many cannot be, grow where more rows fit. */
static void test_fewest_rows(void **state)
{
    struct prompt_pace p = {0};
    (void)state;
    for (int i = 0; i < PROMPT_PACE_KEPT; i++)
        prompt_pace_add(&p, 31, 31e6);
    assert_int_equal(rows_of(&p), 62);
    p = (struct prompt_pace){0};
    assert_in_range(run_groups(&p, 1, 10e6), LEAST, 25);
    assert_in_range(run_groups(&p, 1, 1e6), 125, 250);
    p = (struct prompt_pace){0};
    assert_int_equal(run_groups(&p, 256, 2e6), 256);
    assert_int_equal(run_groups(&p, 256, 0.1e6), MOST);
}

/* Times that no line from above 0 on fits: more rows took less. */
static void test_falling(void **state)
{
    struct prompt_pace p = {0};
    (void)state;
    prompt_pace_add(&p, 64, 40e6);
    prompt_pace_add(&p, 256, 30e6);
    assert_int_equal(rows_of(&p), 512); /* twice as many */
    p = (struct prompt_pace){0};        /* steeper than the rows: through 0 */
    prompt_pace_add(&p, 64, 10e6);
    prompt_pace_add(&p, 256, 300e6);
    assert_true(rows_of(&p) > 100 && rows_of(&p) < 300);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_known), cmocka_unit_test(test_one_size),
        cmocka_unit_test(test_line),          cmocka_unit_test(test_long_batches),
        cmocka_unit_test(test_falling),       cmocka_unit_test(test_smaller_one),
        cmocka_unit_test(test_deeper),        cmocka_unit_test(test_fewest_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
