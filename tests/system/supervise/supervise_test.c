/* The supervisor with fake daemons: start and stop, its directory, its clients, its own death. */
#include "deployment_fixture.h"

#include "daemon/deployment_options.h"
#include "daemon/models_started.h"
#include "daemon/supervisor_protocol.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* Those that do stop need less, also on a loaded machine. */
static const char *const quick_stop[] = {"--stop-timeout", "2", NULL};

static void starts_in_order_and_stops_in_reverse(void **state)
{
    struct fixture *f = *state;
    fixture_script(f, "memd", "held");
    fixture_script(f, "cpuexec", "slow 50");
    fixture_start(f, NULL, false);
    assert_true(fixture_until(f, "memd", "status", "loading 50%", LIMIT_MS));
    assert_string_equal(fixture_value(f, "worker", "state"), "waiting");
    assert_string_equal(fixture_value(f, "deployment", "state"), "starting");
    fixture_script(f, "memd", "serve");
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    assert_string_equal(fixture_value(f, "worker", "restarts"), "0");
    fixture_down(f);
    assert_string_equal(fixture_file(f, "events"),
                        "start memd\nready memd\nstart cpuexec\nready cpuexec\nstart worker\n"
                        "ready worker\nstop worker\nstop cpuexec\nstop memd\n");
    static const char *const removed[] = {"supervise.sock", "notify.sock", "supervise.pid",
                                          "memd.pid",       "worker.pid",  "cpuexec.pid"};
    for (size_t i = 0; i < sizeof removed / sizeof *removed; i++)
        assert_false(fixture_exists(f, removed[i]));
    assert_true(fixture_exists(f, "supervise.log"));
    assert_true(fixture_exists(f, "worker.log"));
}

static int oom_score_adj(pid_t pid)
{
    char path[64];
    int number = -9999;
    snprintf(path, sizeof path, "/proc/%d/oom_score_adj", (int)pid);
    FILE *f = fopen(path, "re");
    if (f && fscanf(f, "%d", &number) != 1)
        number = -9999;
    if (f)
        fclose(f);
    return number;
}

/* Where memory runs out the kernel kills the processes that start quickly. */
static void memd_ends_last(void **state)
{
    struct fixture *f = *state;
    static const char *const more[] = {"--http", "[::1]:80", NULL};
    fixture_start(f, more, false);
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    int own = oom_score_adj(getpid()), raised = own + 300 < 1000 ? own + 300 : 1000;
    assert_int_equal(oom_score_adj(fixture_pid(f, "memd")), own);
    assert_int_equal(oom_score_adj(fixture_pid(f, "worker")), raised);
    assert_int_equal(oom_score_adj(fixture_pid(f, "cpuexec")), raised);
    assert_int_equal(oom_score_adj(fixture_pid(f, "http")), own);
}

static void hands_each_process_its_options(void **state)
{
    struct fixture *f = *state;
    static const char *const more[] = {
        "--threads", "3",    "--ctx",    "4096",      "--parallel", "5", "--reproducible",
        "--device",  "host", "--no-pin", "--spin-us", "0",          NULL};
    fixture_start(f, more, false);
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    char expected[512];
    snprintf(expected, sizeof expected,
             "--run\n%s\n--model\n%s/model\n--device\nhost\n--threads\n3\n--workers\n1\n"
             "--ctx\n4096\n--parallel\n5\n--reproducible\n",
             f->run, f->base);
    assert_string_equal(fixture_file(f, "arguments.memd"), expected);
    snprintf(expected, sizeof expected,
             "--run\n%s\n--device\nhost\n--threads\n3\n--reproducible\n"
             "--no-pin\n--spin-us\n0\n",
             f->run);
    assert_string_equal(fixture_file(f, "arguments.cpuexec"), expected);
    snprintf(expected, sizeof expected,
             "--run\n%s\n--device\nhost\n--threads\n3\n--ctx\n4096\n--parallel\n5\n"
             "--cpuexec\n--reproducible\n--no-pin\n--spin-us\n0\n",
             f->run);
    assert_string_equal(fixture_file(f, "arguments.worker"), expected);
}

/* Each process gets all options that it takes, however many they are. Numbers are as large as they
 * may be, but for those that decide what runs. */
