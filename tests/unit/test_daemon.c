/* The daemons' skeleton: a small daemon in a process of its own, called over its control socket.
 *
 * The daemon is this program again, executed (nng does not survive a fork) with "daemon" as its
 * first argument ("unconfined": without --confine). It is ready after a moment, answers
 * memory_detach (for lease 13 with an error that has retry set), and leaves every other request to
 * daemon_unknown. */
#include "daemon/control.h"
#include "daemon/daemon.h"
#include "daemon/run_dir.h"
#include "ipc/rpc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define CALL_MS 5000

/* -- the daemon -- */

static void fill_health(void *arg, Moed__V1__HealthReply *health)
{
    health->model = (char *)"a model";
    health->clients = 3;
}

static enum error_code take_request(void *arg, const Moed__V1__Request *request,
                                    Moed__V1__Reply *reply, struct error *e)
{
    static Moed__V1__MemoryDetachReply detached;
    if (request->body_case != MOED__V1__REQUEST__BODY_MEMORY_DETACH)
        return daemon_unknown(request, e);
    if (request->memory_detach->lease == 13)
        return error_set(e, ERROR_UNAVAILABLE, "lease 13 is not there now");
    moed__v1__memory_detach_reply__init(&detached);
    reply->body_case = MOED__V1__REPLY__BODY_MEMORY_DETACH;
    reply->memory_detach = &detached;
    return ERROR_OK;
}

/* Like libraries that start threads when they are loaded: it blocks no signal. */
static void *idle(void *arg)
{
    for (;;)
        pause();
    return NULL;
}

/* As the supervisor does with a log that is long. */
static void rename_log(const char *of_run)
{
    char log[RUN_PATH_BYTES], old[RUN_PATH_BYTES];
    run_dir_file(of_run, "tester.log", log);
    run_dir_file(of_run, "tester.log.1", old);
    if (rename(log, old) != 0)
        abort();
    close(open(log, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
}

static void refuse_inotify(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_inotify_init1, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EMFILE),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof code / sizeof *code, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        abort();
}

static int daemon_main(int argc, char **argv)
{
    pthread_t early;
    if (pthread_create(&early, NULL, idle, NULL) || pthread_detach(early))
        return 95;
    static const struct daemon_handlers handlers = {
        .health = fill_health, .request = take_request, .peers = true};
    struct daemon d;
    uint64_t size = 5;
    bool loads = false, renames = false, unwatched = false;
    const struct option_spec table[] = {
        {"size", OPTION_UINT, &size, 1, 10, "N", "a number"},
        {"loads", OPTION_BOOL, &loads, 0, 0, NULL, "load for ever"},
        {"renames", OPTION_BOOL, &renames, 0, 0, NULL, "rename the log before the start"},
        {"unwatched", OPTION_BOOL, &unwatched, 0, 0, NULL, "run where inotify's limit is reached"},
        {0},
    };
    bool confines = strcmp(argv[0], "unconfined") != 0;
    (confines ? daemon_init : daemon_init_unconfined)(&d, "tester", "A daemon for a test.", table,
                                                      argc, argv);
    if (renames)
        rename_log(d.run);
    if (unwatched)
        refuse_inotify();
    daemon_start(&d);
    struct counter *c = metrics_counter(d.metrics, "moed_test_total", NULL, 1, "a counter");
    counter_add(c, 42);
    daemon_status(&d, "size\n%d", (int)size);
    while (loads)
        poll(NULL, 0, 1000);
    struct error e;
    if (daemon_serve(&d, &handlers, NULL, &e))
        daemon_fail(&d, EXIT_RETRY, &e);
    poll(NULL, 0, 100);
    daemon_ready(&d);
    int exit_code = daemon_wait(&d);
    daemon_stop(&d);
    return exit_code;
}

/* -- the test's side -- */

static char run[RUN_DIR_BYTES], url[RUN_URL_BYTES];
static const char *mode = "daemon";
static pid_t child;
static int notify_fd = -1;
static struct error why;

static pid_t spawn(const char *const *more, const char *stderr_path)
{
    const char *arguments[12] = {"/proc/self/exe", mode, "--run", run};
    size_t n = 4;
    while (more && *more)
        arguments[n++] = *more++;
    pid_t pid = fork();
    if (pid == 0) {
        int to = open(stderr_path ? stderr_path : "/dev/null", O_WRONLY | O_CREAT | O_TRUNC, 0600);
        dup2(to, STDERR_FILENO);
        dup2(to, STDOUT_FILENO);
        execv(arguments[0], (char **)arguments);
        _exit(96);
    }
    return pid;
}

static int exit_status(pid_t pid)
{
    int status;
    for (int ms = 0; ms < 60000; ms += 5) {
        if (waitpid(pid, &status, WNOHANG) == pid)
            return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
        poll(NULL, 0, 5);
    }
    return -1000;
}

/* Listen as a service manager; abstract: without a file. */
static void listen_for_notifications(bool abstract)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s%s/notify", abstract ? "@" : "", run);
    setenv("NOTIFY_SOCKET", address.sun_path, 1);
    socklen_t len =
        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(address.sun_path) + !abstract);
    if (abstract)
        address.sun_path[0] = '\0';
    notify_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct timeval timeout = {.tv_sec = 60};
    setsockopt(notify_fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    assert_int_equal(bind(notify_fd, (struct sockaddr *)&address, len), 0);
}

