/* lib/ipc/rpc. Servers that get killed are this program started again (posix_spawn: nng forbids
 * fork). */
#include "ipc/rpc.h"

#include "base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

extern char **environ;

static char directory[] = "/tmp/moed-test-rpc-XXXXXX";
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

/* A server process's handler: notes each execution in a file, and "stall" does not answer. */
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
    struct rpc_server *s;
    struct error e;
    if (rpc_serve(at, noting, note_path, &s, &e) != ERROR_OK) {
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
        rpc_call(url, (const uint8_t *)text, strlen(text), timeout_ms, &reply, &len, e);
    if (code == ERROR_OK) {
        memcpy(answer, reply, len);
        answer[len] = 0;
        free(reply);
    }
    return code;
}

static pid_t start_server_process(void)
{
    char *argv[] = {"test_rpc", "--server", url, log_path, NULL};
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

static struct rpc_server *serve(atomic_int *calls)
{
    struct rpc_server *s = NULL;
    struct error e = {0};
    if (rpc_serve(url, reverse, calls, &s, &e) != ERROR_OK)
        fail_msg("%s", e.text);
    return s;
}

/* ---- tests ---- */

static void test_round_trip(void **state)
{
    atomic_int calls = 0;
    struct rpc_server *s = serve(&calls);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    char answer[16];
    assert_int_equal(call_text("abc", 5000, answer, NULL), ERROR_OK);
    assert_string_equal(answer, "cba");
    assert_int_equal(call_text("", 5000, answer, NULL), ERROR_OK);
    assert_string_equal(answer, "");

    size_t len = RPC_MESSAGE_BYTES, reply_len = 0;
    uint8_t *big = malloc(len), *reply = NULL;
    for (size_t i = 0; i < len; i++)
        big[i] = (uint8_t)(i * 7 + i / 251);
    assert_int_equal(rpc_call(url, big, len, 10000, &reply, &reply_len, NULL), ERROR_OK);
    assert_int_equal(reply_len, len);
    for (size_t i = 0; i < len; i++)
        assert_int_equal(reply[i], big[len - 1 - i]);
    free(reply);
    free(big);
    assert_int_equal(atomic_load(&calls), 3);
    rpc_server_stop(s);
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

    struct rpc_server *s = serve(NULL);
    struct rpc_server *second = NULL;
    assert_int_equal(rpc_serve(url, reverse, NULL, &second, &e), ERROR_EXISTS);
    assert_int_equal(call_text("abc", 5000, answer, &e), ERROR_OK);
    rpc_server_stop(s);
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

/* The caller learns at once, and a server that takes the dead one's place never sees the request.
 */
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

static int raw_connection(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    memcpy(a.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    /* nng's greeting: 0 "SP" 0, protocol req0 (0x30), reserved */
    const uint8_t hello[8] = {0, 'S', 'P', 0, 0, 0x30, 0, 0};
    uint8_t theirs[8];
    assert_int_equal(send(fd, hello, 8, MSG_NOSIGNAL), 8);
    assert_int_equal(recv(fd, theirs, 8, MSG_WAITALL), 8);
    assert_int_equal(theirs[1], 'S');
    return fd;
}

/* A message's head on the wire: 1, then its length in 64 bits, big-endian. */
static void send_head(int fd, uint64_t len)
{
    uint8_t head[9] = {1};
    for (int i = 0; i < 8; i++)
        head[1 + i] = (uint8_t)(len >> (56 - 8 * i));
    assert_int_equal(send(fd, head, 9, MSG_NOSIGNAL), 9);
}

static void expect_end(int fd)
{
    struct timeval limit = {.tv_sec = 5};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    uint8_t byte;
    ssize_t n = recv(fd, &byte, 1, 0);
    assert_true(n == 0 || (n < 0 && errno == ECONNRESET));
    close(fd);
}

/* nng 1.5.2 stops accepting for ever after such a peer; the server must notice. */
static void test_peer_gone_before_greeting(void **state)
{
    /* in a process of its own: nng 1.5.2 leaks those whom its stuck listener has greeted */
    pid_t pid = start_server_process();
    char answer[16];
    uint64_t worst = 0;
    for (int i = 0; i < 5; i++) {
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        memcpy(a.sun_path, path, strlen(path) + 1);
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
        close(fd);
        memset(answer, 0, sizeof answer);
        uint64_t start = clock_ns();
        /* who calls before it was noticed is told that the server was not there */
        while (call_text("abc", 5000, answer, NULL) == ERROR_UNAVAILABLE)
            pause_ms(1);
        assert_string_equal(answer, "cba");
        uint64_t took = clock_ns() - start;
        worst = took > worst ? took : worst;
    }
    kill_process(pid);
    unlink(log_path);
    print_message("answered after at most %.0f ms\n", (double)worst * 1e-6);
    assert_true(worst < 3000000000u);
}

/* Oversized and malformed messages cost their sender its connection and nobody else anything. */
static void test_hostile_peers(void **state)
{
    struct rpc_server *s = serve(NULL);
    struct error e = {0};
    uint8_t *big = calloc(1, RPC_MESSAGE_BYTES + 1), *reply;
    size_t len;
    assert_int_equal(rpc_call(url, big, RPC_MESSAGE_BYTES + 1, 5000, &reply, &len, &e),
                     ERROR_LIMIT);
    free(big);
    char answer[16];
    const uint64_t sizes[] = {RPC_MESSAGE_BYTES * 2ull, UINT64_MAX, 1ull << 63};
    for (size_t i = 0; i < 3; i++) {
        int fd = raw_connection();
        send_head(fd, sizes[i]);
        assert_int_equal(call_text("abc", 5000, answer, &e), ERROR_OK);
        expect_end(fd);
    }
    int fd = raw_connection(); /* too short for a request id */
    send_head(fd, 2);
    assert_int_equal(send(fd, "xy", 2, MSG_NOSIGNAL), 2);
    assert_int_equal(call_text("abc", 5000, answer, &e), ERROR_OK);
    expect_end(fd);
    fd = raw_connection(); /* half a message, then silence */
    send_head(fd, 1000);
    assert_int_equal(call_text("abc", 5000, answer, &e), ERROR_OK);
    assert_string_equal(answer, "cba");
    close(fd);
    rpc_server_stop(s);
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
    struct rpc_server *s = serve(&calls);
    uint64_t start = clock_ns();
    assert_int_equal(mismatches(0, CALLS), 0);
    print_message("%.0f us a call\n", (double)(clock_ns() - start) * 1e-3 / CALLS);
    assert_int_equal(atomic_load(&calls), CALLS);
    rpc_server_stop(s);
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
    struct rpc_server *s = serve(&calls);
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
    rpc_server_stop(s);
}

/* A reply sent just before the server stops still arrives ("down" is answered by who goes down). */
static void *stopper_main(void *arg)
{
    rpc_server_stop(arg);
    return NULL;
}

static void test_stop(void **state)
{
    rpc_server_stop(NULL);
    char answer[16];
    for (int i = 0; i < 10; i++) {
        struct rpc_server *s = serve(NULL);
        pthread_t stopper;
        assert_int_equal(call_text("abc", 5000, answer, NULL), ERROR_OK);
        assert_int_equal(pthread_create(&stopper, NULL, stopper_main, s), 0);
        enum error_code code = call_text("abc", 5000, answer, NULL);
        assert_true(code == ERROR_OK || code == ERROR_UNAVAILABLE);
        pthread_join(stopper, NULL);
    }
    assert_int_not_equal(access(path, F_OK), 0); /* the socket file goes with its server */
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "--server") == 0)
        return server_process(argv[2], argv[3]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),    cmocka_unit_test(test_nobody_there),
        cmocka_unit_test(test_timeout),       cmocka_unit_test(test_server_killed),
        cmocka_unit_test(test_hostile_peers), cmocka_unit_test(test_peer_gone_before_greeting),
        cmocka_unit_test(test_many_calls),    cmocka_unit_test(test_many_threads),
        cmocka_unit_test(test_stop),
    };
    if (mkdtemp(directory) == NULL)
        return 1;
    snprintf(path, sizeof path, "%s/s", directory);
    snprintf(url, sizeof url, "ipc://%s", path);
    snprintf(log_path, sizeof log_path, "%s/notes", directory);
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    unlink(log_path);
    rmdir(directory);
    return rc;
}
