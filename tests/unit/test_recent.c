/* lib/metrics/recent: growth over some seconds of real time; and counters that another module
 * keeps. */
#include "metrics/recent.h"

#include "base/clock.h"
#include "metrics/metrics.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static _Atomic uint64_t first, second;

static void sample(void *arg, uint64_t values[RECENT_MOST])
{
    assert_ptr_equal(arg, &first);
    values[0] = atomic_load(&first);
    values[1] = atomic_load(&second);
}

static uint64_t reported[RECENT_MOST], reported_ns, reports;

static void report(void *arg, const uint64_t growth[RECENT_MOST], uint64_t window_ns)
{
    assert_ptr_equal(arg, &first);
    memcpy(reported, growth, sizeof reported);
    reported_ns = window_ns;
    reports++;
}

static void test_growth(void **state)
{
    struct recent *r;
    uint64_t growth[RECENT_MOST];
    atomic_store(&first, 1000);
    atomic_store(&second, 7);
    uint64_t started = clock_ns();
    assert_int_equal(recent_new("test", sample, report, &first, &r, NULL), ERROR_OK);
    recent_read(r, growth);
    assert_int_equal(growth[0], 0);
    atomic_fetch_add(&first, 5);
    poll(NULL, 0, 1500);
    uint64_t window_ns = recent_read(r, growth);
    assert_int_equal(growth[0], 5); /* all growth is of the last seconds */
    assert_int_equal(growth[1], 0);
    assert_true(window_ns >= 1500000000u && window_ns <= clock_ns() - started);
    /* ... and no longer counts after them */
    poll(NULL, 0, RECENT_SECONDS * 1000 + 1000);
    atomic_fetch_add(&second, 3);
    window_ns = recent_read(r, growth);
    assert_int_equal(growth[0], 0);
    assert_int_equal(growth[1], 3);
    assert_true(window_ns >= (RECENT_SECONDS - 1) * 1000000000ull &&
                window_ns <= (RECENT_SECONDS + 2) * 1000000000ull);
    /* at the end the growth since the start, which is too recent for an earlier report */
    assert_int_equal(reports, 0);
    recent_free(r);
    assert_int_equal(reports, 1);
    assert_int_equal(reported[0], 5);
    assert_int_equal(reported[1], 3);
    assert_int_equal(reported[2], 0);
    assert_true(reported_ns >= window_ns && reported_ns <= clock_ns() - started);
}

static double answer(void *arg)
{
    return *(double *)arg;
}

static void test_counter_function(void **state)
{
    double bytes = 60, seconds = 0.25;
    struct metrics *m = metrics_new();
    metrics_counter_function(m, "moed_link_bytes_total", NULL, answer, &bytes, "Bytes.");
    metrics_counter_function(m, "moed_link_seconds_total", "a=\"b\"", answer, &seconds, "Time.");
    struct strbuf out;
    strbuf_init(&out);
    metrics_render(m, &out);
    const char *want =
        "# HELP moed_link_bytes_total Bytes.\n# TYPE moed_link_bytes_total counter\n"
        "moed_link_bytes_total 60\n"
        "# HELP moed_link_seconds_total Time.\n# TYPE moed_link_seconds_total counter\n"
        "moed_link_seconds_total{a=\"b\"} 0.25\n";
    assert_memory_equal(out.data, want, strlen(want));
    strbuf_fini(&out);
    metrics_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_growth),
                                       cmocka_unit_test(test_counter_function)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
