/* Runtime directories: names, environment, owners and modes, and the locks of pid files. */
#include "daemon/run_dir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char base[64];
static struct error why;

static int setup(void **state)
{
    snprintf(base, sizeof base, "/tmp/moed-test-run.XXXXXX");
    unsetenv("MOED_RUN");
    return mkdtemp(base) && setenv("XDG_RUNTIME_DIR", base, 1) == 0 ? 0 : -1;
}

static int teardown(void **state)
{
    char command[96];
    snprintf(command, sizeof command, "rm -rf '%s'", base);
    return system(command);
}

static void paths_by_environment(void **state)
{
    char run[RUN_DIR_BYTES], expected[128];
    assert_int_equal(run_dir_path(NULL, run, &why), 0);
    snprintf(expected, sizeof expected, "%s/moed/default", base);
    assert_string_equal(run, expected);
    assert_int_equal(run_dir_path("b-2", run, &why), 0);
    snprintf(expected, sizeof expected, "%s/moed/b-2", base);
    assert_string_equal(run, expected);

    setenv("MOED_RUN", "/run/elsewhere", 1);
    assert_int_equal(run_dir_path("b-2", run, &why), 0);
    assert_string_equal(run, "/run/elsewhere");
    char label[RUN_LABEL_BYTES];
    run_dir_label("b-2", label);
    assert_string_equal(label, "the deployment in /run/elsewhere (MOED_RUN)");
    setenv("MOED_RUN", "", 1);
    run_dir_label("b-2", label);
    assert_string_equal(label, "deployment b-2");
    run_dir_label(NULL, label);
    assert_string_equal(label, "deployment default");
    setenv("MOED_RUN", "relative", 1);
    assert_int_equal(run_dir_path(NULL, run, &why), ERROR_USAGE);
    unsetenv("MOED_RUN");

    snprintf(expected, sizeof expected, "/tmp/moed-%u/default", (unsigned)getuid());
    setenv("XDG_RUNTIME_DIR", "/proc/nonexistent", 1);
    assert_int_equal(run_dir_path(NULL, run, &why), 0);
    assert_string_equal(run, expected);
    unsetenv("XDG_RUNTIME_DIR");
    assert_int_equal(run_dir_path(NULL, run, &why), 0);
    assert_string_equal(run, expected);
}

static void names_that_are_none(void **state)
{
    static const char *const wrong[] = {
        "",    ".hidden", "..",       "a/b",
        "a b", "a\n",     "\xc3\xa4", "0123456789012345678901234567890123" /* 34 */};
    char run[RUN_DIR_BYTES];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(run_dir_path(wrong[i], run, &why), ERROR_USAGE);
    assert_int_equal(run_dir_path("01234567890123456789012345678901", run, &why), 0);
}

static void too_long_for_a_socket(void **state)
{
    char run[RUN_DIR_BYTES], path[101];
    memset(path, 'x', sizeof path);
    path[0] = '/';
    path[100] = '\0';
    setenv("MOED_RUN", path, 1);
    assert_int_equal(run_dir_path(NULL, run, &why), ERROR_LIMIT);
    assert_non_null(strstr(why.text, "MOED_RUN"));
    path[RUN_DIR_BYTES - 1] = '\0'; /* the longest that fits, with the longest file in it */
    setenv("MOED_RUN", path, 1);
    assert_int_equal(run_dir_path(NULL, run, &why), 0);
    char file[RUN_PATH_BYTES];
    run_dir_file(run, "s-4294967295.sock", file);
    assert_int_equal(strlen(file), RUN_DIR_BYTES - 1 + strlen("/s-4294967295.sock"));
}

