/* Log lines: what a message quotes makes no line of its own and reaches no terminal. */
#include "base/log.h"
#include "client/http/server/access_log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#define ESCAPES "/\x1b[2J\nFAKE\r\t\x7f"

/* What an access to such a path, with its name ignored and its body, writes. */
static void access_lines(const char *text, char *out, size_t bytes)
{
    struct access_entry a = {.method = "GET", .status = 404, .outcome = "ok"};
    int pipes[2], saved = dup(STDERR_FILENO);
    snprintf(a.id, sizeof a.id, "req-1");
    snprintf(a.path, sizeof a.path, "%s", text);
    snprintf(a.ignored, sizeof a.ignored, "%s", text);
    a.body = text;
    a.body_bytes = strlen(text);
    assert_int_equal(pipe(pipes), 0);
    dup2(pipes[1], STDERR_FILENO);
    access_write(&a, false);
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(pipes[1]);
    ssize_t n = read(pipes[0], out, bytes - 1);
    assert_true(n > 0);
    out[n] = '\0';
    close(pipes[0]);
}

/* How many bytes the line has. */
static size_t written(const struct access_entry *a, bool json)
{
    int pipes[2], saved = dup(STDERR_FILENO);
    char line[1024];
    assert_int_equal(pipe(pipes), 0);
    dup2(pipes[1], STDERR_FILENO);
    access_write(a, json);
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(pipes[1]);
    ssize_t n = read(pipes[0], line, sizeof line);
    close(pipes[0]);
    return n > 0 ? (size_t)n : 0;
}

static void test_controls_are_hidden(void **state)
{
    char text[4096];
    unsigned lines = 0;
    log_init("test", LOG_LEVEL_INFO);
    access_lines(ESCAPES, text, sizeof text);
    assert_non_null(strstr(text, "FAKE"));
    for (const char *c = text; *c; c++) {
        assert_true(*c == '\n' || ((unsigned char)*c >= 0x20 && *c != 0x7f));
        lines += *c == '\n';
    }
    assert_int_equal(lines, 2); /* the request's and its body's */
}

/* Neither does it make fields of its own. */
static void test_fields_stay_fields(void **state)
{
    char text[4096];
    access_lines("/x 200 ok key=b%\xc3\xa4", text, sizeof text);
    assert_non_null(strstr(text, " req-1 GET /x%20200%20ok%20key=b%%C3%A4 404 ok key=- model=- "));
    assert_non_null(strstr(text, " ignored=/x%20200%20ok%20key=b%%C3%A4\n"));
}

/* Where standard error is what $JOURNAL_STREAM names, and only there, a line has its priority. */
static void test_priorities(void **state)
{
    int pipes[2], saved = dup(STDERR_FILENO);
    struct stat s;
    char stream[64], text[1024];
    (void)state;
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(fstat(pipes[1], &s), 0);
    snprintf(stream, sizeof stream, "%llu:%llu", (unsigned long long)s.st_dev,
             (unsigned long long)s.st_ino);
    dup2(pipes[1], STDERR_FILENO);
    setenv("JOURNAL_STREAM", "1:2", 1); /* that of a parent whose output this is not */
    log_init("test", LOG_LEVEL_INFO);
    log_warn("plain");
    setenv("JOURNAL_STREAM", stream, 1);
    log_init("test", LOG_LEVEL_INFO);
    log_error("first");
    log_info("second");
    access_write(&(struct access_entry){.method = "GET", .outcome = "ok"}, true);
    dup2(saved, STDERR_FILENO);
    unsetenv("JOURNAL_STREAM");
    log_init("test", LOG_LEVEL_INFO);
    ssize_t n = read(pipes[0], text, sizeof text - 1);
    assert_true(n > 0);
    text[n] = '\0';
    assert_true(text[0] == '2');
    assert_non_null(strstr(text, "\n<3>2"));
    assert_non_null(strstr(text, "\n<6>2"));
    assert_non_null(strstr(text, "\n<6>{\"time\""));
    close(saved);
    close(pipes[0]);
    close(pipes[1]);
}

/* An id that a client sent is a field of its own, or none. */
static void test_request_ids(void **state)
{
    char id[129], longest[131];
    (void)state;
    access_take_request_id("f3c2-77:a/b", id);
    assert_string_equal(id, "f3c2-77:a/b");
    static const char *const wrong[] = {"", "a b", "a\n", "a\x7f", "\xc3\xa4"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        access_take_request_id(wrong[i], id);
        assert_string_equal(id, "");
    }
    memset(longest, 'x', 129);
    longest[129] = '\0';
    access_take_request_id(longest, id);
    assert_string_equal(id, "");
    access_take_request_id(longest + 1, id);
    assert_string_equal(id, longest + 1);
}

/* Probes are of level debug; others, and those that were refused, are not. */
static void test_probes(void **state)
{
    struct access_entry a = {.method = "GET", .status = 200, .outcome = "ok"};
    (void)state;
    log_init("test", LOG_LEVEL_INFO);
    snprintf(a.path, sizeof a.path, "/health");
    assert_int_equal(written(&a, false), 0);
    assert_int_equal(written(&a, true), 0);
    a.status = 503;
    assert_int_equal(written(&a, false), 0);
    a.status = 401;
    assert_true(written(&a, false) > 0);
    a.status = 200;
    assert_true(access_is_probe(&a));
    snprintf(a.path, sizeof a.path, "/healthy");
    assert_false(access_is_probe(&a));
    assert_true(written(&a, true) > 0);
    snprintf(a.path, sizeof a.path, "/metrics");
    assert_int_equal(written(&a, false), 0);
    log_init("test", LOG_LEVEL_DEBUG);
    assert_true(written(&a, false) > 0);
    assert_true(written(&a, true) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_controls_are_hidden),
        cmocka_unit_test(test_fields_stay_fields),
        cmocka_unit_test(test_probes),
        cmocka_unit_test(test_request_ids),
        cmocka_unit_test(test_priorities),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