static void hands_on_every_option(void **state)
{
    struct fixture *f = *state;
    static char numbers[DEPLOYMENT_OPTIONS_COUNT][24];
    const char *more[2 * DEPLOYMENT_OPTIONS_COUNT + 1] = {0};
    size_t n = 0;
    for (size_t i = 0; i < DEPLOYMENT_OPTIONS_COUNT; i++) {
        const struct deployment_option *o = &deployment_options_table[i];
        bool decides = strcmp(o->flag, "--models") == 0 || strcmp(o->flag, "--mps") == 0 ||
                       strcmp(o->flag, "--workers") == 0 || strcmp(o->flag, "--cpuexec") == 0;
        if (decides)
            continue;
        snprintf(numbers[i], sizeof numbers[i], "%.0f", o->max);
        more[n++] = o->flag;
        if (strcmp(o->flag, "--log-level") == 0)
            more[n++] = "warn";
        else if (o->type != OPTION_BOOL)
            more[n++] = o->type == OPTION_STRING ? "x" : numbers[i];
    }
    fixture_start(f, more, false);
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    for (size_t i = 0; i < DEPLOYMENT_OPTIONS_COUNT; i++) {
        const struct deployment_option *o = &deployment_options_table[i];
        static const struct {
            unsigned taker;
            const char *file;
        } takers[] = {{TO_MEMD, "arguments.memd"},
                      {TO_WORKER, "arguments.worker"},
                      {TO_HTTP, "arguments.http"}};
        char line[64];
        snprintf(line, sizeof line, "\n%s\n", o->taker_flag);
        for (size_t k = 0; k < sizeof takers / sizeof *takers; k++)
            if (o->takers & takers[k].taker && !strstr(fixture_file(f, takers[k].file), line))
                fail_msg("%s lacks %s", takers[k].file, o->flag);
    }
}

/* The frontend needs no other process: it starts first, stays while memd restarts, stops first. */
static void http_stands_alone(void **state)
{
    struct fixture *f = *state;
    static const char *const more[] = {"--http",
                                       "[::1]:80",
                                       "--api-key-file",
                                       "K",
                                       "--admin-key-file",
                                       "A",
                                       "--http-config",
                                       "C",
                                       "--cors-origins",
                                       "https://a.example",
                                       "--alias",
                                       "a,b=c",
                                       "--any-model",
                                       "--insecure",
                                       NULL};
    fixture_script(f, "memd", "hang");
    fixture_start(f, more, false);
    assert_true(fixture_until(f, "http", "state", "ready", LIMIT_MS));
    assert_string_equal(fixture_value(f, "worker", "state"), "waiting");
    fixture_script(f, "memd", "serve");
    assert_string_equal(fixture_command(f, "restart memd"), "ok\n");
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    char expected[512];
    snprintf(expected, sizeof expected,
             "--run\n%s\n--name\ntest\n--listen\n[::1]:80\n--config\nC\n--api-key-file\nK\n"
             "--admin-key-file\nA\n--cors-origins\nhttps://a.example\n--alias\na,b=c\n"
             "--insecure\n--any-model\n",
             f->run);
    assert_string_equal(fixture_file(f, "arguments.http"), expected);
    pid_t http = fixture_pid(f, "http");
    kill(fixture_pid(f, "memd"), SIGKILL);
    assert_true(fixture_until(f, "memd", "restarts", "2", LIMIT_MS));
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    assert_int_equal(fixture_pid(f, "http"), http);
    pid_t worker = fixture_pid(f, "worker");
    fixture_script(f, "http", "exit 3");
    kill(http, SIGKILL);
    assert_true(fixture_until(f, "http", "state", "failed", LIMIT_MS));
    assert_string_equal(fixture_value(f, "deployment", "state"), "degraded");
    assert_contains(fixture_value(f, "deployment", "reason"), "http does not run");
    assert_int_equal(fixture_pid(f, "worker"), worker);
    fixture_script(f, "http", "serve");
    assert_string_equal(fixture_command(f, "restart http"), "ok\n");
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    fixture_down(f);
    const char *events = fixture_file(f, "events");
    assert_true(strstr(events, "stop http\nstop worker\n"));
}

static void without_it_there_is_no_http(void **state)
{
    struct fixture *f = *state;
    fixture_start(f, NULL, false);
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    assert_string_equal(fixture_value(f, "http", "state"), "(none)");
    assert_contains(fixture_command(f, "restart http"), "moed up --http");
}

