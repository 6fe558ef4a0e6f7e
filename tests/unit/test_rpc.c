/* lib/ipc/rpc. Servers that get killed are this program started again. */
#include "ipc/rpc.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#define SERVER      rpc_server
#define SERVE       rpc_serve
#define SERVER_STOP rpc_server_stop
#define CALL        rpc_call
#define LARGEST     RPC_REQUEST_BYTES
#define PROGRAM     "test_rpc"
#include "rpc_cases.h"

static struct sockaddr_un address(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    memcpy(a.sun_path, path, strlen(path) + 1);
    return a;
}

/* Connected and greeted. */
static int raw_connection(void)
{
    struct sockaddr_un a = address();
    uint32_t greeting;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(recv(fd, &greeting, sizeof greeting, MSG_WAITALL), sizeof greeting);
    return fd;
}

/* ---- peers that break the rules ---- */

/* Sends at most len bytes of a request; returns the connection. */
static int half_spoken(const void *data, size_t len)
{
    int fd = raw_connection();
    (void)!send(fd, data, len, MSG_NOSIGNAL);
    return fd;
}

static void expect_answer(void)
{
    char answer[16] = "";
    struct error e = {0};
    if (call_text("abc", 5000, answer, &e) != ERROR_OK)
        fail_msg("%s", e.text);
    assert_string_equal(answer, "cba");
}

static void expect_end(int fd, int timeout_ms)
{
    uint8_t byte;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, timeout_ms), 1);
    ssize_t n = recv(fd, &byte, 1, MSG_DONTWAIT);
    assert_true(n == 0 || (n < 0 && errno == ECONNRESET));
    close(fd);
}

/* Oversized and malformed messages end their sender's connection and no other. */
static void test_hostile_peers(void **state)
{
    struct rpc_server *s = serve(NULL);
    struct error e = {0};
    uint8_t *big = calloc(1, RPC_REQUEST_BYTES + 1), *reply;
    size_t len;
    assert_int_equal(rpc_call(url, big, RPC_REQUEST_BYTES + 1, 5000, &reply, &len, &e),
                     ERROR_LIMIT);
    assert_int_equal(rpc_call(url, big, 0, 5000, &reply, &len, &e), ERROR_LIMIT);
    free(big);
    const uint32_t lengths[] = {0, RPC_REQUEST_BYTES + 1, UINT32_MAX, 0x00505300 /* nng's */};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        int fd = half_spoken(&lengths[i], sizeof lengths[i]);
        expect_answer();
        expect_end(fd, 5000);
    }
    const uint32_t announced = 1000;
    int silent = raw_connection(), half = half_spoken(&announced, sizeof announced);
    expect_answer();
    expect_end(silent, 2 * RPC_DEADLINE_MS); /* the server does not wait for ever */
    expect_end(half, 2 * RPC_DEADLINE_MS);
    rpc_server_stop(s);
}

static int count_descriptors(void)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

/* Clients that go at every point of a call leave nothing behind. */
static void test_clients_that_go(void **state)
{
    struct rpc_server *s = serve(NULL);
    expect_answer();
    int before = count_descriptors();
    const uint8_t whole[] = {3, 0, 0, 0, 'a', 'b', 'c'};
    for (int i = 0; i < 4000; i++) {
        struct sockaddr_un a = address();
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
        (void)!send(fd, whole, (size_t)i % 8, MSG_NOSIGNAL);
        close(fd);
    }
    expect_answer();
    /* The last ones may not have been noticed yet. */
    for (int i = 0; i < 100 && count_descriptors() > before; i++)
        pause_ms(10);
    assert_in_range(count_descriptors(), 0, before); /* the first call's may still have been open */
    rpc_server_stop(s);
}

/* More connections than the server holds: those that came last are served. */
static void test_too_many_connections(void **state)
{
    struct rpc_server *s = serve(NULL);
    int fds[RPC_CONNECTIONS + 20];
    for (int i = 0; i < RPC_CONNECTIONS + 20; i++)
        fds[i] = raw_connection();
    expect_answer();
    for (int i = 0; i < 20; i++)
        expect_end(fds[i], 5000);
    const uint8_t whole[] = {3, 0, 0, 0, 'a', 'b', 'c'};
    uint8_t answer[7];
    int last = fds[RPC_CONNECTIONS + 19];
    assert_int_equal(send(last, whole, sizeof whole, MSG_NOSIGNAL), sizeof whole);
    assert_int_equal(recv(last, answer, sizeof answer, MSG_WAITALL), sizeof answer);
    assert_memory_equal(answer + 4, "cba", 3);
    for (int i = 20; i < RPC_CONNECTIONS + 20; i++)
        close(fds[i]);
    rpc_server_stop(s);
}

