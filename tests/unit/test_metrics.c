/* lib/metrics: the text is compared with Prometheus' format as its documentation writes it, byte by
 * byte. */
#include "metrics/metrics.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

static double answer(void *arg)
{
    return *(double *)arg;
}

static void one_label(void *arg, struct strbuf *out)
{
    strbuf_printf(out, "answer=\"%.0f\"", *(double *)arg);
}

static const double bounds[] = {0.1, 0.5, 2};

/* The metrics that precede the process's own metrics. */
static char *own_part(struct metrics *m)
{
    struct strbuf out;
    strbuf_init(&out);
    metrics_render(m, &out);
    assert_false(out.failed);
    char *end = strstr(out.data, "# HELP process_resident_memory_bytes ");
    assert_non_null(end);
    *end = 0;
    return out.data; /* the caller frees it */
}

static void test_exact_text(void **state)
{
    struct metrics *m = metrics_new();
    double celsius = 21.5;
    struct counter *hits =
        metrics_counter(m, "moed_slot_hits_total", "policy=\"lru\"", 1, "Experts found resident.");
    struct gauge *requests = metrics_gauge(m, "moed_requests", NULL, "Requests running.");
    struct counter *wait =
        metrics_counter(m, "moed_wait_seconds_total", NULL, 1e-9, "Time waited.");
    struct histogram *h =
        metrics_histogram(m, "moed_token_seconds", "phase=\"decode\"", bounds, 3, "Time a token.");
    metrics_gauge_function(m, "moed_temperature_celsius", NULL, answer, &celsius, "Of the room.");
    /* registered last, belongs to the first family */
    struct counter *more =
        metrics_counter(m, "moed_slot_hits_total", "policy=\"lfu\"", 1, "Experts found resident.");
    counter_add(hits, 5);
    counter_add(hits, UINT64_C(9007199254740993)); /* 2^53 + 1: no double between */
    counter_add(more, 2);
    counter_add(wait, 1500000000);
    counter_add(wait, 100000000);
    gauge_set(requests, -3);
    const double values[] = {0.1, 0.05, 0.3, 1.999, 2.0, 2.1, 100};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        histogram_observe(h, values[i]);
    histogram_observe(h, (double)NAN);
    histogram_observe_times(h, 0.25, 4);
    assert_true(histogram_sum(h) > 107.5489 && histogram_sum(h) < 107.5491);

    char *text = own_part(m);
    assert_string_equal(text, "# HELP moed_slot_hits_total Experts found resident.\n"
                              "# TYPE moed_slot_hits_total counter\n"
                              "moed_slot_hits_total{policy=\"lru\"} 9007199254740998\n"
                              "moed_slot_hits_total{policy=\"lfu\"} 2\n"
                              "# HELP moed_requests Requests running.\n"
                              "# TYPE moed_requests gauge\n"
                              "moed_requests -3\n"
                              "# HELP moed_wait_seconds_total Time waited.\n"
                              "# TYPE moed_wait_seconds_total counter\n"
                              "moed_wait_seconds_total 1.6\n"
                              "# HELP moed_token_seconds Time a token.\n"
                              "# TYPE moed_token_seconds histogram\n"
                              "moed_token_seconds_bucket{phase=\"decode\",le=\"0.1\"} 2\n"
                              "moed_token_seconds_bucket{phase=\"decode\",le=\"0.5\"} 7\n"
                              "moed_token_seconds_bucket{phase=\"decode\",le=\"2\"} 9\n"
                              "moed_token_seconds_bucket{phase=\"decode\",le=\"+Inf\"} 11\n"
                              "moed_token_seconds_sum{phase=\"decode\"} 107.549\n"
                              "moed_token_seconds_count{phase=\"decode\"} 11\n"
                              "# HELP moed_temperature_celsius Of the room.\n"
                              "# TYPE moed_temperature_celsius gauge\n"
                              "moed_temperature_celsius 21.5\n");
    free(text);
    metrics_free(m);
    metrics_free(NULL);
}

static void test_histogram_without_labels(void **state)
{
    struct metrics *m = metrics_new();
    metrics_histogram(m, "moed_x_seconds", NULL, bounds, 1, "X.");
    char *text = own_part(m);
    assert_string_equal(text, "# HELP moed_x_seconds X.\n"
                              "# TYPE moed_x_seconds histogram\n"
                              "moed_x_seconds_bucket{le=\"0.1\"} 0\n"
                              "moed_x_seconds_bucket{le=\"+Inf\"} 0\n"
                              "moed_x_seconds_sum 0\n"
                              "moed_x_seconds_count 0\n");
    free(text);
    metrics_free(m);
}