static bool notified(const char *expected)
{
    char text[512];
    for (int i = 0; i < 50; i++) {
        ssize_t n = recv(notify_fd, text, sizeof text - 1, 0);
        if (n < 0)
            return false;
        text[n] = '\0';
        if (strcmp(text, expected) == 0)
            return true;
    }
    return false;
}

static int setup(void **state)
{
    snprintf(run, sizeof run, "/tmp/moed-test-daemon.XXXXXX");
    if (!mkdtemp(run))
        return -1;
    run_dir_url(run, "tester.ctl", url);
    return 0;
}

static int setup_running(void **state)
{
    if (setup(state) != 0)
        return -1;
    listen_for_notifications(false);
    child = spawn(NULL, NULL);
    return notified("READY=1\nSTATUS=size?5") ? 0 : -1;
}

static int teardown(void **state)
{
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    if (notify_fd >= 0)
        close(notify_fd);
    notify_fd = -1;
    if (child > 0) {
        kill(child, SIGTERM);
        exit_status(child);
    }
    child = 0;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", run);
    return system(command);
}

static Moed__V1__Request health_request(void)
{
    static Moed__V1__HealthRequest health = MOED__V1__HEALTH_REQUEST__INIT;
    Moed__V1__Request request = MOED__V1__REQUEST__INIT;
    request.abi = CONTROL_ABI;
    request.body_case = MOED__V1__REQUEST__BODY_HEALTH;
    request.health = &health;
    return request;
}

/* Sends bytes unchanged; returns the Error, which the caller frees with free_unpacked. */
static Moed__V1__Reply *raw_call(const uint8_t *data, size_t len)
{
    uint8_t *bytes;
    size_t n;
    enum error_code code = rpc_call(url, data, len, CALL_MS, &bytes, &n, &why);
    if (code)
        fail_msg("no answer: %s", why.text);
    Moed__V1__Reply *reply = moed__v1__reply__unpack(NULL, n, bytes);
    free(bytes);
    assert_non_null(reply);
    return reply;
}

static void assert_raw_error(const uint8_t *data, size_t len, enum error_code code, bool retry,
                             const char *expected_text)
{
    Moed__V1__Reply *reply = raw_call(data, len);
    assert_int_equal(reply->abi, CONTROL_ABI);
    assert_int_equal(reply->body_case, MOED__V1__REPLY__BODY_ERROR);
    assert_int_equal(reply->error->code, code);
    assert_int_equal(reply->error->retry, retry);
    if (!strstr(reply->error->message, expected_text))
        fail_msg("\"%s\" is not in \"%s\"", expected_text, reply->error->message);
    moed__v1__reply__free_unpacked(reply, NULL);
}

