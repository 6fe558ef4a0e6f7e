/* How long a thread spins, by the waits and losses that the test sets; and one spin. */
#include "base/spinner.h"

#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define LEAST_US 20
#define US       1000u
#define MS       1000000u
#define MOST_NS  (SPINNER_TIMES * LEAST_US * US)

static struct spinner fresh(void)
{
    struct spinner s;
    spinner_init(&s, LEAST_US);
    return s;
}

static void wait_often(struct spinner *s, unsigned n, uint64_t each_ns)
{
    while (n--)
        spinner_waited(s, each_ns);
}

static void lose(struct spinner *s, uint64_t late_ns)
{
    s->late_ns = late_ns;
    spinner_waited(s, late_ns);
}

/* Waits of 40 us after the least of 20: they would end asleep. */
static void test_reaches_the_next_work(void **state)
{
    struct spinner s = fresh();
    (void)state;
    assert_int_equal(spinner_limit_ns(&s), LEAST_US * US);
    wait_often(&s, 40, 40 * US);
    assert_in_range(spinner_limit_ns(&s), 60 * US, 80 * US);
    wait_often(&s, 100, 400 * US);
    assert_in_range(spinner_limit_ns(&s), 400 * US, MOST_NS);
    wait_often(&s, 100, 40 * US);
    assert_in_range(spinner_limit_ns(&s), 60 * US, 100 * US);
}

/* A short wait says nothing about the long ones between. */
static void test_short_waits(void **state)
{
    struct spinner s = fresh();
    (void)state;
    for (int i = 0; i < 40; i++) {
        wait_often(&s, 10, 2 * US);
        spinner_waited(&s, 100 * US);
    }
    assert_true(spinner_limit_ns(&s) > 100 * US);
}

static void test_work_beyond_reach(void **state)
{
    struct spinner s = fresh();
    (void)state;
    wait_often(&s, 40, 40 * US);
    wait_often(&s, 100, 20 * MS);
    assert_int_equal(spinner_limit_ns(&s), LEAST_US * US);
    /* one pause of a request among its layers' waits changes little */
    wait_often(&s, 40, 40 * US);
    spinner_waited(&s, 900 * MS);
    assert_true(spinner_limit_ns(&s) > 60 * US);
}

/* A core that is lost for less than spinning saves. */
static void test_seldom_lost(void **state)
{
    struct spinner s = fresh();
    (void)state;
    wait_often(&s, 100, 40 * US);
    for (int i = 0; i < 1000; i++) {
        wait_often(&s, 20, 40 * US);
        lose(&s, 100 * US);
        assert_true(spinner_limit_ns(&s) > 40 * US);
    }
}

/* Half of the waits are beyond reach, and the others beyond their mean. */
static void test_spins_in_vain(void **state)
{
    struct spinner s = fresh();
    uint64_t spun_ns = 0, waits = 10000;
    (void)state;
    for (uint64_t i = 0; i < waits; i++) {
        uint64_t waited_ns = i % 2 ? 300 * US : 1 * MS;
        spun_ns += spinner_limit_ns(&s) < waited_ns ? spinner_limit_ns(&s) : waited_ns;
        spinner_waited(&s, waited_ns);
    }
    assert_in_range(spun_ns / waits, LEAST_US * US, LEAST_US * US * 11 / 10);
}

static unsigned held(struct spinner *s)
{
    unsigned n = 0;
    while (spinner_limit_ns(s) == LEAST_US * US) {
        spinner_waited(s, 40 * US);
        assert_true(++n <= SPINNER_MOST_HOLD);
    }
    return n;
}

/* A core that a busy thread takes for its slice. */
static void test_scarce_core(void **state)
{
    struct spinner s = fresh();
    (void)state;
    wait_often(&s, 400, 40 * US);
    unsigned expected = SPINNER_HOLD;
    for (int i = 0; i < 12; i++) {
        lose(&s, 3 * MS);
        assert_int_equal(held(&s), expected);
        expected = expected < SPINNER_MOST_HOLD ? 2 * expected : SPINNER_MOST_HOLD;
    }
    /* a loss while it spins for the least only is not one of longer spinning */
    lose(&s, 3 * MS);
    lose(&s, 3 * MS);
    assert_int_equal(held(&s), SPINNER_MOST_HOLD - 1);
    /* the other thread has gone */
    wait_often(&s, 20 * SPINNER_MOST_HOLD, 40 * US);
    lose(&s, 3 * MS);
    assert_int_equal(held(&s), SPINNER_HOLD);
}

struct answer {
    unsigned looks, true_at; /* 0: never */
};

static bool is_ready(void *arg)
{
    struct answer *a = arg;
    return ++a->looks == a->true_at;
}

static void test_spins(void **state)
{
    struct spinner s, never;
    struct answer soon = {.true_at = 100}, no = {0}, unasked = {.true_at = 1};
    (void)state;
    spinner_init(&s, 100 * MS / US); /* the machine may be busy */
    assert_true(spinner_spin(&s, is_ready, &soon, clock_ns(), UINT64_MAX));
    assert_int_equal(soon.looks, 100);
    s = fresh();
    uint64_t start = clock_ns();
    assert_false(spinner_spin(&s, is_ready, &no, start, UINT64_MAX));
    assert_true(clock_ns() - start >= LEAST_US * US);
    spinner_init(&s, 10000); /* the caller's limit ends it sooner */
    start = clock_ns();
    assert_false(spinner_spin(&s, is_ready, &no, start, start + 100 * US));
    spinner_init(&never, 0);
    assert_false(spinner_spin(&never, is_ready, &unasked, start, UINT64_MAX));
    assert_false(spinner_spin(NULL, is_ready, &unasked, start, UINT64_MAX));
    assert_int_equal(unasked.looks, 0);
    spinner_waited(&never, MS);
    spinner_waited(NULL, MS);
    assert_int_equal(spinner_limit_ns(&never), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reaches_the_next_work),
        cmocka_unit_test(test_short_waits),
        cmocka_unit_test(test_work_beyond_reach),
        cmocka_unit_test(test_seldom_lost),
        cmocka_unit_test(test_scarce_core),
        cmocka_unit_test(test_spins_in_vain),
        cmocka_unit_test(test_spins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
