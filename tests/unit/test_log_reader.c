/* client/cli/log_reader.c: what a follower of logs prints, line by line, while they grow. */
#include "client/cli/log_reader.h"

#include "daemon/run_dir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define FIRST  "2026-01-31T12:00:00.000Z"
#define SECOND "2026-01-31T12:00:01.000Z"

static char run[] = "/tmp/moed-logs-XXXXXX";
static char path[RUN_PATH_BYTES], old_path[RUN_PATH_BYTES + 2];
static struct process_log logs[LOG_READER_LOGS];

static void append(const char *text)
{
    FILE *f = fopen(path, "a");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

/* The next look at the logs prints this. */
static void expect(bool json, const char *since, const char *text)
{
    char *printed;
    size_t len;
    struct log_view view = {.out = open_memstream(&printed, &len), .limit = 100, .json = json};
    snprintf(view.since, sizeof view.since, "%s", since);
    assert_non_null(view.out);
    assert_true(log_reader_print(logs, &view, true));
    fclose(view.out);
    assert_string_equal(printed, text);
    free(printed);
}

static int begin(void **state)
{
    (void)state;
    unlink(path);
    unlink(old_path);
    log_reader_init(logs, run, "worker");
    return 0;
}

/* A crash report that comes after its process' last line has been printed. */
static void test_crash_reports(void **state)
{
    (void)state;
    append("without a time\n");
    expect(
        true, "",
        "{\"time\":null,\"level\":null,\"component\":\"worker\",\"message\":\"without a time\"}\n");
    append(FIRST " error worker abort\n");
    expect(true, "",
           "{\"time\":\"" FIRST
           "\",\"level\":\"error\",\"component\":\"worker\",\"message\":\"abort\"}\n");
    append("#0 main\n");
    expect(true, FIRST,
           "{\"time\":\"" FIRST
           "\",\"level\":null,\"component\":\"worker\",\"message\":\"#0 main\"}\n");
    append("#1 a\xff\n");
    expect(true, "",
           "{\"time\":\"" FIRST
           "\",\"level\":null,\"component\":\"worker\",\"message\":\"#1 a\\ufffd\"}\n");
}

/* Lines that came before and after a rename, and after the file was cut. */
static void test_renamed_logs(void **state)
{
    (void)state;
    append(FIRST " info worker a\n" FIRST " info wor");
    expect(false, "", FIRST " info worker a\n");
    append("ker b\n");
    assert_int_equal(rename(path, old_path), 0);
    append(SECOND " info worker c\n");
    expect(false, "", FIRST " info worker b\n" SECOND " info worker c\n");
    assert_int_equal(truncate(path, 0), 0);
    append("d\n");
    expect(false, "", "d\n");
    expect(false, "", "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup(test_crash_reports, begin),
                                       cmocka_unit_test_setup(test_renamed_logs, begin)};
    if (!mkdtemp(run))
        return 1;
    run_dir_file(run, "worker.log", path);
    snprintf(old_path, sizeof old_path, "%s.1", path);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    unlink(old_path);
    rmdir(run);
    return failed;
}
