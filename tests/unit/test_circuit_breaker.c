/* When the worker sends requests again to a peer that failed (worker/experts/circuit_breaker.h). */
#include "worker/experts/circuit_breaker.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#define SECOND 1000000000ull

static void test_ends(void **state)
{
    struct circuit_breaker p = {0};
    assert_false(circuit_breaker_try_close(&p, true, 0)); /* the breaker was not open */
    circuit_breaker_open(&p, 10 * SECOND);
    assert_true(p.on);
    assert_false(
        circuit_breaker_try_close(&p, false, 100 * SECOND)); /* no sign of life, after any time */
    assert_true(p.on);
    assert_false(circuit_breaker_try_close(&p, true, 11 * SECOND - 1)); /* too soon */
    assert_true(circuit_breaker_try_close(&p, true, 11 * SECOND));
    assert_false(p.on);
    assert_false(circuit_breaker_try_close(&p, true, 12 * SECOND)); /* reported once */
}

/* After repeated failures the breaker stays open for 1, 2, 4 ... 64 seconds, until one success. */
static void test_grows(void **state)
{
    struct circuit_breaker p = {0};
    static const unsigned lengths[] = {1, 2, 4, 8, 16, 32, 64, 64, 64};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        uint64_t begun = 1000 * i * SECOND;
        circuit_breaker_open(&p, begun);
        assert_false(circuit_breaker_try_close(&p, true, begun + lengths[i] * SECOND - 1));
        assert_true(circuit_breaker_try_close(&p, true, begun + lengths[i] * SECOND));
    }
    circuit_breaker_reset(&p);
    circuit_breaker_open(&p, 0);
    assert_true(circuit_breaker_try_close(&p, true, SECOND));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ends), cmocka_unit_test(test_grows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
