/* bench/replay/machine*.c: the built-in machine files, every error in a file, and costs worked out
 * by hand. */
#include "bench/replay/machine.h"
#include "bench/replay/machine_calibration.h"
#include "calibration/calibration.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static const char good[] = "# a machine\n"
                           "name = test\n"
                           "what = a machine for tests # not a real one\n"
                           "dram = 80 GB/s\n"
                           "cpu = 70 GB/s\n"
                           "cpu-compute = 1.5 TFLOP/s\n"
                           "cpu-call = 30 us\n"
                           "link = 20 GB/s\n"
                           "link-latency = 2 us\n"
                           "device = 800 GB/s\n"
                           "device-compute = 40000 GFLOP/s\n"
                           "\n"
                           "device-call = 0.015 ms\n"
                           "attention = 50 us\n"
                           "plan-expert = 60 ns\n"
                           "predict-call = 8 us\n"
                           "predict-gate = 15 us\n"
                           "vram = 16 GiB\n"
                           "ram = 64 GB\n";

static bool close_to(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b);
}

/* ---- The text ---- */

static void test_every_key(void **state)
{
    struct machine m;
    struct error e;
    assert_int_equal(machine_parse(good, "good", &m, &e), ERROR_OK);
    assert_string_equal(m.name, "test");
    assert_string_equal(m.what, "a machine for tests");
    assert_true(close_to(m.dram_bytes_per_s, 80e9));
    assert_true(close_to(m.cpu_bytes_per_s, 70e9));
    assert_true(close_to(m.cpu_flop_per_s, 1.5e12));
    assert_true(close_to(m.cpu_call_s, 30e-6));
    assert_true(close_to(m.link_bytes_per_s, 20e9));
    assert_true(close_to(m.link_latency_s, 2e-6));
    assert_true(close_to(m.device_bytes_per_s, 800e9));
    assert_true(close_to(m.device_flop_per_s, 40e12));
    assert_true(close_to(m.device_call_s, 15e-6));
    assert_true(close_to(m.attention_s, 50e-6));
    assert_true(close_to(m.plan_expert_s, 60e-9));
    assert_true(close_to(m.predict_call_s, 8e-6));
    assert_true(close_to(m.predict_gate_s, 15e-6));
    assert_true(m.vram_bytes == 16ull << 30);
    assert_true(m.ram_bytes == 64000000000ull);
}

/* `good` with one line in place of another. */
static char *altered(const char *line, const char *by)
{
    const char *at = strstr(good, line);
    assert_non_null(at);
    size_t before = (size_t)(at - good), capacity = sizeof good + strlen(by) + 1;
    char *text = malloc(capacity);
    snprintf(text, capacity, "%.*s%s%s", (int)before, good, by, at + strlen(line));
    return text;
}

