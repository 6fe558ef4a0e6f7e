/* Cases for both transports of calls, lib/ipc/rpc and lib/ipc/peer_rpc. The test that includes this
 * file names the transport before: SERVER (the structure's tag), SERVE, SERVER_STOP, CALL, LARGEST
 * (bytes of a request) and PROGRAM (a string). */
#ifndef MOED_TESTS_RPC_CASES_H
#define MOED_TESTS_RPC_CASES_H

#include "base/clock.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

extern char **environ;

static char directory[] = "/tmp/moed-test-" PROGRAM "-XXXXXX";
static char url[64], path[48], log_path[48];

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* ---- the handler of all servers: replies with the request reversed ---- */

static void reverse(void *arg, const uint8_t *request, size_t len, struct rpc_reply *reply)
{
    atomic_int *calls = arg;
    if (calls != NULL)
        atomic_fetch_add(calls, 1);
    reply->data = malloc(len > 0 ? len : 1);
    reply->len = len;
    for (size_t i = 0; i < len; i++)
        reply->data[i] = request[len - 1 - i];
}

/* ---- a server in a process of its own ---- */

/* A server process's handler: writes each execution to a file, and does not answer "stall". */
static void noting(void *arg, const uint8_t *request, size_t len, struct rpc_reply *reply)
{
    FILE *f = fopen(arg, "ae");
    fprintf(f, "%.*s\n", (int)len, (const char *)request);
    fclose(f);
    if (len == 5 && memcmp(request, "stall", 5) == 0)
        pause_ms(20000);
    reverse(NULL, request, len, reply);
}

static int server_process(const char *at, char *note_path)
{
    struct SERVER *s;
    struct error e;
    if (SERVE(at, noting, note_path, &s, &e) != ERROR_OK) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    pause_ms(60000);
    return 0;
}

static enum error_code call_text(const char *text, int timeout_ms, char *answer, struct error *e)
{
    uint8_t *reply;
    size_t len;
    enum error_code code =
        CALL(url, (const uint8_t *)text, strlen(text), timeout_ms, &reply, &len, e);
    if (code == ERROR_OK) {
        memcpy(answer, reply, len);
        answer[len] = 0;
        free(reply);
    }
    return code;
}

static pid_t start_server_process(void)
{
    char *argv[] = {PROGRAM, "--server", url, log_path, NULL};
    pid_t pid;
    assert_int_equal(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ), 0);
    char answer[16];
    enum error_code code = ERROR_UNAVAILABLE;
    for (int i = 0; i < 1000 && code == ERROR_UNAVAILABLE; i++) {
        code = call_text("ping", 5000, answer, NULL);
        pause_ms(10);
    }
    assert_int_equal(code, ERROR_OK);
    assert_string_equal(answer, "gnip");
    return pid;
}

static void kill_process(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static int count_notes(const char *what)
{
    char line[256];
    int n = 0;
    FILE *f = fopen(log_path, "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        line[strcspn(line, "\n")] = 0;
        n += strcmp(line, what) == 0;
    }
    if (f != NULL)
        fclose(f);
    return n;
}

static void wait_for_note(const char *what)
{
    for (int i = 0; i < 1000 && count_notes(what) == 0; i++)
        pause_ms(10);
    assert_int_equal(count_notes(what), 1);
}

static struct SERVER *serve(atomic_int *calls)
{
    struct SERVER *s = NULL;
    struct error e = {0};
    if (SERVE(url, reverse, calls, &s, &e) != ERROR_OK)
        fail_msg("%s", e.text);
    return s;
}

/* ---- tests ---- */

static void test_round_trip(void **state)
{
    atomic_int calls = 0;
    struct SERVER *s = serve(&calls);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    char answer[16];
    assert_int_equal(call_text("abc", 5000, answer, NULL), ERROR_OK);
    assert_string_equal(answer, "cba");

    size_t len = LARGEST, reply_len = 0;
    uint8_t *big = malloc(len), *reply = NULL;
    for (size_t i = 0; i < len; i++)
        big[i] = (uint8_t)(i * 7 + i / 251);
    assert_int_equal(CALL(url, big, len, 10000, &reply, &reply_len, NULL), ERROR_OK);
    assert_int_equal(reply_len, len);
    for (size_t i = 0; i < len; i++)
        assert_int_equal(reply[i], big[len - 1 - i]);
    free(reply);
    free(big);
    assert_int_equal(atomic_load(&calls), 2);
    SERVER_STOP(s);
}

static void test_nobody_there(void **state)
{
    struct error e = {0};
    char answer[16];
    uint64_t start = clock_ns();
    assert_int_equal(call_text("abc", 5000, answer, &e), ERROR_UNAVAILABLE);
    assert_true(clock_ns() - start < 2000000000u);
    assert_non_null(strstr(e.text, path));
    assert_null(strstr(e.text, "ipc://"));

    struct SERVER *s = serve(NULL);
    struct SERVER *second = NULL;
    assert_int_equal(SERVE(url, reverse, NULL, &second, &e), ERROR_EXISTS);
    assert_int_equal(call_text("abc", 5000, answer, &e), ERROR_OK);
    SERVER_STOP(s);
    assert_int_equal(call_text("abc", 5000, answer, &e), ERROR_UNAVAILABLE);
}

static void test_timeout(void **state)
{
    pid_t pid = start_server_process();
    char answer[16];
    struct error e = {0};
    uint64_t start = clock_ns();
    assert_int_equal(call_text("stall", 200, answer, &e), ERROR_TIMEOUT);
    uint64_t took = clock_ns() - start;
    kill_process(pid);
    assert_true(took >= 150000000u && took < 3000000000u);
    unlink(log_path);
}

struct stalled_call {
    enum error_code code;
    uint64_t ended_ns;
    struct error e;
};

static void *stalled_call_main(void *arg)
{
    struct stalled_call *c = arg;
    char answer[16];
    c->code = call_text("stall", 20000, answer, &c->e);
    c->ended_ns = clock_ns();
    return NULL;
}

/* The caller gets an error at once, and the next server never sees the request. */
static void test_server_killed(void **state)
{
    pid_t pid = start_server_process();
    struct stalled_call c = {0};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, stalled_call_main, &c), 0);
    wait_for_note("stall");
    uint64_t killed_ns = clock_ns();
    kill_process(pid);
    pid = start_server_process();
    pthread_join(thread, NULL);
    assert_int_equal(c.code, ERROR_UNAVAILABLE);
    assert_true(c.ended_ns - killed_ns < 2000000000u);
    print_message("noticed the server's death after %.1f ms\n",
                  (double)(c.ended_ns - killed_ns) * 1e-6);

    pause_ms(300); /* a re-sent request would come now */
    int executed = count_notes("stall");
    kill_process(pid);
    assert_int_equal(executed, 1);
    unlink(log_path);
}