static void large_reply(void *arg, const uint8_t *request, size_t len, struct rpc_reply *reply)
{
    reply->len = len == 1 ? RPC_MESSAGE_BYTES : len;
    reply->data = calloc(1, reply->len);
}

/* Clients with pipelined requests that read no reply: nobody else waits, and what is kept for them
 * is limited. Before, each of them delayed all others for seconds. */
static void test_clients_that_do_not_read(void **state)
{
    struct rpc_server *s = NULL;
    assert_int_equal(rpc_serve(url, large_reply, NULL, &s, NULL), ERROR_OK);
    int fds[20];
    const uint8_t one[] = {1, 0, 0, 0, 'x'};
    for (int i = 0; i < 20; i++) {
        fds[i] = raw_connection();
        for (int k = 0; k < 99; k++)
            assert_int_equal(send(fds[i], one, sizeof one, MSG_NOSIGNAL), sizeof one);
    }
    char answer[16];
    for (int i = 0; i < 50; i++)
        assert_int_equal(call_text("abc", 5000, answer, NULL), ERROR_OK);
    int open = 0; /* 32 MiB of replies of 4 MiB */
    for (int i = 0; i < 20; i++) {
        struct pollfd p = {.fd = fds[i], .events = POLLRDHUP};
        open += poll(&p, 1, 0) == 0;
        close(fds[i]);
    }
    assert_in_range(open, 1, 8);
    rpc_server_stop(s);
}

/* ---- handing the connection over ---- */

static _Atomic int adopted = -2;

static void adopt(void *arg, int fd)
{
    atomic_store((_Atomic int *)arg, fd);
}

static void hand_over(void *arg, const uint8_t *request, size_t len, struct rpc_reply *reply)
{
    reverse(NULL, request, len, reply);
    reply->adopt = adopt;
    reply->adopt_arg = &adopted;
}

static void await_adopted(void)
{
    for (int i = 0; i < 1000 && atomic_load(&adopted) == -2; i++)
        pause_ms(10);
}

static void test_hand_over(void **state)
{
    struct rpc_server *s = NULL;
    uint8_t *reply;
    size_t len;
    int fd;
    assert_int_equal(rpc_serve(url, hand_over, NULL, &s, NULL), ERROR_OK);
    assert_int_equal(rpc_call_open(url, (const uint8_t *)"abc", 3, 5000, &reply, &len, &fd, NULL),
                     ERROR_OK);
    assert_memory_equal(reply, "cba", 3);
    free(reply);
    await_adopted();
    int other = atomic_load(&adopted);
    assert_true(other >= 0);
    rpc_server_stop(s); /* it is not the server's any more */
    char got[2];
    assert_int_equal(send(fd, "hi", 2, MSG_NOSIGNAL), 2);
    assert_int_equal(recv(other, got, 2, MSG_WAITALL), 2);
    assert_memory_equal(got, "hi", 2);
    close(fd);
    close(other);
}

#define STRANGER_ID 65534

/* Another user's process, which the file's mode would keep out already. 0: it was cut off. */
static int stranger_process(const char *at)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", at);
    char rest[64];
    if (setresuid(STRANGER_ID, STRANGER_ID, STRANGER_ID) != 0)
        return 2;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&a, sizeof a) != 0)
        return 3;
    struct timeval limit = {.tv_sec = 5};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    return recv(fd, rest, sizeof rest, 0) <= 0 && errno != EAGAIN ? 0 : 4;
}

static void test_stranger(void **state)
{
    if (geteuid() != 0) {
        print_message("only root can play another user\n");
        skip();
    }
    struct rpc_server *s = serve(NULL);
    assert_int_equal(chmod(directory, 0755), 0);
    assert_int_equal(chmod(path, 0666), 0);
    char *argv[] = {"test_rpc", "--stranger", path, NULL};
    pid_t pid;
    int status;
    assert_int_equal(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ), 0);
    waitpid(pid, &status, 0);
    assert_int_equal(chmod(directory, 0700), 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    expect_answer();
    rpc_server_stop(s);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--stranger") == 0)
        return stranger_process(argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_nobody_there),
        cmocka_unit_test(test_timeout),
        cmocka_unit_test(test_server_killed),
        cmocka_unit_test(test_hostile_peers),
        cmocka_unit_test(test_clients_that_go),
        cmocka_unit_test(test_too_many_connections),
        cmocka_unit_test(test_clients_that_do_not_read),
        cmocka_unit_test(test_hand_over),
        cmocka_unit_test(test_stranger),
        cmocka_unit_test(test_many_calls),
        cmocka_unit_test(test_many_threads),
        cmocka_unit_test(test_stop),
    };
    return run_cases(argc, argv, tests, sizeof tests / sizeof *tests);
}