static void test_wrong_lines(void **state)
{
    static const struct {
        const char *line, *by, *parts[4]; /* parts of the message */
    } cases[] = {
        {"link = 20 GB/s", "link 20 GB/s", {"file:8", "link 20", "key = value"}},
        {"link = 20 GB/s", "links = 20 GB/s", {"file:8", "links", "link-latency"}},
        {"link = 20 GB/s", "link = 20 GB", {"file:8", "link", "GB/s, TB/s"}},
        {"link = 20 GB/s", "link = 20", {"file:8", "link", "B/s"}},
        {"link = 20 GB/s", "link = fast", {"file:8", "link", "fast"}},
        {"link = 20 GB/s", "link =", {"file:8", "link", "an empty value"}},
        {"link = 20 GB/s", "link = -20 GB/s", {"file:8", "link"}},
        {"link = 20 GB/s", "link = 0 GB/s", {"file:8", "out of range", "allowed"}},
        {"link = 20 GB/s", "link = 0x10 GB/s", {"file:8", "link"}},
        {"link = 20 GB/s", "link = inf GB/s", {"file:8", "link"}},
        {"link = 20 GB/s", "link = 1e300 TB/s", {"file:8", "out of range"}},
        {"link = 20 GB/s", "cpu = 20 GB/s", {"file:8", "cpu", "twice"}},
        {"link = 20 GB/s", "", {"link is missing", "GB/s"}},
        {"name = test", "name =", {"file:2", "name", "1 to 63"}},
        {"attention = 50 us", "attention = 50 min", {"file:14", "s, ms, us, ns"}},
        {"vram = 16 GiB", "vram = 16 GB/s", {"file:18", "GiB"}},
        {"cpu = 70 GB/s", "cpu = 90 GB/s", {"file", "cpu", "dram", "80 GB/s"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = altered(cases[i].line, cases[i].by);
        struct machine m = {.name = "untouched"};
        struct error e = {0};
        assert_int_equal(machine_parse(text, "file", &m, &e), ERROR_FORMAT);
        for (int k = 0; k < 4 && cases[i].parts[k]; k++)
            if (!strstr(e.text, cases[i].parts[k]))
                fail_msg("\"%s\": the message \"%s\" lacks \"%s\"", cases[i].by, e.text,
                         cases[i].parts[k]);
        assert_string_equal(m.name, "untouched");
        free(text);
    }
}

/* No content of a file causes a crash: cut anywhere, and with any byte changed. */
static void test_broken_files(void **state)
{
    char text[sizeof good];
    struct machine m;
    struct error e;
    for (size_t n = 0; n + 1 < sizeof good; n++) {
        memcpy(text, good, sizeof good);
        text[n] = '\0';
        if (n + 2 < sizeof good) /* all but the last line break */
            assert_int_not_equal(machine_parse(text, "cut", &m, &e), ERROR_OK);
        for (int c = 1; c < 256; c += 7) {
            memcpy(text, good, sizeof good);
            text[n] = (char)c;
            (void)!machine_parse(text, "changed", &m, &e);
        }
    }
    char *line = malloc(2000);
    memset(line, 'x', 1999);
    line[1999] = '\0';
    assert_int_equal(machine_parse(line, "long", &m, &e), ERROR_FORMAT);
    free(line);
}

static void test_built_in(void **state)
{
    static const char *const wanted[] = {"3090-epyc7532", "4090-14900k", "v100-6230r", "a100-6230r",
                                         "a6000-8358p",   "desktop",     "3060-5600",  "5090-9950x",
                                         "gh200",         "laptop",      "apu"};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        struct machine m;
        struct error e;
        assert_non_null(strstr(machine_names(), wanted[i]));
        if (machine_find(wanted[i], &m, &e))
            fail_msg("%s", e.text);
        assert_string_equal(m.name, wanted[i]);
        assert_true(m.link_bytes_per_s < m.cpu_bytes_per_s);
        assert_true(m.cpu_bytes_per_s <= m.dram_bytes_per_s);
        assert_true(m.dram_bytes_per_s < m.device_bytes_per_s);
        assert_true(m.cpu_flop_per_s < m.device_flop_per_s);
        assert_true(m.vram_bytes >= 8ull << 30 && m.ram_bytes >= m.vram_bytes);
    }
}

static void write_text(const char *text, char path[64])
{
    snprintf(path, 64, "/tmp/moed-test-machine-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_true(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

static void test_files(void **state)
{
    char path[64];
    struct machine m;
    struct error e;
    write_text(good, path);
    assert_int_equal(machine_find(path, &m, &e), ERROR_OK);
    assert_string_equal(m.name, "test");
    unlink(path);
    assert_int_equal(machine_find(path, &m, &e), ERROR_NOT_FOUND);
    assert_non_null(strstr(e.text, path));
    assert_non_null(strstr(e.text, machine_names()));
    assert_int_equal(machine_find("/", &m, &e), ERROR_IO);
}

/* ---- Costs ---- */

static struct machine machine_with(double dram, double cpu, double link)
{
    struct machine m;
    struct error e;
    assert_int_equal(machine_parse(good, "good", &m, &e), ERROR_OK);
    m.dram_bytes_per_s = dram;
    m.cpu_bytes_per_s = cpu;
    m.link_bytes_per_s = link;
    return m;
}

/* A segment of 6 MB, 2 flop a byte: the CPU's 12 Mflop take 8 us a token, less than any reading. */
static const struct trace_layer layer = {.n_segments = 1, .segment_bytes = 6000000};

static void assert_shared(double dram, double cpu, double link, double cpu_gets, double link_gets)
{
    struct machine m = machine_with(dram * 1e9, cpu * 1e9, link * 1e9);
    struct sched_costs c = machine_costs(&m, &layer, 2);
    assert_true(close_to(c.load_s, 2e-6 + 6e-3 / link));
    assert_true(close_to(c.load_contended_s, 2e-6 + 6e-3 / link_gets));
    assert_true(close_to(sched_cpu_s(&c, 1), 6e-3 / cpu));
    assert_true(close_to(sched_cpu_contended_s(&c, 1), 6e-3 / cpu_gets));
}

/* Max-min fair, by hand, in GB/s. */
static void test_shared_memory(void **state)
{
    assert_shared(80, 70, 20, 60, 20); /* the link gets all it needs; 60 remain */
    assert_shared(80, 50, 20, 50, 20); /* together 70: both get their full rate */
    assert_shared(80, 70, 60, 40, 40); /* both need more than half */
    assert_shared(80, 30, 60, 30, 50); /* the CPU needs less than half */
    assert_shared(80, 80, 40, 40, 40); /* just half */
}

/* 6 MB at 60 GB/s is 100 us. With 12 Mflop a token at 0.12 Tflop/s a token is 100 us too: t(w) =
 * 100 us w, no base. With a rate so high that 128 tokens take less than the reading, t(w) is 100
 * us: no slope. */
static void test_extremes(void **state)
{
    struct machine m = machine_with(80e9, 60e9, 20e9);
    m.cpu_flop_per_s = 0.12e12;
    struct sched_costs c = machine_costs(&m, &layer, 2);
    assert_true(fabs(c.cpu_s) < 1e-12);
    assert_true(close_to(c.cpu_token_s, 1e-4));
    m.cpu_flop_per_s = 1e15;
    c = machine_costs(&m, &layer, 2);
    assert_true(close_to(c.cpu_s, 1e-4));
    assert_true(c.cpu_token_s == 0);
}

static double relative_error(double first, double slope, double bytes_s, double token_s)
{
    double sum = 0;
    for (uint32_t w = 1; w <= 128; w *= 2) {
        double off = (first + (w - 1) * slope) / fmax(bytes_s, w * token_s) - 1;
        sum += off * off;
    }
    return sum;
}

/* Between them: exact for one token, and no other slope has a smaller error. */
static void test_line(void **state)
{
    for (double tokens = 1.5; tokens < 400;
         tokens *= 1.7) { /* here reading and computing take the same time */
        struct machine m = machine_with(80e9, 60e9, 20e9);
        double bytes_s = 1e-4, token_s = bytes_s / tokens;
        m.cpu_flop_per_s = 12e6 / token_s;
        struct sched_costs c = machine_costs(&m, &layer, 2);
        assert_true(close_to(sched_cpu_s(&c, 1), bytes_s));
        assert_true(c.cpu_s >= 0 && c.cpu_token_s >= 0);
        double best = relative_error(bytes_s, c.cpu_token_s, bytes_s, token_s);
        for (int i = 0; i <= 1000; i++)
            assert_true(relative_error(bytes_s, 2 * token_s * i / 1000, bytes_s, token_s) >=
                        best * (1 - 1e-9));
        if (tokens < 16)
            assert_true(c.cpu_token_s > 0.5 * token_s && c.cpu_token_s <= token_s);
    }
}

/* 1.6 GB at 800 GB/s are 2 ms; 1000 tokens of 3.2 Gflop at 40 Tflop/s are 80 ms. */
static void test_dense(void **state)
{
    struct machine m = machine_with(80e9, 60e9, 20e9);
    assert_true(close_to(machine_dense_s(&m, 1.6e9, 1), 50e-6 + 2e-3));
    assert_true(close_to(machine_dense_s(&m, 1.6e9, 1000), 50e-6 + 80e-3));
}

/* ---- Calibrations ---- */

static struct calibration calibration_example(void)
{
    return (struct calibration){
        .machine = "a CPU, 2 cores",
        .device = "emu:vram=25%,link=1G",
        .model = "a model",
        .shapes = "8 layers of 32 experts",
        .measured_at = 1795251999,
        .segment_bytes = 400000,
        .device_side = {2, {{1, 3e-5}, {3, 5e-5}}}, /* 20 us + w 10 us */
        .cpu_side = {2, {{1, 8e-5}, {2, 12e-5}}},   /* 40 us + w 40 us */
        .device_call_s = 3e-6,
        .cpu_call_s = 2e-6,
        .job_overhead_s = 5e-5,
        .link_segment_s = 5e-4,
        .cpu_slowdown = 1.25,
        .link_slowdown = 1.5,
    };
}

static enum error_code load(const struct calibration *c, struct machine *m, struct sched_costs *k,
                            struct error *e)
{
    struct strbuf text;
    char path[64];
    strbuf_init(&text);
    calibration_write(c, &text);
    write_text(text.data, path);
    strbuf_fini(&text);
    enum error_code code = machine_from_calibration(path, m, k, e);
    unlink(path);
    return code;
}

static void test_calibration(void **state)
{
    struct calibration c = calibration_example();
    struct machine m;
    struct sched_costs k;
    struct error e;
    assert_int_equal(load(&c, &m, &k, &e), ERROR_OK);
    assert_true(close_to(k.load_s, 5e-4) && close_to(k.load_contended_s, 7.5e-4));
    assert_true(fabs(k.device_s - 2e-5) < 1e-12 && fabs(k.device_token_s - 1e-5) < 1e-12);
    assert_true(fabs(k.cpu_s - 4e-5) < 1e-12 && fabs(k.cpu_token_s - 4e-5) < 1e-12);
    assert_true(fabs(k.cpu_contended_s - 5e-5) < 1e-12 &&
                fabs(k.cpu_contended_token_s - 5e-5) < 1e-12);
    assert_true(close_to(m.cpu_call_s, 5.2e-5) && close_to(m.device_call_s, 3e-6));
    assert_true(close_to(m.link_bytes_per_s, 400000 / 5e-4) && m.link_latency_s == 0);
    assert_true(fabs(m.cpu_bytes_per_s / (400000 / 8e-5) - 1) < 1e-6);
    assert_true(m.attention_s == 0);
    assert_non_null(strstr(m.what, "a CPU, 2 cores"));
}

/* The machine includes the cost corrections from layers, as a worker begins with them: the device
 * takes twice as long as measured, the link 1.5 times, a job 70 us more overhead; the CPU takes
 * three times as long without copies, and in as many layers 4.5 times while a copy runs. */
static void test_calibration_corrections(void **state)
{
    struct calibration c = calibration_example();
    struct machine m;
    struct sched_costs k;
    struct error e;
    const double corrections[] = {2, 1.5, 7e-5, 128, 128, 3 * 128, 4.5 * 128, 0, 0, 0, 0};
    c.link_latency_s = 6e-5;
    memcpy(c.corrections, corrections, sizeof corrections);
    assert_int_equal(load(&c, &m, &k, &e), ERROR_OK);
    assert_true(close_to(k.load_s, 7.5e-4) && close_to(k.load_contended_s, 11.25e-4));
    assert_true(fabs(k.device_s - 4e-5) < 1e-12 && fabs(k.device_token_s - 2e-5) < 1e-12);
    assert_true(close_to(m.cpu_call_s, 7.2e-5) && close_to(m.link_call_s, 6e-5));
    /* the slow-down: 1.5 in 128 layers and 1.25, measured, which counts as 16, give 1.472; so
     * without copies the CPU takes (3 + 4.5 / 1.472) / 2 */
    double slower = (128 * 1.5 + 16 * 1.25) / 144, without_copies = (3 + 4.5 / slower) / 2;
    assert_true(fabs(k.cpu_s / (4e-5 * without_copies) - 1) < 1e-6 &&
                fabs(k.cpu_contended_s / (4e-5 * without_copies * slower) - 1) < 1e-6);
    c.corrections[3] = 3000; /* an impossible correction: as measured */
    assert_int_equal(load(&c, &m, &k, &e), ERROR_OK);
    assert_true(close_to(k.load_s, 5e-4) && close_to(m.cpu_call_s, 5.2e-5));
}

/* The options of the link replace a missing measurement: 10 us (the device's default) and 0.4 MB at
 * 1 GB/s. */
static void test_calibration_without_link(void **state)
{
    struct calibration c = calibration_example();
    struct machine m;
    struct sched_costs k;
    struct error e;
    c.link_segment_s = c.cpu_slowdown = c.link_slowdown = 0;
    assert_int_equal(load(&c, &m, &k, &e), ERROR_OK);
    assert_true(close_to(k.load_s, 4.1e-4) && close_to(k.load_contended_s, 4.1e-4));
    assert_true(close_to(k.cpu_contended_s, k.cpu_s));
    snprintf(c.device, sizeof c.device, "host");
    assert_int_equal(load(&c, &m, &k, &e), ERROR_UNSUPPORTED);
    assert_non_null(strstr(e.text, "host"));
    assert_int_equal(machine_from_calibration("/nowhere", &m, &k, &e), ERROR_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_key),
        cmocka_unit_test(test_wrong_lines),
        cmocka_unit_test(test_broken_files),
        cmocka_unit_test(test_built_in),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_shared_memory),
        cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_line),
        cmocka_unit_test(test_dense),
        cmocka_unit_test(test_calibration),
        cmocka_unit_test(test_calibration_corrections),
        cmocka_unit_test(test_calibration_without_link),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