#define CALLS   1000
#define THREADS 8

static int mismatches(int thread, int calls)
{
    int wrong = 0;
    for (int i = 0; i < calls; i++) {
        char text[32], expected[32], answer[32];
        int n = snprintf(text, sizeof text, "%d/%d", thread, i);
        for (int k = 0; k < n; k++)
            expected[k] = text[n - 1 - k];
        expected[n] = 0;
        wrong += call_text(text, 20000, answer, NULL) != ERROR_OK || strcmp(answer, expected) != 0;
    }
    return wrong;
}

static void test_many_calls(void **state)
{
    atomic_int calls = 0;
    struct SERVER *s = serve(&calls);
    uint64_t start = clock_ns();
    assert_int_equal(mismatches(0, CALLS), 0);
    print_message("%.0f us a call\n", (double)(clock_ns() - start) * 1e-3 / CALLS);
    assert_int_equal(atomic_load(&calls), CALLS);
    SERVER_STOP(s);
}

static void *caller_main(void *arg)
{
    int *thread = arg;
    *thread = mismatches(*thread, CALLS / THREADS);
    return NULL;
}

static void test_many_threads(void **state)
{
    atomic_int calls = 0;
    struct SERVER *s = serve(&calls);
    pthread_t threads[THREADS];
    int result[THREADS];
    for (int i = 0; i < THREADS; i++) {
        result[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, caller_main, &result[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(result[i], 0);
    }
    assert_int_equal(atomic_load(&calls), CALLS / THREADS * THREADS);
    SERVER_STOP(s);
}

/* A reply that the server sends just before it stops still arrives. The server that stops answers
 * "down". */
static void *stopper_main(void *arg)
{
    SERVER_STOP(arg);
    return NULL;
}

static void test_stop(void **state)
{
    SERVER_STOP(NULL);
    char answer[16];
    for (int i = 0; i < 10; i++) {
        struct SERVER *s = serve(NULL);
        pthread_t stopper;
        assert_int_equal(call_text("abc", 5000, answer, NULL), ERROR_OK);
        assert_int_equal(pthread_create(&stopper, NULL, stopper_main, s), 0);
        enum error_code code = call_text("abc", 5000, answer, NULL);
        assert_true(code == ERROR_OK || code == ERROR_UNAVAILABLE);
        pthread_join(stopper, NULL);
    }
    assert_int_not_equal(access(path, F_OK), 0); /* the socket file goes with its server */
}

/* Runs the tests, or is the server that a test starts. */
static int run_cases(int argc, char **argv, const struct CMUnitTest *tests, size_t n)
{
    if (argc == 4 && strcmp(argv[1], "--server") == 0)
        return server_process(argv[2], argv[3]);
    if (mkdtemp(directory) == NULL)
        return 1;
    snprintf(path, sizeof path, "%s/s", directory);
    snprintf(url, sizeof url, "ipc://%s", path);
    snprintf(log_path, sizeof log_path, "%s/notes", directory);
    int rc = _cmocka_run_group_tests(PROGRAM, tests, n, NULL, NULL);
    unlink(path);
    unlink(log_path);
    rmdir(directory);
    return rc;
}

#endif