static void does_without_cpuexec_on_the_host(void **state)
{
    struct fixture *f = *state;
    static const char *const more[] = {"--no-cpuexec", "--device", "host", NULL};
    fixture_start(f, more, false);
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    assert_null(strstr(fixture_command(f, "status"), "cpuexec"));
    assert_contains(fixture_command(f, "restart cpuexec"), "error there is no cpuexec");
    assert_null(strstr(fixture_file(f, "arguments.worker"), "--cpuexec"));
    kill(fixture_pid(f, "memd"), SIGKILL);
    assert_true(fixture_until(f, "memd", "restarts", "1", LIMIT_MS));
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    fixture_down(f);
    assert_int_equal(fixture_count_events(f, "start cpuexec"), 0);
    assert_int_equal(fixture_count_events(f, "start worker"), 2);
}

static void always_has_cpuexec_with_a_device(void **state)
{
    struct fixture *f = *state;
    static const char *const more[] = {"--no-cpuexec", "--device", "emu:vram=1M,link=1G", NULL};
    fixture_start(f, more, false);
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    assert_string_equal(fixture_value(f, "cpuexec", "state"), "ready");
}

static void kills_one_that_does_not_stop(void **state)
{
    struct fixture *f = *state;
    fixture_script(f, "cpuexec", "stubborn");
    fixture_start(f, quick_stop, false);
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    pid_t cpuexec = fixture_pid(f, "cpuexec");
    kill(f->supervisor, SIGTERM);
    assert_int_equal(fixture_wait_supervisor(f, LIMIT_MS), 0);
    assert_true(fixture_gone(cpuexec, 0));
    assert_contains(fixture_file(f, "supervise.log"), "cpuexec does not stop: killing it");
    assert_contains(fixture_file(f, "events"), "stop worker\nstop memd\n");
}

/* A deployment of which only the supervisor's lock is there: this process holds it. */
static void hold_deployment(const struct fixture *f, const char *name)
{
    char run[256];
    struct error e;
    assert_int_equal(setenv("XDG_RUNTIME_DIR", f->base, 1), 0);
    snprintf(run, sizeof run, "%s/moed/%s", f->base, name);
    assert_int_equal(run_dir_create(run, &e), ERROR_OK);
    assert_int_equal(run_dir_lock(run, "supervise", &e), ERROR_OK);
}

static void note_started(const struct fixture *f, const char *name)
{
    char path[RUN_PATH_BYTES];
    models_started_file(f->run, path);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fprintf(file, "%s\n", name);
    fclose(file);
}

/* moed-models stops deployments, each of which may take the timeout for its own processes. What it
 * has not stopped stands in the log. */
static void moed_models_may_take_longer(void **state)
{
    static const char *const more[] = {"--stop-timeout", "1", "--http", "[::1]:80",
                                       "--models",       "/", NULL};
    struct fixture *f = *state;
    fixture_script(f, "models", "late 2000");
    hold_deployment(f, "left");
    fixture_start(f, more, false);
    assert_true(fixture_until(f, "models", "state", "ready", LIMIT_MS));
    note_started(f, "left");
    /* models has three times as long as each of the other four */
    assert_string_equal(fixture_command(f, "down"), "stopping\tmost_ms=7000\nok\n");
    assert_int_equal(fixture_wait_supervisor(f, LIMIT_MS), 0);
    assert_contains(fixture_file(f, "events"), "stop models\n");
    assert_contains(fixture_file(f, "supervise.log"), "deployment left, which moed-models");
    unsetenv("XDG_RUNTIME_DIR");
}

static void stops_while_starting(void **state)
{
    struct fixture *f = *state;
    fixture_script(f, "memd", "hang");
    fixture_start(f, NULL, false);
    assert_true(fixture_until(f, "memd", "state", "starting", LIMIT_MS));
    pid_t memd = fixture_pid(f, "memd");
    kill(f->supervisor, SIGINT);
    assert_int_equal(fixture_wait_supervisor(f, LIMIT_MS), 0);
    assert_true(fixture_gone(memd, 0));
    assert_int_equal(fixture_count_events(f, "start worker"), 0);
}

static void its_death_takes_the_processes_along(void **state)
{
    struct fixture *f = *state;
    fixture_start(f, NULL, false);
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    pid_t pids[] = {fixture_pid(f, "memd"), fixture_pid(f, "cpuexec"), fixture_pid(f, "worker")};
    kill(f->supervisor, SIGKILL);
    assert_int_equal(fixture_wait_supervisor(f, LIMIT_MS), -SIGKILL);
    for (int i = 0; i < 3; i++)
        assert_true(fixture_gone(pids[i], LIMIT_MS));
    fixture_start(f, NULL, false);
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
}