/* The text omits values that were never measured: a counter with its family, one counter of a
 * family, and a counter that depends on another one. */
static void test_absent(void **state)
{
    struct metrics *m = metrics_new();
    struct counter *a = metrics_counter_after(m, NULL, "moed_a_total", "x=\"1\"", "A.");
    metrics_counter_after(m, NULL, "moed_a_total", "x=\"2\"", "A.");
    metrics_counter_after(m, a, "moed_b_total", NULL, "B.");
    char *text = own_part(m);
    assert_string_equal(text, "");
    free(text);
    counter_add(a, 3);
    text = own_part(m);
    assert_string_equal(text, "# HELP moed_a_total A.\n"
                              "# TYPE moed_a_total counter\n"
                              "moed_a_total{x=\"1\"} 3\n"
                              "# HELP moed_b_total B.\n"
                              "# TYPE moed_b_total counter\n"
                              "moed_b_total 0\n");
    free(text);
    metrics_free(m);
}

/* A stock in three places. Each reading moves one unit, so values from two readings do not have the
 * right sum. */
struct stock {
    double there, moving, gone;
    int readings;
};

static void read_stock(void *arg, double *values)
{
    struct stock *s = arg;
    s->readings++;
    s->there--;
    s->moving += s->readings % 2 ? 1 : -1;
    s->gone += s->readings % 2 ? 0 : 2;
    const double now[] = {s->gone, s->there, s->moving, 0.5 * s->readings};
    memcpy(values, now, sizeof now);
}

static const struct metrics_row stock_rows[] = {
    {"moed_stock", "place=\"gone\"", "Units, by place."},
    {"moed_stock", "place=\"there\"", "Units, by place."},
    {"moed_stock", "place=\"moving\"", "Units, by place."},
    {"moed_stock_seconds_total", NULL, "Time."},
};

/* A rendering reads once, whichever row comes first in the text, and also over several families.
 * The families appear in the order of registration. */
static void test_group(void **state)
{
    const char *heads[] = {"# HELP moed_between Between.\n# TYPE moed_between gauge\n"
                           "moed_between 7\n",
                           ""};
    for (int before = 0; before < 2; before++) {
        struct stock s = {.there = 10};
        struct metrics *m = metrics_new();
        if (before) { /* the group's samples follow this one, which is registered first */
            gauge_set(metrics_gauge(m, "moed_stock", "place=\"lost\"", "Units, by place."), 1);
            gauge_set(metrics_gauge(m, "moed_stock_of_others", NULL, "Others."), 2);
        } else {
            gauge_set(metrics_gauge(m, "moed_between", NULL, "Between."), 7);
        }
        metrics_group(m, stock_rows, 4, read_stock, &s);
        for (int i = 1; i <= 4; i++) {
            char want[800];
            char *text = own_part(m);
            assert_int_equal(s.readings, i);
            snprintf(want, sizeof want,
                     "%s# HELP moed_stock Units, by place.\n"
                     "# TYPE moed_stock gauge\n%s"
                     "moed_stock{place=\"gone\"} %d\n"
                     "moed_stock{place=\"there\"} %d\n"
                     "moed_stock{place=\"moving\"} %d\n%s"
                     "# HELP moed_stock_seconds_total Time.\n"
                     "# TYPE moed_stock_seconds_total counter\n"
                     "moed_stock_seconds_total %s\n",
                     heads[before], before ? "moed_stock{place=\"lost\"} 1\n" : "", i / 2 * 2,
                     10 - i, i % 2,
                     before ? "# HELP moed_stock_of_others Others.\n"
                              "# TYPE moed_stock_of_others gauge\nmoed_stock_of_others 2\n"
                            : "",
                     (const char *[]){"0.5", "1", "1.5", "2"}[i - 1]);
            assert_string_equal(text, want);
            free(text);
        }
        metrics_free(m);
    }
}

/* A rendering shows the labels of that moment. */
static void test_info(void **state)
{
    struct metrics *m = metrics_new();
    double value = 1;
    metrics_info(m, "moed_answer_info", one_label, &value, "The answer.");
    value = 42;
    char *text = own_part(m);
    assert_string_equal(text, "# HELP moed_answer_info The answer.\n"
                              "# TYPE moed_answer_info gauge\n"
                              "moed_answer_info{answer=\"42\"} 1\n");
    free(text);
    metrics_free(m);
}