static void creates_and_checks(void **state)
{
    char run[RUN_DIR_BYTES];
    struct stat s;
    assert_int_equal(run_dir_path("x", run, NULL), 0);
    assert_int_equal(run_dir_create(run, &why), 0);
    assert_int_equal(stat(run, &s), 0);
    assert_int_equal(s.st_mode & 0777, 0700);
    assert_int_equal(run_dir_create(run, &why), 0); /* there already */

    assert_int_equal(chmod(run, 0750), 0);
    assert_int_equal(run_dir_create(run, &why), ERROR_IO);
    assert_non_null(strstr(why.text, "750"));
    assert_int_equal(chmod(run, 0700), 0);

    char parent[RUN_DIR_BYTES];
    snprintf(parent, sizeof parent, "%s/moed", base);
    assert_int_equal(chmod(parent, 0777), 0);
    assert_int_equal(run_dir_create(run, &why), ERROR_IO);
    assert_int_equal(chmod(parent, 0700), 0);

    char link[RUN_DIR_BYTES], file[RUN_DIR_BYTES];
    snprintf(link, sizeof link, "%s/link", base);
    assert_int_equal(symlink(run, link), 0);
    assert_int_equal(run_dir_create(link, &why), ERROR_IO);
    snprintf(file, sizeof file, "%s/file", base);
    close(open(file, O_CREAT | O_WRONLY, 0600));
    assert_int_equal(run_dir_create(file, &why), ERROR_IO);
    assert_non_null(strstr(why.text, "not a directory"));
}

static void another_users_directory(void **state)
{
    if (geteuid() != 0) {
        print_message("needs root to make a directory of another user\n");
        skip();
    }
    char run[RUN_DIR_BYTES];
    snprintf(run, sizeof run, "%s/theirs", base);
    assert_int_equal(mkdir(run, 0700), 0);
    assert_int_equal(chown(run, 12345, 12345), 0);
    assert_int_equal(run_dir_create(run, &why), ERROR_IO);
    assert_non_null(strstr(why.text, "12345"));
    char below[RUN_DIR_BYTES + 8];
    snprintf(below, sizeof below, "%s/x", run);
    assert_int_equal(run_dir_create(below, &why), ERROR_IO);
}

