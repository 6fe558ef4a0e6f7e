/* The supervisor with fake daemons that die, fail or are silent: restarts, and giving up. */
#include "deployment_fixture.h"

#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <cmocka.h>

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const quick_stop[] = {"--stop-timeout", "2", NULL};

/* All are ready; what follows is alone in `events`. */
static void start_and_empty_events(struct fixture *f)
{
    char path[160];
    fixture_start(f, NULL, false);
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    snprintf(path, sizeof path, "%s/events", f->run);
    assert_int_equal(truncate(path, 0), 0);
}

static void restarts_the_worker_alone(void **state)
{
    struct fixture *f = *state;
    uint64_t began = clock_ns();
    fixture_start(f, NULL, false);
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    uint64_t before = clock_ns(), start = before - began; /* of all: long on a loaded machine */
    pid_t memd = fixture_pid(f, "memd"), worker = fixture_pid(f, "worker");
    kill(worker, SIGKILL);
    assert_true(fixture_until(f, "worker", "restarts", "1", LIMIT_MS));
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    assert_true(clock_ns() - before < 1000000000u + 10 * start);
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
    assert_true(fixture_until_least(f, "cpuexec", "restarts", 1));
    assert_contains(fixture_file(f, "supervise.log"), "starting it again in 0 ms");
    /* On a loaded machine it may count as stable when this process gets to kill it. */
    static const char later[] = "starting it again in 100 ms";
    for (int i = 2; i < 20 && !strstr(fixture_file(f, "supervise.log"), later); i++) {
        assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
        kill(fixture_pid(f, "cpuexec"), SIGKILL);
        assert_true(fixture_until_least(f, "cpuexec", "restarts", i));
    }
    assert_contains(fixture_file(f, "supervise.log"), later);
}

static void restarts_a_silent_one(void **state)
{
    struct fixture *f = *state;
    static const char *const more[] = {"--watchdog", "4", NULL}; /* also until it is ready */
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
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
}

static void gives_up_one_that_stays_silent(void **state)
{
    struct fixture *f = *state;
    static const char *const more[] = {"--watchdog", "1",
                                       NULL}; /* longer than a loaded machine pauses */
    fixture_script(f, "cpuexec", "silent");
    fixture_start(f, more, false);
    assert_true(fixture_until(f, "cpuexec", "state", "failed", LIMIT_MS));
    /* on a loaded machine one may be silent before it was ready */
    static const char reason[] = "killed by the watchdog: silent";
    assert_int_equal(strncmp(fixture_value(f, "cpuexec", "reason"), reason, strlen(reason)), 0);
    assert_int_equal(fixture_count_events(f, "start cpuexec"), 5);
}

/* Five silences are a row only if the process does not end in another way in between. */
static void forgets_silences_after_another_end(void **state)
{
    struct fixture *f = *state;
    static const char *const more[] = {"--watchdog", "1", "--stable-after", "0.01", NULL};
    fixture_start(f, more, false);
    for (int i = 0; i < 6; i++) {
        char restarts[8];
        snprintf(restarts, sizeof restarts, "%d", i + 1);
        assert_true(fixture_until(f, "cpuexec", "state", "ready", LIMIT_MS));
        kill(fixture_pid(f, "cpuexec"), i == 4 ? SIGKILL : SIGSTOP);
        assert_true(fixture_until(f, "cpuexec", "restarts", restarts, LIMIT_MS));
    }
    assert_true(fixture_until(f, "cpuexec", "state", "ready", LIMIT_MS));
}