static void test_default_bounds(void **state)
{
    assert_true(histogram_seconds_count <= HISTOGRAM_MAX_BUCKETS);
    for (uint32_t i = 1; i < histogram_seconds_count; i++)
        assert_true(histogram_seconds_bounds[i - 1] < histogram_seconds_bounds[i]);
}

static double value_of(const char *text, const char *name)
{
    char start[128];
    snprintf(start, sizeof start, "\n%s ", name);
    const char *p = strstr(text, start);
    if (p == NULL)
        fail_msg("%s is missing", name);
    return atof(p + strlen(start));
}

static int fds_by_shell(void)
{
    char command[64];
    snprintf(command, sizeof command, "ls /proc/%d/fd | wc -l", (int)getpid());
    FILE *f = popen(command, "re");
    int n = -1;
    if (fscanf(f, "%d", &n) != 1)
        n = -1;
    pclose(f);
    return n - 1; /* without popen's pipe */
}

static void test_process(void **state)
{
    struct metrics *m = metrics_new();
    struct strbuf out;
    strbuf_init(&out);
    metrics_render(m, &out);
    time_t now = time(NULL);
    double resident = value_of(out.data, "process_resident_memory_bytes");
    assert_true(resident > 100e3 && resident < 1e12);
    double cpu = value_of(out.data, "process_cpu_seconds_total");
    assert_true(cpu > 0 && cpu < 600);
    double started = value_of(out.data, "process_start_time_seconds");
    assert_true(started > (double)now - 600 && started < (double)now + 5);
    /* A sanitizer's own thread may have a file open at one of the two moments, and popen its other
     * end. */
    bool equal = false;
    for (int i = 0; i < 20 && !equal; i++) {
        strbuf_clear(&out);
        metrics_render(m, &out);
        equal = (int)value_of(out.data, "process_open_fds") == fds_by_shell();
    }
    assert_true(equal);
    struct rlimit before, limit; /* moed-http raises its own, after the start */
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    limit = before;
    limit.rlim_cur = 77;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    strbuf_clear(&out);
    metrics_render(m, &out);
    assert_int_equal((int)value_of(out.data, "process_max_fds"), 77);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_non_null(strstr(out.data, "\nmoed_build_info{version=\"" MOED_VERSION "\"} 1\n"));
    assert_int_equal(out.data[out.len - 1], '\n');

    size_t bytes = 64 << 20;
    char *block = malloc(bytes);
    memset(block, 1, bytes);
    __asm__ volatile("" : : "r"(block) : "memory");
    assert_true((double)metrics_resident_bytes() > resident + (double)bytes / 2);
    free(block);
    strbuf_fini(&out);
    metrics_free(m);
}

#define THREADS 4
#define ADDS    50000

struct shared {
    struct counter *counter;
    struct gauge *gauge;
    struct histogram *histogram;
};

static void *updater_main(void *arg)
{
    struct shared *s = arg;
    for (int i = 0; i < ADDS; i++) {
        counter_add(s->counter, 3);
        gauge_set(s->gauge, i);
        histogram_observe(s->histogram, i % 2 ? 0.25 : 1);
    }
    return NULL;
}

static void test_concurrent_updates(void **state)
{
    struct metrics *m = metrics_new();
    struct shared s = {metrics_counter(m, "moed_a_total", NULL, 1, "A."),
                       metrics_gauge(m, "moed_b", NULL, "B."),
                       metrics_histogram(m, "moed_c_seconds", NULL, bounds, 3, "C.")};
    assert_int_equal((uintptr_t)s.counter % 64, 0);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, updater_main, &s), 0);
    for (int i = 0; i < 20; i++) /* reads while the writers run */
        free(own_part(m));
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    char *text = own_part(m);
    assert_int_equal((int)value_of(text, "moed_a_total"), 3 * ADDS * THREADS);
    assert_int_equal((int)value_of(text, "moed_b"), ADDS - 1);
    assert_int_equal((int)value_of(text, "moed_c_seconds_bucket{le=\"0.5\"}"), ADDS * THREADS / 2);
    assert_int_equal((int)value_of(text, "moed_c_seconds_count"), ADDS * THREADS);
    assert_int_equal((int)value_of(text, "moed_c_seconds_sum"), ADDS * THREADS / 8 * 5);
    free(text);
    metrics_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact_text), cmocka_unit_test(test_histogram_without_labels),
        cmocka_unit_test(test_info),       cmocka_unit_test(test_default_bounds),
        cmocka_unit_test(test_process),    cmocka_unit_test(test_concurrent_updates),
        cmocka_unit_test(test_absent),     cmocka_unit_test(test_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
