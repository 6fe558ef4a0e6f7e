/* lib/ipc/channel. The peer that gets killed is this program started again (nng forbids fork). */
#include "ipc/channel.h"

#include "base/clock.h"
#include "ipc/rpc.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

extern char **environ;

static char directory[] = "/tmp/moed-test-channel-XXXXXX";
static char url[64], path[48];

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* What an end has received: messages carry their number, and are checked for order as they come. */
struct end {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t next;   /* number expected */
    uint32_t wrong;  /* messages out of order or damaged */
    uint32_t closed; /* times closed was told */
    uint32_t late;   /* callbacks after closed */
    uint64_t closed_ns;
    bool hold; /* the callback waits while it is set */
};

static void end_init(struct end *p)
{
    *p = (struct end){.hold = false};
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
}

static void on_message(void *arg, const uint8_t *data, size_t len)
{
    struct end *p = arg;
    pthread_mutex_lock(&p->lock);
    while (p->hold)
        pthread_cond_wait(&p->changed, &p->lock);
    if (p->closed > 0)
        p->late++;
    if (data == NULL) {
        p->closed++;
        p->closed_ns = clock_ns();
    } else {
        uint32_t number = UINT32_MAX;
        if (len >= sizeof number)
            memcpy(&number, data, sizeof number);
        bool intact = number == p->next && len == sizeof number + number % 1000;
        for (size_t i = sizeof number; intact && i < len; i++)
            intact = data[i] == (uint8_t)(number + i);
        p->wrong += !intact;
        p->next++;
    }
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

static enum error_code send_number(struct channel *c, uint32_t number, struct error *e)
{
    uint8_t data[4 + 1000];
    size_t len = 4 + number % 1000;
    memcpy(data, &number, 4);
    for (size_t i = 4; i < len; i++)
        data[i] = (uint8_t)(number + i);
    return channel_send(c, data, len, e);
}

static bool wait_until(struct end *p, uint32_t count, bool closed, int timeout_ms)
{
    uint64_t end_ns = clock_ns() + (uint64_t)timeout_ms * 1000000u;
    bool ok = false;
    while (!ok && clock_ns() < end_ns) {
        pthread_mutex_lock(&p->lock);
        ok = p->next >= count && (!closed || p->closed > 0);
        pthread_mutex_unlock(&p->lock);
        if (!ok)
            pause_ms(1);
    }
    return ok;
}

static struct channel *do_listen(struct end *p, int peer_timeout_ms)
{
    struct channel *c = NULL;
    struct error e = {0};
    end_init(p);
    if (channel_listen(url, peer_timeout_ms, on_message, p, &c, &e) != ERROR_OK)
        fail_msg("%s", e.text);
    return c;
}

static struct channel *do_connect(struct end *p)
{
    struct channel *c = NULL;
    struct error e = {0};
    end_init(p);
    if (channel_connect(url, 5000, on_message, p, &c, &e) != ERROR_OK)
        fail_msg("%s", e.text);
    return c;
}

static void assert_clean(const struct end *p, uint32_t count, uint32_t closed)
{
    assert_int_equal(p->wrong, 0);
    assert_int_equal(p->late, 0);
    assert_int_equal(p->next, count);
    assert_int_equal(p->closed, closed);
}

#define MESSAGES 20000

static void *sender_main(void *arg)
{
    struct channel *c = arg;
    for (uint32_t i = 0; i < MESSAGES; i++)
        if (send_number(c, i, NULL) != ERROR_OK)
            return arg;
    return NULL;
}

static void test_both_directions(void **state)
{
    struct end server, client;
    struct channel *s = do_listen(&server, 5000);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    struct channel *c = do_connect(&client);
    pthread_t threads[2];
    void *failed[2];
    pthread_create(&threads[0], NULL, sender_main, s);
    pthread_create(&threads[1], NULL, sender_main, c);
    pthread_join(threads[0], &failed[0]);
    pthread_join(threads[1], &failed[1]);
    assert_null(failed[0]);
    assert_null(failed[1]);
    assert_true(wait_until(&server, MESSAGES, false, 60000));
    assert_true(wait_until(&client, MESSAGES, false, 60000));
    channel_close(c, 0);
    assert_true(wait_until(&server, MESSAGES, true, 2000));
    assert_int_equal(send_number(s, 0, NULL), ERROR_UNAVAILABLE);
    channel_close(s, 0);
    assert_clean(&server, MESSAGES, 1);
    assert_clean(&client, MESSAGES, 0); /* who closes is not told */
}

/* Everything queued before the close arrives, though the receiver is slow, and then closed. */
static void test_flush(void **state)
{
    struct end server, client;
    struct channel *s = do_listen(&server, 5000);
    struct channel *c = do_connect(&client);
    for (uint32_t i = 0; i < MESSAGES; i++)
        assert_int_equal(send_number(c, i, NULL), ERROR_OK);
    channel_close(c, 30000);
    assert_true(wait_until(&server, MESSAGES, true, 30000));
    channel_close(s, 0);
    assert_clean(&server, MESSAGES, 1);
}

static void test_limits(void **state)
{
    struct end server, client;
    struct channel *s = do_listen(&server, 5000);
    struct channel *c = do_connect(&client);
    struct error e = {0};
    assert_int_equal(channel_send(c, (const uint8_t *)"", 0, &e), ERROR_USAGE);
    uint8_t *big = calloc(1, RPC_MESSAGE_BYTES + 1);
    assert_int_equal(channel_send(c, big, RPC_MESSAGE_BYTES + 1, &e), ERROR_LIMIT);

    pthread_mutex_lock(&server.lock);
    server.hold = true; /* a peer that does not read */
    pthread_mutex_unlock(&server.lock);
    uint64_t sent = 0, slowest = 0;
    enum error_code code = ERROR_OK;
    while (code == ERROR_OK && sent < 8ull * CHANNEL_QUEUE_BYTES) {
        uint64_t start = clock_ns();
        code = channel_send(c, big, 1u << 20, &e);
        uint64_t took = clock_ns() - start;
        slowest = took > slowest ? took : slowest;
        sent += 1u << 20;
    }
    free(big);
    assert_int_equal(code, ERROR_LIMIT);
    assert_true(sent > CHANNEL_QUEUE_BYTES / 2);
    assert_true(slowest < 1000000000u); /* never waits for the peer */

    pthread_mutex_lock(&server.lock);
    server.hold = false;
    pthread_cond_broadcast(&server.changed);
    pthread_mutex_unlock(&server.lock);
    assert_true(wait_until(&server, (uint32_t)(sent >> 20) - 1, false, 20000));
    assert_int_equal(send_number(c, 5, &e), ERROR_OK); /* usable again */
    channel_close(c, 5000);
    assert_true(wait_until(&server, (uint32_t)(sent >> 20), true, 5000));
    channel_close(s, 0);
}

#define PUT_OUT 3

/* The other process: connects, sends three messages, waits to be killed or put out. */
static int peer_process(const char *at)
{
    struct end client;
    struct channel *c = NULL;
    struct error e;
    end_init(&client);
    if (channel_connect(at, 5000, on_message, &client, &c, &e) != ERROR_OK) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    for (uint32_t i = 0; i < 3; i++)
        send_number(c, i, NULL);
    int status = wait_until(&client, 0, true, 60000) ? PUT_OUT : 0;
    channel_close(c, 0);
    _exit(status); /* without a leak checker's opinion on what nng holds */
}

static pid_t start_peer_process(void)
{
    char *argv[] = {"test_channel", "--peer", url, NULL};
    pid_t pid;
    assert_int_equal(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ), 0);
    return pid;
}