static void assert_error(const Moed__V1__Request *request, enum error_code code, bool retry,
                         const char *expected_text)
{
    uint8_t packed[256];
    assert_true(moed__v1__request__get_packed_size(request) <= sizeof packed);
    size_t len = moed__v1__request__pack(request, packed);
    assert_raw_error(packed, len, code, retry, expected_text);
}

static void assert_healthy(void)
{
    Moed__V1__Request request = health_request();
    Moed__V1__Reply *reply;
    enum error_code code =
        control_call(run, "tester", &request, MOED__V1__REPLY__BODY_HEALTH, CALL_MS, &reply, &why);
    if (code)
        fail_msg("health: %s", why.text);
    const Moed__V1__HealthReply *h = reply->health;
    assert_string_equal(h->process, "tester");
    assert_int_equal(h->pid, child);
    assert_true(h->ready);
    assert_string_equal(h->state, "size?5"); /* one line */
    assert_true(h->memory_bytes > 100000);
    assert_true(h->uptime_ms >= 100 && h->uptime_ms < 60000);
    assert_string_equal(h->version, MOED_VERSION);
    assert_string_equal(h->model, "a model");
    assert_int_equal(h->clients, 3);
    moed__v1__reply__free_unpacked(reply, NULL);
}

/* A signal ends it in the middle of its start, as exit code 0: the supervisor asked for it. */
static void stops_before_it_is_ready(void **state)
{
    kill(child, SIGTERM);
    assert_int_equal(exit_status(child), 0);
    child = spawn((const char *const[]){"--loads", NULL}, NULL);
    assert_true(notified("STATUS=size?5"));
    kill(child, SIGTERM);
    assert_int_equal(exit_status(child), 0);
    child = 0;
}

static void answers_health_and_metrics(void **state)
{
    assert_healthy();
    Moed__V1__MetricsRequest metrics = MOED__V1__METRICS_REQUEST__INIT;
    Moed__V1__Request request = MOED__V1__REQUEST__INIT;
    request.body_case = MOED__V1__REQUEST__BODY_METRICS;
    request.metrics = &metrics;
    Moed__V1__Reply *reply;
    assert_int_equal(
        control_call(run, "tester", &request, MOED__V1__REPLY__BODY_METRICS, CALL_MS, &reply, &why),
        0);
    assert_non_null(strstr(reply->metrics->prometheus_text, "\nmoed_test_total 42\n"));
    moed__v1__reply__free_unpacked(reply, NULL);
}

static void hands_other_requests_to_the_handler(void **state)
{
    Moed__V1__MemoryDetachRequest detach = MOED__V1__MEMORY_DETACH_REQUEST__INIT;
    Moed__V1__Request request = MOED__V1__REQUEST__INIT;
    request.abi = CONTROL_ABI;
    request.body_case = MOED__V1__REQUEST__BODY_MEMORY_DETACH;
    request.memory_detach = &detach;
    Moed__V1__Reply *reply;
    assert_int_equal(control_call(run, "tester", &request, MOED__V1__REPLY__BODY_MEMORY_DETACH,
                                  CALL_MS, &reply, &why),
                     0);
    moed__v1__reply__free_unpacked(reply, NULL);
    /* Another body than the one wanted. */
    assert_int_equal(
        control_call(run, "tester", &request, MOED__V1__REPLY__BODY_HEALTH, CALL_MS, &reply, &why),
        ERROR_PROTOCOL);
    detach.lease = 13;
    assert_error(&request, ERROR_UNAVAILABLE, true, "lease 13 is not there now");
    assert_int_equal(control_call(run, "tester", &request, MOED__V1__REPLY__BODY_MEMORY_DETACH,
                                  CALL_MS, &reply, &why),
                     ERROR_UNAVAILABLE);
    assert_string_equal(why.text, "lease 13 is not there now");
}

static void makes_its_pid_file_again(void **state)
{
    char path[RUN_PATH_BYTES];
    run_dir_file(run, "tester.pid", path);
    assert_int_equal(run_dir_holder(run, "tester"), child);
    assert_int_equal(unlink(path), 0);
    for (int i = 0; i < 500 && !run_dir_holder(run, "tester"); i++)
        poll(NULL, 0, 10);
    assert_int_equal(run_dir_holder(run, "tester"), child);
    assert_healthy();
}

