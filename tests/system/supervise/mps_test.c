/* The supervisor and the MPS daemon of NVIDIA, for which a script stands in. */
#include "deployment_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A stand-in for NVIDIA's program, in a folder that is first in PATH: it writes how it was called,
 * with which pipes and with what on standard input, into BASE/mps-calls, and exits with what
 * BASE/mps-exit says. As a daemon it leaves a file among the pipes, and as the real one reads
 * nothing. */
static void make_control(const struct fixture *f, const char *exit_status)
{
    static const char script[] =
        "#!/bin/sh\n"
        "base=%s\n"
        "if [ \"$1\" = -d ]; then input=; touch \"$CUDA_MPS_PIPE_DIRECTORY/control\"; else "
        "input=$(cat); fi\n"
        "echo \"$* $CUDA_MPS_PIPE_DIRECTORY $CUDA_MPS_LOG_DIRECTORY $input\" >>$base/mps-calls\n"
        "exit %s\n";
    char path[128];
    snprintf(path, sizeof path, "%s/path", f->base);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/path/nvidia-cuda-mps-control", f->base);
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fprintf(out, script, f->base, exit_status);
    fchmod(fileno(out), 0700);
    assert_int_equal(fclose(out), 0);
}

/* PATH of the supervisors to come; our own again with "". */
static void use_path(const struct fixture *f, const char *folder)
{
    static char own[4096];
    char path[4300];
    if (!own[0])
        snprintf(own, sizeof own, "%s", getenv("PATH"));
    snprintf(path, sizeof path, "%s/%s:%s", f->base, folder, own);
    setenv("PATH", folder[0] ? path : own, 1);
}

static const char *control_calls(const struct fixture *f)
{
    return fixture_file(f, "../mps-calls");
}

/* The expected calls of the program, one for each word: "-d" and "quit". */
static void expect_calls(const struct fixture *f, const char *const *calls)
{
    char expected[2048] = "";
    for (; *calls; calls++) {
        bool daemon = strcmp(*calls, "-d") == 0;
        snprintf(expected + strlen(expected), sizeof expected - strlen(expected),
                 "%s %s/mps %s/mps-log %s\n", daemon ? "-d" : "", f->run, f->run,
                 daemon ? "" : *calls);
    }
    assert_string_equal(control_calls(f), expected);
}

static const char *const with_mps[] = {"--mps", "--device", "cuda:0,vram=1G", NULL};

static void starts_and_ends_mps(void **state)
{
    struct fixture *f = *state;
    char line[256];
    make_control(f, "0");
    use_path(f, "path");
    fixture_start(f, with_mps, false);
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    expect_calls(f, (const char *const[]){"-d", NULL});
    assert_true(fixture_exists(f, "mps/control") && fixture_exists(f, "mps-log"));
    snprintf(line, sizeof line, "CUDA_MPS_PIPE_DIRECTORY=%s/mps\n", f->run);
    assert_contains(fixture_file(f, "environment.memd"), line);
    assert_contains(fixture_file(f, "environment.worker"), line);
    snprintf(line, sizeof line, "CUDA_MPS_LOG_DIRECTORY=%s/mps-log\n", f->run);
    assert_contains(fixture_file(f, "environment.memd"), line);
    assert_contains(fixture_file(f, "environment.worker"), line);
    fixture_down(f);
    expect_calls(f, (const char *const[]){"-d", "quit", NULL});
    assert_false(fixture_exists(f, "mps"));
    /* not without the option */
    fixture_start(f, NULL, false);
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    assert_string_equal(fixture_file(f, "environment.worker"), "");
    fixture_down(f);
    expect_calls(f, (const char *const[]){"-d", "quit", NULL});
    /* not on another device */
    static const char *const no_use[] = {"--mps", "--device", "emu:vram=1G,link=1G", NULL};
    fixture_start(f, no_use, false);
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    assert_contains(fixture_file(f, "supervise.log"), "no MPS: the device is not a CUDA one");
    expect_calls(f, (const char *const[]){"-d", "quit", NULL});
    use_path(f, "");
}

/* If a worker fails to start, the supervisor restarts only the worker. With MPS it restarts memd
 * too, because memd may hold the device. */
static void restarts_memd_that_holds_mps(void **state)
{
    struct fixture *f = *state;
    for (int with = 0; with < 2; with++) {
        make_control(f, "0");
        use_path(f, "path");
        fixture_script(f, "worker", "exit 1");
        fixture_start(f, with ? with_mps : NULL, false);
        assert_true(fixture_until(f, "worker", "state", "failed", LIMIT_MS));
        bool again = strstr(fixture_file(f, "supervise.log"), "restarting memd too") != NULL;
        assert_int_equal(again, with);
        fixture_down(f);
    }
    fixture_script(f, "worker", "serve");
    use_path(f, "");
}

static void ends_mps_that_an_earlier_one_left(void **state)
{
    struct fixture *f = *state;
    make_control(f, "0");
    use_path(f, "path");
    fixture_start(f, with_mps, false);
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    pid_t memd = fixture_pid(f, "memd");
    kill(f->supervisor, SIGKILL);
    assert_int_equal(fixture_wait_supervisor(f, LIMIT_MS), -SIGKILL);
    assert_true(fixture_gone(memd, LIMIT_MS));
    assert_true(fixture_exists(f, "mps/control"));
    fixture_start(f, with_mps, false);
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    assert_contains(fixture_file(f, "supervise.log"),
                    "stopping the MPS daemon of an earlier supervisor");
    expect_calls(f, (const char *const[]){"-d", "quit", "-d", NULL});
    kill(f->supervisor, SIGKILL);
    assert_int_equal(fixture_wait_supervisor(f, LIMIT_MS), -SIGKILL);
    fixture_start(f, NULL, false); /* without MPS too */
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    expect_calls(f, (const char *const[]){"-d", "quit", "-d", "quit", NULL});
    assert_false(fixture_exists(f, "mps"));
    use_path(f, "");
}

static void goes_on_without_mps(void **state)
{
    struct fixture *f = *state;
    static const char *const messages[] = {
        "no MPS: nvidia-cuda-mps-control -d does not start (exit status 7)",
        "no MPS: nvidia-cuda-mps-control is not installed"};
    for (int installed = 1; installed >= 0; installed--) {
        make_control(f, installed ? "7" : "127");
        use_path(f, "path");
        fixture_start(f, with_mps, false);
        assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
        assert_contains(fixture_file(f, "supervise.log"), messages[!installed]);
        assert_false(fixture_exists(f, "mps"));
        assert_string_equal(fixture_file(f, "environment.worker"), "");
        fixture_down(f);
        use_path(f, "");
    }
    expect_calls(f, (const char *const[]){"-d", "-d", NULL}); /* no daemon to stop */
}

int main(int argc, char **argv)
{
    if (!fixture_programs(argc, argv))
        return 2;
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(starts_and_ends_mps),
        FIXTURE_TEST(restarts_memd_that_holds_mps),
        FIXTURE_TEST(ends_mps_that_an_earlier_one_left),
        FIXTURE_TEST(goes_on_without_mps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