static void clears_what_an_earlier_one_left(void **state)
{
    struct fixture *f = *state;
    fixture_script(f, "worker", "stubborn");
    fixture_start(f, quick_stop, false);
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    pid_t worker = fixture_pid(f, "worker");
    kill(f->supervisor, SIGKILL);
    assert_int_equal(fixture_wait_supervisor(f, LIMIT_MS), -SIGKILL);
    assert_false(fixture_gone(worker, 100)); /* it ignores SIGTERM */
    fixture_script(f, "worker", "serve");
    fixture_start(f, quick_stop, false);
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    assert_true(fixture_gone(worker, 0));
    assert_contains(fixture_file(f, "supervise.log"), "worker of an earlier supervisor");
}

static void runs_once_a_directory(void **state)
{
    struct fixture *f = *state;
    fixture_start(f, NULL, false);
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    struct fixture second = *f;
    int stderr_copy = dup(STDERR_FILENO), null = open("/dev/null", O_WRONLY);
    dup2(null, STDERR_FILENO); /* its complaint is expected */
    fixture_start(&second, NULL, false);
    dup2(stderr_copy, STDERR_FILENO);
    close(stderr_copy);
    close(null);
    assert_int_equal(fixture_wait_supervisor(&second, LIMIT_MS), 4);
    assert_string_equal(fixture_value(f, "deployment", "state"), "ready");
}

static void works_without_standard_streams(void **state)
{
    struct fixture *f = *state;
    fixture_start(f, NULL, true);
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    assert_contains(fixture_file(f, "supervise.log"), "worker is ready");
    fixture_down(f);
}

static void believes_only_the_process_itself(void **state)
{
    struct fixture *f = *state;
    fixture_script(f, "memd", "forge");
    fixture_start(f, NULL, false);
    assert_true(fixture_until(f, "memd", "state", "starting", LIMIT_MS));
    poll(NULL, 0, 300);
    assert_string_equal(fixture_value(f, "memd", "state"), "starting");
    assert_int_equal(fixture_count_events(f, "start cpuexec"), 0);
}

static void outlives_bad_clients(void **state)
{
    struct fixture *f = *state;
    fixture_start(f, NULL, false);
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    struct stat s;
    char path[160];
    snprintf(path, sizeof path, "%s/supervise.sock", f->run);
    assert_int_equal(stat(path, &s), 0);
    assert_int_equal(s.st_mode & 0777, 0600);

    int idle[40];
    for (int i = 0; i < 40;
         i++) { /* more clients than places, half of them in the middle of a line */
        idle[i] = fixture_connect(f);
        assert_true(idle[i] >= 0);
        if (i % 2)
            assert_int_equal(send(idle[i], "sta", 3, MSG_NOSIGNAL), 3);
    }
    assert_string_equal(fixture_value(f, "worker", "state"), "ready");

    int greedy = fixture_connect(f); /* sends commands and never reads */
    fcntl(greedy, F_SETFL, O_NONBLOCK);
    for (int i = 0; i < 100000; i++)
        if (send(greedy, "status\n", 7, MSG_NOSIGNAL) < 0)
            break;
    assert_string_equal(fixture_value(f, "worker", "state"), "ready");

    int endless = fixture_connect(f); /* a line without an end */
    static char block[SUPERVISE_LINE_BYTES];
    memset(block, 'a', sizeof block);
    assert_int_equal(send(endless, block, sizeof block, MSG_NOSIGNAL), sizeof block);
    ssize_t n = recv(endless, block, sizeof block - 1, 0);
    assert_true(n > 0);
    block[n] = '\0';
    assert_string_equal(block, "error the line is too long\n");
    assert_string_equal(fixture_value(f, "worker", "state"), "ready");
    for (int i = 0; i < 40; i++)
        close(idle[i]);
    close(greedy);
    close(endless);
    assert_string_equal(fixture_value(f, "deployment", "state"), "ready");
}

static void remove_file(const struct fixture *f, const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", f->run, name);
    assert_int_equal(unlink(path), 0);
}