static void gives_up_after_five_failures(void **state)
{
    struct fixture *f = *state;
    fixture_script(f, "worker", "exit 1");
    fixture_start(f, NULL, false);
    assert_true(fixture_until(f, "worker", "state", "failed", LIMIT_MS));
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

/* What has served once is started again for as long as it takes. */
static void tries_on_with_one_that_was_ready(void **state)
{
    struct fixture *f = *state;
    start_and_empty_events(f);
    fixture_script(f, "worker", "exit 1");
    kill(fixture_pid(f, "worker"), SIGKILL);
    assert_true(fixture_until_least(f, "worker", "failures", 5));
    assert_string_equal(fixture_value(f, "deployment", "state"), "starting");
    assert_string_equal(fixture_value(f, "deployment", "reason"),
                        "worker does not start: exit status 1 before it was ready: last words of "
                        "worker");
    fixture_script(f, "worker", "serve");
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    assert_string_equal(fixture_value(f, "worker", "failures"), "0");
    assert_string_equal(fixture_value(f, "deployment", "reason"), "");
    assert_contains(fixture_file(f, "supervise.log"), "in 3200 ms");
}

/* memd too, without which nothing else starts. */
static void tries_on_with_memd(void **state)
{
    struct fixture *f = *state;
    start_and_empty_events(f);
    fixture_script(f, "memd", "exit 1");
    kill(fixture_pid(f, "memd"), SIGKILL);
    assert_true(fixture_until_least(f, "memd", "failures", 5));
    assert_contains(fixture_value(f, "deployment", "reason"), "memd does not start: exit status 1");
    assert_string_equal(fixture_value(f, "worker", "state"), "waiting");
    fixture_script(f, "memd", "serve");
    assert_string_equal(fixture_command(f, "restart memd"), "ok\n");
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

/* Exit status 4: another program has what the process needs. */
static void gives_up_at_once_where_it_never_had_what_another_has(void **state)
{
    struct fixture *f = *state;
    static const char *const more[] = {"--http", "80", NULL};
    fixture_script(f, "http", "exit 4");
    fixture_start(f, more, false);
    assert_true(fixture_until(f, "http", "state", "failed", LIMIT_MS));
    assert_int_equal(fixture_count_events(f, "start http"), 1);
    fixture_script(f, "http", "serve");
    assert_string_equal(fixture_command(f, "restart http"), "ok\n");
    assert_true(fixture_until(f, "http", "state", "ready", LIMIT_MS));
    fixture_script(f, "http", "once 4");
    kill(fixture_pid(f, "http"), SIGKILL);
    assert_true(fixture_until(f, "http", "restarts", "3", LIMIT_MS));
    assert_true(fixture_until(f, "http", "state", "ready", LIMIT_MS));
}

/* Exit status 5: the device has no memory. The supervisor tries on, and says so. */
static void says_that_the_device_lacks_memory(void **state)
{
    struct fixture *f = *state;
    fixture_script(f, "worker", "exit 5");
    fixture_start(f, NULL, false);
    assert_true(fixture_until_least(f, "worker", "lacks", 2));
    assert_true(fixture_until(f, "deployment", "reason",
                              "worker does not start: no device memory before it was ready: last "
                              "words of worker",
                              LIMIT_MS));
    assert_string_equal(fixture_value(f, "deployment", "state"), "starting");
    assert_true(fixture_count_events(f, "start worker") >= 5);
    fixture_script(f, "worker", "slow 100000"); /* it has memory, and loads */
    assert_true(fixture_until(f, "worker", "lacks", "0", LIMIT_MS));
    assert_string_equal(fixture_value(f, "worker", "state"), "starting");
    fixture_script(f, "worker", "serve");
    kill(fixture_pid(f, "worker"), SIGKILL);
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    assert_string_equal(fixture_value(f, "worker", "lacks"), "0");
    assert_string_equal(fixture_value(f, "deployment", "reason"), "");
}

static void is_degraded_without_cpuexec(void **state)
{
    struct fixture *f = *state;
    fixture_script(f, "cpuexec", "exit 3");
    fixture_start(f, NULL, false);
    assert_true(fixture_until(f, "deployment", "state", "degraded", LIMIT_MS));
    assert_contains(fixture_value(f, "deployment", "reason"), "last words of cpuexec");
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
    start_and_empty_events(f);
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
    start_and_empty_events(f);
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

/* Clients find no http until it is back, so a restart does not wait for requests as a stop does. */
static void a_restart_of_http_does_not_drain_for_long(void **state)
{
    struct fixture *f = *state;
    static const char *const more[] = {"--http", "80", "--drain", "3600", NULL};
    fixture_script(f, "http", "drains");
    fixture_start(f, more, false);
    assert_true(fixture_until(f, "deployment", "state", "ready", LIMIT_MS));
    assert_string_equal(fixture_command(f, "restart http"), "ok\n");
    assert_true(fixture_until(f, "http", "restarts", "1", LIMIT_MS));
    assert_true(fixture_until(f, "http", "state", "ready", LIMIT_MS));
    assert_string_equal(fixture_value(f, "http", "reason"), "exit status 0 when stopped");
    assert_int_equal(fixture_count_events(f, "stop http"), 1);
    assert_contains(fixture_command(f, "down"), "ok\n");
    assert_true(fixture_until(f, "http", "state", "stopping", LIMIT_MS));
    assert_contains(fixture_command(f, "down-now"), "ok\n");
    assert_int_equal(fixture_wait_supervisor(f, LIMIT_MS), 0);
    assert_int_equal(fixture_count_events(f, "stop http"), 2);
}

int main(int argc, char **argv)
{
    if (!fixture_programs(argc, argv))
        return 2;
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(a_restart_of_http_does_not_drain_for_long),
        FIXTURE_TEST(restarts_the_worker_alone),
        FIXTURE_TEST(restarts_a_stable_one_at_once),
        FIXTURE_TEST(restarts_a_silent_one),
        FIXTURE_TEST(a_pause_of_all_is_no_silence),
        FIXTURE_TEST(a_beat_says_again_that_a_process_is_ready),
        FIXTURE_TEST(gives_up_one_that_stays_silent),
        FIXTURE_TEST(forgets_silences_after_another_end),
        FIXTURE_TEST(gives_up_after_five_failures),
        FIXTURE_TEST(tries_on_with_one_that_was_ready),
        FIXTURE_TEST(tries_on_with_memd),
        FIXTURE_TEST(gives_up_at_once_where_restarting_is_useless),
        FIXTURE_TEST(gives_up_at_once_where_it_never_had_what_another_has),
        FIXTURE_TEST(says_that_the_device_lacks_memory),
        FIXTURE_TEST(is_degraded_without_cpuexec),
        FIXTURE_TEST(a_failure_before_ready_is_tried_again),
        FIXTURE_TEST(memd_failing_stops_the_others),
        FIXTURE_TEST(memd_killed_restarts_all_in_order),
        FIXTURE_TEST(one_that_ignores_memds_death_is_stopped),
        FIXTURE_TEST(restarts_on_command),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