static void test_second_peer(void **state)
{
    struct end server, client;
    struct channel *s = do_listen(&server, 5000);
    struct channel *c = do_connect(&client);
    assert_int_equal(send_number(c, 0, NULL), ERROR_OK);
    assert_true(wait_until(&server, 1, false, 5000));
    int status; /* the kernel lets it in, then it is put out, and nothing of what it sends is heard
                 */
    assert_int_equal(waitpid(start_peer_process(), &status, 0) > 0, 1);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), PUT_OUT);
    assert_int_equal(send_number(c, 1, NULL), ERROR_OK);
    assert_int_equal(send_number(s, 0, NULL), ERROR_OK);
    assert_true(wait_until(&server, 2, false, 5000));
    assert_true(wait_until(&client, 1, false, 5000));
    channel_close(s, 1000);
    assert_true(wait_until(&client, 1, true, 2000));
    channel_close(c, 0);
    assert_clean(&server, 2, 0);
    assert_clean(&client, 1, 1);
}

/* After the peer has gone nobody takes its place. */
static void test_no_successor(void **state)
{
    struct end server, client, next;
    struct channel *s = do_listen(&server, 5000);
    channel_close(do_connect(&client), 0);
    assert_true(wait_until(&server, 0, true, 2000));
    struct channel *c = NULL;
    end_init(&next);
    if (channel_connect(url, 1000, on_message, &next, &c, NULL) == ERROR_OK) {
        assert_true(wait_until(&next, 0, true, 2000));
        channel_close(c, 0);
    }
    channel_close(s, 0);
    assert_clean(&server, 0, 1);
}

static void test_nobody(void **state)
{
    struct end server, client;
    struct channel *c = NULL;
    struct error e = {0};
    end_init(&client);
    assert_int_equal(channel_connect(url, 50, on_message, &client, &c, &e), ERROR_UNAVAILABLE);
    assert_non_null(strstr(e.text, path));

    uint64_t start = clock_ns();
    struct channel *s = do_listen(&server, 200);
    assert_true(wait_until(&server, 0, true, 2000));
    assert_true(server.closed_ns - start >= 190000000u);
    assert_int_equal(send_number(s, 0, NULL), ERROR_UNAVAILABLE);
    channel_close(s, 1000);
    s = do_listen(&server, 60000); /* closing does not wait for a peer */
    start = clock_ns();
    channel_close(s, 60000);
    assert_true(clock_ns() - start < 5000000000u);
    assert_int_equal(server.closed, 0);
    channel_close(NULL, 0);
}

static void test_peer_killed(void **state)
{
    uint64_t worst = 0;
    for (int i = 0; i < 5; i++) {
        struct end server;
        struct channel *s = do_listen(&server, 20000);
        pid_t pid = start_peer_process();
        assert_true(wait_until(&server, 3, false, 20000));
        assert_false(wait_until(&server, 0, true, 20));
        uint64_t start = clock_ns();
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        assert_true(wait_until(&server, 3, true, 2000));
        uint64_t took = server.closed_ns - start;
        worst = took > worst ? took : worst;
        channel_close(s, 1000);
        assert_clean(&server, 3, 1);
    }
    print_message("noticed a killed peer after at most %.1f ms\n", (double)worst * 1e-6);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--peer") == 0)
        return peer_process(argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_directions), cmocka_unit_test(test_flush),
        cmocka_unit_test(test_limits),          cmocka_unit_test(test_second_peer),
        cmocka_unit_test(test_no_successor),    cmocka_unit_test(test_nobody),
        cmocka_unit_test(test_peer_killed),
    };
    if (mkdtemp(directory) == NULL)
        return 1;
    snprintf(path, sizeof path, "%s/c", directory);
    snprintf(url, sizeof url, "ipc://%s", path);
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    rmdir(directory);
    return rc;
}