static void refuses_what_it_does_not_know(void **state)
{
    Moed__V1__SessionAttachRequest attach = MOED__V1__SESSION_ATTACH_REQUEST__INIT;
    Moed__V1__Request request = MOED__V1__REQUEST__INIT;
    request.abi = CONTROL_ABI;
    assert_error(&request, ERROR_PROTOCOL, false, "no body");
    request.body_case = MOED__V1__REQUEST__BODY_SESSION_ATTACH;
    request.session_attach = &attach;
    assert_error(&request, ERROR_PROTOCOL, false, "`session_attach`");
    /* abi 1, and field 77 with an empty message: (77 << 3 | 2) as a varint is ea 04. */
    static const uint8_t later_version[] = {0x08, 0x01, 0xea, 0x04, 0x00};
    assert_raw_error(later_version, sizeof later_version, ERROR_PROTOCOL, false, "kind 77");
    assert_healthy();
}

static void refuses_another_version(void **state)
{
    Moed__V1__Request request = health_request();
    request.abi = 4711;
    char ours[32];
    snprintf(ours, sizeof ours, "version %u", CONTROL_ABI);
    assert_error(&request, ERROR_VERSION, false, "4711");
    assert_error(&request, ERROR_VERSION, false, ours);
    assert_healthy();
}

static void refuses_what_is_malformed(void **state)
{
    static const uint8_t truncated[] = {0x08, 0x01, 0x52, 0x10, 0x00}; /* 16 bytes announced */
    static const uint8_t no_field[] = {0x00, 0x00};
    assert_raw_error(truncated, sizeof truncated, ERROR_PROTOCOL, false, "cannot decode");
    assert_raw_error(no_field, sizeof no_field, ERROR_PROTOCOL, false, "cannot decode");
    static const uint8_t no_version[] = {0x52, 0x00}; /* health */
    assert_raw_error(no_version, sizeof no_version, ERROR_VERSION, false, "version 0");
    uint8_t noise[300];
    uint32_t x = 1;
    for (int round = 0; round < 50; round++) {
        for (size_t i = 0; i < sizeof noise; i++)
            noise[i] = (uint8_t)((x = x * 1664525u + 1013904223u) >> 24);
        moed__v1__reply__free_unpacked(raw_call(noise, sizeof noise), NULL);
    }
    assert_healthy();
}

/* A request of unknown two-byte fields would need some 12 times its size unpacked. */
static void refuses_what_unpacks_to_too_much(void **state)
{
    size_t len = RPC_REQUEST_BYTES - 4096;
    uint8_t *bomb = malloc(len);
    assert_non_null(bomb);
    for (size_t i = 0; i < len; i += 2) {
        bomb[i] = 0x10; /* field 2, a varint */
        bomb[i + 1] = 0x00;
    }
    assert_raw_error(bomb, len, ERROR_PROTOCOL, false, "cannot decode");
    free(bomb);
    assert_healthy();
}

static void stops_when_asked(void **state)
{
    Moed__V1__ShutdownRequest shutdown = MOED__V1__SHUTDOWN_REQUEST__INIT;
    Moed__V1__Request request = MOED__V1__REQUEST__INIT;
    request.body_case = MOED__V1__REQUEST__BODY_SHUTDOWN;
    request.shutdown = &shutdown;
    Moed__V1__Reply *reply;
    assert_int_equal(control_call(run, "tester", &request, MOED__V1__REPLY__BODY_SHUTDOWN, CALL_MS,
                                  &reply, &why),
                     0);
    moed__v1__reply__free_unpacked(reply, NULL);
    assert_true(notified("STOPPING=1\nSTATUS=stopping"));
    assert_int_equal(exit_status(child), 0);
    child = 0;
    assert_int_equal(run_dir_holder(run, "tester"), 0);
    request = health_request();
    assert_int_equal(
        control_call(run, "tester", &request, MOED__V1__REPLY__BODY_HEALTH, 200, &reply, &why),
        ERROR_UNAVAILABLE);
}