/* A child that locks RUN/memd.pid and waits; with ignore_term it must be killed. */
static pid_t start_holder(const char *run, bool ignore_term)
{
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        if (ignore_term)
            signal(SIGTERM, SIG_IGN);
        char ok = run_dir_lock(run, "memd", NULL) == ERROR_OK;
        if (write(ready[1], &ok, 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    char ok = 0;
    assert_int_equal(read(ready[0], &ok, 1), 1);
    assert_true(ok);
    close(ready[0]);
    close(ready[1]);
    return pid;
}

static void one_holder_a_pid_file(void **state)
{
    char run[RUN_DIR_BYTES], expected[64];
    assert_int_equal(run_dir_path("x", run, NULL), 0);
    assert_int_equal(run_dir_create(run, &why), 0);
    assert_int_equal(run_dir_holder(run, "memd"), 0);
    pid_t pid = start_holder(run, false);
    assert_int_equal(run_dir_holder(run, "memd"), pid);
    assert_int_equal(run_dir_holder(run, "worker"), 0);
    assert_int_equal(run_dir_lock(run, "memd", &why), ERROR_EXISTS);
    snprintf(expected, sizeof expected, "pid %d", (int)pid);
    assert_non_null(strstr(why.text, expected));

    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    assert_int_equal(run_dir_holder(run, "memd"), 0); /* the file exists, no process holds it */
    assert_int_equal(run_dir_lock(run, "memd", &why), 0);
    assert_int_equal(run_dir_holder(run, "memd"), getpid());
}

/* memd and the workers are looked for in the place that serves, the supervisor in RUN. */
static void finds_the_place_that_serves(void **state)
{
    char run[RUN_DIR_BYTES], second[RUN_DIR_BYTES], dir[RUN_DIR_BYTES];
    assert_int_equal(run_dir_path("x", run, NULL), 0);
    assert_int_equal(run_dir_create(run, &why), 0);
    assert_true(run_dir_place(run, 1, second));
    assert_int_equal(run_dir_create(second, &why), 0);
    pid_t pid = start_holder(second, false);
    assert_int_equal(run_dir_serving(run), 0);
    assert_int_equal(run_dir_holder(run, "memd"), 0);
    assert_int_equal(run_dir_holder(second, "memd"), pid);
    for (int i = 0; i < 2; i++) { /* twice: the link is replaced */
        assert_int_equal(run_dir_serve(run, 1, &why), 0);
        assert_int_equal(run_dir_serving(run), 1);
    }
    assert_int_equal(run_dir_holder(run, "memd"), pid);
    assert_int_equal(run_dir_hint(run, "memd"), pid);
    run_dir_of(run, "worker-3", dir);
    assert_string_equal(dir, second);
    run_dir_of(run, "supervise", dir);
    assert_string_equal(dir, run);
    assert_int_equal(run_dir_serve(run, 0, &why), 0);
    assert_int_equal(run_dir_holder(run, "memd"), 0);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    assert_int_equal(run_dir_serve(run, 1, &why), 0);
    assert_int_equal(run_dir_remove(run, &why), 0); /* with both places */

    memset(run, 'a', sizeof run - 1);
    run[0] = '/';
    run[sizeof run - 1] = '\0';
    assert_false(run_dir_place(run, 1, dir)); /* two bytes too long for a socket */
    assert_true(run_dir_place(run, 0, dir));
}

static void terminates_a_holder(void **state)
{
    char run[RUN_DIR_BYTES];
    int status;
    assert_int_equal(run_dir_path("x", run, NULL), 0);
    assert_int_equal(run_dir_create(run, &why), 0);
    assert_true(run_dir_terminate(run, "memd", 100)); /* no process runs */
    pid_t pid = start_holder(run, false);
    assert_true(run_dir_terminate(run, "memd", 5000));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(WTERMSIG(status), SIGTERM);
    pid = start_holder(run, true);
    assert_true(run_dir_terminate(run, "memd", 50));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(WTERMSIG(status), SIGKILL);
}

/* A child that does nothing: a process that a hostile pid file names. */
static pid_t start_bystander(void)
{
    pid_t pid = fork();
    if (pid == 0)
        for (;;)
            pause();
    return pid;
}

static bool lives(pid_t pid)
{
    return waitpid(pid, NULL, WNOHANG) == 0;
}

static void end_child(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void write_pid(const char *run, pid_t pid)
{
    char path[RUN_PATH_BYTES];
    run_dir_file(run, "memd.pid", path);
    FILE *f = fopen(path, "we");
    fprintf(f, "%d\n", (int)pid);
    fclose(f);
}

/* The number in the file is of a process that does not hold the lock: that one gets no signal. */
static void believes_the_lock_not_the_number(void **state)
{
    char run[RUN_DIR_BYTES];
    assert_int_equal(run_dir_path("x", run, NULL), 0);
    assert_int_equal(run_dir_create(run, &why), 0);
    pid_t holder = start_holder(run, false), bystander = start_bystander();
    write_pid(run, bystander);
    assert_int_equal(run_dir_holder(run, "memd"), holder);
    run_dir_signal(run, "memd", bystander, SIGKILL);
    assert_true(lives(bystander));
    assert_true(run_dir_terminate(run, "memd", 5000));
    int status;
    assert_int_equal(waitpid(holder, &status, 0), holder);
    assert_int_equal(WTERMSIG(status), SIGTERM);
    assert_true(lives(bystander));
    end_child(bystander);
}

/* Whoever may write in the directory made the files in it: none of them is believed. */
static void believes_nothing_in_a_directory_of_others(void **state)
{
    char run[RUN_DIR_BYTES], link[RUN_DIR_BYTES], path[RUN_PATH_BYTES];
    assert_int_equal(run_dir_path("x", run, NULL), 0);
    assert_int_equal(run_dir_create(run, &why), 0);
    pid_t holder = start_holder(run, false);
    snprintf(link, sizeof link, "%s/link", base);
    assert_int_equal(symlink(run, link), 0);
    assert_int_equal(run_dir_holder(link, "memd"), 0);

    assert_int_equal(chmod(run, 0777), 0);
    assert_int_equal(run_dir_check(run, &why), ERROR_IO);
    assert_int_equal(run_dir_holder(run, "memd"), 0);
    assert_int_equal(run_dir_find_holder(run, "memd"), 0);
    run_dir_signal(run, "memd", holder, SIGKILL);
    assert_true(run_dir_terminate(run, "memd", 100));
    assert_true(lives(holder));
    assert_int_equal(chmod(run, 0700), 0);

    run_dir_file(run, "memd.pid", path); /* others may write in the file */
    assert_int_equal(chmod(path, 0622), 0);
    assert_int_equal(run_dir_holder(run, "memd"), 0);
    assert_int_equal(chmod(path, 0600), 0);
    if (geteuid() == 0) {
        assert_int_equal(chown(path, 12345, 12345), 0);
        assert_int_equal(run_dir_holder(run, "memd"), 0);
        assert_int_equal(run_dir_lock(run, "memd", &why), ERROR_IO);
        assert_int_equal(chown(path, 0, 0), 0);
        assert_int_equal(chown(run, 12345, 12345), 0);
        assert_int_equal(run_dir_holder(run, "memd"), 0);
        assert_true(run_dir_terminate(run, "memd", 100));
        assert_true(lives(holder));
        assert_int_equal(chown(run, 0, 0), 0);
    }
    assert_int_equal(run_dir_holder(run, "memd"), holder);
    end_child(holder);
    assert_int_equal(unlink(path), 0); /* a FIFO must not block */
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(run_dir_holder(run, "memd"), 0);
}

static void finds_a_holder_without_its_file(void **state)
{
    char run[RUN_DIR_BYTES], path[RUN_PATH_BYTES];
    assert_int_equal(run_dir_path("x", run, NULL), 0);
    assert_int_equal(run_dir_create(run, &why), 0);
    pid_t holder = start_holder(run, false);
    run_dir_file(run, "memd.pid", path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(run_dir_holder(run, "memd"), 0);
    assert_int_equal(run_dir_find_holder(run, "memd"), holder);
    assert_int_equal(run_dir_find_holder(run, "worker"), 0);
    assert_int_equal(rmdir(run), 0); /* and without the directory */
    assert_int_equal(run_dir_find_holder(run, "memd"), holder);
    assert_true(run_dir_terminate(run, "memd", 5000));
    int status;
    assert_int_equal(waitpid(holder, &status, 0), holder);
    assert_int_equal(WTERMSIG(status), SIGTERM);
    assert_int_equal(run_dir_find_holder(run, "memd"), 0);
}

/* As a user without rights: what it may see of a holder that is not dumpable. Exits with the number
 * of the check that failed. */
static _Noreturn void look_at_a_secret_holder(const char *run)
{
    int ready[2], status;
    if ((geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) || pipe(ready) != 0)
        _exit(1);
    pid_t pid = fork();
    if (pid == 0) {
        char ok = run_dir_lock(run, "memd", NULL) == ERROR_OK && prctl(PR_SET_DUMPABLE, 0) == 0;
        ok = ok && run_dir_hint(run, "memd") == getpid(); /* opens and closes its own file */
        if (write(ready[1], &ok, 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    char ok = 0;
    if (read(ready[0], &ok, 1) != 1 || !ok)
        _exit(2);
    if (run_dir_holder(run, "memd") != pid)
        _exit(3);
    write_pid(run, getppid());
    if (run_dir_find_holder(run, "memd") != pid)
        _exit(4);
    if (!run_dir_terminate(run, "memd", 5000) || waitpid(pid, &status, 0) != pid ||
        WTERMSIG(status) != SIGTERM)
        _exit(5);
    _exit(run_dir_holder(run, "memd") == 0 ? 0 : 6);
}

static void finds_a_holder_that_is_not_dumpable(void **state)
{
    char run[RUN_DIR_BYTES];
    int status;
    if (geteuid() == 0)
        assert_int_equal(chown(base, 65534, 65534), 0);
    pid_t pid = fork();
    if (pid == 0) {
        if (geteuid() == 0 && (setegid(65534) != 0 || seteuid(65534) != 0))
            _exit(11);
        if (run_dir_path("x", run, NULL) || run_dir_create(run, NULL) || seteuid(getuid()) != 0)
            _exit(12);
        look_at_a_secret_holder(run);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void touch(const char *run, const char *name)
{
    char path[RUN_PATH_BYTES];
    run_dir_file(run, name, path);
    close(open(path, O_CREAT | O_WRONLY, 0600));
}

static void sweeps_sockets_and_keeps_logs(void **state)
{
    static const char *const gone[] = {"memd.ctl", "memd.lease", "notify.sock", "supervise.pid"};
    static const char *const kept[] = {"memd.log", "memd.log.1", "other", "db.sock",
                                       "important.pid"};
    char run[RUN_DIR_BYTES], path[RUN_PATH_BYTES];
    assert_int_equal(run_dir_path("x", run, NULL), 0);
    assert_int_equal(run_dir_create(run, &why), 0);
    for (int i = 0; i < 4; i++)
        touch(run, gone[i]);
    for (int i = 0; i < 5; i++)
        touch(run, kept[i]);
    run_dir_sweep(run);
    for (int i = 0; i < 4; i++) {
        run_dir_file(run, gone[i], path);
        assert_int_equal(access(path, F_OK), -1);
    }
    for (int i = 0; i < 5; i++) {
        run_dir_file(run, kept[i], path);
        assert_int_equal(access(path, F_OK), 0);
    }
    /* A directory with files of somebody else is not removed, and keeps all. */
    assert_int_equal(run_dir_remove(run, &why), ERROR_USAGE);
    for (int i = 0; i < 5; i++) {
        run_dir_file(run, kept[i], path);
        assert_int_equal(access(path, F_OK), 0);
        if (i > 1)
            unlink(path);
    }
    assert_int_equal(run_dir_remove(run, &why), ERROR_OK);
    assert_int_equal(access(run, F_OK), -1);
}

static void visit(void *arg, const char *name, const char *run)
{
    char *all = arg;
    strcat(strcat(strcat(strcat(all, name), "="), run + strlen(base)), ";");
}

static void lists_the_deployments(void **state)
{
    char names[512] = "", run[RUN_DIR_BYTES];
    assert_int_equal(run_dir_list(visit, names, &why), 0); /* no directory at all */
    assert_string_equal(names, "");
    assert_int_equal(run_dir_path("b", run, NULL), 0);
    assert_int_equal(run_dir_create(run, &why), 0);
    assert_int_equal(run_dir_path("a", run, NULL), 0);
    assert_int_equal(run_dir_create(run, &why), 0);
    char path[128];
    snprintf(path, sizeof path, "%s/moed/file", base);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    snprintf(path, sizeof path, "%s/moed/not a name", base);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(run_dir_list(visit, names, &why), 0);
    assert_string_equal(names, "a=/moed/a;b=/moed/b;");
    names[0] = '\0';
    setenv("MOED_RUN", run, 1);
    assert_int_equal(run_dir_list(visit, names, &why), 0);
    assert_string_equal(names, "a=/moed/a;");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(paths_by_environment),
        TEST(names_that_are_none),
        TEST(too_long_for_a_socket),
        TEST(creates_and_checks),
        TEST(another_users_directory),
        TEST(one_holder_a_pid_file),
        TEST(finds_the_place_that_serves),
        TEST(terminates_a_holder),
        TEST(sweeps_sockets_and_keeps_logs),
        TEST(lists_the_deployments),
        TEST(believes_the_lock_not_the_number),
        TEST(believes_nothing_in_a_directory_of_others),
        TEST(finds_a_holder_without_its_file),
        TEST(finds_a_holder_that_is_not_dumpable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
