/* Tokens a second of the last seconds, at times that the test sets. */
#include "worker/serve/token_rate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define MS 1000000ull

/* Tokens every 5 ms (200 a second) from from_ms on, for as long. */
static void add(struct token_rate *r, uint64_t from_ms, uint64_t ms)
{
    for (uint64_t t = from_ms; t < from_ms + ms; t += 5)
        token_rate_add(r, t * MS);
}

static void expect(struct token_rate *r, uint64_t at_ms, double least, double most)
{
    double rate = token_rate_read(r, at_ms * MS);
    if (rate < least || rate > most)
        fail_msg("%f tokens/s at %u ms, not %f to %f", rate, (unsigned)at_ms, least, most);
}

static void test_answer(void **state)
{
    struct token_rate r = {0};
    (void)state;
    expect(&r, 100000, 0, 0);
    expect(&r, 500, 0, 0);                           /* the machine has just started */
    for (uint64_t ms = 300; ms < 30000; ms += 100) { /* while it is generated */
        r = (struct token_rate){0};
        add(&r, 100700, ms);
        expect(&r, 100700 + ms - 5, 199.9, 200.1); /* the time of the last token */
    }
    add(&r, 130600, 1000); /* after the last one */
    expect(&r, 131595, 199.9, 200.1);
}

/* 200 tokens of a second, and idle after it. */
static void test_afterwards(void **state)
{
    struct token_rate r = {0};
    (void)state;
    add(&r, 100000, 1000);
    expect(&r, 102000, 99, 100);
    expect(&r, 110000, 19, 20);
    expect(&r, 111000, 0, 0);
    /* the next answer's second has the place of the first one's */
    add(&r, 111000, 1000);
    expect(&r, 112000, 198, 201);
}

/* The tokens of one step come at once. */
static void test_step(void **state)
{
    struct token_rate r = {0};
    (void)state;
    token_rate_add(&r, 100000 * MS);
    expect(&r, 100000, 0, 0);
    for (int i = 0; i < 8; i++)
        token_rate_add(&r, 100000 * MS + 1);
    expect(&r, 100001, 1, 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_answer),
                                       cmocka_unit_test(test_afterwards),
                                       cmocka_unit_test(test_step)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