static void stops_on_signals(void **state)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1}; /* it has no drain */
    for (int i = 0; i < 4; i++) {
        if (i > 0) {
            child = spawn(NULL, NULL);
            assert_true(notified("READY=1\nSTATUS=size?5"));
        }
        assert_healthy(); /* nng's threads run */
        assert_int_equal(run_dir_holder(run, "tester"), child);
        kill(child, signals[i]);
        assert_int_equal(exit_status(child), 0);
        child = 0;
    }
}

static void one_of_a_kind(void **state)
{
    char log[RUN_PATH_BYTES], text[1024] = "";
    run_dir_file(run, "second.log", log);
    assert_int_equal(exit_status(spawn(NULL, log)), EXIT_RETRY);
    FILE *f = fopen(log, "r");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    char expected[64];
    snprintf(expected, sizeof expected, "(pid %d)", (int)child);
    assert_true(n > 0);
    assert_non_null(strstr(text, expected));
    assert_healthy();
}

static void notifies_an_abstract_socket(void **state)
{
    listen_for_notifications(true);
    child = spawn(NULL, NULL);
    assert_true(notified("STATUS=size?5"));
    assert_true(notified("READY=1\nSTATUS=size?5"));
}

/* The manager is slow, so the process waits until the queue has a place, also where it is stopped
 * and continued meanwhile. */
static void is_ready_despite_a_full_queue(void **state)
{
    listen_for_notifications(false);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", getenv("NOTIFY_SOCKET"));
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    while (sendto(fd, "X=1", 3, MSG_DONTWAIT, (struct sockaddr *)&address, sizeof address) == 3)
        ;
    close(fd);
    child = spawn(NULL, NULL);
    for (int i = 0; i < 50; i++) { /* it waits from some moment of this second on */
        poll(NULL, 0, 20);
        kill(child, SIGSTOP);
        kill(child, SIGCONT);
    }
    assert_true(notified("READY=1\nSTATUS=size?5"));
}

static void feeds_the_watchdog(void **state)
{
    listen_for_notifications(false);
    setenv("WATCHDOG_USEC", "100000", 1);
    child = spawn(NULL, NULL);
    assert_true(notified("READY=1\nSTATUS=size?5"));
    for (int i = 0; i < 3; i++)
        assert_true(notified("READY=1\nWATCHDOG=1"));
}

static bool has_text(const char *path, const char *part)
{
    char text[4096] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    return strstr(text, part) != NULL;
}

static void does_not_feed_the_watchdog_without_a_control_socket(void **state)
{
    char log[RUN_PATH_BYTES], socket[RUN_PATH_BYTES];
    run_dir_file(run, "watchdog.log", log);
    run_dir_file(run, "tester.ctl", socket);
    listen_for_notifications(false);
    setenv("WATCHDOG_USEC", "100000", 1);
    child = spawn(NULL, log);
    assert_true(notified("READY=1\nSTATUS=size?5"));
    assert_true(notified("READY=1\nWATCHDOG=1"));
    assert_int_equal(unlink(socket), 0);
    for (int i = 0; i < 400 && !has_text(log, "the control socket does not answer"); i++)
        poll(NULL, 0, 25);
    assert_true(has_text(log, "the watchdog is not notified: the control socket does not answer"));
    unlink(log);
}

/* The child stops, and its last line is in the log. */
static void ends_in_log(const char *log)
{
    kill(child, SIGTERM);
    assert_int_equal(exit_status(child), EXIT_CLEAN);
    assert_true(has_text(log, "stopped"));
    child = 0;
    close(notify_fd);
    notify_fd = -1;
}

/* A log is written by a process that was started with it, whenever it is renamed and whether or not
 * the process is notified of that. */
