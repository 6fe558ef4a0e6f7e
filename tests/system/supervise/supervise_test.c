/* The supervisor with fake daemons: order, restarts, giving up, stopping, and its own death. */
#include "deployment_fixture.h"

#include "daemon/supervisor_protocol.h"
#include "base/clock.h"

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

static const char *const quick_stop[] = {"--stop-timeout", "0.3", NULL};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    fixture_make(f);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture_remove(*state);
    free(*state);
    return 0;
}

static void assert_contains(const char *text, const char *part)
{
    if (!text || !strstr(text, part))
        fail_msg("\"%s\" is not in \"%s\"", part, text ? text : "");
}

static void starts_in_order_and_stops_in_reverse(void **state)
{
    struct fixture *f = *state;
    fixture_script(f, "memd", "slow 150");
    fixture_script(f, "cpuexec", "slow 50");
    fixture_start(f, NULL, false);
    assert_true(fixture_until(f, "memd", "status", "loading 50%", LIMIT_MS));
    assert_string_equal(fixture_value(f, "worker", "state"), "waiting");
    assert_string_equal(fixture_value(f, "deployment", "state"), "starting");
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    assert_string_equal(fixture_value(f, "worker", "restarts"), "0");
    assert_string_equal(fixture_command(f, "down"), "ok\n");
    assert_int_equal(fixture_wait_supervisor(f, LIMIT_MS), 0);
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

static void hands_each_process_its_options(void **state)
{
    struct fixture *f = *state;
    static const char *const more[] = {"--threads",  "3", "--ctx",          "4096",
                                       "--parallel", "5", "--reproducible", "--device",
                                       "host",       NULL};
    fixture_start(f, more, false);
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    char expected[512];
    snprintf(expected, sizeof expected,
             "--run\n%s\n--threads\n3\n--model\n%s/model\n--device\nhost\n--ctx\n4096\n"
             "--parallel\n5\n--reproducible\n",
             f->run, f->base);
    assert_string_equal(fixture_file(f, "arguments.memd"), expected);
    snprintf(expected, sizeof expected, "--run\n%s\n--threads\n3\n--device\nhost\n--reproducible\n",
             f->run);
    assert_string_equal(fixture_file(f, "arguments.cpuexec"), expected);
    snprintf(expected, sizeof expected,
             "--run\n%s\n--threads\n3\n--device\nhost\n--ctx\n4096\n--parallel\n5\n"
             "--reproducible\n--cpuexec\n",
             f->run);
    assert_string_equal(fixture_file(f, "arguments.worker"), expected);
}

/* The frontend needs no other process: it starts first, stays while memd restarts, stops first. */
static void http_stands_alone(void **state)
{
    struct fixture *f = *state;
    static const char *const more[] = {
        "--http", "[::1]:80", "--api-key-file", "K", "--admin-key-file", "A", "--http-config",
        "C",      NULL};
    fixture_script(f, "memd", "hang");
    fixture_start(f, more, false);
    assert_true(fixture_until(f, "http", "state", "ready", LIMIT_MS));
    assert_string_equal(fixture_value(f, "worker", "state"), "waiting");
    fixture_script(f, "memd", "serve");
    assert_string_equal(fixture_command(f, "restart memd"), "ok\n");
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    char expected[512];
    snprintf(expected, sizeof expected,
             "--run\n%s\n--name\ntest\n--config\nC\n--listen\n[::1]:80\n--api-key-file\nK\n"
             "--admin-key-file\nA\n",
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
    assert_string_equal(fixture_command(f, "down"), "ok\n");
    assert_int_equal(fixture_wait_supervisor(f, LIMIT_MS), 0);
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

static void restarts_the_worker_alone(void **state)
{
    struct fixture *f = *state;
    fixture_start(f, NULL, false);
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    pid_t memd = fixture_pid(f, "memd"), worker = fixture_pid(f, "worker");
    uint64_t before = clock_ns();
    kill(worker, SIGKILL);
    assert_true(fixture_until(f, "worker", "restarts", "1", LIMIT_MS));
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    assert_true(clock_ns() - before < 1000000000u);
    assert_int_not_equal(fixture_pid(f, "worker"), worker);
    assert_int_equal(fixture_pid(f, "memd"), memd);
    /* and not with its last line of the log, which is not the cause */
    assert_string_equal(fixture_value(f, "worker", "reason"), "killed by signal 9 (Killed)");
    /* The worker had been ready for less than ten seconds. */
    assert_contains(fixture_file(f, "supervise.log"), "starting it again in 100 ms");
}

static void restarts_a_stable_one_at_once(void **state)
{
    struct fixture *f = *state;
    static const char *const more[] = {"--stable-after", "0.2", NULL};
    fixture_start(f, more, false);
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    poll(NULL, 0, 300);
    kill(fixture_pid(f, "cpuexec"), SIGKILL);
    assert_true(fixture_until(f, "cpuexec", "restarts", "1", LIMIT_MS));
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    kill(fixture_pid(f, "cpuexec"), SIGKILL);
    assert_true(fixture_until(f, "cpuexec", "restarts", "2", LIMIT_MS));
    const char *log = fixture_file(f, "supervise.log");
    assert_contains(log, "starting it again in 0 ms");
    assert_contains(log, "starting it again in 100 ms");
}

static void restarts_a_silent_one(void **state)
{
    struct fixture *f = *state;
    static const char *const more[] = {"--watchdog", "2", NULL};
    fixture_start(f, more, false);
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    pid_t memd = fixture_pid(f, "memd"), cpuexec = fixture_pid(f, "cpuexec");
    kill(fixture_pid(f, "worker"), SIGSTOP);
    assert_true(fixture_until(f, "worker", "restarts", "1", LIMIT_MS));
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    assert_string_equal(fixture_value(f, "worker", "reason"), "killed by the watchdog: silent");
    assert_int_equal(fixture_pid(f, "memd"), memd);
    assert_int_equal(fixture_pid(f, "cpuexec"), cpuexec);
}

/* As after a suspend of the machine: time has passed for the supervisor and its processes. */
static void a_pause_of_all_is_no_silence(void **state)
{
    struct fixture *f = *state;
    static const char *const more[] = {"--watchdog", "2", NULL};
    static const char *const names[] = {"memd", "cpuexec", "worker"};
    pid_t pids[3];
    fixture_start(f, more, false);
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    kill(f->supervisor, SIGSTOP);
    for (int i = 0; i < 3; i++) {
        char file[64];
        snprintf(file, sizeof file, "%s.pid", names[i]);
        pids[i] = atoi(fixture_file(f, file));
        kill(pids[i], SIGSTOP);
    }
    poll(NULL, 0, 2500);
    kill(f->supervisor, SIGCONT);
    /* It has seen the pause once it answers; only then the others go on. */
    assert_string_equal(fixture_value(f, "deployment", "state"), "ready");
    for (int i = 0; i < 3; i++)
        kill(pids[i], SIGCONT);
    for (int i = 0; i < 3; i++)
        assert_string_equal(fixture_value(f, names[i], "restarts"), "0");
}

/* A supervisor that is stopped loses notifications once its queue is full. */
static void a_beat_says_again_that_a_process_is_ready(void **state)
{
    struct fixture *f = *state;
    fixture_script(f, "memd", "unheard");
    fixture_start(f, NULL, false);
    assert_true(fixture_until(f, "deployment", "state", "ready", 10000));
}

static void gives_up_one_that_stays_silent(void **state)
{
    struct fixture *f = *state;
    static const char *const more[] = {"--watchdog", "1",
                                       NULL}; /* longer than a loaded machine pauses */
    fixture_script(f, "cpuexec", "silent");
    fixture_start(f, more, false);
    assert_true(fixture_until(f, "cpuexec", "state", "failed", LIMIT_MS));
    assert_string_equal(fixture_value(f, "cpuexec", "reason"), "killed by the watchdog: silent");
    assert_int_equal(fixture_count_events(f, "start cpuexec"), 5);
}

static void gives_up_after_five_failures(void **state)
{
    struct fixture *f = *state;
    fixture_script(f, "worker", "exit 1");
    fixture_start(f, NULL, false);
    assert_true(fixture_until(f, "worker", "state", "failed", 10000));
    assert_string_equal(fixture_value(f, "worker", "reason"),
                        "exit status 1 before it was ready: last words of worker");
    assert_int_equal(fixture_count_events(f, "start worker"), 5);
    assert_string_equal(fixture_value(f, "deployment", "state"), "failed");
    assert_contains(fixture_value(f, "deployment", "reason"), "worker has failed: exit status 1");
    assert_string_equal(fixture_value(f, "memd", "state"), "ready");
    const char *log = fixture_file(f, "supervise.log");
    assert_contains(log, "in 100 ms");
    assert_contains(log, "in 200 ms");
    assert_contains(log, "in 800 ms");

    fixture_script(f, "worker", "serve");
    assert_string_equal(fixture_command(f, "restart worker"), "ok\n");
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
}

static void gives_up_at_once_where_restarting_is_useless(void **state)
{
    struct fixture *f = *state;
    fixture_script(f, "cpuexec", "exit 2");
    fixture_script(f, "worker", "exit 3");
    fixture_start(f, NULL, false);
    assert_true(fixture_until(f, "worker", "state", "failed", LIMIT_MS));
    assert_true(fixture_until(f, "cpuexec", "state", "failed", LIMIT_MS));
    assert_int_equal(fixture_count_events(f, "start cpuexec"), 1);
    assert_int_equal(fixture_count_events(f, "start worker"), 1);
}

static void is_degraded_without_cpuexec(void **state)
{
    struct fixture *f = *state;
    fixture_script(f, "cpuexec", "exit 3");
    fixture_start(f, NULL, false);
    assert_true(fixture_until(f, "deployment", "state", "degraded", LIMIT_MS));
    assert_contains(fixture_value(f, "deployment", "reason"), "last words of cpuexec");
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
    assert_string_equal(fixture_command(f, "down"), "ok\n");
    assert_int_equal(fixture_wait_supervisor(f, LIMIT_MS), 0);
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

static void a_failure_before_ready_is_tried_again(void **state)
{
    struct fixture *f = *state;
    fixture_script(f, "memd", "once 1");
    fixture_start(f, NULL, false);
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    assert_int_equal(fixture_count_events(f, "start memd"), 2);
    assert_int_equal(fixture_count_events(f, "start worker"), 1);
}

static void memd_failing_stops_the_others(void **state)
{
    struct fixture *f = *state;
    fixture_start(f, NULL, false);
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    pid_t worker = fixture_pid(f, "worker");
    fixture_script(f, "memd", "exit 3");
    kill(fixture_pid(f, "memd"), SIGKILL);
    assert_true(fixture_until(f, "memd", "state", "failed", LIMIT_MS));
    assert_true(fixture_until(f, "worker", "state", "stopped", LIMIT_MS));
    assert_true(fixture_until(f, "cpuexec", "state", "stopped", LIMIT_MS));
    assert_true(fixture_gone(worker, 0));
    assert_string_equal(fixture_value(f, "deployment", "state"), "failed");
    assert_contains(fixture_value(f, "deployment", "reason"), "memd has failed: exit status 3");
    assert_contains(fixture_command(f, "restart worker"), "error worker needs memd");
    fixture_script(f, "memd", "serve");
    assert_string_equal(fixture_command(f, "restart memd"), "ok\n");
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
}

static void memd_killed_restarts_all_in_order(void **state)
{
    struct fixture *f = *state;
    fixture_start(f, NULL, false);
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    char path[160];
    snprintf(path, sizeof path, "%s/events", f->run);
    assert_int_equal(truncate(path, 0), 0);
    kill(fixture_pid(f, "memd"), SIGKILL);
    assert_true(fixture_until(f, "memd", "restarts", "1", LIMIT_MS));
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    const char *events = fixture_file(f, "events");
    assert_contains(events, "lost-memd cpuexec\n");
    assert_contains(events, "lost-memd worker\n");
    /* Both had stopped before memd was restarted. */
    assert_contains(events, "\nstart memd\nready memd\nstart cpuexec\nready cpuexec\n"
                            "start worker\nready worker\n");
    assert_int_equal(fixture_count_events(f, "start worker"), 1);
}

static void one_that_ignores_memds_death_is_stopped(void **state)
{
    struct fixture *f = *state;
    fixture_script(f, "worker", "stubborn");
    fixture_start(f, quick_stop, false);
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    pid_t worker = fixture_pid(f, "worker");
    kill(fixture_pid(f, "memd"), SIGKILL);
    assert_true(fixture_until(f, "memd", "restarts", "1", LIMIT_MS));
    assert_true(fixture_gone(worker, 0));
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
}

static void restarts_on_command(void **state)
{
    struct fixture *f = *state;
    fixture_start(f, NULL, false);
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    char path[160];
    snprintf(path, sizeof path, "%s/events", f->run);
    assert_int_equal(truncate(path, 0), 0);
    assert_string_equal(fixture_command(f, "restart memd"), "ok\n");
    assert_true(fixture_until(f, "memd", "restarts", "1", LIMIT_MS));
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    assert_string_equal(fixture_file(f, "events"),
                        "stop worker\nstop cpuexec\nstop memd\nstart memd\nready memd\n"
                        "start cpuexec\nready cpuexec\nstart worker\nready worker\n");
    assert_string_equal(fixture_command(f, "restart cpuexec"), "ok\n");
    assert_true(fixture_until(f, "cpuexec", "restarts", "2", LIMIT_MS));
    assert_string_equal(fixture_value(f, "worker", "restarts"), "1");
    assert_contains(fixture_command(f, "restart nobody"), "error there is no process nobody");
    assert_contains(fixture_command(f, "dance"), "error unknown command");
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
    assert_string_equal(fixture_command(f, "down"), "ok\n");
    assert_int_equal(fixture_wait_supervisor(f, LIMIT_MS), 0);
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

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

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
    assert_string_equal(fixture_command(f, "down"), "ok\n");
    assert_int_equal(fixture_wait_supervisor(f, LIMIT_MS), 0);
    expect_calls(f, (const char *const[]){"-d", "quit", NULL});
    assert_false(fixture_exists(f, "mps"));
    /* not without the option */
    fixture_start(f, NULL, false);
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    assert_string_equal(fixture_file(f, "environment.worker"), "");
    assert_string_equal(fixture_command(f, "down"), "ok\n");
    assert_int_equal(fixture_wait_supervisor(f, LIMIT_MS), 0);
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
        assert_string_equal(fixture_command(f, "down"), "ok\n");
        assert_int_equal(fixture_wait_supervisor(f, LIMIT_MS), 0);
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
        assert_string_equal(fixture_command(f, "down"), "ok\n");
        assert_int_equal(fixture_wait_supervisor(f, LIMIT_MS), 0);
        use_path(f, "");
    }
    expect_calls(f, (const char *const[]){"-d", "-d", NULL}); /* no daemon to stop */
}

static void remove_file(const struct fixture *f, const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", f->run, name);
    assert_int_equal(unlink(path), 0);
}

static bool file_comes_back(const struct fixture *f, const char *name)
{
    for (int i = 0; i < 500 && !fixture_exists(f, name); i++)
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
    assert_string_equal(fixture_command(f, "down"), "ok\n");
    assert_int_equal(fixture_wait_supervisor(f, LIMIT_MS), 0);
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

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: supervise_test MOED_SUPERVISE FAKE_DAEMON\n");
        return 2;
    }
    fixture_supervise = argv[1];
    fixture_fake_daemon = argv[2];
    const struct CMUnitTest tests[] = {
        TEST(starts_in_order_and_stops_in_reverse),
        TEST(hands_each_process_its_options),
        TEST(http_stands_alone),
        TEST(without_it_there_is_no_http),
        TEST(restarts_the_worker_alone),
        TEST(restarts_a_stable_one_at_once),
        TEST(restarts_a_silent_one),
        TEST(a_pause_of_all_is_no_silence),
        TEST(a_beat_says_again_that_a_process_is_ready),
        TEST(gives_up_one_that_stays_silent),
        TEST(gives_up_after_five_failures),
        TEST(gives_up_at_once_where_restarting_is_useless),
        TEST(is_degraded_without_cpuexec),
        TEST(does_without_cpuexec_on_the_host),
        TEST(always_has_cpuexec_with_a_device),
        TEST(a_failure_before_ready_is_tried_again),
        TEST(memd_failing_stops_the_others),
        TEST(memd_killed_restarts_all_in_order),
        TEST(one_that_ignores_memds_death_is_stopped),
        TEST(restarts_on_command),
        TEST(kills_one_that_does_not_stop),
        TEST(stops_while_starting),
        TEST(its_death_takes_the_processes_along),
        TEST(clears_what_an_earlier_one_left),
        TEST(runs_once_a_directory),
        TEST(works_without_standard_streams),
        TEST(believes_only_the_process_itself),
        TEST(outlives_bad_clients),
        TEST(starts_and_ends_mps),
        TEST(restarts_memd_that_holds_mps),
        TEST(ends_mps_that_an_earlier_one_left),
        TEST(goes_on_without_mps),
        TEST(makes_removed_files_again),
        TEST(ends_without_its_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
