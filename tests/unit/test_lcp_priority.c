/* MoEpic's priority P = mu rho^(nu / omega), rho 0.25, omega 128: cases worked out by hand. In
 * logarithms to base 2, the unit of its values, a token that passes takes 2 / 128 off what it does
 * not activate; here it puts as much on the layer's scale. */
#include "sched/cache/lcp_priority.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define A_TOKEN (2.0 / 128)

/* Two layers of four experts, of which a token activates two: layer 0 has 0 to 3, layer 1 has 4
 * to 7. */
static struct lcp_priority sample(void)
{
    struct lcp_priority p;
    assert_true(lcp_priority_init(&p, 2, 4, 2));
    return p;
}

static void near(double got, double expected)
{
    if (fabs(got - expected) > 1e-12)
        fail_msg("%.15g, not %.15g", got, expected);
}

static void test_values(void **state)
{
    struct lcp_priority p = sample();
    (void)state;
    for (uint32_t i = 0; i < 8; i++)
        assert_true(p.values[i] == -INFINITY);
    /* one token: experts 0 and 1 */
    assert_true(lcp_priority_activated(&p, 0, 1));
    assert_true(lcp_priority_activated(&p, 1, 1));
    assert_int_equal(lcp_priority_step_over(&p, 0), 1);
    near(p.values[0], A_TOKEN);
    near(p.values[1], A_TOKEN);
    /* three tokens at once: expert 1 for three of them, 2 for two, 3 for one */
    assert_true(lcp_priority_activated(&p, 1, 3));
    assert_true(lcp_priority_activated(&p, 2, 2));
    assert_true(lcp_priority_activated(&p, 3, 1));
    assert_int_equal(lcp_priority_step_over(&p, 0), 3);
    near(p.values[0], A_TOKEN); /* three tokens behind the scale, which stands at four */
    near(p.values[1], 2 + 4 * A_TOKEN);
    near(p.values[2], 1 + 4 * A_TOKEN);
    near(p.values[3], 4 * A_TOKEN);
    assert_true(p.values[4] == -INFINITY);
    lcp_priority_fini(&p);
}

/* An expert reported twice in a step counts once, with the tokens of both reports. */
static void test_reported_twice(void **state)
{
    struct lcp_priority p = sample();
    (void)state;
    assert_true(lcp_priority_activated(&p, 2, 1));
    assert_false(lcp_priority_activated(&p, 2, 3));
    assert_int_equal(lcp_priority_step_over(&p, 0), 2);
    near(p.values[2], 2 + 2 * A_TOKEN);
    lcp_priority_fini(&p);
}

static void check_ranks(const struct lcp_priority *p, uint32_t first, const uint32_t expected[4])
{
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(lcp_priority_rank(p, first + i), expected[i]);
}

/* A step under way changes no other expert's rank in its layer, and none in the other layer. */
static void test_ranks(void **state)
{
    struct lcp_priority p = sample();
    (void)state;
    check_ranks(&p, 0, (const uint32_t[]){0, 1, 2, 3}); /* all equal: by number */
    lcp_priority_activated(&p, 3, 2);
    lcp_priority_activated(&p, 1, 1);
    lcp_priority_step_over(&p, 0);
    check_ranks(&p, 0, (const uint32_t[]){2, 1, 3, 0});
    check_ranks(&p, 4, (const uint32_t[]){0, 1, 2, 3});
    /* layer 1's step: 6, which before it is the third of four equal ones */
    assert_int_equal(lcp_priority_rank(&p, 6), 2);
    lcp_priority_activated(&p, 6, 2);
    assert_int_equal(lcp_priority_rank(&p, 4), 0);
    assert_int_equal(lcp_priority_rank(&p, 5), 1);
    assert_int_equal(lcp_priority_rank(&p, 7), 3);
    check_ranks(&p, 0, (const uint32_t[]){2, 1, 3, 0});
    lcp_priority_step_over(&p, 1);
    check_ranks(&p, 4, (const uint32_t[]){1, 2, 0, 3});
    lcp_priority_fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values),
                                       cmocka_unit_test(test_reported_twice),
                                       cmocka_unit_test(test_ranks)};
    return cmocka_run_group_tests_name("lcp_priority", tests, NULL, NULL);
}