static void follows_its_log(void **state)
{
    static const char *const cases[][2] = {{NULL}, {"--renames", NULL}, {"--unwatched", NULL}};
    char log[RUN_PATH_BYTES], socket[RUN_PATH_BYTES];
    run_dir_file(run, "tester.log", log);
    run_dir_file(run, "notify", socket);
    setenv("WATCHDOG_USEC", "100000", 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        listen_for_notifications(false);
        child = spawn(cases[i], log);
        assert_true(notified("READY=1\nSTATUS=size?5"));
        struct stat renamed, now = {0};
        if (i != 1)
            rename_log(run);
        assert_int_equal(stat(log, &renamed), 0);
        for (int k = 0; k < 400 && now.st_ino != renamed.st_ino; k++) {
            char fd[64];
            poll(NULL, 0, 25);
            snprintf(fd, sizeof fd, "/proc/%d/fd/2", (int)child);
            assert_int_equal(stat(fd, &now), 0);
        }
        assert_int_equal(now.st_ino, renamed.st_ino);
        ends_in_log(log);
        unlink(socket);
    }
}

/* A process that is stopped before it has noticed that its log is a new one. */
static void stops_in_its_new_log(void **state)
{
    char log[RUN_PATH_BYTES], socket[RUN_PATH_BYTES];
    (void)state;
    run_dir_file(run, "tester.log", log);
    run_dir_file(run, "notify", socket);
    unsetenv("WATCHDOG_USEC");
    listen_for_notifications(false);
    child = spawn((const char *const[]){NULL}, log);
    assert_true(notified("READY=1\nSTATUS=size?5"));
    rename_log(run);
    ends_in_log(log);
    unlink(socket);
}

static void wrong_use_is_one_line(void **state)
{
    static const char *const cases[][3] = {
        {"--size", "11", NULL}, {"--what", NULL}, {"stray", NULL}, {"--log-level", "loud", NULL}};
    char log[RUN_PATH_BYTES];
    run_dir_file(run, "usage.log", log);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[1024] = "";
        assert_int_equal(exit_status(spawn(cases[i], log)), EXIT_BAD_USAGE);
        FILE *f = fopen(log, "r");
        assert_non_null(f);
        size_t n = fread(text, 1, sizeof text - 1, f);
        fclose(f);
        assert_true(n > 0 && strchr(text, '\n') == text + n - 1);
        assert_int_equal(strncmp(text, "moed-tester: ", 13), 0);
        assert_non_null(strstr(text, cases[i][0]));
    }
    static const char *const help[] = {"--help", NULL};
    assert_int_equal(exit_status(spawn(help, log)), EXIT_CLEAN);
}

static void only_a_process_that_confines_itself_has_the_option(void **state)
{
    static const char *const dump[] = {"--no-confine", "--config-dump", NULL};
    char log[RUN_PATH_BYTES];
    run_dir_file(run, "option.log", log);
    assert_int_equal(exit_status(spawn(dump, log)), EXIT_CLEAN);
    mode = "unconfined";
    assert_int_equal(exit_status(spawn(dump, log)), EXIT_BAD_USAGE);
    assert_int_equal(exit_status(spawn(dump + 1, log)), EXIT_CLEAN);
    mode = "daemon";
}

#define TEST(name)    cmocka_unit_test_setup_teardown(name, setup, teardown)
#define RUNNING(name) cmocka_unit_test_setup_teardown(name, setup_running, teardown)

int main(int argc, char **argv)
{
    if (argc > 1 && (strcmp(argv[1], "daemon") == 0 || strcmp(argv[1], "unconfined") == 0))
        return daemon_main(argc - 1, argv + 1);
    const struct CMUnitTest tests[] = {
        RUNNING(stops_before_it_is_ready),
        RUNNING(answers_health_and_metrics),
        RUNNING(hands_other_requests_to_the_handler),
        RUNNING(refuses_what_it_does_not_know),
        RUNNING(refuses_another_version),
        RUNNING(makes_its_pid_file_again),
        RUNNING(refuses_what_is_malformed),
        RUNNING(refuses_what_unpacks_to_too_much),
        RUNNING(stops_when_asked),
        RUNNING(stops_on_signals),
        RUNNING(one_of_a_kind),
        TEST(notifies_an_abstract_socket),
        TEST(is_ready_despite_a_full_queue),
        TEST(feeds_the_watchdog),
        TEST(does_not_feed_the_watchdog_without_a_control_socket),
        TEST(follows_its_log),
        TEST(stops_in_its_new_log),
        TEST(wrong_use_is_one_line),
        TEST(only_a_process_that_confines_itself_has_the_option),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
