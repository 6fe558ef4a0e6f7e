/* base/file_writer: a file is one writer's, whole, or it is not there. */
#include "base/file_writer.h"

#include <glob.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <cmocka.h>

#include "temporary_directory.h"

static struct file_writer *open_writer(mode_t mode)
{
    struct file_writer *w;
    struct error e;
    if (file_writer_open(in_directory("file"), mode, &w, &e))
        fail_msg("%s", e.text);
    return w;
}

static void put(struct file_writer *w, const char *text)
{
    struct error e;
    assert_int_equal(file_writer_write(w, text, strlen(text), &e), ERROR_OK);
}

static void finish(struct file_writer *w)
{
    struct error e;
    if (file_writer_finish(w, &e))
        fail_msg("%s", e.text);
}

static void assert_content(const char *want)
{
    char got[64] = "";
    FILE *f = fopen(in_directory("file"), "r");
    assert_non_null(f);
    got[fread(got, 1, sizeof got - 1, f)] = '\0';
    fclose(f);
    assert_string_equal(got, want);
}

/* The files in the directory whose names begin with "file". */
static unsigned count_files(void)
{
    glob_t found;
    unsigned n = glob(in_directory("file*"), 0, NULL, &found) ? 0 : (unsigned)found.gl_pathc;
    globfree(&found);
    return n;
}

static mode_t mode_of_file(void)
{
    struct stat st;
    assert_int_equal(stat(in_directory("file"), &st), 0);
    return st.st_mode & 0777;
}

static void test_two_writers(void **state)
{
    (void)state;
    struct file_writer *a = open_writer(FILE_WRITER_MODE), *b = open_writer(FILE_WRITER_MODE);
    put(a, "aaaa");
    put(b, "bb");
    put(a, "AAAA");
    finish(a);
    assert_content("aaaaAAAA");
    put(b, "B");
    finish(b);
    assert_content("bbB");
    assert_int_equal(count_files(), 1);
    a = open_writer(FILE_WRITER_MODE);
    put(a, "never");
    file_writer_abandon(a);
    assert_content("bbB");
    assert_int_equal(count_files(), 1);
    unlink(in_directory("file"));
}

static void test_mode(void **state)
{
    (void)state;
    mode_t before = umask(027);
    finish(open_writer(FILE_WRITER_MODE));
    assert_int_equal(mode_of_file(), 0640);
    finish(open_writer(FILE_WRITER_PRIVATE));
    assert_int_equal(mode_of_file(), 0600);
    umask(before);
    unlink(in_directory("file"));
}

/* The next writer removes the file of a process that was killed, but not that of one that runs. */
static void test_left_by_a_killed_process(void **state)
{
    (void)state;
    struct file_writer *running = open_writer(FILE_WRITER_MODE);
    pid_t child = fork();
    if (!child) {
        struct file_writer *w;
        struct error e;
        if (!file_writer_open(in_directory("file"), FILE_WRITER_MODE, &w, &e))
            raise(SIGKILL);
        _exit(1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(count_files(), 2);
    FILE *other = fopen(in_directory("file.tmp.backup"), "w"); /* a name that no writer gives */
    assert_non_null(other);
    fclose(other);
    struct file_writer *w = open_writer(FILE_WRITER_MODE);
    assert_int_equal(count_files(), 3); /* running, w, backup */
    file_writer_abandon(w);
    put(running, "whole");
    finish(running);
    assert_content("whole");
    assert_int_equal(count_files(), 2);
    unlink(in_directory("file.tmp.backup"));
    unlink(in_directory("file"));
}

/* What happens between a writer's last byte and its rename. */
static void (*before_rename)(void);

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to)
{
    void (*hook)(void) = before_rename;
    before_rename = NULL;
    if (hook)
        hook();
    return __real_rename(from, to);
}

static void open_and_abandon(void)
{
    file_writer_abandon(open_writer(FILE_WRITER_MODE));
}

static void test_other_writer_begins_at_the_end(void **state)
{
    (void)state;
    struct file_writer *w = open_writer(FILE_WRITER_MODE);
    put(w, "whole");
    before_rename = open_and_abandon;
    finish(w);
    assert_null(before_rename);
    assert_content("whole");
    assert_int_equal(count_files(), 1);
    unlink(in_directory("file"));
}

/* A date is eight hexadecimal digits, too. */
static void test_files_of_others_stay(void **state)
{
    (void)state;
    static const char *const names[] = {"file.tmp.20261201", "file.tmp", "file.tmp.moed-2026120",
                                        "file.tmp.moed-20261201x", "file2.tmp.moed-20261201"};
    enum { N = sizeof names / sizeof *names };
    for (int i = 0; i < N; i++) {
        FILE *f = fopen(in_directory(names[i]), "w");
        assert_non_null(f);
        fclose(f);
    }
    assert_int_equal(mkdir(in_directory("file.tmp.moed-20261201"), 0700), 0);
    open_and_abandon();
    assert_int_equal(count_files(), N + 1);
    for (int i = 0; i < N; i++)
        unlink(in_directory(names[i]));
    rmdir(in_directory("file.tmp.moed-20261201"));
}

static void test_link_stays(void **state)
{
    (void)state;
    struct error e;
    struct stat st;
    struct file_writer *w;
    char link_path[256];
    snprintf(link_path, sizeof link_path, "%s", in_directory("link"));
    finish(open_writer(FILE_WRITER_MODE));
    assert_int_equal(symlink("file", link_path), 0);
    assert_int_equal(file_writer_open(link_path, FILE_WRITER_MODE, &w, &e), ERROR_OK);
    put(w, "through the link");
    finish(w);
    assert_content("through the link");
    assert_int_equal(lstat(link_path, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    unlink(in_directory("file"));
    assert_int_equal(file_write(link_path, "x", 1, &e), ERROR_OK); /* to nothing: it is replaced */
    assert_int_equal(lstat(link_path, &st), 0);
    assert_true(S_ISREG(st.st_mode));
    unlink(link_path);
}

/* 10 bytes fit. */
static void test_return_to_what_was_kept(void **state)
{
    (void)state;
    struct rlimit all, small;
    struct error e;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &all), 0);
    small = (struct rlimit){.rlim_cur = 10, .rlim_max = all.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    struct file_writer *w = open_writer(FILE_WRITER_MODE);
    assert_false(file_writer_return(w));
    put(w, "first,");
    assert_int_equal(file_writer_keep(w, "end", 3, &e), ERROR_OK);
    put(w, "second,");
    assert_int_equal(file_writer_keep(w, "end", 3, &e), ERROR_IO);
    assert_int_equal(file_writer_write(w, "x", 1, &e), ERROR_IO);
    assert_true(file_writer_return(w));
    finish(w);
    setrlimit(RLIMIT_FSIZE, &all);
    assert_content("first,end");
    w = open_writer(FILE_WRITER_MODE); /* without a failure later bytes go over the tail */
    put(w, "1");
    assert_int_equal(file_writer_keep(w, "end", 3, &e), ERROR_OK);
    put(w, "2345");
    finish(w);
    assert_content("12345");
    unlink(in_directory("file"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_writers),
        cmocka_unit_test(test_mode),
        cmocka_unit_test(test_left_by_a_killed_process),
        cmocka_unit_test(test_other_writer_begins_at_the_end),
        cmocka_unit_test(test_files_of_others_stay),
        cmocka_unit_test(test_link_stays),
        cmocka_unit_test(test_return_to_what_was_kept),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
