/* When somebody is asked again who did not do what was asked (worker/pause.h). */
#include "worker/pause.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#define SECOND 1000000000ull

static void test_ends(void **state)
{
    struct pause p = {0};
    assert_false(pause_end(&p, true, 0)); /* there is none */
    pause_begin(&p, 10 * SECOND);
    assert_true(p.on);
    assert_false(pause_end(&p, false, 100 * SECOND)); /* no sign of life, however long */
    assert_true(p.on);
    assert_false(pause_end(&p, true, 11 * SECOND - 1)); /* too soon */
    assert_true(pause_end(&p, true, 11 * SECOND));
    assert_false(p.on);
    assert_false(pause_end(&p, true, 12 * SECOND)); /* said once */
}

/* In vain again and again: 1, 2, 4 ... 64 seconds, until it is done once. */
static void test_grows(void **state)
{
    struct pause p = {0};
    static const unsigned lengths[] = {1, 2, 4, 8, 16, 32, 64, 64, 64};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        uint64_t begun = 1000 * i * SECOND;
        pause_begin(&p, begun);
        assert_false(pause_end(&p, true, begun + lengths[i] * SECOND - 1));
        assert_true(pause_end(&p, true, begun + lengths[i] * SECOND));
    }
    pause_forget(&p);
    pause_begin(&p, 0);
    assert_true(pause_end(&p, true, SECOND));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ends), cmocka_unit_test(test_grows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