static bool file_comes_back(const struct fixture *f, const char *name)
{
    for (int i = 0; i < LIMIT_MS / 10 && !fixture_exists(f, name); i++)
        poll(NULL, 0, 10);
    return fixture_exists(f, name);
}

/* Its own files, and then a daemon's socket: before, `moed down` found no process. */
static void makes_removed_files_again(void **state)
{
    struct fixture *f = *state;
    static const char *const own[] = {"supervise.pid", "supervise.sock", "notify.sock"};
    fixture_start(f, NULL, false);
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        remove_file(f, own[i]);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        assert_true(file_comes_back(f, own[i]));
    assert_string_equal(fixture_value(f, "deployment", "state"), "ready");
    assert_string_equal(fixture_value(f, "worker", "restarts"), "0");

    remove_file(f, "worker.ctl");
    assert_true(fixture_until(f, "worker", "restarts", "1", LIMIT_MS));
    assert_true(
        fixture_until(f, "deployment", "state", "ready", LIMIT_MS)); /* by the new notify.sock */
    assert_true(fixture_exists(f, "worker.ctl"));
    remove_file(f, "memd.ctl");
    assert_true(fixture_until(f, "memd", "restarts", "1", LIMIT_MS));
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    fixture_down(f);
}

/* Without its directory no command reaches it: it ends, with all processes, and leaves a directory
 * that is there instead alone. */
static void ends_without_its_directory(void **state)
{
    struct fixture *f = *state;
    for (int replaced = 0; replaced < 2; replaced++) {
        char moved[128];
        fixture_start(f, NULL, false);
        assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
        pid_t memd = fixture_pid(f, "memd"), worker = fixture_pid(f, "worker");
        snprintf(moved, sizeof moved, "%s-moved-%d", f->run, replaced);
        assert_int_equal(rename(f->run, moved), 0);
        if (replaced) {
            char path[128];
            assert_int_equal(mkdir(f->run, 0700), 0);
            snprintf(path, sizeof path, "%s/memd.ctl", f->run);
            close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
        }
        assert_int_equal(fixture_wait_supervisor(f, LIMIT_MS), 0);
        assert_true(fixture_gone(memd, LIMIT_MS));
        assert_true(fixture_gone(worker, LIMIT_MS));
        assert_int_equal(fixture_exists(f, "memd.ctl"), replaced);
        if (!replaced)
            assert_int_equal(rename(moved, f->run), 0);
    }
}

/* Nothing happens in the directory itself when its path leads elsewhere, as after `umount -l`. */
static void ends_where_its_directory_is_out_of_reach(void **state)
{
    struct fixture *f = *state;
    char moved[80];
    fixture_start(f, NULL, false);
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    pid_t memd = fixture_pid(f, "memd");
    snprintf(moved, sizeof moved, "%s-moved", f->base);
    assert_int_equal(rename(f->base, moved), 0);
    int status = fixture_wait_supervisor(f, LIMIT_MS);
    assert_int_equal(rename(moved, f->base), 0);
    assert_int_equal(status, 0);
    assert_true(fixture_gone(memd, LIMIT_MS));
}

int main(int argc, char **argv)
{
    if (!fixture_programs(argc, argv))
        return 2;
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(starts_in_order_and_stops_in_reverse),
        FIXTURE_TEST(memd_ends_last),
        FIXTURE_TEST(hands_each_process_its_options),
        FIXTURE_TEST(hands_on_every_option),
        FIXTURE_TEST(http_stands_alone),
        FIXTURE_TEST(without_it_there_is_no_http),
        FIXTURE_TEST(does_without_cpuexec_on_the_host),
        FIXTURE_TEST(always_has_cpuexec_with_a_device),
        FIXTURE_TEST(kills_one_that_does_not_stop),
        FIXTURE_TEST(moed_models_may_take_longer),
        FIXTURE_TEST(stops_while_starting),
        FIXTURE_TEST(its_death_takes_the_processes_along),
        FIXTURE_TEST(clears_what_an_earlier_one_left),
        FIXTURE_TEST(runs_once_a_directory),
        FIXTURE_TEST(works_without_standard_streams),
        FIXTURE_TEST(believes_only_the_process_itself),
        FIXTURE_TEST(outlives_bad_clients),
        FIXTURE_TEST(makes_removed_files_again),
        FIXTURE_TEST(ends_without_its_directory),
        FIXTURE_TEST(ends_where_its_directory_is_out_of_reach),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
